"""A cluster that Cluster API's own controllers make, scale, upgrade and delete behind a load balancer of Fairlead.

`make test-cluster-api` builds the controllers with Go, and runs this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from conformance import clusterapi
from fairlead.api.kinds import all_crds
from fairlead_demo.worlds.https_client import HttpsClient
from fairlead_demo.worlds.traffic import Traffic
from tests.e2e.conftest import working_directory
from tests.e2e.e2e_capi_machines import machines_network
from tests.e2e.e2e_capi_world import ENDPOINT, PORT, RealClusterApi
from tests.e2e.e2e_real_apis import assets_directory, own_network, why_not_real

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.real_api, pytest.mark.timeout(1800)]

OLD, NEW = "v1.35.0", "v1.36.0"
#: What stays when the last cluster is gone.
_LASTING = {"loadbalancerclasses"}


@pytest.fixture
def network() -> Iterator[str]:
    if why := clusterapi.why_not() or why_not_real():
        pytest.skip(why)
    with ExitStack() as stack:
        stack.enter_context(own_network())
        yield stack.enter_context(machines_network())


@pytest.fixture
async def world(network: str) -> AsyncIterator[RealClusterApi]:
    assets = assets_directory()
    assert assets is not None
    with working_directory() as directory:
        world = RealClusterApi(directory, clusterapi.directory(), assets, network)
        try:
            await world.start()
            yield world
        finally:
            await world.close()


@pytest.mark.req("C-4", "C-32", "C-35", "C-43", "C-45", "C-46", "C-49", "C-50", "C-61", "T-C-13", "T-C-15", "T-C-20")
async def test_real_controllers_scale_upgrade_and_delete_a_control_plane(world: RealClusterApi) -> None:
    await world.create_cluster(OLD)

    async def published() -> bool:
        return await world.endpoint() == f"{ENDPOINT}:{PORT}"

    # The endpoint is there before the first machine, and before any infrastructure.
    await world.wait(published, "the Cluster has the endpoint of its load balancer")
    assert await world.machines() == []
    await world.provide_infrastructure()
    await world.until_serving(1, OLD)

    client = HttpsClient("localhost", await world.authority())
    traffic = Traffic(host=ENDPOINT, port=PORT, authority=f"{ENDPOINT}:{PORT}", connect=client.connect)
    # A connection that is kept lasts as long as its machine: load balancers of connections move none to another.
    world.instances.ending = traffic.kept_connections_end
    traffic.start()
    await world.change_control_plane(replicas=3)
    await world.until_serving(3, OLD)
    before = {each.metadata.name for each in await world.machines()}
    await world.change_control_plane(version=NEW)
    await world.until_serving(3, NEW)
    after = {each.metadata.name for each in await world.machines()}
    assert not before & after
    await world.change_control_plane(replicas=1)
    await world.until_serving(1, NEW)
    await traffic.stop()
    assert traffic.count.failed == 0, traffic.count.failures
    assert traffic.count.answered > 0
    assert len(world.instances.ended) == 5

    await world.delete_cluster()
    await world.wait(lambda: _none_left(world), "nothing of the cluster is left")
    # No backend is left in the proxy either.
    assert await world.hub.envoy_hosts() == set()


async def _none_left(world: RealClusterApi) -> bool:
    """Return whether no object of Fairlead is left but what an operator made."""
    for crd in all_crds():
        plural, version = crd["spec"]["names"]["plural"], crd["spec"]["versions"][0]["name"]
        listed = await world.read(f"/apis/{crd['spec']['group']}/{version}/{plural}")
        if plural not in _LASTING and listed.get("items"):
            return False
    return True
