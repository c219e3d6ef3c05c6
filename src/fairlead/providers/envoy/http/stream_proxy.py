"""The network filter that carries the connections of a TCP or TLS rule.

In: a rule and the clusters of its backends. Out: the TCP proxy. A share that leads to an unresolved backend, and a rule
without backends, close the connection. Requirements: G-93, G-99.
"""

from __future__ import annotations

from fairlead.model.http import Rule
from fairlead.providers.envoy.http.route_action import ClusterOf
from fairlead.providers.envoy.schema import Fields, Schema, duration

_IDLE_S = 3600.0


def tcp_proxy(schema: Schema, rule: Rule | None, *, stat_prefix: str, cluster_of: ClusterOf) -> Fields:
    """Build the filter; None for ``rule`` closes every connection."""
    backends = [backend for backend in rule.backends if backend.weight] if rule is not None else []
    fields: dict[str, object] = {
        "stat_prefix": stat_prefix,
        "max_connect_attempts": {"value": 3},
        "idle_timeout": duration(_IDLE_S),
    }
    if len(backends) > 1:
        shares = [{"name": cluster_of(backend.backend), "weight": backend.weight} for backend in backends]
        fields["weighted_clusters"] = {"clusters": shares}
    else:
        fields["cluster"] = cluster_of(backends[0].backend if backends else "")
    return schema.extension(
        "envoy.filters.network.tcp_proxy", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", fields
    )
