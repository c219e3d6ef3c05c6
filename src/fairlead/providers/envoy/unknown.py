"""Keep resources that a proxy serves and this hub does not know, for at most ``HOLD_UNKNOWN_S`` seconds.

A hub whose API was restored from a backup, or lost a namespace, does not know load balancers that are younger than
what it reads: their agents publish them again within seconds. Until then the proxies serve them on. One that was
deleted while no hub was running is known: its finalizer kept its object, and so it goes at once.

In: names of resources, what is known, the time. Out: whether a name waits: for ``HOLD_UNKNOWN_S`` at most.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.names import load_balancer_of

#: Agents connect again within half of it, and publish what is missing.
HOLD_UNKNOWN_S = 60.0


class UnknownLoadBalancers:
    """What is served on for ``hold_s`` after ``publish``, though ``is_known`` says no; without ``publish`` nothing."""

    def __init__(
        self, *, is_known: Callable[[LoadBalancerKey], bool] = lambda _key: True, hold_s: float = HOLD_UNKNOWN_S
    ) -> None:
        self._is_known = is_known
        self._hold_s = hold_s
        self._deleted: set[LoadBalancerKey] = set()
        self._with_targets: set[str] = set()
        self.until = 0.0

    def publish(self, now: float) -> None:
        """Begin: proxies are sent what there is from now on."""
        self.until = now + self._hold_s

    def delete(self, key: LoadBalancerKey) -> None:
        """Store that ``key`` was deleted: it does not wait."""
        self._deleted.add(key)

    def register(self, name: str) -> None:
        """Store that the endpoints ``name`` have had a target: when they have none any more, that is meant."""
        self._with_targets.add(name)

    def waits_for_targets(self, name: str, now: float) -> bool:
        """Say whether endpoints that a proxy has stay for now: their load balancer may be read before its targets."""
        key = load_balancer_of(name)
        return now < self.until and key is not None and key not in self._deleted and name not in self._with_targets

    def waits(self, name: str, now: float) -> bool:
        """Return whether the resource ``name``, which is not wanted, stays for now."""
        key = load_balancer_of(name)
        return now < self.until and key is not None and key not in self._deleted and not self._is_known(key)
