"""Has HAProxy been reloaded, or have our servers been changed by hand?

In: the load balancers on each socket. Out: a call of ``notify`` for each whose read-back differs from the last one. A
reload shows as another process; all that was added at run time is gone then, and only the ledger knows what it was.
Never: repairs anything itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from fairlead.errors import FairleadError
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.runtime.clock import Clock

_AFTER_BUG_S = 5.0

log = structlog.get_logger(__name__)


class ReadbackWatch:
    """Reads back every load balancer in turn, every ``interval_s``."""

    def __init__(
        self,
        *,
        observe: Callable[[LoadBalancerKey], Awaitable[Observed | None]],
        keys: Callable[[], list[LoadBalancerKey]],
        clock: Clock,
        interval_s: float,
    ) -> None:
        self._observe = observe
        self._keys = keys
        self._clock = clock
        self._interval_s = interval_s
        self._last: dict[LoadBalancerKey, Observed | str | None] = {}
        self._notify: list[Callable[[LoadBalancerKey], None]] = []
        self._task: asyncio.Task[None] | None = None
        #: Counts how often it was closed.
        self._generation = 0

    def subscribe(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` with each load balancer whose read-back differs."""
        self._notify.append(notify)

    def start(self) -> None:
        """Begin to read back."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="haproxy watch")
            self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Stop reading back."""
        self._generation += 1
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def check(self) -> None:
        """Read back every load balancer once."""
        keys = self._keys()
        for gone in self._last.keys() - set(keys):
            del self._last[gone]
        for key in keys:
            try:
                now: Observed | str | None = await self._observe(key)
            except FairleadError as error:
                now = error.sentence
            changed = key in self._last and self._last[key] != now
            self._last[key] = now
            if changed:
                log.debug("load balancer reads back differently", load_balancer=str(key))
                for notify in self._notify:
                    notify(key)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Log a bug, which must not end the watch in silence, and start again a little later."""
        if task.cancelled() or task is not self._task:
            return
        log.error("the watch on HAProxy failed", exc_info=task.exception())
        self._task = None
        task.get_loop().call_later(_AFTER_BUG_S, self._restart, self._generation)

    def _restart(self, generation: int) -> None:
        if generation == self._generation:
            self.start()

    async def _run(self) -> None:
        while True:
            await self.check()
            await self._clock.sleep(self._interval_s)
