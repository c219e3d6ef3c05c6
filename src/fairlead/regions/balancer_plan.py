"""A PoolService as layer 2 implements it: a TCPLoadBalancer, its EndpointSlices, and the status that comes back.

    PoolService                  TCPLoadBalancer <name>.poolservice.fairlead     EndpointSlices labelled with it
    ---------------------------  ---------------------------------------------  --------------------------------
    backends are pods            targets Pod                                     one for each group of pods
    backends are nodes           targets Address                                 one: ready nodes at the nodePorts

In: the PoolService alone, as any other layer 2 could: the Service and the backends are in its annotations. Out: the
objects, or why there are none; the status, mirrored from the TCPLoadBalancer. Pure. Never: publishes an address outside
of the pool, takes a TCPLoadBalancer for ours by its name alone, or removes an address that users know while no other
takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from fairlead.api.json_text import read_json
from fairlead.api.kubernetes import Endpoint, EndpointPort, EndpointSlice, Service
from fairlead.api.meta import SUMMARIES, ObjectMeta, OwnerReference, WireCondition, mirrored_conditions
from fairlead.api.names import (
    ANNOTATION_BACKEND_TLS,
    ANNOTATION_HOSTNAME,
    ANNOTATION_ORIGIN,
    ANNOTATION_REQUESTED_ADDRESS,
    ANNOTATION_SERVICE,
    LABEL_ORIGIN_KIND,
    LOAD_BALANCER_CLASS_PREFIX,
    fit,
)
from fairlead.api.poolservice import POOL_SERVICES, PoolService, PoolServiceStatus
from fairlead.api.tcploadbalancer import Origin, TCPLoadBalancer
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.model.keys import by_family, family_of
from fairlead.publish.objects import (
    NAME_LIMIT,
    Present,
    Publication,
    Refused,
    canonical_endpoints,
    canonical_ports,
    families_of,
    has_ports_of,
    make_conditions,
    origin_labels,
    read_options,
    refused_ports,
    slice_labels,
    sorted_ports,
    spec_from_service,
)
from fairlead.regions.source import Backends, EndpointGroup, PoolNode, RegionBackend
from fairlead.translate.endpoints import EndpointState


class _Part(NamedTuple):
    """One slice: the suffix of its name, and its content."""

    rest: str
    address_type: str
    endpoints: list[Endpoint]
    ports: list[EndpointPort]


def translate(pool_service: PoolService, backends: Backends, *, region: str) -> Publication | Refused:
    """Return the objects to publish for a PoolService of a Fairlead class, or why there are none."""
    service = read_json(pool_service.annotation(ANNOTATION_SERVICE), Service)
    if service is None:
        return Refused(ConditionReason.INVALID, f"annotation {ANNOTATION_SERVICE} is missing or no Service in JSON")
    refused = refused_ports(service, by_node_port=backends.nodes is not None)
    if refused is not None:
        return refused
    if service.annotation(ANNOTATION_BACKEND_TLS):
        problem = f"annotation {ANNOTATION_BACKEND_TLS}: Services with node pools cannot have it; remove it"
        return Refused(ConditionReason.INVALID, problem)
    options = read_options(_of_pool(service, pool_service.spec.nodepool_name))
    if isinstance(options, Refused):
        return options
    meta = pool_service.metadata
    origin = Origin(kind=POOL_SERVICES.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid)
    spec = spec_from_service(
        service,
        msgspec.structs.replace(options, global_service=""),
        origin=origin,
        class_name=pool_service.spec.load_balancer_class.removeprefix(LOAD_BALANCER_CLASS_PREFIX),
        targets="Pod" if backends.nodes is None else "Address",
        region=region,
    )
    description = f"{meta.namespace}/{service.metadata.name} in {pool_service.spec.nodepool_name}"
    parts = _parts(service, backends)
    if parts and not any(part.address_type in families_of(service) for part in parts):
        return Refused(ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, _other_family(service, parts))
    of_load_balancer = ObjectMeta(
        name=load_balancer_name(meta.name),
        namespace=meta.namespace,
        labels=pool_service_origin(pool_service),
        annotations={ANNOTATION_ORIGIN: description},
        owner_references=[_owner(pool_service)],
    )
    return Publication(TCPLoadBalancer(metadata=of_load_balancer, spec=spec), _slices(pool_service, parts))


def slices_in_effect(
    pool_service: PoolService, backends: Backends, load_balancer: TCPLoadBalancer
) -> tuple[EndpointSlice, ...] | None:
    """Return the slices of the version at the hub, while a newer one is refused; None: they stay as they are."""
    service = read_json(pool_service.annotation(ANNOTATION_SERVICE), Service)
    if service is None:
        return None
    spec, parts = load_balancer.spec, _parts(service, backends)
    families = {part.address_type for part in parts}
    if (
        not has_ports_of(service, load_balancer)
        or (spec.targets == "Pod") != (backends.nodes is None)
        or (families and families.isdisjoint(spec.ip_families or families_of(service)))
    ):
        return None
    return _slices(pool_service, parts)


def published_backends(present: Present) -> Backends | None:
    """Return the backends that are published, with the nodes that they name; None without a load balancer."""
    if present.load_balancer is None:
        return None
    groups: list[EndpointGroup] = []
    nodes: dict[str, PoolNode] = {}
    # There the pods of a node decide, whether it was ready or not when it was published.
    by_pods = present.load_balancer.spec.external_traffic_policy == "Local"
    for endpoint_slice in sorted(present.slices, key=lambda endpoint_slice: endpoint_slice.address_type):
        backends: list[RegionBackend] = []
        for endpoint in endpoint_slice.endpoints or ():
            address, name, ready = (endpoint.addresses or [""])[0], endpoint.node_name or "", endpoint.ready
            backends.append(RegionBackend(address, ready, name))
            first, ready = nodes.get(name), ready or by_pods
            nodes[name] = PoolNode(name, first.address, ready, address) if first else PoolNode(name, address, ready)
        groups.append(EndpointGroup(endpoint_slice.metadata.name, endpoint_slice.address_type, (), tuple(backends)))
    if present.load_balancer.spec.targets == "Pod":
        return Backends(tuple(groups))
    return Backends(nodes=tuple(nodes.values()))


def _parts(service: Service, backends: Backends) -> list[_Part]:
    return list(_pod_parts(backends) if backends.nodes is None else _node_parts(service, backends, backends.nodes))


def _slices(pool_service: PoolService, parts: Sequence[_Part]) -> tuple[EndpointSlice, ...]:
    name = load_balancer_name(pool_service.metadata.name)
    labels = slice_labels(pool_service_origin(pool_service), name)
    return tuple(
        EndpointSlice(
            metadata=ObjectMeta(
                name=fit(f"{name}.{part.rest}", limit=NAME_LIMIT, identity=(name, part.rest)),
                namespace=pool_service.metadata.namespace,
                labels=labels,
                owner_references=[_owner(pool_service)],
            ),
            address_type=part.address_type,
            endpoints=canonical_endpoints(part.endpoints),
            ports=canonical_ports(part.ports),
        )
        for part in parts
    )


def _owner(pool_service: PoolService) -> OwnerReference:
    meta = pool_service.metadata
    return OwnerReference(POOL_SERVICES.api_version, POOL_SERVICES.kind, meta.name, meta.uid)


def requested_address(service: Service, pool: str) -> str:
    """Return the addresses requested for one pool, one of each family: ``hangzhou=10.1.0.9, beijing=10.2.0.9``.

    An address without a pool is for all others.
    """
    text = service.annotation(ANNOTATION_REQUESTED_ADDRESS) or service.spec.load_balancer_ip
    first: dict[str | None, str] = {}
    for value in _for_pool(text, pool):
        first.setdefault(family_of(value), value)
    return ",".join(first.values())


def _of_pool(service: Service, pool: str) -> Service:
    """Return the Service for one pool, with the addresses and names that are requested there."""
    annotations = {
        **(service.metadata.annotations or {}),
        ANNOTATION_REQUESTED_ADDRESS: requested_address(service, pool),
        ANNOTATION_HOSTNAME: ",".join(_for_pool(service.annotation(ANNOTATION_HOSTNAME), pool)),
    }
    return msgspec.structs.replace(
        service,
        metadata=msgspec.structs.replace(service.metadata, annotations=annotations),
        spec=msgspec.structs.replace(service.spec, load_balancer_ip=""),
    )


def _for_pool(text: str, pool: str) -> list[str]:
    """Return the values of ``hangzhou=a, beijing=b, c`` for one pool; those without a pool are for all others."""
    plain: list[str] = []
    of_pool: list[str] = []
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            plain.append(name)
        elif name == pool:
            of_pool.append(value)
    return of_pool or plain


def _other_family(service: Service, parts: list[_Part]) -> str:
    present = " and ".join(sorted({part.address_type for part in parts}))
    wanted = " or ".join(families_of(service))
    return (
        f"the backends in this pool have {present} addresses, and spec.ipFamilies of the Service asks for {wanted}: "
        "add the other family (spec.ipFamilyPolicy: PreferDualStack)."
    )


def _pod_parts(backends: Backends) -> Iterator[_Part]:
    for group in backends.groups:
        ports = [EndpointPort(name=port.name, port=port.port, protocol=port.protocol) for port in group.ports]
        yield _Part(group.slice, group.address_type, _pod_endpoints(group), ports)


def _pod_endpoints(group: EndpointGroup) -> list[Endpoint]:
    return [_endpoint(backend.address, backend.node, backend.state) for backend in group.endpoints]


def _node_parts(service: Service, backends: Backends, nodes: tuple[PoolNode, ...]) -> Iterator[_Part]:
    local: dict[str, EndpointState] = {}
    for backend in (backend for group in backends.groups for backend in group.endpoints):
        local[backend.node] = max(backend.state, local.get(backend.node, backend.state))
    only_local = service.spec.external_traffic_policy == "Local"
    ports = [
        EndpointPort(name=port.name, port=port.node_port, protocol=port.protocol) for port in sorted_ports(service)
    ]
    wanted = set(families_of(service))
    by_type: dict[str, list[Endpoint]] = {}
    for node in nodes:
        if not only_local or node.name in local:
            answering = local[node.name] if only_local else EndpointState.READY
            state = answering if node.ready else EndpointState.UNREADY
            addresses = by_family([node.address, node.second_address])
            # A node port answers in the families of its Service. By another one the hub names the node, and no more.
            for family in addresses.keys() & wanted or addresses.keys():
                by_type.setdefault(family, []).append(_endpoint(addresses[family], node.name, state))
    for address_type, endpoints in sorted(by_type.items()):
        yield _Part(f"nodes.{address_type.lower()}", address_type, endpoints, ports)


def _endpoint(address: str, node: str, state: EndpointState) -> Endpoint:
    conditions = make_conditions(ready=state.is_ready, serving=state.is_serving, terminating=state.is_terminating)
    return Endpoint(addresses=[address], conditions=conditions, node_name=node or None)


#: An agent never gives a name with two dots: its names are <namespace>.<service>.
_SUFFIX = ".poolservice.fairlead"


def is_our_class(pool_service: PoolService) -> bool:
    """Return whether its load balancer class is one of Fairlead's."""
    name = pool_service.spec.load_balancer_class
    return name.startswith(LOAD_BALANCER_CLASS_PREFIX) and len(name) > len(LOAD_BALANCER_CLASS_PREFIX)


