"""Objects that agents and regions publish at a hub: made from a Service, compared, and written as JSON.

    form          equal meaning is equal value: defaults explicit, lists sorted, repeated strings shared
    difference    the reason to write an object; what a server or another controller has added does not differ
    JSON          every field that the publisher owns, defaults included
    plan          desired and present objects ─► writes in order, each with a reason

In: objects as an API server sends them, and objects that should be published. Out: writes, and the reasons why a
Service is refused. Pure. Never: changes an object that was not published for the same origin, or applies to one that
is being deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast, get_args

import msgspec

from fairlead.api.annotations import IPNetwork, accept_problem, connection_limits_problem, parse_cidr, read_access_log
from fairlead.api.hostname import host_problem
from fairlead.api.intent import FamilyPolicy
from fairlead.api.json_text import read_json
from fairlead.api.kubernetes import (
    ENDPOINT_SLICES,
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    Ingress,
    NodeStatus,
    Service,
    ServicePort,
)
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, ObjectMeta, Wire, WireCondition
from fairlead.api.multicluster import LABEL_MULTICLUSTER_SERVICE, LABEL_SOURCE_CLUSTER
from fairlead.api.names import (
    ANNOTATION_ACCEPT_PROXY_PROTOCOL,
    ANNOTATION_ACCESS_LOG,
    ANNOTATION_DRAIN,
    ANNOTATION_DRAIN_CLOSE,
    ANNOTATION_EGRESS_PODS,
    ANNOTATION_GLOBAL,
    ANNOTATION_HEALTH_CHECK,
    ANNOTATION_HOSTNAME,
    ANNOTATION_LIMITS,
    ANNOTATION_OUTLIER_DETECTION,
    ANNOTATION_PROXY_PROTOCOL,
    ANNOTATION_REQUESTED_ADDRESS,
    ANNOTATION_STALE,
    ANNOTATION_TARGET,
    FINALIZER_CLEANUP,
    GROUP,
    HEALTH_ANNOTATIONS,
    LABEL_EXCLUDE_NODE,
    LABEL_LOAD_BALANCER,
    LABEL_MANAGED_BY,
    LABEL_ORIGIN_KIND,
    LABEL_ORIGIN_NAME,
    LABEL_ORIGIN_NAMESPACE,
    LABEL_ORIGIN_UID,
    LABEL_SERVICE_NAME,
    LABEL_SLICE_MANAGED_BY,
    LABEL_SUBTENANT,
    LABEL_TENANT,
    MANAGED_BY,
    SLICE_MANAGED_BY,
    did_you_mean,
    label_value,
    name_problem,
)
from fairlead.api.tcploadbalancer import (
    TCP_LOAD_BALANCERS,
    LoadBalancerPort,
    Origin,
    ProtocolName,
    TargetType,
    TCPLoadBalancer,
    TCPLoadBalancerSpec,
)
from fairlead.api.times import seconds_from_duration
from fairlead.model.condition import ConditionReason
from fairlead.model.desired import MAX_DRAIN_S
from fairlead.model.health import HealthCheckSettings, OutlierDetection, problem_of, shown, single_annotations
from fairlead.model.http import DrainClose
from fairlead.model.keys import IPV4, IPV6, Family, family_of, requested_addresses

T = TypeVar("T", bound=KubeObject)
HealthSettings = TypeVar("HealthSettings", HealthCheckSettings, OutlierDetection)

#: The longest name of an object.
NAME_LIMIT = 253


def origin_labels(*, kind: str, namespace: str, name: str, tenant: str = "") -> dict[str, str]:
    """Return the labels of everything that is published for one origin."""
    labels = {
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_ORIGIN_KIND: kind,
        LABEL_ORIGIN_NAMESPACE: namespace,
        LABEL_ORIGIN_NAME: label_value(name),
    }
    return labels | {LABEL_TENANT: label_value(tenant)} if tenant else labels


def slice_labels(origin: dict[str, str], load_balancer: str) -> dict[str, str]:
    """Return the labels of an EndpointSlice of one TCPLoadBalancer, given those of their common origin."""
    return {**origin, LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY, LABEL_LOAD_BALANCER: label_value(load_balancer)}


# --- canonical form -------------------------------------------------------------------------------------------------

_KEPT_LABELS = frozenset(
    {
        LABEL_EXCLUDE_NODE,
        LABEL_SERVICE_NAME,
        LABEL_SLICE_MANAGED_BY,
        LABEL_MANAGED_BY,
        LABEL_MULTICLUSTER_SERVICE,
        LABEL_SOURCE_CLUSTER,
    }
)

#: All possible conditions, created once: 50,000 endpoints share these eight values.
_CONDITIONS = {
    (ready, serving, terminating): EndpointConditions(ready, serving, terminating)
    for ready in (False, True)
    for serving in (False, True)
    for terminating in (False, True)
}


def conditions_of(raw: EndpointConditions | None) -> EndpointConditions:
    """Make the defaults explicit, as kube-proxy reads them: unset is ready, serving and not terminating.

    Source: https://kubernetes.io/docs/reference/kubernetes-api/discovery/endpoint-slice-v1/
    """
    if raw is None:
        return _CONDITIONS[True, True, False]
    return _CONDITIONS[raw.ready is not False, raw.serving is not False, bool(raw.terminating)]


def make_conditions(*, ready: bool, serving: bool, terminating: bool) -> EndpointConditions:
    """Return the shared value for three facts."""
    return _CONDITIONS[ready, serving, terminating]


def canonical_endpoints(endpoints: list[Endpoint]) -> list[Endpoint]:
    """Return endpoints in canonical order."""
    return sorted(endpoints, key=_endpoint_order)


def canonical_ports(ports: list[EndpointPort]) -> list[EndpointPort]:
    """Return the ports of a slice in canonical order."""
    return sorted(ports, key=_port_order)


def canonical_slice(
    raw: EndpointSlice, *, owners: bool = False, targets: bool = False, hints: bool = False
) -> EndpointSlice:
    """Reduce an EndpointSlice of either side.

    ``owners``: with its owner references; ``targets``: with its pods; ``hints``: with the zones that it is for.
    """
    meta = canonical_meta(raw.metadata)
    if owners:
        meta = msgspec.structs.replace(meta, owner_references=raw.metadata.owner_references)
    return EndpointSlice(
        metadata=meta,
        address_type=raw.address_type,
        endpoints=canonical_endpoints(
            [
                _endpoint(endpoint, targets=targets, hints=hints)
                for endpoint in raw.endpoints or ()
                if endpoint.addresses
            ]
        ),
        ports=canonical_ports([_port(port) for port in raw.ports or ()]),
    )


def canonical_load_balancer(raw: TCPLoadBalancer) -> TCPLoadBalancer:
    """Return a TCPLoadBalancer with its ports sorted."""
    ports = sorted(raw.spec.ports, key=lambda port: (port.port, port.protocol))
    return msgspec.structs.replace(raw, spec=msgspec.structs.replace(raw.spec, ports=ports))


def node_status(raw: NodeStatus) -> NodeStatus:
    """Return what heartbeats leave as it is: the addresses, and whether the node is Ready."""
    ready = [
        WireCondition(type=condition.type, status=condition.status)
        for condition in raw.conditions or ()
        if condition.type == "Ready"
    ]
    return NodeStatus(addresses=raw.addresses, conditions=ready)


def canonical_meta(meta: ObjectMeta) -> ObjectMeta:
    """Return metadata with the labels, annotations and finalizers that are read, and no others."""
    labels = {
        shared_string(key): shared_string(value)
        for key, value in (meta.labels or {}).items()
        if key in _KEPT_LABELS or key.startswith(f"{GROUP}/")
    }
    stale = (meta.annotations or {}).get(ANNOTATION_STALE)
    return ObjectMeta(
        name=meta.name,
        namespace=shared_string(meta.namespace),
        uid=meta.uid,
        resource_version=meta.resource_version,
        deletion_timestamp=meta.deletion_timestamp,
        labels=labels,
        annotations=None if stale is None else {ANNOTATION_STALE: stale},
        finalizers=[FINALIZER_CLEANUP] if FINALIZER_CLEANUP in (meta.finalizers or ()) else None,
    )


@lru_cache(maxsize=65_536)
def shared_string(text: str) -> str:
    """Return one string object for equal strings, as long as they are used often."""
    return text


def _endpoint(raw: Endpoint, *, targets: bool, hints: bool) -> Endpoint:
    return Endpoint(
        addresses=raw.addresses,
        conditions=conditions_of(raw.conditions),
        node_name=shared_string(raw.node_name) if raw.node_name else None,
        zone=shared_string(raw.zone) if raw.zone else None,
        hostname=raw.hostname,
        target_ref=raw.target_ref if targets else None,
        hints=raw.hints if hints else None,
    )


def _port(raw: EndpointPort) -> EndpointPort:
    return EndpointPort(name=raw.name or "", port=raw.port, protocol=raw.protocol or "TCP")


def _endpoint_order(endpoint: Endpoint) -> tuple[list[str], str, str, str]:
    return (endpoint.addresses or [], endpoint.node_name or "", endpoint.zone or "", repr(endpoint.conditions))


def _port_order(port: EndpointPort) -> tuple[str, str, int]:
    return (port.name or "", port.protocol or "", port.port or 0)


# --- differences ----------------------------------------------------------------------------------------------------


def load_balancer_difference(desired: TCPLoadBalancer, present: TCPLoadBalancer | None) -> str:
    """Return why a TCPLoadBalancer has to be applied."""
    if present is None:
        return "new"
    if desired.spec != present.spec:
        names = desired.spec.__struct_fields__
        fields = [name for name in names if getattr(desired.spec, name) != getattr(present.spec, name)]
        return f"changed: {', '.join(fields)}"
    if any(finalizer not in (present.metadata.finalizers or ()) for finalizer in desired.metadata.finalizers or ()):
        return "finalizer removed"
    if desired.annotation(ANNOTATION_EGRESS_PODS) != present.annotation(ANNOTATION_EGRESS_PODS):
        return "egress pods changed"
    return metadata_difference(desired, present)


def slice_difference(desired: EndpointSlice, present: EndpointSlice | None) -> str:
    """Return why an EndpointSlice has to be applied."""
    if present is None:
        return "new"
    if not _same_endpoints(desired, present):
        before, after = _endpoint_addresses(present), _endpoint_addresses(desired)
        added, removed = len(after - before), len(before - after)
        return f"endpoints changed: {added} added, {removed} removed" if added or removed else "endpoints changed"
    if desired.ports != present.ports:
        return "ports changed"
    if desired.annotation(ANNOTATION_STALE) != present.annotation(ANNOTATION_STALE):
        return desired.annotation(ANNOTATION_STALE) or "no longer stale"
    return metadata_difference(desired, present)


def _same_endpoints(desired: EndpointSlice, present: EndpointSlice) -> bool:
    """Return whether both list the same endpoints.

    An earlier release did not publish the uids of pods; adding them is not worth a write for each slice.
    """
    endpoints = desired.endpoints or []
    if not any(endpoint.target_ref for endpoint in present.endpoints or ()):
        endpoints = [msgspec.structs.replace(endpoint, target_ref=None) for endpoint in endpoints]
    return endpoints == (present.endpoints or [])


def same_ingress(desired: Sequence[Ingress], present: Sequence[Ingress]) -> bool:
    """Return whether two entries are equal, ignoring ipMode VIP, which API servers default and old ones drop."""
    return len(desired) == len(present) and all(
        msgspec.structs.replace(wanted_entry, ip_mode=None) == msgspec.structs.replace(present_entry, ip_mode=None)
        and present_entry.ip_mode in {wanted_entry.ip_mode or "VIP", None}
        for wanted_entry, present_entry in zip(desired, present, strict=True)
    )


def metadata_difference(desired: KubeObject, present: KubeObject) -> str:
    """Return which metadata of the desired object differs; additions by other clients do not differ."""
    labels, annotations = present.metadata.labels or {}, present.metadata.annotations or {}
    wanted = dict(desired.metadata.labels or {})
    if LABEL_ORIGIN_UID not in labels:
        # An earlier release wrote none, and adding it is not worth one write for each slice of a member.
        wanted.pop(LABEL_ORIGIN_UID, None)
    if any(labels.get(name) != value for name, value in wanted.items()):
        return "labels changed"
    if LABEL_SUBTENANT in labels and LABEL_SUBTENANT not in wanted:
        return "the namespace has no sub-tenant"
    if any(annotations.get(name) != value for name, value in (desired.metadata.annotations or {}).items()):
        return "annotations changed"
    owners = {reference.uid for reference in present.metadata.owner_references or ()}
    if any(reference.uid not in owners for reference in desired.metadata.owner_references or ()):
        return "owners changed"
    return ""


def _endpoint_addresses(endpoint_slice: EndpointSlice) -> set[str]:
    return {address for endpoint in endpoint_slice.endpoints or () for address in endpoint.addresses or ()}


# --- JSON -----------------------------------------------------------------------------------------------------------


def whole(value: Wire) -> JSONObject:
    """Return the JSON of a value with all fields, defaults included, except those that are None."""
    names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
    return {on_wire: _whole(part) for name, on_wire in names if (part := getattr(value, name)) is not None}


def object_from_load_balancer(load_balancer: TCPLoadBalancer) -> JSONObject:
    """Write a TCPLoadBalancer; newer fields that are empty are left out."""
    spec = whole(load_balancer.spec)
    later = ("region", "ipFamilies", "ipFamilyPolicy", "globalService", "drain", "accessLog", "limits")
    for name in (*later, "acceptProxyProtocol", "drainClose"):
        # A hub of an earlier version would refuse a field that it does not know.
        if not spec[name]:
            del spec[name]
    return {**_head(TCP_LOAD_BALANCERS, load_balancer.metadata), "spec": spec}


def object_from_slice(endpoint_slice: EndpointSlice) -> JSONObject:
    """Write an EndpointSlice in canonical form."""
    return {
        **_head(ENDPOINT_SLICES, endpoint_slice.metadata),
        "addressType": endpoint_slice.address_type,
        "endpoints": _whole(endpoint_slice.endpoints or []),
        "ports": _whole(endpoint_slice.ports or []),
    }


def object_from_ingress(ingress: Ingress) -> JSONObject:
    """Write one entry of ``status.loadBalancer.ingress``."""
    body: JSONObject = {"ip": ingress.ip} if ingress.ip else {"hostname": ingress.hostname}
    if ingress.ip and ingress.ip_mode:
        # The API server rejects ipMode together with a host name.
        body["ipMode"] = ingress.ip_mode
    return body | ({"ports": _whole(ingress.ports)} if ingress.ports else {})


def _head(kind: AnyResource, meta: ObjectMeta) -> JSONObject:
    """Return apiVersion, kind and the owned metadata of an object."""
    parts = (meta.annotations, meta.finalizers, meta.owner_references)
    names = ("annotations", "finalizers", "ownerReferences")
    body: JSONObject = {"name": meta.name, "namespace": meta.namespace, "labels": dict(meta.labels or {})}
    body |= {name: _whole(part) for name, part in zip(names, parts, strict=True) if part}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": body}


def _whole(part: object) -> Any:
    match part:
        case Wire():
            return whole(part)
        case msgspec.Struct():
            return msgspec.to_builtins(part)
        case list() | tuple():
            return [_whole(item) for item in cast("list[object]", part)]
        case _:
            return part


# --- writes ---------------------------------------------------------------------------------------------------------

#: Returns whether a present object was published for the planned origin.
IsOurs = Callable[[KubeObject], bool]


class Present(msgspec.Struct, frozen=True):
    """One origin at the hub: the object of the TCPLoadBalancer's name, and all slices that may be its own."""

    load_balancer: TCPLoadBalancer | None
    slices: tuple[EndpointSlice, ...] = ()


