"""Executes a plan in four phases: intent, call, result, item by item and in batches of the provider's size.

    phase    does                                                          after a failed phase
    ensure   (reach) ──► ensuring (stored) ──► provider ──► ensured (stored) ──► applied
    add      record (stored) ──► provider ──► settle (stored) ──► applied  only what needs no new frontend
    remove   the same                                                      only what no failed addition replaces
    delete   provider ──► applied; released, when it existed before        not at all

A load balancer whose frontend cannot be changed keeps serving, and its backends can still change. A batch that the
provider rejects is bisected until the failing items are known, so that the others succeed. Rejected items are parked,
reported, and retried after ``PARK_S``, because quotas grow and drivers are repaired; a changed item is retried at once.
A removal is parked only for parts that a rejected load balancer would no longer have.
In: a plan. Out: the completed rows, and the first one that failed. Never: a call while ``may_call`` says that this
replica does not lead.

A failure domain is an endpoint that fails as a whole, such as a socket or a URL. ``Concurrency`` limits the operations
at each one, so that an endpoint that hangs does not block others. An operation that needs its slot again is served
before new operations. ``Batcher`` combines many requests into few calls, for providers whose batches may span load
balancers:

    no call in progress       sent in the next iteration of the event loop, with all requests made until then
    a call in progress        requests are queued until it is answered, PATIENCE_S is over, or they fill a batch
    rejected, or a bug        each request is repeated on its own, since any of them may be the cause
    no answer                 each request fails, and is sent on its own until one has been answered
    throttled (429)           each request fails, and is batched again the next time

A call has requests of one failure domain only. A load balancer is in one call at a time, because its operation waits
for the answer. Never: a call for requests that were all cancelled, or a request that ends while its call is in
progress.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

import msgspec

from fairlead.errors import Bug, Retry, Terminal, Throttled
from fairlead.model.change import DONE, Action, FrontendChange, Held, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.contract import Ledger, Provider, Reachable, Releasable, SeesHealth
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.runtime.clock import Clock
from fairlead.sync.history import Report, Result, failure_of
from fairlead.sync.plan import LoadBalancerState, Plan, SeenOf, Tracker, guard_plan, order_changes, unseen


class Concurrency:
    """``parallel`` slots for each failure domain; ``freed`` is called when a slot becomes free."""

    def __init__(self, *, parallel: int, freed: Callable[[], None] = lambda: None) -> None:
        self._parallel = parallel
        self._freed = freed
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def taken(self, failure_domain: str) -> int:
        """Return the number of taken slots of ``failure_domain``."""
        return self._taken[failure_domain]

    def free(self, failure_domain: str) -> bool:
        """Return whether ``failure_domain`` has a free slot."""
        return self._taken[failure_domain] < self._parallel

    def take(self, failure_domain: str) -> Slot:
        """Take a slot; the caller has checked ``free``."""
        self._taken[failure_domain] += 1
        return Slot(self, failure_domain)

    def reserve(self, failure_domain: str) -> Slot:
        """Return a slot that is not taken yet."""
        return Slot(self, failure_domain, held=False)

    async def acquire(self, failure_domain: str) -> None:
        """Wait for a slot, in the order of arrival."""
        if self.free(failure_domain):
            self._taken[failure_domain] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(failure_domain, deque())
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The slot was assigned just before the cancellation.
                self.release(failure_domain)
            raise

    def release(self, failure_domain: str) -> None:
        """Hand a slot to the first operation that waits for it, or free it."""
        waiting = self._waiting.get(failure_domain, deque())
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._waiting.pop(failure_domain, None)
        self._taken[failure_domain] -= 1
        if not self._taken[failure_domain]:
            del self._taken[failure_domain]
        self._freed()


class Slot:
    """The slot of one operation; ``take`` and ``give`` are idempotent."""

    def __init__(self, slots: Concurrency, failure_domain: str, *, held: bool = True) -> None:
        self._slots = slots
        self._held = held
        self.failure_domain = failure_domain

    async def take(self) -> None:
        """Wait until the operation has its slot."""
        if not self._held:
            await self._slots.acquire(self.failure_domain)
            self._held = True

    def give(self) -> None:
        """Release the slot."""
        if self._held:
            self._held = False
            self._slots.release(self.failure_domain)


async def in_time(call: Awaitable[T], *, clock: Clock, limit_s: float | None, reads: bool = False) -> T:
    """Return the result of ``call`` within ``limit_s`` seconds; None means no limit.

    A late call is cancelled and, unless it only ``reads``, awaited, so that two writes to one load balancer never
    overlap.

    Raises:
        Retry: the call timed out.
    """
    if limit_s is None:
        return await call
    task = asyncio.ensure_future(call)
    sleeper = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        await asyncio.wait((task, sleeper), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Retry(f"the provider has not answered for {limit_s:g} s", reason="Timeout")
    finally:
        sleeper.cancel()
        if not task.done():
            task.cancel()
            if reads:
                task.add_done_callback(_forget)
            else:
                await asyncio.wait((task,))


def _forget(task: asyncio.Future[T]) -> None:
    """Retrieve the exception of a read that is no longer awaited."""
    if not task.cancelled():
        task.exception()


Call = Callable[[str, Sequence[TargetChange]], Awaitable[Sequence[Outcome]]]


#: How long later requests wait for a call in progress, in seconds.
PATIENCE_S = 0.5


class _BatchCall:
    """One call; ``has_several``: it has requests of several load balancers; ``waiters``: how many still wait for it."""

    def __init__(self, task: asyncio.Task[Sequence[Outcome]], waiters: int) -> None:
        self.task = task
        self.waiters = waiters
        self.has_several = waiters > 1


class _BatchRequest:
    """One request; ``sent`` resolves to its call, and the index of its first outcome there."""

    def __init__(self, changes: Sequence[TargetChange]) -> None:
        self.changes = changes
        self.sent: asyncio.Future[tuple[_BatchCall, int]] = asyncio.get_running_loop().create_future()


class _FailureDomain:
    """The queued requests of one failure domain, and the calls in progress that they wait for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: deque[_BatchRequest] = deque()
        self.awaited_calls: set[asyncio.Task[Sequence[Outcome]]] = set()
        self.scheduled = False


