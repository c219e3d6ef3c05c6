"""A Service that only pods of its cluster can reach, and whose backends are the nodes: its copy of type NodePort."""

from __future__ import annotations

from typing import Any

import pytest
from agent_l7_objects import gateway, gateway_class, http_route, ingress, ingress_class, install, path
from agent_world import HUB_NAMESPACE, World, until

from fairlead.agent.app import Agent
from fairlead.api.gateway import HTTP_ROUTES
from fairlead.api.httploadbalancer import LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import INGRESSES, SERVICES
from fairlead.errors import Forbidden, NotFound

COPY = "web-fairlead-nodes"


async def copy(world: World, name: str = COPY) -> Any:
    try:
        there = await world.member.get(SERVICES, "shop", name)
    except NotFound:
        return None
    return None if there.deleting else there


async def node_ports(world: World) -> set[int]:
    """Return the nodePorts by which the routes at the hub reach their backends."""
    routes = await world.hub.list(LOAD_BALANCER_ROUTES, HUB_NAMESPACE)
    return {backend.node_port for each in routes for backend in each.spec.backends}


async def reached(world: World) -> Any:
    """Wait until all routes lead to the nodePort of the copy; return the copy."""

    async def by_copy() -> Any:
        there = await copy(world)
        return there if there and await node_ports(world) == {there.spec.ports[0].node_port} else None

    return await until(by_copy, what="routes lead to the copy")


async def gone(world: World, name: str = COPY) -> None:
    async def no_copy() -> bool:
        return await copy(world, name) is None

    await until(no_copy, what="the copy is gone")


@pytest.mark.req("K-38", "E-19")
async def test_ingresses_share_a_copy_that_is_deleted_with_the_last(world: World) -> None:
    """Slow: an unneeded copy is kept for five seconds, until the hub has stopped using it."""
    await world.service(kind="ClusterIP")
    before = await world.get_service()
    await ingress_class(world)
    for name in ("shop", "other"):
        await ingress(world, name, path(), host=f"{name}.example.com")
    await world.start(target="Node")
    first = await reached(world)
    assert first.metadata.owner_references[0].uid == before.metadata.uid
    assert first.spec.selector == {"app": "web"}
    # Another port and another selector.
    ports = [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 9090}]
    await world.service(kind="ClusterIP", ports=ports, selector={"app": "new"})

    async def follows() -> bool:
        there = await copy(world)
        return there is not None and (there.spec.selector, there.spec.ports[0].target_port) == ({"app": "new"}, 9090)

    await until(follows, what="the copy follows")
    changed = await copy(world)
    assert changed.metadata.uid == first.metadata.uid
    assert changed.spec.ports[0].node_port == first.spec.ports[0].node_port
    # Deleted by hand, it is made again.
    await world.member.delete(SERVICES, "shop", COPY)

    async def again() -> bool:
        there = await copy(world)
        return there is not None and there.metadata.uid != first.metadata.uid

    await until(again, what="a copy again")
    await reached(world)
    await world.member.delete(INGRESSES, "shop", "other")
    await until(lambda: _routes(world, 1), what="one route")
    assert await copy(world) is not None, "the other Ingress needs it"
    await world.member.delete(INGRESSES, "shop", "shop")
    await gone(world)
    after = await world.get_service()
    assert after.metadata.uid == before.metadata.uid
    assert after.spec.type == "ClusterIP"


async def _served(world: World, backend: str) -> bool:
    routes = await world.hub.list(LOAD_BALANCER_ROUTES, HUB_NAMESPACE)
    return backend in {named.backend for each in routes for rule in each.spec.rules for named in rule.backends}


async def _routes(world: World, number: int) -> bool:
    return len(await world.hub.list(LOAD_BALANCER_ROUTES, HUB_NAMESPACE)) == number


