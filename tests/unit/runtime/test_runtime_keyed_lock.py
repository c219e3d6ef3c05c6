"""One task at a time for each key."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.runtime.queue import KeyedLock


async def test_one_key_is_held_once_and_in_the_order_of_asking() -> None:
    locks, order = KeyedLock(), list[str]()
    inside = asyncio.Event()
    leave = asyncio.Event()

    async def first() -> None:
        async with locks.hold("key"):
            inside.set()
            await leave.wait()
            order.append("first")

    async def later(name: str) -> None:
        async with locks.hold("key"):
            order.append(name)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(first())
        await inside.wait()
        for name in ("second", "third"):
            tasks.create_task(later(name))
        async with locks.hold("other"):
            order.append("other key")
        leave.set()
    assert order == ["other key", "first", "second", "third"]


async def test_keys_that_are_not_held_take_no_memory() -> None:
    locks = KeyedLock()

    async def fail() -> None:
        async with locks.hold("key"):
            assert len(locks) == 1
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        await fail()
    assert len(locks) == 0


async def test_a_task_that_is_cancelled_while_it_waits_leaves_nothing() -> None:
    locks = KeyedLock()

    async def wait() -> None:
        async with locks.hold("key"):
            raise AssertionError("it is held by another task")

    async with locks.hold("key"):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
    assert len(locks) == 0
