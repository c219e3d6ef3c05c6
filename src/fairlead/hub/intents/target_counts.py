"""Counts of the targets of load balancers, by their health.

    desired targets ──┐                   ┌─► TARGETS of one load balancer
    their health    ──┴─► healthy,        ┴─► the metric, by provider and class
                          unhealthy, unknown

In: what was translated of each load balancer, and its health. Out: counts. Never: a count of a load balancer that is
gone, or a look at a provider.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Health, Observed, Seen, health_of
from fairlead.translate.member import NODES
from fairlead.translate.view import Decision

STATES = ("healthy", "unhealthy", "unknown")


class CountedTargets(NamedTuple):
    """The targets of one load balancer, or of many, by what is seen of them."""

    healthy: int = 0
    unhealthy: int = 0
    unknown: int = 0


class TargetCounts:
    """The targets of all load balancers whose status this replica writes."""

    def __init__(self) -> None:
        self._counts: dict[LoadBalancerKey, tuple[str, str, CountedTargets]] = {}

    def put(self, key: LoadBalancerKey, provider: str, class_name: str, counts: CountedTargets) -> None:
        """Replace what is known of one load balancer."""
        self._counts[key] = (provider, class_name, counts)

    def forget(self, key: LoadBalancerKey) -> None:
        """Count it no more."""
        self._counts.pop(key, None)

    def by_class(self) -> Counter[tuple[str, str, str]]:
        """Return how many targets there are by provider, class and state."""
        total: Counter[tuple[str, str, str]] = Counter()
        for provider, class_name, counts in self._counts.values():
            for state, count in zip(STATES, counts, strict=True):
                total[provider, class_name, state] += count
        return total


def is_complete(translation: Decision) -> bool:
    """Return whether every listener is to have a target that takes connections."""
    desired = translation.desired
    if translation.complete is not None:
        return translation.complete
    return desired is not None and all(
        any(not target.draining and target.weight for target in targets.values())
        for targets in desired.targets.values()
    )


def in_rotation(desired: DesiredLoadBalancer | None) -> int:
    """Return how many backends are to take connections, counted as health counts them."""
    if desired is None:
        return 0
    views = {
        listener: {key: (Seen.UNCHECKED,) for key, target in targets.items() if not target.draining and target.weight}
        for listener, targets in desired.targets.items()
    }
    return health_of(views).unknown if views else 0


def not_seen(desired: DesiredLoadBalancer, health: Health | None) -> str:
    """Return that not all of ``desired`` has been seen at its provider yet, in one phrase; empty when all has."""
    wanted, seen = sum(map(len, desired.targets.values())), health.healthy if health is not None else 0
    return f"{seen} of {wanted} have been read back so far" if seen < wanted else ""


def counted(health: Health | None, expected: int) -> CountedTargets:
    """Return what is seen; of ``expected`` targets nothing is known where the provider says nothing."""
    if health is None:
        return CountedTargets(unknown=expected)
    return CountedTargets(health.healthy, health.total - health.healthy, health.unknown)


def shown_targets(ready: str, observed: Observed | None) -> str:
    """Return what the column shows: healthy of all when they are checked, else ``ready``.

    Nodes that are all healthy are not counted: they are every load balancer's of their member.
    """
    health = observed.health if observed is not None else None
    if health is None or not health.checked:
        return ready
    if ready == NODES and not health.unhealthy:
        return f"{NODES} healthy"
    return f"{health.healthy}/{health.total} healthy"
