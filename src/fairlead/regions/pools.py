"""The pools of a cluster, and the pool of each node.

    node label apps.openyurt.io/nodepool names an OpenYurt pool   that one (OpenYurt decides)
    all labels of one Fairlead pool's nodeSelector                that one
    of several                                                    the oldest pool keeps it; a Warning on the others
    none                                                          no pool: no region gets its pods

In: NodePools of either kind, nodes. Out: ``Pool`` values, and one pool at most for each node.
Never: puts a node into two pools, which would mix two regions' backends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fairlead.api.kubernetes import Node
from fairlead.api.meta import AnyResource, KubeObject
from fairlead.api.names import LABEL_OPENYURT_NODEPOOL
from fairlead.api.poolservice import NODE_POOLS, NodePool


class Pool(msgspec.Struct, frozen=True):
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


def pool_from_object(resource: AnyResource, obj: KubeObject) -> Pool:
    """Make a Pool of a NodePool of either kind."""
    meta = obj.metadata
    ours = obj if isinstance(obj, NodePool) else None
    return Pool(
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


def claims_of(node: Node, pools: Iterable[Pool]) -> Claims:
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
