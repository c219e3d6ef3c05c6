"""The tables of the page, from real caches of a real API server: a change marks its key, an item is what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

import pytest

from fairlead.api.hostname import HOSTNAMES
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES
from fairlead.api.multicluster import ExportedService, ImportedService
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.tenant import TENANTS
from fairlead.hub.inventory import IntentObjects, Inventory
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.model.keys import LoadBalancerKey
from fairlead.page.board import VisibleItem
from fairlead.page.tables import (
    LoadBalancers,
    Members,
    Objects,
    Proxies,
    SetServices,
    ThisHub,
    certificate_item,
    detail_of,
    name_item,
)
from fairlead.status.fleet import ProxyRow, SetKey
from fairlead.testing.builders import decoded, tenant
from fairlead_demo.worlds.processes import wait_until
from tests.fleet_objects import NOW


def item(shown: VisibleItem | None) -> Any:
    """Return what is shown: each table has items of its own type."""
    assert shown is not None
    return shown.item


def answers(check):
    async def ask():
        return check()

    return ask


@pytest.mark.req("OP-10")
async def test_load_balancers_and_members_follow_their_caches(cluster):
    inventory = Inventory(cluster)
    cache: WatchCache[TCPLoadBalancer] = WatchCache(cluster, TCP_LOAD_BALANCERS, indexes=IntentObjects.indexes())
    inventory.register(
        IntentObjects(cache, TCP_LOAD_BALANCERS, serves=lambda _lb: True, recorded=lambda lb: lb.status.accepted)
    )
    marked: list[tuple[str, Hashable]] = []
    tables = [LoadBalancers(inventory), Members(inventory, lambda: NOW),
              Objects("certificate", inventory.managed, MANAGED_CERTIFICATES, lambda obj: certificate_item(obj, NOW)),
              Objects("name", inventory.hostnames, HOSTNAMES, name_item)]  # fmt: skip
    for table in tables:
        table.watch(lambda key, name=table.table: marked.append((name, key)))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.run()) for each in (cache, inventory.tenants)]
        await cluster.create(NAMESPACES, {"metadata": {"name": "tenant-east"}})
        await cluster.create(TENANTS, {"metadata": {"name": "east"}, "spec": {"region": "eu"}})
        body = {"metadata": {"namespace": "tenant-east", "name": "shop.web"}, "spec": {"ports": [{"port": 80}]}}
        await cluster.create(TCP_LOAD_BALANCERS, body)
        key = ("TCPLoadBalancer", "tenant-east", "shop.web")
        await wait_until(answers(lambda: ("lb", key) in marked and ("member", "east") in marked), "both are marked")
        assert list(tables[0].all_keys()) == [key]
        shown = tables[0].visible_item(key)
        assert (shown.resource, shown.namespace) == ("tcploadbalancers", "tenant-east")
        assert (item(shown).member, item(shown).region, item(shown).reason) == ("east", "eu", "Pending")
        assert item(tables[1].visible_item("east")).connection == "Pending"
        assert detail_of(LoadBalancerKey(*key), None, inventory).conditions == []
        marked.clear()
        await cluster.merge_patch(TENANTS, "", "east", {"spec": {"region": "us"}})
        await wait_until(answers(lambda: ("lb", key) in marked), "its load balancers are marked")
        assert item(tables[0].visible_item(key)).region == "us"
        await cluster.delete(TCP_LOAD_BALANCERS, "tenant-east", "shop.web")
        await wait_until(answers(lambda: tables[0].visible_item(key) is None), "it is gone")
        assert detail_of(LoadBalancerKey(*key), None, inventory) is None
        for task in tasks:
            task.cancel()


@pytest.mark.req("MC-1", "OP-10")
async def test_what_a_cluster_set_shares_follows_exports_imports_and_tenants():
    inventory = Inventory(Cluster(ClusterConfig(server="http://192.0.2.1", sign_in=bearer("none")), name="hub"))
    table, marked = SetServices(inventory), set[Hashable]()
    table.watch(marked.add)

    def put(cache: Any, new: Any, old: Any = None) -> None:
        marked.clear()
        cache._notify(cache._store.put(new), new)

    def shared(kind: type[Any], member: str, **status: object) -> Any:
        meta, spec = {"name": "shop.web", "namespace": f"tenant-{member}"}, {"namespace": "shop", "name": "web"}
        return decoded({"metadata": meta, "spec": spec, "status": status}, kind)

    def rows() -> list[tuple[object, ...]]:
        items = [item(table.visible_item(key)) for key in sorted(table.all_keys(), key=str)]
        return [(each.service, each.cluster_set, each.exported_by, each.imported_by, each.reason) for each in items]

    for name in ("east", "west"):
        put(inventory.tenants, tenant(name, spec={"clusterSet": "prod"}))
    ready = {"type": "Ready", "status": "True", "reason": "Exported", "message": ""}
    put(inventory.exports, shared(ExportedService, "west", conditions=[ready]))
    key = SetKey("shop", "web", "prod")
    assert marked == {key}
    put(inventory.imports, shared(ImportedService, "east"))
    assert marked == {key}
    assert rows() == [("shop/web", "prod", ("west",), ("east",), "Exported")]
    # Another set: nothing is shared with the first one any longer.
    put(inventory.tenants, tenant("west", spec={"clusterSet": "test"}))
    assert marked == {key, SetKey("shop", "web", "test")}
    assert rows() == [("shop/web", "prod", (), ("east",), "Pending"), ("shop/web", "test", ("west",), (), "Exported")]
    put(
        inventory.exports,
        shared(ExportedService, "west", conditions=[{**ready, "status": "False", "message": "it is not"}]),
    )
    shown = table.visible_item(SetKey("shop", "web", "test"))
    assert (item(shown).state, item(shown).problems) == ("NeedsAttention", ("it is not",))
    assert shown.resource == "tenants", "who may not list members does not see what they share"


def test_proxies_come_and_go():
    rows = [ProxyRow("a", "local", "SYNCED"), ProxyRow("b", "local", "STALE", 2)]
    table = Proxies(lambda: rows)
    assert list(table.all_keys()) == ["a", "b"]
    assert (item(table.visible_item("a")).state, item(table.visible_item("b")).state) == ("Serving", "NeedsAttention")
    del rows[0]
    assert list(table.all_keys()) == ["b"]
    assert table.visible_item("a") is None


def test_the_hub_says_whether_it_leads_and_what_is_missing():
    reasons = ["tenants: not read yet"]
    hub = ThisHub(identity="h", version="1", started="", leading=lambda: False, problems=lambda: reasons)
    shown = hub.visible_item(next(iter(hub.all_keys())))
    assert (item(shown).problems, item(shown).leading, shown.resource) == (("tenants: not read yet",), False, "")


@pytest.mark.parametrize(
    ("leads", "holder", "leader"),
    [(True, "h", ""), (False, "other", "other"), (False, "", ""), (False, "h", "")],
    ids=["it leads", "another one leads", "none leads", "it has lost the lease"],
)
def test_the_hub_says_which_one_leads_instead_of_it(leads, holder, leader):
    hub = ThisHub(identity="h", version="1", started="", leading=lambda: leads, leader=lambda: holder, problems=list)
    assert (item(hub.visible_item("h")).leading, item(hub.visible_item("h")).leader) == (leads, leader)
