"""How do the member's nodes get to the hub? In one place for all load balancers: one node's change is one write.

In: the node cache, and the nodes slices at the hub. Out: writes of those slices; the nodes' addresses, for Services
with externalTrafficPolicy Local. Never: one write for each Service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from fairlead.agent.export import Settings
from fairlead.agent.identity import nodes_slice_index
from fairlead.agent.metrics import AgentMetrics
from fairlead.agent.nodes import NodeAddressType, NodeEntry, build_nodes, entries_from_nodes
from fairlead.agent.sources import Sources
from fairlead.publish.caches import slices_of_nodes
from fairlead.publish.plan import plan_slices
from fairlead.publish.publisher import Publisher

#: The only key of this queue.
NODES_KEY = "nodes"


class NodeExporter:
    """Reconciles all nodes at once. ``on_addresses`` is called when a node's name or address is new, or gone."""

    def __init__(
        self,
        *,
        sources: Sources,
        publisher: Publisher,
        metrics: AgentMetrics,
        settings: Settings,
        prefer: NodeAddressType,
        on_addresses: Callable[[], None],
    ) -> None:
        self._sources = sources
        self._publisher = publisher
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

    def read_addresses(self) -> None:
        """Take the addresses from the cache, before anything is exported."""
        addresses = {entry.name: entry.address for entry in self._entries() if entry.address}
        if addresses != self._addresses:
            self._addresses.clear()
            self._addresses.update(addresses)
            self._on_addresses()

    async def reconcile(self, _key: str) -> float | None:
        """Make the hub hold the member's nodes."""
        self.read_addresses()
        namespace, tenant = self._settings.namespace, self._settings.tenant
        slices = self._publisher.slices_in(slices_of_nodes(namespace))
        export = build_nodes(self._entries(), slices, namespace=namespace, tenant=tenant)
        if export.stale != self._stale:
            self._stale = export.stale
            self._log.warning("nodes", sentence=export.stale or "the nodes are current again")
        self._metrics.nodes_stale.set(1 if export.stale else 0)
        ours = [each for each in slices if nodes_slice_index(each, tenant=tenant) is not None]
        await self._publisher.write(plan_slices(export.slices, ours))
        return None

    def _entries(self) -> tuple[NodeEntry, ...]:
        return entries_from_nodes(self._sources.nodes.values(), prefer=self._prefer)
