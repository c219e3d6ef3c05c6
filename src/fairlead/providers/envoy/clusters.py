"""The Cluster of a listener, the ClusterLoadAssignment of its targets, and the health checks of its proxies.

In: a FrontendSpec, one of its listeners and its targets. Out: deterministic bytes. Endpoints come over EDS; only
targets that are DNS names are inside the cluster (STRICT_DNS), because Envoy takes no names over EDS. Every setting of
a cluster was chosen from a measured failure; each says which.
``EndpointSet`` keeps the bytes of each target and their order: one changed target costs one encoding and one join. A
weight of 0 means "no new connections", which Envoy calls DRAINING.

Members that share a load balancer are localities of one cluster: weighted clusters of a route know no failover between
them. Envoy scales the weight of a locality, and the share of a tier, by healthy targets x overprovisioning factor:

    strict        factor 10,000   a tier keeps all, and a locality its whole weight, while one of its targets is healthy
    proportional  factor 140      a tier gives away a share once fewer than 72 % of its targets are healthy

A locality of weight 0 is in a tier after all others, so that its targets count for no other tier.

A ``TargetPort`` holds the targets of a listener, or of a backend.
Envoy reports health over HDS only of what an HDS specifier names. The specifier has the checked clusters with their own
checks and targets: one encoded field for each cluster, encoded again only when that cluster has changed. Never: a
cluster without targets; Envoy 1.40 crashes on it.
Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/cluster/v3/cluster.proto
Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/health/v3/hds.proto
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Protocol

import msgspec

from fairlead.model.desired import Affinity, FrontendSpec, Listener, Locality, ProxyProtocol, Shares, Spillover, Target
from fairlead.model.health import HealthCheck, HealthRequest, OutlierDetection, ejection_seconds
from fairlead.model.http import Backend, BackendTls, SubjectAltName
from fairlead.model.key_pair import readable_authorities
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.keys import Protocol as Transport
from fairlead.providers.envoy.resources import (
    DRAIN,
    DrainLimit,
    EncodedResource,
    Fields,
    ResourceType,
    Schema,
    delimited,
    duration,
    encoded_resource,
    number,
    resource_name,
    text,
)
from fairlead.providers.envoy.settings import LogSettings, TraceSettings, collector_name, collector_of, connections_of

CLUSTER = "envoy.config.cluster.v3.Cluster"

#: The label by which a health check chooses its own transport socket.
_CHECKED_BY, _TLS = "fairlead.check", "tls"
#: Envoy's defaults (1024) would refuse what a load balancer must carry. Only connections cost files.
_UNLIMITED = 1_000_000
#: A prime well above 100 times the targets of one listener; Envoy's 65,537 costs four times the memory for each
#: cluster.
_MAGLEV_TABLE_SIZE = 16_381
#: Cuts an idle connection 30 s after its target vanished without closing it: the kernel waits for hours by itself.
#: TCP_USER_TIMEOUT has no limit here: it would also cut connections to targets that only read slowly.
_DEAD_PEER: Fields = {
    "upstream_connection_options": {
        "tcp_keepalive": {
            "keepalive_time": {"value": 15},
            "keepalive_interval": {"value": 5},
            "keepalive_probes": {"value": 3},
        }
    }
}
_SOCKETS = "envoy.extensions.transport_sockets"
_RAW: tuple[str, str, Fields] = ("envoy.transport_sockets.raw_buffer", f"{_SOCKETS}.raw_buffer.v3.RawBuffer", {})
#: How long a target may be left out that is ejected again and again.
_LONGEST_EJECTION_S = 300.0
#: grpc.health.v1.HealthCheckResponse.SERVING.
_GRPC_SERVING = 1
#: How many times its interval a healthy target may go unchecked, where checks would cost a proxy too much.
SLOWEST_PACE = 5


@lru_cache(maxsize=65_536)
def is_dns_name(address: str) -> bool:
    """Return whether an address is a DNS name, not an IP address; cached: many load balancers have the same nodes."""
    try:
        ip_address(address)
    except ValueError:
        return True
    return False


def cluster_bytes(
    schema: Schema,
    spec: FrontendSpec,
    listener: Listener,
    targets: Iterable[Target] = (),
    *,
    connections: int,
    socket: Fields | None = None,
) -> bytes:
    """Encode the cluster; ``targets`` are only those that must be inside it (any DNS name among them), else none.

    ``connections`` is how many it may have open to its targets, if the load balancer is one that is limited.
    ``socket`` is the transport socket of ``backend_tls``, None for plain TCP.
    """
    name, check = resource_name(spec.key, listener.key), spec.health_check
    if listener.protocol is Transport.UDP:
        return schema.encode(CLUSTER, udp_cluster_fields(spec, name, targets, connections=connections))
    check_port = check.port if check is not None else 0
    fields = cluster_fields(spec, name, targets, connections=connections, shares=spec.shares, check_port=check_port)
    fields |= outlier_fields(outlier_detection_fields(check if spec.shares else None), spec.outlier_detection)
    if check is not None:
        own_socket = has_own_socket(check, spec.proxy_protocol, tls=socket is not None)
        fields["health_checks"] = [health_check_fields(check, own_socket=own_socket)]
        if check.request is not None:
            # Machines; clusters of Services stay as they are, since Envoy recreates a changed one.
            fields |= _DEAD_PEER
        if own_socket:
            fields["transport_socket_matches"] = [socket_of_checks(schema, check, spec.proxy_protocol)]
    if spec.proxy_protocol is not ProxyProtocol.NONE:
        socket = proxy_protocol_to_backend(schema, spec.proxy_protocol, inner=socket)
    if socket is not None:
        fields["transport_socket"] = socket
    return schema.encode(CLUSTER, fields)


#: Where most systems that run Envoy have their authorities.
SYSTEM_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"


TLS = "envoy.transport_sockets.tls"
TLS_CONTEXTS = "envoy.extensions.transport_sockets.tls.v3"
_SAN_TYPES = {"Hostname": "DNS", "URI": "URI"}
_TLS_ALPN = {"HTTP1": ["http/1.1"], "HTTP2": ["h2"]}


def sds(name: str) -> Fields:
    """Return where a secret of this name is fetched from."""
    source = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": duration(5.0)}
    return {"name": name, "sds_config": source}


def backend_tls(schema: Schema, backend: Backend, *, certificate: str, authority: str) -> Fields:
    """Build the socket towards a backend with ``tls``; the names of its secrets are empty where there is none."""
    tls = backend.tls
    if tls is None:
        raise ValueError(f"backend {backend.name} has no TLS settings")
    names = tls.subject_alt_names
    if not names and tls.server_name:
        names = (SubjectAltName("Hostname", tls.server_name),)
    validation: dict[str, object] = {
        "match_typed_subject_alt_names": [
            {"san_type": _SAN_TYPES[name.type], "matcher": {"exact": name.value}} for name in names
        ]
    }
    context: dict[str, object] = {}
    if authority:
        context["combined_validation_context"] = {
            "default_validation_context": validation,
            "validation_context_sds_secret_config": sds(authority),
        }
    else:
        context["validation_context"] = {**validation, "trusted_ca": {"filename": SYSTEM_AUTHORITIES}}
    if certificate:
        context["tls_certificate_sds_secret_configs"] = [sds(certificate)]
    if backend.protocol in _TLS_ALPN:
        context["alpn_protocols"] = _TLS_ALPN[backend.protocol]
    return schema.extension(
        TLS, f"{TLS_CONTEXTS}.UpstreamTlsContext", {"common_tls_context": context, "sni": tls.server_name}
    )


def collector_clusters(
    schema: Schema, key: LoadBalancerKey, *sinks: LogSettings | TraceSettings | None
) -> dict[str, EncodedResource]:
    """Encode the clusters of collectors over HTTP, by name; Envoy's client of gRPC needs none."""
    clusters: dict[str, EncodedResource] = {}
    for settings in sinks:
        collector = collector_of(settings.sink) if settings is not None else None
        if settings is None or collector is None or not collector.over_http:
            continue
        name = collector_name(key, settings.signal)
        fields: dict[str, object] = {
            "name": name,
            # The figures of a load balancer are those of its own clusters.
            "alt_stat_name": f"collector_{settings.signal}",
            "connect_timeout": duration(2.0),
            **_strict_dns(name, [Target(TargetKey(collector.host, int(collector.port)))], None, 0),
        }
        if collector.tls:
            fields["transport_socket"] = _collector_tls(schema, collector.host, settings.authorities)
        content = schema.encode(CLUSTER, fields)
        clusters[name] = encoded_resource(ResourceType.CLUSTER, name, content, warms_by_ack=True)
    return clusters


