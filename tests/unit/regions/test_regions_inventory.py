"""What layer 1 reads: which pools, Services, PoolServices and nodes belong together; caches are filled by hand."""

from __future__ import annotations

from typing import Any

import pytest
from regions_builders import node, pool, pool_service, service, slice_of

from fairlead.api.poolservice import NODE_POOLS
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.regions.inventory import RegionsInventory
from fairlead.regions.source import claims_of
from fairlead.testing.builders import decoded, lb_class

KEY = ("default", "test")
OURS = "fairlead.dev/edge"


@pytest.fixture
async def inventory() -> RegionsInventory:
    return RegionsInventory(Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="member"))


async def test_the_pool_services_of_a_service_are_those_labelled_with_it(inventory: RegionsInventory) -> None:
    for each in (pool_service("test", "west"), pool_service("test", "east"), pool_service("other", "east")):
        inventory.pool_services._store.put(each)
    assert [region.pool for region, _ in inventory.pool_services_of(KEY)] == ["east", "west"]


async def test_concerned_services_are_current_or_have_a_pool_service(inventory: RegionsInventory) -> None:
    for each in (service("test"), service("plain", selector=None)):
        inventory.services._store.put(each)
    inventory.pool_services._store.put(pool_service("gone", "east"))
    assert inventory.service_keys() == [("default", "gone"), ("default", "test")]
    assert [inventory.is_managed(("default", name)) for name in ("test", "plain", "gone")] == [True, False, False]


@pytest.mark.parametrize(
    ("class_name", "annotations", "of_class", "expected"),
    [
        ("elb", {}, "", True),
        (OURS, {}, "", False),
        (OURS, {}, "Node", True),
        (OURS, {}, "Pod", False),
        (OURS, {"fairlead.dev/target": "Node"}, "Pod", True),
        (OURS, {"fairlead.dev/target": "Pod"}, "Node", False),
    ],
)
async def test_nodes_are_backends_where_the_service_or_its_class_asks_for_them(
    inventory: RegionsInventory, class_name: str, annotations: dict[str, str], of_class: str, expected: bool
) -> None:
    if of_class:
        inventory.classes._store.put(lb_class("edge", spec={"targets": of_class}))
    assert inventory.uses_nodes(service(class_name=class_name, annotations=annotations)) is expected


async def test_nodes_of_a_pool_are_those_that_it_has_got(inventory: RegionsInventory) -> None:
    for name in ("n2", "n1", "n3"):
        each = node(name, region="east" if name != "n3" else "west")
        inventory.nodes._store.put(each)
        inventory.membership.put(name, claims_of(each, [pool("east"), pool("west")]))
    assert [each.name for each in inventory.nodes_in("east")] == ["n1", "n2"]
    assert inventory.nodes_in("none") == []


async def test_backends_of_a_region_are_the_endpoints_on_its_nodes(inventory: RegionsInventory) -> None:
    for name, region in (("n1", "east"), ("n2", "west")):
        inventory.membership.put(name, claims_of(node(name, region=region), [pool("east"), pool("west")]))
    inventory.slices._store.put(slice_of(("10.0.0.1", "n1", True), ("10.0.0.2", "n2", True)))
    text = str(inventory.backends(service(class_name=OURS), "east", []))
    assert "10.0.0.1" in text
    assert "10.0.0.2" not in text


async def test_of_two_kinds_of_pools_the_later_one_counts(inventory: RegionsInventory) -> None:
    cluster = Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="member")
    for region in ("first", "second"):
        cache: WatchCache[Any] = WatchCache(cluster, NODE_POOLS)
        cache._store.put(
            decoded({"metadata": {"name": "east", "uid": region}, "spec": {"region": region}}, NODE_POOLS.type)
        )
        inventory.node_pools.append(cache)
    read = inventory.read_pool("east")
    assert read is not None
    assert read.region == "second"
    assert inventory.read_pool("west") is None


async def test_one_broken_cache_is_a_problem_of_the_view(inventory: RegionsInventory) -> None:
    inventory.nodes.problem = "unreachable"
    assert inventory.problem == "unreachable"
