"""What Ingresses need of the things that several share: Services, nodePorts, Secrets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from agent_builders import HUB_NAMESPACE, clusters, engine_of

from fairlead.agent.sources.caches import IngressCaches, ServiceCaches
from fairlead.agent.sources.ingress.source import IngressSource
from fairlead.agent.sources.service.plan import Settings
from fairlead.agent.sources.shared import Shared
from fairlead.agent.term import Refusals
from fairlead.api.kubernetes import IngressClass, IngressObject
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.names import INGRESS_CONTROLLER


class World:
    """Caches without servers: the classes pods and nodes, each with one Ingress."""

    def __init__(self) -> None:
        both = clusters()
        services = ServiceCaches(hub_namespace=HUB_NAMESPACE, member=both["member"], hub=both["hub"])
        self.caches = IngressCaches(hub_namespace=HUB_NAMESPACE, **both)
        engine = engine_of(services, **both)
        shared = Shared(
            engine=engine,
            member=both["member"],
            services=services,
            caches=self.caches,
            settings=Settings(tenant="east", namespace=HUB_NAMESPACE, target="Pod"),
            fresh_s=60.0,
        )
        self.source = IngressSource(
            engine=engine, services=services, caches=self.caches, shared=shared, refusals=Refusals()
        )
        for name, targets in (("pods", "Pod"), ("nodes", "Node")):
            of_hub = {"metadata": {"name": name}, "spec": {"provider": "envoy", "targets": targets}}
            services.classes._store.put(msgspec.convert(of_hub, LoadBalancerClass))
            named = {"apiGroup": "fairlead.dev", "kind": "LoadBalancerClass", "name": name}
            spec = {"controller": INGRESS_CONTROLLER, "parameters": named}
            self.caches.ingress_classes._store.put(
                msgspec.convert({"metadata": {"name": name}, "spec": spec}, IngressClass)
            )
            self.ingress(name, name)

    def ingress(self, name: str, of_class: str, **more: Any) -> None:
        backend = {"service": {"name": name, "port": {"number": 80}}}
        tls = [{"hosts": [f"{name}.example"], "secretName": name}]
        spec = {"ingressClassName": of_class, "defaultBackend": backend, "tls": tls, **more}
        body = {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}
        self.caches.ingresses._store.put(msgspec.convert(body, IngressObject))


@pytest.fixture
async def world() -> World:
    return World()


@pytest.mark.req("K-37")
async def test_only_what_an_ingress_of_ours_names_is_needed(world: World) -> None:
    world.ingress("foreign", "other")
    source = world.source
    assert source.needs_service("shop", "pods")
    assert source.needs_secret("shop", "pods")
    assert not source.needs_service("shop", "foreign")
    assert not source.needs_secret("shop", "foreign")
    assert not source.needs_service("elsewhere", "pods")


@pytest.mark.req("K-38", "K-39")
async def test_node_ports_are_needed_where_the_class_has_nodes_as_backends(world: World) -> None:
    assert world.source.needs_node_ports("shop", "nodes")
    assert not world.source.needs_node_ports("shop", "pods")
    # Both classes name it: the copy is for the one of them that needs it.
    world.ingress("shared", "pods")
    world.caches.ingresses._store.put(
        msgspec.convert(
            {
                "metadata": {"name": "second", "namespace": "shop"},
                "spec": {
                    "ingressClassName": "nodes",
                    "defaultBackend": {"service": {"name": "shared", "port": {"number": 80}}},
                },
            },
            IngressObject,
        )
    )
    assert world.source.needs_node_ports("shop", "shared")


async def test_a_plan_is_recomputed_only_on_request(world: World) -> None:
    first = world.source.plan_of("pods")
    assert first is not None
    assert world.source.plan_of("pods") is first
    world.source.replan()
    assert world.source.plan_of("pods") == first
    assert world.source.plan_of("other") is None
