"""The Services of a cluster set that a change at the hub concerns: these, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.multicluster import ExportedService, ImportedService
from fairlead.hub.intents.tcp import TCPObjects
from fairlead.hub.inventory import Inventory
from fairlead.hub.tenants.cluster_sets import ClusterSets
from fairlead.hub.tenants.member_health import MemberHealth
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import decoded, tcp, tenant

ORIGIN = {"fairlead.dev/origin-namespace": "shop", "fairlead.dev/origin-name": "web"}


class Watched:
    """The parts of a hub that decide about cluster sets, without a server."""

    def __init__(self) -> None:
        cluster = Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub", clock=VirtualClock())
        self.leads = True
        self.inventory = Inventory(cluster)
        self.tcp = TCPObjects(cluster, self.inventory)
        self.sets = ClusterSets(
            cluster=cluster,
            inventory=self.inventory,
            member_health=MemberHealth(clock=cluster.clock, changed=lambda _namespace: None),
            clock=cluster.clock,
            leading=lambda: self.leads,
        )
        self.sets.watch()

    def change(self, cache: Any, new: Any, old: Any = None) -> bool:
        """Store an object as the cache would; return whether Service shop/web is reconciled."""
        if new is not None:
            cache._store.put(new)
        cache._notify(old, new)
        return len(self.sets.queue) > 0


@pytest.fixture
async def watched() -> Watched:
    return Watched()


def shared(kind: type[Any], namespace: str = "tenant-west", name: str = "shop.web") -> Any:
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": {"namespace": "shop", "name": "web"}}
    return decoded(body, kind)


@pytest.mark.req("MC-1")
async def test_an_export_is_reconciled_and_one_with_a_made_up_name_is_not(watched: Watched) -> None:
    exports = watched.inventory.exports
    assert not watched.change(exports, shared(ExportedService, name="made-up"))
    assert watched.change(exports, shared(ExportedService))


@pytest.mark.req("MC-4")
async def test_slices_of_exports_and_deleted_ones_of_imports_concern_their_service(
    watched: Watched,
) -> None:
    def labelled(label: str) -> EndpointSlice:
        meta = {"name": "s", "namespace": "tenant-west", "labels": {label: "shop.web", **ORIGIN}}
        return decoded({"metadata": meta}, EndpointSlice)

    assert watched.change(watched.inventory.slices, labelled("fairlead.dev/export"))
    copy, other = labelled("fairlead.dev/import"), Watched()
    assert not other.change(other.inventory.import_slices, copy), "the hub's own write"
    assert other.change(other.inventory.import_slices, None, copy)


@pytest.mark.req("MC-3")
async def test_an_address_of_the_hub_concerns_the_export_of_its_service(watched: Watched) -> None:
    load_balancer = tcp("shop.web", namespace="tenant-west")
    assert not watched.change(watched.tcp.cache, load_balancer)
    watched.inventory.exports._store.put(shared(ExportedService))
    assert watched.change(watched.tcp.cache, load_balancer)


@pytest.mark.req("MC-2")
async def test_a_tenant_concerns_exports_only_where_its_set_changes(watched: Watched) -> None:
    watched.inventory.imports._store.put(shared(ImportedService))
    before = tenant("west")
    assert not watched.change(watched.inventory.tenants, tenant("west", spec={"maxPorts": 3}), before)
    assert watched.change(watched.inventory.tenants, tenant("west", spec={"clusterSet": "prod"}), before)


@pytest.mark.req("MC-18")
async def test_a_member_that_changed_concerns_its_exports(watched: Watched) -> None:
    watched.inventory.exports._store.put(shared(ExportedService))
    watched.sets.member_changed("tenant-east")
    assert len(watched.sets.queue) == 0
    watched.sets.member_changed("tenant-west")
    assert len(watched.sets.queue) == 1


async def test_a_replica_that_does_not_lead_reconciles_nothing(watched: Watched) -> None:
    watched.leads = False
    assert not watched.change(watched.inventory.exports, shared(ExportedService))