class Batcher:
    """The requests of one provider. ``call`` makes one call at a failure domain; ``size`` is its batch limit, or 0."""

    def __init__(self, *, call: Call, size: int, clock: Clock) -> None:
        self._call = call
        self._size = size
        self._clock = clock
        self._failure_domains: dict[str, _FailureDomain] = {}
        #: Load balancers that were in an unanswered call with others: their next request is sent alone.
        self._alone: set[LoadBalancerKey] = set()

    async def apply(
        self, failure_domain: str, changes: Sequence[TargetChange], *, alone: bool = False
    ) -> Sequence[Outcome]:
        """Return the outcomes of ``changes`` of one load balancer, batched with those of others unless ``alone``."""
        key = changes[0].load_balancer
        if not alone and key not in self._alone:
            batch_call, start = await self._enqueue_and_wait(failure_domain, changes)
            error = await self._completed(batch_call)
            if error is None:
                return batch_call.task.result()[start : start + len(changes)]
            if isinstance(error, Retry):
                if error.after_s is None and batch_call.has_several:
                    self._alone.add(key)
                raise Retry(error.sentence, detail=error.detail, reason=error.reason, after_s=error.after_s)
            if not batch_call.has_several:
                raise error
        outcomes = await self._call(failure_domain, changes)
        self._alone.discard(key)
        return outcomes

    async def _enqueue_and_wait(self, name: str, changes: Sequence[TargetChange]) -> tuple[_BatchCall, int]:
        failure_domain = self._failure_domains.setdefault(name, _FailureDomain(name))
        request = _BatchRequest(changes)
        failure_domain.requests.append(request)
        self._schedule(failure_domain)
        try:
            return await request.sent
        except asyncio.CancelledError:
            if request in failure_domain.requests:
                failure_domain.requests.remove(request)
            elif request.sent.done() and not request.sent.cancelled():
                await self._leave(request.sent.result()[0])
            raise

    async def _completed(self, batch_call: _BatchCall) -> BaseException | None:
        try:
            await asyncio.wait((batch_call.task,))
        except asyncio.CancelledError:
            await self._leave(batch_call)
            raise
        if batch_call.task.cancelled():
            return Retry("the call was given up before it was answered", reason="Cancelled")
        return batch_call.task.exception()

    async def _leave(self, batch_call: _BatchCall) -> None:
        """Stop waiting for a call, and cancel it when no other request waits; return when it has ended."""
        batch_call.waiters -= 1
        if not batch_call.waiters:
            batch_call.task.cancel()
        await _ended(batch_call.task)

    # --- calls ------------------------------------------------------------------------------------------------

    def _schedule(self, failure_domain: _FailureDomain) -> None:
        if not failure_domain.scheduled:
            failure_domain.scheduled = True
            asyncio.get_running_loop().call_soon(self._start_calls, failure_domain)

    def _start_calls(self, failure_domain: _FailureDomain) -> None:
        """Start all calls that need not wait."""
        failure_domain.scheduled = False
        while failure_domain.requests and (not failure_domain.awaited_calls or self._full(failure_domain)):
            if requests := self._batch(failure_domain):
                self._start_call(failure_domain, requests)
        if not failure_domain.requests and not failure_domain.awaited_calls:
            self._failure_domains.pop(failure_domain.name, None)

    def _full(self, failure_domain: _FailureDomain) -> bool:
        return bool(self._size) and sum(len(request.changes) for request in failure_domain.requests) >= self._size

    def _batch(self, failure_domain: _FailureDomain) -> list[_BatchRequest]:
        """Dequeue the requests of one call, oldest first, without cancelled ones."""
        requests: list[_BatchRequest] = []
        size = 0
        while failure_domain.requests:
            size += len(failure_domain.requests[0].changes)
            if requests and self._size and size > self._size:
                break
            request = failure_domain.requests.popleft()
            if request.sent.done():
                size -= len(request.changes)
            else:
                requests.append(request)
        return requests

    def _start_call(self, failure_domain: _FailureDomain, requests: Sequence[_BatchRequest]) -> None:
        task = asyncio.create_task(
            self._run_call(failure_domain, [change for request in requests for change in request.changes])
        )
        failure_domain.awaited_calls.add(task)
        task.add_done_callback(lambda _task: self._stop_awaiting(failure_domain, task))
        batch_call = _BatchCall(task, len(requests))
        start = 0
        for request in requests:
            request.sent.set_result((batch_call, start))
            start += len(request.changes)

    def _stop_awaiting(self, failure_domain: _FailureDomain, task: asyncio.Task[Sequence[Outcome]]) -> None:
        if task in failure_domain.awaited_calls:
            failure_domain.awaited_calls.discard(task)
            self._schedule(failure_domain)

    async def _run_call(self, failure_domain: _FailureDomain, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        call = asyncio.ensure_future(self._call(failure_domain.name, changes))
        sleeper = asyncio.ensure_future(self._clock.sleep(PATIENCE_S))
        try:
            await asyncio.wait((call, sleeper), return_when=asyncio.FIRST_COMPLETED)
            if not call.done() and (task := asyncio.current_task()) is not None:
                self._stop_awaiting(failure_domain, task)
            await asyncio.wait((call,))
        finally:
            sleeper.cancel()
            if not call.done():
                call.cancel()
                await _ended(call)
        outcomes = call.result()
        if len(outcomes) != len(changes):
            raise Bug(f"the provider gave {len(outcomes)} answers to {len(changes)} changes")
        return outcomes


async def _ended(call: asyncio.Future[Sequence[Outcome]]) -> None:
    """Wait until ``call`` has ended, and ignore its result or error."""
    await asyncio.wait((call,))
    if not call.cancelled():
        call.exception()


T = TypeVar("T")

#: With more failing items than this in one batch, the provider is at fault, not the items.
_MOST_CULPRITS = 8
_REFUSED_REMOVAL_S = 30.0


class Executor:
    """Executes the plans of one provider. ``limit_s``: time limit of one call in seconds; None: unlimited."""

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
        #: Number of rows by (action, outcome).
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
        """Ensure the frontend; if that fails, the present one keeps serving, and its backends can still change."""
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
        """Delete the load balancer once it has no backends of ours; release one that existed before Fairlead."""
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
        self._tracker.apply_frontend_result(frontend, DONE)

    # --- calls ------------------------------------------------------------------------------------------------

    async def _is_ensured(self, frontend: FrontendChange, spec: FrontendSpec, *, first: bool) -> bool:
        """Ensure the frontend; return False when the provider rejects it, which parks it. ``first``: it is new there.

        The provider must be reachable before the request is recorded: a recorded frontend needs its provider to be
        deleted.
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
        self._tracker.apply_frontend_result(frontend, DONE)
        return True

    def _park(self, spec: FrontendSpec, error: Terminal) -> bool:
        self._quarantine.refuse(spec, error, now_s=self._clock.monotonic())
        return False

    async def _apply(self, operation: Operation, changes: Sequence[TargetChange]) -> bool:
        """Apply the rows of one phase in batches of the provider's size; return whether any row failed."""
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
        begun, calls, decided = list[TargetChange](), list[TargetChange](), list[Outcome | None]()
        for change, answer in zip(changes, answers, strict=True):
            match answer:
                case Outcome(status=OutcomeStatus.DONE):
                    decided.append(answer)
                    continue
                case Outcome():
                    decided.append(answer)  # an intent whose write failed may have been stored all the same
                case TargetChange(reason=Reason.OWNERS_CHANGED):
                    decided.append(DONE)  # for the ledger only
                case TargetChange():
                    calls.append(answer)
                    decided.append(None)
            begun.append(change)
        self._tracker.begin_targets(begun)
        replies = await self._call_provider(calls, slot, [_MOST_CULPRITS]) if calls else ()
        settled = iter(await self._ledger.settle(spec, calls, replies) if calls else ())
        outcomes = [outcome or next(settled) for outcome in decided]
        now_s = self._clock.monotonic()
        self._tracker.apply_results(changes, outcomes, now_s=now_s)
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
            if asyncio.iscoroutine(call):
                call.close()
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
    """Turn rejected removals into retries: the targets stay registered until the provider removes them."""
    if outcome.status is OutcomeStatus.REJECTED and change.is_removal:
        return Outcome(OutcomeStatus.RETRY, outcome.message, max(outcome.retry_after_s, _REFUSED_REMOVAL_S))
    return outcome


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
        """Return the total duration of all calls in seconds."""
        return self._seconds.get((method, result), 0.0)

    def cumulative(self, method: str, result: str) -> list[tuple[str, float]]:
        """Return the cumulative count of each bucket, as in a Prometheus histogram."""
        ends = [f"{end:g}" if end != BUCKETS_S[-1] else "+Inf" for end in BUCKETS_S]
        return list(zip(ends, map(float, accumulate(self._counts[method, result])), strict=True))


class Operation(msgspec.Struct):
    """One run for one load balancer.

    ``parked`` are the rows that are skipped because the provider has rejected them. ``drained_s`` is when the next
    drain ends (monotonic seconds), None when nothing drains. ``slot`` is held when the phases begin.
    """

    plan: Plan
    state: LoadBalancerState
    slot: Slot
    parked: tuple[Held, ...] = ()
    drained_s: float | None = None
    #: The completed rows, in order of completion.
    done: list[TargetChange] = msgspec.field(default_factory=list[TargetChange])
    #: The load balancer after the first phase; before that, as desired.
    spec: FrontendSpec | None = None
    #: The rows that are not executed yet.
    additions: Sequence[TargetChange] = ()
    removals: Sequence[TargetChange] = ()
    #: The first outcome of each phase that was not a success.
    undone: list[Outcome] = msgspec.field(default_factory=list[Outcome])
    #: The error of the frontend; raised once the rows that do not depend on the frontend are done.
    late: Retry | Terminal | None = None

    @property
    def key(self) -> LoadBalancerKey:
        """Return the load balancer."""
        return self.plan.load_balancer

    @property
    def first_undone(self) -> Outcome | None:
        """Return the first outcome that was not a success; failures come before operations in progress."""
        failed = (outcome for outcome in self.undone if outcome.status is not OutcomeStatus.RUNNING)
        return next(failed, next(iter(self.undone), None))

    @property
    def frontend_done(self) -> bool:
        """Return whether the row for the load balancer itself was executed."""
        frontend, state = self.plan.frontend, self.state
        if frontend is None:
            return False
        wanted = frontend.spec if frontend.action is Action.ENSURE else None
        return state.recorded_spec == wanted and not state.ensure_again

    def report(self, result: Result, refused: Refusal | None, *, computed_s: float = 0.0) -> Report:
        """Return the report of this run; ``refused`` is the parked refusal of the frontend, if any."""
        # A rejection takes precedence over other results: retrying alone cannot fix it.
        failure, reason = failure_of(result) if refused is None else (refused.message, refused.reason)
        return Report(
            self.key,
            tuple(self.done),
            self.plan.held,
            self.plan.frontend,
            failure,
            reason,
            self.parked,
            planned=self.plan.changes,
            frontend_done=self.frontend_done,
            computed_s=computed_s,
        )


PARK_S = 300.0
QUARANTINED = "Quarantined"


class _Parked(msgspec.Struct, frozen=True):
    target: Target
    message: str
    until_s: float


class Refusal(msgspec.Struct, frozen=True):
    """A load balancer that the provider refused to create or change."""

    spec: FrontendSpec
    message: str
    reason: str
    until_s: float


class Quarantine:
    """The objects that one provider has refused."""

    def __init__(self) -> None:
        self._parked: dict[LoadBalancerKey, dict[tuple[ListenerKey, TargetKey], _Parked]] = {}
        self._refused: dict[LoadBalancerKey, Refusal] = {}

    def __len__(self) -> int:
        """Return how many backends are parked."""
        return sum(len(parked) for parked in self._parked.values())

    @property
    def load_balancers(self) -> int:
        """Return how many load balancers are parked."""
        return len(self._refused)

    def add(self, change: TargetChange, message: str, *, now_s: float) -> None:
        """Park one backend."""
        parked = self._parked.setdefault(change.load_balancer, {})
        parked[change.listener, change.key] = _Parked(change.target, message, now_s + PARK_S)

    def refuse(self, spec: FrontendSpec, error: Terminal, *, now_s: float) -> None:
        """Park one load balancer."""
        self._refused[spec.key] = Refusal(spec, error.sentence, error.reason, now_s + PARK_S)

    def refusal(self, key: LoadBalancerKey) -> Refusal | None:
        """Return the refusal of the desired frontend, None when it is not parked."""
        return self._refused.get(key)

    def exclude_refused(self, plan: Plan, state: LoadBalancerState, *, now_s: float) -> tuple[Plan, tuple[Held, ...]]:
        """Return ``plan`` without parked objects, and the rows of parked backends."""
        plan = self._exclude_frontend(plan, state, now_s)
        known = self._parked.get(plan.load_balancer)
        if not known:
            return plan, ()
        kept: list[TargetChange] = []
        parked: list[Held] = []
        still: dict[tuple[ListenerKey, TargetKey], _Parked] = {}
        for change in plan.changes:
            place = (change.listener, change.key)
            refused = known.get(place)
            if refused is None or not change.is_addition or refused.target != change.target or refused.until_s <= now_s:
                kept.append(change)
            else:
                parked.append(Held(change, QUARANTINED, refused.message))
                still[place] = refused
        # Changes that are in no plan are no longer requested.
        if still:
            self._parked[plan.load_balancer] = still
            plan = plan.woken_at(min(refused.until_s for refused in still.values()))
        else:
            del self._parked[plan.load_balancer]
        return msgspec.structs.replace(plan, changes=tuple(kept)), tuple(parked)

    def _exclude_frontend(self, plan: Plan, state: LoadBalancerState, now_s: float) -> Plan:
        refused = self._refused.get(plan.load_balancer)
        if refused is None:
            return plan
        planned = plan.frontend is not None
        if state.desired is None or state.desired.spec != refused.spec or (planned and refused.until_s <= now_s):
            del self._refused[plan.load_balancer]
            return plan
        if not planned:
            # A guard holds everything: the rejection is kept, and the provider is not called.
            return plan
        changes = tuple(without_refused(plan.changes, state))
        return msgspec.structs.replace(plan, frontend=None, changes=changes).woken_at(refused.until_s)


def without_refused(changes: Iterable[TargetChange], state: LoadBalancerState) -> list[TargetChange]:
    """Return the rows that do not depend on the refused frontend; none if there has never been a frontend."""
    made = state.made
    listeners_present = frozenset(listener.key for listener in made.listeners) if made is not None else ()
    return [
        change
        for change in changes
        if change.listener in listeners_present
        and (change.reason is not Reason.LISTENER_REMOVED or _recalled(change, state))
    ]


def _recalled(change: TargetChange, state: LoadBalancerState) -> bool:
    registered = state.recorded.get(change.listener, {}).get(change.key)
    return registered is not None and registered.deregistering