def _collector_tls(schema: Schema, host: str, authorities: str) -> Fields:
    by_name = is_dns_name(host)
    roots: Fields = {"filename": SYSTEM_AUTHORITIES}
    if authorities:
        roots = {"inline_bytes": readable_authorities(authorities)[0].encode()}
    san = {"san_type": "DNS" if by_name else "IP_ADDRESS", "matcher": {"exact": host}}
    validation = {"trusted_ca": roots, "match_typed_subject_alt_names": [san]}
    context = {"common_tls_context": {"validation_context": validation}, "sni": host if by_name else ""}
    kind = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
    return schema.extension("envoy.transport_sockets.tls", kind, context)


def udp_cluster_fields(
    spec: FrontendSpec, name: str, targets: Iterable[Target], *, connections: int
) -> dict[str, object]:
    """Return the cluster of a UDP port: no filter counts sessions, so what its class admits is a limit here."""
    fields = cluster_fields(spec, name, targets, connections=connections, shares=spec.shares)
    if admitted := connections_of(spec.parameters):
        most = min(admitted, connections) if spec.limits_connections else admitted
        fields["circuit_breakers"] = {"thresholds": [_limits(most)]}
    return fields


def cluster_fields(
    spec: FrontendSpec,
    name: str,
    targets: Iterable[Target],
    *,
    connections: int,
    shares: Shares | None = None,
    check_port: int = 0,
) -> dict[str, object]:
    """Return what all clusters of a load balancer have; ``targets`` and ``connections`` as for ``cluster_bytes``.

    ``check_port`` is where targets are checked, 0 for where they take traffic.
    """
    inline = sorted(targets, key=lambda target: target.key)
    # Without it, Envoy ignores the weights of localities.
    by_locality: Fields = {"locality_weighted_lb_config": {}} if shares else {}
    fields: dict[str, object] = {
        "name": name,
        "connect_timeout": duration(2.0),
        # Round robin spreads as people expect when they count answers; Maglev keeps a client on its target.
        "lb_policy": "MAGLEV" if spec.affinity is Affinity.CLIENT_IP else "ROUND_ROBIN",
        "common_lb_config": {
            # The default (50 %) sends traffic to targets that are known to be bad or draining.
            "healthy_panic_threshold": {"value": 0.0},
            # The default (1 s) keeps a new target out for that long although it has passed its first health check.
            "update_merge_window": duration(0.0),
            **by_locality,
        },
        # Without it a removed target gets traffic for as long as it passes its health checks.
        "ignore_health_on_host_removal": True,
        "circuit_breakers": {"thresholds": [_limits(connections if spec.limits_connections else _UNLIMITED)]},
    }
    if shares:
        # How many connections each member has: those of one that is drained.
        fields["track_cluster_stats"] = {"per_endpoint_stats": True}
        # The kernel shows it, unlike the load balancer of a connection: others may have the same targets.
        fields["upstream_bind_config"] = {"freebind": {"value": True}}
    if spec.affinity is Affinity.CLIENT_IP:
        fields["maglev_lb_config"] = {"table_size": {"value": _MAGLEV_TABLE_SIZE}}
    if inline:
        fields |= _strict_dns(name, inline, shares, check_port)
    else:
        ads: Fields = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": duration(3.0)}
        fields |= {"type": "EDS", "eds_cluster_config": {"eds_config": ads}}
    return fields


