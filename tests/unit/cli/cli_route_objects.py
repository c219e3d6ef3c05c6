"""An HTTPLoadBalancer of the member east with hosts, rules and targets, as ``fairlead route`` sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fairlead.api.tcploadbalancer import Origin
from fairlead.cli.route import HeldHTTP, RouteAnswer, answers, parse_request
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec, Target
from fairlead.model.http import (
    Attachment,
    Backend,
    BackendRef,
    Filters,
    L7Config,
    L7Listener,
    PathMatch,
    Redirect,
    RequestMatch,
    Route,
    Rule,
)
from fairlead.model.keys import LoadBalancerKey, TargetKey, backend_key
from tests.fleet_objects import GOOD, http_load_balancer

LISTENERS = (
    L7Listener("http", 80),
    L7Listener("https-shop", 443, "HTTPS", "shop.example.com"),
    L7Listener("pass", 443, "TLS", "db.example.com", passthrough=True),
)


def prefix(path: str, *backends: BackendRef, method: str = "", filters: Filters | None = None) -> Rule:
    match = RequestMatch(path=PathMatch("PathPrefix", path), method=method)
    return Rule(matches=(match,), backends=backends, filters=filters or Filters())


def ingress_route(name: str, host: str, *rules: Rule, created: str = "2026-01-01T00:00:00Z") -> Route:
    attachments = (Attachment("http", (host,)), Attachment("https-shop", (host,)))
    return Route(f"ingress.default.{name}.1", "HTTP", attachments, rules, created=created, origin=f"default/{name}")


SHOP = ingress_route(
    "web",
    "shop.example.com",
    prefix("/", BackendRef("default/shop:80")),
    prefix("/cart", BackendRef("default/cart:80", 9), BackendRef("default/canary:80")),
    prefix("/old", filters=Filters(redirect=Redirect(scheme="https"))),
    prefix("/empty", BackendRef("default/empty:80")),
    prefix("/none", BackendRef("")),
    prefix("/post", BackendRef("default/shop:80"), method="POST"),
)
API = ingress_route("api", "api.example.com", prefix("/v1", BackendRef("default/shop:80"), method="POST"))
DATABASE = Route(
    "tlsroute.default.db.1", "TLS", (Attachment("pass"),), (Rule(backends=(BackendRef("default/db:80"),)),),
    origin="default/db",
)  # fmt: skip
TARGETS = {"default/shop:80": ("10.0.0.1",), "default/cart:80": ("10.0.0.2", "10.0.0.3"), "default/empty:80": (),
           "default/canary:80": (), "default/db:80": ("10.0.0.9",)}  # fmt: skip


def held(
    *routes: Route,
    namespace: str = "tenant-east",
    address: str = "127.200.0.2",
    targets: Mapping[str, Sequence[str]] = TARGETS,
    listeners: tuple[L7Listener, ...] = LISTENERS,
    **status: Any,
) -> HeldHTTP:
    """Return a load balancer with these routes; each target has port 8080."""
    made = http_load_balancer(*GOOD)
    annotations = {"fairlead.dev/origin": f"{namespace.removeprefix('tenant-')}/edge"}
    obj = msgspec.structs.replace(
        made,
        metadata=msgspec.structs.replace(made.metadata, namespace=namespace, annotations=annotations),
        spec=msgspec.structs.replace(made.spec, listeners=listeners, origin=Origin("IngressClass", "", "edge")),
        status=msgspec.structs.replace(made.status, address=address, **status),
    )
    by_backend = {
        backend_key(name): {TargetKey(each, 8080): Target(TargetKey(each, 8080)) for each in addresses}
        for name, addresses in targets.items()
    }
    backends = tuple(Backend(name, service=name.partition(":")[0]) for name in sorted(targets))
    spec = FrontendSpec(
        LoadBalancerKey("HTTPLoadBalancer", namespace, made.metadata.name),
        namespace,
        (),
        l7=L7Config(listeners, routes, backends),
    )
    return HeldHTTP(obj, DesiredLoadBalancer(spec, by_backend))


def ask(method: str, url: str, *load_balancers: HeldHTTP, headers: Sequence[str] = ()) -> list[RouteAnswer]:
    """Return what a request meets; without load balancers at the one with all routes."""
    return answers(load_balancers or (held(SHOP, API, DATABASE),), parse_request(method, url, headers))
