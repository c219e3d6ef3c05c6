"""After a storm everything agrees again, and no request to a Service that nothing was done to has failed."""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.processes import ExpectationFailed, wait_until
from fairlead_demo.worlds.traffic import Traffic
from tests.e2e.e2e_agreement import differences
from tests.e2e.e2e_backends import echoes, http, ready
from tests.e2e.e2e_storm import NAMES, Storm, linked

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]

#: The longest back-off is half a minute, and a machine may be busy: a multiple of that is a key that was forgotten.
_AGREE_S = 150.0


@pytest.mark.req("T-15", "I-3", "I-8")
async def test_after_a_storm_everything_agrees_and_no_request_was_lost(request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--storm-seed") or random.SystemRandom().randrange(1, 1_000_000)
    with kept_on_failure() as directory:
        members = {"east": "Pod", "west": "Pod"}
        fleet = Fleet(
            apis=EmbeddedApis(directory / "api", ("hub", *members)), directory=directory, members=members, drain="1s"
        )
        try:
            await fleet.start()
            await _storm(fleet, seed=seed, seconds=request.config.getoption("--storm-s") or 0.0)
        finally:
            await fleet.close()


@contextlib.contextmanager
def kept_on_failure() -> Generator[Path]:
    """Make a directory for logs and sockets, which is there afterwards if the block fails."""
    directory = Path(tempfile.mkdtemp(prefix="fl-e2e-"))
    try:
        yield directory
    except BaseException:
        sys.stderr.write(f"the logs are in {directory}\n")
        raise
    shutil.rmtree(directory)


async def _storm(fleet: Fleet, *, seed: int, seconds: float) -> None:
    east = fleet.members["east"]
    steady = east.new_address()
    async with linked(fleet) as links:
        storm = Storm(fleet, links, seed=seed)
        async with echoes((steady, 8080, "steady"), *storm.backends):
            await east.endpoints("steady", 8080, steady)
            await east.service("steady", http())
            traffic = Traffic(host=await ready(east, "steady", 80), kept=0)
            traffic.start()
            try:
                await storm.rage(seconds)
                started_s = time.monotonic()
                await _agreed(fleet, storm, seed=seed)
            finally:
                await traffic.stop()
            took_s = time.monotonic() - started_s
            sys.stderr.write(f"storm {seed}: {len(storm.done)} blows, agreed after {took_s:.1f} s\n")
            assert traffic.count.failed == 0, (seed, traffic.count.failures)
            assert traffic.count.answered > 0


async def _agreed(fleet: Fleet, storm: Storm, *, seed: int) -> None:
    """Wait until each Service answers by its own backend at the address it shows, and no other one is left."""

    async def agrees() -> bool:
        return not await differences(fleet, storm.wanted, NAMES)

    try:
        await wait_until(agrees, f"all agree after the storm of seed {seed}", timeout_s=_AGREE_S)
    except ExpectationFailed as error:
        left = "\n".join(await differences(fleet, storm.wanted, NAMES, longest=True))
        sys.stderr.write(f"{error.sentence}\n{'; '.join(storm.done)}\n{left}\n")
        raise ExpectationFailed(error.sentence, detail=left) from error
