"""The EndpointSlices that a load balancer and the nodes of the member should have at the hub.

    targets  externalTrafficPolicy  slices
    -------  ---------------------  -----------------------------------------------------------------
    Pod      any                    the member's own of the Service's families, one for one
    Node     Cluster                none: the hub joins the nodes slices with each port's nodePort
    Node     Local                  the nodes that have endpoints: ready ones are ready; the hub leaves
                                    only those that are Ready nodes as well
    Address  any                    the address of the member's own load balancer, with the Service's ports

All load balancers of a member share one set of nodes slices. In: slices and nodes in canonical form. Out: slices in
canonical form, sorted by name. Pure. Never: drops an endpoint because it is not ready, or all nodes because none is
known: the last set is kept and marked as stale.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from fairlead.agent.identity import (
    ServiceKey,
    nodes_slice_index,
    nodes_slice_labels,
    nodes_slice_name,
    service_slice_labels,
    slice_name,
)
from fairlead.api.kubernetes import (
    LAST_APPLIED,
    READINESS_GATES_FIELD,
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    Node,
    Pod,
    Service,
)
from fairlead.api.meta import KubeObject, ObjectMeta
from fairlead.api.names import (
    ANNOTATION_STALE,
    CONDITION_SERVING,
    LABEL_EXCLUDE_NODE,
    LABEL_ORIGIN_UID,
    TAINT_TO_BE_DELETED,
    label_value,
)
from fairlead.model.keys import IPV4, IPV6, Family, family_of
from fairlead.publish.objects import (
    canonical_endpoints,
    canonical_meta,
    canonical_ports,
    families_of,
    make_conditions,
    node_status,
)
from fairlead.translate.endpoints import EndpointState, state_of

_READY = make_conditions(ready=True, serving=True, terminating=False)


# --- slices of one load balancer -------------------------------------------------------------------------------------


class SliceTemplate(msgspec.Struct, frozen=True):
    """The common part of the slices of one Service, ``uid``. ``namespace`` is the tenant's at the hub."""

    key: ServiceKey
    namespace: str
    tenant: str
    uid: str = ""

    def make(
        self,
        role: str,
        rest: str,
        endpoints: list[Endpoint],
        ports: list[EndpointPort] | None = None,
        address_type: str = "IPv4",
    ) -> EndpointSlice:
        """Make one slice (see ``slice_name``)."""
        labels = service_slice_labels(self.key, tenant=self.tenant)
        if self.uid:
            labels[LABEL_ORIGIN_UID] = label_value(self.uid)
        meta = ObjectMeta(name=slice_name(self.key, role, rest), namespace=self.namespace, labels=labels)
        return EndpointSlice(metadata=meta, address_type=address_type, endpoints=endpoints, ports=ports or [])


def mirror_slices(
    template: SliceTemplate,
    slices: Iterable[EndpointSlice],
    families: Collection[str],
    *,
    reused: Iterable[EndpointSlice] = (),
) -> tuple[EndpointSlice, ...]:
    """Mirror the member's slices of these families, and list what they listed and ``reused`` says is another's now."""
    mirrored = [
        template.make(
            "pod",
            endpoint_slice.metadata.name,
            endpoint_slice.endpoints or [],
            endpoint_slice.ports,
            endpoint_slice.address_type,
        )
        for endpoint_slice in slices
        if endpoint_slice.address_type in families and not endpoint_slice.deleting
    ]
    mirrored += [
        template.make(
            "gone", str(number), endpoint_slice.endpoints or [], endpoint_slice.ports, endpoint_slice.address_type
        )
        for number, endpoint_slice in enumerate(reused)
        if endpoint_slice.address_type in families
    ]
    return tuple(sorted(mirrored, key=lambda endpoint_slice: endpoint_slice.metadata.name))


def of_one_family(slices: Iterable[EndpointSlice]) -> list[EndpointSlice]:
    """Return the IPv4 slices, or the IPv6 slices if only these have endpoints. A pod may be in slices of both."""
    live = [endpoint_slice for endpoint_slice in slices if not endpoint_slice.deleting]
    by_family = {
        family: [endpoint_slice for endpoint_slice in live if endpoint_slice.address_type == family]
        for family in (IPV4, IPV6)
    }
    only_ipv6 = any(endpoint_slice.endpoints for endpoint_slice in by_family[IPV6]) and not any(
        endpoint_slice.endpoints for endpoint_slice in by_family[IPV4]
    )
    return by_family[IPV6 if only_ipv6 else IPV4]


