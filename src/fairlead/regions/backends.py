"""Pools of nodes, and the backends of one region's share of a Service: exactly the pool's, never another region's.

    endpoint on a node of the pool           is listed, with ready or not
    endpoint on a node of another pool       is not
    endpoint without a node                  is not: its region is unknown (counted in ``unplaced``)
    endpoint on a node that is not known     stays where it was last, until its slice drops it

A node that several pools claim belongs to the oldest. In: NodePools and nodes; the Service's EndpointSlices, and what
was listed before. Out: the pool of each node; ``Backends``, and its canonical JSON, which every PoolService carries in
an annotation so that layer 2 needs nothing else. Pure. Never: drops a backend because a Node is missing, which says
nothing about the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fairlead.api.json_text import read_json
from fairlead.api.kubernetes import Endpoint, EndpointConditions, EndpointSlice, Node
from fairlead.api.meta import AnyResource, KubeObject
from fairlead.api.names import LABEL_EXCLUDE_NODE, LABEL_OPENYURT_NODEPOOL
from fairlead.api.poolservice import NODE_POOLS, NodePool
from fairlead.model.keys import by_family
from fairlead.regions.source import digest
from fairlead.translate.endpoints import EndpointState, in_service, state_of

#: A PoolService may carry 256 KiB of annotations.
BACKENDS_LIMIT_BYTES = 96 * 1024
_ENCODER = msgspec.json.Encoder(order="deterministic")


class RegionPort(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A port on which these endpoints answer, by the name of the Service's port."""

    port: int
    name: str = ""
    protocol: str = "TCP"