def _limits(connections: int) -> Fields:
    """Return the limits: a connection above them is closed, a request waits, a datagram is dropped.

    Without one a load balancer whose targets lead back to it takes every file of a proxy that others share.
    """
    others = ("max_pending_requests", "max_requests", "max_retries")
    return {"max_connections": {"value": connections}, **{name: {"value": _UNLIMITED} for name in others}}


def _strict_dns(name: str, targets: list[Target], shares: Shares | None, check_port: int) -> Fields:
    assignment: dict[str, object] = {
        "cluster_name": name,
        "endpoints": [{"lb_endpoints": [_endpoint(target, check_port) for target in targets]}],
    }
    if shares is not None:
        assignment["policy"] = {"overprovisioning_factor": {"value": _FACTORS[shares.spillover]}}
        own = [_endpoint(target, check_port) for target in targets if not target.locality]
        assignment["endpoints"] = [
            *([{"lb_endpoints": own, "load_balancing_weight": {"value": 1}}] if own else []),
            *(
                {
                    "locality": {"region": locality.name},
                    "lb_endpoints": [
                        _endpoint(target, check_port, locality)
                        for target in targets
                        if target.locality == locality.name
                    ],
                    **({"load_balancing_weight": {"value": locality.weight}} if locality.weight else {}),
                    "priority": tier,
                }
                for locality, tier in _tiers(shares.localities)
            ),
        ]
    return {
        "type": "STRICT_DNS",
        "dns_lookup_family": "V4_PREFERRED",
        "respect_dns_ttl": True,
        "load_assignment": assignment,
    }


