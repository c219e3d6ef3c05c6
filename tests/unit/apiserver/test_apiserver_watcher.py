"""One watch: its queue and its reader."""

import asyncio

from apiserver_objects import event

from fairlead.apiserver.http.watcher import MAX_EVENTS, Watcher
from fairlead.apiserver.selectors import Selection


async def test_a_slow_watcher_is_cut_off() -> None:
    cut: list[str] = []
    watcher = Watcher(Selection(), lambda: cut.append("off"))
    for rv in range(1, MAX_EVENTS + 2):
        watcher.offer(event(rv))
    assert (cut, watcher.closed, watcher.pending) == (["off"], True, 0)
    watcher.offer(event(9))
    assert await watcher.next(1) == []


async def test_a_watcher_wakes_its_reader() -> None:
    watcher = Watcher(Selection(namespace="ns"), lambda: None)
    assert await watcher.next(0) == []
    waiting = asyncio.create_task(watcher.next(10))
    await asyncio.sleep(0)
    watcher.offer(event(1))
    assert [(type_, e.rv) for type_, e in await waiting] == [("ADDED", 1)]
