"""Whichever process dies at whatever moment: cloud and ledger end the same, and no promise is broken on the way.

Each story is played once without a crash, then once for every external call (of the API and of the provider) and both
of its moments, and once with lost calls and answers. Every schedule ends with the cloud as users want it, which is
what the one without a crash ends with. A failure names its seed and its crash.

Fewer schedules than ``ALL`` are not fewer stories: each of them then dies at fewer of its calls, chosen by its seed.

    make crashes ARGS="--schedules 100000"
"""

from __future__ import annotations

import itertools
import random

import pytest
from records_story import story
from records_world import World

SHARDS = 16
#: From this number of schedules on a story dies at each of its calls, before and after it.
ALL = 10_000
#: What is checked at every call of a provider, and at the end.
INVARIANTS = (
    "no backend is registered that the ledger does not know",
    "a record with its finalizer is there before its backend is touched",
    "nothing is deregistered whose record does not say so",
    "nothing is registered while it is being deregistered",
    "the load balancer is on record before it is asked for",
    "no two operations run on one load balancer",
    "no foreign member is touched",
    "no load balancer loses its last ready backend by accident",
    "the cloud ends as users want it",
    "the ledger ends with exactly one record for each backend, with the right owners",
    "objects are let go when, and only when, nothing of theirs is left",
)


def played(loop, seed, *, die_at=None, fault_rate=0.0):
    """Play one story; returns its world and what is wrong with how it ended."""
    steps, ends = story(seed)

    async def play():
        world = World(loop, seed=seed, latency=bool(seed % 3), max_batch=seed % 4)
        world.die_at = die_at
        world.fault_rate = fault_rate
        await world.play(steps, ends)
        return world

    loop.reset()
    world = loop.run_until_complete(play())
    return world, [*world.violations, *world.differences(ends)]


@pytest.mark.req("I-2", "I-3", "I-4", "I-9", "L-3", "L-4", "L-8", "L-9", "L-10", "L-14", "L-15", "L-16", "L-18", "L-27")
@pytest.mark.req("L-28", "L-44", "A-14", "A-15", "A-21", "A-33", "A-39", "A-41")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_crash_at_any_call_changes_nothing_in_the_end(shard, request, virtual, record_property, capsys):
    asked_for = request.config.getoption("--schedules")
    wanted, share = max(1, asked_for // SHARDS), min(1.0, asked_for / ALL)
    schedules = checks = crashes = mixed = 0
    for number in itertools.count():
        seed = shard + number * SHARDS
        calm, wrong = played(virtual, seed)
        assert not wrong, f"seed {seed}, no crash: {wrong[:3]}"
        moments = [(call, moment) for call in range(1, calm.calls + 1) for moment in ("before", "after")]
        chosen = random.Random(seed).sample(moments, max(1, round(len(moments) * share)))
        runs = [(None, 0.2), *((die_at, 0.0) for die_at in sorted(chosen))]
        for die_at, fault_rate in runs:
            world, wrong = played(virtual, seed, die_at=die_at, fault_rate=fault_rate)
            assert not wrong, f"seed {seed}, dies at {die_at}, faults {fault_rate}: {wrong[:3]}"
            # A call that is refused (not found, conflict) has no moment after it.
            assert world.crashes or die_at is None or die_at[1] == "after", f"seed {seed}, dies at {die_at}"
            checks += world.checks
            crashes += world.crashes
            mixed += world.mixed
        schedules += 1 + len(runs)
        if schedules >= wanted:
            break
    record_property("schedules", schedules)
    with capsys.disabled():
        text = f"{schedules} schedules, {crashes} crashes, {mixed} mixed calls, {checks} looks at "
        text += f"{len(INVARIANTS)} invariants"
        print(f"\n  shard {shard}: {text}")


def test_some_of_these_stories_have_calls_about_several_load_balancers(virtual):
    assert sum(played(virtual, seed)[0].mixed > 0 for seed in range(SHARDS)) > 1