class HubWrite(msgspec.Struct, Generic[T], frozen=True):
    """One write. ``obj`` is what to apply; for a delete it is the object that is present (its uid is checked)."""

    action: Literal["apply", "delete"]
    obj: T
    reason: str


class PublishPlan(msgspec.Struct, frozen=True):
    """Writes in order. ``conflict`` names an object that was not published for this origin.

    1. apply the TCPLoadBalancer     so that new slices are never without one
    2. apply slices                  add before remove
    3. delete slices                 of an earlier target type, or that are no longer desired
    (a load balancer that goes: its TCPLoadBalancer first, so that the hub sees a deletion and not lost backends)
    """

    of_load_balancer: tuple[HubWrite[TCPLoadBalancer], ...] = ()
    of_slices: tuple[HubWrite[EndpointSlice], ...] = ()
    conflict: str = ""

    @property
    def writes(self) -> tuple[HubWrite[TCPLoadBalancer] | HubWrite[EndpointSlice], ...]:
        """Return all writes in order."""
        return (*self.of_load_balancer, *self.of_slices)

    def without_removals(self) -> PublishPlan:
        """Return the plan without its deletions."""
        return PublishPlan(_applied(self.of_load_balancer), _applied(self.of_slices), self.conflict)


def _applied(writes: Iterable[HubWrite[T]]) -> tuple[HubWrite[T], ...]:
    return tuple(write for write in writes if write.action == "apply")


