"""Real processes, real Envoy, real traffic: against the embedded API, and against a real one where there is one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from fairlead_demo.worlds.apis import Apis, EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from tests.e2e.e2e_real_apis import RealApis, assets_directory, own_network, why_not_real

MEMBERS = {"east": "Pod", "west": "Node"}
_NAMES = ("hub", *MEMBERS)


_BOTH = ["embedded", pytest.param("real", marks=[pytest.mark.real_api, pytest.mark.slow])]


#: The fleet of this run, while it runs.
_shared: list[Fleet] = []


@pytest.fixture(scope="session", params=_BOTH)
def clusters(request: pytest.FixtureRequest) -> Iterator[Apis]:
    """API servers for a hub and two members, not started yet."""
    with _apis(request.param, _NAMES) as apis:
        yield apis


@pytest.fixture(params=_BOTH)
def one_cluster(request: pytest.FixtureRequest) -> Iterator[Apis]:
    """The API server of one cluster, not started yet; its name is that of a hub, which has a controller manager."""
    with _apis(request.param, ("hub",)) as apis:
        yield apis


@pytest.fixture(params=_BOTH[1:])
def one_real(request: pytest.FixtureRequest) -> Iterator[Apis]:
    """The real API server of one cluster, not started yet; it has both families."""
    with _apis(request.param, ("hub",)) as apis:
        yield apis


@contextmanager
def _apis(kind: str, names: Sequence[str]) -> Generator[Apis]:
    # Short: the path of a unix socket has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name, ExitStack() as stack:
        if kind == "embedded":
            yield EmbeddedApis(Path(name) / "api", names)
            return
        if why := why_not_real():
            pytest.skip(why)
        stack.enter_context(own_network())
        assets = assets_directory()
        assert assets is not None
        yield RealApis(Path(name) / "api", names, assets=assets)


@contextmanager
def working_directory() -> Generator[Path]:
    """Make a directory for logs and sockets; FAIRLEAD_E2E_LOGS names one that is kept, for looking into failures."""
    if kept := os.environ.get("FAIRLEAD_E2E_LOGS"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield Path(tempfile.mkdtemp(prefix="run-", dir=kept))
        return
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        yield Path(name)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fleet(clusters: Apis) -> AsyncIterator[Fleet]:
    """A hub and two members, running. Tests may kill parts of it, and leave it running."""
    with working_directory() as directory:
        fleet = Fleet(apis=clusters, directory=directory, members=MEMBERS, drain="1s", log_level="debug")
        try:
            await fleet.start()
            _shared.append(fleet)
            yield fleet
        finally:
            _shared.clear()
            await fleet.close()


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def revived() -> AsyncIterator[None]:
    """Start what a failed test left dead in the shared fleet, so that others do not fail with it."""
    yield
    for fleet in _shared:
        await fleet.revive()
