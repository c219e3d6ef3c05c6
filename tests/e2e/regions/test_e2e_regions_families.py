"""A Service of both families in a region: its access point there is an address of each, and both answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fairlead.api.kubernetes import SERVICES
from fairlead.api.names import ANNOTATION_NODEPOOL_SELECTOR, DEFAULT_CLASS, LOAD_BALANCER_CLASS_PREFIX
from fairlead_demo.worlds.apis import Apis
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.networks import LoopbackNetworks, RegionNetwork
from fairlead_demo.worlds.objects import ready_endpoint, write_slice
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.regions import SERVICE, RegionsWorld
from fairlead_demo.worlds.workload import POD_PORT
from tests.e2e.conftest import working_directory
from tests.e2e.e2e_backends import answers, echoes, refused

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.req("O-20", "K-4", "OP-12")]

#: The one IPv6 address that every machine has.
V6 = "::1"
POD = "a pod of the region"


class TwoFamilies(LoopbackNetworks):
    """Networks that the API server allows as endpoints; the pool of a region has an IPv6 address, too."""

    def __init__(self, apis: Apis) -> None:
        super().__init__()
        self._apis = apis

    def add(self, region: str) -> RegionNetwork:
        network = super().add(region)
        network.pods, network.pool = self._apis.network(1), f"{self._apis.network(200)}.0/24,{V6}/128"
        return network


@pytest.fixture
async def world(one_cluster: Apis) -> AsyncIterator[RegionsWorld]:
    with working_directory() as directory:
        world = RegionsWorld(directory, TwoFamilies(one_cluster), one_cluster)
        try:
            yield world
        finally:
            await world.close()


async def shown(world: RegionsWorld, *, count: int) -> list[str]:
    """Wait until the Service shows so many addresses; returns them in its order."""

    async def ingress() -> list[str]:
        service = await world.cluster.get(SERVICES, "default", SERVICE)
        return [each.ip for each in service.status.load_balancer.ingress or () if each.ip]

    async def enough() -> bool:
        return len(await ingress()) == count

    await wait_until(enough, f"the Service shows {count} addresses")
    return await ingress()


async def of_families(world: RegionsWorld, port: int, policy: str, *families: str) -> None:
    spec = {
        "type": "LoadBalancer",
        "loadBalancerClass": LOAD_BALANCER_CLASS_PREFIX + DEFAULT_CLASS,
        "ports": [{"port": port, "targetPort": POD_PORT}],
        "ipFamilyPolicy": policy,
        "ipFamilies": list(families),
    }
    meta = {"name": SERVICE, "namespace": "default", "annotations": {ANNOTATION_NODEPOOL_SELECTOR: "tier=edge"}}
    await world.cluster.apply(SERVICES, {"metadata": meta, "spec": spec}, manager="kubectl")


async def test_an_access_point_has_an_address_of_each_family_and_both_answer(world: RegionsWorld) -> None:
    port = free_port(V6)
    await world.start()
    region = await world.add_region("hangzhou", nodes=0)
    await world.put_node("hangzhou-1", region)
    pod = f"{region.network.pods}.9"
    async with echoes((pod, POD_PORT, POD)):
        await write_slice(world.cluster, SERVICE, [ready_endpoint(pod) | {"nodeName": "hangzhou-1"}], port=POD_PORT)
        await both_come_and_go(world, port)


async def both_come_and_go(world: RegionsWorld, port: int) -> None:
    await of_families(world, port, "RequireDualStack", "IPv4", "IPv6")
    four, six = await shown(world, count=2)
    assert (":" in four, six) == (False, V6)
    for address in (four, six):
        await answers(address, port, POD)

    await of_families(world, port, "SingleStack", "IPv4")
    assert await shown(world, count=1) == [four]
    assert await refused(V6, port)
    await answers(four, port, POD)

    await of_families(world, port, "PreferDualStack", "IPv4", "IPv6")
    assert await shown(world, count=2) == [four, V6]
    await answers(V6, port, POD)
