"""Limits and batches the calls of a provider.

A failure domain is a party that answers or hangs as a whole: a socket, a URL. ``Concurrency`` limits the operations at
each, so that one that hangs does not block others; an operation that has released its slot and needs it again comes
before new operations. ``Batcher`` makes few calls of many requests, for providers whose batches may span load
balancers:

    no call in progress       sent in the next iteration of the event loop, with all requests of this one
    a call in progress        requests are queued until it is answered, PATIENCE_S is over, or they fill a batch
    rejected, or a bug        each request is repeated on its own, since any of them may be the cause
    no answer                 each request fails, and is sent on its own until one has been answered
    throttled (429)           each request fails, and is batched again the next time

A call has requests of one failure domain only, and a load balancer is in one call at a time, since its operation waits
for the answer. Never: a call for requests that were all cancelled, or the end of a request while a call with it is in
progress.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from fairlead.errors import Bug, Retry
from fairlead.model.change import Outcome, TargetChange
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock

T = TypeVar("T")


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
        """Wait for a slot, first come first served."""
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
                # The slot was handed over just before the cancellation.
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
        Retry: it has not answered in time.
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


#: Seconds for which later requests wait for a call in progress.
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
    """Wait until ``call`` is over, however it ends, and ignore its result."""
    await asyncio.wait((call,))
    if not call.cancelled():
        call.exception()
