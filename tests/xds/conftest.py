from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from fairlead.providers.envoy.http import refused_routes as route_check
from fairlead.providers.envoy.provider import EnvoyProvider, create
from tests.xds.http_world import HttpWorld
from tests.xds.world import Addresses, World


def worker_number(worker_id: str) -> int:
    return int(worker_id.removeprefix("gw")) if worker_id.startswith("gw") else 99


def first_port(base: int, worker_id: str) -> int:
    """Return the first of ten ports of a worker; ``base`` is below the ports that ``free_port`` chooses from."""
    return base + 10 * worker_number(worker_id)


@pytest.fixture(scope="session")
def addresses(worker_id: str) -> Addresses:
    return Addresses(worker_number(worker_id))


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose name leaves room for a unix socket."""
    path = Path(tempfile.mkdtemp(prefix="fl-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def unchecked_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Envoy knows what is wrong with a regular expression, as where its RE2 is of another version."""
    monkeypatch.setattr(route_check, "invalid_regex", lambda _: "")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def provider() -> AsyncIterator[EnvoyProvider]:
    """One Envoy for all tests of a worker."""
    path = Path(tempfile.mkdtemp(prefix="fl-", dir="/tmp"))
    provider = create(data_dir=path, concurrency=1)
    await provider.start()
    provider.publish()
    yield provider
    await provider.stop()
    shutil.rmtree(path, ignore_errors=True)


@pytest_asyncio.fixture(loop_scope="session")
async def world(provider: EnvoyProvider, addresses: Addresses) -> AsyncIterator[World]:
    world = World(provider, addresses)
    yield world
    await world.close()


@pytest_asyncio.fixture(loop_scope="session")
async def http(provider: EnvoyProvider, addresses: Addresses) -> AsyncIterator[HttpWorld]:
    world = HttpWorld(provider, addresses)
    yield world
    await world.close()
