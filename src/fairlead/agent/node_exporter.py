"""Publishes the member's nodes at the hub, once for all load balancers: a change of a node is one write.

In: the node cache, and the nodes slices at the hub. Out: writes of those slices; the nodes' addresses of each family,
for Services with externalTrafficPolicy Local. Never: one write for each Service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from fairlead.agent.export import Settings
from fairlead.agent.metrics import AgentMetrics
from fairlead.agent.nodes import NodeAddressType, NodeEntry, NodesPlace, build_nodes, entries_from_nodes
from fairlead.agent.sources import Sources
from fairlead.model.families import IPV4, IPV6, Family
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
        self._addresses: dict[Family, dict[str, str]] = {}
        self._stale = ""
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.nodes")

    @property
    def addresses(self) -> Mapping[Family, Mapping[str, str]]:
        """Return the nodes' addresses of each family by name, of all nodes that have one: a live view."""
        return self._addresses

    def read_addresses(self) -> None:
        """Take the addresses from the cache, before anything is exported."""
        addresses: dict[Family, dict[str, str]] = {
            family: {entry.name: entry.address for entry in entries if entry.address}
            for family, entries in self._entries().items()
        }
        if addresses != self._addresses:
            self._addresses.clear()
            self._addresses.update(addresses)
            self._on_addresses()

    async def reconcile(self, _key: str) -> float | None:
        """Write the member's nodes to the hub."""
        self.read_addresses()
        namespace, tenant = self._settings.namespace, self._settings.tenant
        slices = self._publisher.slices_in(slices_of_nodes(namespace))
        entries = self._entries()
        # A cluster of IPv4 alone is nothing to speak of, nor is one of IPv6 alone.
        needed = {IPV4: not any(entry.address for entry in entries[IPV6]), IPV6: False}
        stale = ""
        for family in (IPV4, IPV6):
            place = NodesPlace(namespace, tenant, family)
            export = build_nodes(entries[family], slices, place=place, needed=needed[family])
            stale = stale or export.stale
            ours = [each for each in slices if place.index_of(each) is not None]
            await self._publisher.write(plan_slices(export.slices, ours))
        if stale != self._stale:
            self._stale = stale
            # Where pods are the targets, nodes matter only to Services that ask for them.
            log = self._log.warning if self._settings.target == "Node" else self._log.info
            log("nodes", sentence=stale or "the nodes are current again")
        self._metrics.nodes_stale.set(1 if stale else 0)
        return None

    def _entries(self) -> dict[Family, tuple[NodeEntry, ...]]:
        nodes = self._sources.nodes.values()
        return {family: entries_from_nodes(nodes, prefer=self._prefer, family=family) for family in (IPV4, IPV6)}
