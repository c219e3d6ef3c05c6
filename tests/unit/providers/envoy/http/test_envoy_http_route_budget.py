"""A small route does not become a large configuration, nor a request a long search."""

from __future__ import annotations

from typing import Literal

import pytest

from fairlead.model.http import (
    Attachment,
    BackendRef,
    Filters,
    HeaderModifier,
    HeaderValue,
    L7Config,
    L7Listener,
    PathMatch,
    RequestMatch,
    Route,
    RouteKind,
    Rule,
)
from fairlead.providers.envoy.http.route_budget import MAX_BYTES, MAX_STEPS, PricedRoute, cost_of, over_budget
from fairlead.providers.envoy.http.route_lookup import ClientRequest, lookup

HTTP = L7Listener("http", 80)
TLS = L7Listener("tls", 443, "TLS", passthrough=True)
TO_B = (BackendRef("b"),)
NONE = Filters()


def route(
    name: str, *rules: Rule, hosts: tuple[str, ...] = (), created: str = "", kind: RouteKind = "HTTP", at: str = "http"
) -> Route:
    attachments = tuple(Attachment(at, hosts[first : first + 64]) for first in range(0, max(1, len(hosts)), 64))
    return Route(name, kind, attachments, rules or (Rule(backends=TO_B),), created)


def named(count: int) -> tuple[str, ...]:
    return tuple(f"h{number}.example.com" for number in range(count))


def matching(*values: str, kind: Literal["Exact", "RegularExpression"] = "Exact", filters: Filters = NONE) -> Rule:
    matches = tuple(RequestMatch(path=PathMatch(kind, value)) for value in values)
    return Rule(matches=matches, filters=filters, backends=TO_B)


def refused(*routes: Route, listeners: tuple[L7Listener, ...] = (HTTP, TLS)) -> dict[str, str]:
    priced = {each.name: PricedRoute(each, each.rules, cost_of(each)) for each in routes}
    return {name: " ".join(set(each.problems.values())) for name, each in over_budget(priced, listeners).items()}


PATHS = tuple(f"/{number}" for number in range(1000))
LONG = HeaderModifier(set=tuple(HeaderValue(f"h{number}", "v" * 4000) for number in range(20)))


@pytest.mark.parametrize(
    "large",
    [
        route("large", matching(*PATHS), hosts=named(1000)),
        route("large", matching(*PATHS, filters=Filters(request_headers=LONG))),
        route("large", Rule(backends=TO_B * 300), hosts=named(6000), kind="TLS", at="tls"),
        route("large", hosts=named(20_000), kind="TLS", at="tls"),
    ],
    ids=["matches-and-names", "matches-and-headers", "names-and-backends", "chains"],
)
def test_what_would_be_multiplied_is_left_out_and_the_others_are_served(large: Route) -> None:
    problems = refused(route("small", hosts=("a.example.com",)), large)
    assert list(problems) == ["large"]
    assert "larger than 16 MiB in Envoy" in problems["large"]
    assert "another load balancer" in problems["large"]


def test_rules_of_a_wildcard_count_for_each_name_below() -> None:
    wide = route("wide", matching(*PATHS), hosts=("*.example.com",), created="2026-01-02T00:00:00Z")
    elsewhere = route("elsewhere", matching(*PATHS), hosts=("*.example.org",), created="2026-01-02T00:00:00Z")
    names = route("names", hosts=named(1000), created="2026-01-01T00:00:00Z")
    assert list(refused(names, wide, elsewhere)) == ["wide"]
    younger = Route("names", names.kind, names.attachments, names.rules, "2026-01-03T00:00:00Z")
    assert list(refused(younger, wide, elsewhere)) == ["names"]


def test_what_gateway_api_allows_at_once_fits() -> None:
    many = tuple(tuple(f"/{rule}/{number}" for number in range(64)) for rule in range(16))
    largest = route("largest", *(matching(*each) for each in many), hosts=named(64))
    thousands = [route(f"r{number}", hosts=(f"{number}.example.org",)) for number in range(10_000)]
    assert refused(largest, *thousands, route("default")) == {}


def test_the_expressions_that_a_request_may_meet_are_limited_together() -> None:
    pattern = "/[ab]*a[ab]{900}x"  # 20 characters: RE2 needs 0.4 s for a path of 90 KiB
    hosts = {
        "a": ("a.example.com",),
        "b": ("*.example.com",),
        "c": ("",),
        "d": ("d.example.org",),
        "e": ("a.example.com",),
    }
    routes = [
        route(name, matching(pattern, kind="RegularExpression"), hosts=each, created=f"2026-01-0{number}T00:00:00Z")
        for number, (name, each) in enumerate(hosts.items(), start=1)
    ]
    assert cost_of(routes[0]).steps * 4 < MAX_STEPS < cost_of(routes[0]).steps * 5
    again = route(
        "f", matching(pattern, kind="RegularExpression"), hosts=("*.example.com",), created="2026-01-07T00:00:00Z"
    )
    problems = refused(*routes, again)
    assert list(problems) == ["f"]
    assert "more than 4,000 instructions together" in problems["f"]
    assert "PathPrefix" in problems["f"]
    # Another host has expressions of its own.
    assert refused(*routes, route("g", matching(pattern, kind="RegularExpression"), hosts=("g.example.org",))) == {}


@pytest.mark.req("L7-1")
def test_of_a_large_route_only_the_large_rules_are_not_served() -> None:
    good = Rule("good", backends=TO_B)
    large = route("large", matching(*PATHS, filters=Filters(request_headers=LONG)), good)
    assert cost_of(large).size > MAX_BYTES
    config = L7Config((HTTP,), (large, route("small", created="2020-01-01T00:00:00Z")))
    decision = lookup(config, ClientRequest("a.example.com", "/7"))
    assert (decision.status, decision.route, decision.rule_number) == (500, "large", 0)
    assert lookup(L7Config((HTTP,), (large,)), ClientRequest("a.example.com", "/else")).rule == good


@pytest.mark.req("L7-1")
def test_of_rules_with_too_many_expressions_the_first_ones_are_served() -> None:
    rules = [matching(f"/{number}[ab]*a[ab]{{900}}x", kind="RegularExpression") for number in range(6)]
    priced = PricedRoute(route("r"), tuple(rules), cost_of(route("r", *rules)))
    reduced = over_budget({"r": priced}, (HTTP,))["r"]
    # Not even the matches of the others fit, so they are left out.
    assert reduced.rules == (*rules[:4], None, None)
    assert list(reduced.problems) == [4, 5]
    # A rule that fits after one that does not is served.
    small = matching("/small")
    priced = PricedRoute(route("r"), (*rules, small), cost_of(route("r", *rules, small)))
    assert over_budget({"r": priced}, (HTTP,))["r"].rules == (*rules[:4], None, None, small)
