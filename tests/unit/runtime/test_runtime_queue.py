from __future__ import annotations

import ast
import asyncio
import itertools
import math
import random
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairlead
from fairlead.runtime.clock import VirtualClock, settle
from fairlead.runtime.queue import BACKOFF_LIMIT_S, KeyedQueue, QueueClosed, backoff_s, doubled_s
from tests.arch.arch_structure import nodes_of


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def queue(clock: VirtualClock) -> KeyedQueue[str]:
    return KeyedQueue(clock=clock)


async def test_many_adds_before_the_start_are_one_run(queue: KeyedQueue[str]) -> None:
    for _ in range(5):
        queue.add("a")
    assert len(queue) == 1
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_a_key_added_while_processed_comes_once_more_after_done(queue: KeyedQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_keys_come_in_the_order_of_adding(queue: KeyedQueue[str]) -> None:
    for key in "cab":
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == ["c", "a", "b"]


async def test_groups_take_turns_so_that_the_keys_of_one_do_not_hold_up_another(clock: VirtualClock) -> None:
    queue = KeyedQueue[str](clock=clock, group_of=lambda key: key[0])
    for key in ("a1", "a2", "a3", "a4", "b1"):
        queue.add(key)
    taken = [await queue.get() for _ in range(2)]
    queue.add("a1")  # while it is worked on: its turn comes after those of its group that wait
    queue.add("c1")
    for key in taken:
        queue.done(key)
    taken += [await queue.get() for _ in range(len(queue))]
    assert taken == ["a1", "b1", "a2", "c1", "a3", "a4", "a1"]


async def test_a_waiting_worker_is_woken_by_add(queue: KeyedQueue[str]) -> None:
    worker = asyncio.create_task(queue.get())
    await settle()
    assert not worker.done()
    queue.add("a")
    assert await worker == "a"


async def test_the_earliest_of_several_times_counts(queue: KeyedQueue[str], clock: VirtualClock) -> None:
    worker = asyncio.create_task(queue.get())
    await settle()
    queue.add_after("a", 30)
    queue.add_after("a", 10)
    queue.add_after("a", 20)
    await clock.advance(9.9)
    assert not worker.done()
    await clock.advance(0.2)
    assert await worker == "a"
    queue.done("a")
    await clock.advance(60)
    assert len(queue) == 0
    assert len(queue._due) == 0


async def test_a_time_that_comes_while_no_worker_waits_is_seen_by_the_next_get(
    queue: KeyedQueue[str], clock: VirtualClock
) -> None:
    queue.add_after("a", 5)
    await clock.advance(6)
    assert await asyncio.wait_for(queue.get(), 180) == "a"


async def test_retry_doubles_up_to_a_limit_and_forget_starts_over(queue: KeyedQueue[str], clock: VirtualClock) -> None:
    waits = []
    for _ in range(15):
        started = clock.monotonic()
        queue.retry("a")
        worker = asyncio.create_task(queue.get())
        while not worker.done():
            await clock.advance(max(0.01, (clock.monotonic() - started) / 50))
        waits.append(clock.monotonic() - started)
        queue.done("a")
    assert waits[0] <= 0.12
    assert waits[5] > waits[1]
    assert BACKOFF_LIMIT_S / 2 <= waits[-1] <= BACKOFF_LIMIT_S * 1.05
    queue.forget("a")
    assert queue.failures("a") == 0


async def test_retry_honours_the_time_that_the_other_side_named(queue: KeyedQueue[str], clock: VirtualClock) -> None:
    queue.retry("a", after_s=7)
    worker = asyncio.create_task(queue.get())
    await clock.advance(6.9)
    assert not worker.done()
    await clock.advance(0.2)
    assert await worker == "a"


async def test_what_waits_after_a_failure_is_tried_at_once_when_its_reason_is_over(
    queue: KeyedQueue[str], clock: VirtualClock
) -> None:
    queue.add("failed")
    assert await queue.get() == "failed"
    queue.retry("failed", after_s=60)
    queue.done("failed")
    queue.add_after("later", 60)
    queue.retry_now()
    assert (len(queue), len(queue._due)) == (1, 1)
    assert await queue.get() == "failed"
    queue.done("failed")
    await clock.advance(60)
    assert await queue.get() == "later"
    assert len(queue._due) == 0


def test_backoff_is_jittered() -> None:
    assert len({backoff_s(5) for _ in range(20)}) > 10
    assert all(0.8 <= backoff_s(5) <= 1.6 for _ in range(100))
    assert backoff_s(10_000) <= BACKOFF_LIMIT_S


async def test_a_cancelled_worker_does_not_swallow_the_wake_up(queue: KeyedQueue[str]) -> None:
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await settle()
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 180) == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_close_ends_every_worker(queue: KeyedQueue[str]) -> None:
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    queue.add_after("a", 5)
    await settle()
    queue.close()
    for worker in workers:
        with pytest.raises(QueueClosed):
            await worker
    queue.add("b")
    queue.add_after("b", 1)
    with pytest.raises(QueueClosed):
        await queue.get()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["add", "after", "retry"])), max_size=60),
    st.randoms(use_true_random=True),
)
def test_no_two_workers_on_one_key_and_no_key_is_lost(adds: list[tuple[int, str]], chance: random.Random) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        queue: KeyedQueue[int] = KeyedQueue(clock=clock)
        running: set[int] = set()
        last_add: dict[int, int] = {}
        last_start: dict[int, int] = {}
        step = 0

        async def work() -> None:
            nonlocal step
            while True:
                try:
                    key = await queue.get()
                except QueueClosed:
                    return
                assert key not in running
                running.add(key)
                step += 1
                last_start[key] = step
                await clock.sleep(chance.random())
                running.discard(key)
                queue.done(key)

        workers = [asyncio.create_task(work()) for _ in range(3)]
        for key, how in adds:
            step += 1
            last_add[key] = step
            if how == "add":
                queue.add(key)
            elif how == "after":
                queue.add_after(key, chance.random() * 3)
            else:
                queue.retry(key)
            if chance.random() < 0.4:
                await clock.advance(chance.random())
        await clock.advance(200)
        assert not running
        assert len(queue) == len(queue._due) == queue.processing == 0
        # After the last add of a key, a run of it has started.
        assert all(last_start[key] > added for key, added in last_add.items())
        queue.close()
        await asyncio.gather(*workers)

    asyncio.run(scenario())


