"""The status of an HTTPLoadBalancer: what the proxies refuse is in it, and stays while they say nothing."""

from __future__ import annotations

import pytest

from fairlead.api.httploadbalancer import (
    FAILING_LISTED,
    FailingRoute,
    LoadBalancerRoute,
    LoadBalancerRouteSpec,
    RefusedPartStatus,
)
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.tcploadbalancer import Origin
from fairlead.hub.intents.http import REFUSED_SHOWN, failing_routes, refused_parts
from fairlead.model.http import Attachment, BackendRef, Filters, Redirect, Rule
from fairlead.model.observed import Observed
from fairlead.model.observed import RefusedPart as SeenPart

BEFORE = (RefusedPartStatus("route", "a", "bad"),)


def test_a_new_rejection_replaces_the_former() -> None:
    assert refused_parts(None, BEFORE) == BEFORE
    assert refused_parts(Observed(), BEFORE) == ()
    reading = WireCondition(type="ResolvedRefs", status="False", reason="Pending", message="not read yet")
    unread = Observed(refused=(SeenPart("listener", "https", "no usable certificate"),))
    assert refused_parts(unread, BEFORE, [reading]) == BEFORE, "its certificate comes in a moment"
    assert refused_parts(Observed(refused=(SeenPart("route", "b", "worse"),)), BEFORE) == (
        RefusedPartStatus("route", "b", "worse"),
    )


def test_a_long_list_is_cut() -> None:
    many = tuple(SeenPart("route", f"r{number}", "bad") for number in range(REFUSED_SHOWN + 1))
    assert len(refused_parts(Observed(refused=many), ())) == REFUSED_SHOWN


@pytest.mark.req("X-31")
def test_routes_fail_by_the_backends_that_their_requests_go_to() -> None:
    def route(name: str, *rules: Rule) -> LoadBalancerRoute:
        spec = LoadBalancerRouteSpec(
            load_balancer="edge",
            attachments=(Attachment("http", (f"{name}.example.com",)), Attachment("https", (f"{name}.example.com",))),
            rules=rules,
            origin=Origin(kind="Ingress", namespace="shop", name=name),
        )
        return LoadBalancerRoute(metadata=ObjectMeta(name=f"ingress.shop.{name}", namespace="tenant-east"), spec=spec)

    def to(name: str, weight: int = 1) -> BackendRef:
        return BackendRef(name, weight=weight)

    redirect = Filters(redirect=Redirect(scheme="https"))
    routes = [
        route("dead", Rule(backends=(to("a"),))),
        route("canary", Rule(backends=(to("a", 1), to("b", 9)))),
        route("well", Rule(backends=(to("b"), to("a", 0)))),
        route("moved", Rule(backends=(to("a"),), filters=redirect)),
        route("part", Rule(backends=(to("b"),)), Rule(backends=(to("a"),))),
    ]
    failing = failing_routes(routes, frozenset({"a"}))
    assert [each.object for each in failing] == ["dead", "canary", "part"]
    assert failing[0] == FailingRoute("ingress.shop.dead", "Ingress", "shop", "dead", ("dead.example.com",), ("a",))
    assert failing_routes(routes, frozenset()) == ()
    assert len(failing_routes(routes * FAILING_LISTED, frozenset({"a"}))) == FAILING_LISTED
