"""The clusters and endpoints of a load balancer's backends, and those that a change concerns.

In: backends, the settings of their load balancer, targets through ``ports``. Out: changes. A backend that has not
changed costs one comparison. Backends of UDP have no cluster of their own (``udp``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from fairlead.api.times import seconds_from_duration
from fairlead.model.desired import FrontendSpec, ProxyProtocol, Shares, Target
from fairlead.model.health import HealthCheck, check_with
from fairlead.model.http import Backend, differing_part
from fairlead.model.keys import ListenerKey, backend_key
from fairlead.providers.envoy.clusters import (
    CLUSTER,
    TargetPort,
    backend_tls,
    cluster_fields,
    has_own_socket,
    health_check_fields,
    outlier_detection_fields,
    outlier_fields,
    proxy_protocol_to_backend,
    reported_check,
    socket_of_checks,
)
from fairlead.providers.envoy.http.listeners import MAX_HEADERS, MAX_HEADERS_KIB
from fairlead.providers.envoy.http.secrets import EnvoySecrets
from fairlead.providers.envoy.resources import (
    DrainLimit,
    EncodedResource,
    Fields,
    ResourceType,
    Schema,
    cluster_name,
    duration,
    encoded_resource,
)
from fairlead.providers.envoy.store import ResourceChange

Name = tuple[ResourceType, str]


class BackendClusters:
    """The backends of one load balancer; each may have so many ``connections`` to its targets."""

    def __init__(
        self, schema: Schema, secrets: EnvoySecrets, ports: Mapping[ListenerKey, TargetPort], *, connections: int
    ) -> None:
        self.ports = dict(ports)
        self.resources: dict[Name, EncodedResource] = {}
        #: The clusters that can be served, by backend.
        self.clusters: dict[str, str] = {}
        self._schema = schema
        self._connections = connections
        self._secrets = secrets
        #: The backends that can be served.
        self._backends: dict[str, Backend] = {}
        #: The backends of the last update, and whether any of them speaks TLS.
        self._given: Sequence[Backend] = ()
        self._with_tls = False
        self._settings: object = None
        self._shares: Mapping[str, Shares] = {}
        #: What a cluster was encoded from.
        self._encoded: dict[str, tuple[object, EncodedResource]] = {}

    def update(self, spec: FrontendSpec, backends: Sequence[Backend]) -> list[ResourceChange]:
        """Apply new backends; return the changed resources."""
        settings = (spec.affinity, spec.health_check, spec.check_slowdown, spec.proxy_protocol)
        same = settings == self._settings
        if same and backends is self._given and not self._with_tls and spec.backend_shares == self._shares:
            return []
        shared_before, self._shares = self._shares, spec.backend_shares
        moved = {name for name in {*shared_before, *self._shares} if shared_before.get(name) != self._shares.get(name)}
        # A secret of a backend with TLS may have become usable or unusable.
        again = not same or self._with_tls
        old, new = (slice(None), slice(None)) if again else differing_part(self._given, backends)
        before = {backend.name: backend for backend in self._given[old]}
        listed = {backend.name: backend for backend in backends[new]}
        listed |= {backend.name: backend for backend in backends if backend.name in moved}
        changed = [
            backend
            for name, backend in listed.items()
            if not same or before.get(name) is not backend or backend.tls is not None or name in moved
        ]
        gone = [name for name in before if name not in listed]
        self._given, self._with_tls = backends, any(backend.tls is not None for backend in changed)
        if not (changed or gone):
            return []
        self._settings = settings
        self.resources, self.ports, self.clusters = dict(self.resources), dict(self.ports), dict(self.clusters)
        changes: list[ResourceChange] = []
        for backend in changed:
            key, name = backend_key(backend.name), cluster_name(spec.key, backend.name)
            port = self.ports[key] = self.ports.get(key) or TargetPort(name)
            port.datagrams = backend.protocol == "UDP"
            check = check_of_backend(spec, backend)
            check = None if check is None else reported_check(check, backend.tls)
            if check != port.check:
                # Another object: what is known of the health of its targets is judged again.
                port = self.ports[key] = replace(port, check=check)
            drain = None
            if (shares := self._shares.get(backend.name)) is not None and shares.drain_s is not None:
                drain = DrainLimit(shares.drain_s, shares.drain_reset)
            elif backend.drain:
                drain = DrainLimit(seconds_from_duration(backend.drain), backend.drain_close == "reset")
            rechecked = port.targets.configure(check.port if check is not None else 0, drain)
            cluster = None if port.datagrams else self._cluster(spec, backend, port)
            if cluster is None:
                changes += self._drop(backend.name, name)
                continue
            self._backends[backend.name] = backend
            self.clusters[backend.name] = name
            self._put(changes, (ResourceType.CLUSTER, name), cluster)
            if not port.inline:
                outdated = rechecked or backend.name in moved
                current = None if outdated else self.resources.get((ResourceType.ENDPOINTS, name))
                endpoints = current or endpoints_of(name, port, self._shares.get(backend.name))
                self._put(changes, (ResourceType.ENDPOINTS, name), endpoints)
        for name in gone:
            self.ports.pop(backend_key(name), None)
            changes += self._drop(name, cluster_name(spec.key, name))
        if not same:
            # Ports of an earlier load balancer whose backends are not among these.
            kept = {backend_key(backend.name) for backend in backends}
            self.ports = {key: port for key, port in self.ports.items() if key in kept}
        return changes

    def _drop(self, backend: str, name: str) -> list[ResourceChange]:
        """Remove the cluster of a backend, with its endpoints; return the removed resources."""
        self._backends.pop(backend, None)
        self.clusters.pop(backend, None)
        self._encoded.pop(name, None)
        kinds = (ResourceType.CLUSTER, ResourceType.ENDPOINTS)
        return [
            ResourceChange(kind, name, None) for kind in kinds if self.resources.pop((kind, name), None) is not None
        ]

    def target_changes(self, spec: FrontendSpec, key: ListenerKey, *, was_inline: bool) -> list[ResourceChange]:
        """Return the endpoints of a backend, and its cluster when the targets are, or were, inside that."""
        backend, port = self._backends.get(key.backend), self.ports[key]
        if backend is None:
            return []
        changes: list[ResourceChange] = []
        if was_inline or port.inline:
            changes.append(ResourceChange(ResourceType.CLUSTER, port.name, self._cluster(spec, backend, port)))
        endpoints = None if port.inline else endpoints_of(port.name, port, self._shares.get(key.backend))
        changes.append(ResourceChange(ResourceType.ENDPOINTS, port.name, endpoints))
        for change in changes:
            if change.resource is None:
                self.resources.pop((change.kind, change.name), None)
            else:
                self.resources[change.kind, change.name] = change.resource
        return changes

    def _put(self, changes: list[ResourceChange], name: Name, new: EncodedResource) -> None:
        if self.resources.get(name) is not new:
            self.resources[name] = new
            changes.append(ResourceChange(*name, new))

    def _cluster(self, spec: FrontendSpec, backend: Backend, port: TargetPort) -> EncodedResource | None:
        """Return the cluster of a backend, encoded only if something changed; None when it cannot be served."""
        names = self._secrets.of_backend(backend)
        if names is None:
            return None
        targets = tuple(port.targets.targets()) if port.inline else ()
        shares = self._shares.get(backend.name)
        source = (backend, names, targets, self._settings, shares if port.inline else shares is not None)
        encoded = self._encoded.get(port.name)
        if encoded is None or encoded[0] != source:
            content = backend_cluster_bytes(
                self._schema,
                spec,
                backend,
                name=port.name,
                certificate=names[0],
                authority=names[1],
                targets=targets,
                connections=self._connections,
                shares=shares,
            )
            by_ack = port.inline or check_of_backend(spec, backend) is not None
            resource = encoded_resource(ResourceType.CLUSTER, port.name, content, warms_by_ack=by_ack)
            encoded = self._encoded[port.name] = (source, resource)
        return encoded[1]


def check_of_backend(spec: FrontendSpec, backend: Backend) -> HealthCheck | None:
    """Return how the targets of a backend are checked, None for not at all."""
    tls, own = backend.tls, backend.health_check
    http2, slowdown = backend.protocol == "HTTP2", spec.check_slowdown
    check = check_with(spec.health_check, own, tls=tls is not None, http2=http2, slowdown=slowdown)
    if check is None or check.request is None or own is None or own.host or tls is None:
        return check
    return replace(check, request=replace(check.request, host=tls.server_name))


def endpoints_of(name: str, port: TargetPort, shares: Shares | None = None) -> EncodedResource:
    """Encode the endpoints of a cluster, by member where several share it."""
    return encoded_resource(ResourceType.ENDPOINTS, name, port.targets.assignment(name, shares))


_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_BUFFER_BYTES = 32_768
#: How often a healthy backend is checked that has had no request; what its status shows is checked more often.
_UNUSED_S = 60.0
#: Most servers keep an idle connection for 5 s or longer. A request sent just as the server closes the connection
#: fails, so the proxy closes idle connections first.
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
    shares: Shares | None = None,
) -> bytes:
    """Encode the cluster; ``targets`` are only those that must be inside it, else none.

    ``connections`` is how many it may have open to its targets.
    """
    check = check_of_backend(spec, backend)
    check_port = check.port if check is not None else 0
    fields = cluster_fields(spec, name, targets, connections=connections, shares=shares, check_port=check_port)
    fields["per_connection_buffer_limit_bytes"] = {"value": _BUFFER_BYTES}
    if shares is None and backend.drain and seconds_from_duration(backend.drain):
        # Sessions stay at a target as long as its connections do; those of a member that is drained leave at once.
        statuses = {"statuses": ["UNKNOWN", "HEALTHY", "DEGRADED", "DRAINING"]}
        fields["common_lb_config"] = {**cast("Fields", fields["common_lb_config"]), "override_host_status": statuses}
    until = check if shares else None
    if backend.protocol in _EXPLICIT:
        fields["typed_extension_protocol_options"] = {_OPTIONS: schema.any(_OPTIONS, _http_options(backend))}
        fields |= outlier_fields(_http_outlier_detection(until), backend.outlier_detection)
    elif backend.protocol == "TCP":
        fields |= outlier_fields(outlier_detection_fields(until), backend.outlier_detection)
    if check is not None and backend.protocol != "UDP":
        # Of thousands of backends most are idle: a dead one is seen late there, and its first request is tried again.
        unused_s = max(_UNUSED_S, check.interval_s) if backend.health_check is None else None
        own_socket = has_own_socket(check, spec.proxy_protocol, tls=backend.tls is not None)
        fields["health_checks"] = [health_check_fields(check, unused_s=unused_s, own_socket=own_socket)]
        if own_socket:
            fields["transport_socket_matches"] = [socket_of_checks(schema, check, spec.proxy_protocol)]
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


def _http_outlier_detection(until: HealthCheck | None) -> Fields:
    # An application that answers 500 is alive: only connections that fail say that a target is gone.
    return {
        **outlier_detection_fields(until),
        "enforcing_consecutive_5xx": {"value": 0},
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": {"value": 3},
        "enforcing_local_origin_success_rate": {"value": 0},
        "enforcing_success_rate": {"value": 0},
    }
