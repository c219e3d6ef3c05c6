"""The resources of an L4 load balancer: a listener, a cluster and endpoints for each port.

In: specs, the address to bind, and targets through its ``ports``. Out: ``ResourceChange``s. One changed target encodes
that target only. A change of a listener's bytes makes Envoy close its established connections at drain time, so these
bytes never change between our releases without need: ``tests/golden/envoy`` holds them, and no target is in them.
Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/listener/v3/listener.proto
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_network

from msgspec.structs import replace

from fairlead.api.annotations import AcceptProxyProtocol, read_accept_proxy_protocol
from fairlead.model.desired import Affinity, FrontendSpec, Listener
from fairlead.model.http import Backend, BackendTls, L7Config, L7Listener
from fairlead.model.keys import ListenerKey, Protocol, family_of
from fairlead.model.observed import RefusedPart
from fairlead.providers.envoy.clusters import TargetPort, backend_tls, cluster_bytes, collector_clusters
from fairlead.providers.envoy.fleet import Fleet
from fairlead.providers.envoy.http.secrets import EnvoySecrets
from fairlead.providers.envoy.resources import (
    DrainLimit,
    EncodedResource,
    Fields,
    ResourceType,
    Schema,
    duration,
    encoded_resource,
    listener_name,
    resource_name,
)
from fairlead.providers.envoy.settings import CONNECTIONS_ACCEPT, access_log_of, access_logs, connections_of
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
        self._collectors: Mapping[str, EncodedResource] = {}
        self._secrets = EnvoySecrets(schema, spec.key)
        self._certificates: Mapping[str, EncodedResource] = {}
        #: The transport socket towards targets, None for plain TCP.
        self._socket: Fields | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the names of all resources: one for each port, each IPv6 listener, and the collector of logs."""
        labels = {port.name: f"port {key}" for key, port in self.ports.items()}
        labels |= dict.fromkeys(self._collectors, "collector of logs")
        labels |= dict.fromkeys(self._certificates, "TLS towards backends")
        for address in self._bound:
            labels |= {listener_name(port.name, address): f"port {key}" for key, port in self.ports.items()}
        return labels

    def update(self, spec: FrontendSpec, *, bind_addresses: Sequence[str]) -> list[ResourceChange]:
        """Serve this, keeping the targets of listeners that stay; the resources of all ports are returned."""
        old, self.ports, self._spec = self.ports, {}, spec
        before, self._bound = self._bound, tuple(bind_addresses)
        left = [address for address in before if family_of(address) not in set(map(family_of, self._bound))]
        collectors = collector_clusters(self._schema, spec.key, access_log_of(spec.parameters))
        changes = [ResourceChange(ResourceType.CLUSTER, name, cluster) for name, cluster in collectors.items()]
        unused = [name for name in self._collectors if name not in collectors]
        self._collectors = collectors
        changes += self._update_tls(spec)
        # Where clients hide behind a node's address, their ranges are checked in front of the proxy, not here.
        in_header = read_accept_proxy_protocol(spec.parameters.get(CONNECTIONS_ACCEPT, "")) is not None
        seen = spec if in_header or self._fleet.sees_clients(spec) else replace(spec, source_ranges=())
        for listener in spec.listeners:
            port = old.pop(listener.key, None) or TargetPort(resource_name(spec.key, listener.key))
            self.ports[listener.key] = port
            drain = DrainLimit(spec.drain_s, spec.drain_reset) if spec.drain_s is not None else None
            port.targets.configure(spec.health_check.port if spec.health_check is not None else 0, drain)
            changes += self._target_changes(listener.key, cluster=True)
            for address in self._bound:
                name, reuse = listener_name(port.name, address), self._fleet.reuse_port
                content = listener_bytes(self._schema, seen, listener, bind_address=address, reuse_port=reuse)
                resource = encoded_resource(ResourceType.LISTENER, name, content, needs=(port.name,))
                changes.append(ResourceChange(ResourceType.LISTENER, name, resource))
            changes += _listener_removals(port.name, left)
        changes += [change for port in old.values() for change in _removal(port.name, before)]
        return [*changes, *(ResourceChange(ResourceType.CLUSTER, name, None) for name in unused)]

    def _update_tls(self, spec: FrontendSpec) -> list[ResourceChange]:
        """Take over how targets are reached over TLS; returns the secrets. Rotated ones leave the clusters as they are.

        Without what verifies them, targets get no connection at all.
        """
        before, backend = self._certificates, Backend("targets", protocol="TCP", tls=spec.backend_tls)
        self._secrets.update(L7Config(listeners=(), backends=(backend,), certificates=spec.certificates))
        names = self._secrets.of_backend(backend)
        self._secrets.drop_unused()
        self._certificates = {} if names is None else self._secrets.resources
        if names is None:
            backend, names = replace(backend, tls=BackendTls(_UNISSUED_NAME, system_ca=True)), ("", "")
        self.refused = tuple(self._secrets.refused)
        self._socket = None
        if backend.tls is not None:
            self._socket = backend_tls(self._schema, backend, certificate=names[0], authority=names[1])
        removed = before.keys() - self._certificates.keys()
        return [
            *(ResourceChange(ResourceType.SECRET, name, secret) for name, secret in self._certificates.items()),
            *(ResourceChange(ResourceType.SECRET, name, None) for name in removed),
        ]

    def target_changes(self, touched: Mapping[ListenerKey, bool]) -> list[ResourceChange]:
        """Return the endpoints of ports, and the cluster of each whose targets are, or were, inside that."""
        return [
            change
            for key, was_inline in touched.items()
            for change in self._target_changes(key, cluster=was_inline or self.ports[key].inline)
        ]

    def _target_changes(self, key: ListenerKey, *, cluster: bool) -> list[ResourceChange]:
        port, spec = self.ports[key], self._spec
        changes: list[ResourceChange] = []
        if cluster:
            listener = next(listener for listener in spec.listeners if listener.key == key)
            inline = port.targets.targets() if port.inline else ()
            limit = self._fleet.connections_per_cluster
            content = cluster_bytes(self._schema, spec, listener, inline, connections=limit, socket=self._socket)
            checked = listener.protocol is Protocol.TCP and spec.health_check is not None
            resource = encoded_resource(ResourceType.CLUSTER, port.name, content, warms_by_ack=port.inline or checked)
            changes.append(ResourceChange(ResourceType.CLUSTER, port.name, resource))
        endpoints = None
        if not port.inline:
            assignment = port.targets.assignment(port.name, spec.shares)
            endpoints = encoded_resource(ResourceType.ENDPOINTS, port.name, assignment)
        return [*changes, ResourceChange(ResourceType.ENDPOINTS, port.name, endpoints)]

    def removal(self) -> list[ResourceChange]:
        """Return the removal of everything."""
        collectors = [ResourceChange(ResourceType.CLUSTER, name, None) for name in self._collectors]
        secrets = [ResourceChange(ResourceType.SECRET, name, None) for name in self._certificates]
        ports = (change for port in self.ports.values() for change in _removal(port.name, self._bound))
        return [*ports, *collectors, *secrets]


