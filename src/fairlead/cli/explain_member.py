"""The facts of a member about its Service, Ingress, Gateway or route: addresses, conditions and Events.

In: a connection to the member, and the object's name. Out: one row, and the same as lines for people. The state of
each backend is at the hub, which the member's users may not be able to reach.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from fairlead.agent.events import ENSURED, NO_TARGETS, NOT_SERVING, RESOLVED, SERVING_STOPPED, resolved_message
from fairlead.api.gateway import (
    GATEWAY_CLASSES,
    GATEWAYS,
    GRPC_ROUTES,
    HTTP_ROUTES,
    LISTENER_SETS,
    TCP_ROUTES,
    TLS_ROUTES,
    UDP_ROUTES,
)
from fairlead.api.kubernetes import ANNOTATION_LEGACY_CLASS, INGRESS_CLASSES, INGRESSES, SERVICES
from fairlead.api.meta import AnyResource, KubeObject, Resource, version_number
from fairlead.api.names import (
    ANNOTATION_ADDRESS,
    DEFAULT_CLASS,
    GATEWAY_CONTROLLER,
    INGRESS_CONTROLLER,
    LOAD_BALANCER_CLASS_PREFIX,
    did_you_mean,
)
from fairlead.errors import FairleadError, NotFound, NotServed
from fairlead.status.formatting import columns
from fairlead.status.object_ref import ObjectRef

if TYPE_CHECKING:
    from fairlead.kube.cluster import Cluster


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Address(msgspec.Struct, frozen=True):
    ip: str = ""
    hostname: str = ""
    value: str = ""


class _MemberLoadBalancer(msgspec.Struct, frozen=True):
    ingress: list[_Address] | None = None


class _Listener(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    conditions: list[_Condition] | None = None


class _ParentRef(msgspec.Struct, frozen=True):
    kind: str = "Gateway"
    name: str = ""
    namespace: str | None = None


class _Parent(msgspec.Struct, frozen=True, rename="camel"):
    parent_ref: _ParentRef = _ParentRef()
    conditions: list[_Condition] | None = None


class _MemberStatus(msgspec.Struct, frozen=True, rename="camel"):
    load_balancer: _MemberLoadBalancer = _MemberLoadBalancer()
    addresses: list[_Address] | None = None
    conditions: list[_Condition] | None = None
    parents: list[_Parent] | None = None
    listeners: list[_Listener] | None = None


class _MemberSpec(msgspec.Struct, frozen=True, rename="camel"):
    ingress_class_name: str | None = None
    gateway_class_name: str | None = None
    parent_refs: list[_ParentRef] | None = None
    #: Of a ListenerSet.
    parent_ref: _ParentRef | None = None


class _Object(KubeObject, frozen=True, gc=False):
    """The fields of these kinds that are read; each kind has some of them."""

    spec: _MemberSpec = _MemberSpec()
    status: _MemberStatus = _MemberStatus()


#: Each kind of ``status.object_ref.SHARING``.
KINDS_OF_REQUESTS: tuple[AnyResource, ...] = (
    INGRESSES,
    GATEWAYS,
    LISTENER_SETS,
    HTTP_ROUTES,
    GRPC_ROUTES,
    TLS_ROUTES,
    TCP_ROUTES,
    UDP_ROUTES,
)
_RESOURCES = {
    kind.kind: Resource(kind.group, kind.version, kind.kind, kind.plural, kind.namespaced, _Object)
    for kind in KINDS_OF_REQUESTS
}


class MemberConditionRow(msgspec.Struct, frozen=True):
    """One condition; ``parent`` is the Gateway that says so of a route, or ``listener NAME``; empty: the object's own.

    Of listeners only what is wrong is listed.
    """

    parent: str
    type: str
    status: str
    reason: str
    message: str


class RequestsRow(msgspec.Struct, frozen=True, rename="camel"):
    """One Ingress, Gateway or route of a member; ``of_class`` is the class it names, empty when it names none."""

    object: str
    of_class: str
    addresses: list[str]
    conditions: list[MemberConditionRow]
    events: list[EventRow]
    notes: list[str]


async def explain_requests(cluster: Cluster, ref: ObjectRef, *, own_hub: bool = False) -> RequestsRow | None:
    """Return what the member knows; None when there is no such object. ``own_hub``: its hub is this cluster."""
    try:
        obj = await cluster.get(_RESOURCES[ref.kind], ref.namespace, ref.name)
    except (NotFound, NotServed):
        return None
    spec, status = obj.spec, obj.status
    of_class = spec.ingress_class_name or spec.gateway_class_name or obj.annotation(ANNOTATION_LEGACY_CLASS) or ""
    listed = [*(status.load_balancer.ingress or ()), *(status.addresses or ())]
    addresses = [text for each in listed if (text := each.ip or each.value or each.hostname)]
    conditions = [
        MemberConditionRow(parent, each.type, each.status, each.reason, each.message)
        for parent, some in (
            ("", status.conditions),
            *((parent.parent_ref.name, parent.conditions) for parent in status.parents or ()),
            *((f"listener {listener.name}", _wrong(listener)) for listener in status.listeners or ()),
        )
        for each in some or ()
    ]
    events = await events_of(cluster, ref, obj.metadata.uid)
    here = ObjectRef(ref.kind, ref.namespace, ref.name)
    at_hub = f"fairlead explain {here.argument} --kubeconfig HUB.kubeconfig"
    of_set = [spec.parent_ref] if spec.parent_ref is not None else []
    parents = [
        ObjectRef(each.kind, each.namespace or ref.namespace, each.name)
        for each in (*(spec.parent_refs or ()), *of_set)
        if each.kind in (GATEWAYS.kind, LISTENER_SETS.kind)
    ]
    notes: list[str] = []
    if not events and not conditions and not addresses:
        why = await _without_parent(cluster, parents) or await _why_nothing(cluster, ref.kind, of_class)
        notes.append(f"Fairlead has reported nothing: {why}")
    elif not own_hub:
        notes.append(f"load balancer and backends, at the hub: {at_hub}")
    notes += [f"attached to {parent.name} by its reference: fairlead explain {parent.argument}" for parent in parents]
    name = f"{ref.kind} {ref.namespace}/{ref.name}"
    return RequestsRow(name, of_class, addresses, conditions, events, notes)


def _wrong(listener: _Listener) -> list[_Condition]:
    bad = {"Conflicted": "True"}
    return [
        condition for condition in listener.conditions or () if condition.status == bad.get(condition.type, "False")
    ]


async def _without_parent(cluster: Cluster, parents: Iterable[ObjectRef]) -> str:
    """Return which parent does not exist; empty when all do, or it cannot be read."""
    for kind, namespace, name, _ in parents:
        try:
            await cluster.get(_RESOURCES[kind], namespace, name)
        except NotFound:
            there = [obj.metadata.name for obj in await cluster.list(_RESOURCES[kind], namespace)]
            near = did_you_mean(name, there)
            return f"there is no {kind} {name} in namespace {namespace}; correct the reference to its parent.{near}"
        except FairleadError:
            continue
    return ""


async def _why_nothing(cluster: Cluster, kind: str, named: str) -> str:
    """Return why no controller of ours looks at an object, as far as its class says; with the next step."""
    is_ingress = kind == INGRESSES.kind
    resource = INGRESS_CLASSES if is_ingress else GATEWAY_CLASSES
    controller = INGRESS_CONTROLLER if is_ingress else GATEWAY_CONTROLLER
    unknown = "does the class belong to Fairlead, and does an agent run? fairlead doctor"
    if not named:
        return "no class is named; set spec.ingressClassName" if is_ingress else unknown
    try:
        its_class = await cluster.get(resource, "", named)
    except NotFound:
        near = did_you_mean(named, [each.metadata.name for each in await cluster.list(resource)])
        return (
            f"there is no {resource.kind} {named} in this cluster; create it, with the controller {controller}.{near}"
        )
    except FairleadError:
        return unknown
    if not its_class.is_ours:
        return f"{resource.kind} {named} is another controller's; name a class with the controller {controller}"
    return "does an agent run? fairlead doctor"


def requests_lines(row: RequestsRow) -> list[str]:
    """Return the lines for people."""
    parts = [f"class {row.of_class}"] if row.of_class else []
    parts += [f"address {', '.join(row.addresses)}"] if row.addresses else []
    lines = [f"{row.object}: {', '.join(parts)}" if parts else row.object]
    own = [(condition.type, condition.status, condition.reason, condition.message) for condition in row.conditions]
    by_parent = any(condition.parent for condition in row.conditions)
    lines += columns(
        [(condition.parent, *cells) for condition, cells in zip(row.conditions, own, strict=True)] if by_parent else own
    )
    lines += columns([(event.when, event.type, event.reason, event.message) for event in row.events])
    return lines + [f"Note: {text}" for text in row.notes]


_OURS = "fairlead"
#: Of these Events the last one holds.
_ABOUT_SERVING = frozenset({ENSURED, SERVING_STOPPED, NOT_SERVING, NO_TARGETS})


class _Source(msgspec.Struct, frozen=True, rename="camel"):
    component: str = ""


class _Involved(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Event(KubeObject, frozen=True, gc=False):
    involved_object: _Involved = _Involved()
    type: str = ""
    reason: str = ""
    message: str = ""
    source: _Source = _Source()
    reporting_component: str = ""
    last_timestamp: str | None = None


_EVENTS = Resource("", "v1", "Event", "events", True, _Event)


class EventRow(msgspec.Struct, frozen=True):
    """One Event of Fairlead's."""

    when: str
    type: str
    reason: str
    message: str


