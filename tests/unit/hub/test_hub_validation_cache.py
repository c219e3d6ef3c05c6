"""Validation by providers: each spec is asked once, again after a pause without an answer, and never twice at once."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.errors import BadConfiguration, FairleadError, Retry, Terminal
from fairlead.hub.validation import PAUSE_S, ValidationCache, ValidationVerdict
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import VirtualClock
from fairlead.runtime.loop import run_workers

KEY = LoadBalancerKey("LoadBalancer", "shop", "one")
OTHER = LoadBalancerKey("LoadBalancer", "shop", "other")
SUBJECT = ("LoadBalancer", KEY, None)


class World:
    def __init__(self):
        self.clock = VirtualClock()
        self.leads = True
        self.woken = []
        self.asked = []
        self.answers = []
        self.cache = ValidationCache(clock=self.clock, leading=lambda: self.leads, wake=self.woken.extend)

    def of(self, wording="a", *, subject=SUBJECT, concerns=KEY, again_s=None):
        async def ask():
            self.asked.append(wording)
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return self.cache.verdict(subject, wording, ask, concerns=concerns, again_s=again_s)


@pytest.fixture
async def world():
    world = World()
    task = asyncio.create_task(run_workers(world.cache.queue, world.cache.ask, workers=2, name="opinion"))
    yield world
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def settle(world, seconds=0.0):
    for _ in range(5):
        await asyncio.sleep(0)
    if seconds:
        await world.clock.advance(seconds)
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("answer", ["yes", Terminal("no"), BadConfiguration("no such folder")])
async def test_an_answer_is_for_good_and_wakes_who_waits(world, answer):
    world.answers = [answer]
    assert world.of() is None
    assert world.of(concerns=OTHER) is None
    await settle(world)
    error = answer if isinstance(answer, FairleadError) else None
    assert world.of() == ValidationVerdict(answer=None if error else answer, error=error)
    assert sorted(world.woken) == [KEY, OTHER]
    await settle(world, 3600)
    assert world.asked == ["a"]


async def test_another_wording_is_another_question(world):
    world.answers = ["yes", Terminal("no")]
    world.of()
    await settle(world)
    assert world.of("b") is None
    await settle(world)
    assert str(world.of("b").error) == "no"
    assert world.asked == ["a", "b"]


async def test_an_answer_to_an_older_wording_counts_for_nothing(world):
    gate = asyncio.Event()

    async def slow():
        await gate.wait()
        return "old"

    world.cache.verdict(SUBJECT, "a", slow, concerns=KEY)
    await settle(world)
    world.answers = ["new"]
    assert world.of("b") is None
    gate.set()
    await settle(world)
    assert world.of("b") == ValidationVerdict(answer="new")


@pytest.mark.parametrize(("after_s", "pause_s"), [(None, PAUSE_S), (1.0, PAUSE_S), (90.0, 90.0)])
async def test_who_gives_no_answer_is_asked_again_after_a_pause(world, after_s, pause_s):
    world.answers = [Retry("nobody there", after_s=after_s), Retry("nobody there"), "yes"]
    world.of()
    await settle(world)
    assert isinstance(world.of().error, Retry)
    await settle(world, pause_s - 1)
    assert len(world.asked) == 1
    await settle(world, 1)
    assert (len(world.asked), len(world.woken)) == (2, 1), "the same words are no news"
    await settle(world, PAUSE_S)
    assert world.of() == ValidationVerdict(answer="yes")
    assert len(world.woken) == 2


async def test_what_may_change_with_time_is_asked_again(world):
    world.answers = ["one", "one", "two"]
    world.of(again_s=60)
    for _ in range(2):
        await settle(world, 60)
    assert (world.of(again_s=60), len(world.woken)) == (ValidationVerdict(answer="two"), 2)


async def test_no_driver_is_asked_while_another_replica_leads(world):
    world.leads = False
    world.answers = ["yes"]
    world.of()
    await settle(world, 100)
    assert world.asked == []
    world.leads = True
    world.cache.again()
    await settle(world)
    assert world.of() == ValidationVerdict(answer="yes")


async def test_no_driver_is_asked_for_what_is_gone(world):
    world.answers = [Retry("nobody there"), "no news", "no news"]
    shared = ("Pods", None, ("shop", "web"))
    world.of()
    world.of(subject=shared, again_s=60)
    world.of(subject=shared, concerns=OTHER, again_s=60)
    await settle(world)
    world.cache.forget(KEY)
    await settle(world, 60)
    assert len(world.asked) == 3, "the other load balancer still wants to know"
    world.cache.forget(OTHER)
    await settle(world, 600)
    assert len(world.asked) == 3


async def test_dropped_calls_are_not_sent(world):
    world.answers = ["yes"]
    group = ("BackendGroup", KEY, ("shop", "web"))
    world.of(subject=group)
    world.cache.drop_others(KEY, [])
    await settle(world)
    assert world.asked == []
    world.of(subject=group)
    world.cache.drop_others(KEY, [("shop", "web")])
    await settle(world)
    assert world.asked == ["a"]


@pytest.mark.req("CORE-17")
async def test_namespaces_are_asked_in_turn(world):
    for number in range(100):
        key = LoadBalancerKey("LoadBalancer", "bulk", f"lb-{number}")
        world.of(subject=("LoadBalancer", key, None), concerns=key)
    group = ("LoadBalancer", KEY, ("quiet", "group"))
    world.of(subject=group)
    first = [await world.cache.queue.get() for _ in range(3)]
    assert group in first
