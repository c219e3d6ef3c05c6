"""The bootstrap configuration of an Envoy.

In: who it is, where the hub is, its limits. Out: its bootstrap as JSON values (JSON, because YAML 1.1 takes ``n`` for
false). Everything else comes over delta ADS, and what it sees of the health of targets goes back over HDS. Source:
https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/bootstrap/v3/bootstrap.proto
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from fairlead.providers.envoy.resources import REPORTS_HEALTH, STATISTICS_PORT

Json = Mapping[str, object]

_XDS = "fairlead-xds"
_OWN = "own-certificate"
_HUB = "hub-authority"
_ADMIN_PATHS = ("/ready", "/server_info", "/listeners", "/clusters")

#: How long connections of a removed listener may stay open, in seconds.
DRAIN_S = 600
#: What every Envoy is started with. A connection that drains is to be closed with its next response, not at random
#: within the drain time. Unknown fields are accepted either way; to look for them costs a third of what it takes to
#: take over the routes of a port.
ENVOY_FLAGS = (
    "--drain-time-s", str(DRAIN_S), "--drain-strategy", "immediate", "--ignore-unknown-dynamic-fields",
    "--log-level", "warning",
)  # fmt: skip

#: The most instructions of a regular expression. Envoy's limit of 100 refuses [a-z0-9]{1,36}; matching takes linear
#: time whatever the size.
MAX_REGEX_SIZE = 2000
_RUNTIME: Json = {"re2.max_program_size.error_level": MAX_REGEX_SIZE}


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of the proxy's certificate and the hub's authority; watched, so that they can be rotated."""

    certificate: str
    key: str
    ca: str
    #: The name that the hub's certificate must carry.
    server_name: str
    #: The directory that is replaced as a whole when they are rotated (a mounted Secret).
    watched_directory: str
    #: Where the files of ``secret_files`` are. Only what comes through them is read again when it changes; empty: the
    #: certificate is read once.
    secrets_directory: str = ""


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a bootstrap.

    ``xds_port`` 0 means that ``xds_address`` is the path of a unix socket.
    """

    node_id: str
    group: str
    xds_address: str
    admin_socket: str
    xds_port: int = 0
    max_connections: int = 50_000
    tls: TlsFiles | None = None
    #: A TCP port that answers /ready over HTTP to a kubelet; 0 for none.
    readiness_port: int = 0
    #: A TCP port that answers /stats to the hub, which proves itself; 0 for none.
    statistics_port: int = 0


def bootstrap_json(bootstrap: Bootstrap) -> Json:
    """Build the bootstrap."""
    ads = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
    static: dict[str, object] = {"clusters": [_xds_cluster(bootstrap)]}
    if bootstrap.readiness_port:
        static["listeners"] = [_admin_listener("readiness", bootstrap.readiness_port, "/ready")]
        static["clusters"] = [_xds_cluster(bootstrap), _admin_cluster(bootstrap.admin_socket)]
    metadata: dict[str, object] = {REPORTS_HEALTH: True}
    if bootstrap.statistics_port and bootstrap.tls is not None:
        metadata[STATISTICS_PORT] = bootstrap.statistics_port
        listener = _admin_listener("statistics", bootstrap.statistics_port, "/stats", tls=bootstrap.tls)
        static["listeners"] = [*cast("list[Json]", static.get("listeners", [])), listener]
    node: dict[str, object] = {"cluster": bootstrap.group, "metadata": metadata}
    back_off: Json = {"retry_back_off": {"base_interval": "0.1s", "max_interval": "2s"}}
    grpc: Json = {"envoy_grpc": {"cluster_name": _XDS, "retry_policy": back_off}}
    return {
        "node": node | ({"id": bootstrap.node_id} if bootstrap.node_id else {}),
        "admin": {
            "address": {"pipe": {"path": bootstrap.admin_socket, "mode": 0o600}},
            # Read only: it neither ends this proxy nor shows its configuration.
            "allow_paths": [*({"exact": path} for path in _ADMIN_PATHS), {"prefix": "/stats"}],
        },
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [grpc],
            },
            "cds_config": ads,
            "lds_config": ads,
        },
        # What it sees of the targets' health goes back to the hub (``health_checks``).
        "hds_config": {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [grpc]},
        "static_resources": static,
        "layered_runtime": {"layers": [{"name": "fairlead", "static_layer": _RUNTIME}]},
        # Every 5 s its main thread would merge the histograms of all: 200 ms with 5,000 load balancers. Without sinks
        # only /stats needs them, and what a reading has is then as of the one before.
        "stats_flush_on_admin": True,
        # Four in five of a big proxy's counters are never used; made on first use they cost nothing.
        "deferred_stat_options": {"enable_deferred_creation_stats": True},
        "overload_manager": {
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.resource_monitors"
                        ".downstream_connections.v3.DownstreamConnectionsConfig",
                        "max_active_downstream_connections": bootstrap.max_connections,
                    },
                }
            ]
        },
    }


def _endpoint(address: Json) -> Json:
    return {"lb_endpoints": [{"endpoint": {"address": address}}]}


def _xds_cluster(bootstrap: Bootstrap) -> Json:
    if bootstrap.xds_port:
        address: Json = {"socket_address": {"address": bootstrap.xds_address, "port_value": bootstrap.xds_port}}
    else:
        address = {"pipe": {"path": bootstrap.xds_address}}
    cluster: dict[str, object] = {
        "name": _XDS,
        "type": "STRICT_DNS" if bootstrap.xds_port else "STATIC",
        "connect_timeout": "2s",
        "load_assignment": {"cluster_name": _XDS, "endpoints": [_endpoint(address)]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {
                    # A hub that has vanished without closing its connections is noticed after 15 s.
                    "http2_protocol_options": {"connection_keepalive": {"interval": "10s", "timeout": "5s"}}
                },
            }
        },
    }
    if bootstrap.tls is not None:
        cluster["transport_socket"] = _tls(bootstrap.tls, "UpstreamTlsContext", sni=bootstrap.tls.server_name)
    return cluster


def secret_files(tls: TlsFiles) -> Mapping[str, Json]:
    """Build the files by which Envoy gets its certificate as a dynamic secret, by name.

    Envoy watches files for changes only when they are named in a secret that it gets dynamically.
    """
    kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
    secrets = {_OWN: {"tls_certificate": _own_certificate(tls)}, _HUB: {"validation_context": _trusted_hub(tls)}}
    return {f"{name}.json": {"resources": [{"@type": kind, "name": name, **rest}]} for name, rest in secrets.items()}


def _tls(tls: TlsFiles, kind: str, **more: object) -> Json:
    if tls.secrets_directory:
        context: Json = {
            "tls_certificate_sds_secret_configs": [_secret(tls, _OWN)],
            "validation_context_sds_secret_config": _secret(tls, _HUB),
        }
    else:
        context = {"tls_certificates": [_own_certificate(tls)], "validation_context": _trusted_hub(tls)}
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": f"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.{kind}",
            "common_tls_context": context,
            **more,
        },
    }


def _secret(tls: TlsFiles, name: str) -> Json:
    source = {"path": f"{tls.secrets_directory}/{name}.json"}
    return {"name": name, "sds_config": {"path_config_source": source, "resource_api_version": "V3"}}


def _own_certificate(tls: TlsFiles) -> Json:
    return {
        "certificate_chain": {"filename": tls.certificate},
        "private_key": {"filename": tls.key},
        "watched_directory": {"path": tls.watched_directory},
    }


def _trusted_hub(tls: TlsFiles) -> Json:
    return {
        "trusted_ca": {"filename": tls.ca},
        "watched_directory": {"path": tls.watched_directory},
        "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": tls.server_name}}],
    }


def _admin_cluster(admin_socket: str) -> Json:
    return {
        "name": "fairlead-admin",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": "fairlead-admin",
            "endpoints": [_endpoint({"pipe": {"path": admin_socket}})],
        },
    }


def _admin_listener(name: str, port: int, path: str, *, tls: TlsFiles | None = None) -> Json:
    """Return a listener that answers one page of the admin interface; with ``tls`` to the hub alone."""
    route = {"match": {"path": path}, "route": {"cluster": "fairlead-admin"}}
    # Only the hub's authority, and of its certificates only the hub's own.
    socket = {"transport_socket": _tls(tls, "DownstreamTlsContext", require_client_certificate=True)} if tls else {}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network"
        ".http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "route_config": {"virtual_hosts": [{"name": name, "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
            }
        ],
    }
    return {
        "name": f"fairlead-{name}",
        "address": {"socket_address": {"address": "0.0.0.0", "port_value": port}},
        # A proxy at its limits is still alive.
        "ignore_global_conn_limit": True,
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}], **socket}
        ],
    }
