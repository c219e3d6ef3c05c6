"""Long work yields to other tasks."""

import asyncio

import pytest

from podless import cooperative_yield


async def test_long_work_yields_to_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperative_yield, "SLICE_S", 0)
    steps: list[str] = []

    async def work(name: str) -> None:
        time_slice = cooperative_yield.TimeSlice()
        for _ in range(3):
            steps.append(name)
            await time_slice.yield_if_used_up()

    await asyncio.gather(work("a"), work("b"))
    assert steps == ["a", "b"] * 3
    monkeypatch.setattr(cooperative_yield, "SLICE_S", 60)
    await asyncio.gather(work("c"), work("d"))
    assert steps[6:] == ["c"] * 3 + ["d"] * 3
