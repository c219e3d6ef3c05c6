"""Gathers requests about many load balancers into few calls, for providers whose batches may span them.

    nothing under way         goes out in the next turn of the loop, with all that came in this one
    a call under way          requests collect until it is answered, PATIENCE_S is over, or they fill a batch
    refused, or a mistake     each request is repeated on its own, since any of them may be the cause
    no answer                 each request fails, and goes out on its own until one has been answered
    not now (429)             each request fails, and is gathered again the next time

One call holds requests of one failure domain only, and a load balancer is in one call at a time, since its operation
waits for the answer. In: requests. Out: to each the answers to its own changes, in their order. Never: a call for
requests that were all cancelled; and no request ends while a call about it is under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from fairlead.errors import Bug, Retry
from fairlead.model.change import Outcome, TargetChange
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock

Call = Callable[[str, Sequence[TargetChange]], Awaitable[Sequence[Outcome]]]

#: How long those who come later wait for a call that is under way.
PATIENCE_S = 0.5


class _Flight:
    """One call, ``mixed`` when it is about several load balancers, and how many still wait for it."""

    def __init__(self, task: asyncio.Task[Sequence[Outcome]], askers: int) -> None:
        self.task = task
        self.askers = askers
        self.mixed = askers > 1


class _Ask:
    """One request; ``boarded`` has its call, and where its answers begin, once there is one."""

    def __init__(self, changes: Sequence[TargetChange]) -> None:
        self.changes = changes
        self.boarded: asyncio.Future[tuple[_Flight, int]] = asyncio.get_running_loop().create_future()


class _Domain:
    """The requests that wait for one failure domain, and the calls under way that later requests wait for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asks: deque[_Ask] = deque()
        self.flying: set[asyncio.Task[Sequence[Outcome]]] = set()
        self.awake = False


class Gather:
    """The requests of one provider. ``call`` makes one call at a failure domain; ``size`` is its batch limit, or 0."""

    def __init__(self, *, call: Call, size: int, clock: Clock) -> None:
        self._call = call
        self._size = size
        self._clock = clock
        self._failure_domains: dict[str, _Domain] = {}
        #: Were in a call of many that was not answered.
        self._alone: set[LoadBalancerKey] = set()

    async def apply(
        self, failure_domain: str, changes: Sequence[TargetChange], *, alone: bool = False
    ) -> Sequence[Outcome]:
        """Have ``changes`` of one load balancer made, with those of others unless ``alone``."""
        key = changes[0].load_balancer
        if not alone and key not in self._alone:
            flight, start = await self._boarded(failure_domain, changes)
            error = await self._landed(flight)
            if error is None:
                return flight.task.result()[start : start + len(changes)]
            if isinstance(error, Retry):
                if error.after_s is None and flight.mixed:
                    self._alone.add(key)
                raise Retry(error.sentence, detail=error.detail, reason=error.reason, after_s=error.after_s)
            if not flight.mixed:
                raise error
        outcomes = await self._call(failure_domain, changes)
        self._alone.discard(key)
        return outcomes

    async def _boarded(self, name: str, changes: Sequence[TargetChange]) -> tuple[_Flight, int]:
        failure_domain = self._failure_domains.setdefault(name, _Domain(name))
        ask = _Ask(changes)
        failure_domain.asks.append(ask)
        self._wake(failure_domain)
        try:
            return await ask.boarded
        except asyncio.CancelledError:
            if ask in failure_domain.asks:
                failure_domain.asks.remove(ask)
            elif ask.boarded.done() and not ask.boarded.cancelled():
                await self._leave(ask.boarded.result()[0])
            raise

    async def _landed(self, flight: _Flight) -> BaseException | None:
        try:
            await asyncio.wait((flight.task,))
        except asyncio.CancelledError:
            await self._leave(flight)
            raise
        if flight.task.cancelled():
            return Retry("the call was given up before it was answered", reason="Cancelled")
        return flight.task.exception()

    async def _leave(self, flight: _Flight) -> None:
        """Stop waiting for a call: the last to do so ends it, the others see it to its end."""
        flight.askers -= 1
        if not flight.askers:
            flight.task.cancel()
        await _ended(flight.task)

    # --- calls ------------------------------------------------------------------------------------------------

    def _wake(self, failure_domain: _Domain) -> None:
        if not failure_domain.awake:
            failure_domain.awake = True
            asyncio.get_running_loop().call_soon(self._depart, failure_domain)

    def _depart(self, failure_domain: _Domain) -> None:
        """Start the calls that may start now."""
        failure_domain.awake = False
        while failure_domain.asks and (not failure_domain.flying or self._full(failure_domain)):
            if asks := self._batch(failure_domain):
                self._take_off(failure_domain, asks)
        if not failure_domain.asks and not failure_domain.flying:
            self._failure_domains.pop(failure_domain.name, None)

    def _full(self, failure_domain: _Domain) -> bool:
        return bool(self._size) and sum(len(ask.changes) for ask in failure_domain.asks) >= self._size

    def _batch(self, failure_domain: _Domain) -> list[_Ask]:
        """Take what fits into one call, oldest first, without those who have gone meanwhile."""
        asks: list[_Ask] = []
        size = 0
        while failure_domain.asks:
            size += len(failure_domain.asks[0].changes)
            if asks and self._size and size > self._size:
                break
            ask = failure_domain.asks.popleft()
            if ask.boarded.done():
                size -= len(ask.changes)
            else:
                asks.append(ask)
        return asks

    def _take_off(self, failure_domain: _Domain, asks: Sequence[_Ask]) -> None:
        task = asyncio.create_task(self._fly(failure_domain, [change for ask in asks for change in ask.changes]))
        failure_domain.flying.add(task)
        task.add_done_callback(lambda _task: self._no_longer_awaited(failure_domain, task))
        flight = _Flight(task, len(asks))
        start = 0
        for ask in asks:
            ask.boarded.set_result((flight, start))
            start += len(ask.changes)

    def _no_longer_awaited(self, failure_domain: _Domain, task: asyncio.Task[Sequence[Outcome]]) -> None:
        if task in failure_domain.flying:
            failure_domain.flying.discard(task)
            self._wake(failure_domain)

    async def _fly(self, failure_domain: _Domain, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        call = asyncio.ensure_future(self._call(failure_domain.name, changes))
        sleeper = asyncio.ensure_future(self._clock.sleep(PATIENCE_S))
        try:
            await asyncio.wait((call, sleeper), return_when=asyncio.FIRST_COMPLETED)
            if not call.done() and (this := asyncio.current_task()) is not None:
                self._no_longer_awaited(failure_domain, this)
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
