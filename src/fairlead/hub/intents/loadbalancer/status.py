"""What users read on a LoadBalancer: conditions, address, how many of how many.

In: what was built, reported and observed, and the records. Out: one status write when something is new, and Events:
every removal with its reason. Its groups are looked at after it. Never: a write that says what is said already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from fairlead.api.kubernetes import LoadBalancerStatus
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer, LoadBalancerObjectStatus
from fairlead.api.names import MANAGER_HUB
from fairlead.api.times import wire_time
from fairlead.hub.intents.tcp.status import build_conditions, ingress_of, observed_of, wire_condition
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.providers.runner import DurableRunner
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.model.change import Action
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.sync.report import Report
from fairlead.translate.loadbalancer import LoadBalancerTranslation
from fairlead.translate.protection import is_leaving

_GOOD = frozenset({"Accepted", "ResolvedRefs", "Programmed"})
#: No news, and what the worker's report has said already, with the provider's own reason.
_QUIET = frozenset({"Pending", "Quarantined"})


class LoadBalancerStatusWriter:
    """Writes what is known of LoadBalancers into them; ``groups_changed`` hears of the groups that it concerns."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        engines: ProviderRegistry,
        events: EventRecorder,
        clock: Clock,
        leading: Callable[[], bool],
        groups_changed: Callable[[Iterable[tuple[str, str]]], None],
        built: dict[LoadBalancerKey, LoadBalancerTranslation],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._engines = engines
        self._events = events
        self._clock = clock
        self._leading = leading
        self._groups_changed = groups_changed
        #: What was last built for each load balancer; its groups are told from this, too.
        self._built = built
        self._reports: dict[LoadBalancerKey, Report] = {}

    def publish(self, key: LoadBalancerKey, built: LoadBalancerTranslation) -> None:
        """Take note of what was built."""
        self._built[key] = built

    def forget(self, key: LoadBalancerKey) -> None:
        """Say nothing more about ``key``."""
        self._built.pop(key, None)
        self._reports.pop(key, None)
        self._groups_changed(group.key for group in self._inventory.groups_of(key))

    def report(self, report: Report) -> None:
        """Take note of what the worker did; removals are news at once."""
        self._reports[report.load_balancer] = report
        load_balancer = self._inventory.shared.get(*report.load_balancer[1:])
        if load_balancer is None:
            return
        removed: dict[str, list[str]] = {}
        for change in report.done:
            if change.action in (Action.DRAIN, Action.DEREGISTER):
                removed.setdefault(f"{change.action}/{change.reason}", []).append(str(change.key))
        for what, keys in removed.items():
            action, _, reason = what.partition("/")
            some = ", ".join(sorted(keys)[:5]) + (" and more" if len(keys) > 5 else "")
            self._event(load_balancer, "Normal", action, f"{_counted(len(keys))}, {reason}: {some}")
        if report.quarantined:
            first = report.quarantined[0]
            self._event(load_balancer, "Warning", "Quarantined", f"{first.change.key}: {first.message}")
        if report.failure:
            self._event(load_balancer, "Warning", report.failure_reason or "ProviderFailed", report.failure)

    async def write(self, key: LoadBalancerKey) -> None:
        """Write the status of ``key`` when it says something new, and have its groups looked at."""
        built, load_balancer = self._built.get(key), self._inventory.shared.get(key.namespace, key.name)
        if built is None or load_balancer is None or is_leaving(load_balancer) or not self._leading():
            return
        self._groups_changed(group.key for group in self._inventory.groups_of(key))
        await self._write_load_balancer(key, load_balancer, built)

    async def _write_load_balancer(
        self, key: LoadBalancerKey, load_balancer: LoadBalancer, built: LoadBalancerTranslation
    ) -> None:
        engine = self._engines.get(built.provider)
        old = load_balancer.status
        observed = await observed_of(engine, key, old.frontend) if engine is not None else None
        addresses = observed.addresses if observed is not None else ()
        if not addresses and old.frontend is not None:
            addresses = tuple(old.frontend.addresses or ())
        drift = engine.readback.drifts.get(key) if isinstance(engine, DurableRunner) else None
        report = self._reports.get(key)
        conditions = build_conditions(built, report, observed, drift, needs_address=False)
        known = {condition.type: condition for condition in old.conditions or ()}
        generation, now = load_balancer.metadata.generation, self._now()
        records = self._inventory.records.by_index("lb", key)
        registered = sum(one.status.state == "Registered" for one in records)
        new = LoadBalancerObjectStatus(
            address=addresses[0] if addresses else "",
            backends=f"{registered}/{built.targets or 0}",
            load_balancer=LoadBalancerStatus(ingress=[ingress_of(one) for one in addresses] or None),
            allocation=old.allocation,
            frontend=old.frontend,
            observed_generation=generation,
            conditions=[wire_condition(one, known.get(one.type), generation, now) for one in conditions],
        )
        if msgspec.to_builtins(new) == msgspec.to_builtins(old):
            return
        words = msgspec.structs.replace(new, frontend=None)
        meta = load_balancer.metadata
        about = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        body = {"metadata": about, "status": msgspec.to_builtins(words)}
        await self._cluster.apply(LOAD_BALANCERS, body, manager=MANAGER_HUB, subresource="status")
        failure = report.failure if report is not None else ""
        for condition in new.conditions or ():
            before = known.get(condition.type)
            news = before is None or (before.status, before.reason) != (condition.status, condition.reason)
            bad = (condition.status == "True") != (condition.type in _GOOD)
            if news and bad and condition.reason not in _QUIET and not (failure and condition.message == failure):
                self._event(load_balancer, "Warning", condition.reason, condition.message)
            elif news and not bad and condition.type == "Programmed":
                self._event(load_balancer, "Normal", "Programmed", f"in use, with {_counted(registered)} registered")

    def _event(self, one: LoadBalancer, type_: str, reason: str, message: str) -> None:
        self._events.emit_about(LOAD_BALANCERS, one, warning=type_ != "Normal", reason=reason, message=message)

    def _now(self) -> str:
        return wire_time(self._clock.now())


def _counted(backends: int) -> str:
    return "1 backend" if backends == 1 else f"{backends} backends"
