"""What an agent leaves alone in the member while something of the hub or the member cannot be read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from agent_builders import engine_of

from fairlead.agent.sources.multicluster.source import MulticlusterCaches, MulticlusterSource
from fairlead.agent.sources.service.caches import MemberService, ServiceCaches
from fairlead.agent.sources.service.plan import Settings
from fairlead.api.kubernetes import CRDS, ENDPOINT_SLICES, NAMESPACES, EndpointSlice, Namespace
from fairlead.api.meta import ObjectKey, Resource, condition_of
from fairlead.api.multicluster import SERVICE_EXPORTS, SERVICE_IMPORTS, ImportedService
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

    def slice(self, name: str, address: str) -> None:
        labels = {
            "fairlead.dev/import": "shop.web",
            "fairlead.dev/origin-namespace": "shop",
            "fairlead.dev/origin-name": "web",
            "multicluster.kubernetes.io/source-cluster": "west",
        }
        body = {"metadata": {"name": name, "namespace": "tenant-east", "labels": labels}, "addressType": "IPv4"}
        self.services.hub_slices._store.put(
            decoded({**body, "endpoints": [{"addresses": [address]}]}, EndpointSlice),
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
    server = ApiServer(admin_token=TOKEN)
    config = ClusterConfig(server=await server.start(), sign_in=bearer(TOKEN))
    try:
        async with Cluster(config, name="member") as member:
            await member.create(NAMESPACES, {"metadata": {"name": "shop"}})
            for kind in (SERVICE_EXPORTS, SERVICE_IMPORTS):
                await member.apply(CRDS, definition(kind), manager="admin")
            yield World(member)
    finally:
        await server.stop()


@pytest.mark.req("MC-4")
async def test_endpoints_are_kept_while_a_slice_of_the_hub_cannot_be_read(world: World) -> None:
    home = {"metadata": {"name": "shop"}}
    spec = {"namespace": "shop", "name": "web", "ports": [{"port": 80}], "ipFamilies": ["IPv4"]}
    imported = {"metadata": {"name": "shop.web", "namespace": "tenant-east"}, "spec": spec}
    world.caches.namespaces._store.put(decoded(home, Namespace))
    world.caches.imported._store.put(decoded(imported, ImportedService))
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
