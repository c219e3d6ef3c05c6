"""The status of a TCPLoadBalancer: addresses, counts, and which Events its conditions become."""

from __future__ import annotations

import msgspec

from fairlead.api.intent import Allocation
from fairlead.api.kubernetes import LoadBalancerStatus, PortStatus
from fairlead.api.meta import WireCondition
from fairlead.api.names import MANAGER_HUB
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer, TCPLoadBalancerStatus
from fairlead.hub.intents.conditions import ingress_of
from fairlead.hub.intents.tcp.accepted_status import apply_status
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.model.observed import Observed
from fairlead.sync.report import Report
from fairlead.translate.view import Translation

_GOOD_WHEN_TRUE = frozenset({ConditionType.ACCEPTED, ConditionType.RESOLVED_REFS, ConditionType.PROGRAMMED})


class TCPStatus:
    """The rules for the status of TCPLoadBalancers."""

    needs_address = True
    patience_s = 5.0
    gather_s = 1.0

    def __init__(self, *, cluster: Cluster, events: EventRecorder) -> None:
        self._cluster = cluster
        self._events = events

    def compose(
        self,
        obj: TCPLoadBalancer,
        translation: Translation,
        conditions: list[WireCondition],
        observed: Observed | None,
    ) -> TCPLoadBalancerStatus:
        """Return the status; an address that users have read stays until another one takes its place."""
        old = obj.status
        programmed = any(one.type == ConditionType.PROGRAMMED and one.status == "True" for one in conditions)
        ingress = old.load_balancer.ingress
        if programmed and observed is not None:
            ports = [PortStatus(port.port, port.protocol) for port in (old.accepted or obj.spec).ports]
            ingress = [ingress_of(address, ports) for address in observed.addresses]
        return msgspec.structs.replace(
            old,
            address=ingress[0].address if ingress else "",
            targets=translation.targets,
            load_balancer=LoadBalancerStatus(ingress=ingress),
            observed_generation=obj.metadata.generation,
            conditions=conditions,
        )

    def is_count(self, old: TCPLoadBalancerStatus, new: TCPLoadBalancerStatus) -> bool:
        """Say whether only the number of targets differs."""
        return msgspec.structs.replace(old, targets=new.targets) == new

    async def write(self, obj: TCPLoadBalancer, status: TCPLoadBalancerStatus) -> TCPLoadBalancer:
        """Apply the status without the record; what is left out is removed."""
        return await apply_status(self._cluster, obj, _without_record(status), MANAGER_HUB)

    def with_status(self, obj: TCPLoadBalancer, written: TCPLoadBalancer) -> TCPLoadBalancer:
        """Return ``obj`` with the status of ``written``; the record is that of ``obj``."""
        known = obj.status
        status = msgspec.structs.replace(
            written.status,
            allocation=known.allocation,
            accepted=known.accepted,
            provisioned=known.provisioned,
            provider=known.provider,
            frontend=known.frontend,
            frontends=known.frontends,
        )
        return msgspec.structs.replace(obj, status=status)

    def announce(
        self, obj: TCPLoadBalancer, status: TCPLoadBalancerStatus, changed: list[WireCondition], report: Report | None
    ) -> None:
        """Emit refusals and held removals as Warnings, and once it serves, its address."""
        del report
        known = {condition.type for condition in obj.status.conditions or ()}
        for condition in changed:
            good = (condition.status == "True") == (condition.type in _GOOD_WHEN_TRUE)
            if good and condition.type == ConditionType.PROGRAMMED:
                self._event(obj, condition.reason, f"serving at {status.address}", warning=False)
            # A load balancer that is seconds old has no endpoints yet; that is worth an Event only when it had some.
            unborn = condition.type not in known and condition.reason == ConditionReason.BACKEND_NOT_FOUND
            if not good and condition.reason != ConditionReason.PENDING and not unborn:
                self._event(obj, condition.reason, condition.message, warning=True)

    def reported(self, obj: TCPLoadBalancer, report: Report) -> None:
        """Emit nothing: what the worker did with a Service's load balancer is in its conditions."""
        del obj, report

    def _event(self, obj: TCPLoadBalancer, reason: str, message: str, *, warning: bool) -> None:
        self._events.emit_about(TCP_LOAD_BALANCERS, obj, warning=warning, reason=reason, message=message)


def _without_record(status: TCPLoadBalancerStatus) -> TCPLoadBalancerStatus:
    return msgspec.structs.replace(
        status, allocation=Allocation(), accepted=None, provisioned=None, frontend=None, frontends=None, provider=""
    )
