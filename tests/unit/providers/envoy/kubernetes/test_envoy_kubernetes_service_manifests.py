"""The Services in front of the proxies."""

from __future__ import annotations

import re
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.desired import FrontendSpec, Listener, Owner
from fairlead.model.keys import LoadBalancerKey, WantedFamilies
from fairlead.providers.envoy.kubernetes.manifests import DeploymentSettings, service_manifest, service_name


@given(st.text(max_size=80), st.text(max_size=80))
def test_service_names_are_dns_labels(namespace: str, name: str) -> None:
    label = service_name(LoadBalancerKey("TCPLoadBalancer", namespace, name))
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", label)
    assert label != service_name(LoadBalancerKey("TCPLoadBalancer", namespace, name + "x"))


@pytest.mark.req("E-29")
def test_a_service_carries_what_the_class_and_the_user_ask_for() -> None:
    owner = Owner(member="east", kind="Service", namespace="shop", name="web", uid="uid-1")
    parameters = {"serviceAnnotation/cloud.example/type": "nlb", "loadBalancerClass": "cloud.example/lb", "other": "x"}
    spec = FrontendSpec(
        key=LoadBalancerKey("TCPLoadBalancer", "a", "web"),
        group="a",
        listeners=(Listener(80, proxy_port=10_001),),
        address="203.0.113.7",
        source_ranges=("10.0.0.0/8",),
        local_traffic_only=True,
        parameters=parameters,
        owner=owner,
    )
    service = service_manifest(spec, DeploymentSettings())
    metadata, fields = (
        cast("dict[str, dict[str, str]]", service["metadata"]),
        cast("dict[str, object]", service["spec"]),
    )
    assert metadata["annotations"]["cloud.example/type"] == "nlb"
    assert metadata["annotations"]["fairlead.dev/load-balancer"] == "TCPLoadBalancer/a/web"
    assert metadata["labels"]["fairlead.dev/origin-uid"] == "uid-1"
    assert fields["loadBalancerClass"] == "cloud.example/lb"
    assert (fields["loadBalancerIP"], fields["externalTrafficPolicy"]) == ("203.0.113.7", "Local")
    assert fields["ports"] == [{"name": "tcp-80", "protocol": "TCP", "port": 80, "targetPort": 10_001}]


def test_invalid_label_values_are_only_in_annotations() -> None:
    owner = Owner(member="m" * 64, kind="Service", namespace="shop", name="web")
    spec = FrontendSpec(key=LoadBalancerKey("TCPLoadBalancer", "a", "web"), group="a", listeners=(), owner=owner)
    metadata = cast("dict[str, dict[str, str]]", service_manifest(spec, DeploymentSettings())["metadata"])
    assert "fairlead.dev/origin-member" not in metadata["labels"]
    assert metadata["annotations"]["fairlead.dev/origin-member"] == "m" * 64


@pytest.mark.req("K-4", "K-58")
@pytest.mark.parametrize(
    ("wanted", "policy", "families"),
    [
        (WantedFamilies(), "SingleStack", None),
        (WantedFamilies(("IPv6",)), "SingleStack", ["IPv6"]),
        (WantedFamilies(("IPv6", "IPv4")), "PreferDualStack", None),
        (WantedFamilies(("IPv4", "IPv6"), all_required=True), "RequireDualStack", None),
    ],
)
def test_a_service_has_the_families_of_its_load_balancer(
    wanted: WantedFamilies, policy: str, families: list[str] | None
) -> None:
    spec = FrontendSpec(LoadBalancerKey("TCPLoadBalancer", "a", "web"), group="a", listeners=(), families=wanted)
    fields = cast("dict[str, object]", service_manifest(spec, DeploymentSettings())["spec"])
    assert (fields["ipFamilyPolicy"], fields.get("ipFamilies")) == (policy, families)
