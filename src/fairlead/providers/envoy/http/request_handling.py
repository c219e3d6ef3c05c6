"""The HTTP connection manager of a port.

In: the name of the route configuration, and settings. Out: the HTTP connection manager as a network filter: the same
bytes whatever the routes are, since a changed listener closes connections. The values are those that Envoy's authors
recommend for a proxy that the world can reach; where we differ, it says why.
Source: https://www.envoyproxy.io/docs/envoy/latest/configuration/best_practices/edge
"""

from __future__ import annotations

from fairlead.providers.envoy.http.rate_limits import LOCAL_RATE_LIMIT, RATE_LIMIT, class_rate_limit
from fairlead.providers.envoy.http.route_action import STREAM_IDLE_S
from fairlead.providers.envoy.http.route_filters import CORS
from fairlead.providers.envoy.http.sessions import STATEFUL_SESSION
from fairlead.providers.envoy.http.settings import HttpSettings
from fairlead.providers.envoy.schema import Fields, Schema, duration

HTTP_CONNECTION_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_EXTENSIONS = "envoy.extensions.filters.http"

_IDLE_S = 3600.0
_REQUEST_HEADERS_S = 10.0
MAX_HEADERS_KIB = 96
#: Envoy's own limit of 100 refuses what nginx and most servers take; the size is limited as well.
MAX_HEADERS = 500
#: Of older kubectl exec, and of docker attach; both are a tunnel once the backend agrees, as a WebSocket is.
_UPGRADES = ("websocket", "SPDY/3.1", "tcp")
#: Clients that offer these can do without, and a tunnel of HTTP/2 would pass all rules by.
_IGNORED_UPGRADES = ({"exact": "h2c", "ignore_case": True}, {"prefix": "tls/", "ignore_case": True})
_MAX_STREAMS = 100
_STREAM_WINDOW = 65_536
_CONNECTION_WINDOW = 1_048_576
#: What says where a request came from: no client may write it.
_WRITTEN_BY_PROXIES = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-real-ip", "forwarded")
_LOGGED = {
    "start_time": "%START_TIME%",
    "method": "%REQ(:METHOD)%",
    "path": "%REQ(:PATH)%",
    "protocol": "%PROTOCOL%",
    "authority": "%REQ(:AUTHORITY)%",
    "response_code": "%RESPONSE_CODE%",
    "response_flags": "%RESPONSE_FLAGS%",
    "response_code_details": "%RESPONSE_CODE_DETAILS%",
    "bytes_received": "%BYTES_RECEIVED%",
    "bytes_sent": "%BYTES_SENT%",
    "duration_ms": "%DURATION%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "route": "%ROUTE_NAME%",
    "upstream_cluster": "%UPSTREAM_CLUSTER%",
    "upstream_host": "%UPSTREAM_HOST%",
    "user_agent": "%REQ(USER-AGENT)%",
    "request_id": "%REQ(X-REQUEST-ID)%",
    "server_name": "%REQUESTED_SERVER_NAME%",
}


def connection_manager(schema: Schema, routes: str, settings: HttpSettings, *, quic: bool = False) -> Fields:
    """Build the filter; ``routes`` is the name of its route configuration, and of its statistics."""
    fields: dict[str, object] = {
        "codec_type": "HTTP3" if quic else "AUTO",
        "stat_prefix": routes,
        "rds": {
            "route_config_name": routes,
            "config_source": {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": duration(15.0)},
        },
        "http_filters": [
            *class_rate_limit(schema, settings.requests_per_second),
            # A filter that is disabled costs a request nothing; routes that have settings for it enable it.
            {**schema.extension(RATE_LIMIT, LOCAL_RATE_LIMIT, {"stat_prefix": "rate_limit"}), "disabled": True},
            {**schema.extension(CORS, f"{_EXTENSIONS}.cors.v3.Cors"), "disabled": True},
            {
                **schema.extension(STATEFUL_SESSION, f"{_EXTENSIONS}.stateful_session.v3.StatefulSession"),
                "disabled": True,
            },
            # The headers with which Envoy speaks to Envoy are none of the clients' and backends' business.
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
        # The name of a host is the same with the dot of the root behind it.
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
        "upgrade_configs": [{"upgrade_type": name} for name in _UPGRADES],
        "normalize_path": {"value": True},
        "merge_slashes": True,
        "path_with_escaped_slashes_action": settings.escaped_slashes,
    }
    if not settings.trusted_hops:
        fields["early_header_mutation_extensions"] = [_without_headers_of_proxies(schema)]
    if quic:
        fields["http3_protocol_options"] = {}
    if settings.json_access_log:
        fields["access_log"] = [_access_log(schema)]
    return schema.extension("envoy.filters.network.http_connection_manager", HTTP_CONNECTION_MANAGER, fields)


def _without_headers_of_proxies(schema: Schema) -> Fields:
    return schema.extension(
        "envoy.http.early_header_mutation.header_mutation",
        "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
        {"mutations": [{"remove": name} for name in _WRITTEN_BY_PROXIES]},
    )


def _access_log(schema: Schema) -> Fields:
    return schema.extension(
        "envoy.access_loggers.stdout",
        "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
        {"log_format": {"json_format": _LOGGED}},
    )
