"""What an agent leaves alone in the member while something of the hub or the member cannot be read."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from agent_builders import engine_of

from fairlead.agent.sources.caches import MemberService, ServiceCaches
from fairlead.agent.sources.multicluster.source import MulticlusterCaches, MulticlusterSource
from fairlead.agent.sources.service.plan import Settings
from fairlead.api.kubernetes import CRDS, ENDPOINT_SLICES, NAMESPACES, SERVICES, Endpoint, EndpointSlice, Namespace
from fairlead.api.meta import ObjectKey, Resource, condition_of
from fairlead.api.multicluster import SERVICE_EXPORTS, SERVICE_IMPORTS, ExportedService, ImportedService
from fairlead.api.names import ANNOTATION_UNUSED_SINCE, LABEL_IMPORT, LABEL_MANAGED_BY, MANAGED_BY
from fairlead.api.times import wire_time
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.testing.builders import decoded
from podless import ApiServer

TOKEN = "for-these-tests-only"
META = {"name": "web", "namespace": "shop"}


def definition(kind: Resource[Any]) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": anything},
    }
    names = {"plural": kind.plural, "singular": kind.kind.lower(), "kind": kind.kind}
    spec = {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": kind.full_name}, "spec": spec}


class World:
    """An agent's source at a real member; the caches of the hub are filled by hand."""

    def __init__(self, member: Cluster) -> None:
        hub = Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub")
        self.member = member
        self.services = ServiceCaches(member=member, hub=hub, hub_namespace="tenant-east")
        self.caches = MulticlusterCaches(member=member, hub=hub, hub_namespace="tenant-east")
        self.caches.exports.served = self.caches.imports.served = True
        self.source = MulticlusterSource(
            engine=engine_of(self.services, member=member, hub=hub),
            member=member,
            services=self.services,
            caches=self.caches,
            settings=Settings(tenant="east", namespace="tenant-east"),
            fresh_s=60.0,
        )

    def imports(self, **spec: Any) -> None:
        spec = {"namespace": "shop", "name": "web", "ports": [{"port": 80}], "ipFamilies": ["IPv4"], **spec}
        imported = {"metadata": {"name": "shop.web", "namespace": "tenant-east"}, "spec": spec}
        self.caches.imported._store.put(decoded(imported, ImportedService))
        self.caches.namespaces._store.put(decoded({"metadata": {"name": "shop"}}, Namespace))

    def slice(self, name: str, address: str, *, zone: str = "a") -> None:
        labels = {
            "fairlead.dev/import": "shop.web",
            "fairlead.dev/origin-namespace": "shop",
            "fairlead.dev/origin-name": "web",
            "multicluster.kubernetes.io/source-cluster": "west",
        }
        body = {"metadata": {"name": name, "namespace": "tenant-east", "labels": labels}, "addressType": "IPv4"}
        self.services.hub_slices._store.put(
            decoded({**body, "endpoints": [{"addresses": [address], "zone": zone}]}, EndpointSlice)
        )

    async def report(self, kind: str) -> None:
        await self.caches.slices.refresh()
        await self.source.report((kind, "shop", "web"))

    async def addresses(self) -> list[str]:
        slices = await self.member.list(ENDPOINT_SLICES, "shop")
        endpoints = [endpoint for endpoint_slice in slices for endpoint in endpoint_slice.endpoints or ()]
        return sorted(address for endpoint in endpoints for address in endpoint.addresses or ())


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    server = ApiServer(admin_token=TOKEN, service_range="10.96.0.0/16")
    config = ClusterConfig(server=await server.start(), sign_in=bearer(TOKEN))
    try:
        async with Cluster(config, name="member") as member:
            await member.create(NAMESPACES, {"metadata": {"name": "shop"}})
            for kind in (SERVICE_EXPORTS, SERVICE_IMPORTS):
                await member.apply(CRDS, definition(kind), manager="admin")
            yield World(member)
    finally:
        await server.stop()


