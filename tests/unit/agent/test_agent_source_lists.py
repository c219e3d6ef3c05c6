"""Lists of client addresses in annotations: of an Ingress, a route, a Gateway and its listeners."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest

from fairlead.agent.sources.gateway.listeners import plan_gateway
from fairlead.agent.sources.gateway.plan import find
from fairlead.agent.sources.gateway.routes import plan_route
from fairlead.agent.sources.http import SourceLists, source_lists
from fairlead.api.gateway import TCPRoute
from fairlead.api.kubernetes import IngressObject
from fairlead.api.meta import KubeObject, ObjectMeta
from fairlead.api.names import ANNOTATION_ALLOWED_SOURCES as ALLOWED
from fairlead.api.names import ANNOTATION_DENIED_SOURCES as DENIED
from tests.unit.agent.gateway_builders import LOAD_BALANCER, http_route, ref, route, service
from tests.unit.agent.gateway_builders import view as route_view
from tests.unit.agent.gateway_objects import gateway, http, listener_set, reasons, served, view

pytestmark = pytest.mark.req("F-8")

Obj = TypeVar("Obj", bound=KubeObject)


def annotated(obj: Obj, annotations: dict[str, str]) -> Obj:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, annotations=annotations))


def ingress(annotations: dict[str, str]) -> IngressObject:
    return IngressObject(metadata=ObjectMeta(name="web", namespace="shop", annotations=annotations))


def test_lists_are_canonical_cidrs() -> None:
    lists = source_lists(ingress({ALLOWED: " 192.0.2.0/24, 198.51.100.7,2001:DB8:0::/32", DENIED: "192.0.2.9"}))
    assert lists == SourceLists(("192.0.2.0/24", "198.51.100.7/32", "2001:db8::/32"), ("192.0.2.9/32",))
    assert source_lists(ingress({})) == SourceLists()


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.5/24",
        "2001:db8::1/32",
        "010.0.0.0/8",
        "::ffff:10.0.0.0/120",
        "::ffff:10.0.0.1",
        "fe80::1%eth0",
        "10.0.0.0/255.0.0.0",
        "10.0.0.0/33",
        "office",
        "",
        "10.0.0.0/8,",
        "10.0.0.0/8 192.0.2.0/24",
        ",".join(f"10.0.{n // 256}.{n % 256}" for n in range(1001)),
    ],
)
@pytest.mark.parametrize("name", [ALLOWED, DENIED])
def test_an_uncertain_list_is_a_problem_that_names_its_annotation(name: str, text: str) -> None:
    lists = source_lists(ingress({name: text}))
    assert (lists.allowed, lists.denied) == ((), ())
    assert name in lists.problem
    assert len(lists.problem) < 300


def test_a_listener_has_its_own_list_or_that_of_its_gateway() -> None:
    names = {ALLOWED: "10.0.0.0/8", f"{ALLOWED}.admin": "192.0.2.0/24", f"{DENIED}.admin": "192.0.2.9"}
    plan = plan_gateway(view(annotated(gateway(http("web"), http("admin", 8080)), names)))
    listeners = served(plan)
    assert listeners["web"].allowed_sources == ("10.0.0.0/8",)
    assert listeners["web"].denied_sources == ()
    assert listeners["admin"].allowed_sources == ("192.0.2.0/24",)
    assert listeners["admin"].denied_sources == ("192.0.2.9/32",)


@pytest.mark.parametrize("names", [{ALLOWED: "10.0.0.1/8"}, {f"{DENIED}.web": "x"}, {f"{ALLOWED}.wbe": "10.0.0.0/8"}])
def test_a_gateway_with_an_invalid_list_is_refused_and_keeps_what_is_published(names: dict[str, str]) -> None:
    plan = plan_gateway(view(annotated(gateway(http("web")), names)))
    accepted = find(plan.judgements, "Accepted")
    assert plan.is_refused
    assert accepted is not None
    assert (accepted.status, accepted.reason) == ("False", "InvalidParameters")
    assert next(iter(names)) in accepted.message


def test_a_listener_set_has_the_list_of_its_gateway_and_none_of_its_own() -> None:
    of = annotated(gateway(http("web"), allowedListeners={"namespaces": {"from": "Same"}}), {ALLOWED: "10.0.0.0/8"})
    plan = plan_gateway(view(of, listener_set(http("more", 8080))))
    assert {each.allowed_sources for each in served(plan).values()} == {("10.0.0.0/8",)}
    assert len(served(plan)) == 2
    own = plan_gateway(view(of, annotated(listener_set(http("more", 8080)), {ALLOWED: "0.0.0.0/0"})))
    assert list(served(own)) == ["web"]
    assert [reasons(each)["Accepted"] for each in own.listener_sets.values()] == ["False/NotAllowed"]


def test_each_rule_of_a_route_has_its_lists() -> None:
    of = http_route({"backendRefs": [ref()]}, {"backendRefs": [ref()]})
    plan = plan_route(route_view(annotated(of, {ALLOWED: "10.0.0.0/8"}), services=(service(),)))
    assert [rule.allowed_sources for rule in plan.specs[LOAD_BALANCER].rules] == [("10.0.0.0/8",)] * 2
    assert not plan.is_refused


def test_a_route_with_an_invalid_list_answers_errors_and_keeps_what_is_published() -> None:
    of = annotated(http_route({"backendRefs": [ref()]}), {DENIED: "10.0.0.1/8"})
    plan = plan_route(route_view(of, services=(service(),)))
    assert plan.is_refused
    assert [rule.backends for rule in plan.specs[LOAD_BALANCER].rules] == [()]
    (parent,) = plan.parents
    assert reasons(parent.judgements)["Accepted"] == "False/UnsupportedValue"
    assert DENIED in parent.judgements[0].message
    assert plan.services == {("infra", "web")}, "what is published may still need its endpoints"


def test_a_route_of_connections_cannot_have_lists() -> None:
    of = annotated(route(TCPRoute, rules=[{"backendRefs": [ref()]}]), {ALLOWED: "10.0.0.0/8"})
    plan = plan_route(route_view(of, services=(service(),)))
    assert plan.is_refused
    assert "Gateway" in plan.parents[0].judgements[0].message


@pytest.mark.parametrize("name", [f"{ALLOWED}.web", f"{DENIED}."])
def test_only_a_gateway_has_a_list_for_a_listener(name: str) -> None:
    assert name in source_lists(ingress({name: "10.0.0.0/8"})).problem
    plan = plan_route(
        route_view(annotated(http_route({"backendRefs": [ref()]}), {name: "10.0.0.0/8"}), services=(service(),))
    )
    assert plan.is_refused
