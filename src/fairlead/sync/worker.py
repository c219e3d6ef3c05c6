"""The only place that changes load balancers: it takes dirty keys, plans, guards, executes and reports.

One worker for each provider. The trigger has capacity one: it never blocks, and coalesces triggers while a run is in
progress. A run takes a snapshot, makes the calls, then applies the results. The tracker is never touched during a call,
and one load balancer never has two operations at a time. A load balancer or failure domain that hangs does not delay
others. ``Ready`` decides what may start, ``execute`` makes the calls, ``Schedule`` decides when to retry. In: a
tracker. Out: provider calls, and one ``Report`` for each synced load balancer. Never: a decision about the desired
state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from operator import attrgetter

import structlog

from fairlead.model.change import Action, Reason
from fairlead.model.contract import FailureDomains, KeepsUnread, Ledger, Provider
from fairlead.model.desired import FairOrder
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock, wait_for
from fairlead.runtime.loop import BUG_RETRY_S
from fairlead.runtime.queue import backoff_s
from fairlead.sync.execute import Concurrency, Executor, Operation, Quarantine, Refusal, Slot
from fairlead.sync.history import (
    Failed,
    Finished,
    InProgress,
    Report,
    Result,
    UnexpectedError,
    result_of,
    result_of_error,
)
from fairlead.sync.plan import LoadBalancerState, Plan, Tracker, guard_plan, plan_load_balancer

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: How many load balancers are handled before the event loop gets a turn, so that a large batch does not delay the
#: streams.
_TURN = 32
#: How often dirty keys are handled without a trigger, so that a lost trigger only delays work.
_TICK_S = 60.0


class Worker:
    """Executes the plans of one provider, with up to ``parallel`` operations at each failure domain."""

    def __init__(
        self,
        *,
        tracker: Tracker,
        provider: Provider,
        ledger: Ledger,
        clock: Clock,
        report: Callable[[Report], None],
        parallel: int = 8,
        may_call: Callable[[], bool] = lambda: True,
        limit_s: float | None = None,
    ) -> None:
        self._tracker = tracker
        self._provider = provider
        self._clock = clock
        self._keeps = provider if isinstance(provider, KeepsUnread) else None
        self._domains = provider if isinstance(provider, FailureDomains) else None
        self._parallel = 1 if provider.capabilities.serves_whole_state else parallel
        self._trigger = asyncio.Event()
        self._slots = Concurrency(parallel=self._parallel, freed=self._trigger.set)
        self.quarantine = Quarantine()
        self.executor = Executor(
            tracker=tracker,
            provider=provider,
            ledger=ledger,
            clock=clock,
            quarantine=self.quarantine,
            slots=self._slots,
            may_call=may_call,
            limit_s=limit_s,
        )
        self._report = report
        self._schedule = Schedule(clock)
        self._idle = asyncio.Event()
        self._backlog = Backlog()
        self._ready = Ready()
        self.runs = 0

    def trigger(self) -> None:
        """Start a run soon; never blocks, and several calls start one run."""
        self._backlog.triggered(self._clock.monotonic())
        self._trigger.set()
        self._idle.clear()

    async def settled(self) -> None:
        """Return once a run has ended and nothing is dirty; scheduled work in the future does not count."""
        await self._idle.wait()

    @property
    def failing(self) -> int:
        """Return how many load balancers wait for a retry."""
        return self._schedule.failing

    @property
    def retries(self) -> int:
        """Return how many runs have failed."""
        return self._schedule.retries

    @property
    def pending(self) -> int:
        """Return how many changed load balancers are not done: waiting, in progress, or to be retried."""
        return len(self.pending_keys())

    def pending_keys(self) -> frozenset[LoadBalancerKey]:
        """Return the keys of the load balancers that ``pending`` counts."""
        return frozenset({*self._tracker.dirty_keys, *self._backlog})

    def oldest_pending_s(self, now_s: float) -> float:
        """Return for how long the oldest pending load balancer has waited at ``now_s`` (monotonic); 0 without one."""
        return self._backlog.oldest_s(now_s, untaken=self._tracker.dirty > 0)

    @property
    def parked(self) -> int:
        """Return how many backends and load balancers are parked because their provider rejected them."""
        return len(self.quarantine) + self.quarantine.load_balancers

    @property
    def draining(self) -> int:
        """Return how many load balancers wait for draining backends."""
        return self._backlog.draining

    def failure_domain(self, key: LoadBalancerKey) -> str:
        """Return the failure domain of one load balancer; empty where the provider has only one."""
        state = self._tracker.state(key)
        if state is None or self._domains is None:
            return ""
        spec = state.desired.spec if state.desired is not None else state.recorded_spec
        try:
            return self._domains.failure_domain(spec) if spec is not None else ""
        except Exception as error:
            # A provider's bug with one load balancer must not stop the others.
            log.exception("bug", load_balancer=str(key), error=str(error))
            return ""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tick())
            while True:
                await self._wait()
                self._tracker.touch(self._schedule.take_due())
                if self._parallel == 1:
                    # Handle all dirty keys one after the other, and alternate between members.
                    waiting: FairOrder[LoadBalancerKey] = FairOrder(attrgetter("namespace"))
                    self._take(waiting)
                    self.runs += bool(waiting)
                    while waiting:
                        for _ in range(min(_TURN, len(waiting))):
                            await self._handle(waiting.pop(), self._slots.take(""))
                        if waiting:
                            await asyncio.sleep(0)
                            self._take(waiting)  # of a member with thousands the others do not wait for all
                    if not self._tracker.dirty:
                        self._idle.set()
                else:
                    # Start the dirty keys while slots are free; never the same key twice at once.
                    since_s = self._backlog.took(self._clock.monotonic())
                    for key in self._tracker.pop_dirty():
                        if self._ready.add(key, since_s, self.failure_domain):
                            self._backlog.add(key, since_s)
                    started = False
                    for key, failure_domain in self._ready.begin(self._slots.free):
                        group.create_task(self._run_one(key, self._slots.take(failure_domain)))
                        started = True
                    self.runs += started
                    if not self._ready and not self._tracker.dirty:
                        self._idle.set()

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(_TICK_S)
            if self._tracker.dirty:
                self._trigger.set()

    def _take(self, waiting: FairOrder[LoadBalancerKey]) -> None:
        self._tracker.touch(self._schedule.take_due())
        since_s = self._backlog.took(self._clock.monotonic())
        for key in self._tracker.pop_dirty():
            self._backlog.add(key, since_s)
            waiting.add(key)

    async def _run_one(self, key: LoadBalancerKey, slot: Slot) -> None:
        try:
            await self._handle(key, slot)
        finally:
            if (since_s := self._ready.ended(key)) is not None:
                self._backlog.add(key, since_s)
                self._tracker.touch((key,))
            self._trigger.set()

    async def _wait(self) -> None:
        """Wait for the trigger, or for the earliest time that a plan or retry is due."""
        if self._tracker.dirty or self._trigger.is_set():
            self._trigger.clear()
            return
        await wait_for(self._trigger, self._clock, self._schedule.next_s)
        self._trigger.clear()

    async def _handle(self, key: LoadBalancerKey, slot: Slot) -> None:
        try:
            state = self._tracker.state(key)
            if state is None:
                self._backlog.ended(key, draining=False)
            else:
                await self._sync(key, state, slot)
        finally:
            slot.give()

    async def _sync(self, key: LoadBalancerKey, state: LoadBalancerState, slot: Slot) -> None:
        operation, began_s = Operation(Plan(key), state, slot), self._clock.processor_s()
        try:
            self._plan(operation)
            result = result_of(await self.executor.run(operation))
            if self._keeps is not None and state.desired is not None:
                self._keeps.keep(key, unread=bool(state.desired.stale))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            # An operation that the provider awaited was cancelled, not this task; without this, it would never be
            # retried.
            result = Failed("the provider gave up the call; it is made again", "Cancelled")
        except Exception as error:
            # A bug in one load balancer must not stop the others.
            result = result_of_error(error)
            if isinstance(result, UnexpectedError):
                log.exception("bug", load_balancer=str(key), error=str(error))
        self._schedule.ended(key, result, drained_s=operation.drained_s)
        refused = self.quarantine.refusal(key)
        self._follow_up(operation, result, refused)
        # Such a provider computes in this process; while others are awaited, other load balancers compute.
        computed_s = self._clock.processor_s() - began_s if self._parallel == 1 else 0.0
        report = operation.report(result, refused, computed_s=computed_s)
        if log.is_enabled_for(logging.DEBUG):
            # Composing the sentence costs as much as the plan.
            log.debug("load balancer synced", load_balancer=str(key), did=report.sentence)
        self._report(report)

    def _plan(self, operation: Operation) -> None:
        """Return the guarded plan without parked rows."""
        now_s, state = self._clock.monotonic(), operation.state
        operation.plan = plan_load_balancer(operation.key, state, now_s=now_s)
        operation.drained_s = operation.plan.wake_at_s
        operation.plan = guard_plan(operation.plan, state, now_s=now_s, seen_of=self.executor.seen_of)
        operation.plan, operation.parked = self.quarantine.exclude_refused(operation.plan, state, now_s=now_s)
        self._schedule.planned(operation.key, operation.plan.wake_at_s)

    def _follow_up(self, operation: Operation, result: Result, refused: Refusal | None) -> None:
        """Note when the load balancer is due again, and whether it is still pending."""
        key, desired, now_s = operation.key, operation.state.desired, self._clock.monotonic()
        if refused is not None and refused.until_s > now_s:
            self._schedule.add(key, refused.until_s)
        drains = operation.drained_s is not None
        if desired is not None and any(change.action is Action.DRAIN for change in operation.done):
            # The plan was made before these targets began to drain, so it does not know when they will be drained.
            self._schedule.add(key, now_s + desired.drain_s)
            drains = True
        if any(change.reason in _THEN_AGAIN for change in operation.done):
            # The load balancer is deleted; the next plan shows whether it is desired again.
            self._tracker.touch((key,))
            self._trigger.set()
        elif isinstance(result, Finished):
            self._backlog.ended(key, draining=drains)


_THEN_AGAIN = frozenset({Reason.DEREGISTERING, Reason.REPLACED})


class Backlog:
    """The pending load balancers of one worker; times are monotonic seconds."""

    def __init__(self) -> None:
        self._since_s: dict[LoadBalancerKey, float] = {}
        self._triggered_s: float | None = None
        self._draining: set[LoadBalancerKey] = set()

    def __iter__(self) -> Iterator[LoadBalancerKey]:
        return iter(self._since_s)

    def triggered(self, now_s: float) -> None:
        """Note that a load balancer became dirty; its age counts from the first such call after the last ``took``."""
        if self._triggered_s is None:
            self._triggered_s = now_s

    def took(self, now_s: float) -> float:
        """Return since when the load balancers taken now have been waiting."""
        since_s = now_s if self._triggered_s is None else self._triggered_s
        self._triggered_s = None
        return since_s

    def add(self, key: LoadBalancerKey, since_s: float) -> None:
        """Mark ``key`` as pending; a key that is already pending keeps its age."""
        self._since_s.setdefault(key, since_s)

    def ended(self, key: LoadBalancerKey, *, draining: bool) -> None:
        """Mark ``key`` as not pending: it is done, or only waits for drains."""
        self._since_s.pop(key, None)
        if draining:
            self._draining.add(key)
        else:
            self._draining.discard(key)

    @property
    def draining(self) -> int:
        """Return the number of load balancers that wait for draining backends."""
        return len(self._draining)

    def oldest_s(self, now_s: float, *, untaken: bool) -> float:
        """Return the age of the oldest; ``untaken``: the worker has not taken all dirty keys yet."""
        oldest_s = min(self._since_s.values(), default=now_s)
        if untaken and self._triggered_s is not None:
            oldest_s = min(oldest_s, self._triggered_s)
        return now_s - oldest_s


class Ready:
    """The load balancers of one worker; times are monotonic seconds."""

    def __init__(self) -> None:
        self._by_failure_domain: dict[str, FairOrder[LoadBalancerKey]] = {}
        self._waiting: set[LoadBalancerKey] = set()
        self._under_way: set[LoadBalancerKey] = set()
        #: Keys that became dirty while in progress, and since when.
        self._again_since_s: dict[LoadBalancerKey, float] = {}

    def __bool__(self) -> bool:
        """Return whether any key waits or is in progress."""
        return bool(self._waiting or self._under_way)

    def add(self, key: LoadBalancerKey, since_s: float, failure_domain: Callable[[LoadBalancerKey], str]) -> bool:
        """Queue ``key``; return False when it is in progress, and so will be returned by ``ended``."""
        if key in self._under_way:
            self._again_since_s.setdefault(key, since_s)
            return False
        if key not in self._waiting:
            self._waiting.add(key)
            domain = failure_domain(key)
            if domain not in self._by_failure_domain:
                self._by_failure_domain[domain] = FairOrder(attrgetter("namespace"))
            self._by_failure_domain[domain].add(key)
        return True

    def begin(self, free: Callable[[str], bool]) -> Iterator[tuple[LoadBalancerKey, str]]:
        """Yield each key to start now, with its failure domain, while ``free`` returns True for it."""
        for failure_domain in list(self._by_failure_domain):
            waiting = self._by_failure_domain[failure_domain]
            while waiting and free(failure_domain):
                key = waiting.pop()
                self._waiting.discard(key)
                self._under_way.add(key)
                yield key, failure_domain
            if not waiting:
                del self._by_failure_domain[failure_domain]

    def ended(self, key: LoadBalancerKey) -> float | None:
        """Mark ``key`` as not in progress; return since when it has been dirty again, None when it is not."""
        self._under_way.discard(key)
        return self._again_since_s.pop(key, None)


#: Minimum time between two polls of an operation in progress.
POLL_S = 0.1


class Schedule:
    """The times at which load balancers of one worker are due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_at_s: dict[LoadBalancerKey, float] = {}
        self._failures: dict[LoadBalancerKey, int] = {}
        #: Number of failed runs.
        self.retries = 0

    @property
    def failing(self) -> int:
        """Return how many load balancers wait for a retry."""
        return len(self._failures)

    @property
    def next_s(self) -> float | None:
        """Return the seconds until the next load balancer is due; None if none is."""
        if not self._due_at_s:
            return None
        return max(0.0, min(self._due_at_s.values()) - self._clock.monotonic())

    def take_due(self) -> list[LoadBalancerKey]:
        """Remove and return the keys that are due now."""
        now_s = self._clock.monotonic()
        due = [key for key, at_s in self._due_at_s.items() if at_s <= now_s]
        for key in due:
            del self._due_at_s[key]
        return due

    def planned(self, key: LoadBalancerKey, at_s: float | None) -> None:
        """Set when the plan can change without an event; None: never, which cancels an earlier time."""
        if at_s is None:
            self._due_at_s.pop(key, None)
        else:
            self.add(key, at_s)

    def add(self, key: LoadBalancerKey, at_s: float) -> None:
        """Make ``key`` due at ``at_s``, unless it is due earlier."""
        self._due_at_s[key] = min(at_s, self._due_at_s.get(key, at_s))

    def ended(self, key: LoadBalancerKey, result: Result, *, drained_s: float | None) -> None:
        """Note the result of a plan; ``drained_s`` is when the next drain of ``key`` ends."""
        match result:
            case Finished():
                self._failures.pop(key, None)
            case InProgress(after_s):
                self._failures.pop(key, None)
                self._again(key, max(POLL_S, after_s), drained_s)
            case Failed(after_s=after_s):
                self._again(key, max(self._pause_s(key), after_s), drained_s)
            case UnexpectedError():
                self._again(key, max(self._pause_s(key), BUG_RETRY_S), drained_s)

    def _pause_s(self, key: LoadBalancerKey) -> float:
        self.retries += 1
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return backoff_s(failures)

    def _again(self, key: LoadBalancerKey, after_s: float, drained_s: float | None) -> None:
        """Schedule ``key`` for the time at which the provider may be called again; a guard does not make it earlier."""
        self._due_at_s.pop(key, None)
        self.planned(key, drained_s)
        self.add(key, self._clock.monotonic() + after_s)
