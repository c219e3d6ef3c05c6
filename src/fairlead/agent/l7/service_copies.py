"""Copies of type NodePort of Services that node ports cannot reach otherwise.

    Service that a route names, backends are nodes     how it is reached
    -------------------------------------------------  --------------------------------------
    every port has a nodePort                          as it is
    with a selector, a port without a nodePort         by the nodePorts of its copy
    without a selector, with endpoints of its own      by these: their addresses are the user's choice
    without a selector and without endpoints           refused: a copy would have no endpoints either
    ExternalName                                       refused: it is a DNS name

The copy is owned by the original and follows its ports and its selector; the original is never written. In: Services
of the member. Out: the copy as it should be, and Services with the nodePorts by which they are reached. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.api.kubernetes import SERVICES, Service, ServicePort, ServiceSpec
from fairlead.api.meta import ObjectMeta, OwnerReference
from fairlead.api.names import LABEL_COPY_OF, LABEL_MANAGED_BY, MANAGED_BY, fit, label_value
from fairlead.publish.service import families_of

_SUFFIX = "-fairlead-nodes"


def copy_name(service: str) -> str:
    """Name the copy of a Service: a label of DNS."""
    return fit(f"{service}{_SUFFIX}", identity=("copy", service))


def original_of(service: Service) -> tuple[str, str] | None:
    """Return namespace and name of the Service that ``service`` is the copy of, None when it is none of our copies."""
    meta = service.metadata
    if service.label(LABEL_MANAGED_BY) != MANAGED_BY or not service.label(LABEL_COPY_OF):
        return None
    owners = (each.name for each in meta.owner_references or () if each.kind == SERVICES.kind)
    name = next((each for each in owners if copy_name(each) == meta.name), None)
    return None if name is None else (meta.namespace, name)


def why_no_copy(service: Service, *, has_endpoints: bool = False) -> str:
    """Return why a Service that is to be reached by nodes cannot be; empty when it can, or has endpoints of its own."""
    named = f"Service {service.metadata.namespace}/{service.metadata.name}"
    if service.spec.type == "ExternalName":
        return f"{named} is of type ExternalName: it has no endpoints"
    if has_node_ports(service) or service.spec.selector or has_endpoints:
        return ""
    return (
        f"{named} has no selector, no endpoints and no nodePort, and its backends are to be reached by the nodes: give "
        "it a selector, endpoints of your own, or type NodePort"
    )


def is_chosen_by_user(service: Service | None) -> bool:
    """Return whether the endpoints of a Service are its user's own choice: it has no selector."""
    return service is not None and not service.spec.selector


def has_node_ports(service: Service) -> bool:
    """Return whether each port of a Service can be reached at the nodes."""
    return all(port.node_port for port in service.spec.ports or ())


def copy_of(service: Service) -> Service | None:
    """Return the copy that ``service`` should have, None when it needs none or cannot have one."""
    if service.deleting or has_node_ports(service) or why_no_copy(service):
        return None
    meta = service.metadata
    return Service(
        metadata=ObjectMeta(
            name=copy_name(meta.name),
            namespace=meta.namespace,
            labels={LABEL_MANAGED_BY: MANAGED_BY, LABEL_COPY_OF: label_value(meta.name)},
            owner_references=[SERVICES.owner(meta)],
        ),
        spec=ServiceSpec(
            type="NodePort",
            selector=dict(service.spec.selector or {}),
            ports=[msgspec.structs.replace(port, node_port=0) for port in service.spec.ports or ()],
            session_affinity=service.spec.session_affinity,
            session_affinity_config=service.spec.session_affinity_config,
            # A node port answers in the families of its own Service.
            ip_families=service.spec.ip_families,
            ip_family_policy=service.spec.ip_family_policy,
        ),
    )


def is_same_copy(wanted: Service, present: Service) -> bool:
    """Return whether the copy that is there is as wanted; the nodePorts are the API server's choice."""
    return _content(wanted) == _content(present)


def is_ours(copy: Service, original: tuple[str, str]) -> bool:
    """Return whether a Service with the name of a copy was made by us for this original."""
    return original_of(copy) == original


def reached_by(service: Service, copy: Service | None) -> Service:
    """Return ``service`` with the nodePorts by which it is reached; without a copy that has them, as it is."""
    if has_node_ports(service) or copy is None or copy.deleting:
        return service
    held = {(port.port, port.protocol): port.node_port for port in copy.spec.ports or ()}
    ports = [
        msgspec.structs.replace(port, node_port=port.node_port or held.get((port.port, port.protocol), 0))
        for port in service.spec.ports or ()
    ]
    return msgspec.structs.replace(service, spec=msgspec.structs.replace(service.spec, ports=ports))


def _content(service: Service) -> tuple[object, ...]:
    spec, meta = service.spec, service.metadata
    return (
        spec.type,
        spec.selector or {},
        sorted(map(_port, spec.ports or ())),
        spec.session_affinity,
        families_of(service),
        meta.labels or {},
        _owners(meta.owner_references or ()),
    )


def _port(port: ServicePort) -> tuple[int, str, str, str, str]:
    return (port.port, port.protocol, port.name, str(port.target_port or port.port), port.app_protocol or "")


def _owners(references: Iterable[OwnerReference]) -> list[tuple[str, str]]:
    return sorted((each.kind, each.uid) for each in references)
