"""The one place where load balancers are changed: takes dirty keys, plans, guards, orders, calls the provider, folds.

One worker for each provider account. The trigger has capacity one: it never blocks and coalesces whatever comes while
a run is under way. Snapshot, then I/O, then fold: the tracker is never touched while a call is in flight, and never
two operations run on one load balancer. In: a tracker. Out: provider calls, and one ``Report`` for each load
balancer looked at. Never: a decision of its own about what should be there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import structlog

from fairlead.errors import Bug, FairleadError, Retry
from fairlead.model.change import (
    DONE,
    Action,
    FrontendChange,
    Held,
    Outcome,
    OutcomeStatus,
    TargetChange,
)
from fairlead.model.contract import Ledger, Provider
from fairlead.model.desired import LoadBalancerSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import BUG_RETRY_S
from fairlead.runtime.queue import backoff_s
from fairlead.sync.guard import guard_plan
from fairlead.sync.order import order_changes
from fairlead.sync.plan import Plan, plan_load_balancer
from fairlead.sync.tracker import Side, Tracker

log = structlog.get_logger(__name__)

#: Load balancers handled before the event loop gets a turn, so that a big batch does not hold up the streams.
_TURN = 32


class Report(msgspec.Struct, frozen=True):
    """What one run did to one load balancer, in words for log, Event and status alike."""

    load_balancer: LoadBalancerKey
    done: tuple[TargetChange, ...] = ()
    held: tuple[Held, ...] = ()
    frontend: FrontendChange | None = None
    failure: str = ""
    failure_reason: str = ""

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
    ) -> None:
        self._tracker = tracker
        self._provider = provider
        self._ledger = ledger
        self._clock = clock
        self._report = report
        self._parallel = 1 if provider.capabilities.serves_whole_state else parallel
        self._trigger = asyncio.Event()
        self._failures: dict[LoadBalancerKey, int] = {}
        self._wake_at_s: dict[LoadBalancerKey, float] = {}
        self._idle = asyncio.Event()
        self.runs = 0

    def trigger(self) -> None:
        """Have the worker run soon; never blocks, and many calls make one run."""
        self._trigger.set()
        self._idle.clear()

    async def settled(self) -> None:
        """Return once a run has ended and nothing is dirty (waits for time to pass do not count)."""
        await self._idle.wait()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wait()
            self._tracker.touch(self._due())
            await self.run_once()

    async def run_once(self) -> None:
        """Handle everything that is dirty now."""
        keys = self._tracker.take()
        self.runs += bool(keys)
        if self._parallel == 1:
            for index, key in enumerate(keys, start=1):
                await self._handle(key)
                if index % _TURN == 0:
                    await asyncio.sleep(0)
        else:
            semaphore = asyncio.Semaphore(self._parallel)

            async def one(key: LoadBalancerKey) -> None:
                async with semaphore:
                    await self._handle(key)

            async with asyncio.TaskGroup() as group:
                for key in keys:
                    group.create_task(one(key))
        if not self._tracker.dirty:
            self._idle.set()

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
        failure = failure_reason = ""
        try:
            plan = guard_plan(plan_load_balancer(key, side, now_s=now_s), side, now_s=now_s)
            self._wake(key, plan.wake_at_s)
            rejected = await self._execute(plan, side, done)
            if rejected is not None:
                failure, failure_reason = rejected.message, rejected.status.value
                self._retry(key, rejected.retry_after_s)
            else:
                self._failures.pop(key, None)
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
        report = Report(key, tuple(done), plan.held, plan.frontend, failure, failure_reason)
        log.debug("load balancer synced", load_balancer=str(key), did=report.sentence)
        self._report(report)

    async def _execute(self, plan: Plan, side: Side, done: list[TargetChange]) -> Outcome | None:
        """Do the rows of ``plan`` in order; returns the first outcome that was not a success, if any."""
        frontend = plan.frontend
        if frontend is not None and frontend.action is Action.ENSURE and frontend.spec is not None:
            self._tracker.begin_frontend(frontend)
            await self._provider.ensure(frontend.spec)
            self._tracker.fold_frontend(frontend, DONE)
        spec = side.done_spec or (side.desired.spec if side.desired is not None else None)
        if spec is None and plan.changes:
            raise Bug(f"{plan.load_balancer} has targets on record, and nothing that says where")
        for phase in order_changes(plan.changes):
            failed = await self._apply(spec, phase, done) if spec is not None else None
            if failed is not None:
                return failed
        if frontend is not None and frontend.action is Action.DELETE:
            self._tracker.begin_frontend(frontend)
            await self._provider.delete(frontend.load_balancer)
            self._tracker.fold_frontend(frontend, DONE)
        return None

    async def _apply(
        self, spec: LoadBalancerSpec, changes: Sequence[TargetChange], done: list[TargetChange]
    ) -> Outcome | None:
        """Apply one phase in batches of the provider's size: record, call, settle, fold."""
        size = self._provider.capabilities.max_batch or len(changes)
        failed: Outcome | None = None
        for start in range(0, len(changes), max(1, size)):
            batch = await self._ledger.record(spec, changes[start : start + size])
            self._tracker.begin_targets(batch)
            outcomes = await self._provider.apply(batch)
            await self._ledger.settle(spec, batch, outcomes)
            self._tracker.fold_targets(batch, outcomes, now_s=self._clock.monotonic())
            for change, outcome in zip(batch, outcomes, strict=True):
                if outcome.status is OutcomeStatus.DONE:
                    done.append(change)
                elif failed is None:
                    failed = outcome
        return failed

    def _retry(self, key: LoadBalancerKey, after_s: float) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._wake(key, self._clock.monotonic() + max(backoff_s(failures), after_s))

    def _wake(self, key: LoadBalancerKey, at_s: float | None) -> None:
        if at_s is None:
            self._wake_at_s.pop(key, None)
        else:
            self._wake_at_s[key] = min(at_s, self._wake_at_s.get(key, at_s))
