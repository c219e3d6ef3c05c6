"""One watch: its queue and its reader."""

import asyncio

import pytest
from podless_objects import event

from podless.http import watcher as watcher_module
from podless.http.watcher import MAX_EVENTS, Queued, Watcher
from podless.selectors import Selection


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


@pytest.mark.req("S-4")
async def test_what_waits_for_all_watches_of_a_user_is_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(event(1).entry.raw)
    monkeypatch.setattr(watcher_module, "MAX_USER_BYTES", 10 * size)
    cut: list[str] = []
    blue = Queued()
    first, second = (Watcher(Selection(), lambda name=name: cut.append(name), blue) for name in ("first", "second"))
    green = Watcher(Selection(), lambda: cut.append("green"), Queued())
    for rv in range(1, 6):
        for each in (first, second, green):
            each.offer(event(rv))
    assert (cut, blue.size) == ([], 10 * size)
    second.offer(event(6))
    green.offer(event(6))
    assert (cut, blue.size, second.closed) == (["second"], 5 * size, True)
    assert len(await first.next(1)) == 5
    assert blue.size == 0


async def test_only_so_much_is_taken_out_of_a_queue_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "_AT_ONCE_BYTES", 2 * len(event(1).entry.raw))
    watcher = Watcher(Selection(), lambda: None)
    for rv in range(1, 6):
        watcher.offer(event(rv))
    taken = [[each.rv for _, each in await watcher.next(1)] for _ in range(3)]
    assert taken == [[1, 2], [3, 4], [5]]
