"""What Ingresses need of the things that several share: Services, nodePorts, Secrets."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from agent_builders import publisher_of

from fairlead.agent.events import EventWriter
from fairlead.agent.export import Settings
from fairlead.agent.l7.ingress_exporter import IngressExporter
from fairlead.agent.l7.shared import Shared
from fairlead.agent.l7.sources import L7Sources
from fairlead.agent.sources import Sources
from fairlead.api.kubernetes import IngressClass, IngressObject
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.names import INGRESS_CONTROLLER
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig


class World:
    """Caches without servers: the classes pods and nodes, each with one Ingress."""

    def __init__(self) -> None:
        clusters = {name: Cluster(ClusterConfig(server="http://127.0.0.1:1"), name=name) for name in ("member", "hub")}
        sources = Sources(hub_namespace="tenant-east", **clusters)
        self.l7 = L7Sources(hub_namespace="tenant-east", **clusters)
        shared = Shared(
            **clusters,
            sources=sources,
            l7=self.l7,
            settings=Settings(tenant="east", namespace="tenant-east", target="Pod"),
            fresh_s=60.0,
            may_write=lambda: True,
            publisher=publisher_of(sources, clusters["hub"]),
        )
        self.exporter = IngressExporter(
            refused=lambda _origin, _sentence: None,
            sources=sources,
            l7=self.l7,
            shared=shared,
            events=cast("EventWriter", None),
            enqueue=lambda _key: None,
        )
        for name, targets in (("pods", "Pod"), ("nodes", "Node")):
            of_hub = {"metadata": {"name": name}, "spec": {"provider": "envoy", "targets": targets}}
            sources.classes._store.put(msgspec.convert(of_hub, LoadBalancerClass))
            named = {"apiGroup": "fairlead.dev", "kind": "LoadBalancerClass", "name": name}
            spec = {"controller": INGRESS_CONTROLLER, "parameters": named}
            self.l7.ingress_classes._store.put(
                msgspec.convert({"metadata": {"name": name}, "spec": spec}, IngressClass)
            )
            self.ingress(name, name)

    def ingress(self, name: str, of_class: str, **more: Any) -> None:
        backend = {"service": {"name": name, "port": {"number": 80}}}
        tls = [{"hosts": [f"{name}.example"], "secretName": name}]
        spec = {"ingressClassName": of_class, "defaultBackend": backend, "tls": tls, **more}
        body = {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}
        self.l7.ingresses._store.put(msgspec.convert(body, IngressObject))


@pytest.fixture
async def world() -> World:
    return World()


@pytest.mark.req("K-37")
async def test_only_what_an_ingress_of_ours_names_is_needed(world: World) -> None:
    world.ingress("foreign", "other")
    exporter = world.exporter
    assert exporter.needs_service("shop", "pods")
    assert exporter.needs_secret("shop", "pods")
    assert not exporter.needs_service("shop", "foreign")
    assert not exporter.needs_secret("shop", "foreign")
    assert not exporter.needs_service("elsewhere", "pods")


@pytest.mark.req("K-38", "K-39")
async def test_node_ports_are_needed_where_the_class_has_nodes_as_backends(world: World) -> None:
    assert world.exporter.needs_node_ports("shop", "nodes")
    assert not world.exporter.needs_node_ports("shop", "pods")
    # Both classes name it: the copy is for the one of them that needs it.
    world.ingress("shared", "pods")
    world.l7.ingresses._store.put(
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
    assert world.exporter.needs_node_ports("shop", "shared")


async def test_a_plan_is_computed_anew_only_when_that_is_asked_for(world: World) -> None:
    first = world.exporter.plan_of("pods")
    assert first is not None
    assert world.exporter.plan_of("pods") is first
    world.exporter.replan()
    assert world.exporter.plan_of("pods") == first
    assert world.exporter.plan_of("other") is None
