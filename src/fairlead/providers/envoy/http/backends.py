"""The cluster of a backend of an L7 load balancer.

In: the load balancer, a backend, its targets where Envoy must resolve their names. Out: deterministic bytes. Balancing,
health and limits are those of L4 (``providers.envoy.clusters``); the protocol, TLS and what counts as a failure differ.
Requirements: G-79, G-84, G-86, G-113.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.model.desired import FrontendSpec, ProxyProtocol, Target
from fairlead.model.http import Backend
from fairlead.providers.envoy.clusters import (
    CLUSTER,
    cluster_fields,
    health_check_fields,
    outlier_detection_fields,
    proxy_protocol_to_backend,
)
from fairlead.providers.envoy.http.request_handling import MAX_HEADERS, MAX_HEADERS_KIB
from fairlead.providers.envoy.http.tls import backend_tls
from fairlead.providers.envoy.schema import Fields, Schema, duration

_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_BUFFER_BYTES = 32_768
#: Most servers keep an idle connection for 5 s or longer. One that they close just when a request is sent on it costs
#: that request: the proxy gives the connection up first.
_IDLE_S = 4.0
_EXPLICIT = {"HTTP1": "http_protocol_options", "HTTP2": "http2_protocol_options"}


def backend_cluster_bytes(
    schema: Schema,
    spec: FrontendSpec,
    backend: Backend,
    *,
    name: str,
    certificate: str = "",
    authority: str = "",
    targets: Iterable[Target] = (),
    connections: int,
) -> bytes:
    """Encode the cluster; ``targets`` are only those that must be inside it, else none.

    ``connections`` is how many it may have open to its targets.
    """
    fields = cluster_fields(spec, name, targets, connections=connections)
    fields["per_connection_buffer_limit_bytes"] = {"value": _BUFFER_BYTES}
    if backend.protocol in _EXPLICIT:
        fields["typed_extension_protocol_options"] = {_OPTIONS: schema.any(_OPTIONS, _http_options(backend))}
        fields["outlier_detection"] = _http_outlier_detection()
    elif backend.protocol == "TCP":
        fields["outlier_detection"] = outlier_detection_fields()
    if spec.health_check is not None and backend.protocol != "UDP":
        fields["health_checks"] = [health_check_fields(spec.health_check)]
    socket = backend_tls(schema, backend, certificate=certificate, authority=authority) if backend.tls else None
    if spec.proxy_protocol is not ProxyProtocol.NONE and backend.protocol != "UDP":
        socket = proxy_protocol_to_backend(schema, spec.proxy_protocol, inner=socket)
    if socket is not None:
        fields["transport_socket"] = socket
    return schema.encode(CLUSTER, fields)


def _http_options(backend: Backend) -> Fields:
    return {
        "common_http_protocol_options": {
            "idle_timeout": duration(_IDLE_S),
            "max_headers_count": {"value": MAX_HEADERS},
            "max_response_headers_kb": {"value": MAX_HEADERS_KIB},
        },
        "explicit_http_config": {_EXPLICIT[backend.protocol]: {}},
    }


def _http_outlier_detection() -> Fields:
    # An application that answers 500 is alive: only connections that fail say that a target is gone.
    return {
        **outlier_detection_fields(),
        "enforcing_consecutive_5xx": {"value": 0},
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": {"value": 3},
        "enforcing_local_origin_success_rate": {"value": 0},
        "enforcing_success_rate": {"value": 0},
    }
