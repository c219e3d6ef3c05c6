"""The board: everything once, then what differs; nothing is computed or kept without a viewer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

import msgspec
import pytest
from structlog.testing import capture_logs

from fairlead.page.board import KEPT_S, Board, Change, TableSource, Viewer, VisibleItem
from fairlead.runtime.clock import SystemClock, VirtualClock


class Item(msgspec.Struct, frozen=True):
    id: str
    value: int


class Numbers(TableSource):
    """A table of numbers, which counts how often it is asked."""

    table = "n"

    def __init__(self, every_s: float = 0.0) -> None:
        self.every_s = every_s
        self.values: dict[str, int] = {"a": 1, "b": 2}
        self.asked = 0
        self.changed: Callable[[Hashable], None] = lambda _key: None

    def watch(self, changed):
        self.changed = changed

    def all_keys(self):
        return list(self.values)

    def visible_item(self, key):
        self.asked += 1
        value = self.values.get(str(key))
        return None if value is None else VisibleItem(Item(str(key), value), "things", "ns")

    def put(self, key, value):
        self.values[key] = value
        self.changed(key)


def rows(changes):
    return {change.id: None if change.gone else change.visible_item.item.value for change in changes}


@pytest.mark.req("OP-10")
async def test_everything_once_then_the_last_of_each_change():
    numbers = Numbers()
    board = Board([numbers], clock=SystemClock())
    viewer, first = await board.join()
    assert rows(first) == {"a": 1, "b": 2}
    for value in range(10, 20):
        numbers.put("a", value)
    del numbers.values["b"]
    numbers.changed("b")
    seen: dict[str, int | None] = {}
    while seen != {"a": 19, "b": None}:
        changes = await viewer.changes(30.0)
        assert changes
        seen |= rows(changes)
    board.leave(viewer)


async def test_nothing_is_computed_without_a_viewer_and_nothing_is_missed():
    numbers = Numbers()
    board = Board([numbers], clock=SystemClock())
    numbers.put("a", 5)
    assert numbers.asked == 0
    viewer, _ = await board.join()
    board.leave(viewer)
    asked = numbers.asked
    numbers.put("a", 6)
    numbers.put("c", 7)
    await asyncio.sleep(0)
    assert numbers.asked == asked
    viewer, first = await board.join()
    assert rows(first) == {"a": 6, "b": 2, "c": 7}
    board.leave(viewer)


async def test_what_changes_without_a_word_is_looked_at():
    numbers = Numbers(every_s=0.01)
    board = Board([numbers], clock=SystemClock())
    viewer, _ = await board.join()
    numbers.values["a"] = 42
    assert rows(await viewer.changes(30.0)) == {"a": 42}
    board.leave(viewer)


async def test_an_item_that_stays_the_same_is_not_sent():
    numbers = Numbers()
    board = Board([numbers], clock=SystemClock())
    viewer, _ = await board.join()
    numbers.put("a", 1)
    numbers.put("b", 3)
    assert rows(await viewer.changes(30.0)) == {"b": 3}
    board.close()
    assert viewer.closed
    board.leave(viewer)


async def test_an_item_that_cannot_be_computed_does_not_end_the_page_for_the_others():
    class Faulty(Numbers):
        def visible_item(self, key):
            if self.values.get(key) == -1:
                raise ValueError("a bug about one item")
            return super().visible_item(key)

    numbers = Faulty()
    board = Board([numbers], clock=SystemClock())
    viewer, _ = await board.join()
    with capture_logs() as logs:
        numbers.put("a", -1)
        numbers.put("b", 3)
        assert rows(await viewer.changes(60)) == {"b": 3}
    board.leave(viewer)
    assert [(entry["table"], entry["key"]) for entry in logs] == [("n", "a")]
    _, first = await board.join()
    assert rows(first) == {"a": 1, "b": 3}


@pytest.mark.req("OP-10")
async def test_a_while_after_the_last_viewer_nothing_is_remembered():
    clock, numbers, forgotten = VirtualClock(), Numbers(every_s=1.0), []
    numbers.forget = lambda: forgotten.append(True)
    board = Board([numbers], clock=clock)
    first, _ = await board.join()
    board.leave(first)
    await clock.advance(KEPT_S / 2)
    asked = numbers.asked
    again, _ = await board.join()  # as after a reload of the page
    assert numbers.asked <= asked + len(numbers.values)
    board.leave(again)
    await clock.advance(KEPT_S + 1)
    assert forgotten == [True]
    for number in range(100):
        numbers.put(f"event {number}", number)
        del numbers.values[f"event {number}"]
    assert not board.remembered()
    _, items = await board.join()
    assert rows(items) == {"a": 1, "b": 2}


async def test_polled_items_that_are_gone_are_found_by_what_is_shown():
    numbers = Numbers(every_s=0.01)
    board = Board([numbers], clock=SystemClock())
    viewer, _ = await board.join()
    del numbers.values["a"]
    assert rows(await viewer.changes(30.0)) == {"a": None}
    board.leave(viewer)


async def test_what_a_slow_viewer_waits_for_is_bounded_by_the_items():
    viewer, shown = Viewer(), VisibleItem(Item("1", 1), "things")
    viewer.put(Change("n", "1", shown, new=True))
    viewer.put(Change("n", "1", shown))
    viewer.put(Change("n", "1", shown, gone=True))
    assert not await viewer.changes(0.0)  # came and went
    viewer.put(Change("n", "1", shown, gone=True))
    viewer.put(Change("n", "1", shown, new=True))
    viewer.put(Change("n", "1", shown, gone=True))
    assert [change.gone for change in await viewer.changes(30.0)] == [True]  # the viewer has an earlier one