@pytest.mark.req("GM-2")
async def test_an_import_of_a_family_that_the_member_does_not_have_is_not_ready(world: World) -> None:
    world.imports(ipFamilies=["IPv6"])
    await world.report("ServiceImport")
    shown = await world.member.get(SERVICE_IMPORTS, "shop", "web")
    ready = condition_of(shown.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", "IPFamilyNotSupported")
    assert not shown.spec.ips


@pytest.mark.req("GM-2", "MC-3")
@pytest.mark.parametrize("families", [["IPv6", "IPv4"], ["IPv4", "IPv6"]])
async def test_a_member_of_one_family_gets_that_of_two(world: World, families: list[str]) -> None:
    world.imports(ipFamilies=families)
    versions = set[str]()
    for _ in range(2):
        await world.report("ServiceImport")
        await world.services.services.refresh()
        await world.caches.imports.refresh()
        versions.add((await world.member.get(SERVICES, "shop", "clusterset-web")).metadata.resource_version)
    shown = await world.member.get(SERVICE_IMPORTS, "shop", "web")
    ready = condition_of(shown.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, shown.spec.ip_families, len(shown.spec.ips or ())) == ("True", ["IPv4"], 1)
    assert len(versions) == 1, "nothing is written again"


@pytest.mark.req("MC-4")
async def test_endpoints_are_kept_while_a_slice_of_the_hub_cannot_be_read(world: World) -> None:
    world.imports()
    world.slice("one", "10.1.0.1")
    world.slice("two", "10.1.0.2")
    await world.report("ServiceImport")
    assert await world.addresses() == ["10.1.0.1", "10.1.0.2"]

    two = ObjectKey("tenant-east", "two")
    world.services.hub_slices._store.remove(two)
    world.services.hub_slices.broken[two] = "not readable"
    await world.report("ServiceImport")
    assert await world.addresses() == ["10.1.0.1", "10.1.0.2"]
    del world.services.hub_slices.broken[two]
    await world.report("ServiceImport")
    assert await world.addresses() == ["10.1.0.1"]


@pytest.mark.req("MC-4")
async def test_slices_follow_the_traffic_distribution_and_are_written_once(world: World) -> None:
    world.slice("one", "10.1.0.1")
    shown: list[tuple[bool, str]] = []
    for distribution in ("PreferClose", "PreferClose", ""):
        world.imports(trafficDistribution=distribution)
        await world.report("ServiceImport")
        (made,) = await world.member.list(ENDPOINT_SLICES, "shop")
        (endpoint,) = made.endpoints or [Endpoint()]
        shown.append((endpoint.hints is not None, made.metadata.resource_version))
    assert [hinted for hinted, _ in shown] == [True, True, False]
    assert shown[0] == shown[1], "nothing is written again"


@pytest.mark.req("MC-4")
async def test_nothing_is_decided_before_the_imports_of_the_hub_are_read(world: World) -> None:
    world.caches.discovery.asked = True
    world.caches.imported.served = True
    for cache in (*world.services.all, *world.caches.all):
        cache.synced = cache is not world.caches.imported
    assert not world.source.ready
    world.caches.imported.synced = True
    assert world.source.ready


@pytest.mark.req("MC-6")
@pytest.mark.parametrize("lost", ["exports", "imports"])
async def test_exports_stay_while_the_member_does_not_serve_the_api(world: World, lost: str) -> None:
    meta = {"name": "shop.web", "namespace": "tenant-east"}
    body = {"metadata": meta, "spec": {"namespace": "shop", "name": "web"}}
    world.caches.exported._store.put(decoded(body, ExportedService))
    key = ("ServiceExport", "shop", "web")
    assert await world.source.publish(key), "a removal waits until the member has been read"
    getattr(world.caches, lost).served = False
    assert not await world.source.publish(key)
    assert list(world.source.all_keys()) == []


@pytest.mark.req("MC-3")
async def test_the_address_of_an_import_that_is_gone_is_kept_for_an_hour(world: World) -> None:
    since = world.member.server_clock.now() - dt.timedelta(minutes=59)
    for unused_since, kept in (("", True), (wire_time(since), True), (wire_time(since - dt.timedelta(hours=1)), False)):
        meta = {
            "name": "clusterset-web",
            "namespace": "shop",
            "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_IMPORT: "web"},
            "annotations": {ANNOTATION_UNUSED_SINCE: unused_since},
        }
        await world.member.apply(SERVICES, {"metadata": meta, "spec": {"ports": [{"port": 80}]}}, manager="test")
        await world.services.services.refresh()
        again_s = await world.source.report(("ServiceImport", "shop", "web"))
        assert (again_s is not None) is kept
        left = [service.metadata.name for service in await world.member.list(SERVICES, "shop")]
        assert left == (["clusterset-web"] if kept else [])


@pytest.mark.req("MC-6")
async def test_a_service_that_cannot_be_read_is_not_reported_as_missing(world: World) -> None:
    export = await world.member.apply(SERVICE_EXPORTS, {"metadata": META}, manager="user")
    world.caches.exports._store.put(export)
    web = ObjectKey("shop", "web")
    world.services.services.broken[web] = "not readable"
    await world.report("ServiceExport")
    assert not (await world.member.get(SERVICE_EXPORTS, *web)).status.conditions
    del world.services.services.broken[web]
    world.services.services._store.put(decoded({"metadata": META, "spec": {"ports": [{"port": 80}]}}, MemberService))
    await world.report("ServiceExport")
    valid = condition_of((await world.member.get(SERVICE_EXPORTS, *web)).status.conditions, "Valid")
    assert valid is not None
    assert valid.status == "True"
