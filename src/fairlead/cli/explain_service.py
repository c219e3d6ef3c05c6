"""The facts of a member about one of its Services: whether it has an address, and its Events.

In: a connection to the member, and the Service's name. Out: one row, and the same as lines for people. The state of
each backend is at the hub, which the member's users may not be able to reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlead.agent.events import RESOLVED, resolved_message
from fairlead.agent.serving_event import ENSURED, NO_TARGETS, NOT_SERVING, SERVING_STOPPED
from fairlead.api.kubernetes import SERVICES
from fairlead.api.meta import KubeObject, Resource, version_number
from fairlead.api.names import ANNOTATION_ADDRESS, DEFAULT_CLASS, LOAD_BALANCER_CLASS_PREFIX
from fairlead.errors import NotFound
from fairlead.status.formatting import columns
from fairlead.status.object_ref import ObjectRef

if TYPE_CHECKING:
    from fairlead.kube.cluster import Cluster

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
    addresses = [each.address for each in service.status.load_balancer.ingress or ()]
    addresses += [text for text in service.annotation(ANNOTATION_ADDRESS).split(",") if text]
    foreign = asked and not asked.startswith(LOAD_BALANCER_CLASS_PREFIX)
    notes: list[str] = []
    if service.spec.type != "LoadBalancer":
        notes.append(f"it is of type {service.spec.type}: Fairlead acts on type LoadBalancer")
    elif foreign:
        notes.append(f"spec.loadBalancerClass {asked} belongs to another controller")
    elif not addresses:
        # With an address, missing Events say nothing: a cluster deletes them after an hour.
        waits = "it has no address yet; the last Event says what it waits for"
        silent = "Fairlead has reported nothing: does an agent run for this cluster? At the hub: fairlead status"
        notes.append(waits if ours else silent)
    member = ObjectRef("Service", ref.namespace, ref.name)
    if not own_hub and not foreign:
        at_hub = f"fairlead explain {member.argument} --kubeconfig HUB.kubeconfig"
        notes.append(f"each backend, and why, at the hub: {at_hub}")
    name = "" if foreign else asked.removeprefix(LOAD_BALANCER_CLASS_PREFIX) or DEFAULT_CLASS
    return ServiceRow(f"{ref.namespace}/{ref.name}", service.spec.type, name, addresses, ours, notes)


async def events_of(cluster: Cluster, ref: ObjectRef, uid: str) -> list[EventRow]:
    """Return Fairlead's Events on an object of a member, oldest first.

    Left out are those of an earlier object of the same name, and Warnings that a later Event has ended.
    """
    events = await cluster.list(_EVENTS, ref.namespace, field_selector=f"involvedObject.name={ref.name}")
    ours = (
        each
        for each in events
        if each.involved_object.kind == ref.kind
        and each.involved_object.uid in ("", uid)
        and (each.source.component or each.reporting_component).startswith(_OURS)
    )
    rows = [EventRow(_when(each), each.type, each.reason, each.message) for each in sorted(ours, key=_order)]
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


def lines_of(row: ServiceRow) -> list[str]:
    """Return the lines for people."""
    of_class = f"class {row.class_name}" if row.class_name else "not Fairlead's"
    address = f"address {', '.join(row.addresses)}" if row.addresses else "no address"
    lines = [f"Service {row.service}: type {row.type}, {of_class}, {address}"]
    lines += columns([(each.when, each.type, each.reason, each.message) for each in row.events])
    return lines + [f"Note: {text}" for text in row.notes]
