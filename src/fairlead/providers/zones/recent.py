"""Share DNS answers that are at most a second old between concurrent callers.

    check   concurrent checks of one zone make one query; all callers get its answer, or its failure
    kept    what an update has just been judged by counts once more, when the name is read back after it

In: settings and their servers. Out: answers that are at most a second old. Never: a check that was answered before it
was asked for, or a judgement used twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from fairlead.providers.zones.rrsets import EMPTY, RRKey, RRSet, RRSets
from fairlead.providers.zones.settings import ServerSettings
from fairlead.providers.zones.zone_server import ZoneServer
from fairlead.runtime.clock import Clock

#: For how long what an update was judged by counts, in seconds.
FRESH_S = 1.0


class Recent:
    """The answers of the last second, by zone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._checks: dict[ServerSettings, asyncio.Task[int]] = {}
        self._judged: dict[tuple[ServerSettings, RRKey], tuple[RRSet, float]] = {}

    async def check(self, settings: ServerSettings, server: ZoneServer) -> int:
        """Return the serial of the zone."""
        task = self._checks.get(settings)
        if task is None or task.done():
            task = asyncio.create_task(server.check(), name=f"check of {settings.zone}")
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # who asked may be gone
            self._checks[settings] = task
        return await asyncio.shield(task)

    def keep(self, settings: ServerSettings, now: RRSets) -> None:
        """Keep what has been read after an update."""
        now_s = self._clock.monotonic()
        self._judged = {at: each for at, each in self._judged.items() if now_s - each[1] < FRESH_S}
        self._judged |= {(settings, key): (rrset, now_s) for key, rrset in now.items()}

    async def kept(self, settings: ServerSettings, server: ZoneServer, keys: Collection[RRKey]) -> RRSets:
        """Return what there is of ``keys`` where they are written."""
        now_s = self._clock.monotonic()
        known = {key: self._judged.pop((settings, key), (EMPTY, -FRESH_S)) for key in keys}
        if known and all(now_s - read_s < FRESH_S for _, read_s in known.values()):
            return {key: rrset for key, (rrset, _) in known.items()}
        return await server.kept(keys)

    def close(self) -> None:
        """End the questions under way."""
        for task in self._checks.values():
            task.cancel()
