"""Memory of load balancers that keep their own state, and detection of changes that no server reports.

``LoadBalancerStates`` has the state that a provider keeps of each load balancer, and the released ones. Nothing in it
is durable: after a restart the states come from the ledger (``restore``). The watch reads the load balancers of each
server (a HAProxy, a driver) regularly, and calls ``notify`` for each that reads back differently from the last time, or
is read for the first time. Never: repairs anything itself, or waits with one server for another that hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import structlog

from fairlead.errors import FairleadError, Retry
from fairlead.model.change import DONE, Outcome, OutcomeStatus, TargetChange
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.background import end, keep_running, watched
from fairlead.runtime.clock import Clock

_AFTER_BUG_S = 5.0

log = structlog.get_logger(__name__)


class ReadbackWatch:
    """Reads the load balancers of each server one after the other, every ``interval_s``.

    ``observe`` returns what is compared; ``keys`` returns the load balancers by server.
    """

    def __init__(
        self,
        *,
        observe: Callable[[LoadBalancerKey], Awaitable[object]],
        keys: Callable[[], Mapping[str, Sequence[LoadBalancerKey]]],
        clock: Clock,
        interval_s: float,
    ) -> None:
        self._observe = observe
        self._keys = keys
        self._clock = clock
        self._interval_s = interval_s
        self._last: dict[LoadBalancerKey, object] = {}
        self._notify: list[Callable[[LoadBalancerKey], None]] = []
        self._task: asyncio.Task[None] | None = None
        #: The servers that are being read.
        self._reading: dict[str, asyncio.Task[None]] = {}

    def subscribe(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` with each load balancer whose read-back differs."""
        self._notify.append(notify)

    def start(self) -> None:
        """Begin to read back."""
        if self._task is None:
            self._task = keep_running("read-back watch", self._run, clock=self._clock)

    async def close(self) -> None:
        """Stop reading back."""
        await end(self._task, *self._reading.values())
        self._task = None

    async def check(self) -> None:
        """Read back every load balancer once, except those of servers that are being read back already."""
        await asyncio.gather(*self._begin())

    def _begin(self) -> list[asyncio.Task[None]]:
        by_server = self._keys()
        for gone in self._last.keys() - {key for keys in by_server.values() for key in keys}:
            del self._last[gone]
        begun = {
            server: watched("read-back watch of a server", self._read(server, keys), server=server)
            for server, keys in by_server.items()
            if server not in self._reading
        }
        self._reading |= begun
        return list(begun.values())

    async def _read(self, server: str, keys: Sequence[LoadBalancerKey]) -> None:
        try:
            for key in keys:
                await self._look(key)
        except Exception as error:
            # A bug with one load balancer must not end the watch silently, or affect other servers.
            log.exception("the watch on a load balancer failed", server=server, error=str(error))
            await self._clock.sleep(_AFTER_BUG_S)
        finally:
            del self._reading[server]

    async def _look(self, key: LoadBalancerKey) -> None:
        try:
            now: object = await self._observe(key)
        except FairleadError as error:
            now = error.sentence
        # The first look counts too: it may have changed since the load balancer was read back elsewhere.
        changed = key not in self._last or self._last[key] != now
        self._last[key] = now
        if changed:
            log.debug("load balancer reads back differently", load_balancer=str(key))
            for notify in self._notify:
                notify(key)

    async def _run(self) -> None:
        while True:
            self._begin()
            await self._clock.sleep(self._interval_s)


State = TypeVar("State")

_MAX_RELEASED = 4096


class LoadBalancerStates(Mapping[LoadBalancerKey, State]):
    """The states by load balancer; also the last 4096 keys that were released, oldest first."""

    def __init__(self) -> None:
        self._states: dict[LoadBalancerKey, State] = {}
        self._released: dict[LoadBalancerKey, None] = {}

    def __getitem__(self, key: LoadBalancerKey) -> State:
        return self._states[key]

    def __iter__(self) -> Iterator[LoadBalancerKey]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def put(self, key: LoadBalancerKey, state: State) -> None:
        """Store the state of ``key``, which so is no longer a released one."""
        self._states[key] = state
        self._released.pop(key, None)

    def release(self, key: LoadBalancerKey) -> None:
        """Drop the state of ``key``, and remember that nothing of ours is left on it."""
        self._states.pop(key, None)
        self._released[key] = None
        while len(self._released) > _MAX_RELEASED:
            del self._released[next(iter(self._released))]

    def outcome_without(self, change: TargetChange, missing: str) -> Outcome:
        """Return the outcome of a change whose load balancer cannot be called yet; ``missing`` says what it lacks.

        A removal is ``DONE`` only where the load balancer was released by this process: what another process may have
        registered must not be called removed.
        """
        if change.is_removal and change.load_balancer in self._released and change.load_balancer not in self._states:
            return DONE
        return Outcome(OutcomeStatus.RETRY, f"{change.key}: {change.load_balancer} {missing}; the hub retries")


def outcome_from_error(error: Retry) -> Outcome:
    """Return the outcome of a change whose own call failed, with the delay that the other side asked for."""
    return Outcome(OutcomeStatus.RETRY, error.sentence, error.after_s or 0.0)
