"""Which object KIND/NAME names."""

from __future__ import annotations

import pytest

from fairlead.errors import BadConfiguration
from fairlead.status.object_ref import ANY, ObjectRef, parse_object_ref


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lb/shared", ObjectRef("LoadBalancer", "here", "shared")),
        ("LB/shared", ObjectRef("LoadBalancer", "here", "shared")),
        ("tcplb/shop.web", ObjectRef("TCPLoadBalancer", "here", "shop.web")),
        ("LoadBalancer/shop/shared", ObjectRef("LoadBalancer", "shop", "shared")),
        ("class/edge", ObjectRef("LoadBalancerClass", "", "edge")),
        ("lbc/edge", ObjectRef("LoadBalancerClass", "", "edge")),
        ("svc/web", ObjectRef("Service", "here", "web")),
        ("svc/shop/web", ObjectRef("Service", "shop", "web")),
        ("svc/east/shop/web", ObjectRef("Service", "shop", "web", "east")),
    ],
)
def test_an_object_is_typed_as_kubectl_does_or_as_the_verbs_print_it(typed: str, meant: ObjectRef) -> None:
    assert parse_object_ref(typed, "here") == meant


@pytest.mark.parametrize(
    ("typed", "name"), [("east/default/web", "east/default/web"), ("shop/shared", "shop/shared"), ("web", "here/web")]
)
def test_objects_listed_by_status_are_typed_the_same(typed: str, name: str) -> None:
    ref = parse_object_ref(typed, "here")
    assert ref == ObjectRef(ANY, "", name)
    assert (ref.title, ref.path, ref.argument) == (name, name, name)


def test_without_a_namespace_it_is_default() -> None:
    assert parse_object_ref("svc/web") == ObjectRef("Service", "default", "web")
    assert parse_object_ref("web") == ObjectRef(ANY, "", "default/web")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ingress/shop", ObjectRef("Ingress", "here", "shop")),
        ("ing/east/web/shop", ObjectRef("Ingress", "web", "shop", "east")),
        ("Gateway/web/edge", ObjectRef("Gateway", "web", "edge")),
        ("httproute/shop", ObjectRef("HTTPRoute", "here", "shop")),
    ],
)
def test_what_shares_its_load_balancer_is_only_explained(typed: str, meant: ObjectRef) -> None:
    assert parse_object_ref(typed, "here", sharing=True) == meant
    with pytest.raises(BadConfiguration, match=f"shares its load balancer .* fairlead explain {typed} names it"):
        parse_object_ref(typed, "here")


@pytest.mark.req("EDGE-17")
@pytest.mark.parametrize(
    "typed",
    [
        "svc/../../etc", "svc/..", "svc/.", "svc/%2e%2e", "svc/a%2Fb", "svc/Web", "svc/a b", "svc/a\n", "svc/a?watch=1",
        "svc/-a", "svc/a-", "svc/a..b", f"svc/{'a' * 254}", "lb/../shared", "../../shared", "class/..", "hostname/*",
        "ingress/../x", "svc/östlich", "east/..", "..",
    ],
)  # fmt: skip
def test_what_no_object_can_be_called_is_refused_before_anything_is_asked(typed: str) -> None:
    with pytest.raises(BadConfiguration) as refused:
        parse_object_ref(typed, "here", sharing=True)
    assert repr(typed) in str(refused.value)


@pytest.mark.req("EDGE-17")
@pytest.mark.parametrize("namespace", ["..", "%2e", "Shop", "a/b"])
def test_a_namespace_that_cannot_exist_is_refused(namespace: str) -> None:
    with pytest.raises(BadConfiguration, match="--namespace"):
        parse_object_ref("svc/web", namespace)


@pytest.mark.parametrize("typed", ["", "lb", "lb/", "/x", "svc/a/b/c/d", "a/b/c/d", "lb/a/b/c", "class/a/b", "lb//x"])
def test_invalid_object_names_are_reported_with_an_example(typed: str) -> None:
    with pytest.raises(BadConfiguration, match="svc/web"):
        parse_object_ref(typed, "here")