class ServiceRow(msgspec.Struct, frozen=True, rename="camel"):
    """One Service of a member; ``class_name`` is the LoadBalancerClass at the hub, empty when it is not Fairlead's."""

    service: str
    type: str
    class_name: str
    addresses: list[str]
    events: list[EventRow]
    notes: list[str]


async def explain_service(cluster: Cluster, ref: ObjectRef, *, own_hub: bool = False) -> ServiceRow | None:
    """Return what the member knows; None when there is no such Service. ``own_hub``: its hub is this cluster."""
    try:
        service = await cluster.get(SERVICES, ref.namespace, ref.name)
    except NotFound:
        return None
    ours = await events_of(cluster, ref, service.metadata.uid)
    asked = service.spec.load_balancer_class or ""
    addresses = [address.address for address in service.status.load_balancer.ingress or ()]
    addresses += [text for text in service.annotation(ANNOTATION_ADDRESS).split(",") if text]
    foreign = asked and not asked.startswith(LOAD_BALANCER_CLASS_PREFIX)
    notes: list[str] = []
    if service.spec.type != "LoadBalancer":
        notes.append(f"the Service is of type {service.spec.type}; Fairlead serves type LoadBalancer only")
    elif foreign:
        notes.append(f"spec.loadBalancerClass {asked} belongs to another controller")
    elif not addresses:
        # With an address, missing Events say nothing: a cluster deletes them after an hour.
        waits = "no address yet; the last Event says what it waits for"
        silent = "Fairlead has reported nothing: does an agent run for this cluster? At the hub: fairlead status"
        notes.append(waits if ours else silent)
    member = ObjectRef("Service", ref.namespace, ref.name)
    if not own_hub and not foreign:
        at_hub = f"fairlead explain {member.argument} --kubeconfig HUB.kubeconfig"
        notes.append(f"the state of each backend, at the hub: {at_hub}")
    name = "" if foreign else asked.removeprefix(LOAD_BALANCER_CLASS_PREFIX) or DEFAULT_CLASS
    return ServiceRow(f"{ref.namespace}/{ref.name}", service.spec.type, name, addresses, ours, notes)