#: No authority issues certificates for names under this domain (RFC 6761).
_UNISSUED_NAME = "unusable.invalid"


def _removal(name: str, bind_addresses: Iterable[str]) -> list[ResourceChange]:
    behind = [ResourceChange(kind, name, None) for kind in (ResourceType.CLUSTER, ResourceType.ENDPOINTS)]
    return [*behind, *_listener_removals(name, bind_addresses)]


def _listener_removals(name: str, bind_addresses: Iterable[str]) -> list[ResourceChange]:
    return [ResourceChange(ResourceType.LISTENER, listener_name(name, address), None) for address in bind_addresses]


LISTENER = "envoy.config.listener.v3.Listener"

#: The largest datagram of IP: by default Envoy drops what is longer than 1,500 bytes, and says nothing.
UDP_SOCKET: Fields = {"downstream_socket_config": {"max_rx_datagram_size": {"value": 65_535}}}
_TCP_IDLE_S = 3600.0
_UDP_IDLE_S = 60.0


def listener_bytes(
    schema: Schema, spec: FrontendSpec, listener: Listener, *, bind_address: str, reuse_port: bool
) -> bytes:
    """Encode the listener.

    ``reuse_port`` false lets the kernel refuse a TCP port that another program has; true spreads connections over
    workers but would share the port in silence. UDP needs it true with more than one worker.
    """
    name = resource_name(spec.key, listener.key)
    socket = {"address": bind_address, "port_value": listener.bind_port}
    if listener.protocol is Protocol.UDP:
        return schema.encode(
            LISTENER,
            {
                "name": listener_name(name, bind_address),
                "address": {"socket_address": {"protocol": "UDP", **socket}},
                "udp_listener_config": UDP_SOCKET,
                "listener_filters": [udp_proxy(schema, spec, name, cluster=name)],
            },
        )
    limit = connection_limit(schema, connections_of(spec.parameters))
    chain: dict[str, object] = {"filters": [*limit, _tcp_proxy(schema, spec, name)]}
    accepted = read_accept_proxy_protocol(spec.parameters.get(CONNECTIONS_ACCEPT, ""))
    match = trusted_sources(accepted)
    if spec.source_ranges:
        match["source_prefix_ranges"] = source_ranges(spec.source_ranges)
    if match:
        # No chain matches other clients: Envoy closes that connection before anything is sent to a target.
        chain["filter_chain_match"] = match
    return schema.encode(
        LISTENER,
        {
            "name": listener_name(name, bind_address),
            "address": {"socket_address": socket},
            "listener_filters": proxy_protocol_from_clients(schema, accepted),
            "filter_chains": [chain],
            "enable_reuse_port": {"value": reuse_port},
        },
    )


