"""The hub's etcd is restored from an older snapshot, under a real API server and traffic: nothing is taken away.

The member has an etcd of its own: what is restored is the hub's, and its Services stay.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead.testing.worlds.fleet import Fleet
from fairlead.testing.worlds.processes import wait_until
from fairlead.testing.worlds.traffic import Traffic
from tests.e2e.e2e_backends import echoes, http, ready
from tests.e2e.e2e_real_apis import RealApis, assets_directory, own_network, why_not_real

pytestmark = [pytest.mark.real_api, pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]

#: As docs/how-to/back-up.md has it.
RAISED = ("--bump-revision=1000000000", "--mark-compacted")


@asynccontextmanager
async def apart() -> AsyncGenerator[tuple[Fleet, RealApis]]:
    """Run a hub and a member on a real API server and an etcd each."""
    if why := why_not_real():
        pytest.skip(why)
    assets = assets_directory()
    assert assets is not None
    if not (assets / "etcdutl").exists():
        pytest.skip(
            "etcdutl, which restores a snapshot of etcd, is not in KUBEBUILDER_ASSETS: "
            "`KUBEBUILDER_ASSETS=$(python -m conformance.build)` names a directory that has it, built with Go"
        )
    with own_network(), tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        directory = Path(name)
        hub = RealApis(directory / "hub-api", ("hub",), assets=assets)
        east = RealApis(directory / "east-api", ("east",), assets=assets)
        fleet = Fleet(apis=hub, directory=directory, members={}, drain="1s")
        try:
            await fleet.start()
            await east.start()
            await fleet.add_member("east", east.kubeconfig("east"), targets="Pod", network=east.network(0))
            yield fleet, hub
        finally:
            await fleet.close()
            await east.close()


@pytest.mark.req("W-10", "I-6", "I-8")
@pytest.mark.parametrize("stopped_first", [True, False], ids=["hub-stopped-first", "hub-running"])
@pytest.mark.parametrize("raised", [RAISED, ()], ids=["versions-raised", "versions-go-back"])
async def test_a_restored_snapshot_of_etcd_takes_nothing_away(
    stopped_first: bool, raised: tuple[str, ...], tmp_path: Path
) -> None:
    async with apart() as (fleet, api):
        east, backup = fleet.members["east"], tmp_path / "snapshot.db"
        pod = east.new_address()
        async with echoes((pod, 8080, "restored")):
            names = ("before-backup", "after-backup")
            for name in names:
                await east.endpoints(name, 8080, pod)
            await east.service("before-backup", http(8091))
            older = await ready(east, "before-backup", 8091)
            await api.kill_control_plane()
            api.save(backup)
            await api.start_control_plane()
            await east.service("after-backup", http(8092))
            younger = await ready(east, "after-backup", 8092)
            traffic = [Traffic(host=older, port=8091, kept=0), Traffic(host=younger, port=8092, kept=0)]
            for each in traffic:
                each.start()

            if stopped_first:
                await fleet.hub.kill()
            await api.kill_control_plane()
            api.restore(backup, *raised)
            await api.start_control_plane()
            if not stopped_first:
                # It starts over, and whatever runs it starts it again.
                assert await fleet.hub.ended() == 1
                assert "has been restored to an older state" in fleet.hub.log.read_text()
            await fleet.hub.start_ready()

            async def published_again() -> bool:
                there = await fleet.at_hub("east", "default.after-backup")
                return there is not None and there.status.address == younger

            await wait_until(published_again, "the agent has published what the snapshot did not have", timeout_s=120)
            # Longer than a hub keeps what it has never heard of.
            until = [each.count.sent + 70 * 20 for each in traffic]

            async def more() -> bool:
                return all(each.count.sent >= enough for each, enough in zip(traffic, until, strict=True))

            await wait_until(more, "traffic goes on", timeout_s=240)
            for each in traffic:
                await each.stop()
                assert (each.count.failed, each.count.failures) == (0, [])
            assert [await east.address(name) for name in names] == [older, younger]
            # Changes get through: every watch of the agent and of the hub is of what there is now.
            await east.delete("before-backup")
            await fleet.gone("east", "default.before-backup")
