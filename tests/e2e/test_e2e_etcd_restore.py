"""The hub's etcd is restored from an older snapshot, under a real API server and traffic: nothing is taken away.

The member has an etcd of its own: what is restored is the hub's, and its Services stay.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead_demo.worlds.fleet import Fleet
from tests.e2e.e2e_backends import echoes, http, ready
from tests.e2e.e2e_real_apis import RealApis, assets_directory, own_network, why_not_real
from tests.e2e.e2e_restore import AFTER, BEFORE, PORTS, asked, none_failed, published_again, starts_over

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
            for name in PORTS:
                await east.endpoints(name, 8080, pod)
            await east.service(BEFORE, http(PORTS[BEFORE]))
            older = await ready(east, BEFORE, PORTS[BEFORE])
            await api.kill_control_plane()
            api.save(backup)
            await api.start_control_plane()
            await east.service(AFTER, http(PORTS[AFTER]))
            younger = await ready(east, AFTER, PORTS[AFTER])
            traffic = asked({BEFORE: older, AFTER: younger})

            if stopped_first:
                await fleet.hub.kill()
            await api.kill_control_plane()
            api.restore(backup, *raised)
            await api.start_control_plane()
            if stopped_first:
                await fleet.hub.start_ready()
            else:
                await starts_over(fleet)
            await published_again(fleet, younger)
            # Longer than a hub keeps what it has never heard of.
            await none_failed(traffic, more=70 * 20)
            assert [await east.address(name) for name in PORTS] == [older, younger]
            # Changes get through: every watch of the agent and of the hub is of what there is now.
            await east.delete(BEFORE)
            await fleet.gone("east", f"default.{BEFORE}")
