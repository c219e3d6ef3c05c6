"""The targets of one load balancer, L4 or L7, and the health checks that its proxies make.

A ``TargetPort`` holds the targets of a listener, or of a backend.
Envoy reports health over HDS only of what an HDS specifier names. The specifier has the checked clusters with their own
checks and targets: one encoded field for each cluster, encoded again only when that cluster has changed. Never: a
cluster without targets; Envoy 1.40 crashes on it.
Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/health/v3/hds.proto
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Protocol

import msgspec

from fairlead.model.desired import FrontendSpec, ProxyProtocol, Target
from fairlead.model.health import HealthCheck
from fairlead.model.keys import ListenerKey, TargetKey
from fairlead.model.keys import Protocol as Transport
from fairlead.providers.envoy.clusters import (
    SLOWEST_PACE,
    EndpointSet,
    health_check_fields,
    is_dns_name,
    place_bytes,
    proxy_protocol_to_backend,
    socket_of_checks,
)
from fairlead.providers.envoy.resources import delimited, text
from fairlead.providers.envoy.schema import Schema, duration


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
        ...


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


def check_of(
    schema: Schema, spec: FrontendSpec, key: ListenerKey, port: TargetPort, pace: int = 1
) -> ClusterCheck | None:
    """Build the check of the targets behind one key, at this pace; None when there is nothing to check."""
    check = health_check_of(spec, port)
    if check is None or not is_checked(spec, key, port):
        return None
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