async def events_of(cluster: Cluster, ref: ObjectRef, uid: str) -> list[EventRow]:
    """Return Fairlead's Events on an object of a member, oldest first.

    Left out are those of an earlier object of the same name, and Warnings that a later Event has ended.
    """
    events = await cluster.list(_EVENTS, ref.namespace, field_selector=f"involvedObject.name={ref.name}")
    ours = (
        event
        for event in events
        if event.involved_object.kind == ref.kind
        and event.involved_object.uid in ("", uid)
        and (event.source.component or event.reporting_component).startswith(_OURS)
    )
    rows = [EventRow(_when(event), event.type, event.reason, event.message) for event in sorted(ours, key=_order)]
    return [
        row
        for number, row in enumerate(rows)
        if row.type != "Warning" or not any(_ends(later, row) for later in rows[number + 1 :])
    ]


def _when(event: _Event) -> str:
    return event.last_timestamp or event.metadata.creation_timestamp or ""


def _order(event: _Event) -> tuple[str, int]:
    """Return a key for sorting by time; times are whole seconds, so writes within one go by resourceVersion."""
    return _when(event), version_number(event.metadata.resource_version)


def _ends(later: EventRow, warned: EventRow) -> bool:
    """Return whether an Event says that a Warning no longer holds."""
    if later.reason in _ABOUT_SERVING:
        return warned.reason in _ABOUT_SERVING
    return later.reason == RESOLVED and later.message == resolved_message(warned.reason, warned.message)


def service_lines(row: ServiceRow) -> list[str]:
    """Return the lines for people."""
    of_class = f"class {row.class_name}" if row.class_name else "not Fairlead's"
    address = f"address {', '.join(row.addresses)}" if row.addresses else "no address"
    lines = [f"Service {row.service}: type {row.type}, {of_class}, {address}"]
    lines += columns([(event.when, event.type, event.reason, event.message) for event in row.events])
    return lines + [f"Note: {text}" for text in row.notes]
