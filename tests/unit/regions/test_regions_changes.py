"""Which keys a change concerns: the regions of a slice, a node and a pool, and no others; caches are filled by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from regions_builders import RegionKey, node, pool_service, service, slice_of

from fairlead.api.meta import ObjectMeta
from fairlead.api.poolservice import NodePool, NodePoolSpec
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.regions.inventory import Changes, RegionsInventory

KEY = ("default", "test")
EAST, WEST = RegionKey(*KEY, "east"), RegionKey(*KEY, "west")


class Region:
    """An inventory and the keys that a change of it concerned."""

    def __init__(self) -> None:
        cluster = Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub")
        self.inventory = RegionsInventory(cluster)
        changes = Changes(cluster=cluster, inventory=self.inventory)
        self.node_pools = self.inventory.node_pools[0]
        self.services: list[Any] = []
        self.access: list[Any] = []
        self.regions: list[Any] = []
        self.pools: list[Any] = []
        changes.on_service.append(self.services.append)
        changes.on_access.append(self.access.append)
        changes.on_region.append(self.regions.append)
        changes.on_pools.append(self.pools.append)
        self.changes = changes

    def change(self, cache: WatchCache[Any], new: Any, old: Any = None) -> None:
        for keys in (self.services, self.access, self.regions, self.pools):
            keys.clear()
        if new is not None:
            cache._store.put(new)
        else:
            cache._store.remove(old.key)
        cache._notify(old, new)


def node_pool(name: str) -> NodePool:
    meta = ObjectMeta(name=name, uid=f"uid-{name}", labels={"app": "deploy"})
    return NodePool(metadata=meta, spec=NodePoolSpec(node_selector={"region": name}))


@pytest.fixture
def region() -> Region:
    world = Region()
    for name in ("east", "west"):
        world.change(world.node_pools, node_pool(name))
    world.change(world.inventory.services, service())
    world.change(world.inventory.nodes, node("n1", region="east"))
    return world


def test_a_service_concerns_itself_and_its_access(region: Region):
    region.change(region.inventory.services, None, service())
    assert (region.services, region.access) == ([KEY], [KEY])


def test_a_slice_concerns_the_regions_of_its_nodes(region: Region):
    region.change(region.inventory.slices, slice_of(("10.0.0.1", "n1", True)))
    assert region.regions == [EAST]


def test_a_slice_of_a_service_that_is_not_ours_concerns_nothing(region: Region):
    region.change(region.inventory.slices, slice_of(("10.0.0.1", "n1", True), service_name="other"))
    assert region.regions == []


def test_a_node_that_moves_concerns_the_region_of_before_and_the_one_of_now(region: Region):
    region.change(region.inventory.slices, slice_of(("10.0.0.1", "n1", True)))
    region.change(region.inventory.nodes, node("n1", region="west"), node("n1", region="east"))
    assert region.regions == [EAST, WEST]
    region.change(region.inventory.nodes, node("n1", region="west"), node("n1", region="west"))
    assert region.regions == []


def test_a_pool_that_comes_or_goes_concerns_the_services_that_select_it(region: Region):
    region.change(region.node_pools, node_pool("north"))
    north = RegionKey(*KEY, "north")
    assert (region.regions, region.access, region.pools) == ([north], [KEY], ["north"])
    region.change(region.node_pools, node_pool("north"), node_pool("north"))
    assert (region.regions, region.pools) == ([], [])
    region.change(region.node_pools, None, node_pool("north"))
    assert (region.regions, region.pools) == ([north], ["north"])


def test_a_kind_of_pools_that_is_dropped_takes_its_pools_with_it(region: Region):
    region.changes.drop_node_pools(region.node_pools)
    assert region.inventory.pools == {}


def test_a_pool_service_concerns_its_service_when_more_than_its_status_changed(region: Region):
    old = pool_service("test", "east")
    region.change(region.inventory.pool_services, old)
    assert (region.services, region.access) == ([KEY], [KEY])
    new = pool_service("test", "east", ingress=("192.0.2.1",), version="2")
    region.change(region.inventory.pool_services, new, old)
    assert region.services == [KEY]
    region.change(region.inventory.pool_services, msgspec.structs.replace(new), new)
    assert region.services == []
