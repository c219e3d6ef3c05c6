"""The status of a pool: what a deletion in between means."""

from __future__ import annotations

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
        pools._changed(None, obj)
        gone = {"name": "edge", "kind": "addresspools"}
        api.answer(lambda seen: seen.method == "PATCH", 404, "NotFound", "it is gone", details=gone)
        assert await pools.reconcile("edge") is None
        assert [seen.path for seen in api.seen] == [f"{ADDRESS_POOLS.path('', 'edge')}/status"]