def _endpoint(target: Target, check_port: int, locality: Locality | None = None) -> Fields:
    where = {"address": target.key.address, "port_value": target.key.port}
    checked: Fields = {"health_check_config": {"port_value": check_port}} if check_port else {}
    fields: dict[str, object] = {"endpoint": {"address": {"socket_address": where}, **checked}}
    if status := _health_status(target, locality):
        fields["health_status"] = status
    if target.weight > 1:
        fields["load_balancing_weight"] = {"value": target.weight}
    return fields


_EJECTED_S = 5.0


def outlier_detection_fields(until: HealthCheck | None = None) -> Fields:
    """Return when a target is left out for some seconds because its connections fail.

    ``until``: for as long as this check may take to see that a target is dead. Otherwise all targets of a dead member
    would be tried again before that, with no other in their tier. A check that passes ends it at once.
    """
    seconds = _EJECTED_S
    if until is not None:
        seconds = max(seconds, until.interval_s * (until.unhealthy_threshold + 1) + until.timeout_s)
    # A refused connection counts as a 5xx here. Half may go at once, so the only target of a listener is never ejected.
    return {
        "consecutive_5xx": {"value": 3},
        "interval": duration(2.0),
        "base_ejection_time": duration(seconds),
        "max_ejection_percent": {"value": 50},
    }


def outlier_fields(builtin: Fields, outlier: OutlierDetection | None) -> Fields:
    """Return the outlier detection of a cluster as a user has set it, otherwise ``builtin``."""
    if outlier is None:
        return {"outlier_detection": builtin}
    if outlier.max_ejection_percent == 0:
        return {}
    fields = dict(builtin)
    if outlier.consecutive_5xx:
        fields |= {"consecutive_5xx": {"value": outlier.consecutive_5xx}, "enforcing_consecutive_5xx": {"value": 100}}
    if outlier.consecutive_gateway_errors:
        fields |= {
            "consecutive_gateway_failure": {"value": outlier.consecutive_gateway_errors},
            "enforcing_consecutive_gateway_failure": {"value": 100},
        }
    if time_s := ejection_seconds(outlier):
        # The time grows with each ejection, up to a limit that must not be less.
        fields |= {
            "base_ejection_time": duration(time_s),
            "max_ejection_time": duration(max(time_s, _LONGEST_EJECTION_S)),
        }
    if outlier.max_ejection_percent is not None:
        fields["max_ejection_percent"] = {"value": outlier.max_ejection_percent}
    return {"outlier_detection": fields}


def health_check_fields(check: HealthCheck, *, unused_s: float | None = None, own_socket: bool = False) -> Fields:
    """Return the active check: of TCP connections, or of the answer to a request.

    ``unused_s``: how often a healthy target is checked whose cluster has never made a connection; None: like others.
    ``own_socket``: checks have the transport socket of ``socket_of_checks``, and not that of traffic.
    """
    interval = duration(check.interval_s)
    unused: Fields = {} if unused_s is None else {"no_traffic_healthy_interval": duration(unused_s)}
    how: Fields = {"tcp_health_check": {}}
    if check.request is not None:
        how = {"http_health_check": _asked(check.request)}
        if check.request.http2 and check.request.tls:
            how = {**how, "tls_options": {"alpn_protocols": ["h2"]}}
    if own_socket:
        how = {**how, "transport_socket_match_criteria": {_CHECKED_BY: _TLS}}
    return {
        "timeout": duration(check.timeout_s),
        "interval": interval,
        # Defaults to 60 s: an idle load balancer would notice nothing.
        "no_traffic_interval": interval,
        **unused,
        "unhealthy_threshold": {"value": check.unhealthy_threshold},
        "healthy_threshold": {"value": check.healthy_threshold},
        **how,
    }


