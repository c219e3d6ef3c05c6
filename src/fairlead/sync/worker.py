"""The one place where load balancers are changed: takes dirty keys, plans, guards, orders, calls the provider, folds.

One worker for each provider account. The trigger has capacity one: it never blocks and coalesces whatever comes while
a run is under way. Snapshot, then I/O, then fold: the tracker is never touched while a call is in flight, and never
two operations run on one load balancer; one that hangs holds up no other (``execute`` makes the calls). In: a tracker.
Out: provider calls, and one ``Report`` for each load balancer looked at. Never: a decision of its own about what
should be there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec
import structlog

from fairlead.errors import FairleadError, Retry
from fairlead.model.change import Action, FrontendChange, Held, OutcomeStatus, Reason, TargetChange
from fairlead.model.contract import Ledger, Provider
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import BUG_RETRY_S
from fairlead.runtime.queue import backoff_s
from fairlead.sync.execute import Executor
from fairlead.sync.guard import guard_plan
from fairlead.sync.plan import Plan, plan_load_balancer
from fairlead.sync.quarantine import Quarantine
from fairlead.sync.tracker import Tracker

log = structlog.get_logger(__name__)

#: Load balancers handled before the event loop gets a turn, so that a big batch does not hold up the streams.
_TURN = 32
#: The least time between two questions about something that is under way.
_POLL_S = 0.1
#: How often what is dirty is looked at though nobody asked: a trigger that was lost delays work, and loses none.
_TICK_S = 60.0


class Report(msgspec.Struct, frozen=True):
    """What one run did to one load balancer, in words for log, Event and status alike."""

    load_balancer: LoadBalancerKey
    done: tuple[TargetChange, ...] = ()
    held: tuple[Held, ...] = ()
    frontend: FrontendChange | None = None
    failure: str = ""
    failure_reason: str = ""
    quarantined: tuple[Held, ...] = ()

    @property
    def sentence(self) -> str:
        """Say in one sentence what happened."""
        parts: list[str] = []
        if self.frontend is not None:
            parts.append(f"{self.frontend.action} load balancer ({self.frontend.reason})")
        counts: dict[tuple[Action, str], int] = {}
        for change in self.done:
            counts[change.action, change.reason] = counts.get((change.action, change.reason), 0) + 1
        parts += [f"{action} {count} ({reason})" for (action, reason), count in counts.items()]
        if self.held:
            parts.append(f"hold {len(self.held)} ({self.held[0].reason})")
        if self.quarantined:
            parts.append(f"quarantine {len(self.quarantined)} ({self.quarantined[0].message})")
        if self.failure:
            parts.append(f"failed: {self.failure}")
        return ", ".join(parts) or "nothing to do"


class Worker:
    """Brings one provider to where the tracker wants it."""

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
        self._clock = clock
        self.quarantine = Quarantine()
        self.executor = Executor(
            tracker=tracker,
            provider=provider,
            ledger=ledger,
            clock=clock,
            quarantine=self.quarantine,
            may_call=may_call,
            limit_s=limit_s,
        )
        self._report = report
        self._parallel = 1 if provider.capabilities.serves_whole_state else parallel
        self._trigger = asyncio.Event()
        self._failures: dict[LoadBalancerKey, int] = {}
        self._wake_at_s: dict[LoadBalancerKey, float] = {}
        self._idle = asyncio.Event()
        self._ready: deque[LoadBalancerKey] = deque()
        self._in_flight: set[LoadBalancerKey] = set()
        #: Became dirty again while a call about them was under way.
        self._again: set[LoadBalancerKey] = set()
        self.runs = 0
        self.retries = 0

    def trigger(self) -> None:
        """Have the worker run soon; never blocks, and many calls make one run."""
        self._trigger.set()
        self._idle.clear()

    async def settled(self) -> None:
        """Return once a run has ended and nothing is dirty (waits for time to pass do not count)."""
        await self._idle.wait()

    @property
    def failing(self) -> int:
        """Return how many load balancers wait for a retry."""
        return len(self._failures)

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
        self.runs += bool(keys)
        for index, key in enumerate(keys, start=1):
            await self._handle(key)
            if index % _TURN == 0:
                await asyncio.sleep(0)
        if not self._tracker.dirty:
            self._idle.set()

    def _dispatch(self, group: asyncio.TaskGroup) -> None:
        """Begin with what is dirty now, as far as there are free hands; the same key never twice at once."""
        for key in self._tracker.take():
            if key in self._in_flight:
                self._again.add(key)
            elif key not in self._ready:
                self._ready.append(key)
        self.runs += bool(self._ready) and len(self._in_flight) < self._parallel
        while self._ready and len(self._in_flight) < self._parallel:
            key = self._ready.popleft()
            self._in_flight.add(key)
            group.create_task(self._one(key))
        if not self._in_flight and not self._tracker.dirty:
            self._idle.set()

    async def _one(self, key: LoadBalancerKey) -> None:
        try:
            await self._handle(key)
        finally:
            self._in_flight.discard(key)
            if key in self._again:
                self._again.discard(key)
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

    async def _handle(self, key: LoadBalancerKey) -> None:
        side = self._tracker.side(key)
        if side is None:
            return
        now_s = self._clock.monotonic()
        plan = Plan(key)
        done: list[TargetChange] = []
        parked: tuple[Held, ...] = ()
        failure = failure_reason = ""
        try:
            plan = guard_plan(plan_load_balancer(key, side, now_s=now_s), side, now_s=now_s)
            plan, parked = self.quarantine.sift(plan, now_s=now_s)
            self._wake(key, plan.wake_at_s)
            left = await self.executor.run(plan, side, done)
            if left is None:
                self._failures.pop(key, None)
            elif left.status is OutcomeStatus.RUNNING:
                # Under way is no failure: asked again, and not more slowly each time.
                self._failures.pop(key, None)
                self._wake(key, self._clock.monotonic() + max(_POLL_S, left.retry_after_s))
            else:
                failure, failure_reason = left.message, left.status.value
                self._retry(key, left.retry_after_s)
        except FairleadError as error:
            failure, failure_reason = error.sentence, error.reason
            self._retry(key, error.after_s or 0.0 if isinstance(error, Retry) else 0.0)
        except Exception as error:
            # Promise 7: a bug in one load balancer must not stop the others.
            failure, failure_reason = "an internal error of the hub; its log says more", "InternalError"
            log.exception("bug", load_balancer=str(key), error=str(error))
            self._retry(key, BUG_RETRY_S)
        if side.desired is not None and any(change.action is Action.DRAIN for change in done):
            # The plan was made before these began to leave, so it does not know when they will have left.
            self._wake(key, self._clock.monotonic() + side.desired.drain_s)
        if any(change.reason in _THEN_AGAIN for change in done):
            # Gone; whether the same place is wanted again is seen only now.
            self._tracker.touch((key,))
            self._trigger.set()
        report = Report(key, tuple(done), plan.held, plan.frontend, failure, failure_reason, parked)
        log.debug("load balancer synced", load_balancer=str(key), did=report.sentence)
        self._report(report)

    def _retry(self, key: LoadBalancerKey, after_s: float) -> None:
        self.retries += 1
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._wake(key, self._clock.monotonic() + max(backoff_s(failures), after_s))

    def _wake(self, key: LoadBalancerKey, at_s: float | None) -> None:
        if at_s is None:
            self._wake_at_s.pop(key, None)
        else:
            self._wake_at_s[key] = min(at_s, self._wake_at_s.get(key, at_s))


_THEN_AGAIN = frozenset({Reason.DEREGISTERING, Reason.REPLACED})
