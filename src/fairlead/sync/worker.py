"""The one place where load balancers are changed: takes dirty keys, plans, guards, orders, calls the provider, folds.

One worker for each provider. The trigger has capacity one: it never blocks and coalesces whatever comes while a run
is under way. Snapshot, then I/O, then fold: the tracker is never touched while a call is in flight, and never two
operations run on one load balancer; one that hangs holds up no other, and a failure domain that hangs takes no room
from another (``execute`` makes the calls). In: a tracker. Out: provider calls, and one ``Report`` for each load
balancer looked at. Never: a decision of its own about what should be there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from fairlead.errors import FairleadError, Retry
from fairlead.model.change import Action, FrontendChange, Held, OutcomeStatus, Reason, TargetChange
from fairlead.model.contract import FailureDomains, Ledger, Provider
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import BUG_RETRY_S
from fairlead.runtime.queue import backoff_s
from fairlead.sync.backlog import Backlog
from fairlead.sync.concurrency import Concurrency, Slot
from fairlead.sync.execute import Executor
from fairlead.sync.guard import guard_plan
from fairlead.sync.plan import Plan, plan_load_balancer
from fairlead.sync.quarantine import Quarantine
from fairlead.sync.report import Report
from fairlead.sync.tracker import LoadBalancerState, Tracker

log = structlog.get_logger(__name__)

#: Load balancers handled before the event loop gets a turn, so that a big batch does not hold up the streams.
_TURN = 32
#: The least time between two questions about something that is under way.
_POLL_S = 0.1
#: How often what is dirty is taken up without a trigger: a trigger that was lost delays work, and loses none.
_TICK_S = 60.0


class Worker:
    """Brings one provider to where the tracker wants it, ``parallel`` operations at once at each failure domain."""

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
        self._failures: dict[LoadBalancerKey, int] = {}
        self._wake_at_s: dict[LoadBalancerKey, float] = {}
        self._idle = asyncio.Event()
        self._backlog = Backlog()
        #: What waits for a place, by failure domain; a key is in there once.
        self._ready: dict[str, deque[LoadBalancerKey]] = {}
        self._waiting: set[LoadBalancerKey] = set()
        self._in_flight: set[LoadBalancerKey] = set()
        #: Became dirty again while a call about them was under way, and since when.
        self._again: dict[LoadBalancerKey, float] = {}
        self.runs = 0
        self.retries = 0

    def trigger(self) -> None:
        """Have the worker run soon; never blocks, and many calls make one run."""
        self._backlog.triggered(self._clock.monotonic())
        self._trigger.set()
        self._idle.clear()

    async def settled(self) -> None:
        """Return once a run has ended and nothing is dirty (waits for time to pass do not count)."""
        await self._idle.wait()

    @property
    def failing(self) -> int:
        """Return how many load balancers wait for a retry."""
        return len(self._failures)

    @property
    def pending(self) -> int:
        """Return how many load balancers changed and are not done: waiting, being worked on, or to be retried."""
        return self._tracker.dirty + sum(not self._tracker.is_dirty(key) for key in self._backlog)

    def oldest_pending_s(self, now_s: float) -> float:
        """Return for how long the oldest of them has been waiting at ``now_s`` (monotonic); 0 when there is none."""
        return self._backlog.oldest_s(now_s, untaken=self._tracker.dirty > 0)

    @property
    def parked(self) -> int:
        """Return how many backends and load balancers their provider has refused, and is not asked for now."""
        return len(self.quarantine) + self.quarantine.load_balancers

    @property
    def draining(self) -> int:
        """Return how many load balancers wait for backends to finish what they have."""
        return self._backlog.draining

    def failure_domain(self, key: LoadBalancerKey) -> str:
        """Return what answers for one load balancer; empty where the provider does not distinguish."""
        state = self._tracker.state(key)
        if state is None or not isinstance(self._provider, FailureDomains):
            return ""
        spec = state.desired.spec if state.desired is not None else state.recorded_spec
        try:
            return self._provider.failure_domain(spec) if spec is not None else ""
        except Exception as error:
            # Promise 7: a provider's bug about one load balancer must not stop the others.
            log.exception("bug", load_balancer=str(key), error=str(error))
            return ""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tick())
            while True:
                await self._wait()
                self._tracker.touch(self._due())
                if self._parallel == 1:
                    await self._run_in_turn()
                else:
                    self._dispatch(group)

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(_TICK_S)
            if self._tracker.dirty:
                self._trigger.set()

    async def _run_in_turn(self) -> None:
        """Handle everything that is dirty now, one after the other."""
        keys = self._tracker.take()
        since_s = self._backlog.took(self._clock.monotonic())
        for key in keys:
            self._backlog.add(key, since_s)
        self.runs += bool(keys)
        for index, key in enumerate(keys, start=1):
            await self._handle(key, self._slots.take(""))
            if index % _TURN == 0:
                await asyncio.sleep(0)
        if not self._tracker.dirty:
            self._idle.set()

    def _dispatch(self, group: asyncio.TaskGroup) -> None:
        """Begin with what is dirty now, as far as there are free hands; the same key never twice at once."""
        since_s = self._backlog.took(self._clock.monotonic())
        for key in self._tracker.take():
            if key in self._in_flight:
                self._again.setdefault(key, since_s)
                continue
            self._backlog.add(key, since_s)
            if key not in self._waiting:
                self._waiting.add(key)
                self._ready.setdefault(self.failure_domain(key), deque()).append(key)
        begun = False
        for failure_domain in list(self._ready):
            ready = self._ready[failure_domain]
            while ready and self._slots.free(failure_domain):
                key = ready.popleft()
                self._waiting.discard(key)
                self._in_flight.add(key)
                group.create_task(self._run_one(key, self._slots.take(failure_domain)))
                begun = True
            if not ready:
                del self._ready[failure_domain]
        self.runs += begun
        if not self._in_flight and not self._waiting and not self._tracker.dirty:
            self._idle.set()

    async def _run_one(self, key: LoadBalancerKey, slot: Slot) -> None:
        try:
            await self._handle(key, slot)
        finally:
            self._in_flight.discard(key)
            if key in self._again:
                self._backlog.add(key, self._again.pop(key))
                self._tracker.touch((key,))
            self._trigger.set()

    async def _wait(self) -> None:
        """Wait for the trigger or for the earliest moment that a plan or a retry asked for."""
        if self._tracker.dirty or self._trigger.is_set():
            self._trigger.clear()
            return
        if not self._wake_at_s:
            await self._trigger.wait()
        else:
            delay_s = max(0.0, min(self._wake_at_s.values()) - self._clock.monotonic())
            sleeper = asyncio.ensure_future(self._clock.sleep(delay_s))
            waiter = asyncio.ensure_future(self._trigger.wait())
            try:
                await asyncio.wait((sleeper, waiter), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeper.cancel()
                waiter.cancel()
        self._trigger.clear()

    def _due(self) -> list[LoadBalancerKey]:
        now_s = self._clock.monotonic()
        due = [key for key, at_s in self._wake_at_s.items() if at_s <= now_s]
        for key in due:
            del self._wake_at_s[key]
        return due

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
        now_s = self._clock.monotonic()
        plan = Plan(key)
        done: list[TargetChange] = []
        parked: tuple[Held, ...] = ()
        drains = over = False
        drained_s: float | None = None
        failure = failure_reason = ""
        try:
            plan = plan_load_balancer(key, state, now_s=now_s)
            drained_s = plan.wake_at_s
            drains = drained_s is not None
            plan = guard_plan(plan, state, now_s=now_s)
            plan, parked = self.quarantine.sift(plan, state, now_s=now_s)
            self._wake(key, plan.wake_at_s)
            left = await self.executor.run(plan, state, done, slot)
            if left is None:
                self._failures.pop(key, None)
                over = True
            elif left.status is OutcomeStatus.RUNNING:
                # Under way is no failure: asked again, and not more slowly each time.
                self._failures.pop(key, None)
                self._wake_again(key, max(_POLL_S, left.retry_after_s), drained_s)
            else:
                failure, failure_reason = left.message, left.status.value
                self._retry(key, left.retry_after_s, drained_s)
        except FairleadError as error:
            failure, failure_reason = error.sentence, error.reason
            self._retry(key, error.after_s or 0.0 if isinstance(error, Retry) else 0.0, drained_s)
        except Exception as error:
            # Promise 7: a bug in one load balancer must not stop the others.
            failure, failure_reason = "an internal error of the hub; its log says more", "InternalError"
            log.exception("bug", load_balancer=str(key), error=str(error))
            self._retry(key, BUG_RETRY_S, drained_s)
        if (refused := self.quarantine.refusal(key)) is not None:
            # Whatever else there is to say: what users ask for is not done, and not for want of trying.
            failure, failure_reason = refused.message, refused.reason
            if refused.until_s > self._clock.monotonic():
                self._wake(key, refused.until_s)
        if state.desired is not None and any(change.action is Action.DRAIN for change in done):
            # The plan was made before these began to leave, so it does not know when they will have left.
            self._wake(key, self._clock.monotonic() + state.desired.drain_s)
            drains = True
        if any(change.reason in _THEN_AGAIN for change in done):
            # Gone; whether the same place is wanted again is seen only now.
            self._tracker.touch((key,))
            self._trigger.set()
            over = False
        if over:
            self._backlog.ended(key, draining=drains)
        report = Report(
            key,
            tuple(done),
            plan.held,
            plan.frontend,
            failure,
            failure_reason,
            parked,
            planned=plan.changes,
            frontend_done=_is_done(plan.frontend, state),
        )
        log.debug("load balancer synced", load_balancer=str(key), did=report.sentence)
        self._report(report)

    def _retry(self, key: LoadBalancerKey, after_s: float, drained_s: float | None) -> None:
        self.retries += 1
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._wake_again(key, max(backoff_s(failures), after_s), drained_s)

    def _wake_again(self, key: LoadBalancerKey, after_s: float, drained_s: float | None) -> None:
        """Wake when the provider may be asked again: a guard that wants to look sooner would ask it, too."""
        self._wake(key, None)
        if drained_s is not None:
            self._wake(key, drained_s)
        self._wake(key, self._clock.monotonic() + after_s)

    def _wake(self, key: LoadBalancerKey, at_s: float | None) -> None:
        if at_s is None:
            self._wake_at_s.pop(key, None)
        else:
            self._wake_at_s[key] = min(at_s, self._wake_at_s.get(key, at_s))


def _is_done(frontend: FrontendChange | None, state: LoadBalancerState) -> bool:
    if frontend is None:
        return False
    wanted = frontend.spec if frontend.action is Action.ENSURE else None
    return state.recorded_spec == wanted and not state.ensure_again


_THEN_AGAIN = frozenset({Reason.DEREGISTERING, Reason.REPLACED})
