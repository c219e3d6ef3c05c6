"""The hub's API is restored from a backup: addresses and records survive, and what is younger than it is served on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fairlead_demo.worlds.fleet import Fleet
from tests.e2e.e2e_backends import echoes, http, ready
from tests.e2e.e2e_own import no_services
from tests.e2e.e2e_restore import AFTER, BEFORE, PORTS, asked, none_failed, published_again, starts_over

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.req("W-10", "I-6", "I-8")
@pytest.mark.parametrize("stopped_first", [True, False], ids=["hub-stopped-first", "hub-running"])
async def test_a_restore_of_an_older_state_takes_no_address_and_cuts_no_traffic(
    fleet: Fleet, tmp_path: Path, stopped_first: bool
) -> None:
    if fleet.apis.kind != "embedded":
        pytest.skip("a copy of its files is the backup of the embedded API; etcd has snapshots of its own")
    data, backup = fleet.apis.kubeconfig("hub").parent, tmp_path / "backup"
    east = fleet.members["east"]
    pod = east.new_address()

    async def down() -> None:
        if stopped_first:
            await fleet.hub.kill()
        await fleet.apis.kill("hub")

    async def up() -> None:
        await fleet.apis.restart("hub")
        if stopped_first:
            await fleet.hub.start_ready()

    async with echoes((pod, 8080, "restored")):
        for name in PORTS:
            await east.endpoints(name, 8080, pod)
        await east.service(BEFORE, http(PORTS[BEFORE]))
        older = await ready(east, BEFORE, PORTS[BEFORE])
        await down()
        shutil.copytree(data, backup)
        await up()
        await east.service(AFTER, http(PORTS[AFTER]))
        younger = await ready(east, AFTER, PORTS[AFTER])
        traffic = asked({BEFORE: older, AFTER: younger})

        await down()
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        await up()
        if not stopped_first:
            await starts_over(fleet)
        await published_again(fleet, younger)
        await none_failed(traffic, more=20)
        assert [await east.address(name) for name in PORTS] == [older, younger]
        await no_services(fleet, east, *PORTS)