def _asked(request: HealthRequest) -> Fields:
    # Left out, Envoy sends the cluster's name, which servers in Go refuse as a host.
    host = request.host or "kubernetes"
    codec: Fields = {"codec_client_type": "HTTP2"} if request.http2 else {}
    if request.grpc:
        # Envoy's own check of gRPC is refused over HDS, whose clusters do not speak HTTP/2; this is the same request.
        headers = (("content-type", "application/grpc"), ("te", "trailers"))
        return {
            "path": "/grpc.health.v1.Health/Check",
            "host": host,
            "method": "POST",
            **codec,
            "request_headers_to_add": [{"header": {"key": name, "value": value}} for name, value in headers],
            "send": {"text": _grpc_message(text(1, request.path) if request.path else b"").hex()},
            "receive": [{"text": _grpc_message(number(1, _GRPC_SERVING)).hex()}],
        }
    fields: Fields = {"path": request.path, "host": host, **codec}
    if request.expected is None:
        return fields
    first, last = request.expected
    # Without the second field, any other code makes a target unhealthy at once, whatever the threshold.
    return {
        **fields,
        "expected_statuses": [{"start": first, "end": last + 1}],
        "retriable_statuses": [{"start": 100, "end": 600}],
    }


def _grpc_message(encoded: bytes) -> bytes:
    return b"\0" + len(encoded).to_bytes(4, "big") + encoded


def has_own_socket(check: HealthCheck, version: ProxyProtocol, *, tls: bool = False) -> bool:
    """Return whether checks need another transport socket than traffic; ``tls``: traffic is encrypted."""
    if check.port and version is not ProxyProtocol.NONE:
        return True
    return check.request is not None and check.request.tls != tls


def socket_of_checks(schema: Schema, check: HealthCheck, version: ProxyProtocol) -> Fields:
    """Return the match with which checks have a transport socket of their own: no endpoint has its label.

    The header of the PROXY protocol belongs to the port that takes traffic.
    """
    socket, request = _RAW, check.request
    if request is not None and request.tls:
        validation: dict[str, object] = {"trust_chain_verification": "ACCEPT_UNTRUSTED"}
        if request.ca_bundle:
            validation = {"trusted_ca": {"inline_string": request.ca_bundle}}
            if request.host:
                exact = {"san_type": "DNS", "matcher": {"exact": request.host}}
                validation["match_typed_subject_alt_names"] = [exact]
        context: dict[str, object] = {"common_tls_context": {"validation_context": validation}}
        if request.host:
            context["sni"] = request.host
        socket = ("envoy.transport_sockets.tls", f"{_SOCKETS}.tls.v3.UpstreamTlsContext", context)
    inner = schema.extension(*socket)
    if version is not ProxyProtocol.NONE and not check.port:
        inner = proxy_protocol_to_backend(schema, version, inner=inner)
    return {"name": "checks", "match": {_CHECKED_BY: _TLS}, "transport_socket": inner}


def proxy_protocol_to_backend(schema: Schema, version: ProxyProtocol, *, inner: Fields | None = None) -> Fields:
    """Return the transport socket that sends the PROXY header, and then what ``inner`` makes of the connection."""
    inner = inner or schema.extension(*_RAW)
    return schema.extension(
        "envoy.transport_sockets.upstream_proxy_protocol",
        f"{_SOCKETS}.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
        {"config": {"version": "V2" if version is ProxyProtocol.V2 else "V1"}, "transport_socket": inner},
    )


#: The overprovisioning factors, in percent.
_FACTORS = {Spillover.STRICT: 10_000, Spillover.PROPORTIONAL: 140}


def _tiers(localities: Sequence[Locality]) -> list[tuple[Locality, int]]:
    """Return each locality with its tier in Envoy; those that take no new connections come after all others."""
    last = 1 + max((locality.tier for locality in localities if locality.weight), default=-1)
    return [(locality, locality.tier if locality.weight else last) for locality in localities]


