"""Which keys a change of a Service or its endpoints concerns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from agent_builders import HUB_NAMESPACE, TENANT, clusters, engine_of, enqueued

from fairlead.agent.identity import Key
from fairlead.agent.sources.caches import IngressCaches, MemberService, ServiceCaches
from fairlead.agent.sources.ingress.source import IngressSource
from fairlead.agent.sources.service.plan import Settings
from fairlead.agent.sources.shared import Shared, copy_of
from fairlead.agent.term import Refusals
from fairlead.api.kubernetes import EndpointSlice, IngressObject

META = {"name": "web", "namespace": "shop", "uid": "1"}
BACKEND, INGRESS = ("Backend", "shop", "web"), ("Ingress", "shop", "a")


class World:
    """Caches without servers, one Ingress that names the Service web, and the keys that a change enqueues."""

    def __init__(self) -> None:
        both = clusters()
        self.services = ServiceCaches(hub_namespace=HUB_NAMESPACE, member=both["member"], hub=both["hub"])
        caches = IngressCaches(hub_namespace=HUB_NAMESPACE, **both)
        backend = {"service": {"name": "web", "port": {"number": 80}}}
        ingress = {"metadata": {"name": "a", "namespace": "shop"}, "spec": {"defaultBackend": backend}}
        caches.ingresses._store.put(msgspec.convert(ingress, type=IngressObject))
        self.engine = engine_of(self.services, **both)
        shared = Shared(
            engine=self.engine,
            member=both["member"],
            services=self.services,
            caches=caches,
            settings=Settings(tenant=TENANT, namespace=HUB_NAMESPACE),
            fresh_s=60.0,
        )
        IngressSource(engine=self.engine, services=self.services, caches=caches, shared=shared, refusals=Refusals())

    def service(self, **spec: Any) -> MemberService:
        made = msgspec.convert({"metadata": META, "spec": {"ports": [{"port": 80}], **spec}}, type=MemberService)
        self.services.services._store.put(made)
        return made

    async def slice(self, service: str = "web") -> set[Key]:
        meta = {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": service}}
        self.services.slices._notify(None, msgspec.convert({"metadata": meta}, type=EndpointSlice))
        return await enqueued(self.engine, "http")


@pytest.fixture
async def world() -> World:
    return World()


async def test_endpoints_concern_the_slices_of_their_service_alone(world: World) -> None:
    world.service(selector={"app": "web"})
    assert await world.slice("other") == set()
    assert await world.slice() == {BACKEND}


@pytest.mark.req("K-38")
async def test_without_a_selector_endpoints_concern_the_ingresses_too(world: World) -> None:
    world.service()
    assert await world.slice() == {BACKEND, INGRESS}


@pytest.mark.req("K-38")
async def test_a_changed_copy_concerns_the_ingresses_of_its_original(world: World) -> None:
    copy = msgspec.convert(msgspec.to_builtins(copy_of(world.service(selector={"app": "web"}))), MemberService)
    world.services.services._notify(copy, None)
    assert await enqueued(world.engine, "http") == {INGRESS}
