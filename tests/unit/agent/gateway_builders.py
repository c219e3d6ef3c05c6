"""Builders for the tests of Gateway API: objects as an API server sends them, and plans of Gateways."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from fairlead.agent.sources.gateway.plan import GatewayPlan, ListenerPlan, ParentKey
from fairlead.agent.sources.gateway.routes import RouteView
from fairlead.api.gateway import AnyRoute, HTTPRoute, ReferenceGrant, RouteGroupKind
from fairlead.api.httploadbalancer import HTTPLoadBalancerSpec
from fairlead.api.kubernetes import Service
from fairlead.model.http import L7Listener, ListenerProtocol

GATEWAY = ParentKey("Gateway", "infra", "main")
SET = ParentKey("ListenerSet", "infra", "more")
LOAD_BALANCER = "gateway.infra.main"
ALL_KINDS = ("HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute")

Route = TypeVar("Route", bound=AnyRoute)


def listener(
    name: str = "http",
    *,
    hostname: str = "",
    port: int = 80,
    protocol: ListenerProtocol = "HTTP",
    kinds: tuple[str, ...] = ALL_KINDS,
    namespaces: frozenset[str] | None = None,
    parent: ParentKey = GATEWAY,
    passthrough: bool = False,
    served: bool = True,
) -> ListenerPlan:
    return ListenerPlan(
        parent=parent,
        name=name,
        key=name if parent == GATEWAY else f"{parent.name}/{name}",
        port=port,
        protocol=protocol,
        hostname=hostname,
        passthrough=passthrough,
        namespaces=namespaces,
        kinds=tuple(RouteGroupKind(kind) for kind in kinds),
        judgements=(),
        served=served,
    )


def gateway_plan(*listeners: ListenerPlan, gateway: ParentKey = GATEWAY, certificate: str = "") -> GatewayPlan:
    spec = HTTPLoadBalancerSpec(listeners=(L7Listener("any", 80),))
    name = f"gateway.{gateway.namespace}.{gateway.name}"
    return GatewayPlan(gateway, name, listeners, spec, (), client_certificate=certificate)


def route(
    kind: type[Route], *, namespace: str = "infra", parents: list[dict[str, Any]] | None = None, **spec: Any
) -> Route:
    meta = {
        "name": "r",
        "namespace": namespace,
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "generation": 3,
    }
    refs = [{"name": "main", "namespace": "infra"}] if parents is None else parents
    return msgspec.convert({"metadata": meta, "spec": {"parentRefs": refs, **spec}}, kind)


def http_route(*rules: dict[str, Any], **spec: Any) -> HTTPRoute:
    return route(HTTPRoute, rules=list(rules), **spec)


def service(name: str = "web", *ports: dict[str, Any], namespace: str = "infra", **spec: Any) -> Service:
    listed = list(ports) or [{"name": "http", "port": 80}]
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": {"ports": listed, **spec}}
    return msgspec.convert(body, Service)


def grant(
    kind: str = "HTTPRoute", *, source: str = "infra", target: str = "other", name: str | None = None
) -> ReferenceGrant:
    spec = {
        "from": [{"group": "gateway.networking.k8s.io", "kind": kind, "namespace": source}],
        "to": [{"group": "", "kind": "Service", "name": name}],
    }
    return msgspec.convert({"metadata": {"name": "g", "namespace": target}, "spec": spec}, ReferenceGrant)


def ref(name: str = "web", port: int = 80, **more: Any) -> dict[str, Any]:
    return {"name": name, "port": port, **more}


def view(of: AnyRoute, *plans: GatewayPlan, services: tuple[Service, ...] = (), **more: Any) -> RouteView:
    parents: dict[ParentKey, GatewayPlan] = {}
    for plan in plans or (gateway_plan(listener()),):
        parents |= {each.parent: plan for each in plan.listeners} | {plan.gateway: plan}
    named = {(each.metadata.namespace, each.metadata.name): each for each in services}
    return RouteView(of, parents, named, **more)