def local_slices(
    template: SliceTemplate,
    slices: Iterable[EndpointSlice],
    family: Family,
    *,
    addresses: Mapping[str, str],
    before: Iterable[EndpointSlice],
) -> tuple[EndpointSlice, ...]:
    """List the nodes that have endpoints of the Service in a family, each in the state of the best of its endpoints.

    ``addresses`` are the member's nodes by name, in that family. A deleted node keeps the address that it
    has in ``before``, as long as the Service's slices still name it. The hub ignores it anyway, so the deletion of one
    node is one write, not one for each load balancer.
    """
    best: dict[str, EndpointState] = {}
    for endpoint_slice in slices:
        if endpoint_slice.address_type != family or endpoint_slice.deleting:
            continue
        for endpoint in endpoint_slice.endpoints or ():
            if endpoint.node_name:
                state = state_of(endpoint)
                best[endpoint.node_name] = max(state, best.get(endpoint.node_name, state))
    known = {
        endpoint.node_name: endpoint.addresses[0]
        for endpoint_slice in before
        for endpoint in endpoint_slice.endpoints or ()
        if endpoint_slice.address_type == family and endpoint.node_name and endpoint.addresses
    }
    endpoints = canonical_endpoints(
        [
            Endpoint(addresses=[address], conditions=_conditions(state), node_name=node)
            for node, state in best.items()
            if (address := addresses.get(node) or known.get(node, ""))
        ]
    )
    starts = range(0, max(1, len(endpoints)), MAX_ENDPOINTS_PER_SLICE)
    # The slices of IPv4 were there first and keep their names.
    prefix = "" if family == IPV4 else "ipv6."
    return tuple(
        template.make("local", f"{prefix}{number}", endpoints[start : start + MAX_ENDPOINTS_PER_SLICE], None, family)
        for number, start in enumerate(starts)
    )


def with_gated_pods(endpoint_slice: EndpointSlice, pod_of: Callable[[str], Pod | None]) -> EndpointSlice:
    """List pods as ready that only wait to be served, and mark those pods.

    Kubernetes lists a pod as ready once its readiness gate is open, and a proxy checks only endpoints listed as ready.
    ``pod_of`` returns the pod with a readiness gate of ours that has this uid.
    """
    endpoints = [_as_gated(endpoint, pod_of) for endpoint in _endpoints(endpoint_slice)]
    same = all(new is old for new, old in zip(endpoints, _endpoints(endpoint_slice), strict=True))
    return endpoint_slice if same else msgspec.structs.replace(endpoint_slice, endpoints=canonical_endpoints(endpoints))


def _as_gated(endpoint: Endpoint, pod_of: Callable[[str], Pod | None]) -> Endpoint:
    ref = endpoint.target_ref
    pod = pod_of(ref.uid) if ref is not None and ref.uid and not endpoint.terminating else None
    if ref is None or pod is None or not pod.waits_only_for(CONDITION_SERVING):
        return endpoint
    if not pod.is_open(CONDITION_SERVING):
        ref = msgspec.structs.replace(ref, field_path=READINESS_GATES_FIELD)
    return msgspec.structs.replace(endpoint, conditions=_READY, target_ref=ref)


