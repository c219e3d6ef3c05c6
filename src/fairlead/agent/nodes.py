"""Which nodes may take traffic, and which nodes slices should the hub have?

    Ready, with an address                 -> endpoint, ready
    not Ready, or about to be deleted      -> endpoint, not ready: the hub learns that it goes, it does not guess
    excluded by label, or never an address -> not listed
    cordoned                               -> as before: pods there still answer
    no address this time                   -> the address that was exported last
    no node ready at all                   -> everything as it was exported last, and one sentence why

In: the member's Nodes, the nodes slices that are at the hub. Out: the slices that should be there.
Never: a shorter list because information is missing; a node in another slice than before (one change is one write).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from fairlead.agent.identity import nodes_slice_index, nodes_slice_labels, nodes_slice_name
from fairlead.agent.transforms import is_ipv4
from fairlead.api.kubernetes import Endpoint, EndpointSlice, Node
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_STALE, LABEL_EXCLUDE_NODE, TAINT_TO_BE_DELETED
from fairlead.publish.canonical import make_conditions

NodeAddressType = Literal["InternalIP", "ExternalIP"]

MAX_ENDPOINTS_PER_SLICE = 1000


class NodeEntry(msgspec.Struct, frozen=True, gc=False):
    """One node that is not excluded. ``going``: about to be deleted, finishes what it has."""

    name: str
    address: str
    ready: bool
    going: bool = False


class NodesExport(msgspec.Struct, frozen=True):
    """The slices that should be at the hub, by index; ``stale`` says why they are older than the truth."""

    slices: tuple[EndpointSlice, ...]
    stale: str = ""


def entries_from_nodes(nodes: Iterable[Node], *, prefer: NodeAddressType) -> tuple[NodeEntry, ...]:
    """Reduce nodes to entries, sorted by name; the address is empty where a node shows none."""
    entries = [
        NodeEntry(
            name=node.metadata.name,
            address=_address(node, prefer),
            ready=any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ()),
            going=node.deleting or any(taint.key == TAINT_TO_BE_DELETED for taint in node.spec.taints or ()),
        )
        for node in nodes
        if LABEL_EXCLUDE_NODE not in (node.metadata.labels or {})
    ]
    return tuple(sorted(entries, key=lambda entry: entry.name))


def build_nodes(
    entries: Sequence[NodeEntry], existing: Iterable[EndpointSlice], *, namespace: str, tenant: str
) -> NodesExport:
    """Decide which nodes slices the hub should have, given those that it has."""
    before = {index: each for each in existing if (index := nodes_slice_index(each, tenant=tenant)) is not None}
    known = {
        endpoint.node_name: endpoint.addresses[0]
        for index in sorted(before)
        for endpoint in before[index].endpoints or ()
        if endpoint.node_name and endpoint.addresses
    }
    seen = [msgspec.structs.replace(entry, address=entry.address or known.get(entry.name, "")) for entry in entries]
    listed = [entry for entry in seen if entry.address]
    stale = _why_stale(entries, listed, kept=bool(known))
    if stale:
        kept = {index: each.endpoints or [] for index, each in before.items()} or {0: []}
        return NodesExport(tuple(_slice(i, kept[i], stale, namespace, tenant) for i in sorted(kept)), stale)
    chunks = _assign(listed, before)
    return NodesExport(tuple(_slice(i, _endpoints(chunks[i]), "", namespace, tenant) for i in sorted(chunks)))


def _why_stale(entries: Sequence[NodeEntry], listed: Sequence[NodeEntry], *, kept: bool) -> str:
    consequence = "the backends that were known last stay in use" if kept else "there is no backend yet"
    if not entries:
        return f"the member lists no node that may take traffic: {consequence}"
    if not listed:
        return f"no node of the member shows an IPv4 address: {consequence}"
    if not any(entry.ready and not entry.going for entry in listed):
        return f"no node of the member is Ready: {consequence}"
    return ""


def _assign(entries: Sequence[NodeEntry], before: Mapping[int, EndpointSlice]) -> dict[int, list[NodeEntry]]:
    """Leave every node in the slice where it is; fill gaps with new ones; open another slice when all are full."""
    place = {
        endpoint.node_name: index
        for index in sorted(before, reverse=True)
        for endpoint in before[index].endpoints or ()
        if endpoint.node_name
    }
    chunks: dict[int, list[NodeEntry]] = {0: []}
    new: list[NodeEntry] = []
    for entry in entries:
        index = place.get(entry.name)
        if index is None or len(chunks.setdefault(index, [])) >= MAX_ENDPOINTS_PER_SLICE:
            new.append(entry)
        else:
            chunks[index].append(entry)
    index = 0
    for entry in new:
        while len(chunks.setdefault(index, [])) >= MAX_ENDPOINTS_PER_SLICE:
            index += 1
        chunks[index].append(entry)
    return chunks


def _endpoints(entries: Iterable[NodeEntry]) -> list[Endpoint]:
    return [
        Endpoint(
            addresses=[entry.address],
            conditions=make_conditions(
                ready=entry.ready and not entry.going, serving=entry.ready, terminating=entry.going
            ),
            node_name=entry.name,
        )
        for entry in sorted(entries, key=lambda entry: ([entry.address], entry.name))
    ]


def _slice(index: int, endpoints: list[Endpoint], stale: str, namespace: str, tenant: str) -> EndpointSlice:
    meta = ObjectMeta(
        name=nodes_slice_name(index),
        namespace=namespace,
        labels=nodes_slice_labels(tenant=tenant),
        annotations={ANNOTATION_STALE: stale} if stale else None,
    )
    return EndpointSlice(metadata=meta, address_type="IPv4", endpoints=endpoints, ports=[])


def _address(node: Node, prefer: NodeAddressType) -> str:
    by_type: dict[str, str] = {}
    for each in node.status.addresses or ():
        if is_ipv4(each.address):
            by_type.setdefault(each.type, each.address)
    other = "ExternalIP" if prefer == "InternalIP" else "InternalIP"
    return by_type.get(prefer) or by_type.get(other, "")
