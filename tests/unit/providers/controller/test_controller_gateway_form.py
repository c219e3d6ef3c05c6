"""A load balancer as a Gateway with routes of another controller."""

from __future__ import annotations

import pytest

from fairlead.api.gateway import Gateway, GatewayAddress, GatewayStatus
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.http import (
    Attachment,
    Backend,
    BackendRef,
    BackendTls,
    ClientValidation,
    Cors,
    Filters,
    HeaderModifier,
    HeaderValue,
    L7Config,
    L7Listener,
    Mirror,
    PathMatch,
    PathModifier,
    Redirect,
    RequestMatch,
    RetryRule,
    Rewrite,
    Route,
    RouteKind,
    Rule,
    SessionPersistence,
    ValueMatch,
)
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.controller.gateway import GatewayForm
from fairlead.providers.controller.objects import ControllerSettings, service_name

KEY = LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "gateway.shop.public")
WEB, API = Backend("shop/web:80", "shop/web"), Backend("shop/api:80", "shop/api", protocol="HTTP2")
HTTP = L7Listener("http", 80)
TO_WEB = BackendRef("shop/web:80", 9)


def rendered(*routes, listeners=(HTTP,), backends=(WEB, API), address=""):
    config = L7Config(tuple(listeners), routes, tuple(backends))
    spec = FrontendSpec(KEY, "tenant-east", (Listener(80),), address=address, l7=config)
    return GatewayForm().render(spec, ControllerSettings("eg", {"example.com/tier": "edge"}))


AT_A = (Attachment("http", ("a.example",)),)


def route(*rules, kind: RouteKind = "HTTP", attachments=AT_A):
    return Route("httproute.shop.web.1", kind, tuple(attachments), rules)


@pytest.mark.req("K-44", "K-62", "E-21")
def test_the_gateway_has_the_class_the_listeners_and_the_address():
    listeners = (
        HTTP,
        L7Listener("https/a", 443, "HTTPS", hostname="a.example", certificates=("tls.shop.cert",)),
        L7Listener("raw", 8443, "TLS", hostname="*.b.example", passthrough=True),
    )
    gateway = rendered(listeners=listeners, address="192.0.2.1").objects[0]
    spec = gateway.body["spec"]
    assert spec["gatewayClassName"] == "eg"
    assert spec["addresses"] == [{"type": "IPAddress", "value": "192.0.2.1"}]
    assert gateway.body["metadata"]["annotations"]["example.com/tier"] == "edge"
    http, https, raw = spec["listeners"]
    assert (http["port"], http["protocol"]) == (80, "HTTP")
    assert https["tls"] == {"mode": "Terminate", "certificateRefs": [{"name": "tls.shop.cert"}]}
    assert (raw["hostname"], raw["tls"]) == ("*.b.example", {"mode": "Passthrough"})
    assert len({each["name"] for each in spec["listeners"]}) == 3


