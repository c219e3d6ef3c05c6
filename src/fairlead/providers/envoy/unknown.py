"""Keep resources that a proxy serves and this hub does not know.

    why it is not known                                       how long it is kept
    the hub's API was restored, or lost a namespace: agents   ``HOLD_UNKNOWN_S`` seconds
    publish what is missing again
    its object, or one that holds its targets, cannot be      until it can, or is gone
    decoded, and never could since this hub started

One that was deleted while no hub was running is known: its finalizer kept its object, and so it goes at once. What is
kept of a load balancer that is known are targets: of a port of which this hub has read none.

In: names of resources, what is known, the time. Out: whether a name waits.
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
        self._unread: set[LoadBalancerKey] = set()
        self._with_targets: set[str] = set()
        self.until = 0.0

    def publish(self, now: float) -> None:
        """Begin: proxies are sent what there is from now on."""
        self.until = now + self._hold_s

    def delete(self, key: LoadBalancerKey) -> None:
        """Store that ``key`` was deleted: it does not wait."""
        self._deleted.add(key)
        self._unread.discard(key)

    def keep(self, key: LoadBalancerKey, *, unread: bool) -> bool:
        """Store whether something of ``key`` cannot be read; returns whether it could not be, and can now."""
        if unread:
            self._unread.add(key)
            return False
        was_unread = key in self._unread
        self._unread.discard(key)
        return was_unread

    def is_unread(self, key: LoadBalancerKey) -> bool:
        """Return whether something of ``key`` cannot be read."""
        return key in self._unread

    def knows_all(self, now: float) -> bool:
        """Return whether nothing waits any more."""
        return now >= self.until and not self._unread

    def register(self, name: str) -> None:
        """Store that the endpoints ``name`` have had a target: when they have none any more, that is meant."""
        self._with_targets.add(name)

    def waits_for_targets(self, name: str, now: float) -> bool:
        """Say whether endpoints that a proxy has stay for now: their load balancer may be read before its targets."""
        key = load_balancer_of(name)
        return key is not None and self._may_be_wanted(key, now) and name not in self._with_targets

    def lacks_targets(self, name: str) -> bool:
        """Say whether the cluster ``name`` stays as a proxy has it: another one would come without its endpoints."""
        key = load_balancer_of(name)
        return key is not None and self.is_unread(key) and name not in self._with_targets

    def waits(self, name: str, now: float) -> bool:
        """Return whether the resource ``name``, which is not wanted, stays for now."""
        key = load_balancer_of(name)
        return key is not None and self._may_be_wanted(key, now) and not self._is_known(key)

    def _may_be_wanted(self, key: LoadBalancerKey, now: float) -> bool:
        return key in self._unread or (now < self.until and key not in self._deleted)