def plan_publication(desired: Publication, present: Present, *, is_ours: IsOurs) -> PublishPlan:
    """Plan the writes that make the hub hold ``desired``."""
    load_balancer, name = present.load_balancer, desired.load_balancer.metadata.name
    if load_balancer is not None:
        if not is_ours(load_balancer):
            return PublishPlan(conflict=f"TCPLoadBalancer {name}")
        if load_balancer.deleting:
            return PublishPlan()
    reason = load_balancer_difference(desired.load_balancer, load_balancer)
    first = (HubWrite("apply", desired.load_balancer, reason),) if reason else ()
    if desired.slices is None:
        return PublishPlan(first)
    names = {endpoint_slice.metadata.name for endpoint_slice in desired.slices}
    foreign = [
        endpoint_slice.metadata.name
        for endpoint_slice in present.slices
        if endpoint_slice.metadata.name in names and not is_ours(endpoint_slice)
    ]
    if foreign:
        return PublishPlan(first, conflict=f"EndpointSlice {foreign[0]}")
    return PublishPlan(first, plan_slices(desired.slices, filter(is_ours, present.slices)))


def plan_slices(
    desired: Iterable[EndpointSlice], present: Iterable[EndpointSlice]
) -> tuple[HubWrite[EndpointSlice], ...]:
    """Plan the writes that make ``present``, which are ours, equal to ``desired``."""
    by_name = {endpoint_slice.metadata.name: endpoint_slice for endpoint_slice in present}
    writes: list[HubWrite[EndpointSlice]] = []
    for endpoint_slice in desired:
        existing = by_name.pop(endpoint_slice.metadata.name, None)
        if existing is not None and existing.deleting:
            continue
        reason = slice_difference(endpoint_slice, existing)
        if reason:
            writes.append(HubWrite("apply", endpoint_slice, reason))
    unwanted = [by_name[name] for name in sorted(by_name)]
    return (*writes, *_deletes(unwanted, "no longer among the backends"))


