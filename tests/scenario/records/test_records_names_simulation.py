"""Whichever process dies at whatever moment: zones and ledger end the same, and nothing of others is touched.

Each story of names is played once without a crash, then once for every call (of the API and of a zone's server) and
both of its moments, and once with lost calls and answers. Fewer schedules than ``ALL`` die at fewer of the calls.

    make crashes ARGS="--schedules 100000"
"""

from __future__ import annotations

import itertools
import random

import pytest
from zone_sim import NamesWorld, story

SHARDS = 4
#: From this number of schedules on a story dies at each of its calls, before and after it.
ALL = 10_000
#: What is looked at after every update of a zone, and at the end.
INVARIANTS = (
    "no record of others is touched, its TTL included",
    "no value of ours is in a zone that the ledger does not know",
    "a mark is never without its value",
    "a name that is wanted is answered all the while, also while it moves to another zone",
    "the zones end as users want them, and the former zone of a name is left clean",
    "the ledger ends with exactly one record for each value",
    "objects are let go when, and only when, nothing of theirs is left",
)


def played(loop, seed, *, die_at=None, fault_rate=0.0):
    """Play one story; returns its world and what is wrong with how it ended."""
    steps, ends = story(seed)

    async def play():
        world = NamesWorld(loop, seed=seed)
        world.die_at, world.fault_rate = die_at, fault_rate
        await world.play(steps, ends)
        return world

    loop.reset()
    world = loop.run_until_complete(play())
    return world, [*world.violations, *world.differences(ends)]


@pytest.mark.req("C-53", "C-54", "I-2", "I-3", "L-3", "L-8")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_crash_at_any_call_changes_nothing_in_the_zones_in_the_end(shard, request, virtual, record_property, capsys):
    asked_for = request.config.getoption("--schedules")
    # Half of what the core's stories have: a name has fewer ways to go wrong, and more calls.
    wanted, share = max(1, asked_for // SHARDS // 8), min(1.0, asked_for / ALL)
    schedules = checks = crashes = 0
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
            checks += world.checks
            crashes += world.crashes
        schedules += 1 + len(runs)
        if schedules >= wanted:
            break
    record_property("schedules", schedules)
    with capsys.disabled():
        print(f"\n  names, shard {shard}: {schedules} schedules, {crashes} crashes, {checks} looks at the zones")


def test_some_of_these_stories_move_a_name_to_another_zone(virtual):
    moved = 0
    for seed in range(8):
        steps, _ = story(seed)
        for name in range(2):
            zones = [intended[0] for _, number, intended in steps if number == name and intended is not None]
            moved += len(set(zones)) > 1
    assert moved > 2
