"""The status of a pool: what a deletion in between means."""

from __future__ import annotations

import json

import pytest

from fairlead.api.addresspool import ADDRESS_POOLS, AddressPool
from fairlead.hub.inventory import Inventory
from fairlead.hub.tenants.addresses import AddressPools
from fairlead.testing.builders import decoded
from tests.unit.kube.kube_scripted import ScriptedApi


async def test_the_status_of_a_deleted_pool_is_not_an_error():
    async with ScriptedApi() as api, api.cluster(name="hub") as cluster:
        inventory = Inventory(cluster)
        pools = AddressPools(cluster=cluster, inventory=inventory, own_pool=None, leading=lambda: True)
        body = {"metadata": {"name": "edge", "uid": "u"}, "spec": {"addresses": ["192.0.2.0/29"]}}
        inventory.address_pools._store.put(obj := decoded(body, AddressPool))
        pools._changed(obj.metadata.name)
        gone = {"name": "edge", "kind": "addresspools"}
        api.answer(lambda seen: seen.method == "PATCH", 404, "NotFound", "it is gone", details=gone)
        assert await pools.reconcile("edge") is None
        assert [seen.path for seen in api.seen] == [f"{ADDRESS_POOLS.path('', 'edge')}/status"]


async def test_counts_of_a_pool_are_gathered_and_a_refusal_is_written_at_once():
    async with ScriptedApi() as api, api.cluster(name="hub") as cluster:
        inventory = Inventory(cluster)
        pools = AddressPools(cluster=cluster, inventory=inventory, own_pool=None, leading=lambda: True)
        spec = {"addresses": ["192.0.2.0/29"]}
        accepted = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}
        body = {"metadata": {"name": "edge", "uid": "u"}, "spec": spec, "status": {"size": 4, "conditions": [accepted]}}
        inventory.address_pools._store.put(obj := decoded(body, AddressPool))
        pools._changed(obj.metadata.name)
        wait_s = await pools.reconcile("edge")
        assert (wait_s or 0.0) > 0
        assert api.seen == []
        wrong = {
            "metadata": {**body["metadata"], "generation": 2},
            "spec": {"addresses": ["x"]},
            "status": body["status"],
        }
        inventory.address_pools._store.put(refused := decoded(wrong, AddressPool))
        pools._changed(refused.metadata.name)
        gone = {"name": "edge", "kind": "addresspools"}
        api.answer(lambda seen: seen.method == "PATCH", 404, "NotFound", "it is gone", details=gone)
        assert await pools.reconcile("edge") is None
        assert [seen.method for seen in api.seen] == ["PATCH"]


@pytest.mark.req("F-25")
async def test_a_generation_that_only_our_own_write_shows_is_not_observed():
    """The answer to a write may have a newer spec than the watch, which nothing has been decided about."""
    async with ScriptedApi() as api, api.cluster(name="hub") as cluster:
        inventory = Inventory(cluster)
        pools = AddressPools(cluster=cluster, inventory=inventory, own_pool=None, leading=lambda: True)
        meta = {"name": "edge", "uid": "u", "generation": 1, "resourceVersion": "5"}
        body = {"metadata": meta, "spec": {"addresses": ["192.0.2.0/29"]}}
        inventory.address_pools._store.put(obj := decoded(body, AddressPool))
        pools._changed(obj.metadata.name)
        newer = {**body, "metadata": {**meta, "generation": 2, "resourceVersion": "9"}, "spec": {"addresses": ["x"]}}
        pools._present.written(decoded(newer, AddressPool), before=obj)
        gone = {"name": "edge", "kind": "addresspools"}
        api.answer(lambda seen: seen.method == "PATCH", 404, "NotFound", "it is gone", details=gone)
        await pools.reconcile("edge")
        (seen,) = api.seen
        status = json.loads(seen.body)["status"]
        generations = [status["observedGeneration"], *(each["observedGeneration"] for each in status["conditions"])]
        assert generations == [1, 1, 1], status
