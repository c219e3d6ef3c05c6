"""How do the member's nodes get to the hub? In one place for all load balancers: one node's change is one write.

In: the node cache, and the nodes slices at the hub. Out: writes of those slices; the nodes' addresses, for Services
with externalTrafficPolicy Local. Never: one write for each Service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from fairlead.agent.export import Settings
from fairlead.agent.hub_writer import HubWriter, group_of
from fairlead.agent.identity import nodes_slice_name
from fairlead.agent.metrics import AgentMetrics
from fairlead.agent.nodes import NodeAddressType, NodeEntry, build_nodes, entries_from_nodes
from fairlead.agent.plan import plan_nodes
from fairlead.agent.sources import Sources
from fairlead.api.kubernetes import ENDPOINT_SLICES, EndpointSlice
from fairlead.api.meta import KubeObject

#: The only key of this queue.
NODES_KEY = "nodes"


class NodeExporter:
    """Reconciles all nodes at once. ``on_addresses`` is called when a node's name or address is new, or gone."""

    def __init__(
        self,
        *,
        sources: Sources,
        writer: HubWriter,
        metrics: AgentMetrics,
        settings: Settings,
        prefer: NodeAddressType,
        on_addresses: Callable[[], None],
    ) -> None:
        self._sources = sources
        self._writer = writer
        self._metrics = metrics
        self._settings = settings
        self._prefer: NodeAddressType = prefer
        self._on_addresses = on_addresses
        self._addresses: dict[str, str] = {}
        self._stale = ""
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.nodes")

    @property
    def addresses(self) -> Mapping[str, str]:
        """Return the nodes' addresses by name, of all nodes that have one: a live view."""
        return self._addresses

    def learn(self) -> None:
        """Take the addresses from the cache, before anything is exported."""
        found = {entry.name: entry.address for entry in self._entries() if entry.address}
        if found != self._addresses:
            self._addresses.clear()
            self._addresses.update(found)
            self._on_addresses()

    async def reconcile(self, _key: str) -> float | None:
        """Make the hub hold the member's nodes."""
        self.learn()
        slices = self._slices()
        settings = self._settings
        export = build_nodes(self._entries(), slices, namespace=settings.namespace, tenant=settings.tenant)
        if export.stale != self._stale:
            self._stale = export.stale
            self._log.warning("nodes", sentence=export.stale or "the nodes are current again")
        self._metrics.nodes_stale.set(1 if export.stale else 0)
        plan = plan_nodes(export, slices=slices, tenant=settings.tenant)
        await self._writer.write(plan.writes, cached=self._cached)
        return None

    def _entries(self) -> tuple[NodeEntry, ...]:
        return entries_from_nodes(self._sources.nodes.values(), prefer=self._prefer)

    def _slices(self) -> list[EndpointSlice]:
        names = {one.metadata.name for one in self._sources.nodes_slices()}
        names |= self._writer.recent.names(ENDPOINT_SLICES.kind, group_of(nodes_slice_name(0)))
        found: list[EndpointSlice] = []
        for name in sorted(names):
            cached = self._sources.hub_slices.get(self._settings.namespace, name)
            one = self._writer.recent.see(ENDPOINT_SLICES.kind, name, cached)
            if one is not None:
                found.append(one)
        return found

    def _cached(self, _kind: str, name: str) -> KubeObject | None:
        return self._sources.hub_slices.get(self._settings.namespace, name)
