"""Fixtures of the tests next to this file."""

from __future__ import annotations

import pytest
from worker_bench import Bench


@pytest.fixture
async def bench():
    bench = Bench()
    async with bench.engine:
        yield bench
    assert bench.provider.overlaps == []