def plan_removal(present: Present, *, reason: str, is_ours: IsOurs) -> PublishPlan:
    """Plan the removal of everything that was published for an origin."""
    load_balancers = () if present.load_balancer is None else (present.load_balancer,)
    slices = sorted(present.slices, key=lambda endpoint_slice: endpoint_slice.metadata.name)
    return PublishPlan(_deletes(filter(is_ours, load_balancers), reason), _deletes(filter(is_ours, slices), reason))


def _deletes(objects: Iterable[T], reason: str) -> tuple[HubWrite[T], ...]:
    return tuple(HubWrite("delete", obj, reason) for obj in objects if not obj.deleting)


_PROTOCOLS = frozenset({"TCP", "UDP"})


class Publication(msgspec.Struct, frozen=True):
    """Desired objects of one origin. ``slices`` None: those that are present stay, whatever they are."""

    load_balancer: TCPLoadBalancer
    slices: tuple[EndpointSlice, ...] | None


class Refused(msgspec.Struct, frozen=True):
    """An origin requests a load balancer and cannot have one; ``sentence`` says what to do instead.

    ``keep``: what was published before stays (a wrong value must not take down what works); otherwise it goes, because
    the Service has become something that no longer has a load balancer.
    """

    reason: ConditionReason
    sentence: str
    keep: bool = True


