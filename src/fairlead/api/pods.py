"""core/v1 Pod: the few fields that say whether it can be a backend."""

from __future__ import annotations

import msgspec

from fairlead.api.meta import KubeObject, Resource, Wire


class PodCondition(Wire, frozen=True, gc=False):
    """One condition."""

    type: str = ""
    status: str = ""


class PodSpec(Wire, frozen=True, gc=False):
    """The spec of a pod: where it runs."""

    node_name: str | None = None


class PodStatus(Wire, frozen=True, gc=False):
    """The status of a pod."""

    phase: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: list[PodCondition] | None = None


class Pod(KubeObject, frozen=True, gc=False):
    """A Pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> bool:
        """Return whether it takes traffic: an address, the condition Ready, and not on its way out."""
        return self.serving and not self.deleting

    @property
    def serving(self) -> bool:
        """Return whether it answers: an address and the condition Ready, which a terminating pod may have."""
        conditions = self.status.conditions or ()
        is_ready = any(condition.type == "Ready" and condition.status == "True" for condition in conditions)
        return bool(self.status.pod_ip) and is_ready


PODS = Resource("", "v1", "Pod", "pods", True, Pod)
