"""What of a load balancer an Ingress of another controller can say."""

from __future__ import annotations

import pytest

from fairlead.api.kubernetes import Ingress, IngressObject, IngressStatus, LoadBalancerStatus
from fairlead.api.meta import ObjectMeta
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.http import (
    Attachment,
    Backend,
    BackendRef,
    BackendTls,
    ClientValidation,
    Filters,
    FixedAnswer,
    L7Config,
    L7Listener,
    PathMatch,
    Redirect,
    RequestMatch,
    RetryRule,
    Route,
    RouteKind,
    Rule,
    ValueMatch,
)
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.controller.gateway import GatewayForm
from fairlead.providers.controller.ingress import IngressForm
from fairlead.providers.controller.objects import UNRESOLVED, ControllerSettings, service_name

KEY = LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "ingressclass.public")
WEB = Backend("shop/web:80", "shop/web")
TO_WEB = (BackendRef("shop/web:80"),)
HTTP = L7Listener("http", 80)
HTTPS = L7Listener("https/a.example", 443, "HTTPS", hostname="a.example", certificates=("tls.shop.cert",))
SETTINGS = ControllerSettings("public", {"example.com/tier": "edge"})


def rendered(*routes, listeners=(HTTP, HTTPS), backends=(WEB,)):
    config = L7Config(tuple(listeners), routes, tuple(backends))
    spec = FrontendSpec(KEY, "tenant-east", (Listener(80),), l7=config)
    return IngressForm().render(spec, SETTINGS)


AT_A = (Attachment("http", ("a.example",), one_label=True),)


def route(*rules, kind: RouteKind = "HTTP", attachments=AT_A):
    return Route("ingress.shop.web.1", kind, tuple(attachments), rules)


@pytest.mark.req("K-44", "E-14", "E-16")
def test_hosts_paths_and_certificates_are_those_of_the_route():
    rules = (
        Rule(matches=(RequestMatch(PathMatch("Exact", "/cart")),), backends=TO_WEB),
        Rule(matches=(RequestMatch(PathMatch("PathPrefix", "/")),), backends=TO_WEB),
    )
    attachments = (
        Attachment("http", ("a.example", "*.b.example"), one_label=True),
        Attachment("https/a.example", ("a.example",), one_label=True),
    )
    made = rendered(route(*rules, attachments=attachments))
    (ingress,) = made.objects
    assert made.refused == ()
    assert ingress.name == "ingress.shop.web.1"
    spec = ingress.body["spec"]
    assert spec["ingressClassName"] == "public"
    assert [rule["host"] for rule in spec["rules"]] == ["*.b.example", "a.example"]
    assert [(path["path"], path["pathType"]) for path in spec["rules"][0]["http"]["paths"]] == [
        ("/cart", "Exact"),
        ("/", "Prefix"),
    ]
    service = {"name": service_name(KEY, "shop/web:80"), "port": {"number": 80}}
    assert spec["rules"][0]["http"]["paths"][0]["backend"] == {"service": service}
    assert spec["tls"] == [{"hosts": ["a.example"], "secretName": "tls.shop.cert"}]
    assert ingress.body["metadata"]["annotations"]["example.com/tier"] == "edge"


def test_a_route_of_every_host_has_a_rule_without_host():
    made = rendered(route(Rule(backends=TO_WEB), attachments=(Attachment("http"),)))
    (rule,) = made.objects[0].body["spec"]["rules"]
    assert "host" not in rule
    assert rule["http"]["paths"][0]["path"] == "/"


@pytest.mark.req("W-11", "W-14")
@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (Rule(matches=(RequestMatch(method="GET"),), backends=TO_WEB), "more than host and path"),
        (Rule(matches=(RequestMatch(headers=(ValueMatch("x", "y"),)),), backends=TO_WEB), "more than host and path"),
        (
            Rule(matches=(RequestMatch(PathMatch("RegularExpression", "/a.*")),), backends=TO_WEB),
            "by a regular expression",
        ),
        (Rule(filters=Filters(redirect=Redirect("https")), backends=TO_WEB), "has filters"),
        (Rule(backends=TO_WEB, request_timeout_ms=500), "timeouts"),
        (Rule(backends=TO_WEB, retry=RetryRule((500,))), "retries"),
        (Rule(), "exactly one backend"),
        (Rule(backends=(BackendRef("shop/web:80"), BackendRef("shop/api:80"))), "exactly one backend"),
        (Rule(backends=(BackendRef(""),)), "cannot be resolved"),
    ],
)
def test_what_an_ingress_cannot_say_is_refused_with_its_reason(rule, why):
    good = Route("good", "HTTP", (Attachment("http", ("b.example",), one_label=True),), (Rule(backends=TO_WEB),))
    made = rendered(route(rule), good)
    assert [each.name for each in made.objects] == ["good"]
    (part,) = made.refused
    assert (part.kind, part.name) == ("route", "ingress.shop.web.1")
    assert why in part.reason


