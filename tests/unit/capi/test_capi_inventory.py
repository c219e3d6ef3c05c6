"""Which load balancers a change concerns, and what a view has."""

from __future__ import annotations

from typing import Any

import pytest
from capi_builders import cluster, group, lb, machine

from fairlead.api.meta import ObjectKey
from fairlead.capi.inventory import CapiInventory
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig

API = ObjectKey("fleet", "api")


def put(cache: Any, *objects: Any) -> None:
    """Have a cache show these objects, as its watch would."""
    for obj in objects:
        cache._store.put(obj)
        for callback in cache._callbacks:
            callback(None, obj)


@pytest.fixture
async def woken():
    keys: list[ObjectKey] = []
    async with Cluster(ClusterConfig(server="http://127.0.0.1:9"), name="management") as api:
        inventory = CapiInventory(api, wake=keys.append, look_s=1.0)
        inventory.targets.discovery.asked = True
        for cache in (inventory.targets.clusters, inventory.targets.machines):
            cache.served = cache.synced = True
        yield inventory, keys


@pytest.mark.req("C-44")
async def test_a_machine_concerns_the_load_balancers_of_its_cluster(woken):
    inventory, keys = woken
    put(inventory.load_balancers, lb(), lb("red", clusterName="red"))
    keys.clear()
    put(inventory.targets.machines, machine("m-1", "10.0.0.1"))
    assert keys == [API]


async def test_a_machine_concerns_a_load_balancer_of_another_cluster_that_reaches_it(woken):
    inventory, keys = woken
    put(inventory.load_balancers, lb("wide", clusterName="red", selector={"matchLabels": {"role": "x"}}))
    keys.clear()
    put(inventory.targets.machines, machine("m-1", labels={"role": "x"}), machine("m-2", labels={"role": "y"}))
    assert keys == [ObjectKey("fleet", "wide")]


async def test_groups_and_clusters_concern_their_load_balancer(woken):
    inventory, keys = woken
    put(inventory.load_balancers, lb())
    keys.clear()
    put(inventory.groups, group({}))
    put(inventory.targets.clusters, cluster())
    assert keys == [API, API]


async def test_a_load_balancer_without_a_cluster_concerns_nothing(woken):
    inventory, keys = woken
    put(inventory.load_balancers, lb(clusterName=""))
    assert keys == []
    assert inventory.view(API, authority="", probe=None) is None


async def test_a_view_has_all_that_belongs_to_it(woken):
    inventory, _keys = woken
    put(inventory.load_balancers, lb())
    put(inventory.groups, group({}))
    put(inventory.targets.clusters, cluster())
    put(inventory.targets.machines, machine("m-1"), machine("m-9", cluster="red"))
    view = inventory.view(API, authority="PEM", probe=None)
    assert [each.metadata.name for each in view.objects] == ["m-1"]
    assert (view.cluster.metadata.name, list(view.groups), view.incomplete) == ("blue", ["api"], "")


async def test_the_older_of_two_has_the_endpoint(woken):
    inventory, _keys = woken
    put(inventory.load_balancers, lb(), lb("second"), lb("third", additional=True))
    claims = {
        name: inventory.view(ObjectKey("fleet", name), authority="", probe=None).claimed_by
        for name in ("api", "second", "third")
    }
    assert claims == {"api": "", "second": "api", "third": ""}


async def test_without_cluster_api_a_sentence_says_what_to_install(woken):
    inventory, _keys = woken
    put(inventory.load_balancers, lb())
    inventory.targets.machines.served = False
    assert "install Cluster API" in inventory.targets.problem
    inventory.targets.machines.synced = False
    assert inventory.view(API, authority="", probe=None).incomplete


@pytest.mark.req("C-25")
async def test_the_older_load_balancer_has_an_endpoint_that_two_clusters_ask_for(woken):
    inventory, keys = woken
    shared = {"host": "192.0.2.9", "port": 6443}
    put(inventory.load_balancers, lb(endpoint=shared), lb("red", clusterName="red", endpoint=shared))
    assert ObjectKey("fleet", "api") in keys
    taken = {
        name: inventory.view(ObjectKey("fleet", name), authority="", probe=None).taken_by for name in ("api", "red")
    }
    assert taken == {"api": "", "red": "fleet/api"}
    # Several of one Cluster may share its name: that is how one takes the place of another.
    put(inventory.load_balancers, lb("next", endpoint=shared, additional=True))
    assert inventory.view(ObjectKey("fleet", "next"), authority="", probe=None).taken_by == ""
