"""The Listener of a port.

In: a FrontendSpec, one of its listeners, the address to bind. Out: deterministic bytes.
Any change of these bytes makes Envoy close the established connections of that listener at drain time, so they never
change between our releases without need: ``tests/golden/envoy`` holds them, and nothing about targets is in them.
Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/listener/v3/listener.proto
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network

from fairlead.model.desired import Affinity, FrontendSpec, Listener
from fairlead.model.keys import Protocol
from fairlead.providers.envoy.http.rate_limits import connection_limit
from fairlead.providers.envoy.http.settings import connections_of
from fairlead.providers.envoy.names import listener_name, resource_name
from fairlead.providers.envoy.schema import Fields, Schema, duration

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
    if spec.source_ranges:
        # No chain matches other clients: Envoy closes that connection before anything is sent to a target.
        chain["filter_chain_match"] = {"source_prefix_ranges": source_ranges(spec.source_ranges)}
    return schema.encode(
        LISTENER,
        {
            "name": listener_name(name, bind_address),
            "address": {"socket_address": socket},
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
    if spec.affinity is Affinity.CLIENT_IP:
        fields["hash_policy"] = [{"source_ip": {}}]
    return schema.extension(
        "envoy.filters.network.tcp_proxy", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", fields
    )


def udp_proxy(schema: Schema, spec: FrontendSpec, name: str, *, cluster: str) -> Fields:
    """Build the filter of a UDP port."""
    route: Fields = {
        "action": {
            "name": "route",
            "typed_config": schema.any("envoy.extensions.filters.udp.udp_proxy.v3.Route", {"cluster": cluster}),
        }
    }
    matcher: Fields = {"on_no_match": route}
    if spec.source_ranges:
        matcher = {"matcher_list": {"matchers": [{"predicate": _from(schema, spec, name), "on_match": route}]}}
    fields: dict[str, object] = {"stat_prefix": name, "matcher": matcher, "idle_timeout": duration(_UDP_IDLE_S)}
    if spec.affinity is Affinity.CLIENT_IP:
        fields["hash_policies"] = [{"source_ip": True}]
    return schema.extension(
        "envoy.filters.udp_listener.udp_proxy", "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig", fields
    )


def _from(schema: Schema, spec: FrontendSpec, name: str) -> Fields:
    source = schema.extension("source-ip", "envoy.extensions.matching.common_inputs.network.v3.SourceIPInput")
    ranges = schema.extension(
        "source-ranges",
        "envoy.extensions.matching.input_matchers.ip.v3.Ip",
        {"cidr_ranges": source_ranges(spec.source_ranges), "stat_prefix": name},
    )
    return {"single_predicate": {"input": source, "custom_match": ranges}}


def source_ranges(ranges: Iterable[str]) -> list[Fields]:
    """Return ranges of client addresses as a match has them."""
    networks = [ip_network(text, strict=False) for text in ranges]
    return [
        {"address_prefix": str(network.network_address), "prefix_len": {"value": network.prefixlen}}
        for network in networks
    ]
