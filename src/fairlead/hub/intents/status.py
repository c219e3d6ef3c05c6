"""The status of intents: conditions, addresses, counts and Events, written only when they differ.

    translation ─┐
    report      ─┼─► conditions ─► status ─► one write, Events about what changed
    observation ─┘

When a status is worth a write is decided by its pace (``pacing``); targets that flap are damped (``Damping``). The
status of an earlier process is kept until this one has looked, and until proxies have had the time to apply all that a
hub that starts sends them. A deleted load balancer that still exists after ``patience_s`` has a status that says what
it waits for. In: translations, reports of workers, what providers hold. Never: a write while another replica leads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.api.intent import IntentObject
from fairlead.api.meta import WireCondition, condition_of, wire_conditions
from fairlead.api.names import DEFAULT_CLASS
from fairlead.api.times import wire_time
from fairlead.hub.intents.conditions import build_conditions, held_now
from fairlead.hub.intents.leaving import Leaving, build_leaving, with_programmed
from fairlead.hub.intents.status_rules import StatusRules
from fairlead.hub.intents.target_counts import TargetCounts, counted, in_rotation, is_complete, not_seen
from fairlead.hub.inventory import IntentObjects
from fairlead.hub.pacing import CoalescingWriter, awaits, is_passing, only_seen
from fairlead.hub.providers.migration import missing_targets
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.providers.runner import DurableRunner, observed_of
from fairlead.hub.publication import TAKE_OVER_S, FirstPublication
from fairlead.kube.cluster import Cluster
from fairlead.ledger.frontends import held_before, held_wire
from fairlead.model.condition import Condition, ConditionReason, ConditionType, reason_from
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue
from fairlead.sync.history import Report
from fairlead.sync.readback import Drift
from fairlead.translate.view import Decision, is_leaving

#: So many changes in so many seconds are flapping; better news then has to last.
FLAPS = 3
WINDOW_S = 60.0
STABLE_S = 15.0
#: For so long what was known stays, when nothing is known any more.
UNKNOWN_S = 10.0

#: These have lasted already, or stay.
_AT_ONCE = (ConditionReason.NOT_CHECKED, ConditionReason.PROXIES_SILENT, ConditionReason.SOME_BACKENDS_UNHEALTHY)

_HELD = Condition(
    ConditionType.SERVING,
    False,
    ConditionReason.FLAPPING,
    f"its targets change between healthy and unhealthy; it is serving again after {STABLE_S:g} s healthy",
)
_STATUS = {"True": True, "False": False}


class Damping(msgspec.Struct):
    """The recent changes of one load balancer."""

    seen: bool | None = None
    since_s: float = 0.0
    changes_s: list[float] = []
    unknown_since_s: float | None = None

    def shown(self, now: Condition, written: WireCondition | None, *, now_s: float) -> tuple[Condition, float]:
        """Return the condition to show, and seconds until it may be another one; 0 for never."""
        before = _STATUS.get(written.status) if written is not None else None
        if now.status is None:
            return self._unknown(now, written if before is not None else None, now_s)
        self.unknown_since_s = None
        if now.status is not self.seen:
            # What an earlier process has written counts as what was seen before.
            if (self.seen if self.seen is not None else before) is (not now.status):
                self.changes_s.append(now_s)
            self.seen, self.since_s = now.status, now_s
        self.changes_s = [at_s for at_s in self.changes_s if now_s - at_s < WINDOW_S]
        if len(self.changes_s) < FLAPS or before is not False:
            return now, 0.0
        if now.status:
            left_s = self.since_s + STABLE_S - now_s
            return (_HELD, left_s) if left_s > 0 else (now, 0.0)
        held = written is not None and written.reason == _HELD.reason
        return (_HELD, self.changes_s[0] + WINDOW_S - now_s) if held else (now, 0.0)

    def _unknown(self, now: Condition, written: WireCondition | None, now_s: float) -> tuple[Condition, float]:
        reason = reason_from(written.reason) if written is not None else None
        # The reason of a newer release is not ours to repeat.
        if written is None or reason is None or now.reason in _AT_ONCE or self._is_refuted(written, now):
            return now, 0.0
        if self.unknown_since_s is None:
            self.unknown_since_s = now_s
        left_s = self.unknown_since_s + UNKNOWN_S - now_s
        if left_s <= 0:
            return now, 0.0
        kept = Condition(now.type, _STATUS[written.status], reason, written.message)
        return kept, left_s

    def _is_refuted(self, written: WireCondition, now: Condition) -> bool:
        """Return whether ``written`` is wrong by now: targets that wait for their check are there, healthy ones too."""
        if written.status != "False" or len(self.changes_s) >= FLAPS:
            return False
        waiting = now.reason is ConditionReason.WAITING_FOR_FIRST_CHECK and written.reason == ConditionReason.NO_TARGETS
        return waiting or now.reason is ConditionReason.NOT_PROGRAMMED


#: How often a load balancer is compared that has not been looked at yet; when it has been, it is compared at once.
_LOOK_S = 60.0
#: How often a deleted load balancer that is still there is looked at; a report about it comes at once.
_LEAVING_S = 30.0

Obj = TypeVar("Obj", bound=IntentObject)
T = TypeVar("T", bound=Decision)


class _KnownState(msgspec.Struct, Generic[T]):
    """The state of one load balancer as this process knows it."""

    translation: T
    waiting_for: str = ""
    #: Each of its listeners is to have a target.
    wanted: bool = False
    #: Known before this process has sent its proxies anything.
    since_start: bool = False
    damping: Damping = msgspec.field(default_factory=Damping)
    report: Report | None = None


class StatusWriter(Generic[Obj, T]):
    """Writes what is known of each load balancer of one kind into its object."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        objects: IntentObjects[Any],
        rules: StatusRules[Any, T],
        providers: ProviderRegistry,
        clock: Clock,
        leading: Callable[[], bool],
        decides: Callable[[LoadBalancerKey], bool],
        queue: KeyedQueue[LoadBalancerKey],
        counts: TargetCounts,
        publication: FirstPublication,
    ) -> None:
        self._objects = objects
        self._rules = rules
        self._providers = providers
        self._clock = clock
        self._leading = leading
        self._decides = decides
        self._queue = queue
        self._counts = counts
        self._publication = publication
        #: What is compared again once all is sent, and how long after that, in seconds.
        self._at_publication: dict[LoadBalancerKey, float] = {}
        self._known: dict[LoadBalancerKey, _KnownState[T]] = {}
        self._leaving: dict[LoadBalancerKey, Leaving] = {}
        self._writer: CoalescingWriter[Any] = CoalescingWriter(
            cluster,
            rules.resource,
            objects=objects.present,
            clock=clock,
            others=rules.owned_elsewhere,
            first_s=rules.first_s,
            patience_s=rules.patience_s,
        )
        objects.cache.on_change(self._object_changed)

    def translation(self, key: LoadBalancerKey) -> T | None:
        """Return what was translated last, without its ``desired``; None when ``key`` is unknown."""
        known = self._known.get(key)
        return known.translation if known is not None else None

    def publish(self, key: LoadBalancerKey, translation: T, waiting_for: str = "") -> bool:
        """Take over what was translated, without its targets; returns whether it differs from the last one.

        ``waiting_for``: its provider does not serve yet; the address that users know stays until then.
        """
        known = self._known.get(key)
        summary = translation.summary()
        wanted = is_complete(translation)
        if known is None:
            self._known[key] = _KnownState(summary, waiting_for, wanted, since_start=not self._publication.is_done)
        elif (known.translation, known.waiting_for, known.wanted) == (summary, waiting_for, wanted):
            return False
        else:
            if known.translation.provider != summary.provider:
                known.report = None
            known.translation, known.waiting_for, known.wanted = summary, waiting_for, wanted
        self._queue.add(key)
        return True

    def report(self, report: Report) -> None:
        """Take over what the worker did."""
        key = report.load_balancer
        known, obj = self._known.get(key), self._objects.get(key)
        if obj is not None:
            self._rules.reported(obj, report)
        if (leaving := self._leaving.get(key)) is not None:
            leaving.reports[report.provider] = report
            self._queue.add(key)
        if known is None or report.provider not in ("", known.translation.provider):
            return
        before, known.report = known.report, report
        registered = self._rules.needs_all_targets and bool(report.done)
        if before is None or registered or report.held or _in_conditions(report) != _in_conditions(before):
            self._queue.add(key)

    def refresh(self, key: LoadBalancerKey | None = None) -> None:
        """Compare the status of ``key``, None for every key, with what it should be."""
        for each in (key,) if key is not None else self._known:
            self._queue.add(each)

    def published(self) -> None:
        """Compare what waits for an answer of a proxy when the proxies have had the time for it."""
        for key, after_s in self._at_publication.items():
            self._queue.add_after(key, after_s)
        self._at_publication.clear()

    def forget(self, key: LoadBalancerKey) -> None:
        """Write nothing more for ``key``."""
        self._at_publication.pop(key, None)
        self._known.pop(key, None)
        self._counts.forget(key)
        self._queue.forget(key)
        self._writer.forget(key.namespace, key.name)

    def leave(self, key: LoadBalancerKey) -> None:
        """Write what ``key``, which is deleted, waits for, should it still be there after a while."""
        if key not in self._leaving:
            self._leaving[key] = Leaving(self._clock.monotonic())
        self._queue.add(key)

    async def write(self, key: LoadBalancerKey) -> float | None:
        """Write the status of ``key`` when it differs; returns seconds until it is to be compared again."""
        known, obj = self._known.get(key), self._objects.get(key)
        may_write = self._leading() and self._decides(key)
        if obj is None or not is_leaving(obj):
            self._leaving.pop(key, None)
        elif (leaving := self._leaving.get(key)) is not None and may_write:
            return await self._write_leaving(key, obj, leaving)
        if known is None or obj is None or is_leaving(obj) or not may_write:
            return None
        if not self._rules.is_wanted(obj, known.translation):
            return None
        observed, drift = await self._observe(key, obj, known.translation.provider)
        self._count(key, obj, known.translation.provider, observed)
        # A restart lets nothing go: until the worker has looked, what the last one held is held.
        held = held_now(known.report) if known.report is not None else held_before(key, obj.status)
        conditions = build_conditions(
            known.translation,
            known.report,
            observed,
            drift,
            needs_address=self._rules.needs_address,
            waiting_for=known.waiting_for,
            wanted=known.wanted,
            held=held,
        )
        old = obj.status
        again_s = self._damp(known, conditions, old)
        generation, now = obj.metadata.generation, wire_time(self._clock.now())
        wire = wire_conditions(conditions, obj.status.conditions, generation=generation, now=now)
        new = msgspec.structs.replace(
            self._rules.compose(obj, known.translation, wire, observed),
            held=held_wire(held.rows),
            held_total=held.total,
            repaired=self._repaired(key, obj, known.translation.provider),
        )
        at_least_s = self._take_over_s(key, known, old, new)
        if observed is None or known.report is None:
            at_least_s = max(at_least_s, self._unseen_s(known.translation.provider, old, new))
        written, wait_s = await self._writer.write(obj, old, new, at_least_s=at_least_s)
        if written is not None:
            self._rules.announce(obj, new, known.report)
        # What waits for the hub to publish is compared again then.
        return min(wait_s, again_s or wait_s) if 0 < wait_s < math.inf else again_s

    async def _write_leaving(self, key: LoadBalancerKey, obj: Obj, leaving: Leaving) -> float | None:
        """Write what a deleted load balancer waits for."""
        wait_s = leaving.since_s + self._rules.patience_s - self._clock.monotonic()
        if wait_s > 0:
            return wait_s
        waits_for = [name for name, runner in self._providers.items() if key in runner.tracker]
        silent = self._providers.silent(obj.status.recorded_providers)
        if waits_for or silent:
            problems = {name: self._providers.problems.get(name, "") for name in silent}
            programmed = build_leaving(waits_for, leaving.reports, problems)
            conditions = with_programmed(obj, programmed, now=wire_time(self._clock.now()))
            new: Any = msgspec.structs.replace(obj.status, conditions=conditions)
            written, _ = await self._writer.write(obj, obj.status, new)
            if written is not None:
                self._rules.announce(obj, new, None)
        return _LEAVING_S

    def _damp(self, known: _KnownState[T], conditions: list[Condition], old: Any) -> float | None:
        """Replace Serving in ``conditions`` by what is to be shown of it; returns seconds until that may change."""
        at = next(i for i, condition in enumerate(conditions) if condition.type is ConditionType.SERVING)
        written = condition_of(old.conditions, ConditionType.SERVING)
        conditions[at], again_s = known.damping.shown(conditions[at], written, now_s=self._clock.monotonic())
        return again_s or None

    def _repaired(self, key: LoadBalancerKey, obj: IntentObject, provider: str) -> str:
        """Return which request for a repair was answered last."""
        runner = self._providers.get(provider)
        answered = runner.readback.answered.get(key, "") if isinstance(runner, DurableRunner) else ""
        return answered or obj.status.repaired

    async def _observe(
        self, key: LoadBalancerKey, obj: IntentObject, provider: str
    ) -> tuple[Observed | None, Drift | None]:
        runner = self._providers.get(provider)
        if runner is None:
            return None, None
        observed = await observed_of(runner, key, obj.status.frontend_of(provider))
        state = runner.tracker.state(key) if self._rules.needs_all_targets else None
        if observed is not None and state is not None and state.desired is not None:
            missing = missing_targets(runner, key, state.desired) or not_seen(state.desired, observed.health)
            if missing and observed.programmed:
                observed = msgspec.structs.replace(observed, programmed=False, acknowledged=0, message=missing)
        if not isinstance(runner, DurableRunner):
            return observed, None
        return observed, runner.readback.drifts.get(key)

    def _count(self, key: LoadBalancerKey, obj: IntentObject, provider: str, observed: Observed | None) -> None:
        """Count its targets; those of a provider that says nothing are looked up."""
        health = observed.health if observed is not None else None
        runner = self._providers.get(provider) if health is None else None
        state = runner.tracker.state(key) if runner is not None else None
        expected = in_rotation(state.desired) if state is not None else 0
        self._counts.put(key, provider, obj.class_name or DEFAULT_CLASS, counted(health, expected))

    def _unseen_s(self, provider: str, old: Any, new: Any) -> float:
        """Return for how long ``new`` is not written since this process has not looked at the provider yet.

        A provider with a ledger keeps its state over our restart. Many load balancers are asked for and read back one
        after the other, and each is compared again after its turn.
        """
        durable = isinstance(self._providers.get(provider), DurableRunner)
        moment = is_passing(old.conditions, new.conditions)
        return _LOOK_S if durable and moment and only_seen(old, new) else 0.0

    def _take_over_s(self, key: LoadBalancerKey, known: _KnownState[T], old: Any, new: Any) -> float:
        """Return for how long ``new`` is not written as proxies take over what a hub that starts sends.

        Thousands of load balancers take longer than the patience for one, and would all be written twice. Infinite as
        long as nothing has been sent.
        """
        moment = is_passing(old.conditions, new.conditions) or (not old.conditions and awaits(new.conditions))
        if not (known.since_start and moment):
            return 0.0
        programmed = condition_of(new.conditions, ConditionType.PROGRAMMED)
        connected = programmed is not None and programmed.reason == ConditionReason.PENDING
        if not self._publication.is_done:
            self._at_publication[key] = TAKE_OVER_S if connected else self._rules.patience_s
        elif not connected:
            return 0.0
        return self._publication.take_over_s

    def _object_changed(self, _old: Any, new: Any) -> None:
        """Compare with what the cache shows now.

        The version of our own write is compared too: a cache that lists again may show it together with the writes of
        others, such as the record of a frontend, that it has not shown before.
        """
        if new is not None and (key := self._objects.key(new)) in self._known:
            self._queue.add(key)


def _in_conditions(report: Report) -> tuple[object, ...]:
    """Return the part of a report that conditions are made from; what was done is in none of them."""
    return (report.failure, bool(report.held), report.quarantined)
