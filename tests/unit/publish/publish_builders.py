"""Builders of the objects that are published for one origin."""

from __future__ import annotations

from fairlead.api.kubernetes import Endpoint, EndpointPort, EndpointSlice
from fairlead.api.meta import KubeObject, ObjectMeta
from fairlead.api.tcploadbalancer import LoadBalancerPort, TCPLoadBalancer, TCPLoadBalancerSpec
from fairlead.publish.objects import Publication, make_conditions, origin_labels, slice_labels

NAMESPACE = "tenant-east"
NAME = "shop.web"
LABELS = origin_labels(kind="Service", namespace="shop", name="web", tenant="east")
READY = make_conditions(ready=True, serving=True, terminating=False)


def load_balancer(port: int = 80, **meta: object) -> TCPLoadBalancer:
    fields = {"name": NAME, "namespace": NAMESPACE, "labels": LABELS, "finalizers": ["fairlead.dev/cleanup"], **meta}
    spec = TCPLoadBalancerSpec(ports=[LoadBalancerPort(port=port)])
    return TCPLoadBalancer(metadata=ObjectMeta(**fields), spec=spec)  # type: ignore[arg-type]


def slice_of(name: str, *addresses: str, port: int = 8080, **meta: object) -> EndpointSlice:
    fields = {"name": name, "namespace": NAMESPACE, "labels": slice_labels(LABELS, NAME), **meta}
    return EndpointSlice(
        metadata=ObjectMeta(**fields),  # type: ignore[arg-type]
        address_type="IPv4",
        endpoints=[Endpoint(addresses=[address], conditions=READY) for address in addresses],
        ports=[EndpointPort(name="http", port=port, protocol="TCP")],
    )


def publication(*slices: EndpointSlice, port: int = 80) -> Publication:
    return Publication(load_balancer(port), slices)


def is_ours(hub_object: KubeObject) -> bool:
    return hub_object.label("fairlead.dev/origin-name") == "web"
