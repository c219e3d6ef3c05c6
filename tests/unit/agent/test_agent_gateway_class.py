"""The status of a GatewayClass: accepted or not, the version of the CRDs, and which features are true."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.gateway.status import (
    EXPERIMENTAL,
    gateway_class_status,
    load_balancer_class_of,
    supported_features,
)
from fairlead.api.gateway import GatewayClass

NOW = "2026-01-01T00:00:00Z"
OURS = {"group": "fairlead.dev", "kind": "LoadBalancerClass", "name": "edge"}


def gateway_class(parameters: dict[str, str] | None = None, generation: int = 2) -> GatewayClass:
    spec: dict[str, Any] = {"controllerName": "fairlead.dev/gateway-controller", "parametersRef": parameters}
    return msgspec.convert({"metadata": {"name": "x", "generation": generation}, "spec": spec}, GatewayClass)


@pytest.mark.req("G-1", "G-34")
@pytest.mark.parametrize(
    ("parameters", "accepted", "load_balancer_class"),
    [
        (None, "True/Accepted", ""),
        (OURS, "True/Accepted", "edge"),
        ({**OURS, "group": "example.com"}, "False/InvalidParameters", ""),
        ({**OURS, "kind": "ConfigMap"}, "False/InvalidParameters", ""),
        ({**OURS, "namespace": "infra"}, "False/InvalidParameters", ""),
        ({**OURS, "name": ""}, "False/InvalidParameters", ""),
    ],
)
def test_accepted(parameters: dict[str, str] | None, accepted: str, load_balancer_class: str) -> None:
    of = gateway_class(parameters)
    conditions = gateway_class_status(of, now=NOW).conditions or []
    assert {each.type: f"{each.status}/{each.reason}" for each in conditions} == {"Accepted": accepted}
    assert [(each.observed_generation, each.last_transition_time) for each in conditions] == [(2, NOW)]
    assert load_balancer_class_of(of) == load_balancer_class


@pytest.mark.req("G-34")
def test_a_new_generation_is_followed_and_the_time_kept() -> None:
    first = gateway_class_status(gateway_class(), now=NOW)
    again = msgspec.structs.replace(gateway_class(generation=3), status=first)
    condition = (gateway_class_status(again, now="2026-02-01T00:00:00Z").conditions or [])[0]
    assert (condition.observed_generation, condition.last_transition_time) == (3, NOW)


@pytest.mark.parametrize(
    ("version", "status"), [("v1.6.1", "True/SupportedVersion"), ("v1.2.0", "False/UnsupportedVersion")]
)
def test_the_version_of_the_crds(version: str, status: str) -> None:
    conditions = gateway_class_status(gateway_class(), now=NOW, bundle_version=version).conditions or []
    assert {each.type: f"{each.status}/{each.reason}" for each in conditions}["SupportedVersion"] == status


@pytest.mark.req("G-1")
@pytest.mark.parametrize("channel", ["", "standard", EXPERIMENTAL])
def test_features_are_sorted_and_those_of_the_channel(channel: str) -> None:
    shown = [
        each.name for each in gateway_class_status(gateway_class(), now=NOW, channel=channel).supported_features or ()
    ]
    assert shown == sorted(set(shown)) == list(supported_features(channel))
    # The API takes no more.
    assert len(shown) <= 64
    assert ("HTTPRouteRetry" in shown) is (channel == EXPERIMENTAL)
    assert {"Gateway", "HTTPRoute", "ListenerSet", "TLSRouteModeMixed"} <= set(shown)
