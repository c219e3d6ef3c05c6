"""The addresses of each load balancer, or those that it had last.

In: the objects of load balancers as they change. Out: addresses by load balancer. One that shows none for a moment has
those that it had before; one that is gone has none. Pure.
"""

from __future__ import annotations

from collections.abc import Collection

from fairlead.api.intent import IntentStatus
from fairlead.model.keys import LoadBalancerKey


class Addresses:
    """The addresses of all load balancers of a hub: IP addresses, and host names of those that have no IP address."""

    def __init__(self) -> None:
        self._known: dict[LoadBalancerKey, tuple[str, ...]] = {}
        self._holders: dict[str, set[LoadBalancerKey]] = {}

    def put(self, key: LoadBalancerKey, status: IntentStatus | None) -> bool:
        """Take over what the status of ``key`` shows, None when it is gone; return whether that is something else."""
        before = self._known.get(key, ())
        now = () if status is None else _shown(status) or before
        if now == before:
            return False
        for each in before:
            self._holders[each].discard(key)
            if not self._holders[each]:
                del self._holders[each]
        for each in now:
            self._holders.setdefault(each, set()).add(key)
        self._known[key] = now
        if not now:
            del self._known[key]
        return True

    def of(self, key: LoadBalancerKey) -> tuple[str, ...]:
        """Return the addresses of one load balancer, none when it never had any."""
        return self._known.get(key, ())

    def is_of_others(self, address: str, keys: Collection[LoadBalancerKey]) -> bool:
        """Return whether a load balancer that is not among ``keys`` has ``address``, and none of ``keys`` has."""
        holders = self._holders.get(address, set())
        return bool(holders) and not holders & set(keys)


def _shown(status: IntentStatus) -> tuple[str, ...]:
    entries = status.load_balancer.ingress or ()
    return tuple(dict.fromkeys(each.address for each in entries if each.address))