def sorted_ports(service: Service) -> list[ServicePort]:
    """Return the ports of a Service in canonical order."""
    return sorted(service.spec.ports or (), key=lambda port: (port.port, port.protocol))


def refused_ports(service: Service, *, by_node_port: bool) -> Refused | None:
    """Return why the ports of a Service cannot be balanced; ``by_node_port``: its backends are nodes."""
    ports = sorted_ports(service)
    if not ports:
        return Refused(ConditionReason.INVALID, "the Service has no ports: add one to spec.ports.")
    for port in ports:
        if port.protocol not in _PROTOCOLS:
            sentence = f"port {port.port} asks for {port.protocol}: Fairlead balances TCP and UDP."
            return Refused(ConditionReason.UNSUPPORTED_PROTOCOL, sentence)
    missing = [str(port.port) for port in service.spec.ports or () if by_node_port and not port.node_port]
    if missing:
        return Refused(
            ConditionReason.NODE_PORT_MISSING,
            f"port {', '.join(missing[:5])} has no nodePort, and the backends are nodes: set annotation "
            f"{ANNOTATION_TARGET}: Pod, or remove allocateLoadBalancerNodePorts: false.",
        )
    return None


def has_ports_of(service: Service, load_balancer: TCPLoadBalancer) -> bool:
    """Return whether a Service has all ports of the version at the hub.

    Endpoints have the names of the Service's ports: without them, nothing is known about the targets of that version.
    """
    ports = {(port.name or "", port.protocol) for port in service.spec.ports or ()}
    return all((port.name, port.protocol) in ports for port in load_balancer.spec.ports)


def lost_ports(before: Iterable[EndpointSlice], slices: Iterable[EndpointSlice]) -> frozenset[tuple[str, str]]:
    """Return name and protocol of the ports of ``before`` that no slice has now; of no endpoints nothing is known."""
    ports = _ports_of(slices)
    return _ports_of(before) - ports if ports else frozenset()


def _ports_of(slices: Iterable[EndpointSlice]) -> frozenset[tuple[str, str]]:
    return frozenset(
        (port.name or "", port.protocol or "TCP")
        for endpoint_slice in slices
        if endpoint_slice.endpoints
        for port in endpoint_slice.ports or ()
    )


def families_of(service: Service) -> tuple[Family, ...]:
    """Return the families of a Service in its order; IPv4 if an older API server omits them."""
    known: dict[str, Family] = {IPV4: IPV4, IPV6: IPV6}
    return tuple(known[family] for family in service.spec.ip_families or () if family in known) or (IPV4,)


def written_families(families: tuple[Family, ...]) -> tuple[Family, ...]:
    """Return families as they are published: IPv4 alone is not written."""
    return families if families != (IPV4,) else ()