class Departed:
    """The endpoints that left the slices of each Service without being reported as terminating.

    The hub keeps a Service's last endpoints when they vanish, since the list may be wrong, and healthy endpoints
    while their successors are not healthy. Neither applies once another pod has the address.
    """

    def __init__(self) -> None:
        self._by_service: dict[ServiceKey, dict[str, tuple[str, EndpointSlice]]] = {}
        self._services: dict[str, set[ServiceKey]] = {}
        self._compared: dict[ServiceKey, set[str]] = {}

    def note(self, key: ServiceKey, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        """Note a change of one slice of a Service."""
        present = {} if new is None or new.deleting else _pods_of(new)
        gone = dict(self._by_service.get(key, {}))
        if old is not None:
            was = msgspec.structs.replace(old, endpoints=[])
            left = _pods_of(old, terminating=False)
            gone |= {address: (uid, was) for address, uid in left.items() if uid and address not in present}
        for address in [address for address in gone if address in present]:
            del gone[address]
        for address in [*gone][:-_MOST_DEPARTED]:
            del gone[address]
        self._put(key, gone)

    def note_published(
        self, key: ServiceKey, published: Iterable[EndpointSlice], present: Iterable[EndpointSlice]
    ) -> None:
        """Note the endpoints that left a Service while no agent ran: published, and no longer ``present``.

        Each published slice is compared once: all later changes are seen.
        """
        compared = self._compared.setdefault(key, set())
        former = [endpoint_slice for endpoint_slice in published if endpoint_slice.metadata.name not in compared]
        if not former:
            return
        compared |= {endpoint_slice.metadata.name for endpoint_slice in former}
        listed = {address for endpoint_slice in present for address in _pods_of(endpoint_slice)}
        gone = dict(self._by_service.get(key, {}))
        for endpoint_slice in former:
            was = msgspec.structs.replace(endpoint_slice, endpoints=[])
            gone |= {
                address: (uid, was)
                for address, uid in _pods_of(endpoint_slice, terminating=False).items()
                if uid and address not in listed and address not in gone
            }
        self._put(key, dict([*gone.items()][-_MOST_DEPARTED:]))

    def forget(self, key: ServiceKey) -> None:
        """Forget a deleted Service."""
        self._compared.pop(key, None)
        self._put(key, {})

    def _put(self, key: ServiceKey, gone: dict[str, tuple[str, EndpointSlice]]) -> None:
        before = self._by_service.pop(key, {})
        if gone:
            self._by_service[key] = gone
        for address in before.keys() - gone.keys():
            self._services[address].discard(key)
            if not self._services[address]:
                del self._services[address]
        for address in gone.keys() - before.keys():
            self._services.setdefault(address, set()).add(key)

    def waiting_for(self, endpoint_slice: EndpointSlice) -> set[ServiceKey]:
        """Return the Services whose departed endpoints had an address that a slice lists."""
        if not self._services:
            return set()
        addresses = _pods_of(endpoint_slice)
        return {key for address in addresses for key in self._services.get(address, ())}

    def reused(self, key: ServiceKey, every: Iterable[EndpointSlice]) -> tuple[EndpointSlice, ...]:
        """Return slices with the departed endpoints whose address another pod has, marked as terminated."""
        gone = self._by_service.get(key)
        if not gone:
            return ()
        holders: dict[str, set[str]] = {}
        for endpoint_slice in every:
            for address, uid in _pods_of(endpoint_slice).items():
                if uid and address in gone:
                    holders.setdefault(address, set()).add(uid)
        conditions = _conditions(EndpointState.GONE)
        return tuple(
            msgspec.structs.replace(was, endpoints=[Endpoint(addresses=[address], conditions=conditions)])
            for address, (uid, was) in sorted(gone.items())
            if holders.get(address, {uid}) - {uid} and uid not in holders[address]
        )


_MOST_DEPARTED = 1000


def _endpoints(endpoint_slice: EndpointSlice | None) -> list[Endpoint]:
    return (endpoint_slice.endpoints or []) if endpoint_slice is not None else []


def _pods_of(endpoint_slice: EndpointSlice, *, terminating: bool = True) -> dict[str, str]:
    """Return the addresses in a slice, each with the uid of its pod, empty if unknown."""
    return {
        endpoint.addresses[0]: endpoint.target_ref.uid if endpoint.target_ref is not None else ""
        for endpoint in _endpoints(endpoint_slice)
        if endpoint.addresses and (terminating or not state_of(endpoint).is_terminating)
    }


def address_slices(template: SliceTemplate, service: Service) -> tuple[EndpointSlice, ...]:
    """Make the member's own load balancer the backend; empty while it has no usable address."""
    ingress = service.status.load_balancer.ingress or ()
    ips = {entry.ip for entry in ingress}
    names = sorted({entry.hostname for entry in ingress if entry.hostname and not entry.ip})
    ports = canonical_ports(
        [EndpointPort(name=port.name, port=port.port, protocol=port.protocol) for port in service.spec.ports or ()]
    )
    # The address type of a slice can never change, so each type has a slice of its own name.
    return tuple(
        template.make(
            "address",
            address_type.lower(),
            [Endpoint(addresses=[address], conditions=_READY) for address in addresses],
            ports,
            address_type,
        )
        for address_type, addresses in (
            ("FQDN", names),
            *((family, sorted(ip for ip in ips if family_of(ip) == family)) for family in sorted(families_of(service))),
        )
        if addresses
    )


def _conditions(state: EndpointState) -> EndpointConditions:
    return make_conditions(ready=state.is_ready, serving=state.is_serving, terminating=state.is_terminating)


T = TypeVar("T", bound=KubeObject)


def compact_node(raw: Node) -> Node:
    """Reduce a Node to its addresses, its Ready condition and its spec."""
    return Node(metadata=canonical_meta(raw.metadata), spec=raw.spec, status=node_status(raw.status))


def compact_pod(raw: Pod) -> Pod:
    """Reduce a Pod to the fields that its readiness gate depends on."""
    meta = raw.metadata
    kept = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        deletion_timestamp=meta.deletion_timestamp,
        labels=meta.labels,
    )
    read = {"Ready", "ContainersReady", *(gate.condition_type for gate in raw.spec.readiness_gates or ())}
    conditions = [condition for condition in raw.status.conditions or () if condition.type in read]
    return Pod(metadata=kept, spec=raw.spec, status=msgspec.structs.replace(raw.status, conditions=conditions))


