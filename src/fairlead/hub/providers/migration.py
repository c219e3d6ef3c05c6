"""The placement of a load balancer, and its move from one provider to another: make before break.

    phase      serving provider       next provider    every other provider
    SETTLED    desired                -                releases it, once users know the new address and it has drained
    PREPARING  desired (of before)    desired          unchanged
    KEPT       desired (of before)    -                unchanged

PREPARING lasts until the next provider has everything: frontend, targets, address. If that one refuses or fails, the
serving provider keeps serving. After a crash the phase is the same: the serving provider is recorded, and so are the
requests to durable providers. In: views, translations, the runners. Out: desired load balancers in the trackers.
Never: a load balancer that no provider has completely, or a call of a provider that may not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from fairlead.api.intent import Allocation, IntentObject, IntentStatus
from fairlead.api.meta import condition_of, is_taken_over
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.providers.runner import DurableRunner, ProviderRunner, observed_of
from fairlead.ledger.frontends import held_before
from fairlead.model.change import Action, Held
from fairlead.model.condition import ConditionType
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import DesiredLoadBalancer, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Observed
from fairlead.runtime.clock import Clock
from fairlead.sync.history import Report
from fairlead.sync.plan import DRY_RUN
from fairlead.translate.view import Decision

#: Seconds until a load balancer that is moving, or that a provider is releasing, is reconciled again.
AGAIN_S = 0.5


class Phase(StrEnum):
    """The phases of a move; the table is above."""

    SETTLED = "Settled"
    PREPARING = "Preparing"
    KEPT = "Kept"


class Placement(msgspec.Struct, frozen=True):
    """The providers that should have the load balancer: ``serving``, and in PREPARING also ``next``."""

    serving: Decision
    next: Decision | None = None
    phase: Phase = Phase.SETTLED


class ProviderMigration:
    """Puts placements into the trackers of the providers, and removes load balancers from other trackers."""

    def __init__(self, *, providers: ProviderRegistry, clock: Clock) -> None:
        self._providers = providers
        self._clock = clock
        #: Since when (monotonic seconds) the address of the serving provider has been in the status.
        self._announced_since_s: dict[LoadBalancerKey, float] = {}
        self._held = HeldTargets()

    def is_moving(self, obj: IntentObject, translation: Decision) -> bool:
        """Return whether another provider serves ``obj`` than the one that it requests now."""
        serving = obj.status.serving_provider
        moves = translation.desired is not None and serving not in ("", translation.provider)
        return moves and serving in self._providers and bool(_addresses(obj))

    async def missing(self, key: LoadBalancerKey, next_: Decision) -> str:
        """Return what the next provider does not have yet, in one phrase; empty when it has everything."""
        desired = next_.desired
        if desired is None or desired.paused:
            return "the load balancer is paused"
        runner = self._providers[next_.provider]
        missing = missing_targets(runner, key, desired)
        if missing:
            return missing
        if not isinstance(runner, DurableRunner):
            return _missing_frontend(await observed_of(runner, key, None))
        missing = "the load balancer has not been read back yet"
        if key in runner.readback.seen:
            missing = _missing_frontend(await observed_of(runner, key, runner.ledger.frontends.get(key)))
        if missing:
            # Not called from here: a provider that does not answer would delay the load balancers of all others.
            runner.readback.notice(key)
        return missing

    def may_prepare(self, allocation: Allocation, next_: Decision) -> bool:
        """Return whether a replica that does not lead may prepare ``next_``: its allocation is recorded."""
        runner = self._providers.get(next_.provider)
        if next_.desired is None or runner is None or runner.durable:
            return False
        match runner.provider.capabilities.allocation:
            case AllocationKind.ADDRESS:
                return bool(allocation.address)
            case AllocationKind.PROXY_PORT:
                given = {(port.protocol, port.port) for port in allocation.ports}
                return {(listener.protocol.value, listener.port) for listener in next_.desired.spec.listeners} <= given
            case AllocationKind.NONE:
                return True

    def uses_allocation(self, key: LoadBalancerKey) -> bool:
        """Return whether some provider serves ``key`` with an address or ports of the hub's pools."""
        return any(
            runner.provider.capabilities.allocation is not AllocationKind.NONE and key in runner.tracker
            for runner in self._providers.values()
        )

    def released(self, key: LoadBalancerKey, obj: IntentObject, provider: str) -> list[str]:
        """Return the recorded providers of ``key`` other than ``provider`` that have released it."""
        others = sorted(obj.status.recorded_providers - {provider})
        runners = ((name, self._providers.get(name)) for name in others)
        return [name for name, runner in runners if runner and runner.loaded and key not in runner.tracker]

    def place(self, key: LoadBalancerKey, obj: IntentObject, placement: Placement, *, decides: bool = True) -> bool:
        """Put ``placement`` into the trackers; return whether some provider still has to release ``key``.

        ``decides``: this hub does; otherwise only its proxies serve what another hub decides.
        """
        serving = self._providers.get(placement.serving.provider)
        if decides or (serving is not None and not serving.durable):
            self._put(placement.serving, obj)
        if placement.next is not None:
            self._put(placement.next)
        settled = placement.phase is Phase.SETTLED and placement.serving.desired is not None
        return settled and self._release_others(key, obj, placement.serving)

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget a load balancer that was deleted."""
        self._announced_since_s.pop(key, None)
        self._held.forget(key)

    def reported(self, report: Report, pass_on: Callable[[Report], None]) -> bool:
        """Pass on the report of a worker; return whether its load balancer must be reconciled now.

        That is the case when the worker only restored held changes, which is not passed on, and when no provider has
        the load balancer.
        """
        key = report.load_balancer
        if self._held.reported(key):
            return True
        pass_on(report)
        return not any(key in runner.tracker for runner in self._providers.values())

    # --- inside -----------------------------------------------------------------------------------------------

    def _put(self, translation: Decision, obj: IntentObject | None = None) -> None:
        """Put the desired state of ``translation``; ``obj``: the provider serves it already, with its held changes."""
        desired, runner = translation.desired, self._providers.get(translation.provider)
        if desired is None or runner is None:
            return
        if obj is not None and not runner.durable:
            desired = self._held.first(desired, obj.status, is_new=desired.key not in runner.tracker)
        if runner.tracker.put(desired):
            runner.worker.trigger()

    def _release_others(self, key: LoadBalancerKey, obj: IntentObject, serving: Decision) -> bool:
        names = [name for name in self._providers if name != serving.provider and key in self._providers[name].tracker]
        if not names or serving.desired is None:
            self._announced_since_s.pop(key, None)
            return False
        announced, addresses, now_s = _is_announced(obj), _addresses(obj), self._clock.monotonic()
        since_s = self._announced_since_s.setdefault(key, now_s) if announced else now_s
        for name in names:
            runner = self._providers[name]
            state = runner.tracker.state(key)
            last = state.desired if state is not None else None
            drained = last is None or not addresses or now_s - since_s >= last.drain_s
            if announced and drained:
                changed = runner.tracker.remove(key)
            else:
                changed = last is not None and runner.tracker.put(_with_targets(last, serving.desired))
            if changed:
                runner.worker.trigger()
        return True


def missing_targets(runner: ProviderRunner, key: LoadBalancerKey, desired: DesiredLoadBalancer) -> str:
    """Return which part of ``desired`` its provider does not have yet, in one phrase; empty for none."""
    state = runner.tracker.state(key)
    if not runner.loaded or state is None or state.recorded_spec != desired.spec or state.ensure_again:
        return "the load balancer is not set up there yet"
    registered = [
        state.recorded.get(listener, {}).get(target_key)
        for listener, targets in desired.targets.items()
        for target_key, target in targets.items()
        if not target.draining
    ]
    missing = sum(target is None or target.unknown or target.deregistering for target in registered)
    if missing:
        return f"{missing} of {len(registered)} targets are not registered yet"
    return desired.stale


def _missing_frontend(observed: Observed | None) -> str:
    if observed is None:
        return "the load balancer is not set up there yet"
    if not observed.programmed:
        return observed.message or "not every proxy has it yet"
    return "" if observed.addresses else observed.message or "no address yet"


def _addresses(obj: IntentObject) -> list[str]:
    """Return the addresses that users read in the status."""
    return [ingress.address for ingress in obj.status.load_balancer.ingress or ()]


def _is_announced(obj: IntentObject) -> bool:
    """Return whether users can know the present address: it is written together with Programmed."""
    programmed = condition_of(obj.status.conditions, ConditionType.PROGRAMMED)
    current = programmed is not None and programmed.observed_generation == obj.metadata.generation
    return not _addresses(obj) or (current and is_taken_over(programmed))


def _with_targets(last: DesiredLoadBalancer, now: DesiredLoadBalancer) -> DesiredLoadBalancer:
    """Return ``last`` with the present targets: clients of the old address are served until it is released."""
    targets = {listener: now.targets.get(listener, known) for listener, known in last.targets.items()}
    return msgspec.structs.replace(last, targets=targets, stale=now.stale)


class HeldTargets:
    """The load balancers that were put with the held changes of an earlier process, until their worker reports."""

    def __init__(self) -> None:
        self._waiting: set[LoadBalancerKey] = set()

    def first(self, desired: DesiredLoadBalancer, status: IntentStatus, *, is_new: bool) -> DesiredLoadBalancer:
        """Return what is put instead of ``desired``; ``is_new``: this process has not put this load balancer before."""
        key = desired.key
        if not is_new and key not in self._waiting:
            return desired
        before = as_held(desired, held_before(key, status).rows)
        (self._waiting.discard if before == desired else self._waiting.add)(key)
        return before

    def reported(self, key: LoadBalancerKey) -> bool:
        """Note a report of the worker; return whether the load balancer was put with held changes."""
        waiting = key in self._waiting
        self._waiting.discard(key)
        return waiting

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget a load balancer that was deleted."""
        self._waiting.discard(key)


def as_held(desired: DesiredLoadBalancer, held: Sequence[Held]) -> DesiredLoadBalancer:
    """Return ``desired`` with the targets whose removal ``held`` lists, and without those whose addition it lists."""
    targets: dict[ListenerKey, dict[TargetKey, Target]] = {}
    for row in held:
        change = row.change
        if row.reason == DRY_RUN or change.listener not in desired.targets:
            continue
        of_listener = targets.setdefault(change.listener, dict(desired.targets[change.listener]))
        wanted = of_listener.get(change.key)
        if change.action is Action.REGISTER:
            of_listener.pop(change.key, None)
        elif change.is_removal and wanted is None:
            of_listener[change.key] = change.target
        elif change.action is Action.UPDATE and wanted is not None:
            # The row does not list which fields would change; what matters is that the target accepts connections.
            of_listener[change.key] = msgspec.structs.replace(wanted, draining=False)
    if not targets:
        return desired
    return msgspec.structs.replace(desired, targets={**desired.targets, **targets})