def spec_from_service(
    service: Service, options: ServiceOptions, *, origin: Origin, class_name: str, targets: TargetType, region: str = ""
) -> TCPLoadBalancerSpec:
    """Return the spec of the TCPLoadBalancer of a Service whose ports are not refused; IPv4 alone is not written."""
    families = families_of(service)
    ports = [
        LoadBalancerPort(
            port=port.port,
            name=port.name,
            protocol=cast("ProtocolName", port.protocol),
            # Not needed for other targets, and it would turn one change into two writes.
            node_port=port.node_port if targets == "Node" else 0,
        )
        for port in sorted_ports(service)
    ]
    return TCPLoadBalancerSpec(
        ports=ports,
        class_name=class_name,
        targets=targets,
        external_traffic_policy="Local" if service.spec.external_traffic_policy == "Local" else "Cluster",
        session_affinity="ClientIP" if service.spec.session_affinity == "ClientIP" else "None",
        load_balancer_source_ranges=list(options.source_ranges),
        proxy_protocol=options.proxy_protocol,
        address=options.address,
        ip_families=written_families(families),
        ip_family_policy=_family_policy(service) if len(families) > 1 else "",
        region=region,
        hostnames=list(options.hostnames),
        generate_hostname=options.generate_hostname,
        global_service=options.global_service,
        drain=options.drain,
        drain_close=options.drain_close,
        access_log=options.access_log,
        limits=options.limits,
        accept_proxy_protocol=options.accept_proxy_protocol,
        health_check=options.health_check,
        outlier_detection=options.outlier_detection,
        origin=origin,
    )


def _family_policy(service: Service) -> FamilyPolicy:
    return "RequireDualStack" if service.spec.ip_family_policy == "RequireDualStack" else "PreferDualStack"


#: Kubernetes' own, older spelling of ``spec.loadBalancerSourceRanges``; counts only when that field is empty.
ANNOTATION_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"

#: The annotations that ``read_options`` reads.
OPTION_ANNOTATIONS = frozenset(
    {
        ANNOTATION_ACCESS_LOG,
        *HEALTH_ANNOTATIONS,
        ANNOTATION_GLOBAL,
        ANNOTATION_HOSTNAME,
        ANNOTATION_PROXY_PROTOCOL,
        ANNOTATION_REQUESTED_ADDRESS,
        ANNOTATION_SOURCE_RANGES,
        ANNOTATION_TARGET,
    }
)

#: The value of the names annotation that requests a generated name.
GENERATE = "generate"
MAX_HOSTNAMES = 32


class SettingError(ValueError):
    """An annotation cannot be read; the sentence names it, the field and what that must be."""

    @property
    def sentence(self) -> str:
        """Return the message with its full stop."""
        return str(self) if str(self).endswith("?") else f"{self}."


TargetOption = Literal["", "Node", "Pod"]


class ServiceOptions(msgspec.Struct, frozen=True):
    """Options of a Service. ``source_ranges`` are canonical CIDRs of its families, sorted; empty means any source.

    ``hostnames`` are DNS names, sorted; ``generate_hostname`` asks for one in the member's domain. ``warnings`` name
    the source ranges that are accepted, and ambiguous.
    """

    target: TargetOption = ""
    proxy_protocol: Literal["", "v1", "v2"] = ""
    address: str = ""
    source_ranges: tuple[str, ...] = ()
    hostnames: tuple[str, ...] = ()
    generate_hostname: bool = False
    global_service: str = ""
    drain: str = ""
    drain_close: DrainClose = ""
    access_log: str = ""
    limits: str = ""
    accept_proxy_protocol: str = ""
    health_check: HealthCheckSettings | None = None
    outlier_detection: OutlierDetection | None = None
    warnings: tuple[str, ...] = ()


def read_options(service: Service, *, of_cloud: bool = False) -> ServiceOptions | Refused:
    """Read the annotations and fields of ``service`` that concern us.

    ``of_cloud``: the member's own cloud serves it too, so that spec.loadBalancerIP is for that load balancer.
    """
    try:
        return _options(service, of_cloud=of_cloud)
    except _InvalidOptionError as error:
        return error.refused


class _InvalidOptionError(Exception):
    """An option that refuses the whole Service; ``read_options`` returns why."""

    def __init__(self, reason: ConditionReason, sentence: str) -> None:
        super().__init__(sentence)
        self.refused = Refused(reason, sentence)


def _options(service: Service, *, of_cloud: bool) -> ServiceOptions:
    target = service.annotation(ANNOTATION_TARGET)
    if target not in {"", "Node", "Pod"}:
        raise _wrong(f"annotation {ANNOTATION_TARGET}", target, "Node or Pod", did_you_mean(target, ("Node", "Pod")))
    proxy_protocol = service.annotation(ANNOTATION_PROXY_PROTOCOL)
    if proxy_protocol not in {"", "v1", "v2"}:
        hint = did_you_mean(proxy_protocol, ("v1", "v2"))
        raise _wrong(f"annotation {ANNOTATION_PROXY_PROTOCOL}", proxy_protocol, "v1 or v2", hint)
    address = _address(service, of_cloud=of_cloud)
    warnings: list[str] = []
    ranges = _source_ranges(service, warnings)
    hostnames = _hostnames(service)
    try:
        of_backends = backend_settings(service)
    except SettingError as error:
        raise _InvalidOptionError(ConditionReason.INVALID, error.sentence) from error
    return ServiceOptions(
        target=cast("TargetOption", target),
        proxy_protocol=cast('Literal["", "v1", "v2"]', proxy_protocol),
        address=address,
        source_ranges=ranges,
        hostnames=tuple(sorted(hostnames - {GENERATE})),
        generate_hostname=GENERATE in hostnames,
        global_service=_global_service(service),
        drain=of_backends.drain,
        drain_close=of_backends.drain_close,
        access_log=_access_log(service),
        limits=_limits(service),
        accept_proxy_protocol=_accept_proxy_protocol(service),
        health_check=of_backends.health_check,
        outlier_detection=of_backends.outlier_detection,
        warnings=tuple(warnings),
    )


