"""Warnings on NodePools that select a node which an older NodePool has, once for each such node.

In: the membership. Out: Events. Never: moves a node.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.kube.events import EventRecorder
from fairlead.regions.inventory import Inventory

NODE_CLAIMED_TWICE = "NodeClaimedTwice"


class NodeConflicts:
    """Emits a Warning for each new conflict."""

    def __init__(self, *, inventory: Inventory, events: EventRecorder, leading: Callable[[], bool]) -> None:
        self._inventory = inventory
        self._events = events
        self._leading = leading
        self._emitted: dict[str, tuple[str, str]] = {}

    def emit(self) -> None:
        """Emit a Warning for each conflict that is new."""
        if not self._leading():
            return
        conflicts = self._inventory.membership.conflicts()
        for pool, (node, owner) in conflicts.items():
            if self._emitted.get(pool) != (node, owner):
                self._warn(pool, f"node {node} is in NodePool {owner} already, which is older, and stays there")
        self._emitted = conflicts

    def _warn(self, pool: str, sentence: str) -> None:
        for cache in self._inventory.node_pools:
            node_pool = cache.get("", pool)
            if node_pool is not None:
                self._events.emit_about(
                    cache.resource, node_pool, warning=True, reason=NODE_CLAIMED_TWICE, message=sentence
                )
