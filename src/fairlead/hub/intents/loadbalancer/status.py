"""The status of a LoadBalancer: address, registered and healthy backends, and Events about every removal."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fairlead.api.conditions import Transition
from fairlead.api.kubernetes import LoadBalancerStatus as IngressStatus
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer, LoadBalancerObjectStatus
from fairlead.api.meta import WireCondition
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.loadbalancer.objects import without_capi_side
from fairlead.hub.intents.status_rules import StatusRules
from fairlead.model.condition import ConditionReason
from fairlead.model.in_words import counted
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.sync.report import Report
from fairlead.translate.view import LoadBalancerTranslation


class LoadBalancerStatus(StatusRules[LoadBalancer, LoadBalancerTranslation]):
    """The rules for the status of LoadBalancers; ``composed`` is called with each key whose status was composed."""

    needs_address = False
    counts = (*StatusRules.counts, "backends")
    owned_elsewhere = (*StatusRules.owned_elsewhere, "accepted", "names")

    def __init__(self, context: IntentContext, *, composed: Callable[[LoadBalancerKey], None]) -> None:
        super().__init__(cluster=context.cluster, events=context.events, resource=LOAD_BALANCERS)
        self._inventory = context.inventory
        self._providers = context.providers
        self._composed = composed

    def compose(
        self,
        obj: LoadBalancer,
        translation: LoadBalancerTranslation,
        conditions: list[WireCondition],
        observed: Observed | None,
    ) -> LoadBalancerObjectStatus:
        """Return the status; without an observed address, the one on record."""
        self._composed(_key(obj))
        frontend = next(iter(obj.status.recorded), None)
        addresses = observed.addresses if observed is not None else ()
        if not addresses and frontend is not None:
            addresses = tuple(frontend.addresses or ())
        status = super().compose(obj, translation, conditions, None)
        health = observed.health if observed is not None else None
        healthy = f", {health.healthy} healthy" if health is not None and health.checked else ""
        return msgspec.structs.replace(
            status,
            address=addresses[0] if addresses else "",
            backends=f"{self._registered(obj, translation.provider)}/{translation.targets or 0}{healthy}",
            unhealthy_targets=(list(health.unhealthy) or None) if health is not None else None,
            load_balancer=IngressStatus(ingress=self.ingress(obj, addresses) or None),
        )

    async def write(self, obj: LoadBalancer, status: LoadBalancerObjectStatus) -> LoadBalancer | None:
        """Apply ``status``; what is returned lacks what the controller for Cluster API wrote, as the cache does."""
        written = await super().write(obj, status)
        return without_capi_side(written) if written is not None else None

    def programmed(self, obj: LoadBalancer, status: LoadBalancerObjectStatus) -> str:
        """Return with how many backends it is in use."""
        del status
        return f"in use, with {counted(self._registered(obj, self._provider_of(obj)), 'backend')} registered"

    def quiet(self, change: Transition, report: Report | None) -> bool:
        """Return whether ``reported`` has emitted it, with the provider's own reason."""
        failed = report is not None and report.failure != "" and change.condition.message == report.failure
        return failed or change.condition.reason == ConditionReason.QUARANTINED

    def reported(self, obj: LoadBalancer, report: Report) -> None:
        """Emit every removal with its reason, what is quarantined, and a failure."""
        if report.done:
            self._composed(_key(obj))
        removed: dict[tuple[str, str], list[str]] = {}
        for change in report.done:
            if change.is_removal:
                removed.setdefault((change.action, change.reason), []).append(str(change.key))
        for (action, reason), keys in removed.items():
            some = ", ".join(sorted(keys)[:5]) + (" and more" if len(keys) > 5 else "")
            self.event(obj, action, f"{counted(len(keys), 'backend')}, {reason}: {some}", warning=False)
        if report.quarantined:
            first = report.quarantined[0]
            self.event(obj, "Quarantined", f"{first.change.key}: {first.message}", warning=True)
        if report.failure:
            self.event(obj, report.failure_reason or "ProviderFailed", report.failure, warning=True)

    def _provider_of(self, obj: LoadBalancer) -> str:
        load_balancer_class = self._inventory.load_balancer_class(obj.class_name)
        return load_balancer_class.spec.provider if load_balancer_class is not None else obj.status.serving_provider

    def _registered(self, obj: LoadBalancer, provider: str) -> int:
        runner = self._providers.get(provider)
        if runner is not None and not runner.durable:
            # Proxies of ours have no records.
            state = runner.tracker.state(_key(obj))
            rows = state.recorded.values() if state is not None else ()
            return sum(not each.target.draining for targets in rows for each in targets.values())
        records = self._inventory.records.by_index("lb", _key(obj))
        return sum(record.status.state == "Registered" for record in records)


def _key(obj: LoadBalancer) -> LoadBalancerKey:
    return LoadBalancerKey(LOAD_BALANCERS.kind, *obj.key)