def _access_log(service: Service) -> str:
    text = service.annotation(ANNOTATION_ACCESS_LOG)
    try:
        read_access_log(text or "off")
    except ValueError as error:
        sentence = f"annotation {ANNOTATION_ACCESS_LOG}: {error}"
        raise _InvalidOptionError(ConditionReason.INVALID, sentence) from error
    return text


def _limits(service: Service) -> str:
    text = service.annotation(ANNOTATION_LIMITS)
    if problem := connection_limits_problem(text):
        raise _InvalidOptionError(ConditionReason.INVALID, f"annotation {ANNOTATION_LIMITS}: {problem}")
    return text


def _accept_proxy_protocol(service: Service) -> str:
    text = service.annotation(ANNOTATION_ACCEPT_PROXY_PROTOCOL)
    if problem := accept_problem(text):
        raise _InvalidOptionError(ConditionReason.INVALID, f"annotation {ANNOTATION_ACCEPT_PROXY_PROTOCOL}: {problem}")
    return text


class BackendSettings(NamedTuple):
    """How the endpoints of a Service are checked, ejected and drained; ``drain`` is a duration, empty for no limit."""

    health_check: HealthCheckSettings | None = None
    outlier_detection: OutlierDetection | None = None
    drain: str = ""
    drain_close: DrainClose = ""


def backend_settings(service: Service) -> BackendSettings:
    """Return the annotated settings for the endpoints of a Service, also behind routes.

    Raises:
        SettingError: an annotation cannot be read.
    """
    annotations = service.metadata.annotations
    return BackendSettings(
        settings_from_annotations(annotations, ANNOTATION_HEALTH_CHECK, HealthCheckSettings),
        settings_from_annotations(annotations, ANNOTATION_OUTLIER_DETECTION, OutlierDetection),
        *_drain(service),
    )


_MUST_BE_SETTING = {"type": "tcp, http, grpc or none", "tls": "true or false"}


def settings_from_annotations(
    annotations: Mapping[str, str] | None, annotation: str, settings: type[HealthSettings]
) -> HealthSettings | None:
    """Return the settings in the annotations of an object, None if there are none.

    Raises:
        SettingError: a value is not valid.
    """
    present = annotations or {}
    written = {
        field: (name, present[name])
        for name, field in single_annotations(annotation, settings).items()
        if present.get(name, "").strip()
    }
    text = present.get(annotation, "").strip()
    if not text and not written:
        return None
    values = _json_object(annotation, text, settings) if text else {}
    values |= {field: value.strip() for field, (_, value) in written.items()}

    def place(field: str) -> str:
        return f"annotation {written[field][0]}" if field in written else f"annotation {annotation}: {field}"

    for field, value in values.items():
        if not isinstance(value, (str, int)):
            raise SettingError(f"{place(field)} is {shown(value)}: it must be one value")
    try:
        read = msgspec.convert(
            {field: str(value).lower() if isinstance(value, bool) else str(value) for field, value in values.items()},
            settings,
            strict=False,
        )
    except msgspec.ValidationError as error:
        field = str(error).rpartition("$.")[2].rstrip("`")
        raise SettingError(
            f"{place(field)} is {shown(values.get(field))}: it must be {_MUST_BE_SETTING.get(field, 'a whole number')}"
        ) from None
    if problem := problem_of(read):
        raise SettingError(f"{place(problem.field)} {problem.text}")
    return read


def _json_object(annotation: str, text: str, settings: type[HealthSettings]) -> dict[str, object]:
    read = read_json(text, dict[str, object])
    if read is None:
        raise SettingError(f"annotation {annotation} is {shown(text)}: it must be a JSON object")
    known = settings.__struct_encode_fields__
    for field in read:
        if field not in known:
            hint = did_you_mean(field, known) or f" Valid are {', '.join(known)}"
            raise SettingError(f"annotation {annotation}: {field[:60]} is unknown.{hint}")
    return {field: value for field, value in read.items() if value is not None}


