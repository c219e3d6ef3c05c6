"""Names that the hub makes: deterministic, distinct, within the limits of DNS."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.hostname import host_problem
from fairlead.api.meta import ObjectMeta
from fairlead.api.tcploadbalancer import Origin
from fairlead.api.tenant import Tenant, TenantSpec
from fairlead.translate.generated import (
    domain_certificate,
    domain_problem,
    generated_host,
    is_domain_certificate,
    member_domain,
)

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


def test_the_certificate_of_a_domain_follows_from_domain_and_issuer():
    made = domain_certificate(DOMAIN, "letsencrypt")
    assert is_domain_certificate(made)
    assert host_problem(made) == ""
    assert made != domain_certificate(DOMAIN, "internal")
    assert domain_certificate("", "letsencrypt") == domain_certificate(DOMAIN, "") == ""


def test_without_any_domain_a_member_has_none():
    assert member_domain(tenant(), "") == ""