#: The values of envoy.config.core.v3.HealthStatus.
_HEALTH_STATUSES = {"UNHEALTHY": 2, "DRAINING": 3}
_LB_ENDPOINT = 2


#: Begins the metadata of an endpoint that drains for a limited time.
DRAIN_MARK = text(1, DRAIN)


def _health_status(target: Target, locality: Locality | None) -> str:
    """Return the fixed health status of a target; empty if checks decide."""
    if target.draining or target.weight == 0 or (locality is not None and not locality.weight):
        return "DRAINING"
    return "UNHEALTHY" if locality is not None and locality.dark else ""


def endpoint_bytes(
    target: Target, check_port: int = 0, locality: Locality | None = None, *, drain: DrainLimit | None = None
) -> bytes:
    """Encode one ``lb_endpoints`` field of a LocalityLbEndpoints.

    The metadata of a target that drains has its time for the machine of the proxy, which closes its connections.
    """
    endpoint = delimited(1, place_bytes(target.key, check_port))
    if status := _health_status(target, locality):
        endpoint += number(2, _HEALTH_STATUSES[status])
    if target.draining and drain is not None:
        limit = delimited(1, text(1, "seconds") + delimited(2, text(3, f"{drain.seconds:.3f}")))
        if drain.reset:
            limit += delimited(1, text(1, "close") + delimited(2, text(3, "reset")))
        endpoint += delimited(3, delimited(1, DRAIN_MARK + delimited(2, limit)))
    if target.weight > 1:
        endpoint += delimited(4, number(1, target.weight))
    return delimited(_LB_ENDPOINT, endpoint)


def place_bytes(key: TargetKey, check_port: int) -> bytes:
    """Encode the content of an Endpoint: where a target takes traffic, and where it is checked if that is elsewhere."""
    address = delimited(1, delimited(1, text(2, key.address) + number(3, key.port)))
    return address + delimited(2, number(1, check_port)) if check_port else address


class EndpointSet:
    """The targets of one listener, ordered by key, each with its bytes.

    ``drain`` is how long a target that drains keeps its connections, None for no limit.
    """

    __slots__ = ("_check_port", "_encoded", "_order", "_targets", "drain")

    def __init__(self, targets: Iterable[Target] = ()) -> None:
        self._check_port = 0
        self.drain: DrainLimit | None = None
        self._targets: dict[TargetKey, Target] = {}
        self._encoded: dict[TargetKey, bytes] = {}
        self._order: list[TargetKey] = []
        for target in targets:
            self.put(target)

    def put(self, target: Target) -> bool:
        """Add or replace a target; return whether that changed anything."""
        key = target.key
        known = self._targets.get(key)
        if known == target:
            return False
        if known is None:
            insort(self._order, key)
        self._targets[key] = target
        self._encoded[key] = endpoint_bytes(target, self._check_port, drain=self.drain)
        return True

    def configure(self, check_port: int, drain: DrainLimit | None) -> bool:
        """Have targets checked at this port, 0 for where they take traffic; return whether that changed anything."""
        if (check_port, drain) == (self._check_port, self.drain):
            return False
        self._check_port, self.drain = check_port, drain
        self._encoded = {key: endpoint_bytes(target, check_port, drain=drain) for key, target in self._targets.items()}
        return True

    def drop(self, key: TargetKey) -> bool:
        """Remove a target; return whether it was there."""
        if self._targets.pop(key, None) is None:
            return False
        del self._encoded[key]
        del self._order[bisect_left(self._order, key)]
        return True

    def targets(self) -> list[Target]:
        """Return the targets in order of their keys."""
        return [self._targets[key] for key in self._order]

    def among(self, keys: Collection[TargetKey]) -> list[Target]:
        """Return the targets with one of these keys."""
        if len(keys) < len(self._targets):
            return [target for key in keys if (target := self._targets.get(key)) is not None]
        return [target for key, target in self._targets.items() if key in keys]

    def assignment(self, cluster_name: str, shares: Shares | None = None) -> bytes:
        """Encode the ClusterLoadAssignment of this cluster."""
        encoded = self._encoded
        if shares is not None:
            # Encode the targets of each member as a locality; of a target whose member is not listed, none. Targets
            # without a member are those from before the members shared anything: they serve until these are here.
            parts: list[bytes] = []
            if own := [self._encoded[key] for key in self._order if not self._targets[key].locality]:
                parts.append(delimited(2, b"".join(own) + delimited(3, number(1, 1))))
            for locality, tier in _tiers(shares.localities):
                targets = [
                    (key, target) for key in self._order if (target := self._targets[key]).locality == locality.name
                ]
                endpoints = [
                    self._encoded[key]
                    if locality.weight and not locality.dark
                    else endpoint_bytes(target, self._check_port, locality, drain=self.drain)
                    for key, target in targets
                ]
                weight = delimited(3, number(1, locality.weight)) if locality.weight else b""
                name = delimited(1, text(1, locality.name))
                parts.append(delimited(2, name + b"".join(endpoints) + weight + number(5, tier)))
            policy = delimited(4, delimited(3, number(1, _FACTORS[shares.spillover])))
            return text(1, cluster_name) + b"".join(parts) + policy
        joined = b"".join([encoded[key] for key in self._order])
        return text(1, cluster_name) + (delimited(2, joined) if joined else b"")


