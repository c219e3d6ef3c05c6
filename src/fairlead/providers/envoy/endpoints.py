"""The ClusterLoadAssignment of one listener's targets, encoded incrementally.

In: targets. Out: bytes, always the same for the same targets in any order. ``EndpointSet`` keeps each target's bytes
and the order, so that one changed target costs one encoding and one join, whatever else exists. It never decides
which targets there are. A weight of 0 means "no new connections", which Envoy calls DRAINING.
Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/endpoint/v3/endpoint.proto
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from fairlead.model.desired import Target
from fairlead.model.keys import TargetKey
from fairlead.providers.envoy.wire import delimited, number, text

_DRAINING = 3
_LB_ENDPOINT = 2


def endpoint_bytes(target: Target) -> bytes:
    """Encode one ``lb_endpoints`` field of a LocalityLbEndpoints."""
    address = text(2, target.key.address) + number(3, target.key.port)
    endpoint = delimited(1, delimited(1, delimited(1, address)))
    if target.draining or target.weight == 0:
        endpoint += number(2, _DRAINING)
    if target.weight > 1:
        endpoint += delimited(4, number(1, target.weight))
    return delimited(_LB_ENDPOINT, endpoint)


class EndpointSet:
    """The targets of one listener, ordered by key, each with its bytes."""

    __slots__ = ("_encoded", "_order", "_targets")

    def __init__(self, targets: Iterable[Target] = ()) -> None:
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
        self._encoded[key] = endpoint_bytes(target)
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

    def assignment(self, cluster_name: str) -> bytes:
        """Encode the ClusterLoadAssignment of this cluster."""
        encoded = self._encoded
        joined = b"".join([encoded[key] for key in self._order])
        return text(1, cluster_name) + (delimited(2, joined) if joined else b"")