def load_balancer_name(pool_service_name: str) -> str:
    """Name the TCPLoadBalancer of a PoolService."""
    head = fit(pool_service_name, limit=NAME_LIMIT - len(_SUFFIX), identity=(pool_service_name,))
    return head + _SUFFIX


def pool_service_origin(pool_service: PoolService) -> dict[str, str]:
    """Return the labels of all objects that are created for a PoolService."""
    namespace, name = pool_service.key
    return origin_labels(kind=POOL_SERVICES.kind, namespace=namespace, name=name)


def made_for(load_balancer: TCPLoadBalancer, name: str) -> bool:
    """Return whether a TCPLoadBalancer was created for the PoolService of this name."""
    origin = load_balancer.spec.origin
    return (
        load_balancer.label(LABEL_ORIGIN_KIND) == POOL_SERVICES.kind
        and (origin.kind, origin.name) == (POOL_SERVICES.kind, name)
        and load_balancer.metadata.name == load_balancer_name(name)
    )


def build_status(
    pool_service: PoolService, load_balancer: TCPLoadBalancer | None, refused: Refused | None, *, now: str
) -> PoolServiceStatus:
    """Mirror the load balancer's status; ``load_balancer`` None: there is none; ``now`` is RFC 3339 text."""
    old = pool_service.status
    source = load_balancer.status if load_balancer is not None and not load_balancer.deleting else None
    by_type: dict[str, WireCondition] = {
        condition.type: condition
        for condition in (source.conditions if source else None) or ()
        if condition.type not in SUMMARIES
    }
    if source is not None and load_balancer is not None and not load_balancer.is_observed:
        # The hub's status is about the previous spec.
        by_type.pop(ConditionType.PROGRAMMED, None)
    if ConditionType.PROGRAMMED not in by_type:
        by_type[ConditionType.PROGRAMMED] = _condition(
            ConditionType.PROGRAMMED, ConditionReason.PENDING, "no hub has answered yet"
        )
    if refused is not None:
        by_type[ConditionType.ACCEPTED] = _condition(ConditionType.ACCEPTED, refused.reason, refused.sentence)
    generation = pool_service.metadata.generation
    shown = old.load_balancer.ingress
    if load_balancer is not None and load_balancer.deleting:
        shown = None  # nothing will answer there
    ingress = list((source.load_balancer.ingress if source else None) or shown or ())
    return msgspec.structs.replace(
        old,
        address=ingress[0].address if ingress else "",
        targets=source.targets if source else old.targets,
        load_balancer=msgspec.structs.replace(old.load_balancer, ingress=ingress or None),
        observed_generation=generation,
        conditions=mirrored_conditions(by_type.values(), old.conditions, generation=generation, now=now),
    )


def _condition(kind: ConditionType, reason: ConditionReason, message: str) -> WireCondition:
    return WireCondition(type=kind.value, status="False", reason=reason.value, message=message)
