"""Which resources does one load balancer need?

In: a FrontendSpec, and the targets of its listeners. Out: ``Change``s for the store, the same for the same input.
It joins ``listeners``, ``clusters`` and ``endpoints``; it holds no state and publishes nothing.
"""

from __future__ import annotations

from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import Protocol
from fairlead.providers.envoy.clusters import cluster_bytes, is_dns_name
from fairlead.providers.envoy.endpoints import EndpointSet
from fairlead.providers.envoy.listeners import listener_bytes
from fairlead.providers.envoy.names import resource_name
from fairlead.providers.envoy.resources import ResourceType, entry
from fairlead.providers.envoy.schema import Schema
from fairlead.providers.envoy.store import Change


def needs_inline(targets: EndpointSet) -> bool:
    """Say whether the targets must be inside the cluster, because one of them is a DNS name."""
    return any(is_dns_name(target.key.address) for target in targets.targets())


def listener_change(
    schema: Schema, spec: FrontendSpec, listener: Listener, *, bind_address: str, reuse_port: bool
) -> Change:
    """Build the listener of one port."""
    name = resource_name(spec.key, listener.key)
    content = listener_bytes(schema, spec, listener, bind_address=bind_address, reuse_port=reuse_port)
    return Change(ResourceType.LISTENER, name, entry(ResourceType.LISTENER, name, content, needs=(name,)))


def cluster_change(
    schema: Schema, spec: FrontendSpec, listener: Listener, targets: EndpointSet, *, inline: bool
) -> Change:
    """Build the cluster of one port; ``targets`` matter only when they are ``inline``."""
    name = resource_name(spec.key, listener.key)
    content = cluster_bytes(schema, spec, listener, targets.targets() if inline else ())
    checked = listener.protocol is Protocol.TCP and spec.health_check is not None
    return Change(
        ResourceType.CLUSTER, name, entry(ResourceType.CLUSTER, name, content, warms_by_ack=inline or checked)
    )


def endpoints_change(name: str, targets: EndpointSet, *, inline: bool) -> Change:
    """Build the endpoints of one port: the hot path. There are none when they are inside the cluster."""
    found = None if inline else entry(ResourceType.ENDPOINTS, name, targets.assignment(name))
    return Change(ResourceType.ENDPOINTS, name, found)


def removal(name: str) -> list[Change]:
    """Take away everything of one port."""
    return [Change(kind, name, None) for kind in ResourceType]
