"""The Service and EndpointSlices of a Gateway in the member, with its infrastructure labels and annotations.

    gateway-<name>   a headless Service without selector: by its name the Gateway is reached within the cluster
    gateway-<name>   its EndpointSlices with the Gateway's addresses, as far as slices may have them

Only a Gateway with ``spec.infrastructure`` has them. In: the Gateway, its plan and addresses. Out: the objects that
should be there. Never: takes over an object that is not the Gateway's. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import msgspec

from fairlead.agent.sources.gateway.plan import GatewayPlan
from fairlead.api.gateway import GATEWAYS, Gateway
from fairlead.api.kubernetes import Endpoint, EndpointPort, EndpointSlice, Service, ServicePort, ServiceSpec
from fairlead.api.meta import KubeObject, ObjectMeta
from fairlead.api.names import (
    LABEL_MANAGED_BY,
    LABEL_SERVICE_NAME,
    LABEL_SLICE_MANAGED_BY,
    MANAGED_BY,
    SLICE_MANAGED_BY,
    fit,
    label_value,
    short_hash,
)

LABEL_GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"


class GatewayObjects(msgspec.Struct, frozen=True):
    """The objects of one Gateway: without a Service there are no slices either."""

    service: Service | None = None
    slices: tuple[EndpointSlice, ...] = ()


def plan_infrastructure(plan: GatewayPlan, gateway: Gateway, addresses: Iterable[str]) -> GatewayObjects:
    """Return the objects that should exist for the Gateway of ``plan``, which is reached at ``addresses``."""
    if gateway.spec.infrastructure is None or plan.spec is None:
        return GatewayObjects()
    ports = sorted(
        {
            (listener.port, "UDP" if listener.protocol == "UDP" else "TCP")
            for listener in plan.listeners
            if listener.served
        }
    )
    service = Service(
        metadata=_meta(gateway, infrastructure_name(gateway.metadata.name)),
        spec=ServiceSpec(
            cluster_ip="None",
            ports=[ServicePort(port, name=_port_name(port, protocol), protocol=protocol) for port, protocol in ports],
        ),
    )
    by_family: dict[str, list[str]] = {}
    for address in addresses:
        if family := _family(address):
            by_family.setdefault(family, []).append(address)
    return GatewayObjects(
        service,
        tuple(_slice(gateway, service, family, by_family[family], ports) for family in sorted(by_family)),
    )


def infrastructure_name(gateway: str) -> str:
    """Name the Service of a Gateway: a label of DNS, where the name of a Gateway may have dots and be longer."""
    plain = gateway.replace(".", "-")
    unique = plain if plain == gateway else f"{plain}-{short_hash(gateway)}"
    return fit(f"gateway-{unique}", identity=("Gateway", gateway))


def belongs_to(obj: KubeObject, gateway: Gateway) -> bool:
    """Return whether an object that is there was made for this Gateway; another one must not be changed."""
    return obj.label(LABEL_MANAGED_BY) == MANAGED_BY and any(
        (owner.kind, owner.name, owner.uid) == (GATEWAYS.kind, gateway.metadata.name, gateway.metadata.uid)
        for owner in obj.metadata.owner_references or ()
    )


def is_same(wanted: KubeObject, present: KubeObject) -> bool:
    """Return whether an object that is there is as wanted; what the API server fills in does not count."""
    return (
        (present.metadata.labels or {}) == (wanted.metadata.labels or {})
        and (present.metadata.annotations or {}) == (wanted.metadata.annotations or {})
        and _content(wanted) == _content(present)
    )


def _content(obj: KubeObject) -> object:
    if isinstance(obj, Service):
        return [(port.name, port.port, port.protocol) for port in obj.spec.ports or ()]
    if isinstance(obj, EndpointSlice):
        ports = [(port.name, port.port, port.protocol) for port in obj.ports or ()]
        return obj.address_type, [list(endpoint.addresses or ()) for endpoint in obj.endpoints or ()], ports
    return None


def _slice(
    gateway: Gateway, service: Service, family: str, addresses: list[str], ports: Iterable[tuple[int, str]]
) -> EndpointSlice:
    name = service.metadata.name
    own = {LABEL_SERVICE_NAME: name, LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY}
    return EndpointSlice(
        metadata=_meta(gateway, f"{name}-{family.lower()}", own),
        address_type=family,
        endpoints=[Endpoint(addresses=[address]) for address in addresses],
        ports=[EndpointPort(_port_name(port, protocol), port, protocol) for port, protocol in ports],
    )


def _meta(gateway: Gateway, name: str, own: dict[str, str] | None = None) -> ObjectMeta:
    requested, meta = gateway.spec.infrastructure, gateway.metadata
    ours = {LABEL_GATEWAY_NAME: label_value(meta.name), LABEL_MANAGED_BY: MANAGED_BY, **(own or {})}
    return ObjectMeta(
        name=name,
        namespace=meta.namespace,
        labels={**((requested.labels if requested is not None else None) or {}), **ours},
        annotations=dict((requested.annotations if requested is not None else None) or {}) or None,
        owner_references=[GATEWAYS.owner(meta, controller=True)],
    )


def _port_name(port: int, protocol: str) -> str:
    return f"{protocol.lower()}-{port}"


def _family(address: str) -> str:
    """Return the address type of a slice, empty for what no slice may have."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified:
        return ""
    return "IPv4" if parsed.version == 4 else "IPv6"
