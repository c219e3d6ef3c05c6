"""The Services of a cluster set that a change at the hub concerns, and what is written when something is not known."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from fairlead.api.kubernetes import ENDPOINT_SLICES, NAMESPACES, EndpointSlice
from fairlead.api.meta import ObjectKey
from fairlead.api.multicluster import EXPORTED_SERVICES, IMPORTED_SERVICES, ExportedService, ImportedService
from fairlead.api.names import LABEL_EXPORT, LABEL_SLICE_MANAGED_BY, SLICE_MANAGED_BY
from fairlead.errors import Retry
from fairlead.hub.intents.tcp import TCPObjects
from fairlead.hub.inventory import Inventory
from fairlead.hub.tenants.cluster_sets import ClusterSets
from fairlead.hub.tenants.tenants import MemberHealth
from fairlead.kube.cluster import Cluster, Undecodable
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import decoded, tcp, tenant
from tests.scenario.installed_kinds import server_with_kinds

ORIGIN = {"fairlead.dev/origin-namespace": "shop", "fairlead.dev/origin-name": "web"}


class Watched:
    """The parts of a hub that decide about cluster sets, by default without a server."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        cluster = cluster or Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub", clock=VirtualClock())
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
async def test_slices_of_exports_and_deleted_ones_of_imports_concern_their_service(watched: Watched) -> None:
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


# --- what is written --------------------------------------------------------------------------------------------------

TOKEN = "for-these-tests-only"
KEY = ("shop", "web")