@pytest.mark.req("E-22", "K-44")
def test_matches_filters_weights_and_timeouts_are_translated():
    match = RequestMatch(
        PathMatch("PathPrefix", "/v2"),
        "GET",
        (ValueMatch("x-user", "1"),),
        (ValueMatch("q", ".*", "RegularExpression"),),
    )
    filters = Filters(
        request_headers=HeaderModifier((HeaderValue("a", "1"),), (HeaderValue("b", "2"),), ("c",)),
        response_headers=HeaderModifier(remove=("server",)),
        rewrite=Rewrite("inner.example", PathModifier("ReplacePrefixMatch", "/")),
        mirrors=(Mirror("shop/api:80", 1, 4), Mirror("")),
        cors=Cors(("https://a.example",), ("GET",), allow_credentials=True, max_age=60),
    )
    rule = Rule("main", (match,), filters, (TO_WEB, BackendRef("", 1)), 500, 100, RetryRule((503,), 2, 50))
    gateway, made = rendered(route(rule)).objects
    spec = made.body["spec"]
    assert made.resource.kind == "HTTPRoute"
    assert spec["hostnames"] == ["a.example"]
    assert spec["parentRefs"][0]["name"] == gateway.name
    assert spec["parentRefs"][0]["sectionName"] == gateway.body["spec"]["listeners"][0]["name"]
    (said,) = spec["rules"]
    assert said["matches"] == [
        {
            "path": {"type": "PathPrefix", "value": "/v2"},
            "method": "GET",
            "headers": [{"type": "Exact", "name": "x-user", "value": "1"}],
            "queryParams": [{"type": "RegularExpression", "name": "q", "value": ".*"}],
        }
    ]
    assert said["timeouts"] == {"request": "500ms", "backendRequest": "100ms"}
    assert said["retry"] == {"attempts": 2, "codes": [503], "backoff": "50ms"}
    assert said["filters"] == [
        {
            "type": "RequestHeaderModifier",
            "requestHeaderModifier": {
                "set": [{"name": "a", "value": "1"}],
                "add": [{"name": "b", "value": "2"}],
                "remove": ["c"],
            },
        },
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"remove": ["server"]}},
        {
            "type": "URLRewrite",
            "urlRewrite": {
                "hostname": "inner.example",
                "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"},
            },
        },
        {
            "type": "RequestMirror",
            "requestMirror": {
                "backendRef": {"name": service_name(KEY, "shop/api:80"), "port": 80},
                "fraction": {"numerator": 1, "denominator": 4},
            },
        },
        {
            "type": "CORS",
            "cors": {
                "allowOrigins": ["https://a.example"],
                "allowMethods": ["GET"],
                "maxAge": 60,
                "allowCredentials": True,
            },
        },
    ]
    assert [(each["name"], each["weight"]) for each in said["backendRefs"]] == [
        (service_name(KEY, "shop/web:80"), 9),
        ("fairlead-unresolved-backend", 1),
    ]


def test_a_redirect_is_reported():
    redirect = Redirect("https", "b.example", PathModifier("ReplaceFullPath", "/new"), 8443, 301)
    _, made = rendered(route(Rule(filters=Filters(redirect=redirect)))).objects
    assert made.body["spec"]["rules"][0]["filters"] == [
        {
            "type": "RequestRedirect",
            "requestRedirect": {
                "statusCode": 301,
                "scheme": "https",
                "hostname": "b.example",
                "port": 8443,
                "path": {"type": "ReplaceFullPath", "replaceFullPath": "/new"},
            },
        }
    ]


@pytest.mark.req("E-27")
@pytest.mark.parametrize(
    ("path", "method"),
    [
        (PathMatch("Exact", "/shop.Cart/Add"), {"type": "Exact", "service": "shop.Cart", "method": "Add"}),
        (PathMatch("PathPrefix", "/shop.Cart/"), {"type": "Exact", "service": "shop.Cart"}),
        (PathMatch(), None),
    ],
)
def test_methods_of_grpc_are_services_and_methods_again(path, method):
    rule = Rule(matches=(RequestMatch(path, headers=(ValueMatch("x", "y"),)),), backends=(TO_WEB,))
    _, made = rendered(route(rule, kind="GRPC")).objects
    (match,) = made.body["spec"]["rules"][0]["matches"]
    assert made.resource.kind == "GRPCRoute"
    assert match.get("method") == method
    assert match["headers"] == [{"type": "Exact", "name": "x", "value": "y"}]


@pytest.mark.parametrize(("kind", "named"), [("TLS", True), ("TCP", False), ("UDP", False)])
def test_routes_of_connections_have_backends_only(kind, named):
    _, made = rendered(route(Rule(backends=(TO_WEB,)), kind=kind)).objects
    assert made.resource.kind == f"{kind}Route"
    assert ("hostnames" in made.body["spec"]) is named
    assert set(made.body["spec"]["rules"][0]) == {"backendRefs"}


def test_what_cannot_be_said_is_refused_and_the_rest_is_served():
    listeners = (HTTP, L7Listener("mtls", 443, "HTTPS", client_validation=ClientValidation("PEM")))
    tls = Backend("shop/api:80", "shop/api", tls=BackendTls("api", system_ca=True))
    star = Route("star", "HTTP", (Attachment("http", ("*.a.example",), one_label=True),), (Rule(backends=(TO_WEB,)),))
    secret = Route("secret", "HTTP", (Attachment("http"),), (Rule(backends=(BackendRef("shop/api:80"),)),))
    session = Route("session", "HTTP", (Attachment("http"),), (Rule(backends=(TO_WEB,), session=SessionPersistence()),))
    made = rendered(route(Rule(backends=(TO_WEB,))), star, secret, session, listeners=listeners, backends=(WEB, tls))
    assert [each.resource.kind for each in made.objects] == ["Gateway", "HTTPRoute"]
    assert [(part.kind, part.name) for part in made.refused] == [
        ("listener", "mtls"),
        ("route", "star"),
        ("route", "secret"),
        ("route", "session"),
    ]


