"""Fixtures of the tests next to this file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from kube_scripted import ScriptedApi
from watching import QuickClock

from fairlead.kube.cluster import Cluster


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
async def cluster(api: ScriptedApi, clock: QuickClock) -> AsyncIterator[Cluster]:
    async with api.cluster(clock=clock) as cluster:
        yield cluster