def _tcp_proxy(schema: Schema, spec: FrontendSpec, name: str) -> Fields:
    fields: dict[str, object] = {
        "stat_prefix": name,
        "cluster": name,
        # One dead target of two: 50 % failed connections with 1, none with 3.
        "max_connect_attempts": {"value": 3},
        "idle_timeout": duration(_TCP_IDLE_S),
    }
    if loggers := access_logs(schema, access_log_of(spec.parameters), "connection", spec.key):
        fields["access_log"] = loggers
    if spec.affinity is Affinity.CLIENT_IP:
        fields["hash_policy"] = [{"source_ip": {}}]
    return schema.extension(
        "envoy.filters.network.tcp_proxy", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", fields
    )


def udp_proxy(
    schema: Schema, spec: FrontendSpec, name: str, *, cluster: str, listener: L7Listener | None = None
) -> Fields:
    """Build the filter of a UDP port, for the clients that the load balancer and its ``listener`` admit."""
    route: Fields = {
        "action": {
            "name": "route",
            "typed_config": schema.any("envoy.extensions.filters.udp.udp_proxy.v3.Route", {"cluster": cluster}),
        }
    }
    matcher: Fields = {"on_no_match": route}
    allowed = (spec.source_ranges, *(() if listener is None else (listener.allowed_sources,)))
    predicates = [_from(schema, sources, name) for sources in allowed if sources]
    if listener is not None and listener.denied_sources:
        predicates.append({"not_matcher": _from(schema, listener.denied_sources, name)})
    if predicates:
        predicate = predicates[0] if len(predicates) == 1 else {"and_matcher": {"predicate": predicates}}
        matcher = {"matcher_list": {"matchers": [{"predicate": predicate, "on_match": route}]}}
    fields: dict[str, object] = {"stat_prefix": name, "matcher": matcher, "idle_timeout": duration(_UDP_IDLE_S)}
    if loggers := access_logs(schema, access_log_of(spec.parameters), "session", spec.key):
        fields["access_log"] = loggers
    if spec.affinity is Affinity.CLIENT_IP:
        fields["hash_policies"] = [{"source_ip": True}]
    return schema.extension(
        "envoy.filters.udp_listener.udp_proxy", "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig", fields
    )


def _from(schema: Schema, sources: Sequence[str], name: str) -> Fields:
    source = schema.extension("source-ip", "envoy.extensions.matching.common_inputs.network.v3.SourceIPInput")
    ranges = schema.extension(
        "source-ranges",
        "envoy.extensions.matching.input_matchers.ip.v3.Ip",
        {"cidr_ranges": source_ranges(sources), "stat_prefix": name},
    )
    return {"single_predicate": {"input": source, "custom_match": ranges}}


def proxy_protocol_from_clients(schema: Schema, accepted: AcceptProxyProtocol | None) -> list[Fields]:
    """Return the filter of a listener whose connections begin with a header of the PROXY protocol; none for others."""
    if accepted is None:
        return []
    fields: Fields = {"allow_requests_without_proxy_protocol": True} if accepted.mode == "optional" else {}
    kind = "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol"
    return [schema.extension("envoy.filters.listener.proxy_protocol", kind, fields)]


def trusted_sources(accepted: AcceptProxyProtocol | None) -> dict[str, object]:
    """Return the part of a match for connections of trusted sources: who sends the header, not whom it names."""
    if accepted is None or not accepted.trusted_sources:
        return {}
    return {"direct_source_prefix_ranges": source_ranges(accepted.trusted_sources)}


def source_ranges(ranges: Iterable[str]) -> list[Fields]:
    """Return ranges of client addresses as a match has them."""
    return [
        {"address_prefix": str(network.network_address), "prefix_len": {"value": network.prefixlen}}
        for network in (ip_network(text, strict=False) for text in ranges)
    ]


def connection_limit(schema: Schema, connections: int) -> list[Fields]:
    """Return the filter of a listener's connections, none without a limit."""
    if not connections:
        return []
    kind = "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit"
    fields = {"stat_prefix": "connection_limit", "max_connections": {"value": connections}}
    return [schema.extension("envoy.filters.network.connection_limit", kind, fields)]
