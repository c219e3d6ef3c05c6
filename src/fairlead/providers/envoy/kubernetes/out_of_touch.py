"""Disconnect proxies from a hub replica that has lost its API server.

A proxy keeps the stream that it has, whatever its Service does: one at a replica that is cut off from the API would not
hear of a change for as long as that lasts. So such a replica ends its connections; each proxy comes back by the
Service, which leads to a replica that is ready. When none is, it comes back here, and is left alone for longer each
time: without an API, this hub is as good as any.

In: since when the API has not answered, the time. Out: calls of ``disconnect``. Never: refuses a proxy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from fairlead.errors import BadConfiguration
from fairlead.runtime.clock import Clock

#: A hub asks for its lease every two seconds: after so long another one may lead.
SILENT_S = 20.0
_LOOK_S, _LONGEST_S = 5.0, 600.0

log = structlog.get_logger(__name__)


class OutOfTouch:
    """``silent_s`` answers for how many seconds the API has not answered."""

    def __init__(
        self, *, silent_s: Callable[[], float], disconnect: Callable[[], Awaitable[None]], clock: Clock
    ) -> None:
        self._silent_s = silent_s
        self._disconnect = disconnect
        self._clock = clock

    async def _until_disconnected(self) -> None:
        while True:
            try:
                return await self._disconnect()
            except BadConfiguration as error:
                # Another process has the port for a moment: without it no proxy finds this hub at all.
                log.warning("listening for proxies is tried again", sentence=error.sentence, detail=error.detail)
                await self._clock.sleep(1.0)

    async def run(self) -> None:
        """Look until cancelled."""
        due_s, pause_s = 0.0, SILENT_S
        while True:
            await self._clock.sleep(_LOOK_S)
            silent_s = self._silent_s()
            if silent_s < SILENT_S:
                due_s, pause_s = 0.0, SILENT_S
            elif self._clock.monotonic() >= due_s:
                log.warning("the API does not answer; proxies may find another hub", silent_s=round(silent_s))
                await self._until_disconnected()
                due_s, pause_s = self._clock.monotonic() + pause_s, min(2 * pause_s, _LONGEST_S)
