"""What the hub says of its object names the fields of the Service."""

from __future__ import annotations

import pytest

from fairlead.agent.events import name_class_parameters, translate_message
from fairlead.api.kubernetes import Service
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_REQUESTED_ADDRESS

PLAIN = Service(metadata=ObjectMeta(name="web", namespace="shop"))
ANNOTATED = Service(
    metadata=ObjectMeta(name="web", namespace="shop", annotations={ANNOTATION_REQUESTED_ADDRESS: "192.0.2.1"})
)


@pytest.mark.parametrize(
    ("service", "hub", "expected"),
    [
        (PLAIN, "spec.className: there is none", "spec.loadBalancerClass: there is none"),
        (PLAIN, "spec.address: leave spec.address empty", "spec.loadBalancerIP: leave spec.loadBalancerIP empty"),
        (ANNOTATED, "spec.address: taken", f"annotation {ANNOTATION_REQUESTED_ADDRESS}: taken"),
        (PLAIN, "spec.proxyProtocol: no TCP port", "annotation fairlead.dev/proxy-protocol: no TCP port"),
        (PLAIN, "spec.targets: no", "annotation fairlead.dev/target: no"),
        (PLAIN, "spec.ports: TCP/80 is there twice", "spec.ports: TCP/80 is there twice"),
        (PLAIN, "the Tenant's spec.addressPool is empty", "the Tenant's spec.addressPool is empty"),
        (PLAIN, "TCPLoadBalancer/tenant-east/shop.web: HAProxy is down", "HAProxy is down"),
        (PLAIN, "LoadBalancer/shop/one: HAProxy is down", "LoadBalancer/shop/one: HAProxy is down"),
    ],
)  # fmt: skip
def test_fields_are_those_of_the_service(service, hub, expected):
    assert translate_message(hub, service) == expected


@pytest.mark.parametrize(
    ("kind", "field"),
    [("Ingress", "spec.parameters of its IngressClass"), ("Gateway", "spec.parametersRef of its GatewayClass")],
)
def test_the_class_of_an_ingress_or_gateway_is_in_the_parameters_of_its_own_class(kind, field):
    message = "spec.className: there is no LoadBalancerClass 'envoi' at the hub"
    assert name_class_parameters(message, kind) == f"{field}: there is no LoadBalancerClass 'envoi' at the hub"
