"""What has to be written at the hub, in which order, and why?

    1. apply the TCPLoadBalancer     so that new slices are never without one
    2. apply slices                  add before remove
    3. delete slices                 of an earlier target type, or that the member no longer has
    (a load balancer that goes: its TCPLoadBalancer first, so that the hub sees a deletion and not lost targets)

In: an ``Export`` and what the hub has, both in canonical form. Out: writes, each with a reason; none when nothing
differs in the fields that we own, whatever a server or somebody else has added.
Never: touches an object that is not ours, or applies to one that is being deleted (it is made anew once it is gone).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from fairlead.agent.export import Export
from fairlead.agent.identity import ServiceKey, nodes_slice_index, origin_of
from fairlead.agent.nodes import NodesExport
from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.meta import KubeObject
from fairlead.api.names import ANNOTATION_STALE, FINALIZER_CLEANUP
from fairlead.api.tcploadbalancer import TCPLoadBalancer


class Write(msgspec.Struct, frozen=True):
    """One write. ``wanted`` is what to apply; for a delete it is the object that is there (its uid is checked)."""

    action: Literal["apply", "delete"]
    wanted: TCPLoadBalancer | EndpointSlice
    reason: str


class Plan(msgspec.Struct, frozen=True):
    """Writes in order. ``waits`` says what must be gone first; ``conflict`` names an object that is not ours."""

    writes: tuple[Write, ...] = ()
    waits: str = ""
    conflict: str = ""


def plan_service(
    key: ServiceKey,
    export: Export,
    *,
    load_balancer: TCPLoadBalancer | None,
    slices: Iterable[EndpointSlice],
    tenant: str,
) -> Plan:
    """Plan what makes the hub hold ``export``; ``slices`` are all that carry the load balancer's label."""
    name = export.load_balancer.metadata.name
    if load_balancer is not None:
        if origin_of(load_balancer, tenant=tenant) != key:
            return Plan(conflict=f"TCPLoadBalancer {name} at the hub was not made for this Service")
        if load_balancer.deleting:
            return Plan(waits=f"TCPLoadBalancer {name} at the hub is still being deleted")
    writes: list[Write] = []
    why = _load_balancer_differs(export.load_balancer, load_balancer)
    if why:
        writes.append(Write("apply", export.load_balancer, why))
    if export.slices is None:
        return Plan(tuple(writes))
    there = {one.metadata.name: one for one in slices}
    foreign = [one.metadata.name for one in export.slices if _foreign(there.get(one.metadata.name), key, tenant)]
    if foreign:
        return Plan(tuple(writes), conflict=f"EndpointSlice {foreign[0]} at the hub was not made for this Service")
    ours = {name: one for name, one in there.items() if origin_of(one, tenant=tenant) == key}
    writes += _slice_writes(export.slices, ours)
    return Plan(tuple(writes))


def plan_removal(
    key: ServiceKey,
    *,
    why: str,
    load_balancer: TCPLoadBalancer | None,
    slices: Iterable[EndpointSlice],
    tenant: str,
) -> Plan:
    """Plan what takes away everything that was exported for a Service that is gone or no longer ours."""
    there: list[TCPLoadBalancer | EndpointSlice] = [] if load_balancer is None else [load_balancer]
    there += sorted(slices, key=lambda one: one.metadata.name)
    ours = [one for one in there if origin_of(one, tenant=tenant) == key and not one.deleting]
    return Plan(tuple(Write("delete", one, why) for one in ours))


def plan_nodes(export: NodesExport, *, slices: Iterable[EndpointSlice], tenant: str) -> Plan:
    """Plan what makes the hub hold the member's nodes."""
    ours = {one.metadata.name: one for one in slices if nodes_slice_index(one, tenant=tenant) is not None}
    return Plan(tuple(_slice_writes(export.slices, ours)))


def _slice_writes(wanted: Iterable[EndpointSlice], there: dict[str, EndpointSlice]) -> list[Write]:
    writes: list[Write] = []
    names: set[str] = set()
    for one in wanted:
        names.add(one.metadata.name)
        present = there.get(one.metadata.name)
        if present is not None and present.deleting:
            continue
        why = _slice_differs(one, present)
        if why:
            writes.append(Write("apply", one, why))
    gone = [there[name] for name in sorted(there) if name not in names and not there[name].deleting]
    return writes + [Write("delete", one, "no longer among the targets") for one in gone]


def _foreign(present: EndpointSlice | None, key: ServiceKey, tenant: str) -> bool:
    return present is not None and origin_of(present, tenant=tenant) != key


def _load_balancer_differs(wanted: TCPLoadBalancer, present: TCPLoadBalancer | None) -> str:
    if present is None:
        return "new"
    if wanted.spec != present.spec:
        fields = [
            name for name in wanted.spec.__struct_fields__ if getattr(wanted.spec, name) != getattr(present.spec, name)
        ]
        return f"changed: {', '.join(fields)}"
    if FINALIZER_CLEANUP not in (present.metadata.finalizers or ()):
        return "its finalizer was taken away"
    return _metadata_differs(wanted, present)


def _slice_differs(wanted: EndpointSlice, present: EndpointSlice | None) -> str:
    if present is None:
        return "new"
    if wanted.endpoints != present.endpoints:
        before, after = _addresses(present), _addresses(wanted)
        added, removed = len(after - before), len(before - after)
        return f"endpoints changed: {added} added, {removed} removed" if added or removed else "endpoints changed"
    if wanted.ports != present.ports:
        return "ports changed"
    if wanted.annotation(ANNOTATION_STALE) != present.annotation(ANNOTATION_STALE):
        return wanted.annotation(ANNOTATION_STALE) or "no longer stale"
    return _metadata_differs(wanted, present)


def _metadata_differs(wanted: KubeObject, present: KubeObject) -> str:
    labels, annotations = present.metadata.labels or {}, present.metadata.annotations or {}
    if any(labels.get(name) != value for name, value in (wanted.metadata.labels or {}).items()):
        return "its labels were changed"
    if any(annotations.get(name) != value for name, value in (wanted.metadata.annotations or {}).items()):
        return "its annotations were changed"
    return ""


def _addresses(one: EndpointSlice) -> set[str]:
    return {address for endpoint in one.endpoints or () for address in endpoint.addresses or ()}