@pytest.mark.req("W-11", "W-14")
def test_a_rule_that_an_ingress_cannot_express_is_closed_alone():
    api = Rule("api", matches=(RequestMatch(PathMatch("PathPrefix", "/api")),), backends=TO_WEB, request_timeout_ms=500)
    made = rendered(route(api, Rule(backends=TO_WEB)))
    (ingress,) = made.objects
    (rule,) = ingress.body["spec"]["rules"]
    services = [(path["path"], path["backend"]["service"]["name"]) for path in rule["http"]["paths"]]
    assert services == [("/api", UNRESOLVED), ("/", service_name(KEY, "shop/web:80"))]
    (part,) = made.refused
    assert (part.kind, part.name) == ("rule", "ingress.shop.web.1")
    assert "rule api: " in part.reason


def test_a_closed_path_of_an_ingress_is_closed_at_each_host():
    rules = [Rule(matches=(RequestMatch(PathMatch("Exact", path)),), backends=TO_WEB) for path in ("/a", "/b")]
    (ingress,) = rendered(route(*rules, attachments=(Attachment("http", ("a.example", "b.example")),))).objects
    closed = IngressForm().close(ingress, [1])
    served = [[path["backend"]["service"]["name"] != UNRESOLVED for path in host["http"]["paths"]]
              for host in closed.body["spec"]["rules"]]  # fmt: skip
    assert served == [[True, False]] * 2
    assert closed.digest != ingress.digest
    assert IngressForm().close(closed, []).digest == closed.digest


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (route(Rule(backends=TO_WEB), kind="GRPC"), "kind GRPC"),
        (route(Rule(backends=TO_WEB), attachments=(Attachment("http", ("*.b.example",)),)), "several labels"),
    ],
)
def test_routes_of_other_kinds_and_stars_for_several_labels_are_refused(changed, why):
    made = rendered(changed)
    assert made.objects == ()
    assert why in made.refused[0].reason


def test_a_backend_that_speaks_tls_is_refused():
    secret = Backend("shop/web:80", "shop/web", tls=BackendTls("web.internal", system_ca=True))
    made = rendered(route(Rule(backends=TO_WEB)), backends=(secret,))
    assert "requires TLS" in made.refused[0].reason


def test_unsupported_listeners_of_an_ingress_are_rejected():
    listeners = (
        HTTP,
        L7Listener("alt", 8080),
        L7Listener("db", 5432, "TCP"),
        L7Listener("mtls", 443, "HTTPS", client_validation=ClientValidation("PEM")),
    )
    attachments = (Attachment("http", ("a.example",), one_label=True), Attachment("alt", ("a.example",)))
    made = rendered(route(Rule(backends=TO_WEB), attachments=attachments), listeners=listeners)
    assert [part.name for part in made.refused] == ["alt", "db", "mtls"]
    assert len(made.objects) == 1


@pytest.mark.req("K-46")
def test_the_answer_is_the_address_in_the_status():
    form = IngressForm()
    assert form.answer(IngressObject()).waiting == "no address yet"
    there = LoadBalancerStatus(ingress=[Ingress(ip="203.0.113.7"), Ingress(hostname="lb.example")])
    answer = form.answer(IngressObject(metadata=ObjectMeta(name="web"), status=IngressStatus(there)))
    assert (answer.addresses, answer.waiting) == (("203.0.113.7", "lb.example"), "")


@pytest.mark.req("EDGE-07")
def test_limits_and_answers_are_refused_and_not_dropped():
    limited = route(Rule(backends=TO_WEB, requests_per_second=5))
    assert "requests per second" in rendered(limited).refused[0].reason
    answer = FixedAnswer("a.example", "/.well-known/acme-challenge/x", "x.thumb")
    spec = FrontendSpec(KEY, "tenant-east", (Listener(80),), l7=L7Config((HTTP,), answers=(answer,)))
    (refused,) = IngressForm().render(spec, SETTINGS).refused
    assert (refused.kind, refused.name) == ("answer", "a.example/.well-known/acme-challenge/x")


@pytest.mark.req("EDGE-07")
@pytest.mark.parametrize("form", [IngressForm(), GatewayForm()], ids=["ingress", "gateway"])
def test_figures_of_routes_are_refused(form):
    spec = FrontendSpec(KEY, "tenant-east", (Listener(80),), l7=L7Config((HTTP,), route_figures=True))
    (refused,) = form.render(spec, SETTINGS).refused
    assert (refused.kind, refused.name) == ("annotation", "fairlead.dev/route-figures")
