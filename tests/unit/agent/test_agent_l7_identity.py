"""Classes that objects name and that do not exist: which of them are meant for Fairlead."""

from __future__ import annotations

import pytest

from fairlead.agent.identity import missing_class

CONTROLLER = "fairlead.dev/ingress-controller"


@pytest.mark.req("X-42")
@pytest.mark.parametrize(
    ("named", "classes", "said"),
    [
        ("fairlaed", {"fairlead": True, "nginx": False}, "Did you mean 'fairlead'?"),
        ("edge", {"fairlead": True}, "there is no IngressClass edge"),
        ("fairlead", {"nginx": False}, CONTROLLER),
        ("fairlaed", {}, CONTROLLER),
        ("traefik", {}, ""),
        ("nginx", {"nginx": False}, ""),
        ("", {"fairlead": True}, ""),
    ],
)
def test_a_class_that_does_not_exist_is_named(named: str, classes: dict[str, bool], said: str) -> None:
    why = missing_class("IngressClass", named, classes, CONTROLLER)
    assert bool(why) == bool(said)
    assert said in why
