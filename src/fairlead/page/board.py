"""The content of the page, kept current at a cost that follows changes, never the size of the fleet.

    caches ──key──► dirty ──at most ten times a second──► item ──differs?──► each viewer's own changes, the last of each

In: sources: what there is, which key has changed, the item of a key. Out: for each viewer everything once, then what
differs. Without a viewer only the keys of what has changed are kept. Never: waits for a slow viewer; that one gets the
last state of each item once it reads again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from fairlead.runtime.background import keep_running
from fairlead.runtime.clock import Clock

#: Changes that come together are one message.
GATHER_S = 0.1
#: After so many items others may run: the hub has more to do than to show itself.
_BATCH = 100


class VisibleItem(NamedTuple):
    """One item, and the resource (in a namespace, empty for all) that a viewer needs the right to list."""

    item: msgspec.Struct
    resource: str
    namespace: str = ""


class TableSource(Protocol):
    """One table of the page."""

    @property
    def table(self) -> str:
        """Return its name."""
        ...

    @property
    def every_s(self) -> float:
        """Return the interval in seconds at which all items are polled; 0: never."""
        ...

    def watch(self, changed: Callable[[Hashable], None]) -> None:
        """Call ``changed`` with each key whose item may differ."""
        ...

    def all_keys(self) -> Iterable[Hashable]:
        """Return the keys of all items."""
        ...

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return the item of ``key``; None when there is none."""
        ...


Place = tuple[str, Hashable]


class Change(NamedTuple):
    """A change for viewers: a ``table``, an ``id`` in it, the item as it was last, and whether it is ``gone``."""

    table: str
    id: str
    visible_item: VisibleItem
    gone: bool = False


class Viewer:
    """One open page: what it has not been sent yet."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, str], Change] = {}
        self._event = asyncio.Event()
        self.closed = False

    def put(self, change: Change) -> None:
        """Queue ``change``, in place of an earlier one of the same item."""
        self._pending[change.table, change.id] = change
        self._event.set()

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
        self._shown: dict[Place, VisibleItem] = {}
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
        if not self._begun:
            self._begun = True
            for table, source in self._sources.items():
                self._dirty |= dict.fromkeys((table, key) for key in source.all_keys())
        self._mark_due()
        await self._refresh()
        viewer = Viewer()
        self._viewers.add(viewer)
        if self._pump is None or self._pump.done():
            self._pump = keep_running("page", self._run, clock=self._clock)
        return viewer, [
            Change(table, _id(visible_item), visible_item) for (table, _), visible_item in self._shown.items()
        ]

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer; without viewers nothing is computed."""
        self._viewers.discard(viewer)
        if not self._viewers and self._pump is not None:
            self._pump.cancel()
            self._pump = None

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
                for key in source.all_keys():
                    self._mark(table, key)
        return min((due_s - now_s for due_s in self._due_s.values()), default=60.0)

    async def _run(self) -> None:
        if self._dirty:
            self._wake.set()  # a failure before this start has left some
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
                self._compute(table, key)
                number += 1
                if number % _BATCH == 0:
                    await asyncio.sleep(0)

    def _compute(self, table: str, key: Hashable) -> None:
        known = self._shown.get((table, key))
        visible_item = self._sources[table].visible_item(key)
        if visible_item == known:
            return
        if visible_item is not None:
            self._shown[table, key] = visible_item
            self._send(Change(table, _id(visible_item), visible_item))
        elif known is not None:
            del self._shown[table, key]
            self._send(Change(table, _id(known), known, gone=True))

    def _send(self, change: Change) -> None:
        for viewer in self._viewers:
            viewer.put(change)


def _id(visible_item: VisibleItem) -> str:
    return str(getattr(visible_item.item, "id", ""))
