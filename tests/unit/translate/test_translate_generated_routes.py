"""Which requests a generated name answers: over HTTP, and over HTTPS once its domain has a certificate."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.httploadbalancer import LoadBalancerRoute, LoadBalancerRouteSpec
from fairlead.api.meta import ObjectMeta
from fairlead.api.tcploadbalancer import Origin
from fairlead.model.http import Attachment, ClientValidation, L7Listener, RouteKind
from fairlead.translate.generated import with_generated_listeners, with_generated_routes

DOMAIN = "east.lb.example.com"
INGRESS = Origin("Ingress", "shop", "web")
CLASS = Origin("IngressClass", "", "fairlead")
GATEWAY = Origin("Gateway", "shop", "web")
OF_GATEWAY = f"web-shop-gw.{DOMAIN}"
STAR = "domain.star"


def both(domain, origin, listeners, routes, certificate=""):
    generated = with_generated_listeners(domain, origin, listeners, certificate)
    return generated.listeners, with_generated_routes(domain, origin, generated, routes)


def route(*hosts, listener="http", origin=INGRESS, kind: RouteKind = "HTTP"):
    spec = LoadBalancerRouteSpec("lb", kind=kind, attachments=(Attachment(listener, hosts),), origin=origin)
    return LoadBalancerRoute(metadata=ObjectMeta(name="web"), spec=spec)


@pytest.mark.req("K-50")
def test_an_ingress_answers_to_its_name_where_its_hosts_are_served():
    listeners = (L7Listener("http", 80), L7Listener("https/a.com", 443, "HTTPS", hostname="a.com"))
    routes = (route("a.com"), route(), route("a.com", listener="https/a.com"))
    same, changed = both(DOMAIN, CLASS, listeners, routes)
    assert same == listeners
    at_name = Attachment("http", (f"web-shop.{DOMAIN}",))
    assert [each.spec.attachments[1:] for each in changed] == [(at_name,), (at_name,), ()]
    assert [each.spec.attachments[0] for each in changed] == [each.spec.attachments[0] for each in routes]


@pytest.mark.req("K-50")
def test_a_gateway_answers_to_its_name_with_all_its_routes_of_a_port():
    listeners = (
        L7Listener("a", 80, hostname="a.com"),
        L7Listener("b", 80, hostname="*.b.com"),
        L7Listener("c", 8080),
        L7Listener("s", 443, "HTTPS", hostname="a.com"),
    )
    http = Origin("HTTPRoute", "shop", "web")
    routes = (route("a.com", listener="a", origin=http), route("x.b.com", listener="b", origin=http),
              route("a.com", listener="s", origin=http), route(listener="c", origin=http, kind="TCP"))  # fmt: skip
    more, changed = both(DOMAIN, GATEWAY, listeners, routes)
    name = f"web-shop-gw.{DOMAIN}"
    assert more[4:] == (
        L7Listener("generated/80", 80, hostname=name),
        L7Listener("generated/8080", 8080, hostname=name),
    )
    at_name = Attachment("generated/80", (name,))
    assert [each.spec.attachments[1:] for each in changed] == [(at_name,), (at_name,), (), ()]


def test_without_a_domain_nothing_changes():
    listeners, routes = (L7Listener("http", 80),), (route("a.com"),)
    assert both("", GATEWAY, listeners, routes, STAR) == (listeners, routes)
    assert msgspec.to_builtins(routes) == msgspec.to_builtins((route("a.com"),))


def secure(port, host):
    return L7Listener(f"generated/{port}", port, "HTTPS", hostname=host, certificates=(STAR,))


@pytest.mark.req("K-50", "K-53")
def test_a_certified_ingress_serves_its_name_and_hosts_of_users():
    listeners = (L7Listener("http", 80), L7Listener("https/a.com", 443, "HTTPS", hostname="a.com"))
    routes = (route("a.com"), route("a.com", listener="https/a.com"))
    more, changed = both(DOMAIN, CLASS, listeners, routes, STAR)
    assert more == (*listeners, secure(443, f"*.{DOMAIN}"))
    name = (f"web-shop.{DOMAIN}",)
    assert changed[0].spec.attachments[1:] == (Attachment("http", name), Attachment("generated/443", name))
    assert changed[1] == routes[1]


@pytest.mark.req("K-50", "K-53")
def test_a_gateway_serves_only_its_own_routes_over_https():
    listeners = (L7Listener("plain", 80), L7Listener("s", 8443, "HTTPS", hostname="a.com", certificates=("a",)))
    http = Origin("HTTPRoute", "shop", "web")
    routes = (route(listener="plain", origin=http), route("a.com", listener="s", origin=http))
    more, changed = both(DOMAIN, GATEWAY, listeners, routes, STAR)
    assert more[2:] == (L7Listener("generated/80", 80, hostname=OF_GATEWAY), secure(8443, OF_GATEWAY))
    assert [[each.listener for each in changed_route.spec.attachments[1:]] for changed_route in changed] == [
        ["generated/80"],
        ["generated/8443"],
    ]


@pytest.mark.req("K-50", "K-53")
def test_a_gateway_without_https_serves_routes_of_its_first_port_at_443():
    listeners = (L7Listener("b", 8080), L7Listener("a", 80, hostname="a.com"))
    http = Origin("HTTPRoute", "shop", "web")
    routes = (route("a.com", listener="a", origin=http), route(listener="b", origin=http))
    more, changed = both(DOMAIN, GATEWAY, listeners, routes, STAR)
    assert secure(443, OF_GATEWAY) in more
    assert [[each.listener for each in changed_route.spec.attachments[1:]] for changed_route in changed] == [
        ["generated/80", "generated/443"],
        ["generated/8080"],
    ]


@pytest.mark.parametrize(
    "listener",
    [
        pytest.param(
            L7Listener("s", 443, "HTTPS", hostname="a.com", client_validation=ClientValidation("PEM")), id="of-clients"
        ),
        pytest.param(L7Listener("s", 443, "TCP"), id="of-another-protocol"),
        pytest.param(L7Listener("s", 443), id="of-http"),
    ],
)
def test_a_port_is_unchanged_if_the_name_would_bypass_it(listener):
    more, _ = both(DOMAIN, GATEWAY, (L7Listener("plain", 80), listener), (), STAR)
    assert [each for each in more if each.protocol == "HTTPS"] == [listener] * (listener.protocol == "HTTPS")


def test_a_listener_that_the_user_made_for_the_very_name_keeps_its_certificate():
    own = L7Listener("own", 443, "HTTPS", hostname=OF_GATEWAY, certificates=("own",))
    more, changed = both(DOMAIN, GATEWAY, (own,), (route(listener="own", origin=Origin("HTTPRoute", "s", "w")),), STAR)
    assert more == (own,)
    assert changed[0].spec.attachments[1:] == (Attachment("own", (OF_GATEWAY,)),)


@pytest.mark.parametrize("origin", [Origin("LoadBalancer", "", "web"), Origin("Gateway", "", "")])
def test_other_objects_get_no_https_name(origin):
    listeners = (L7Listener("http", 80),)
    assert with_generated_listeners(DOMAIN, origin, listeners, STAR).listeners == listeners