class TargetPort(msgspec.Struct):
    """The targets behind one key, and the name of their cluster. ``dns_names`` are those that Envoy must resolve.

    ``datagrams``: a backend of UDP. ``check`` is that of a backend, None for no check; UNSET: that of its load
    balancer.
    """

    name: str
    targets: EndpointSet = msgspec.field(default_factory=EndpointSet)
    dns_names: set[TargetKey] = msgspec.field(default_factory=set[TargetKey])
    datagrams: bool = False
    check: HealthCheck | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def inline(self) -> bool:
        """Return whether the targets must be inside the cluster."""
        return bool(self.dns_names)

    def put(self, target: Target) -> bool:
        """Add or replace a target; return whether that changed anything."""
        if is_dns_name(target.key.address):
            self.dns_names.add(target.key)
        return self.targets.put(target)

    def drop(self, key: TargetKey) -> bool:
        """Remove a target; return whether it was there."""
        self.dns_names.discard(key)
        return self.targets.drop(key)


_CHECK = "envoy.service.health.v3.ClusterHealthCheck"
_JITTER_PERCENT = 10
_SPECIFIER = "envoy.service.health.v3.HealthCheckSpecifier"


class ClusterCheck(msgspec.Struct, frozen=True, gc=False):
    """One cluster to check: its field of a specifier, its targets, and when a first check of them has ended."""

    field: bytes
    targets: frozenset[TargetKey]
    first_check_s: float


class HealthReader(Protocol):
    """A stream of one proxy."""

    def mark(self, names: Iterable[str]) -> None:
        """Include these names in the next specifier as they are then."""


class GroupChecks:
    """The checks of one node group, and the streams that get them."""

    def __init__(self, find: Callable[[str, int], ClusterCheck | None], *, published: Callable[[], bool]) -> None:
        self._find = find
        #: Intervals between two checks of a healthy target that was never used: a proxy can make only so many a second.
        self._pace = 1
        self.published = published
        self.readers: list[HealthReader] = []
        self._checks: dict[str, ClusterCheck] = {}
        self._changed: set[str] = set()
        self._targets = 0

    def touch(self, names: Iterable[str]) -> None:
        """Encode these clusters again when they are needed next."""
        changed = frozenset(names)
        self._changed |= changed
        for reader in self.readers:
            reader.mark(changed)

    def current(self) -> dict[str, ClusterCheck]:
        """Return all checks by the name of their cluster."""
        for name in self._changed:
            old, new = self._checks.pop(name, None), self._find(name, self._pace)
            self._targets += (len(new.targets) if new else 0) - (len(old.targets) if old else 0)
            if new is not None:
                self._checks[name] = new
        self._changed.clear()
        if (pace := next_pace(self._pace, self._targets)) != self._pace:
            self._pace = pace
            again = {name: self._find(name, pace) for name in self._checks}
            self._checks = {name: check for name, check in again.items() if check is not None}
        return self._checks

    def encoded(self, name: str, pace: int) -> ClusterCheck | None:
        """Return the check of a cluster if it is encoded at this pace as it is now."""
        return self._checks.get(name) if pace == self._pace and name not in self._changed else None

    @property
    def targets(self) -> int:
        """Return how many targets are checked in all."""
        return self._targets


