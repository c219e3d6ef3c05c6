"""The Envoy resources of one L4 load balancer.

In: a FrontendSpec, and the targets of its listeners. Out: ``ResourceChange``s for the store, the same for the same
input. It joins ``listeners``, ``clusters`` and ``endpoints``; it holds no state and publishes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import Protocol
from fairlead.providers.envoy.clusters import cluster_bytes
from fairlead.providers.envoy.endpoints import EndpointSet
from fairlead.providers.envoy.listeners import listener_bytes
from fairlead.providers.envoy.names import listener_name, resource_name
from fairlead.providers.envoy.resources import ResourceType, encoded_resource
from fairlead.providers.envoy.schema import Schema
from fairlead.providers.envoy.store import ResourceChange


def listener_change(
    schema: Schema, spec: FrontendSpec, listener: Listener, *, bind_address: str, reuse_port: bool
) -> ResourceChange:
    """Build the listener of one port at one address."""
    cluster = resource_name(spec.key, listener.key)
    name = listener_name(cluster, bind_address)
    content = listener_bytes(schema, spec, listener, bind_address=bind_address, reuse_port=reuse_port)
    resource = encoded_resource(ResourceType.LISTENER, name, content, needs=(cluster,))
    return ResourceChange(ResourceType.LISTENER, name, resource)


def cluster_change(
    schema: Schema, spec: FrontendSpec, listener: Listener, targets: EndpointSet, *, inline: bool, connections: int
) -> ResourceChange:
    """Build the cluster of one port; ``targets`` matter only when they are ``inline``."""
    name = resource_name(spec.key, listener.key)
    content = cluster_bytes(schema, spec, listener, targets.targets() if inline else (), connections=connections)
    checked = listener.protocol is Protocol.TCP and spec.health_check is not None
    resource = encoded_resource(ResourceType.CLUSTER, name, content, warms_by_ack=inline or checked)
    return ResourceChange(ResourceType.CLUSTER, name, resource)


def endpoints_change(name: str, targets: EndpointSet, *, inline: bool) -> ResourceChange:
    """Build the endpoints of one port: the hot path. There are none when they are inside the cluster."""
    resource = None if inline else encoded_resource(ResourceType.ENDPOINTS, name, targets.assignment(name))
    return ResourceChange(ResourceType.ENDPOINTS, name, resource)


def removal(name: str, bind_addresses: Iterable[str]) -> list[ResourceChange]:
    """Remove everything of one port, with its listeners at these addresses."""
    behind = [ResourceChange(kind, name, None) for kind in (ResourceType.CLUSTER, ResourceType.ENDPOINTS)]
    return [*behind, *listener_removals(name, bind_addresses)]


def listener_removals(name: str, bind_addresses: Iterable[str]) -> list[ResourceChange]:
    """Remove the listeners of one port at these addresses."""
    names = [listener_name(name, address) for address in bind_addresses]
    return [ResourceChange(ResourceType.LISTENER, each, None) for each in names]
