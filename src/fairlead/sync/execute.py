"""Executes a plan in four phases: intent, call, result, item by item and in batches of the provider's size.

    phase    does                                                         when a phase before has failed
    ensure   (reach) ──► ensuring (stored) ──► provider ──► ensured (stored) ──► folded
    add      record (stored) ──► provider ──► settle (stored) ──► folded  without what a refused frontend has not
    remove   the same                                                     without what an addition was to replace
    delete   provider ──► folded; released, when it existed before        not at all

A load balancer that exists and cannot be changed is served unchanged, and changes of its backends go on.
In: a plan. Out: what was done, and the first thing that was not. A batch that is refused as a whole is halved until
the failing items are known, so that others go through; where the provider takes batches of several load balancers they
are batched (``batching``). Never: a call when ``may_call`` says that we do not lead.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

import msgspec

from fairlead.errors import Bug, Retry, Terminal, Throttled
from fairlead.model.change import DONE, Action, FrontendChange, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.contract import Ledger, Provider, Reachable, Releasable, SeesHealth
from fairlead.model.desired import FrontendSpec
from fairlead.runtime.clock import Clock
from fairlead.sync.calls import Batcher
from fairlead.sync.concurrency import Concurrency, Slot, in_time
from fairlead.sync.guard import SeenOf, guard_plan, unseen
from fairlead.sync.operation import Operation
from fairlead.sync.order import order_changes
from fairlead.sync.quarantine import Quarantine, without_refused
from fairlead.sync.tracker import Tracker

T = TypeVar("T")

#: More failing items than this in one batch, and the provider is at fault, not the items.
_MOST_CULPRITS = 8
_REFUSED_REMOVAL_S = 30.0


class Executor:
    """Carries out the plans of one provider. ``limit_s``: how long one call may take; None: as long as it likes."""

    def __init__(
        self,
        *,
        tracker: Tracker,
        provider: Provider,
        ledger: Ledger,
        clock: Clock,
        quarantine: Quarantine,
        slots: Concurrency,
        may_call: Callable[[], bool],
        limit_s: float | None,
    ) -> None:
        self._tracker = tracker
        self._provider = provider
        self.seen_of: SeenOf = provider.seen_of if isinstance(provider, SeesHealth) else unseen
        self._ledger = ledger
        self._clock = clock
        self._quarantine = quarantine
        self._slots = slots
        self._may_call = may_call
        self._limit_s = limit_s
        #: Calls of the provider, by (method, result).
        self.timings = Timings()
        #: What became of single rows, by (action, outcome).
        self.outcomes: Counter[tuple[str, str]] = Counter()
        can = provider.capabilities
        self._gather = (
            Batcher(call=self._apply_gathered, size=can.max_batch, clock=clock)
            if can.batches_span_load_balancers
            else None
        )

    async def run(self, operation: Operation) -> Outcome | None:
        """Execute the plan phase by phase; return the first outcome that was not a success, failures first.

        The slot is held when this begins; it is released while the changes wait for a batch.
        """
        for phase in (self._ensure, self._add, self._remove):
            await phase(operation)
        if operation.late is not None:
            raise operation.late
        if operation.first_undone is None:
            await self._delete(operation)
        return operation.first_undone

    # --- phases -----------------------------------------------------------------------------------------------

    async def _ensure(self, operation: Operation) -> None:
        """Ensure the frontend; when that fails, it is served unchanged, and changes of its backends go on."""
        plan, state = operation.plan, operation.state
        frontend, changes = plan.frontend, plan.changes
        if frontend is not None and frontend.action is Action.ENSURE and frontend.spec is not None:
            try:
                made = await self._is_ensured(frontend, frontend.spec, first=state.recorded_spec is None)
            except (Retry, Terminal) as error:
                if state.made is None or not changes or isinstance(error, Throttled):
                    raise
                made, operation.late = False, error
            if not made:
                changes = without_refused(changes, state)
        operation.spec = state.recorded_spec or (state.desired.spec if state.desired is not None else None)
        if operation.spec is None and plan.changes:
            raise Bug(f"{plan.load_balancer} has targets on record, but no frontend spec on record")
        operation.additions, operation.removals = order_changes(changes)

    async def _add(self, operation: Operation) -> None:
        """Register and update targets; when some fail, guard the removals again without them."""
        if await self._apply(operation, operation.additions):
            # The replacements are not registered: decide which removals are safe without them.
            alone = msgspec.structs.replace(operation.plan, frontend=None, changes=tuple(operation.removals), held=())
            now_s = self._clock.monotonic()
            operation.removals = guard_plan(alone, operation.state, now_s=now_s, seen_of=self.seen_of).changes

    async def _remove(self, operation: Operation) -> None:
        """Drain and deregister."""
        await self._apply(operation, operation.removals)

    async def _delete(self, operation: Operation) -> None:
        """Delete the load balancer, once nothing of ours is on it; one that existed before is released."""
        frontend, spec = operation.plan.frontend, operation.spec
        if frontend is None or frontend.action is not Action.DELETE:
            return
        self._tracker.begin_frontend(frontend)
        if spec is None or not spec.existing:
            await operation.slot.take()
            await self._call("delete", self._provider.delete(frontend.load_balancer))
        elif isinstance(self._provider, Releasable):
            self._provider.release(frontend.load_balancer)
        self._ledger.forget(frontend.load_balancer)
        self._tracker.fold_frontend(frontend, DONE)

    # --- calls ------------------------------------------------------------------------------------------------

    async def _is_ensured(self, frontend: FrontendChange, spec: FrontendSpec, *, first: bool) -> bool:
        """Ensure the frontend; return False when the provider rejects it, which parks it. ``first``: it is new there.

        What is on record as asked for waits for its provider even to be deleted, so that is reached before.
        """
        self._tracker.begin_frontend(frontend)
        try:
            if first and isinstance(self._provider, Reachable):
                await self._call("reach", self._provider.reach(spec))
        except Terminal as error:
            return self._park(spec, error)
        await self._ledger.ensuring(spec)
        try:
            answer = await self._call("ensure", self._provider.ensure(spec))
        except Terminal as error:
            return self._park(spec, error)
        await self._ledger.ensured(spec, answer)
        self._tracker.fold_frontend(frontend, DONE)
        return True

    def _park(self, spec: FrontendSpec, error: Terminal) -> bool:
        self._quarantine.refuse(spec, error, now_s=self._clock.monotonic())
        return False

    async def _apply(self, operation: Operation, changes: Sequence[TargetChange]) -> bool:
        """Apply the rows of one phase in batches of the provider's size; returns whether one failed."""
        spec, failed = operation.spec, list[Outcome]()
        if spec is None:
            return False
        size = self._provider.capabilities.max_batch or len(changes)
        for start in range(0, len(changes), max(1, size)):
            for change, outcome in await self._apply_batch(spec, changes[start : start + size], operation.slot):
                if outcome.status is OutcomeStatus.DONE:
                    operation.done.append(change)
                else:
                    failed.append(outcome)
        operation.undone += failed
        return bool(failed)

    async def _apply_batch(
        self, spec: FrontendSpec, changes: Sequence[TargetChange], slot: Slot
    ) -> list[tuple[TargetChange, Outcome]]:
        answers = await self._ledger.record(spec, changes)
        # An intent whose write failed may have been stored all the same.
        self._tracker.begin_targets(
            change
            for change, answer in zip(changes, answers, strict=True)
            if not isinstance(answer, Outcome) or answer.status is not OutcomeStatus.DONE
        )
        calls = [
            answer
            for answer in answers
            if isinstance(answer, TargetChange) and answer.reason is not Reason.OWNERS_CHANGED
        ]
        replies = await self._call_provider(calls, slot, [_MOST_CULPRITS]) if calls else ()
        settled = iter(await self._ledger.settle(spec, calls, replies) if calls else ())
        outcomes = [
            answer if isinstance(answer, Outcome) else DONE if answer.reason is Reason.OWNERS_CHANGED else next(settled)
            for answer in answers
        ]
        now_s = self._clock.monotonic()
        self._tracker.fold_targets(changes, outcomes, now_s=now_s)
        for change, outcome in zip(changes, outcomes, strict=True):
            self.outcomes[change.action, outcome.status] += 1
            if outcome.status is OutcomeStatus.REJECTED:
                self._quarantine.add(change, outcome.message, now_s=now_s)
        return list(zip(changes, outcomes, strict=True))

    async def _call_provider(
        self, changes: Sequence[TargetChange], slot: Slot, culprits_left: list[int], *, alone: bool = False
    ) -> Sequence[Outcome]:
        """Call the provider; a rejected batch is bisected to find the rejected changes."""
        try:
            if self._gather is None:
                outcomes = await self._call("apply", self._provider.apply(changes))
            else:
                slot.give()
                outcomes = await self._gather.apply(slot.failure_domain, changes, alone=alone)
        except Terminal as error:
            if culprits_left[0] <= 0:
                return [Outcome(OutcomeStatus.RETRY, error.sentence)] * len(changes)
            if len(changes) == 1:
                culprits_left[0] -= 1
                outcomes = [Outcome(OutcomeStatus.REJECTED, error.sentence)]
            else:
                half = len(changes) // 2
                first = await self._call_provider(changes[:half], slot, culprits_left, alone=True)
                return [*first, *await self._call_provider(changes[half:], slot, culprits_left, alone=True)]
        return [_unless_removal(change, outcome) for change, outcome in zip(changes, outcomes, strict=True)]

    async def _apply_gathered(self, failure_domain: str, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        slot = self._slots.reserve(failure_domain)
        await slot.take()
        try:
            return await self._call("apply", self._provider.apply(changes))
        finally:
            slot.give()

    async def _call(self, method: str, call: Awaitable[T]) -> T:
        if not self._may_call():
            _close(call)
            raise Retry("this replica no longer leads; nothing was done", reason="NotLeading")
        began_s, result = self._clock.monotonic(), "error"
        try:
            answer = await in_time(call, clock=self._clock, limit_s=self._limit_s)
        except Terminal:
            result = "refused"
            raise
        else:
            result = "success"
            return answer
        finally:
            self.timings.add(method, result, self._clock.monotonic() - began_s)


def _unless_removal(change: TargetChange, outcome: Outcome) -> Outcome:
    """Have refused removals tried again: what is registered does not stop being so because it may not be removed."""
    if outcome.status is OutcomeStatus.REJECTED and change.is_removal:
        return Outcome(OutcomeStatus.RETRY, outcome.message, max(outcome.retry_after_s, _REFUSED_REMOVAL_S))
    return outcome


def _close(call: Awaitable[object]) -> None:
    if asyncio.iscoroutine(call):
        call.close()


#: Upper ends of the buckets, in seconds; the last one is open.
BUCKETS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, float("inf"))


class Timings:
    """The calls of one provider."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._seconds: dict[tuple[str, str], float] = {}

    def add(self, method: str, result: str, seconds: float) -> None:
        """Count one call."""
        key = (method, result)
        counts = self._counts.setdefault(key, [0] * len(BUCKETS_S))
        counts[bisect_left(BUCKETS_S, seconds)] += 1
        self._seconds[key] = self._seconds.get(key, 0.0) + seconds

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(sorted(self._counts))

    def total(self, method: str, result: str) -> int:
        """Return how many calls there were."""
        return sum(self._counts.get((method, result), ()))

    def seconds(self, method: str, result: str) -> float:
        """Return the seconds of all of them together."""
        return self._seconds.get((method, result), 0.0)

    def cumulative(self, method: str, result: str) -> list[tuple[str, float]]:
        """Return for each bucket how many calls took no longer, as Prometheus counts."""
        ends = [f"{end:g}" if end != BUCKETS_S[-1] else "+Inf" for end in BUCKETS_S]
        return list(zip(ends, map(float, accumulate(self._counts[method, result])), strict=True))