#: For each so many targets, the time between two checks of a healthy target that was never used grows by one interval.
_TARGETS_PER_PACE = 1_000


def next_pace(pace: int, targets: int) -> int:
    """Return the number of intervals between two checks of an unused healthy target; ``pace`` is the present number.

    Targets in use or unhealthy, and those that have just failed or passed a check, are checked at every interval.
    """
    # Hysteresis: each change of the pace encodes all checks again.
    least, most = targets // _TARGETS_PER_PACE, -(-targets // _TARGETS_PER_PACE)
    return max(1, min(SLOWEST_PACE, max(least, min(pace, most))))


def is_checked(spec: FrontendSpec, key: ListenerKey, port: TargetPort) -> bool:
    """Return whether the proxies check the targets behind ``key``, and can report on them."""
    datagrams = port.datagrams or key.protocol is Transport.UDP
    return health_check_of(spec, port) is not None and not datagrams and not port.inline


def health_check_of(spec: FrontendSpec, port: TargetPort) -> HealthCheck | None:
    """Return how the targets behind one key are checked, None for not at all."""
    return spec.health_check if port.check is msgspec.UNSET else port.check


def reported_check(check: HealthCheck, tls: BackendTls | None) -> HealthCheck:
    """Return how targets are checked whose health is reported: these checks connect only where they would need ``tls``.

    They have no client certificate, which targets may demand.
    """
    if tls is None or not tls.client_certificate or check.request is None or not check.request.tls:
        return check
    return msgspec.structs.replace(check, request=None)


def check_of(
    schema: Schema, spec: FrontendSpec, key: ListenerKey, port: TargetPort, pace: int = 1
) -> ClusterCheck | None:
    """Build the check of the targets behind one key, at this pace; None when there is nothing to check."""
    check = health_check_of(spec, port)
    if check is None or not is_checked(spec, key, port):
        return None
    check = reported_check(check, spec.backend_tls)
    targets = [target.key for target in port.targets.targets() if not target.draining and target.weight]
    if not targets:
        return None
    endpoints = b"".join(_checked_endpoint(target, check.port) for target in targets)
    how = _how(schema, check, spec.proxy_protocol, pace)
    field = delimited(1, text(1, port.name) + how + delimited(3, endpoints))
    return ClusterCheck(field, frozenset(targets), check.timeout_s)


def specifier_bytes(schema: Schema, checks: Iterable[ClusterCheck], *, interval_s: float) -> bytes:
    """Encode a HealthCheckSpecifier: what to check, and how often to report."""
    rest = schema.encode(_SPECIFIER, {"interval": duration(interval_s)})
    return b"".join([*(check.field for check in checks), rest])


@lru_cache(maxsize=65_536)
def _checked_endpoint(key: TargetKey, check_port: int) -> bytes:
    """Encode one of the ``endpoints`` of a locality; a changed target of a cluster leaves the others as they are."""
    return delimited(2, place_bytes(key, check_port))


@lru_cache(maxsize=1024)
def _how(schema: Schema, check: HealthCheck, version: ProxyProtocol, pace: int) -> bytes:
    # Targets that were asked for at once would be checked at once ever after, in bursts that hold up configuration.
    own_socket = check.request is not None and check.request.tls
    fields_of_check = health_check_fields(check, own_socket=own_socket)
    asked: dict[str, object] = {**fields_of_check, "interval_jitter_percent": _JITTER_PERCENT}
    if pace > 1:
        # Envoy counts the connections of both clusters of this name: a backend in use is checked at each interval.
        asked["no_traffic_healthy_interval"] = duration(pace * check.interval_s)
    fields: dict[str, object] = {"health_checks": [asked]}
    if own_socket:
        fields["transport_socket_matches"] = [socket_of_checks(schema, check, version)]
    elif version is not ProxyProtocol.NONE and not check.port:
        match = {"name": "proxy-protocol", "match": {}, "transport_socket": proxy_protocol_to_backend(schema, version)}
        fields["transport_socket_matches"] = [match]
    return schema.encode(_CHECK, fields)
