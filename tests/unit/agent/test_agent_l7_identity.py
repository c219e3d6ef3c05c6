"""Classes that objects name and that are not served: which of them are meant for Fairlead."""

from __future__ import annotations

import pytest

from fairlead.agent.identity import missing_class

CONTROLLER = "fairlead.dev/ingress-controller"
NGINX = "k8s.io/ingress-nginx"


@pytest.mark.req("X-42")
@pytest.mark.parametrize(
    ("named", "classes", "said"),
    [
        ("fairlaed", {"fairlead": CONTROLLER, "nginx": NGINX}, "Did you mean 'fairlead'?"),
        ("edge", {"fairlead": CONTROLLER}, "there is no IngressClass edge"),
        ("fairlead", {"nginx": NGINX}, CONTROLLER),
        ("fairlaed", {}, CONTROLLER),
        ("traefik", {}, ""),
        ("nginx", {"nginx": NGINX}, ""),
        ("", {"fairlead": CONTROLLER}, ""),
        ("fairlead", {"fairlead": CONTROLLER}, ""),
        ("fairlead", {"fairlead": NGINX}, ""),
        (
            "fairlead",
            {"fairlead": "fairlead.dev/ingress"},
            "IngressClass fairlead has the controller fairlead.dev/ingress",
        ),
        ("shop", {"fairlead": CONTROLLER, "shop": "fairlead.dev/gateway-controller"}, f"the controller {CONTROLLER}"),
    ],
)
def test_a_class_that_is_not_served_is_named(named: str, classes: dict[str, str], said: str) -> None:
    why = missing_class("IngressClass", named, classes, CONTROLLER)
    assert bool(why) == bool(said)
    assert said in why
