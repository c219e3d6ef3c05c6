"""The metrics of an agent.

In: a registry. Out: the ``fairlead_agent_*`` metrics. Never per-Service labels: there may be thousands.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class AgentMetrics:
    """The metrics of one agent, on one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._reasons: set[str] = set()
        self.exported = Gauge(
            "fairlead_agent_exported_load_balancers", "Services of this member that are exported.", registry=registry
        )
        self.refused = Gauge(
            "fairlead_agent_refused_services",
            "Services whose request for a load balancer is refused.",
            ["reason"],
            registry=registry,
        )
        self.hub_writes = Counter(
            "fairlead_agent_hub_writes", "Writes that the hub accepted.", ["kind", "action"], registry=registry
        )
        self.member_writes = Counter(
            "fairlead_agent_member_writes", "Writes to Services of the member.", ["what"], registry=registry
        )
        self.nodes_stale = Gauge(
            "fairlead_agent_nodes_stale", "1 while the exported nodes are the last known ones.", registry=registry
        )

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read when it is asked for."""
        Gauge(f"fairlead_agent_{name}", text, registry=self._registry).set_function(read)

    def set_refused(self, counts: dict[str, int]) -> None:
        """Set all refusals at once; a reason that is gone goes to zero."""
        self._reasons |= counts.keys()
        for reason in self._reasons:
            self.refused.labels(reason).set(counts.get(reason, 0))