@pytest.mark.req("K-38")
async def test_only_a_permitted_route_has_its_service_copied(world: World) -> None:
    await install(world)
    await world.service(kind="ClusterIP")
    await world.service("private", namespace="default", kind="ClusterIP")
    await gateway_class(world)
    await gateway(world)
    await http_route(world)
    foreign = {
        "parentRefs": [{"name": "web"}],
        "rules": [{"backendRefs": [{"name": "private", "namespace": "default", "port": 80}]}],
    }
    meta = {"name": "foreign", "namespace": "shop"}
    await world.member.apply(HTTP_ROUTES, {"metadata": meta, "spec": foreign}, manager="kubectl")
    agent = await world.start(target="Node")
    await reached(world)
    await world.settled(agent)
    names = {each.metadata.name for each in await world.member.list(SERVICES, "default")}
    assert "private-fairlead-nodes" not in names
    for name in ("shop", "foreign"):
        await world.member.delete(HTTP_ROUTES, "shop", name)
    await gone(world)


@pytest.mark.req("K-38", "K-39")
async def test_with_pods_as_backends_nothing_is_copied_and_a_copy_that_was_left_goes(world: World) -> None:
    await world.service(kind="ClusterIP")
    await ingress_class(world)
    await ingress(world, "shop", path())
    agent = await world.start(target="Node")
    await reached(world)
    await world.stop(agent)
    # The next agent prefers pods.
    await world.start(target="Pod")
    await gone(world)


@pytest.mark.req("F-21", "K-38")
async def test_a_refused_annotation_keeps_the_copy_of_the_processor(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.agent.sources.shared.LINGER_S", 0.0)
    monkeypatch.setattr("fairlead.agent.sources.shared.LEAVE_S", 0.0)
    for name in ("waf", "web"):
        await world.service(name, kind="ClusterIP")

    async def of_class(text: str) -> None:
        await ingress_class(world, annotations={"fairlead.dev/external-processor": text})

    def inspected_by(selector: str) -> Any:
        async def check() -> bool:
            there = await copy(world, "waf-fairlead-nodes")
            if there is None or there.spec.selector != {"app": selector}:
                return False
            published = await world.hub.list(LOAD_BALANCER_ROUTES, HUB_NAMESPACE)
            backends = [backend for each in published for backend in each.spec.backends]
            ports = {backend.node_port for backend in backends if backend.service == "shop/waf"}
            return ports == {there.spec.ports[0].node_port}

        return check

    await of_class('{"service": "waf", "namespace": "shop", "port": 80}')
    await ingress(world, "shop", path())
    await world.start(target="Node")
    await until(inspected_by("waf"), what="a processor that is reached by its copy")
    await of_class("[]")
    assert "external-processor" in await world.event("Invalid", "shop")
    await world.service("waf", kind="ClusterIP", selector={"app": "new"})
    await until(inspected_by("new"), what="the copy follows")
    await ingress_class(world, annotations={})
    await gone(world, "waf-fairlead-nodes")


@pytest.mark.req("K-38")
async def test_what_cannot_be_copied_or_may_not_be_is_reported_and_the_rest_is_served(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.service(kind="ClusterIP")
    await world.service("outside", kind="ClusterIP", selector=None)
    await world.service("taken", kind="ClusterIP")
    await world.service("taken-fairlead-nodes", kind="ClusterIP")
    await ingress_class(world)
    for name in ("web", "outside", "taken"):
        await ingress(world, name, path(name), host=f"{name}.example.com")
    await world.start(target="Node")
    assert "has no selector" in await world.event("Invalid", "outside")
    assert "was not made by Fairlead: rename or delete it" in await world.event("Invalid", "taken")
    # With endpoints of its own, the one without a selector is served by these.
    await world.slice("203.0.113.9", name="outside-1", service="outside")
    await until(lambda: _served(world, "shop/outside:80"), what="a backend with endpoints of the user's own")
    await until(lambda: copy(world), what="the copy of the Service that can have one")
    assert (await copy(world, "taken-fairlead-nodes")).spec.type == "ClusterIP"

    agent: Agent = world.agents[0][0]
    apply = agent.member.apply

    async def refuse(resource: Any, body: Any, **more: Any) -> Any:
        if resource.plural == "services":
            raise Forbidden("the agent may not create services")
        return await apply(resource, body, **more)

    monkeypatch.setattr(agent.member, "apply", refuse)
    await world.service("late", kind="ClusterIP")
    await ingress(world, "late", path("late"), host="late.example.com")
    assert "deploy/kubernetes/agent.yaml" in await world.event("Invalid", "late")