def without_last_applied(raw: T) -> T:
    """Drop the copy of the whole object that kubectl keeps in an annotation."""
    annotations = raw.metadata.annotations
    if not annotations or LAST_APPLIED not in annotations:
        return raw
    kept = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    return msgspec.structs.replace(raw, metadata=msgspec.structs.replace(raw.metadata, annotations=kept))


NodeAddressType = Literal["InternalIP", "ExternalIP"]

MAX_ENDPOINTS_PER_SLICE = 1000


# --- slices of the nodes ---------------------------------------------------------------------------------------------
#
# The nodes that may get traffic, as the nodes slices that the hub should have.
#
#     Ready, with an address                 -> endpoint, ready
#     not Ready, or about to be deleted      -> endpoint, not ready: the hub learns that it goes, it does not guess
#     excluded by label, or never an address -> not listed
#     cordoned                               -> as before: pods there still answer
#     no address at all this time            -> the address that was exported last
#     there, and cannot be read              -> as it was exported last
#     an address of the other family only    -> not listed: what the node shows is complete
#     no node of all has this family now     -> those of before, as gone: the hub learns that none is left
#     no node ready at all                   -> everything as it was exported last, and one sentence why
#
# Each family of addresses has slices of its own. A family that no node has ever shown has none.


class NodeEntry(msgspec.Struct, frozen=True, gc=False):
    """One node that is not excluded, with its address of one family. ``going``: about to be deleted.

    ``other_family``: the node shows an address of the other family, so an empty ``address`` is complete information.
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
        """Return the index of this slice; None if it is none of these slices."""
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
    """Reduce nodes to entries, sorted by name; the address is empty if a node shows none of this family."""
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
    unread: Collection[str] = (),
) -> NodesExport:
    """Decide which nodes slices of one family the hub should have, given those that it has.

    Not ``needed``: nodes without any address of this family need no attention. ``unread`` are the names of existing
    nodes that cannot be read.
    """
    before = {
        index: endpoint_slice for endpoint_slice in existing if (index := place.index_of(endpoint_slice)) is not None
    }
    known = {
        endpoint.node_name: endpoint.addresses[0]
        for index in sorted(before)
        for endpoint in before[index].endpoints or ()
        if endpoint.node_name and endpoint.addresses
    }
    entries = [
        *entries,
        *(
            NodeEntry(endpoint.node_name, "", *_readiness(endpoint))
            for index in sorted(before)
            for endpoint in before[index].endpoints or ()
            if endpoint.node_name and endpoint.node_name in unread
        ),
    ]
    seen = [
        msgspec.structs.replace(entry, address=entry.address or known.get(entry.name, ""))
        for entry in entries
        if entry.address or not entry.other_family
    ]
    listed = [entry for entry in seen if entry.address]
    if not needed and not listed and not known:
        return NodesExport(())
    if entries and not seen and known:
        gone = {index: [_as_gone(endpoint) for endpoint in before[index].endpoints or ()] for index in sorted(before)}
        return NodesExport(tuple(place.slice(index, gone[index]) for index in gone))
    stale = _why_stale(entries, listed, place.family, kept=bool(known))
    if stale:
        kept = {index: endpoint_slice.endpoints or [] for index, endpoint_slice in before.items()} or {0: []}
        return NodesExport(tuple(place.slice(i, kept[i], stale) for i in sorted(kept)), stale)
    chunks = _assign(listed, before)
    return NodesExport(tuple(place.slice(i, _nodes_endpoints(chunks[i])) for i in sorted(chunks)))


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
    """Keep every node in its slice; fill gaps with new nodes; open another slice when all are full."""
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


def _nodes_endpoints(entries: Iterable[NodeEntry]) -> list[Endpoint]:
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


def _readiness(endpoint: Endpoint) -> tuple[bool, bool]:
    """Return whether the node of an endpoint was Ready, and whether it was about to be deleted."""
    state = state_of(endpoint)
    return state.is_serving, state.is_terminating


def _as_gone(endpoint: Endpoint) -> Endpoint:
    gone = make_conditions(ready=False, serving=False, terminating=True)
    return Endpoint(addresses=endpoint.addresses, conditions=gone, node_name=endpoint.node_name)


def _address(node: Node, prefer: NodeAddressType, family: Family) -> str:
    by_type: dict[str, str] = {}
    for address in node.status.addresses or ():
        if family_of(address.address) == family:
            by_type.setdefault(address.type, address.address)
    other = "ExternalIP" if prefer == "InternalIP" else "InternalIP"
    return by_type.get(prefer) or by_type.get(other, "")
