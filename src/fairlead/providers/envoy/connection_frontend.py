"""The resources of an L4 load balancer: a listener, a cluster and endpoints for each port.

In: specs; targets through its ``ports``. Out: ``ResourceChange``s. One changed target re-encodes that target only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import ListenerKey, Protocol, family_of
from fairlead.model.observed import RefusedPart
from fairlead.providers.envoy.clusters import cluster_bytes
from fairlead.providers.envoy.endpoints import EndpointSet
from fairlead.providers.envoy.fleet import Fleet
from fairlead.providers.envoy.listeners import listener_bytes
from fairlead.providers.envoy.names import listener_name, resource_name
from fairlead.providers.envoy.resources import ResourceType, encoded_resource
from fairlead.providers.envoy.schema import Schema
from fairlead.providers.envoy.serving import TargetPort
from fairlead.providers.envoy.store import ResourceChange


class ConnectionFrontend:
    """One load balancer of connections; ``ports`` of an earlier one keep their targets."""

    def __init__(
        self, schema: Schema, fleet: Fleet, spec: FrontendSpec, *, ports: Mapping[ListenerKey, TargetPort] | None = None
    ) -> None:
        self.ports: dict[ListenerKey, TargetPort] = dict(ports or {})
        self.refused: tuple[RefusedPart, ...] = ()
        self.awaited: frozenset[str] = frozenset()
        self.searching = False
        self._schema = schema
        self._fleet = fleet
        self._spec = spec
        self._bound: tuple[str, ...] = ()

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the names of all resources: one for each port, and one for each IPv6 listener."""
        labels = {port.name: f"port {key}" for key, port in self.ports.items()}
        for address in self._bound:
            labels |= {listener_name(port.name, address): f"port {key}" for key, port in self.ports.items()}
        return labels

    def update(self, spec: FrontendSpec, *, bind_addresses: Sequence[str]) -> list[ResourceChange]:
        """Serve this, keeping the targets of listeners that stay; the resources of all ports are returned."""
        old, self.ports, self._spec = self.ports, {}, spec
        before, self._bound = self._bound, tuple(bind_addresses)
        left = [address for address in before if family_of(address) not in set(map(family_of, self._bound))]
        changes: list[ResourceChange] = []
        # Where clients hide behind a node's address, their ranges are checked in front of the proxy, not here.
        seen = spec if self._fleet.sees_clients(spec) else msgspec.structs.replace(spec, source_ranges=())
        for listener in spec.listeners:
            port = old.pop(listener.key, None) or TargetPort(resource_name(spec.key, listener.key))
            self.ports[listener.key] = port
            changes += self._target_changes(listener.key, cluster=True)
            changes += [
                listener_change(self._schema, seen, listener, bind_address=address, reuse_port=self._fleet.reuse_port)
                for address in self._bound
            ]
            changes += listener_removals(port.name, left)
        return [*changes, *(change for port in old.values() for change in removal(port.name, before))]

    def target_changes(self, key: ListenerKey, *, was_inline: bool) -> list[ResourceChange]:
        """Return the endpoints of a port, and its cluster when the targets are, or were, inside that."""
        return self._target_changes(key, cluster=was_inline or self.ports[key].inline)

    def _target_changes(self, key: ListenerKey, *, cluster: bool) -> list[ResourceChange]:
        port = self.ports[key]
        changes = [endpoints_change(port.name, port.targets, inline=port.inline)]
        if cluster:
            listener = next(listener for listener in self._spec.listeners if listener.key == key)
            limit = self._fleet.connections_per_cluster
            change = cluster_change(
                self._schema, self._spec, listener, port.targets, inline=port.inline, connections=limit
            )
            changes.insert(0, change)
        return changes

    def release(self, backends: frozenset[str]) -> list[ResourceChange]:  # noqa: ARG002 (there are none)
        """Return nothing: a port never waits."""
        return []

    def refused_by_proxy(self, name: str, version: str, message: str) -> list[ResourceChange]:  # noqa: ARG002
        """Return nothing: the last good version of a port's resources stays as a whole."""
        return []

    def resumed_from_proxy(self, name: str, version: str) -> list[ResourceChange]:  # noqa: ARG002
        """Return nothing."""
        return []

    def accepted_by_proxy(self, name: str, version: str) -> list[ResourceChange]:  # noqa: ARG002
        """Return nothing."""
        return []

    def removal(self) -> list[ResourceChange]:
        """Return the removal of all ports."""
        return [change for port in self.ports.values() for change in removal(port.name, self._bound)]


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
