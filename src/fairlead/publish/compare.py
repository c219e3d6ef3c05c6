"""The difference between a desired object and the one that is present at the hub, in a few words for logs.

In: two objects in canonical form. Out: a reason to write, empty when nothing differs in the fields that are ours:
what a server or another controller has added is no difference. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlead.api.kubernetes import EndpointSlice, Ingress
from fairlead.api.meta import KubeObject
from fairlead.api.names import ANNOTATION_STALE, LABEL_ORIGIN_UID
from fairlead.api.tcploadbalancer import TCPLoadBalancer


def load_balancer_difference(desired: TCPLoadBalancer, present: TCPLoadBalancer | None) -> str:
    """Return why a TCPLoadBalancer has to be applied."""
    if present is None:
        return "new"
    if desired.spec != present.spec:
        names = desired.spec.__struct_fields__
        fields = [name for name in names if getattr(desired.spec, name) != getattr(present.spec, name)]
        return f"changed: {', '.join(fields)}"
    if any(finalizer not in (present.metadata.finalizers or ()) for finalizer in desired.metadata.finalizers or ()):
        return "its finalizer was taken away"
    return metadata_difference(desired, present)


def slice_difference(desired: EndpointSlice, present: EndpointSlice | None) -> str:
    """Return why an EndpointSlice has to be applied."""
    if present is None:
        return "new"
    if desired.endpoints != present.endpoints:
        before, after = _addresses(present), _addresses(desired)
        added, removed = len(after - before), len(before - after)
        return f"endpoints changed: {added} added, {removed} removed" if added or removed else "endpoints changed"
    if desired.ports != present.ports:
        return "ports changed"
    if desired.annotation(ANNOTATION_STALE) != present.annotation(ANNOTATION_STALE):
        return desired.annotation(ANNOTATION_STALE) or "no longer stale"
    return metadata_difference(desired, present)


def same_ingress(desired: Sequence[Ingress], present: Sequence[Ingress]) -> bool:
    """Return whether two entries are equal, ignoring ipMode VIP, which API servers default and old ones drop."""
    return len(desired) == len(present) and all(
        msgspec.structs.replace(wanted_entry, ip_mode=None) == msgspec.structs.replace(present_entry, ip_mode=None)
        and present_entry.ip_mode in {wanted_entry.ip_mode or "VIP", None}
        for wanted_entry, present_entry in zip(desired, present, strict=True)
    )


def metadata_difference(desired: KubeObject, present: KubeObject) -> str:
    """Return which metadata of the desired object differs; additions by other clients are no difference."""
    labels, annotations = present.metadata.labels or {}, present.metadata.annotations or {}
    wanted = dict(desired.metadata.labels or {})
    if LABEL_ORIGIN_UID not in labels:
        # An earlier release wrote none, and one write for each slice of a member is no price for it.
        wanted.pop(LABEL_ORIGIN_UID, None)
    if any(labels.get(name) != value for name, value in wanted.items()):
        return "its labels were changed"
    if any(annotations.get(name) != value for name, value in (desired.metadata.annotations or {}).items()):
        return "its annotations were changed"
    owners = {reference.uid for reference in present.metadata.owner_references or ()}
    if any(reference.uid not in owners for reference in desired.metadata.owner_references or ()):
        return "its owners were changed"
    return ""


def _addresses(endpoint_slice: EndpointSlice) -> set[str]:
    return {address for endpoint in endpoint_slice.endpoints or () for address in endpoint.addresses or ()}
