"""The nodes that may get traffic, as the nodes slices that the hub should have.

    Ready, with an address                 -> endpoint, ready
    not Ready, or about to be deleted      -> endpoint, not ready: the hub learns that it goes, it does not guess
    excluded by label, or never an address -> not listed
    cordoned                               -> as before: pods there still answer
    no address at all this time            -> the address that was exported last
    an address of the other family only    -> not listed: what the node shows is complete
    no node of all has this family now     -> those of before, as gone: the hub learns that none is left
    no node ready at all                   -> everything as it was exported last, and one sentence why

Each family of addresses has slices of its own, since a slice holds one. A family that no node has ever shown has none.
In: the member's Nodes, the nodes slices that are at the hub. Out: the slices that should be there.
Never: a shorter list because information is missing; a node in another slice than before (one change is one write).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from fairlead.agent.identity import nodes_slice_index, nodes_slice_labels, nodes_slice_name
from fairlead.api.kubernetes import Endpoint, EndpointSlice, Node
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_STALE, LABEL_EXCLUDE_NODE, TAINT_TO_BE_DELETED
from fairlead.model.keys import IPV4, IPV6, Family, family_of
from fairlead.publish.objects import make_conditions

NodeAddressType = Literal["InternalIP", "ExternalIP"]

MAX_ENDPOINTS_PER_SLICE = 1000


class NodeEntry(msgspec.Struct, frozen=True, gc=False):
    """One node that is not excluded, with its address of one family. ``going``: about to be deleted, ends its work.

    ``other_family``: it shows an address of the other family, so that an empty ``address`` is no missing information.
    """

    name: str
    address: str
    ready: bool
    going: bool = False
    other_family: bool = False


class NodesPlace(msgspec.Struct, frozen=True):
    """The place of the nodes slices of one family at the hub. ``namespace`` is the tenant's."""

    namespace: str
    tenant: str
    family: Family = IPV4

    def index_of(self, endpoint_slice: EndpointSlice) -> int | None:
        """Return which of these slices this is; None when it is none of them."""
        return nodes_slice_index(endpoint_slice, self.family, tenant=self.tenant)

    def slice(self, index: int, endpoints: list[Endpoint], stale: str = "") -> EndpointSlice:
        """Build one of the slices."""
        meta = ObjectMeta(
            name=nodes_slice_name(self.family, index),
            namespace=self.namespace,
            labels=nodes_slice_labels(self.family, tenant=self.tenant),
            annotations={ANNOTATION_STALE: stale} if stale else None,
        )
        return EndpointSlice(metadata=meta, address_type=self.family, endpoints=endpoints, ports=[])


class NodesExport(msgspec.Struct, frozen=True):
    """The slices of one family that should be at the hub, by index; ``stale``: why they are not current."""

    slices: tuple[EndpointSlice, ...]
    stale: str = ""


def entries_from_nodes(
    nodes: Iterable[Node], *, prefer: NodeAddressType, family: Family = IPV4
) -> tuple[NodeEntry, ...]:
    """Reduce nodes to entries, sorted by name; the address is empty where a node shows none of this family."""
    entries = [
        NodeEntry(
            name=node.metadata.name,
            address=_address(node, prefer, family),
            other_family=bool(_address(node, prefer, IPV6 if family == IPV4 else IPV4)),
            ready=node.ready,
            going=node.deleting or any(taint.key == TAINT_TO_BE_DELETED for taint in node.spec.taints or ()),
        )
        for node in nodes
        if LABEL_EXCLUDE_NODE not in (node.metadata.labels or {})
    ]
    return tuple(sorted(entries, key=lambda entry: entry.name))


def build_nodes(
    entries: Sequence[NodeEntry],
    existing: Iterable[EndpointSlice],
    *,
    place: NodesPlace,
    needed: bool = True,
) -> NodesExport:
    """Decide which nodes slices of one family the hub should have, given those that it has.

    Not ``needed``: nodes without any address of this family are no trouble of the member's.
    """
    before = {index: each for each in existing if (index := place.index_of(each)) is not None}
    known = {
        endpoint.node_name: endpoint.addresses[0]
        for index in sorted(before)
        for endpoint in before[index].endpoints or ()
        if endpoint.node_name and endpoint.addresses
    }
    seen = [
        msgspec.structs.replace(entry, address=entry.address or known.get(entry.name, ""))
        for entry in entries
        if entry.address or not entry.other_family
    ]
    listed = [entry for entry in seen if entry.address]
    if not needed and not listed and not known:
        return NodesExport(())
    if entries and not seen and known:
        gone = {index: [_as_gone(each) for each in before[index].endpoints or ()] for index in sorted(before)}
        return NodesExport(tuple(place.slice(index, gone[index]) for index in gone))
    stale = _why_stale(entries, listed, place.family, kept=bool(known))
    if stale:
        kept = {index: each.endpoints or [] for index, each in before.items()} or {0: []}
        return NodesExport(tuple(place.slice(i, kept[i], stale) for i in sorted(kept)), stale)
    chunks = _assign(listed, before)
    return NodesExport(tuple(place.slice(i, _endpoints(chunks[i])) for i in sorted(chunks)))


def _why_stale(entries: Sequence[NodeEntry], listed: Sequence[NodeEntry], family: Family, *, kept: bool) -> str:
    consequence = "the backends that were known last stay in use" if kept else "there is no backend yet"
    if not entries:
        return f"the member lists no node that may take traffic: {consequence}"
    if not listed:
        return f"no node of the member shows an {family} address: {consequence}"
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


def _as_gone(endpoint: Endpoint) -> Endpoint:
    gone = make_conditions(ready=False, serving=False, terminating=True)
    return Endpoint(addresses=endpoint.addresses, conditions=gone, node_name=endpoint.node_name)


def _address(node: Node, prefer: NodeAddressType, family: Family) -> str:
    by_type: dict[str, str] = {}
    for each in node.status.addresses or ():
        if family_of(each.address) == family:
            by_type.setdefault(each.type, each.address)
    other = "ExternalIP" if prefer == "InternalIP" else "InternalIP"
    return by_type.get(prefer) or by_type.get(other, "")
