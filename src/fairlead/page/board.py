"""The content of the page, kept current at a cost that follows changes, never the size of the fleet.

    caches ──key──► dirty ──at most ten times a second──► item ──differs?──► each viewer's own changes, the last of each

In: sources: what there is, which key has changed, the item of a key. Out: for each viewer everything once, then what
differs. Without a viewer nothing is computed, and after a minute nothing is kept. Never: waits for a slow viewer. A
slow viewer gets the last state of each item when it reads again, and nothing of an item that came and went meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog

from fairlead.runtime.background import keep_running
from fairlead.runtime.clock import Clock

#: Changes that come together are one message.
GATHER_S = 0.1
#: After so many items others may run: the hub has more to do than to show itself.
_BATCH = 100
#: The items are kept for so long after the last viewer has left, for one who reloads the page.
KEPT_S = 60.0

log = structlog.get_logger(__name__)


class VisibleItem(NamedTuple):
    """One item, and the resource (in a namespace, empty for all) that a viewer needs the right to list."""

    item: msgspec.Struct
    resource: str
    namespace: str = ""


class TableSource:
    """One table of the page: its name, and the interval in seconds at which it is polled, 0: never."""

    table = ""
    every_s = 0.0

    def watch(self, changed: Callable[[Hashable], None]) -> None:
        """Call ``changed`` with each key whose item may differ; a table that is only polled calls nothing."""

    def all_keys(self) -> Iterable[Hashable]:
        """Return the keys of all items."""
        raise NotImplementedError

    def polled_keys(self) -> Iterable[Hashable]:
        """Return the keys that a poll looks at, besides those that are shown."""
        return self.all_keys()

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of ``key``; None when there is none."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop what is remembered for viewers: the last one has left."""


Place = tuple[str, Hashable]


class Change(NamedTuple):
    """A change for viewers: a ``table``, an ``id`` in it, the item as it was last, and whether it is ``gone``.

    ``new``: no viewer has been sent the item before.
    """

    table: str
    id: str
    visible_item: VisibleItem
    gone: bool = False
    new: bool = False


class Viewer:
    """One open page: what it has not been sent yet."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, str], Change] = {}
        self._event = asyncio.Event()
        self.closed = False

    def put(self, change: Change) -> None:
        """Queue ``change``, in place of an earlier one of the same item."""
        place = change.table, change.id
        earlier = self._pending.pop(place, None)
        if earlier is not None:
            if change.gone and earlier.new:
                return
            change = change._replace(new=earlier.new)
        self._pending[place] = change
        self._event.set()

    def clear(self) -> None:
        """Drop the queued changes: the viewer gets everything."""
        self._pending.clear()
        self._event.clear()

    def close(self) -> None:
        """Close the stream, as the hub stops."""
        self.closed = True
        self._event.set()

    async def changes(self, timeout_s: float) -> Sequence[Change]:
        """Wait for queued changes and return them; empty after ``timeout_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        self._event.clear()
        pending, self._pending = self._pending, {}
        return list(pending.values())


class Board:
    """The tables of the page and their viewers."""

    def __init__(self, sources: Sequence[TableSource], *, clock: Clock) -> None:
        self._sources: Mapping[str, TableSource] = {source.table: source for source in sources}
        self._clock = clock
        self._shown: defaultdict[str, dict[Hashable, VisibleItem]] = defaultdict(dict)
        self._dirty: dict[Place, None] = {}
        self._wake = asyncio.Event()
        self._viewers: set[Viewer] = set()
        self._pump: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._begun = False
        self._due_s: dict[str, float] = {}
        for source in sources:
            source.watch(lambda key, table=source.table: self._mark(table, key))

    async def join(self) -> tuple[Viewer, list[Change]]:
        """Add a viewer; return it with all items as changes."""
        viewer = Viewer()
        if not self._viewers and self._pump is not None:
            self._pump.cancel()
            self._pump = None
        if not self._begun:
            self._begun = True
            self._dirty = {(table, key): None for table, source in self._sources.items() for key in source.all_keys()}
        self._viewers.add(viewer)
        try:
            self._mark_due()
            await self._refresh()
        except BaseException:
            self.leave(viewer)
            raise
        if self._pump is None or self._pump.done():
            self._pump = keep_running("page", self._run, clock=self._clock)
        viewer.clear()
        return viewer, [
            Change(table, _id(visible_item), visible_item)
            for table, items in self._shown.items()
            for visible_item in items.values()
        ]

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer; without viewers nothing is computed."""
        self._viewers.discard(viewer)
        if not self._viewers:
            if self._pump is not None:
                self._pump.cancel()
            self._pump = keep_running("page", self._forget, clock=self._clock)

    async def _forget(self) -> None:
        """Drop everything that is remembered, after a while without a viewer."""
        await self._clock.sleep(KEPT_S)
        self._begun = False
        self._dirty.clear()
        self._shown.clear()
        self._due_s.clear()
        for source in self._sources.values():
            source.forget()

    def remembered(self) -> int:
        """Return how many items and keys are kept."""
        return len(self._dirty) + sum(map(len, self._shown.values()))

    def close(self) -> None:
        """End all viewers."""
        for viewer in list(self._viewers):
            viewer.close()

    def _mark(self, table: str, key: Hashable) -> None:
        if self._begun:
            self._dirty[table, key] = None
            self._wake.set()

    def _mark_due(self) -> float:
        """Mark the items of polled tables as dirty; return the seconds until the next poll."""
        now_s = self._clock.monotonic()
        for table, source in self._sources.items():
            if source.every_s and now_s >= self._due_s.get(table, now_s):
                self._due_s[table] = now_s + source.every_s
                for key in {**dict.fromkeys(source.polled_keys()), **self._shown[table]}:
                    self._mark(table, key)
        return min((due_s - now_s for due_s in self._due_s.values()), default=60.0)

    async def _run(self) -> None:
        while True:
            wait_s = self._mark_due()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(GATHER_S, wait_s)):
                    await self._wake.wait()
            await asyncio.sleep(GATHER_S)
            await self._refresh()

    async def _refresh(self) -> None:
        """Compute dirty items, and queue those that differ for each viewer."""
        async with self._lock:
            self._wake.clear()
            number = 0
            while self._dirty:
                # One by one, so that nothing is lost when this is cancelled.
                table, key = next(iter(self._dirty))
                del self._dirty[table, key]
                try:
                    self._compute(table, key)
                except Exception:
                    log.exception("an item of the page cannot be shown", table=table, key=str(key))
                number += 1
                if number % _BATCH == 0:
                    await asyncio.sleep(0)

    def _compute(self, table: str, key: Hashable) -> None:
        items = self._shown[table]
        before = items.get(key)
        visible_item = self._sources[table].visible_item(key)
        if visible_item == before:
            return
        if visible_item is not None:
            items[key] = visible_item
            self._send(Change(table, _id(visible_item), visible_item, new=before is None))
        elif before is not None:
            del items[key]
            self._send(Change(table, _id(before), before, gone=True))

    def _send(self, change: Change) -> None:
        for viewer in self._viewers:
            viewer.put(change)


def _id(visible_item: VisibleItem) -> str:
    return str(getattr(visible_item.item, "id", ""))
