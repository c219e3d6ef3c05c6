"""Requests get the same answers through the converted objects as through the Ingresses themselves."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

import pytest
from convert_builders import GATEWAY, convert, ingress, of_kind, path, service

from fairlead.agent.sources.gateway.plan import GatewayPlan, ListenerPlan, ParentKey
from fairlead.agent.sources.gateway.routes import RouteView, plan_route
from fairlead.agent.sources.http import CertificateState
from fairlead.agent.sources.ingress.plan import ClassView, IngressView, plan_class, translate_ingress
from fairlead.api.gateway import Gateway, RouteGroupKind
from fairlead.api.httploadbalancer import HTTPLoadBalancerSpec, LoadBalancerRouteSpec
from fairlead.api.kubernetes import IngressClass, IngressObject
from fairlead.api.meta import ObjectMeta
from fairlead.convert.annotations import by_name
from fairlead.convert.ingresses import ConvertedIngresses
from fairlead.convert.nginx import needs_regex
from fairlead.model.http import L7Config, L7Listener, Route
from fairlead.providers.envoy.http.route_lookup import ClientRequest, RouteDecision, lookup

HOSTS = ("a.example.com", "b.example.com", "*.example.com", "c.example.org", "")
ASKED = ("a.example.com", "b.example.com", "x.example.com", "c.example.org", "nowhere.org")
PATHS = ("/", "/a", "/a/b", "/ab", "/b", "/a/b/c")
#: As files have none, and API servers always one.
DATES = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
SERVICES = ("one", "two", "three", "missing")
THERE = {name: service(name) for name in SERVICES[:3]}


def some_ingress(chance: random.Random, number: int, dates: tuple[str, ...]) -> IngressObject:
    hosts = {
        host: [
            path(chance.choice(PATHS), chance.choice(SERVICES),
                 chance.choice(("Prefix", "Exact")))
            for _ in range(chance.randint(1, 4))
        ]
        for host in chance.sample(HOSTS, chance.randint(1, 3))
    }  # fmt: skip
    secured = [host for host in hosts if host and not host.startswith("*") and chance.random() < 0.6]
    if secured:
        # An Ingress without hosts and one with share a listener then, and which goes first is left to their names.
        hosts.pop("", None)
    return ingress(
        f"{chance.choice('abc')}{number}",
        hosts,
        created=chance.choice(dates),
        tls=[{"hosts": secured, "secretName": f"s{number}"}] if secured else [],
        default=chance.choice(("", "", "one", "three")),
        ssl_redirect="false",
    )


def route_of(spec: LoadBalancerRouteSpec, name: str, origin: str) -> Route:
    return Route(name, spec.kind, spec.attachments, spec.rules, spec.created, origin)


def through_ingresses(ingresses: Iterable[IngressObject]) -> L7Config:
    ingresses = tuple(ingresses)
    certificates = {
        (each.metadata.namespace, tls.secret_name): CertificateState(digest="d")
        for each in ingresses
        for tls in each.spec.tls or ()
    }
    plan = plan_class(ClassView(IngressClass(ObjectMeta(name="c")), ingresses, certificates))
    routes = [
        route_of(spec, f"{each.metadata.name}/{host}", str(each.key))
        for each in ingresses
        for host, spec in translate_ingress(IngressView(each, "lb", THERE, plan.tls_listeners)).routes.items()
    ]
    return L7Config(plan.spec.listeners, tuple(routes))


def through_gateway(conversion: ConvertedIngresses) -> L7Config:
    (gateway,) = of_kind(conversion, "Gateway")
    assert isinstance(gateway, Gateway)
    parent = ParentKey("Gateway", *GATEWAY)
    listeners = gateway.spec.listeners or []
    plans = tuple(
        ListenerPlan(parent, each.name, each.name, each.port, each.protocol, each.hostname, False, None,
                     (RouteGroupKind("HTTPRoute"),), (), True)
        for each in listeners
    )  # fmt: skip
    l7 = tuple(L7Listener(each.name, each.port, each.protocol, each.hostname) for each in listeners)  # type: ignore[arg-type]
    parents = {parent: GatewayPlan(parent, "lb", plans, HTTPLoadBalancerSpec(l7), ())}
    services = {("default", name): each for name, each in THERE.items()}
    routes = [
        route_of(spec, route.metadata.name, str(route.key))
        for route in of_kind(conversion, "HTTPRoute")
        for spec in plan_route(RouteView(route, parents, services)).specs.values()
    ]
    return L7Config(l7, tuple(routes))


def answer(decision: RouteDecision) -> tuple[int, tuple[str, ...]]:
    rule = decision.rule
    return decision.status, tuple(each.backend for each in rule.backends) if rule is not None else ()


def requests() -> Iterable[ClientRequest]:
    for host in ASKED:
        for target in (*PATHS, "/a/", "/zzz"):
            yield ClientRequest(host, target)
            yield ClientRequest(host, target, port=443, server_name=host)


@pytest.mark.req("E-35", "GI-1", "GI-2", "GI-3", "GI-4", "GI-5")
@pytest.mark.parametrize("seed", range(40))
def test_generated_requests_get_the_same_answers(seed: int) -> None:
    chance = random.Random(seed)
    dates = chance.choice((("",), DATES))
    ingresses = [some_ingress(chance, number, dates) for number in range(chance.randint(1, 4))]
    conversion = convert(*ingresses)
    assert all("star matches" in each.message for each in conversion.remarks if each.lost)
    before, after = through_ingresses(ingresses), through_gateway(conversion)
    met = 0
    named = {rule.host for each in ingresses for rule in each.spec.rules or ()}
    for request in chance.sample([*requests()], 40):
        now, was = answer(lookup(after, request)), lookup(before, request)
        if request.port == 443 and was.hostname == "*.example.com" and request.host in named:
            # At the TLS listener of a host with rules of its own, a Gateway has no rules of the wildcard behind them.
            assert now == (404, ())
            continue
        assert now == answer(was), (request, ingresses)
        met += bool(now[1])
    assert met, "some requests reach a backend"


def test_the_star_is_the_difference_that_is_listed() -> None:
    wild = ingress("wild", {"*.example.com": [path("/", "one")]})
    conversion = convert(wild)
    deep = ClientRequest("x.y.example.com")
    assert lookup(through_ingresses([wild]), deep).status == 404
    assert answer(lookup(through_gateway(conversion), deep)) == (0, ("default/one:80",))
    assert not conversion.lossless


#: Paths as charts have them, and targets for those that cut a prefix off.
REGEX_PATHS = (
    "/", "/(.*)", "/api", "/api/", "/api/(.*)", "/api(/|$)(.*)", "/api/internal", "/health", "/[a-z]+", "/v[0-9]+/x",
    "/api/?(.*)", "/a.i", "/api/v2(/|$)(.*)", "/API",
)  # fmt: skip
TARGETS = {"(/|$)(.*)": "/$2", "/(.*)": "/$1", "/?(.*)": "/$1"}
REGEX_REQUESTS = (
    "/", "/api", "/api/", "/api/x", "/apix", "/api/internal/x", "/health", "/healthz", "/v1/x", "/abc", "/api/v2/x",
)  # fmt: skip


def regex_ingress(chance: random.Random, number: int) -> IngressObject:
    chosen = chance.choice(REGEX_PATHS)
    target = next((each for end, each in TARGETS.items() if chosen.endswith(end)), "/t")
    if chance.random() < 0.4:
        return ingress(f"i{number}", {ASKED[0]: [path(chosen, SERVICES[number])]}, rewrite_target=target)
    kinds = ("Prefix", "Exact", "ImplementationSpecific")
    listed = [path(each, SERVICES[number], chance.choice(kinds)) for each in chance.sample(REGEX_PATHS, 3)]
    return ingress(f"i{number}", {ASKED[0]: listed}, use_regex=chance.choice(("true", "false")))


def location_of_nginx(ingresses: Iterable[IngressObject], target: str) -> tuple[str, str] | None:
    """Return Ingress and path of the location that nginx chooses where it matches regular expressions."""
    locations: dict[str, str] = {}
    for each in ingresses:
        for rule in each.spec.rules or ():
            for listed in (rule.http.paths if rule.http else None) or ():
                locations.setdefault(listed.path, each.metadata.name)
    in_order = sorted(sorted(locations, reverse=True), key=len, reverse=True)
    taking = [value for value in in_order if re.match(value, target, re.IGNORECASE)]
    return (locations[taking[0]], taking[0]) if taking else None


@pytest.mark.req("L7-6")
@pytest.mark.parametrize("seed", range(150))
def test_paths_in_regex_mode_take_the_requests_that_nginx_gives_them(seed: int) -> None:
    chance = random.Random(seed)
    ingresses = [regex_ingress(chance, number) for number in range(3)]
    if not any(
        needs_regex(listed, by_name(each.metadata.annotations))
        for each in ingresses
        for rule in each.spec.rules or ()
        for listed in (rule.http.paths if rule.http else None) or ()
    ):
        ingresses.append(ingress("regex", {ASKED[0]: [path("/zzz", "one")]}, use_regex="true"))  # fmt: skip
    conversion = convert(*ingresses)
    after = through_gateway(conversion)
    lost = {
        (each.ingress.partition("/")[2], each.what.removeprefix("path ")) for each in conversion.remarks if each.lost
    }
    for target in REGEX_REQUESTS:
        before = location_of_nginx(ingresses, target)
        now = lookup(after, ClientRequest(ASKED[0], target))
        if before is None:
            assert now.rule is None or lost, target
        elif before not in lost:
            assert now.route == before[0], (target, before, now)


@pytest.mark.req("L7-4", "L7-12")
def test_a_path_that_loses_its_protection_is_answered_500() -> None:
    guarded = ingress("admin", {"a.example.com": [path("/a", "one")]}, auth_url="http://login")
    after = through_gateway(convert(ingress("shop", {"a.example.com": [path("/", "one")]}), guarded))
    assert answer(lookup(after, ClientRequest("a.example.com", "/a/b"))) == (500, ())
    assert answer(lookup(after, ClientRequest("a.example.com", "/b")))[1]