class RegionBackend(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One pod, ready or not: layer 2 drains one that is known not to be ready.

    ``serving`` is written for a pod that is not ready: while no pod of the pool is, layer 2 sends connections to those
    that are serving and terminating.
    """

    address: str
    ready: bool
    node: str = ""
    serving: bool = False
    terminating: bool = False

    @property
    def state(self) -> EndpointState:
        """Return the state of the endpoint."""
        conditions = EndpointConditions(self.ready, self.ready or self.serving, self.terminating)
        return state_of(Endpoint(conditions=conditions))


class EndpointGroup(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Backends with the same ports (one EndpointSlice's share), by its name."""

    slice: str
    address_type: str
    ports: tuple[RegionPort, ...]
    endpoints: tuple[RegionBackend, ...]


class PoolNode(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One node of the pool that may take traffic at node ports; ``second_address`` is of the other family."""

    name: str
    address: str
    ready: bool
    second_address: str = ""


class Backends(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The backends of one (Service, pool). ``nodes`` is None where node ports are of no use."""

    groups: tuple[EndpointGroup, ...] = ()
    nodes: tuple[PoolNode, ...] | None = None
    truncated: str = ""

    @property
    def ready(self) -> int:
        """Return how many distinct addresses take new connections."""
        states: dict[str, EndpointState] = {}
        for backend in (backend for group in self.groups for backend in group.endpoints):
            states[backend.address] = max(backend.state, states.get(backend.address, backend.state))
        return len(in_service(states))

    def encode(self) -> str:
        """Return canonical JSON; one too long for an annotation is replaced by a hash that changes with it."""
        text = _ENCODER.encode(self)
        if len(text) > BACKENDS_LIMIT_BYTES:
            note = f"{self.ready} ready, {len(text)} bytes, {digest(text)}: read the EndpointSlices of the Service"
            text = _ENCODER.encode(Backends(truncated=note))
        return text.decode()


def decode_backends(text: str) -> Backends | None:
    """Decode an annotation; None when it is missing or invalid."""
    return read_json(text, Backends)


def build_backends(
    pool: str,
    slices: Iterable[EndpointSlice],
    membership: Membership,
    *,
    before: Backends | None = None,
    nodes: Iterable[PoolNode] | None = None,
) -> Backends:
    """Collect the backends of ``pool``, sorted so that equal content is equal text."""
    # A group for every slice with an endpoint here; one without is left out, so that it costs the other pools nothing.
    earlier = before.groups if before else ()
    placed = {(backend.address, backend.node) for group in earlier for backend in group.endpoints}
    groups: list[EndpointGroup] = []
    for endpoint_slice in sorted(slices, key=lambda endpoint_slice: endpoint_slice.metadata.name):
        if endpoint_slice.deleting or endpoint_slice.address_type == "FQDN":
            continue
        endpoints = endpoints_in_pool(pool, endpoint_slice, membership, placed)
        if endpoints:
            ports = sorted(
                (
                    RegionPort(port.port, port.name or "", port.protocol or "TCP")
                    for port in endpoint_slice.ports or ()
                    if port.port
                ),
                key=lambda port: (port.name, port.protocol, port.port),
            )
            groups.append(
                EndpointGroup(endpoint_slice.metadata.name, endpoint_slice.address_type, tuple(ports), endpoints)
            )
    known = None if nodes is None else tuple(sorted(nodes, key=lambda node: node.name))
    return Backends(tuple(groups), known)


def endpoints_in_pool(
    pool: str, endpoint_slice: EndpointSlice, membership: Membership, placed: Iterable[tuple[str, str]] = ()
) -> tuple[RegionBackend, ...]:
    """Return one slice's endpoints in ``pool``; ``placed`` are those of nodes that are no longer known."""
    by_address: dict[str, RegionBackend] = {}
    for endpoint in endpoint_slice.endpoints or ():
        if not endpoint.addresses or not endpoint.node_name:
            continue
        address, node = endpoint.addresses[0], endpoint.node_name
        in_pool = membership.pool_of(node) == pool if membership.knows(node) else (address, node) in placed
        if in_pool:
            serving = endpoint.serving and not endpoint.ready
            backend = RegionBackend(address, endpoint.ready, node, serving, endpoint.terminating)
            by_address[address] = max(
                backend, by_address.get(address, backend), key=lambda known_backend: known_backend.state
            )
    return tuple(by_address[address] for address in sorted(by_address))


def pool_node(node: Node) -> PoolNode | None:
    """Reduce a node; None when it may not take traffic or shows no address."""
    if LABEL_EXCLUDE_NODE in (node.metadata.labels or {}):
        return None
    of_type = {
        kind: [address.address for address in node.status.addresses or () if address.type == kind]
        for kind in ("InternalIP", "ExternalIP")
    }
    addresses = list(by_family([*of_type["InternalIP"], *of_type["ExternalIP"]]).values())
    if not addresses:
        return None
    second = addresses[1] if len(addresses) > 1 else ""
    return PoolNode(node.metadata.name, addresses[0], node.ready and not node.deleting, second)


def pools_of_slice(endpoint_slice: EndpointSlice, membership: Membership) -> frozenset[str]:
    """Return the pools in which a slice has endpoints."""
    nodes = {endpoint.node_name for endpoint in endpoint_slice.endpoints or () if endpoint.node_name}
    return frozenset(pool for node in nodes if (pool := membership.pool_of(node)))


# --- pools -----------------------------------------------------------------------------------------------------------
#
# The pools of a cluster, and the pool of each node.
#
#     node label apps.openyurt.io/nodepool names an OpenYurt pool   that one (OpenYurt decides)
#     all labels of one Fairlead pool's nodeSelector                that one
#     of several                                                    the oldest pool keeps it; a Warning on the others
#     none                                                          no pool: no region gets its pods


class RegionPool(msgspec.Struct, frozen=True):
    """One region. ``node_selector`` is None for OpenYurt's pools, whose nodes name their pool themselves."""

    name: str
    uid: str = ""
    api_version: str = NODE_POOLS.api_version
    labels: Mapping[str, str] = {}
    node_selector: Mapping[str, str] | None = None
    region: str = ""
    created: str = ""
    deleting: bool = False

    def claims(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with ``labels`` is one of this pool's."""
        if self.node_selector is None:
            return labels.get(LABEL_OPENYURT_NODEPOOL) == self.name
        return bool(self.node_selector) and all(labels.get(key) == value for key, value in self.node_selector.items())


def pool_from_object(resource: AnyResource, obj: KubeObject) -> RegionPool:
    """Make a Pool of a NodePool of either kind."""
    meta = obj.metadata
    ours = obj if isinstance(obj, NodePool) else None
    return RegionPool(
        name=meta.name,
        uid=meta.uid,
        api_version=resource.api_version,
        labels=meta.labels or {},
        node_selector=ours.spec.node_selector if ours is not None else None,
        region=(ours.spec.region if ours is not None else "") or meta.name,
        created=meta.creation_timestamp or "",
        deleting=obj.deleting,
    )


class Claims(msgspec.Struct, frozen=True):
    """The pools that select a node, the one that has it first; empty when none does."""

    pools: tuple[str, ...] = ()

    @property
    def owner(self) -> str:
        """Return the pool that the node is in, or an empty string."""
        return self.pools[0] if self.pools else ""


def claims_of(node: Node, pools: Iterable[RegionPool]) -> Claims:
    """Decide which pool a node is in. A pool that is being deleted has its nodes until it is gone."""
    labels = node.metadata.labels or {}
    claiming = [pool for pool in pools if pool.claims(labels)]
    claiming.sort(key=lambda pool: (pool.node_selector is not None, pool.created, pool.name))
    return Claims(tuple(pool.name for pool in claiming))


class Membership:
    """The pool of each node, kept current one change at a time."""

    def __init__(self) -> None:
        self._claims: dict[str, Claims] = {}
        self._nodes: dict[str, set[str]] = {}

    def pool_of(self, node: str) -> str:
        """Return the pool of a node, an empty string when it has none or is not known."""
        claims = self._claims.get(node)
        return claims.owner if claims is not None else ""

    def knows(self, node: str) -> bool:
        """Return whether there is such a node."""
        return node in self._claims

    def nodes_of(self, pool: str) -> frozenset[str]:
        """Return the nodes of a pool."""
        return frozenset(self._nodes.get(pool, ()))

    def conflicts(self) -> dict[str, tuple[str, str]]:
        """Return, for each pool that lacks a selected node, one such node and the pool that has it."""
        conflicts: dict[str, tuple[str, str]] = {}
        for node in sorted(self._claims):
            claims = self._claims[node]
            for loser in claims.pools[1:]:
                conflicts.setdefault(loser, (node, claims.owner))
        return conflicts

    def put(self, node: str, claims: Claims | None) -> tuple[str, str]:
        """Record a node's claims, None when it is gone; return the pool that it was in and the one that it is in."""
        old = self.pool_of(node)
        if claims is None:
            self._claims.pop(node, None)
        else:
            self._claims[node] = claims
        new = self.pool_of(node)
        if old != new or claims is None:
            self._nodes.get(old, set()).discard(node)
        if new:
            self._nodes.setdefault(new, set()).add(node)
        return old, new
