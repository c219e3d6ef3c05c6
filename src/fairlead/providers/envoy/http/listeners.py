"""The Envoy listener of a port of an L7 load balancer.

In: the listeners of the port, rules of those without requests, the address. Out: deterministic bytes, in which no
HTTP route and no certificate is: they come over RDS and SDS. One filter chain for each server name (SNI); a listener
of HTTP has one chain for all. Requirements: G-50, G-51, G-92, G-97, G-98, G-114.
Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/listener/v3/listener.proto
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.http import L7Listener, Rule
from fairlead.providers.envoy.http.hostnames import normal
from fairlead.providers.envoy.http.names import certificate_name, client_authority_name, http3_listener_name
from fairlead.providers.envoy.http.rate_limits import connection_limit
from fairlead.providers.envoy.http.request_handling import connection_manager
from fairlead.providers.envoy.http.route_action import ClusterOf
from fairlead.providers.envoy.http.settings import HttpSettings
from fairlead.providers.envoy.http.tls import downstream_tls
from fairlead.providers.envoy.listeners import LISTENER, UDP_SOCKET, source_ranges, udp_proxy
from fairlead.providers.envoy.names import listener_name, resource_name
from fairlead.providers.envoy.schema import Fields, Schema, duration

_BUFFER_BYTES = 32_768
_ALPN = ("h2", "http/1.1")


class PortListeners(msgspec.Struct, frozen=True):
    """The listeners of one port. ``rules`` are those of listeners without requests, by listener and server name.

    ``certificates`` are the usable ones of each listener; ``closed`` are the names of listeners that cannot be served,
    whose connections are closed.
    """

    port: Listener
    listeners: Sequence[L7Listener]
    rules: Mapping[str, Mapping[str, Rule]]
    certificates: Mapping[str, Sequence[str]]
    closed: frozenset[str] = frozenset()


def http3_listeners(port: PortListeners) -> list[L7Listener]:
    """Return the listeners of a port that are served over HTTP/3 where that is asked for."""
    return [each for each in port.listeners if each.protocol == "HTTPS" and each.name not in port.closed]


class ListenerEncoder:
    """Encodes the listeners of all ports of a load balancer."""

    def __init__(
        self,
        schema: Schema,
        spec: FrontendSpec,
        settings: HttpSettings,
        *,
        cluster_of: ClusterOf,
        routes_of: Callable[[L7Listener], str],
    ) -> None:
        self._schema = schema
        self._spec = spec
        self._settings = settings
        self._cluster_of = cluster_of
        self._routes_of = routes_of

    def encode(self, port: PortListeners, *, bind_address: str, reuse_port: bool) -> bytes:
        """Encode the listener of a TCP port."""
        socket = {"address": bind_address, "port_value": port.port.bind_port}
        filters: list[Fields] = []
        if self._settings.accept_proxy_protocol:
            filters.append(self._listener_filter("proxy_protocol", "ProxyProtocol"))
        if any(listener.protocol in {"HTTPS", "TLS"} for listener in port.listeners):
            filters.append(self._listener_filter("tls_inspector", "TlsInspector"))
        return self._schema.encode(
            LISTENER,
            {
                "name": listener_name(resource_name(self._spec.key, port.port.key), bind_address),
                "address": {"socket_address": socket},
                "listener_filters": filters,
                "filter_chains": self._chains(port),
                "per_connection_buffer_limit_bytes": {"value": _BUFFER_BYTES},
                "enable_reuse_port": {"value": reuse_port},
            },
        )

    def encode_http3(self, port: PortListeners, *, bind_address: str) -> bytes:
        """Encode the listener of HTTP/3 beside a TCP port: the same HTTPS listeners, chosen by the same names."""
        chains = [
            self._chain(
                listener.hostname,
                [
                    *connection_limit(self._schema, self._settings.connections),
                    connection_manager(self._schema, self._routes_of(listener), self._settings, quic=True),
                ],
                self._terminate(listener, port.certificates[listener.name], quic=True),
            )
            for listener in sorted(http3_listeners(port), key=lambda each: normal(each.hostname))
        ]
        return self._schema.encode(
            LISTENER,
            {
                "name": listener_name(http3_listener_name(self._spec.key, port.port.port), bind_address),
                "address": {
                    "socket_address": {
                        "protocol": "UDP",
                        "address": bind_address,
                        "port_value": port.port.bind_port,
                    }
                },
                "udp_listener_config": {
                    "quic_options": {},
                    "downstream_socket_config": {"prefer_gro": {"value": True}},
                },
                "filter_chains": chains,
                "enable_reuse_port": {"value": True},
            },
        )

    def encode_udp(self, port: Listener, cluster: str, *, bind_address: str) -> bytes:
        """Encode the listener of a UDP port."""
        name = resource_name(self._spec.key, port.key)
        socket = {"protocol": "UDP", "address": bind_address, "port_value": port.bind_port}
        return self._schema.encode(
            LISTENER,
            {
                "name": listener_name(name, bind_address),
                "address": {"socket_address": socket},
                "udp_listener_config": UDP_SOCKET,
                "listener_filters": [udp_proxy(self._schema, self._spec, name, cluster=cluster)],
            },
        )

    def _listener_filter(self, name: str, message: str) -> Fields:
        kind = f"envoy.extensions.filters.listener.{name}.v3.{message}"
        return self._schema.extension(f"envoy.filters.listener.{name}", kind)

    def _chains(self, port: PortListeners) -> list[Fields]:
        first = port.listeners[0]
        if first.protocol in {"HTTP", "TCP"}:
            rule = port.rules.get(first.name, {}).get("")
            filters = self._http(first) if first.protocol == "HTTP" else self._stream(first, rule)
            return [self._chain(None, filters)]
        chains: dict[str, Fields] = {}
        for listener in port.listeners:
            if listener.protocol == "HTTPS" and listener.name not in port.closed:
                socket = self._terminate(listener, port.certificates[listener.name])
                chains[normal(listener.hostname)] = self._chain(listener.hostname, self._http(listener), socket)
                continue
            rules = {} if listener.name in port.closed else port.rules.get(listener.name, {})
            for hostname, rule in rules.items():
                socket = None if listener.passthrough else self._terminate(listener, port.certificates[listener.name])
                chains[hostname] = self._chain(hostname, self._stream(listener, rule), socket)
            # What belongs to this listener and to none of its routes is closed before a certificate is shown.
            own = normal(listener.hostname)
            chains.setdefault(own, self._chain(own, self._stream(listener, None)))
        return [chains[hostname] for hostname in sorted(chains)]

    def _chain(self, hostname: str | None, filters: list[Fields], socket: Fields | None = None) -> Fields:
        match: dict[str, object] = {}
        if self._spec.source_ranges:
            match["source_prefix_ranges"] = source_ranges(self._spec.source_ranges)
        if name := normal(hostname or ""):
            match["server_names"] = [name, f"{name}."]
        chain: dict[str, object] = {"filters": filters, "name": hostname or "*"}
        if match:
            chain["filter_chain_match"] = match
        if socket is not None:
            chain["transport_socket"] = socket
        return chain

    def _http(self, listener: L7Listener) -> list[Fields]:
        limit = connection_limit(self._schema, self._settings.connections)
        return [*limit, connection_manager(self._schema, self._routes_of(listener), self._settings)]

    def _stream(self, listener: L7Listener, rule: Rule | None) -> list[Fields]:
        limit = connection_limit(self._schema, self._settings.connections if rule is not None else 0)
        stat_prefix = f"{self._spec.key}/{listener.port}"
        return [*limit, tcp_proxy(self._schema, rule, stat_prefix=stat_prefix, cluster_of=self._cluster_of)]

    def _terminate(self, listener: L7Listener, certificates: Sequence[str], *, quic: bool = False) -> Fields:
        key = self._spec.key
        return downstream_tls(
            self._schema,
            certificates=[certificate_name(key, name) for name in certificates],
            alpn=("h3",) if quic else _ALPN if listener.protocol == "HTTPS" else (),
            validation=listener.client_validation,
            authority=client_authority_name(key, listener.port, normal(listener.hostname)),
            quic=quic,
        )


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