class Written(Watched):
    """The same at a real API; ``run`` is one pass of a hub that has just read everything."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.cluster = cluster

    def join(self, name: str, **spec: Any) -> None:
        self.inventory.tenants._store.put(tenant(name, spec={"clusterSet": "prod", "reachability": "Pods", **spec}))

    def lose(self, cache: Any, key: ObjectKey, body: Any) -> None:
        """Have an object that was never readable."""
        cache._store.remove(key)
        cache.broken[key] = Undecodable("not readable", msgspec.json.encode(body))

    async def home(self, *names: str) -> None:
        for name in names:
            await self.cluster.create(NAMESPACES, {"metadata": {"name": f"tenant-{name}"}})

    async def export(self, name: str, pod: str, *ports: str, at: str = "2030-01-01T00:00:00Z") -> None:
        meta = {"name": "shop.web", "namespace": f"tenant-{name}"}
        listed = [{"name": port, "port": 80 + number} for number, port in enumerate(ports)]
        spec = {"namespace": "shop", "name": "web", "ports": listed, "ipFamilies": ["IPv4"], "exportedAt": at}
        await self.cluster.apply(EXPORTED_SERVICES, {"metadata": meta, "spec": spec}, manager="agent")
        labels = {**ORIGIN, LABEL_EXPORT: "shop.web", LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY}
        body = {
            "metadata": {**meta, "name": "web-1", "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [pod]}],
            "ports": listed,
        }
        await self.cluster.apply(ENDPOINT_SLICES, body, manager="agent")

    async def run(self) -> None:
        inventory = self.inventory
        for cache in (inventory.exports, inventory.imports, inventory.slices, inventory.import_slices):
            lost = dict(cache.broken)
            await cache.refresh()
            for key, why in lost.items():
                cache._store.remove(key)
                cache.broken[key] = why
        for cache in inventory.caches.values():
            cache.problem = ""
        await self.sets.reconcile(KEY)

    async def imports(self) -> dict[str, list[str]]:
        """Return the ports that each member imports."""
        objects = await self.cluster.list(IMPORTED_SERVICES)
        return {obj.metadata.namespace: [port.name for port in obj.spec.ports] for obj in objects}

    async def endpoints(self, name: str) -> list[str]:
        slices = await self.cluster.list(ENDPOINT_SLICES, f"tenant-{name}", label_selector="fairlead.dev/import")
        endpoints = [endpoint for endpoint_slice in slices for endpoint in endpoint_slice.endpoints or ()]
        return sorted(address for endpoint in endpoints for address in endpoint.addresses or ())

    async def answer(self, name: str) -> list[str]:
        export = await self.cluster.get(EXPORTED_SERVICES, f"tenant-{name}", "shop.web")
        return [condition.reason for condition in export.status.conditions or ()]


@pytest.fixture
async def written() -> AsyncGenerator[Written]:
    """A set of west and east, which both export Service shop/web; port ``metrics`` is served by west alone."""
    server = await server_with_kinds(admin_token=TOKEN)
    config = ClusterConfig(server=await server.start(), sign_in=bearer(TOKEN))
    try:
        async with Cluster(config, name="hub") as cluster:
            hub = Written(cluster)
            await hub.home("west", "east")
            for name in ("west", "east"):
                hub.join(name)
            await hub.export("west", "10.1.0.1", "http", "metrics")
            await hub.export("east", "10.2.0.1", "http", at="2030-01-02T00:00:00Z")
            await hub.run()
            assert await hub.imports() == {"tenant-west": ["http", "metrics"], "tenant-east": ["http", "metrics"]}
            yield hub
    finally:
        await server.stop()


def named(name: str, of: str = "shop.web") -> ObjectKey:
    return ObjectKey(f"tenant-{name}" if name else "", of)


@pytest.mark.req("MC-1")
async def test_a_member_without_a_namespace_does_not_stop_those_after_it(written: Written) -> None:
    for name in ("a-new", "north"):
        written.join(name)
    await written.home("north")
    with pytest.raises(Retry):
        await written.run()
    assert await written.endpoints("north") == ["10.1.0.1", "10.2.0.1"]
    await written.home("a-new")
    await written.run()
    assert await written.endpoints("a-new") == ["10.1.0.1", "10.2.0.1"]


@pytest.mark.req("MC-4")
@pytest.mark.parametrize("what", ["export", "tenant", "address"])
async def test_what_cannot_be_read_takes_nothing_from_an_import(written: Written, what: str) -> None:
    inventory, before = written.inventory, await written.imports()
    match what:
        case "export":
            written.lose(inventory.exports, named("west"), {"spec": {"ports": "many"}})
        case "tenant":
            spec = {"clusterSet": "prod", "reachability": 1, "targetRanges": ["10.1.0.0/16"]}
            written.lose(inventory.tenants, named("", "west"), {"metadata": {"name": "west"}, "spec": spec})
        case _:
            written.join("west", reachability="Hub")
            shown = {"address": "192.0.2.7", "conditions": [{"type": "Programmed", "status": "True"}]}
            written.change(written.tcp.cache, tcp("shop.web", namespace="tenant-west", status=shown))
            await written.run()
            written.lose(written.tcp.cache, named("west"), {"spec": {"ports": "many"}})
    kept, answer = set(await written.endpoints("east")) - {"10.2.0.1"}, await written.answer("west")
    assert len(kept) == 1
    await written.export("east", "10.2.0.9", "http", at="2030-01-02T00:00:00Z")
    await written.run()
    assert await written.imports() == before
    assert set(await written.endpoints("east")) == {*kept, "10.2.0.9"}, "the endpoints of others are current"
    assert await written.answer("west") == answer


@pytest.mark.req("MC-3")
async def test_the_address_of_an_exporter_stays_while_no_proxy_is_connected(written: Written) -> None:
    written.join("west", reachability="Hub")
    conditions = [{"type": "Programmed", "status": "True"}]
    for _ in range(2):
        status = {"address": "192.0.2.7", "conditions": conditions}
        written.change(written.tcp.cache, tcp("shop.web", namespace="tenant-west", status=status))
        await written.run()
        assert await written.endpoints("east") == ["10.2.0.1", "192.0.2.7"]
        conditions = [{"type": "Programmed", "status": "False", "reason": "NoProxyConnected"}]


@pytest.mark.req("MC-2")
async def test_a_member_whose_namespaces_cannot_be_read_gets_nothing_new(written: Written) -> None:
    await written.home("north")
    spec = {"clusterSet": "prod", "clusterSetNamespaces": "elsewhere"}
    written.lose(written.inventory.tenants, named("", "north"), {"metadata": {"name": "north"}, "spec": spec})
    await written.run()
    assert "tenant-north" not in await written.imports()
    other = {"metadata": {"name": "north"}, "spec": {"clusterSet": "prod", "maxPorts": "many"}}
    written.lose(written.inventory.tenants, named("", "north"), other)
    await written.run()
    assert await written.endpoints("north") == ["10.1.0.1", "10.2.0.1"], "what its set needs is known"


@pytest.mark.req("MC-4")
@pytest.mark.parametrize(("of", "kept"), [("west", True), ("north", False)])
async def test_an_unreadable_slice_holds_the_endpoints_of_its_exporter(written: Written, of: str, kept: bool) -> None:
    written.inventory.slices.broken[named(of, "other-slice")] = "not readable"
    await written.cluster.delete(ENDPOINT_SLICES, "tenant-west", "web-1")
    await written.run()
    assert ("10.1.0.1" in await written.endpoints("east")) is kept


@pytest.mark.req("MC-4")
@pytest.mark.parametrize("what", ["export", "slice", "load balancer", "tenant"])
async def test_an_object_that_becomes_readable_concerns_its_service(what: str) -> None:
    def lost(watched: Watched) -> tuple[Any, ObjectKey]:
        watched.inventory.exports._store.put(shared(ExportedService))
        inventory = watched.inventory
        return {
            "export": (inventory.exports, named("east")),
            "slice": (inventory.slices, named("west", "slice")),
            "load balancer": (watched.tcp.cache, named("west")),
            "tenant": (inventory.tenants, named("", "west")),
        }[what]

    unreadable, readable = Watched(), Watched()
    cache, key = lost(unreadable)
    cache.broken[key] = "not readable"
    assert len(unreadable.sets.queue) == 1
    cache, key = lost(readable)
    cache.broken._reasons[key] = "not readable"
    del cache.broken[key]
    assert len(readable.sets.queue) == 1
