"""Which object KIND/NAME names."""

from __future__ import annotations

import pytest

from fairlead.cli.object_ref import parse_object_ref
from fairlead.errors import BadConfiguration


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lb/shared", ("LoadBalancer", "here", "shared")),
        ("LB/shared", ("LoadBalancer", "here", "shared")),
        ("tcplb/shop.web", ("TCPLoadBalancer", "here", "shop.web")),
        ("LoadBalancer/shop/shared", ("LoadBalancer", "shop", "shared")),
        ("class/edge", ("LoadBalancerClass", "", "edge")),
        ("lbc/edge", ("LoadBalancerClass", "", "edge")),
    ],
)
def test_an_object_is_typed_as_kubectl_does_or_as_the_verbs_print_it(typed: str, meant: tuple[str, str, str]) -> None:
    assert parse_object_ref(typed, "here") == meant


@pytest.mark.parametrize("typed", ["", "lb", "lb/", "/x", "svc/web", "lb/a/b/c", "class/a/b", "lb//x"])
def test_what_is_no_object_is_said_with_an_example(typed: str) -> None:
    with pytest.raises(BadConfiguration, match="lb/shared"):
        parse_object_ref(typed, "here")
