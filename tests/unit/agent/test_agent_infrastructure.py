"""The objects next to a Gateway that carry the labels and annotations of its infrastructure."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.gateway.listeners import plan_gateway
from fairlead.agent.sources.gateway.status import (
    LABEL_GATEWAY_NAME,
    GatewayObjects,
    belongs_to,
    infrastructure_name,
    is_same,
    plan_infrastructure,
)
from fairlead.api.gateway import Gateway
from fairlead.api.kubernetes import Service
from fairlead.api.meta import ObjectMeta
from tests.unit.agent.gateway_objects import gateway, http, https, listener_set, view

ASKED = {"labels": {"team": "shop", LABEL_GATEWAY_NAME: "other"}, "annotations": {"example.com/note": "x"}}
UDP = {"name": "dns", "port": 53, "protocol": "UDP"}


def planned(*addresses: str, of: Gateway | None = None) -> GatewayObjects:
    shown = of or gateway(http(), https(hostname="a.example"), UDP, infrastructure=ASKED)
    return plan_infrastructure(plan_gateway(view(shown)), shown, addresses)


@pytest.mark.req("G-67")
def test_labels_and_annotations_are_on_the_service() -> None:
    service = planned().service
    assert service is not None
    written: dict[str, Any] = msgspec.to_builtins(service)
    assert written["metadata"] == {
        "name": "gateway-main",
        "namespace": "infra",
        "labels": {"team": "shop", LABEL_GATEWAY_NAME: "main", "app.kubernetes.io/managed-by": "fairlead"},
        "annotations": {"example.com/note": "x"},
        "ownerReferences": [
            {
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "Gateway",
                "name": "main",
                "uid": "uid-1",
                "controller": True,
            }
        ],
    }
    assert written["spec"] == {
        "clusterIP": "None",
        "ports": [
            {"port": 53, "name": "udp-53", "protocol": "UDP"},
            {"port": 80, "name": "tcp-80"},
            {"port": 443, "name": "tcp-443"},
        ],
    }


@pytest.mark.req("G-67")
def test_addresses_are_in_slices_as_far_as_slices_may_have_them() -> None:
    slices = planned("192.0.2.1", "2001:db8::1", "127.0.0.9", "lb.example", "169.254.0.1", "0.0.0.0").slices
    assert [(each.metadata.name, each.address_type) for each in slices] == [
        ("gateway-main-ipv4", "IPv4"),
        ("gateway-main-ipv6", "IPv6"),
    ]
    assert [endpoint.addresses for endpoint in slices[0].endpoints or ()] == [["192.0.2.1"]]
    assert [(each.name, each.port, each.protocol) for each in slices[0].ports or ()] == [
        ("udp-53", 53, "UDP"),
        ("tcp-80", 80, "TCP"),
        ("tcp-443", 443, "TCP"),
    ]
    assert slices[0].label("kubernetes.io/service-name") == "gateway-main"
    assert slices[0].label("endpointslice.kubernetes.io/managed-by") == "fairlead.dev"
    assert planned("127.0.0.9").slices == ()


@pytest.mark.req("G-67")
def test_without_infrastructure_or_without_a_load_balancer_there_is_nothing() -> None:
    assert planned("192.0.2.1", of=gateway(http())) == GatewayObjects()
    assert planned("192.0.2.1", of=gateway(http(protocol="INVALID"), infrastructure=ASKED)) == GatewayObjects()


def test_ports_of_listener_sets_are_the_gateways() -> None:
    of = gateway(http(), infrastructure={}, allowedListeners={"namespaces": {"from": "All"}})
    plan = plan_gateway(view(of, listener_set(http("a", 81), http("b", 80))))
    service = plan_infrastructure(plan, of, ()).service
    assert service is not None
    assert [each.port for each in service.spec.ports or ()] == [80, 81]


@pytest.mark.req("G-67")
def test_names_are_labels_of_dns_and_unique() -> None:
    assert infrastructure_name("main") == "gateway-main"
    names = ["main", "a.b", "a-b", "x" * 200, "x" * 199 + "y"]
    made = {infrastructure_name(name) for name in names}
    assert len(made) == len(names)
    assert all(len(name) <= 63 and "." not in name for name in made)


def test_an_object_of_another_owner_is_not_the_gateways() -> None:
    of = gateway(http(), infrastructure=ASKED)
    service = planned(of=of).service
    assert service is not None
    assert belongs_to(service, of)
    renewed = msgspec.structs.replace(of, metadata=msgspec.structs.replace(of.metadata, uid="uid-2"))
    assert not belongs_to(service, renewed)
    assert not belongs_to(Service(metadata=ObjectMeta(name="gateway-main", namespace="infra")), of)


@pytest.mark.req("G-67")
def test_defaults_of_the_api_server_are_not_a_difference() -> None:
    shown = planned("192.0.2.1")
    service = shown.service
    assert service is not None
    filled = msgspec.structs.replace(service.spec, cluster_ip="None", ip_families=["IPv4"], session_affinity="None")
    assert is_same(service, msgspec.structs.replace(service, spec=filled))
    other = msgspec.structs.replace(service.metadata, annotations={"example.com/note": "y"})
    assert not is_same(service, msgspec.structs.replace(service, metadata=other))
    fewer = msgspec.structs.replace(service.spec, ports=(service.spec.ports or [])[1:])
    assert not is_same(service, msgspec.structs.replace(service, spec=fewer))
    assert is_same(shown.slices[0], planned("192.0.2.1").slices[0])
    assert not is_same(shown.slices[0], planned("192.0.2.2").slices[0])