@pytest.mark.req("L7-1")
@pytest.mark.parametrize("kind", ["HTTP", "GRPC"])
def test_of_a_route_only_the_rules_that_cannot_be_said_answer_500(kind: RouteKind):
    matches = (RequestMatch(PathMatch("PathPrefix", "/limited")),) if kind == "HTTP" else ()
    limited = Rule("limited", matches, backends=(TO_WEB,), requests_per_second=5)
    plain = Backend("shop/api:80", "shop/api", tls=BackendTls("api", system_ca=True))
    secret = Rule("secret", backends=(BackendRef("shop/api:80"),))
    good = Rule("good", backends=(TO_WEB,))
    made = rendered(route(limited, good, secret, kind=kind), backends=(WEB, plain))
    (rules,) = [each.body["spec"]["rules"] for each in made.objects if each.resource.kind == f"{kind}Route"]
    assert [(rule["name"], "backendRefs" in rule) for rule in rules] == [
        ("limited", False),
        ("good", True),
        ("secret", False),
    ]
    assert ("matches" in rules[0]) is bool(matches)
    assert [(part.kind, part.reason.partition(" ")[0]) for part in made.refused] == [("rule", "rule")] * 2


@pytest.mark.parametrize(
    ("status", "generation", "waiting"),
    [(None, 1, "Programmed"), ("True", 1, ""), ("True", 2, "Programmed"), ("False", 1, "AddressNotUsable: no")],
)
def test_a_gateway_serves_when_programmed_for_its_generation(status, generation, waiting):
    reason, message = ("Programmed", "") if status == "True" else ("AddressNotUsable", "no")
    conditions = [WireCondition("Programmed", status, reason, message, observed_generation=1)] if status else None
    answered = GatewayStatus(addresses=[GatewayAddress("IPAddress", "203.0.113.7")], conditions=conditions)
    answer = GatewayForm().answer(Gateway(metadata=ObjectMeta(name="g", generation=generation), status=answered))
    assert answer.addresses == ("203.0.113.7",)
    assert waiting in answer.waiting
    assert bool(answer.waiting) == bool(waiting)


@pytest.mark.req("L7-2", "L7-8")
@pytest.mark.parametrize("kind", ["HTTP", "GRPC"])
def test_what_no_proxy_may_do_is_not_passed_on_to_another_controller(kind: RouteKind):
    length = Filters(request_headers=HeaderModifier(set=(HeaderValue("Content-Length", "0"),)))
    target = Filters(rewrite=Rewrite(path=PathModifier("ReplaceFullPath", "/x HTTP/1.1")))
    of_backend = Rule(backends=(BackendRef("shop/web:80", filters=length),))
    for rule in (Rule(filters=length, backends=(TO_WEB,)), Rule(filters=target, backends=(TO_WEB,)), of_backend):
        result = rendered(route(rule, kind=kind))
        assert [part.name for part in result.refused] == ["httproute.shop.web.1"]
        assert "Content-Length" in result.refused[0].reason or "valid path" in result.refused[0].reason
        assert "Content-Length" not in str(result.objects)
        assert "HTTP/1.1" not in str(result.objects)


@pytest.mark.req("EDGE-07")
def test_the_gateway_asks_for_the_addresses_of_both_families():
    spec = FrontendSpec(
        KEY, "tenant-east", (Listener(80),), address="192.0.2.1", second_address="2001:db8::1", l7=L7Config((HTTP,))
    )
    gateway = GatewayForm().render(spec, ControllerSettings("eg")).objects[0]
    assert [each["value"] for each in gateway.body["spec"]["addresses"]] == ["192.0.2.1", "2001:db8::1"]
