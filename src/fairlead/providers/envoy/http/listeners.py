"""The Envoy listener of a port of an L7 load balancer, with its HTTP connection manager and its TLS.

In: the listeners of the port, rules of those without requests, the address. Out: deterministic bytes without routes and
certificates: these come over RDS and SDS, so that their change closes no connection. Each server name (SNI) has a
filter chain; a listener of HTTP has one chain for all. The values of the connection manager are those that Envoy's
authors recommend for a proxy at the edge; each difference has its reason. Transport sockets for TLS with clients and
with backends are made here, too.
Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/listener/v3/listener.proto
Source: https://www.envoyproxy.io/docs/envoy/latest/configuration/best_practices/edge
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.http import ClientValidation, JWTProviders, L7Listener, Rule
from fairlead.providers.envoy.clusters import TLS, TLS_CONTEXTS, sds
from fairlead.providers.envoy.connection_frontend import (
    LISTENER,
    UDP_SOCKET,
    connection_limit,
    proxy_protocol_from_clients,
    source_ranges,
    trusted_sources,
    udp_proxy,
)
from fairlead.providers.envoy.http.names import certificate_name, client_authority_name, http3_listener_name, normal
from fairlead.providers.envoy.http.route_action import (
    BANDWIDTH_CONFIG,
    BANDWIDTH_LIMIT,
    CORS,
    HTTP_RBAC,
    LISTENER_SOURCES,
    LOCAL_RATE_LIMIT,
    RATE_LIMIT,
    SOURCES,
    STREAM_IDLE_S,
    UPGRADES,
    ClusterOf,
    auth_filters,
    class_rate_limit,
    connection_sources,
    jwt_filters,
    processor_filters,
)
from fairlead.providers.envoy.http.sessions import STATEFUL_SESSION, session_filter
from fairlead.providers.envoy.resources import Fields, Schema, duration, listener_name, resource_name
from fairlead.providers.envoy.settings import HttpSettings, access_logs, tracer

_BUFFER_BYTES = 32_768
_ALPN = ("h2", "http/1.1")


class PortListeners(msgspec.Struct, frozen=True):
    """The listeners of one port. ``rules`` are those of listeners without requests, by listener and server name.

    ``certificates`` are the usable ones of each listener; ``closed`` are the names of listeners that cannot be served,
    whose connections are closed. ``guarded`` are listeners of requests that check clients or requests. ``logs`` are the
    access logs that routes of a listener have of their own, ``jwt`` the issuers whose tokens they ask for,
    ``processor_timeouts`` how long their external processors may take, in milliseconds. ``sessions`` are the listeners
    whose routes keep sessions.
    """

    port: Listener
    listeners: Sequence[L7Listener]
    rules: Mapping[str, Mapping[str, Rule]]
    certificates: Mapping[str, Sequence[str]]
    closed: frozenset[str] = frozenset()
    guarded: frozenset[str] = frozenset()
    logs: Mapping[str, frozenset[str]] = {}
    jwt: Mapping[str, frozenset[JWTProviders]] = {}
    processor_timeouts: Mapping[str, frozenset[int]] = {}
    sessions: frozenset[str] = frozenset()


def http3_listeners(port: PortListeners) -> list[L7Listener]:
    """Return the listeners of a port that are served over HTTP/3 where that is asked for."""
    return [
        listener for listener in port.listeners if listener.protocol == "HTTPS" and listener.name not in port.closed
    ]


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
        error_pages: Mapping[str, str] = {},
        session_key: bytes = b"",
    ) -> None:
        self._schema = schema
        self._spec = spec
        self._settings = settings
        self._cluster_of = cluster_of
        self._routes_of = routes_of
        self._replies = local_replies(schema, error_pages)
        self._session_key = session_key

    def encode(self, port: PortListeners, *, bind_address: str, reuse_port: bool) -> bytes:
        """Encode the listener of a TCP port."""
        socket = {"address": bind_address, "port_value": port.port.bind_port}
        filters = proxy_protocol_from_clients(self._schema, self._settings.accept_proxy_protocol)
        if any(listener.protocol in {"HTTPS", "TLS"} for listener in port.listeners):
            kind = "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"
            filters.append(self._schema.extension("envoy.filters.listener.tls_inspector", kind))
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
        """Encode the HTTP/3 listener of a TCP port: the same HTTPS listeners, chosen by the same names."""
        chains = [
            self._chain(
                listener.hostname,
                [
                    *connection_limit(self._schema, self._settings.connections),
                    self._requests(port, listener, quic=True),
                ],
                self._terminate(listener, port.certificates[listener.name], quic=True),
            )
            for listener in sorted(http3_listeners(port), key=lambda listener: normal(listener.hostname))
        ]
        return self._schema.encode(
            LISTENER,
            {
                "name": listener_name(http3_listener_name(self._spec.key, port.port.port), bind_address),
                "address": {
                    "socket_address": {"protocol": "UDP", "address": bind_address, "port_value": port.port.bind_port}
                },
                "udp_listener_config": {
                    "quic_options": {},
                    "downstream_socket_config": {"prefer_gro": {"value": True}},
                },
                "filter_chains": chains,
                "enable_reuse_port": {"value": True},
            },
        )

    def encode_udp(self, port: Listener, listener: L7Listener, cluster: str, *, bind_address: str) -> bytes:
        """Encode the listener of a UDP port."""
        name = resource_name(self._spec.key, port.key)
        socket = {"protocol": "UDP", "address": bind_address, "port_value": port.bind_port}
        return self._schema.encode(
            LISTENER,
            {
                "name": listener_name(name, bind_address),
                "address": {"socket_address": socket},
                "udp_listener_config": UDP_SOCKET,
                "listener_filters": [udp_proxy(self._schema, self._spec, name, cluster=cluster, listener=listener)],
            },
        )

    def _chains(self, port: PortListeners) -> list[Fields]:
        first = port.listeners[0]
        if first.protocol in {"HTTP", "TCP"}:
            rule = port.rules.get(first.name, {}).get("")
            filters = self._http(port, first) if first.protocol == "HTTP" else self._stream(first, rule)
            return [self._chain(None, filters)]
        chains: dict[str, Fields] = {}
        for listener in port.listeners:
            if listener.protocol == "HTTPS" and listener.name not in port.closed:
                socket = self._terminate(listener, port.certificates[listener.name])
                chains[normal(listener.hostname)] = self._chain(listener.hostname, self._http(port, listener), socket)
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
        match = trusted_sources(self._settings.accept_proxy_protocol)
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

    def _http(self, port: PortListeners, listener: L7Listener) -> list[Fields]:
        limit = connection_limit(self._schema, self._settings.connections)
        return [*limit, self._requests(port, listener)]

    def _requests(self, port: PortListeners, listener: L7Listener, *, quic: bool = False) -> Fields:
        routes, guarded = self._routes_of(listener), listener.name in port.guarded
        loggers = access_logs(
            self._schema, self._settings.access_log, "request", self._spec.key, port.logs.get(listener.name, ())
        )
        asked = port.jwt.get(listener.name, frozenset[JWTProviders]())
        checks: list[Fields] = []
        if guarded:
            checks += processor_filters(self._schema, port.processor_timeouts.get(listener.name, ()))
            checks += jwt_filters(self._schema, asked, self._cluster_of)
        if listener.name in port.sessions:
            checks.append(session_filter(self._schema, self._session_key, self._spec.key))
        settings, replies = self._settings, self._replies
        tracing = tracer(self._schema, settings.tracing, self._spec.key) if settings.tracing is not None else None
        return connection_manager(
            self._schema, routes, settings, loggers, replies, checks=checks, guarded=guarded, quic=quic, tracing=tracing
        )

    def _stream(self, listener: L7Listener, rule: Rule | None) -> list[Fields]:
        limit = connection_limit(self._schema, self._settings.connections if rule is not None else 0)
        stat_prefix = f"{self._spec.key}/{listener.port}"
        sources = connection_sources(self._schema, listener, stat_prefix) if rule is not None else []
        log = self._settings.access_log if rule is not None else None
        loggers = access_logs(self._schema, log, "connection", self._spec.key)
        proxy = tcp_proxy(self._schema, rule, stat_prefix=stat_prefix, cluster_of=self._cluster_of, loggers=loggers)
        return [*sources, *limit, proxy]

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


def tcp_proxy(
    schema: Schema, rule: Rule | None, *, stat_prefix: str, cluster_of: ClusterOf, loggers: Sequence[Fields] = ()
) -> Fields:
    """Build the filter; None for ``rule`` closes every connection."""
    backends = [backend for backend in rule.backends if backend.weight] if rule is not None else []
    fields: dict[str, object] = {
        "stat_prefix": stat_prefix,
        "max_connect_attempts": {"value": 3},
        "idle_timeout": duration(_IDLE_S),
    }
    if loggers:
        fields["access_log"] = list(loggers)
    if len(backends) > 1:
        shares = [{"name": cluster_of(backend.backend), "weight": backend.weight} for backend in backends]
        fields["weighted_clusters"] = {"clusters": shares}
    else:
        fields["cluster"] = cluster_of(backends[0].backend if backends else "")
    return schema.extension(
        "envoy.filters.network.tcp_proxy", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", fields
    )


_QUIC = "envoy.transport_sockets.quic"


def downstream_tls(
    schema: Schema,
    *,
    certificates: Sequence[str],
    alpn: Sequence[str],
    validation: ClientValidation | None,
    authority: str,
    quic: bool = False,
) -> Fields:
    """Build the socket of a terminating listener; ``certificates`` and ``authority`` are names of secrets."""
    context: dict[str, object] = {"tls_certificate_sds_secret_configs": [sds(name) for name in certificates]}
    if alpn:
        context["alpn_protocols"] = list(alpn)
    fields: dict[str, object] = {"common_tls_context": context}
    if validation is not None:
        trust = {"trust_chain_verification": "ACCEPT_UNTRUSTED"} if validation.optional else {}
        context["combined_validation_context"] = {
            "default_validation_context": trust,
            "validation_context_sds_secret_config": sds(authority),
        }
        if not validation.optional:
            fields["require_client_certificate"] = {"value": True}
    if quic:
        kind = "envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport"
        return schema.extension(_QUIC, kind, {"downstream_tls_context": fields})
    return schema.extension(TLS, f"{TLS_CONTEXTS}.DownstreamTlsContext", fields)


HTTP_CONNECTION_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_EXTENSIONS = "envoy.extensions.filters.http"

_REQUEST_HEADERS_S = 10.0
MAX_HEADERS_KIB = 96
#: Envoy's own limit of 100 refuses what nginx and most servers take; the size is limited as well.
MAX_HEADERS = 500
#: Clients that offer these can do without, and a tunnel of HTTP/2 would pass all rules by.
_IGNORED_UPGRADES = ({"exact": "h2c", "ignore_case": True}, {"prefix": "tls/", "ignore_case": True})
_MAX_STREAMS = 100
_STREAM_WINDOW = 65_536
_CONNECTION_WINDOW = 1_048_576
#: Headers that state the origin of a request: no client may write them.
_WRITTEN_BY_PROXIES = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-real-ip", "forwarded")


def connection_manager(
    schema: Schema,
    routes: str,
    settings: HttpSettings,
    loggers: Sequence[Fields] = (),
    replies: Fields | None = None,
    *,
    checks: Sequence[Fields] = (),
    guarded: bool = False,
    quic: bool = False,
    tracing: Fields | None = None,
) -> Fields:
    """Build the filter; ``routes`` is the name of its route configuration, and of its statistics.

    ``checks`` are the filters of processors, tokens and sessions. ``guarded``: routes check clients or requests.
    """
    source_filters = [{**schema.extension(name, HTTP_RBAC), "disabled": True} for name in (LISTENER_SOURCES, SOURCES)]
    fields: dict[str, object] = {
        "codec_type": "HTTP3" if quic else "AUTO",
        "stat_prefix": routes,
        "rds": {
            "route_config_name": routes,
            "config_source": {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": duration(15.0)},
        },
        "http_filters": [
            *class_rate_limit(schema, settings.requests_per_second),
            *(source_filters if guarded else ()),
            # A disabled filter costs a request nothing; routes that have settings for it enable it.
            {**schema.extension(RATE_LIMIT, LOCAL_RATE_LIMIT, {"stat_prefix": "rate_limit"}), "disabled": True},
            {**schema.extension(CORS, f"{_EXTENSIONS}.cors.v3.Cors"), "disabled": True},
            *checks,
            *auth_filters(schema),
            {
                **schema.extension(BANDWIDTH_LIMIT, BANDWIDTH_CONFIG, {"stat_prefix": "bandwidth_limit"}),
                "disabled": True,
            },
            {
                **schema.extension(STATEFUL_SESSION, f"{_EXTENSIONS}.stateful_session.v3.StatefulSession"),
                "disabled": True,
            },
            # Headers for communication between Envoys are hidden from clients and backends.
            schema.extension(
                "envoy.filters.http.router", f"{_EXTENSIONS}.router.v3.Router", {"suppress_envoy_headers": True}
            ),
        ],
        "common_http_protocol_options": {
            "idle_timeout": duration(_IDLE_S),
            # Backends that take _ for - could be shown a header that the proxy did not see. Envoy's authors would
            # refuse the request; dropping the header is as safe, and what users of nginx are used to.
            "headers_with_underscores_action": "DROP_HEADER",
            "max_headers_count": {"value": MAX_HEADERS},
        },
        # Proxies such as nginx speak HTTP/1.0 to what is behind them unless they are configured otherwise.
        "http_protocol_options": {"accept_http_10": True, "ignore_http_11_upgrade": list(_IGNORED_UPGRADES)},
        # A host name with a trailing dot (the root) is the same name.
        "strip_trailing_host_dot": True,
        "http2_protocol_options": {
            "max_concurrent_streams": {"value": _MAX_STREAMS},
            "initial_stream_window_size": {"value": _STREAM_WINDOW},
            "initial_connection_window_size": {"value": _CONNECTION_WINDOW},
        },
        "server_name": "fairlead",
        "max_request_headers_kb": {"value": MAX_HEADERS_KIB},
        "request_headers_timeout": duration(_REQUEST_HEADERS_S),
        "stream_idle_timeout": duration(STREAM_IDLE_S),
        "use_remote_address": {"value": True},
        "xff_num_trusted_hops": settings.trusted_hops,
        # No client is one of ours, so x-envoy-* headers are removed. An empty list would mean all private addresses.
        "internal_address_config": {"cidr_ranges": [{"address_prefix": "0.0.0.0", "prefix_len": {"value": 32}}]},
        "upgrade_configs": [{"upgrade_type": name} for name in UPGRADES],
        "normalize_path": {"value": True},
        "merge_slashes": True,
        "path_with_escaped_slashes_action": settings.escaped_slashes,
    }
    if not settings.trusted_hops:
        fields["early_header_mutation_extensions"] = [_without_headers_of_proxies(schema)]
    if quic:
        fields["http3_protocol_options"] = {}
    if loggers:
        fields["access_log"] = list(loggers)
    if tracing is not None:
        fields["tracing"] = tracing
    if replies is not None:
        fields["local_reply_config"] = replies
    return schema.extension("envoy.filters.network.http_connection_manager", HTTP_CONNECTION_MANAGER, fields)


def local_replies(schema: Schema, pages: Mapping[str, str]) -> Fields | None:
    """Return the pages of errors that Envoy itself answers, None without pages; exact status codes go first.

    Clients of gRPC get the status alone, and hosts in maintenance keep their page.
    """
    mappers: list[Fields] = []
    kind = "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter"
    expression = "!has(xds.route_name) || !xds.route_name.startsWith('maintenance/')"
    served = {"extension_filter": schema.extension("cel", kind, {"expression": expression})}
    no_grpc = {
        "name": "content-type",
        "string_match": {"prefix": "application/grpc"},
        "invert_match": True,
        "treat_missing_header_as_empty": True,
    }
    for status in sorted(pages, key=lambda status: (status.endswith("xx"), status)):
        first = int(status.replace("xx", "00"))
        codes = (
            [_compared("GE", first), _compared("LE", first + 99)] if status.endswith("xx") else [_compared("EQ", first)]
        )
        mappers.append(
            {
                "filter": {"and_filter": {"filters": [*codes, {"header_filter": {"header": no_grpc}}, served]}},
                "body": {"inline_string": pages[status]},
                "body_format_override": {
                    "text_format_source": {"inline_string": "%LOCAL_REPLY_BODY%"},
                    "content_type": "text/html; charset=utf-8",
                },
            }
        )
    return {"mappers": mappers} if mappers else None


def _compared(op: str, status: int) -> Fields:
    return {
        "status_code_filter": {
            "comparison": {"op": op, "value": {"default_value": status, "runtime_key": "fairlead.error_page"}}
        }
    }


def _without_headers_of_proxies(schema: Schema) -> Fields:
    return schema.extension(
        "envoy.http.early_header_mutation.header_mutation",
        "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
        {"mutations": [{"remove": name} for name in _WRITTEN_BY_PROXIES]},
    )