def _global_service(service: Service) -> str:
    name = service.annotation(ANNOTATION_GLOBAL).strip()
    if name and (problem := name_problem(name)):
        raise _InvalidOptionError(ConditionReason.INVALID, f"annotation {ANNOTATION_GLOBAL}: {problem}")
    return name


def _drain(service: Service) -> tuple[str, DrainClose]:
    text = service.annotation(ANNOTATION_DRAIN).strip()
    try:
        valid = not text or seconds_from_duration(text) <= MAX_DRAIN_S
    except ValueError:
        valid = False
    if not valid:
        raise SettingError(
            f"annotation {ANNOTATION_DRAIN} is {shown(text)}: it must be a duration from 0s to 1h, such as 30s"
        )
    close = service.annotation(ANNOTATION_DRAIN_CLOSE).strip()
    if close not in get_args(DrainClose):
        hint = did_you_mean(close, ("graceful", "reset"))
        raise SettingError(
            f"annotation {ANNOTATION_DRAIN_CLOSE} is {shown(close)}: it must be graceful or reset.{hint}"
        )
    if close and not text:
        raise SettingError(f"annotation {ANNOTATION_DRAIN_CLOSE} needs {ANNOTATION_DRAIN}, such as 30s")
    return text, cast("DrainClose", close)


def _hostnames(service: Service) -> frozenset[str]:
    where = f"annotation {ANNOTATION_HOSTNAME}"
    names = frozenset(filter(None, (text.strip() for text in service.annotation(ANNOTATION_HOSTNAME).split(","))))
    for name in sorted(names):
        if problem := host_problem(name, wildcard=True):
            raise _InvalidOptionError(
                ConditionReason.HOSTNAME_INVALID, f"{where}: invalid DNS name {name!r}: {problem}."
            )
    if len(names) > MAX_HOSTNAMES:
        sentence = f"{where} has {len(names)} names: {MAX_HOSTNAMES} are allowed, use another Service for the others."
        raise _InvalidOptionError(ConditionReason.HOSTNAME_INVALID, sentence)
    return names


def _address(service: Service, *, of_cloud: bool) -> str:
    by_field = "" if of_cloud else service.spec.load_balancer_ip
    by_annotation = service.annotation(ANNOTATION_REQUESTED_ADDRESS)
    text = (by_annotation or by_field).strip()
    if not text:
        return ""
    where = f"annotation {ANNOTATION_REQUESTED_ADDRESS}" if by_annotation else "spec.loadBalancerIP"
    addresses, families = requested_addresses(text), families_of(service)
    by_address = [family_of(address) for address in addresses]
    if not addresses or None in by_address or len(set(by_address)) < len(by_address):
        raise _wrong(where, text, "an IP address, or one of each family such as 192.0.2.10,2001:db8::10")
    if other := next((address for address in addresses if family_of(address) not in families), ""):
        sentence = (
            f"{where} is {text!r}: {other} is not of {' or '.join(families)}, the spec.ipFamilies of this Service. "
            "Request an address of these, or add the other family (spec.ipFamilyPolicy: PreferDualStack)."
        )
        raise _InvalidOptionError(ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, sentence)
    return ",".join(addresses)


def _source_ranges(service: Service, warnings: list[str]) -> tuple[str, ...]:
    """Return the canonical source ranges; adds to ``warnings`` what is ambiguous about them."""
    where, values = "spec.loadBalancerSourceRanges", [*(service.spec.load_balancer_source_ranges or ())]
    if not values:
        where, values = (
            f"annotation {ANNOTATION_SOURCE_RANGES}",
            service.annotation(ANNOTATION_SOURCE_RANGES).split(","),
        )
    networks: set[IPNetwork] = set()
    families, ignored = families_of(service), ""
    for value in (text.strip() for text in values):
        if not value:
            continue
        cidr = parse_cidr(value)
        if cidr is None:
            raise _wrong(where, value, "a CIDR such as 203.0.113.0/24")
        network = cidr.network
        if cidr.warnings:
            warnings.append(f"{where} has {value!r}, which is read as {network}: write it so, or correct it.")
        if family_of(str(network.network_address)) in families:
            networks.add(network)
        else:
            ignored = value
    if ignored and not networks:
        # Dropping it would leave an empty list, which means any source: the opposite of what is asked.
        family = " or ".join(families)
        sentence = f"{where} has no range of {family}, the spec.ipFamilies of this Service ({ignored!r}): add one."
        raise _InvalidOptionError(ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, sentence)
    return tuple(str(network) for network in sorted(networks, key=_order))


def _order(network: IPNetwork) -> tuple[int, int, int]:
    return network.version, int(network.network_address), network.prefixlen


def _wrong(where: str, value: str, allowed: str, hint: str = "") -> _InvalidOptionError:
    return _InvalidOptionError(ConditionReason.INVALID, f"{where} is {value!r}: it must be {allowed}.{hint}")