@pytest.mark.req("CORE-06")
@pytest.mark.parametrize("failures", [-1, 0, 1, 2, 1_023, 1_024, 5_000, 10**9])
def test_any_number_of_failures_has_a_pause(failures: int) -> None:
    assert 2.0 <= doubled_s(failures, base_s=2.0, limit_s=300.0) <= 300.0
    assert 1.0 <= backoff_s(failures, base_s=2.0, limit_s=300.0) <= 300.0
    assert doubled_s(failures, base_s=0.001, limit_s=math.inf) < math.inf


@pytest.mark.req("CORE-06")
def test_every_exponent_of_a_count_is_bounded_in_one_place() -> None:
    """A power of a number of failures overflows after a thousand of them, and ends the task that waits."""
    power = re.compile(r"[\w)\]}]\s*\*\*")  # modules without it need not be parsed
    paths = [path for path in Path(fairlead.__file__).parent.rglob("*.py") if power.search(path.read_text())]
    powers = [
        f"{path.name}:{node.lineno}"
        for path in paths
        for node in nodes_of(path)[ast.BinOp]
        if isinstance(node.op, ast.Pow)
        and not (
            isinstance(node.left, ast.Constant)
            and ast.unparse(node.right).strip("_").upper() == ast.unparse(node.right).strip("_")
        )
    ]
    assert [place for place in powers if not place.startswith("queue.py:")] == []


GATHER_S = 0.02


class GatheredRuns:
    """The runs of a queue that gathers. Each computes for ``takes_s``, and keys of tenants take turns."""

    def __init__(self, clock: VirtualClock, *, takes_s: float = 0.0, workers: int = 1) -> None:
        self.clock = clock
        self.queue = KeyedQueue[str](clock=clock, group_of=lambda key: key[0], gather_s=GATHER_S)
        self.began: list[tuple[str, float]] = []
        self._takes_s = takes_s
        self._tasks = [asyncio.create_task(self._work()) for _ in range(workers)]

    async def _work(self) -> None:
        with suppress(QueueClosed):
            while True:
                key = await self.queue.get()
                self.began.append((key, self.clock.monotonic()))
                await self.clock.sleep(self._takes_s)
                self.queue.charge(key, self._takes_s)
                self.queue.done(key)

    async def close(self) -> None:
        self.queue.close()
        await self.clock.advance(60)
        await asyncio.gather(*self._tasks)

    async def change(self, keys: dict[float, list[str]]) -> None:
        """Add keys, each at its time."""
        await settle()
        for at_s in sorted(keys):
            await self.clock.advance(max(0.0, at_s - self.clock.monotonic()))
            for key in keys[at_s]:
                self.queue.add(key)
            await settle()
        await self.clock.advance(5)


