"""Schedules of stories: once without a crash, once with lost calls and answers, and once for each moment of a crash.

Fewer schedules than ``ALL`` are not fewer stories: each of them then dies at fewer of its calls, chosen by its seed.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

#: From this number of schedules on a story dies at each of its calls, before and after it.
ALL = 10_000


def played(loop, story, make, seed, *, die_at=None, fault_rate=0.0) -> tuple[Any, list[str]]:
    """Play one story in a world that ``make`` returns; returns the world, and what is wrong with how it ended."""
    steps, ends = story(seed)

    async def play() -> Any:
        world = make(loop, seed=seed)
        world.die_at, world.fault_rate = die_at, fault_rate
        await world.play(steps, ends)
        return world

    loop.reset()
    world = loop.run_until_complete(play())
    return world, [*world.violations, *world.differences(ends)]


def crashes(loop, story, make, *, shard, shards, asked_for, part=1) -> Iterator[tuple[int, Any, Any]]:
    """Yield seed, moment of death and world of each schedule of a shard; one that ends wrong is an assertion."""
    wanted, share = max(1, asked_for // shards // part), min(1.0, asked_for / ALL)
    play, done = partial(played, loop, story, make), 0
    for seed in itertools.count(shard, shards):
        calm, wrong = play(seed)
        assert not wrong, f"seed {seed}, no crash: {wrong[:3]}"
        yield seed, None, calm
        moments = [(call, moment) for call in range(1, calm.calls + 1) for moment in ("before", "after")]
        chosen = random.Random(seed).sample(moments, max(1, round(len(moments) * share)))
        for die_at, fault_rate in [(None, 0.2), *((die_at, 0.0) for die_at in sorted(chosen))]:
            world, wrong = play(seed, die_at=die_at, fault_rate=fault_rate)
            assert not wrong, f"seed {seed}, dies at {die_at}, faults {fault_rate}: {wrong[:3]}"
            yield seed, die_at, world
        done += 2 + len(chosen)
        if done >= wanted:
            return
