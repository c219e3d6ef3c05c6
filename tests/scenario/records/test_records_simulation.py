"""Whichever process dies at whatever moment: cloud and ledger end the same, and no promise is broken on the way.

Each story is played once without a crash, then once for every external call (of the API and of the provider) and both
of its moments, and once with lost calls and answers. Every schedule ends with the cloud as users want it, which is
what the one without a crash ends with. A failure names its seed and its crash.

    make crashes ARGS="--schedules 100000"
"""

from __future__ import annotations

import pytest
from records_crashes import crashes, played
from records_story import story
from records_world import World

SHARDS = 16
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


def make(loop, *, seed):
    return World(loop, seed=seed, latency=bool(seed % 3), max_batch=seed % 4)


@pytest.mark.req("I-2", "I-3", "I-4", "I-9", "L-3", "L-4", "L-8", "L-9", "L-10", "L-14", "L-15", "L-16", "L-18", "L-27")
@pytest.mark.req("L-28", "L-44", "A-14", "A-15", "A-21", "A-33", "A-39", "A-41")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_crash_at_any_call_changes_nothing_in_the_end(shard, request, virtual, record_property, capsys):
    schedules = checks = crashed = mixed = 0
    asked_for = request.config.getoption("--schedules")
    for seed, die_at, world in crashes(virtual, story, make, shard=shard, shards=SHARDS, asked_for=asked_for):
        # A call that is refused (not found, conflict) has no moment after it.
        assert world.crashes or die_at is None or die_at[1] == "after", f"seed {seed}, dies at {die_at}"
        schedules += 1
        checks += world.checks
        crashed += world.crashes
        mixed += world.mixed
    record_property("schedules", schedules)
    with capsys.disabled():
        text = f"{schedules} schedules, {crashed} crashes, {mixed} mixed calls, {checks} looks at "
        text += f"{len(INVARIANTS)} invariants"
        print(f"\n  shard {shard}: {text}")


def test_some_of_these_stories_have_calls_about_several_load_balancers(virtual):
    assert sum(played(virtual, story, make, seed)[0].mixed > 0 for seed in range(SHARDS)) > 1