async def test_a_burst_of_changes_is_two_runs_and_the_first_is_at_once(clock: VirtualClock) -> None:
    runs = GatheredRuns(clock)
    await runs.change({number * 0.0003: ["a"] for number in range(60)})
    assert [at_s for _, at_s in runs.began] == [0.0, pytest.approx(GATHER_S)]
    await runs.close()


async def test_what_a_run_causes_afterwards_counts_as_its_own(clock: VirtualClock) -> None:
    runs = GatheredRuns(clock)
    runs.queue.add("a")
    await settle()
    runs.queue.charge("a", 0.09)
    for pause_s in (GATHER_S, 5.0):
        runs.queue.add("a")
        await clock.advance(pause_s)
    # A tenth of the time since the first run makes up for it, and 50 ms are free.
    rest_s = (0.09 - 0.1 * GATHER_S - 0.05) / 0.1
    assert [at_s for _, at_s in runs.began] == pytest.approx([0.0, GATHER_S, GATHER_S + rest_s])
    await runs.close()


async def test_changes_that_are_there_together_are_one_run(clock: VirtualClock) -> None:
    runs = GatheredRuns(clock)
    await runs.change({0.0: ["a"] * 60})
    assert len(runs.began) == 1
    await runs.close()


@given(st.lists(st.integers(0, 200), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_no_change_waits_longer_than_the_gathering(times_ms: list[int]) -> None:
    async def check() -> None:
        runs = GatheredRuns(VirtualClock())
        await runs.change({at_ms / 1000: ["a"] for at_ms in times_ms})
        began = [at_s for _, at_s in runs.began]
        for at_ms in times_ms:
            assert any(0 <= at_s - at_ms / 1000 <= GATHER_S + 1e-9 for at_s in began)
        assert all(later - at_s >= GATHER_S - 1e-9 for at_s, later in itertools.pairwise(began))
        await runs.close()

    asyncio.run(check())


async def test_the_more_the_runs_compute_the_more_changes_become_one(clock: VirtualClock) -> None:
    runs = GatheredRuns(clock, takes_s=0.01)
    await runs.change({number * 0.025: ["a"] for number in range(400)})
    few = [at_s for _, at_s in runs.began if at_s < 1]
    assert few[:4] == [0.0, pytest.approx(0.03), pytest.approx(0.06), pytest.approx(0.09)], "a few are not delayed"
    late = [later - at_s for at_s, later in itertools.pairwise(at_s for _, at_s in runs.began if at_s > 2)]
    assert 0.09 < sum(late) / len(late) < 0.11, "a tenth of the processor in the long run"
    assert runs.began[-1][1] >= 9.975, "the last change is not lost"
    await clock.advance(60)
    runs.began.clear()
    await runs.change({clock.monotonic() + 0.001: ["a"], clock.monotonic() + 0.002: ["a"]})
    assert runs.began[1][1] - runs.began[0][1] == pytest.approx(0.01 + GATHER_S), "what was long ago does not count"
    await runs.close()


async def test_no_run_is_put_off_for_long_however_much_the_last_ones_computed(clock: VirtualClock) -> None:
    runs = GatheredRuns(clock, takes_s=1.0)
    await runs.change({0.0: ["a"], 0.5: ["a"], 1.2: ["a"]})
    assert [at_s for _, at_s in runs.began] == [0.0, pytest.approx(1.5)]
    await runs.close()


async def test_a_member_with_a_flood_of_changes_does_not_delay_that_of_another(clock: VirtualClock) -> None:
    runs = GatheredRuns(clock, takes_s=0.004)
    flood = {number * 0.001: [f"a{number % 50}"] for number in range(1000)}
    flood[0.5] = [*flood[0.5], "b"]
    await runs.change(flood)
    waited_s = next(at_s - 0.5 for key, at_s in runs.began if key == "b")
    assert waited_s <= 0.004 + 1e-9, "at most the run that is under way"
    await runs.close()


async def test_a_later_time_is_kept_while_a_change_is_gathered(clock: VirtualClock) -> None:
    runs = GatheredRuns(clock)
    await runs.change({0.0: ["a"]})
    began_s = clock.monotonic()
    runs.queue.add("a")
    await settle()
    runs.queue.add_after("a", 30)
    runs.queue.add("a")
    await clock.advance(40)
    assert [at_s - began_s for _, at_s in runs.began[1:]] == [0.0, pytest.approx(GATHER_S), pytest.approx(30)]
    await runs.close()
    assert not runs.queue._gathering


async def test_what_has_rested_is_forgotten(clock: VirtualClock) -> None:
    runs = GatheredRuns(clock)
    await runs.change({number * 1.0: [f"a{number}"] for number in range(20)})
    assert len(runs.queue._rests) == 1
    await runs.close()
