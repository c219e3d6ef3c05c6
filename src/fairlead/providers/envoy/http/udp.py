"""The weights by which the backends of a UDP rule share its datagrams.

In: the backends of a rule with their targets. Out: targets with the weights that give each backend its share: Envoy's
UDP proxy knows one cluster only, so a backend's weight is spread over its targets. Requirements: G-101, G-115.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fairlead.model.desired import Target
from fairlead.model.http import BackendRef, Rule
from fairlead.model.keys import TargetKey

#: The sum of all weights stays below Envoy's limit (2^32 - 1 over a locality), with enough steps for exact shares.
_TOTAL = 1_000_000
#: Gets the share of backends that could not be resolved: nothing answers there.
NOWHERE = TargetKey("192.0.2.1", 9)


def weighted_targets(rule: Rule | None, targets: Mapping[str, Sequence[Target]]) -> list[Target]:
    """Return the targets of all backends, each with its part of the backend's weight."""
    backends = [backend for backend in rule.backends if backend.weight] if rule is not None else []
    if not any(backend.backend in targets for backend in backends):
        return []
    total = sum(backend.weight for backend in backends)
    merged: dict[TargetKey, Target] = {}
    for backend in backends:
        for target in _of_backend(backend, targets, total):
            known = merged.get(target.key)
            weight = target.weight + (known.weight if known is not None else 0)
            merged[target.key] = msgspec.structs.replace(target, weight=weight)
    return list(merged.values())


def _of_backend(backend: BackendRef, targets: Mapping[str, Sequence[Target]], total: int) -> Iterable[Target]:
    if backend.backend not in targets:
        return [Target(NOWHERE, weight=max(1, backend.weight * _TOTAL // total))]
    usable = [target for target in targets[backend.backend] if target.weight and not target.draining]
    weights = sum(target.weight for target in usable)
    return [
        msgspec.structs.replace(
            target, weight=max(1, round(backend.weight * _TOTAL * target.weight / (total * weights)))
        )
        for target in usable
    ]
