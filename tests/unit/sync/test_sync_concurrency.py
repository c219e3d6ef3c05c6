"""Places of operations, by failure domain: who may begin, who waits, and that none is ever lost."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.sync.execute import Concurrency


@pytest.mark.req("A-46")
async def test_each_failure_domain_has_its_own_places():
    slots = Concurrency(parallel=2)
    first, _ = slots.take("a"), slots.take("a")
    assert (slots.free("a"), slots.free("b")) == (False, True)
    first.give()
    assert slots.free("a")


async def test_giving_twice_is_giving_once():
    freed = []
    slots = Concurrency(parallel=1, freed=lambda: freed.append(1))
    slot = slots.take("a")
    slot.give()
    slot.give()
    assert (slots.taken("a"), freed) == (0, [1])


async def test_taking_what_is_held_is_nothing():
    slots = Concurrency(parallel=1)
    slot = slots.take("a")
    await slot.take()
    assert slots.taken("a") == 1


async def test_who_waits_comes_before_what_is_new_and_in_order():
    freed, order = [], []
    slots = Concurrency(parallel=1, freed=lambda: freed.append(1))
    holder = slots.take("a")

    async def wait(name):
        slot = slots.reserve("a")
        await slot.take()
        order.append(name)
        await asyncio.sleep(0)
        slot.give()

    waiting = [asyncio.create_task(wait(name)) for name in "xyz"]
    await asyncio.sleep(0)
    holder.give()
    assert not slots.free("a"), "the place goes to who waits"
    await asyncio.gather(*waiting)
    assert (order, freed, slots.taken("a")) == (["x", "y", "z"], [1], 0)


@pytest.mark.parametrize("moment", ["waiting", "slot"])
async def test_who_is_cancelled_takes_no_place_along(moment):
    slots = Concurrency(parallel=1)
    holder = slots.take("a")
    waiter = asyncio.create_task(slots.acquire("a"))
    await asyncio.sleep(0)
    if moment == "slot":
        holder.give()
        waiter.cancel()
    else:
        waiter.cancel()
        await asyncio.wait((waiter,))
        holder.give()
    await asyncio.wait((waiter,))
    assert waiter.cancelled()
    assert slots.free("a")


async def test_who_waits_at_one_failure_domain_is_not_let_in_by_another():
    freed = []
    slots = Concurrency(parallel=1, freed=lambda: freed.append(1))
    ours, theirs = slots.take("a"), slots.take("b")
    waiter = asyncio.create_task(slots.acquire("a"))
    await asyncio.sleep(0)
    theirs.give()
    await asyncio.sleep(0)
    assert (waiter.done(), slots.taken("a"), slots.taken("b"), freed) == (False, 1, 0, [1])
    ours.give()
    await waiter
    assert (slots.taken("a"), freed) == (1, [1]), "the place went over, it was never free"


async def test_a_place_that_is_free_is_taken_without_waiting():
    slots = Concurrency(parallel=2)
    await slots.acquire("a")
    await slots.acquire("a")
    assert (slots.taken("a"), slots.free("a"), slots.free("b")) == (2, False, True)
    slots.release("a")
    slots.release("a")
    assert (slots.taken("a"), slots.free("a")) == (0, True)


async def test_a_place_that_was_reserved_counts_only_once_it_is_taken():
    slots = Concurrency(parallel=1)
    slot = slots.reserve("a")
    slot.give()
    assert slots.taken("a") == 0
    await slot.take()
    assert (slots.taken("a"), slot.failure_domain) == (1, "a")
