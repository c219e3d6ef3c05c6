"""Whichever process dies at whatever moment: zones and ledger end the same, and nothing of others is touched.

Each story of names is played once without a crash, then once for every call (of the API and of a zone's server) and
both of its moments, and once with lost calls and answers.

    make crashes ARGS="--schedules 100000"
"""

from __future__ import annotations

import pytest
from records_crashes import crashes
from zone_sim import NamesWorld, story

SHARDS = 4
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


@pytest.mark.req("C-53", "C-54", "I-2", "I-3", "L-3", "L-8")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_crash_at_any_call_changes_nothing_in_the_zones_in_the_end(shard, request, virtual, record_property, capsys):
    schedules = checks = crashed = 0
    asked_for = request.config.getoption("--schedules")
    # An eighth of what the core's stories have: a name has fewer ways to go wrong, and more calls.
    for _, _, world in crashes(virtual, story, NamesWorld, shard=shard, shards=SHARDS, asked_for=asked_for, part=8):
        schedules += 1
        checks += world.checks
        crashed += world.crashes
    record_property("schedules", schedules)
    with capsys.disabled():
        print(f"\n  names, shard {shard}: {schedules} schedules, {crashed} crashes, {checks} looks at the zones")


def test_some_of_these_stories_move_a_name_to_another_zone(virtual):
    moved = 0
    for seed in range(8):
        steps, _ = story(seed)
        for name in range(2):
            zones = [intended[0] for _, number, intended in steps if number == name and intended is not None]
            moved += len(set(zones)) > 1
    assert moved > 2
