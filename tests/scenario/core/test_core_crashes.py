"""Whichever process dies at whatever moment: the same ends at the cloud, and nothing of others is touched."""

from __future__ import annotations

import pytest
from engine_world import KEYS, World, story

from fairlead.testing.faults import Fault

#: One story without a crash, and then once for every call and both of its moments, for so many ``--schedules``.
SCHEDULES_OF_A_CRASH_STORY = 100
#: One story with random faults, latency and batches, and perhaps a crash somewhere.
SCHEDULES_OF_A_STORM_STORY = 20


async def played(seed, *, crash_at=None, **text):
    world = World(**text)
    world.crash_at = crash_at
    given = story(seed)
    await world.play(given)
    return world, given


def expected(item):
    """Return what each load balancer of a story must be in the end."""
    return {
        str(key): (
            intended.spec,
            {(listener, at): t for listener, each in intended.targets.items() for at, t in each.items()},
        )
        for key, intended in sorted(item.ends.items())
        if intended is not None
    }


def as_intended(world, item):
    assert world.violations == []
    snapshot = world.snapshot()
    wanted = expected(item)
    assert snapshot == {key: (spec, dict(sorted(members.items()))) for key, (spec, members) in wanted.items()}
    # The ledger holds exactly what is there, and so knows the owner of each of it (I-2).
    held = {(str(key), listener, at) for key, listener, at in world.ledger.entries}
    assert held == {(key, *place) for key, (_, members) in wanted.items() for place in members}


@pytest.mark.req("I-2", "I-3", "I-4", "I-9", "KI-6")
@pytest.mark.slow
async def test_a_crash_before_or_after_any_call_changes_nothing_in_the_end(request, record_property, capsys):
    schedules = 0
    stories = request.config.getoption("--schedules") // SCHEDULES_OF_A_CRASH_STORY
    for seed in range(stories):
        calm, given = await played(seed)
        as_intended(calm, given)
        for number in range(1, len(calm.provider.calls) + 1):
            for moment in (Fault.HANG_BEFORE, Fault.HANG_AFTER):
                world, _ = await played(seed, crash_at=(number, moment))
                assert world.crashes == 1, (seed, number, moment)
                as_intended(world, given)
                assert world.snapshot() == calm.snapshot()
                schedules += 1
    record_property("schedules", schedules)
    with capsys.disabled():
        print(f"\n  crash schedules: {schedules}")
    assert schedules > 10 * stories


@pytest.mark.req("I-2", "I-4", "I-9")
@pytest.mark.slow
async def test_errors_lost_answers_and_latency_in_any_mixture_converge(request, record_property, capsys):
    crashes = 0
    stories = request.config.getoption("--schedules") // SCHEDULES_OF_A_STORM_STORY
    for seed in range(stories):
        world = World(max_batch=seed % 3, latency_s=0.4 if seed % 2 else 0.0)
        world.faults.seed(seed)
        world.fault_rate = 0.3
        world.crash_at = (1 + seed % 11, Fault.HANG_AFTER if seed % 5 else Fault.HANG_BEFORE) if seed % 4 == 0 else None
        given = story(10_000 + seed)
        await world.play(given)
        crashes += world.crashes
        as_intended(world, given)
    record_property("schedules", stories)
    with capsys.disabled():
        print(f"\n  storm schedules: {stories}, {crashes} of them with a crash")
    assert crashes > stories // 20


@pytest.mark.req("KI-6", "I-4")
async def test_a_restart_with_nothing_changed_removes_nothing():
    world, given = await played(3)
    before = world.snapshot()
    removals = world.removals
    await world.restart()
    await world.advance(100)
    await world.engine.crash()
    assert world.snapshot() == before
    assert world.removals == removals
    as_intended(world, given)


@pytest.mark.req("I-3")
async def test_deleted_while_no_process_ran_is_deleted_by_the_next():
    world, _ = await played(3)
    assert world.snapshot()
    for key in KEYS:
        if key in world.objects:
            world.objects[key] = None
    await world.restart()
    await world.advance(100)
    await world.engine.crash()
    assert world.snapshot() == {}
    assert world.objects == {}
    assert world.ledger.entries == {}
    assert world.violations == []
