"""Has HAProxy been reloaded, or has somebody changed our servers?

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


class Watch:
    """Looks at every load balancer in turn, every ``interval_s``."""

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
        """Add somebody to be told."""
        self._notify.append(notify)

    def start(self) -> None:
        """Begin to look."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="haproxy watch")
            self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Stop looking."""
        self._generation += 1
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def look(self) -> None:
        """Look once."""
        keys = self._keys()
        for gone in self._last.keys() - set(keys):
            del self._last[gone]
        for key in keys:
            try:
                seen: Observed | str | None = await self._observe(key)
            except FairleadError as error:
                seen = error.sentence
            if key in self._last and self._last[key] == seen:
                continue
            known = key in self._last
            self._last[key] = seen
            if known:
                log.debug("load balancer reads back differently", load_balancer=str(key))
                for notify in self._notify:
                    notify(key)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A bug must not end the watch in silence: it is told, and the watch goes on a little later."""
        if task.cancelled() or task is not self._task:
            return
        log.error("the watch on HAProxy failed", exc_info=task.exception())
        self._task = None
        task.get_loop().call_later(_AFTER_BUG_S, self._again, self._generation)

    def _again(self, generation: int) -> None:
        if generation == self._generation:
            self.start()

    async def _run(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(self._interval_s)
