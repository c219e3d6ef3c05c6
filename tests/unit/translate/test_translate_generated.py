"""Names that the hub makes: deterministic, distinct, within the limits of DNS; and which requests they answer."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.hostnames import host_problem
from fairlead.api.httploadbalancer import LoadBalancerRoute, LoadBalancerRouteSpec
from fairlead.api.meta import ObjectMeta
from fairlead.api.tcploadbalancer import Origin
from fairlead.api.tenant import Tenant, TenantSpec
from fairlead.model.http import Attachment, L7Listener, RouteKind
from fairlead.translate.generated import domain_problem, generated_host, member_domain, with_generated_routes

DOMAIN = "east.lb.example.com"
INGRESS = Origin("Ingress", "shop", "web")
GATEWAY = Origin("Gateway", "shop", "web")


def tenant(name="east", domain=""):
    return Tenant(metadata=ObjectMeta(name=name), spec=TenantSpec(domain=domain))


@pytest.mark.req("K-47", "K-48", "K-51")
def test_each_member_has_a_subdomain_of_the_hubs_domain_unless_it_has_its_own():
    assert member_domain(tenant(), "lb.example.com") == DOMAIN
    assert member_domain(tenant(domain="apps.example.net"), "lb.example.com") == "apps.example.net"
    assert member_domain(tenant(domain="apps.example.net"), "") == "apps.example.net"
    assert member_domain(tenant(), "") == ""
    assert member_domain(tenant(domain="no_domain"), "lb.example.com") == ""


@pytest.mark.req("K-49")
@pytest.mark.parametrize(
    ("origin", "label"),
    [
        (INGRESS, "web-shop"),
        (GATEWAY, "web-shop-gw"),
        (Origin("Service", "shop", "web"), "web-shop-svc"),
        (Origin("Ingress", "b-c", "a"), "a-b-c-f37494d93dae"),
        (Origin("Ingress", "c", "a-b"), "a-b-c-372a787d0d8e"),
    ],
)
def test_the_name_follows_from_kind_namespace_and_name(origin, label):
    made = generated_host(DOMAIN, origin)
    assert made == f"{label}.{DOMAIN}"


def test_other_kinds_and_members_without_a_domain_get_no_name():
    assert generated_host(DOMAIN, Origin("HTTPRoute", "shop", "web")) == ""
    assert generated_host("", INGRESS) == ""
    assert generated_host(DOMAIN, Origin("Ingress")) == ""


PART = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,80}[a-z0-9])?", fullmatch=True)
SPACE = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
ORIGIN = st.builds(Origin, st.sampled_from(["Ingress", "Gateway", "Service"]), SPACE, PART)
SHORT = st.builds(
    Origin,
    st.sampled_from(["Ingress", "Gateway", "Service"]),
    st.text("ab-", min_size=1, max_size=3),
    st.text("ab-.", min_size=1, max_size=3),
)


@pytest.mark.req("K-49")
@given(ORIGIN)
def test_every_name_is_a_dns_name_with_labels_within_the_limits(origin):
    made = generated_host(DOMAIN, origin)
    assert host_problem(made) == ""
    assert len(made.partition(".")[0]) <= 63
    assert made[2:4] != "--"


@pytest.mark.req("K-49")
@given(SHORT, SHORT)
def test_two_objects_never_share_a_name(left, right):
    assert (generated_host(DOMAIN, left) == generated_host(DOMAIN, right)) == (left == right)


def test_a_domain_leaves_room_for_names():
    assert domain_problem("lb.example.com") == ""
    assert "189" in domain_problem(".".join(["a" * 60] * 4))
    assert "xn--bcher-kva.example" in domain_problem("bücher.example")


def route(*hosts, listener="http", origin=INGRESS, kind: RouteKind = "HTTP"):
    spec = LoadBalancerRouteSpec("lb", kind=kind, attachments=(Attachment(listener, hosts),), origin=origin)
    return LoadBalancerRoute(metadata=ObjectMeta(name="web"), spec=spec)


@pytest.mark.req("K-50")
def test_an_ingress_answers_to_its_name_where_its_hosts_are_served():
    listeners = (L7Listener("http", 80), L7Listener("https/a.com", 443, "HTTPS", hostname="a.com"))
    routes = (route("a.com"), route(), route("a.com", listener="https/a.com"))
    same, changed = with_generated_routes(DOMAIN, Origin("IngressClass", "", "fairlead"), listeners, routes)
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
    more, changed = with_generated_routes(DOMAIN, GATEWAY, listeners, routes)
    name = f"web-shop-gw.{DOMAIN}"
    assert more[4:] == (
        L7Listener("generated/80", 80, hostname=name),
        L7Listener("generated/8080", 8080, hostname=name),
    )
    at_name = Attachment("generated/80", (name,))
    assert [each.spec.attachments[1:] for each in changed] == [(at_name,), (at_name,), (), ()]


def test_without_a_domain_nothing_changes():
    listeners, routes = (L7Listener("http", 80),), (route("a.com"),)
    assert with_generated_routes("", GATEWAY, listeners, routes) == (listeners, routes)
    assert msgspec.to_builtins(routes) == msgspec.to_builtins((route("a.com"),))
