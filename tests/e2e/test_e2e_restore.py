"""The hub's API is restored from a backup: addresses and records survive, and what is younger than it is served on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fairlead.testing.worlds.fleet import Fleet
from fairlead.testing.worlds.processes import wait_until
from fairlead.testing.worlds.traffic import Traffic
from tests.e2e.e2e_backends import echoes, http, ready
from tests.e2e.e2e_own import no_services

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.envoy,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]


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
        names = ("before-backup", "after-backup")
        for name in names:
            await east.endpoints(name, 8080, pod)
        await east.service("before-backup", http(8091))
        older = await ready(east, "before-backup", 8091)
        await down()
        shutil.copytree(data, backup)
        await up()
        await east.service("after-backup", http(8092))
        younger = await ready(east, "after-backup", 8092)
        traffic = [Traffic(host=older, port=8091, kept=0), Traffic(host=younger, port=8092, kept=0)]
        for each in traffic:
            each.start()

        await down()
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        await up()
        if not stopped_first:
            # It starts over, and whatever runs it starts it again.
            assert await fleet.hub.ended() == 1
            assert "has been restored to an older state" in fleet.hub.log.read_text()
            await fleet.hub.start_ready()

        async def published_again() -> bool:
            there = await fleet.at_hub("east", "default.after-backup")
            return there is not None and there.status.address == younger

        await wait_until(published_again, "the agent has published what the backup did not have")
        sent = [each.count.sent for each in traffic]

        async def more() -> bool:
            return all(each.count.sent >= before + 20 for each, before in zip(traffic, sent, strict=True))

        await wait_until(more, "traffic goes on")
        for each in traffic:
            await each.stop()
            assert (each.count.failed, each.count.failures) == (0, [])
        assert [await east.address(name) for name in names] == [older, younger]
        await no_services(fleet, east, *names)
