"""The status of a LoadBalancer: address, registered of expected backends, and Events about every removal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fairlead.api.kubernetes import LoadBalancerStatus as IngressStatus
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer, LoadBalancerObjectStatus
from fairlead.api.meta import WireCondition
from fairlead.api.names import MANAGER_HUB
from fairlead.hub.intents.conditions import ingress_of
from fairlead.hub.inventory import Inventory
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.model.change import Action
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.sync.report import Report
from fairlead.translate.view import LoadBalancerTranslation

_GOOD_WHEN_TRUE = frozenset({"Accepted", "ResolvedRefs", "Programmed"})
#: Needs no Event: on its way, or in the worker's report with the provider's own reason.
_QUIET = frozenset({"Pending", "Quarantined"})


class LoadBalancerStatus:
    """The rules for the status of LoadBalancers; ``written`` is called with each key whose status was compared."""

    needs_address = False
    patience_s = 0.0
    gather_s = 0.0

    def __init__(
        self,
        *,
        cluster: Cluster,
        events: EventRecorder,
        inventory: Inventory,
        written: Callable[[LoadBalancerKey], None],
    ) -> None:
        self._cluster = cluster
        self._events = events
        self._inventory = inventory
        self._written = written

    def compose(
        self,
        obj: LoadBalancer,
        translation: LoadBalancerTranslation,
        conditions: list[WireCondition],
        observed: Observed | None,
    ) -> LoadBalancerObjectStatus:
        """Return the status; without an observed address, the one on record."""
        key = LoadBalancerKey(LOAD_BALANCERS.kind, *obj.key)
        self._written(key)
        frontend = next(iter(obj.status.recorded), None)
        addresses = observed.addresses if observed is not None else ()
        if not addresses and frontend is not None:
            addresses = tuple(frontend.addresses or ())
        return msgspec.structs.replace(
            obj.status,
            address=addresses[0] if addresses else "",
            backends=f"{self._registered(key)}/{translation.targets or 0}",
            load_balancer=IngressStatus(ingress=[ingress_of(address) for address in addresses] or None),
            observed_generation=obj.metadata.generation,
            conditions=conditions,
        )

    def is_count(self, old: Any, new: Any) -> bool:
        """Return False: counts are written at once."""
        del old, new
        return False

    async def write(self, obj: LoadBalancer, status: LoadBalancerObjectStatus) -> LoadBalancer:
        """Apply the status without what the ledger records in it."""
        meta = obj.metadata
        about = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        body = {
            "metadata": about,
            "status": msgspec.to_builtins(msgspec.structs.replace(status, frontend=None, provisioned=None)),
        }
        return await self._cluster.apply(LOAD_BALANCERS, body, manager=MANAGER_HUB, subresource="status")

    def with_status(self, obj: LoadBalancer, written: LoadBalancer) -> LoadBalancer:
        """Return ``obj`` with the status of ``written``; what the ledger records is that of ``obj``."""
        known = obj.status
        status = msgspec.structs.replace(written.status, provisioned=known.provisioned, frontend=known.frontend)
        return msgspec.structs.replace(obj, status=status)

    def announce(
        self,
        obj: LoadBalancer,
        status: LoadBalancerObjectStatus,
        changed: list[WireCondition],
        report: Report | None,
    ) -> None:
        """Emit what turned bad as Warnings, and once it is in use, with how many backends."""
        del status
        failure = report.failure if report is not None else ""
        for condition in changed:
            bad = (condition.status == "True") != (condition.type in _GOOD_WHEN_TRUE)
            if bad and condition.reason not in _QUIET and not (failure and condition.message == failure):
                self._event(obj, condition.reason, condition.message, warning=True)
            elif not bad and condition.type == "Programmed":
                registered = self._registered(LoadBalancerKey(LOAD_BALANCERS.kind, *obj.key))
                self._event(obj, "Programmed", f"in use, with {_counted(registered)} registered", warning=False)

    def reported(self, obj: LoadBalancer, report: Report) -> None:
        """Emit every removal with its reason, what is quarantined, and a failure."""
        removed: dict[tuple[str, str], list[str]] = {}
        for change in report.done:
            if change.action in (Action.DRAIN, Action.DEREGISTER):
                removed.setdefault((change.action, change.reason), []).append(str(change.key))
        for (action, reason), keys in removed.items():
            some = ", ".join(sorted(keys)[:5]) + (" and more" if len(keys) > 5 else "")
            self._event(obj, action, f"{_counted(len(keys))}, {reason}: {some}", warning=False)
        if report.quarantined:
            first = report.quarantined[0]
            self._event(obj, "Quarantined", f"{first.change.key}: {first.message}", warning=True)
        if report.failure:
            self._event(obj, report.failure_reason or "ProviderFailed", report.failure, warning=True)

    def _registered(self, key: LoadBalancerKey) -> int:
        records = self._inventory.records.by_index("lb", key)
        return sum(record.status.state == "Registered" for record in records)

    def _event(self, obj: LoadBalancer, reason: str, message: str, *, warning: bool) -> None:
        self._events.emit_about(LOAD_BALANCERS, obj, warning=warning, reason=reason, message=message)


def _counted(backends: int) -> str:
    return "1 backend" if backends == 1 else f"{backends} backends"
