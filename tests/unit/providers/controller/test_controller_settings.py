"""Parameters of a class that has another controller serve."""

from __future__ import annotations

import pytest

from fairlead.errors import BadConfiguration
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.http import L7Config
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.controller.objects import settings_from_spec


def spec(parameters, *, l7=True):
    key = LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "web")
    return FrontendSpec(key, "g", (Listener(80),), parameters=parameters, l7=L7Config(()) if l7 else None)


@pytest.mark.req("K-45", "E-30")
def test_the_controllers_class_and_annotations_are_read():
    settings = settings_from_spec(spec({"controllerClass": "nginx", "annotation.a/b": "c"}), provider="ingress")
    assert (settings.controller_class, settings.annotations) == ("nginx", {"a/b": "c"})


@pytest.mark.parametrize(
    ("wrong", "pattern"),
    [
        (spec({}), "parameters.controllerClass of its class is missing"),
        (
            spec({"controllerClass": "nginx", "colour": "red"}),
            "parameters.colour of its class is unknown to provider ingress",
        ),
        (spec({"controllerClass": "nginx"}, l7=False), "Ingresses and Gateways only"),
    ],
)
def test_problems_are_named(wrong, pattern):
    with pytest.raises(BadConfiguration, match=pattern):
        settings_from_spec(wrong, provider="ingress")
