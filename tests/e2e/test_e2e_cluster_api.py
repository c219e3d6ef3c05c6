"""The control plane of a cluster of Cluster API, with real processes: API, hub with Envoy, controller, machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead_demo.worlds.machines import NAME, ManagementWorld
from fairlead_demo.worlds.processes import fairlead
from tests.left_running import passed_demo

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


@pytest.mark.req("C-32", "C-39", "C-40", "C-45", "C-46", "C-50", "C-61", "C-64", "C-65", "T-C-13", "T-C-20")
async def test_the_demo_of_cluster_api_passes_and_leaves_no_process_behind() -> None:
    """An endpoint before the first machine, a disabled machine, a rolling replacement, a dead hub: no request fails."""
    await passed_demo(fairlead("demo", "cluster-api", "--plain"))


@pytest.mark.req("C-61", "C-62", "C-65")
async def test_health_checks_verify_the_authority_of_the_cluster(tmp_path: Path) -> None:
    world = ManagementWorld(tmp_path)
    try:
        await world.start()
        await world.create_cluster()
        good = await world.start_machine()
        await world.until_active(good.name)
        check = (await world.load_balancer()).spec.health_check
        assert check is not None
        assert check.ca_bundle == world.authority.decode()
        # It listens, and answers; but what it shows is not signed by the authority of this cluster.
        world.renew_certificate()
        imposter = await world.start_machine()

        async def seen() -> bool:
            status = (await world.load_balancer()).status
            return status.unhealthy_targets == [f"{imposter.address}:6443 (TCP/6443)"] and status.active_targets == 1

        await world.wait(seen, f"{imposter.name} of {NAME} is seen to be unhealthy")
    finally:
        await world.close()
