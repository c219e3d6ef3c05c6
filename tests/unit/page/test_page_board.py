"""The board: everything once, then what differs; nothing is computed without a viewer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

import msgspec
import pytest
from structlog.testing import capture_logs

from fairlead.page.board import Board, VisibleItem
from fairlead.runtime.clock import SystemClock


class Item(msgspec.Struct, frozen=True):
    id: str
    value: int


class Numbers:
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
        value = self.values.get(key)
        return None if value is None else VisibleItem(Item(key, value), "things", "ns")

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
    assert (logs[0]["event"], logs[0]["task"]) == ("task restarts", "page")
