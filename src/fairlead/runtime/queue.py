"""A queue of keys that never hands one key to two workers, and a limiter of rates.

    add ──────────► ready ──get──► processing ──done──► (gone, or back to ready when added meanwhile)
    add_after, retry ─► delayed ──(time comes)──► add
    add soon after done ─► gathering ──(time comes)──► ready

In: keys. Out: keys, each at most once at a time, however often it was added; those of different members in turn.
A queue that gathers hands out the first change at once, and those that follow soon as one. The more its runs compute,
the later the next one begins: a key that is changed all the time gets a share of the processor, and its changes wait
for each other.
Never: holds values or events; what to do about a key is read from the caches when its turn comes.
The semantics are those of client-go's workqueue: https://pkg.go.dev/k8s.io/client-go/util/workqueue
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, NamedTuple, TypeVar

from fairlead.model.desired import FairOrder
from fairlead.runtime.clock import Clock, SystemClock

K = TypeVar("K", bound=Hashable)

BACKOFF_BASE_S = 0.1
BACKOFF_LIMIT_S = 60.0
#: The share of a processor that a key of a queue that gathers gets in the long run, the seconds that it may compute
#: before that counts, and how long it rests at most.
_SHARE = 0.1
_CREDIT_S = 0.05
_LONGEST_REST_S = 0.5
#: More than any limit needs; a float has no room for 1,024.
_MOST_DOUBLINGS = 64


class QueueClosed(Exception):
    """The queue was closed: there is no more work."""


def backoff_s(failures: int, *, base_s: float = BACKOFF_BASE_S, limit_s: float = BACKOFF_LIMIT_S) -> float:
    """Return how long to wait after the n-th failure in a row (from 1): doubling, with half of it jittered."""
    return doubled_s(failures, base_s=base_s, limit_s=limit_s) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load


def doubled_s(failures: int, *, base_s: float, limit_s: float) -> float:
    """Return ``base_s``, doubled with each failure after the first, at most ``limit_s``; failures may be any number."""
    return min(limit_s, base_s * 2.0 ** min(max(failures - 1, 0), _MOST_DOUBLINGS))


class _KeyRest(NamedTuple):
    """How long a key rests after its last run, and its computing time that is not yet compensated."""

    until_s: float
    computed_s: float
    since_s: float


class KeyedQueue(Generic[K]):
    """A queue of keys for any number of workers in one event loop; groups that ``group_of`` returns take turns.

    ``gather_s``: how long a key rests after each run at least, so that changes that come together are one run.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        group_of: Callable[[K], Hashable] = lambda _key: None,
        gather_s: float = 0.0,
    ) -> None:
        self._clock: Clock = clock or SystemClock()
        self._ready: FairOrder[K] = FairOrder(group_of)
        self._waiting: set[K] = set()  # what is in _ready or _gathering, or dirty while being processed
        self._processing: dict[K, float] = {}  # the seconds that its run has computed
        self._gather_s = gather_s
        self._rests: dict[K, _KeyRest] = {}  # those that are over are dropped later
        self._gathering: dict[K, float] = {}  # until when
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []  # stale entries stay until their time and are skipped then
        self._order = itertools.count()
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._pump_until_s = 0.0
        self._closed = False

    def __len__(self) -> int:
        """Return the number of keys that could be handed out now."""
        return len(self._ready)

    @property
    def processing(self) -> int:
        """Return the number of keys in progress."""
        return len(self._processing)

    def is_pending(self, key: K) -> bool:
        """Return whether a run of this key is due or under way, or is to be repeated since the last one failed."""
        return key in self._waiting or key in self._processing or key in self._failures

    def add(self, key: K) -> None:
        """Ask for one more run of this key, as soon as possible. Many calls before it starts are one run."""
        if self._closed or key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._processing:
            self._offer(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Ask for a run after ``delay_s``; of several calls for one key, the earliest time counts."""
        if delay_s <= 0:
            self.add(key)
            return
        if self._closed:
            return
        due_s = self._clock.monotonic() + delay_s
        standing_s = self._due.get(key)
        if standing_s is not None and standing_s <= due_s:
            return
        self._due[key] = due_s
        self._push(due_s, key)

    def retry(self, key: K, *, after_s: float | None = None, limit_s: float = BACKOFF_LIMIT_S) -> None:
        """Ask for a run after this key's own backoff of at most ``limit_s``, and not before ``after_s``."""
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        self.add_after(key, max(backoff_s(failures, limit_s=limit_s), after_s or 0.0))

    def retry_now(self) -> None:
        """Run every key that waits after a failure as soon as possible: the cause may be gone."""
        for key in [key for key in self._due if key in self._failures]:
            del self._due[key]
            self.add(key)

    def failures(self, key: K) -> int:
        """Return the number of retries of this key since it was last forgotten."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Let the key's next backoff start from the beginning; what is scheduled stays scheduled."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Return the next key, which is the caller's alone until it calls ``done``.

        Raises:
            QueueClosed: there is no more work.
        """
        while True:
            if self._closed:
                raise QueueClosed
            self._promote()
            if self._ready:
                key = self._ready.pop()
                self._waiting.discard(key)
                self._processing[key] = 0.0
                return key
            await self._wait()

    def done(self, key: K) -> None:
        """Give the key back; if it was added meanwhile it is ready again."""
        computed_s = self._processing.pop(key, 0.0)
        if self._gather_s:
            self._rest(key, computed_s)
        if key in self._waiting and not self._closed:
            self._offer(key)

    def charge(self, key: K, computed_s: float) -> None:
        """Note that the run of ``key`` has computed for so long, or what the last run has caused."""
        if key in self._processing:
            self._processing[key] += computed_s
        elif (rest := self._rests.get(key)) is not None:
            self._rests[key] = rest._replace(computed_s=rest.computed_s + computed_s)

    def close(self) -> None:
        """Stop handing out keys; every caller that waits in ``get`` gets QueueClosed."""
        self._closed = True
        if self._pump:
            self._pump.cancel()
            self._pump = None
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)

    def _rest(self, key: K, computed_s: float) -> None:
        """Let a key rest after a run that has computed for so long."""
        now_s = self._clock.monotonic()
        if (before := self._rests.pop(key, None)) is not None:
            computed_s += max(0.0, before.computed_s - _SHARE * (now_s - before.since_s))
        rest_s = max(self._gather_s, min((computed_s - _CREDIT_S) / _SHARE, _LONGEST_REST_S))
        self._rests[key] = _KeyRest(now_s + rest_s, computed_s, now_s)
        while (oldest := next(iter(self._rests))) != key and self._is_over(self._rests[oldest], now_s):
            del self._rests[oldest]

    def _is_over(self, rest: _KeyRest, now_s: float) -> bool:
        return now_s >= max(rest.until_s, rest.since_s + rest.computed_s / _SHARE)

    def _offer(self, key: K) -> None:
        """Hand a key out as soon as it has rested."""
        rest = self._rests.get(key)
        if rest is not None and rest.until_s > self._clock.monotonic():
            self._gathering[key] = rest.until_s
            self._push(rest.until_s, key)
            return
        self._ready.add(key)
        self._wake_one()

    def _push(self, due_s: float, key: K) -> None:
        heapq.heappush(self._heap, (due_s, next(self._order), key))
        if self._getters:
            self._start_pump()

    async def _wait(self) -> None:
        getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        self._start_pump()
        try:
            await getter
        except asyncio.CancelledError:
            # The wake-up was meant for this worker; another one must take the key.
            if getter.done() and not getter.cancelled() and self._ready:
                self._wake_one()
            raise
        finally:
            if getter in self._getters:
                self._getters.remove(getter)
            if not self._getters and self._pump:
                # No worker waits, so none needs waking: get() itself checks what has come due.
                self._pump.cancel()
                self._pump = None

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _promote(self) -> None:
        now_s = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now_s:
            due_s, _, key = heapq.heappop(self._heap)
            if self._gathering.get(key) == due_s:
                del self._gathering[key]
                self._ready.add(key)
                self._wake_one()
            if self._due.get(key) == due_s:
                del self._due[key]
                self.add(key)

    def _start_pump(self) -> None:
        if not self._heap:
            return
        due_s = self._heap[0][0]
        if self._pump and not self._pump.done():
            if self._pump_until_s <= due_s:
                return
            self._pump.cancel()
        self._pump_until_s = due_s
        self._pump = asyncio.create_task(self._run_pump(), name="queue-timer")

    async def _run_pump(self) -> None:
        while self._heap:
            self._pump_until_s = self._heap[0][0]
            await self._clock.sleep(self._pump_until_s - self._clock.monotonic())
            self._promote()


class TokenBucket:
    """At most ``burst`` at once and ``qps`` per second in the long run; ``qps`` of 0 means no limit."""

    def __init__(self, qps: float, burst: int, clock: Clock | None = None) -> None:
        self._qps = qps
        self._burst = float(max(1, burst))
        self._clock: Clock = clock or SystemClock()
        self._tokens = self._burst
        self._at_s = self._clock.monotonic()

    async def acquire(self) -> None:
        """Wait for one token."""
        if self._qps <= 0:
            return
        now_s = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._qps)
        self._at_s = now_s
        self._tokens -= 1.0
        if self._tokens >= 0.0:
            return
        # A negative balance is a reservation: a later caller goes deeper, and so waits longer.
        try:
            await self._clock.sleep(-self._tokens / self._qps)
        except BaseException:
            self._tokens += 1.0
            raise


class KeyedLock:
    """One lock for each key."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncGenerator[None]:
        """Hold the lock of ``key``, once every earlier holder has released it."""
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)
