"""An API server, embedded or real, with nothing of ours in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from deployment_world import World, new_world

from fairlead.kube.config import ClusterConfig
from tests.scenario.any_api import api, authority, embedded_api, real

__all__ = ["api", "authority", "real"]


@pytest.fixture
async def embedded() -> AsyncIterator[ClusterConfig]:
    """For traffic: a real API server refuses endpoints on the loopback interface."""
    async with embedded_api() as config:
        yield config


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory whose name leaves room for a unix socket."""
    path = Path(tempfile.mkdtemp(prefix="fl-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def world(api: ClusterConfig, directory: Path) -> AsyncIterator[World]:
    async with new_world(api, directory) as made:
        yield made


@pytest.fixture
async def traffic(embedded: ClusterConfig, directory: Path) -> AsyncIterator[World]:
    async with new_world(embedded, directory) as made:
        yield made
