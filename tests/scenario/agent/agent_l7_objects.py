"""Ingresses and Gateways of a member, as their users write them."""

from __future__ import annotations

from typing import Any

from agent_world import USER, World

from fairlead.api.gateway import GATEWAY_CLASSES, GATEWAYS, HTTP_ROUTES
from fairlead.api.kubernetes import INGRESS_CLASSES, INGRESSES
from fairlead.api.meta import Resource
from fairlead.api.names import GATEWAY_CONTROLLER, INGRESS_CONTROLLER
from fairlead.kube.discovery import install_crds
from podless.offline import gateway_definitions

HTTP = {"name": "http", "port": 80, "protocol": "HTTP"}


async def ingress_class(
    world: World, name: str = "fairlead", controller: str = INGRESS_CONTROLLER, **more: Any
) -> None:
    body = {"metadata": {"name": name, **more}, "spec": {"controller": controller}}
    await world.member.apply(INGRESS_CLASSES, body, manager=USER)


def path(service: str = "web", value: str = "/", port: Any = None, kind: str = "Prefix") -> dict[str, Any]:
    backend = {"service": {"name": service, "port": port or {"number": 80}}}
    return {"path": value, "pathType": kind, "backend": backend}


async def ingress(
    world: World, name: str = "shop", *paths: dict[str, Any], host: str = "shop.example.com", **spec: Any
):
    spec = {"ingressClassName": "fairlead", **spec}
    if paths:
        spec["rules"] = [{"host": host, "http": {"paths": list(paths)}}]
    await world.member.apply(INGRESSES, {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}, manager=USER)


async def install(world: World, *kinds: Resource[Any]) -> None:
    assert await install_crds(world.member, gateway_definitions(*(kind.kind for kind in kinds or ())), "test") == []


async def gateway_class(world: World, name: str = "fairlead", controller: str = GATEWAY_CONTROLLER) -> None:
    body = {"metadata": {"name": name}, "spec": {"controllerName": controller}}
    await world.member.apply(GATEWAY_CLASSES, body, manager=USER)


async def gateway(world: World, *listeners: dict[str, Any], name: str = "web", of_class: str = "fairlead") -> None:
    spec = {"gatewayClassName": of_class, "listeners": list(listeners or (HTTP,))}
    await world.member.apply(GATEWAYS, {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}, manager=USER)


async def http_route(
    world: World, name: str = "shop", *, host: str = "shop.example.com", to: str = "web", parent: str = "web"
) -> None:
    spec = {
        "parentRefs": [{"name": parent}],
        "hostnames": [host],
        "rules": [{"backendRefs": [{"name": to, "port": 80}]}],
    }
    await world.member.apply(HTTP_ROUTES, {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}, manager=USER)
