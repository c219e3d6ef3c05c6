"""Which keys a change of a Service or its endpoints concerns."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from fairlead.agent.l7.identity import Origin
from fairlead.agent.l7.ingress_changes import IngressChanges
from fairlead.agent.l7.ingress_exporter import IngressExporter
from fairlead.agent.l7.service_copies import copy_of
from fairlead.agent.l7.sources import L7Sources
from fairlead.agent.sources import MemberService, Sources
from fairlead.api.kubernetes import EndpointSlice, IngressObject
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.runtime.queue import KeyedQueue

META = {"name": "web", "namespace": "shop", "uid": "1"}
SERVICE, INGRESS = ("Service", "shop", "web"), ("Ingress", "shop", "a")


class World:
    """Caches without servers, one Ingress that names the Service web, and the keys that a change enqueues."""

    def __init__(self) -> None:
        clusters = {name: Cluster(ClusterConfig(server="http://127.0.0.1:1"), name=name) for name in ("member", "hub")}
        self.sources = Sources(hub_namespace="tenant-east", **clusters)
        l7 = L7Sources(hub_namespace="tenant-east", **clusters)
        self.keys: set[Origin] = set()
        backend = {"service": {"name": "web", "port": {"number": 80}}}
        ingress = {"metadata": {"name": "a", "namespace": "shop"}, "spec": {"defaultBackend": backend}}
        l7.ingresses._store.put(msgspec.convert(ingress, type=IngressObject))
        self.changes = IngressChanges(
            sources=self.sources,
            l7=l7,
            exporter=cast("IngressExporter", None),
            exports=cast("KeyedQueue[Origin]", self),
            feedbacks=KeyedQueue(),
        )

    def add(self, key: Origin) -> None:
        self.keys.add(key)

    def service(self, **spec: Any) -> MemberService:
        made = msgspec.convert({"metadata": META, "spec": {"ports": [{"port": 80}], **spec}}, type=MemberService)
        self.sources.services._store.put(made)
        return made

    def slice(self, service: str = "web") -> set[Origin]:
        meta = {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": service}}
        self.changes._slice(None, msgspec.convert({"metadata": meta}, type=EndpointSlice))
        return self.keys


@pytest.fixture
async def world() -> World:
    return World()


async def test_endpoints_concern_the_slices_of_their_service_alone(world: World) -> None:
    world.service(selector={"app": "web"})
    assert world.slice("other") == set()
    assert world.slice() == {SERVICE}


@pytest.mark.req("K-38")
async def test_without_a_selector_endpoints_concern_the_ingresses_too(world: World) -> None:
    world.service()
    assert world.slice() == {SERVICE, INGRESS}


@pytest.mark.req("K-38")
async def test_a_changed_copy_concerns_the_ingresses_of_its_original(world: World) -> None:
    copy = copy_of(world.service(selector={"app": "web"}))
    assert copy is not None
    world.changes._service(copy, None)
    assert world.keys == {INGRESS}
