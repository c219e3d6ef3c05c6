"""The settings of an agent.

In: the command line, as an ``AgentConfig``. Out: frozen settings, checked.
Never reads files or the environment.
"""

from __future__ import annotations

import re

import msgspec

from fairlead.agent.slices import NodeAddressType
from fairlead.agent.sources.service.plan import CloudLoadBalancer, NodeOrPod
from fairlead.api.names import SYSTEM_NAMESPACE, TENANT_NAMESPACE_PREFIX, region_problem
from fairlead.errors import BadConfiguration

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_TENANT_MAX = 63 - len(TENANT_NAMESPACE_PREFIX)


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one agent. A kubeconfig of None is the default one, or the service account of the pod.

    ``hub_namespace`` empty: that of the hub kubeconfig's context, else tenant-<tenant>. ``metrics`` None: no status
    page. ``reclaim_lease``: no other process can have this ``identity``, so a restarted agent leads again
    at once. ``renew_token``: the token in the hub's kubeconfig is the agent's own, and to be renewed by it.
    ``readiness_gates``: pods with the readiness gate of Fairlead are watched, and their gates are opened. ``egress``:
    pods with the egress label leave with the address of a Service.

    Times are in seconds: how often the heartbeat is renewed, from what age on a cache is not believed to be current
    (a server sends something about once a minute), and how long an agent that cannot work keeps its lease.
    """

    tenant: str
    member_kubeconfig: str | None = None
    member_context: str = ""
    hub_kubeconfig: str | None = None
    hub_context: str = ""
    hub_namespace: str = ""
    region: str = ""
    cloud_load_balancer: CloudLoadBalancer = "absent"
    target: NodeOrPod = "Node"
    readiness_gates: bool = False
    egress: bool = False
    node_address_type: NodeAddressType = "InternalIP"
    metrics: tuple[str, int] | None = None
    workers: int = 16
    identity: str = ""
    reclaim_lease: bool = False
    renew_token: bool = True
    system_namespace: str = SYSTEM_NAMESPACE
    heartbeat_s: float = 10.0
    lease_s: float = 15.0
    fresh_s: float = 120.0
    let_go_s: float = 30.0
    preflight_retry_s: float = 15.0

    def check(self) -> None:
        """Reject invalid settings.

        Raises:
            BadConfiguration: names the setting and what it may be.
        """
        if not self.tenant:
            raise BadConfiguration("The agent needs the name of its tenant at the hub (--tenant).")
        if not _LABEL.fullmatch(self.tenant) or len(self.tenant) > _TENANT_MAX:
            raise BadConfiguration(
                f"--tenant: {self.tenant!r} cannot name a tenant; use lower-case letters, digits and dashes, "
                f"at most {_TENANT_MAX}"
            )
        if self.region and (problem := region_problem(self.region)):
            raise BadConfiguration(problem)
        allowed = {
            "cloud_load_balancer": ("present", "absent"),
            "target": ("Node", "Pod"),
            "node_address_type": ("InternalIP", "ExternalIP"),
        }
        for name, values in allowed.items():
            value = getattr(self, name)
            if value not in values:
                flag = "--" + name.replace("_", "-")
                raise BadConfiguration(f"{flag} is {value!r}: it must be {' or '.join(values)}.")
        if self.workers < 1:
            raise BadConfiguration(f"workers is {self.workers}: it must be at least 1.")

    def namespace_at_hub(self, of_context: str) -> str:
        """Return the tenant's namespace; a context that names none has ``default``, which is never a tenant's.

        Raises:
            BadConfiguration: the context is that of another tenant, as ``fairlead tenant add`` printed it.
        """
        named = "" if of_context == "default" else of_context
        expected = TENANT_NAMESPACE_PREFIX + self.tenant
        if not self.hub_namespace and named.startswith(TENANT_NAMESPACE_PREFIX) and named != expected:
            other = named.removeprefix(TENANT_NAMESPACE_PREFIX)
            raise BadConfiguration(
                f"--hub-kubeconfig belongs to tenant {other!r} (namespace {named}), but --tenant is "
                f"{self.tenant!r}: use the kubeconfig that `fairlead tenant add {self.tenant}` printed, "
                f"or --tenant {other}"
            )
        return self.hub_namespace or named or expected
