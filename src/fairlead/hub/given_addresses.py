"""The addresses and ports at which load balancers answer, each with its load balancer.

In: what is allocated to each load balancer, and what its status shows. Out: load balancers by address and port, and a
call with each pair that is given out now, or not any more. Both sources count: an allocation before it is on record,
and what a paused load balancer still serves. Cost: that of the change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum

from fairlead.model.keys import LoadBalancerKey, TargetKey, canonical_address


class AddressSource(Enum):
    """How it is known."""

    ALLOCATED = "allocated"
    SHOWN = "shown"


class GivenAddresses:
    """The addresses of all load balancers; ``changed`` gets the pairs that are given out now, or not any more."""

    def __init__(self, changed: Callable[[Collection[TargetKey]], None]) -> None:
        self._changed = changed
        self._pairs: dict[tuple[LoadBalancerKey, AddressSource], frozenset[TargetKey]] = {}
        self._holders: dict[TargetKey, set[LoadBalancerKey]] = {}

    @property
    def holders(self) -> Mapping[TargetKey, Collection[LoadBalancerKey]]:
        """Return the load balancers that answer at each address (canonical) and port; always as it is now."""
        return self._holders

    def put(
        self, key: LoadBalancerKey, source: AddressSource, *, addresses: Iterable[str] = (), ports: Collection[int] = ()
    ) -> None:
        """Take over where ``key`` answers according to ``source``; without an address nowhere."""
        now = frozenset(TargetKey(canonical_address(address), port) for address in addresses for port in ports)
        before = self._pairs.get((key, source), frozenset())
        if now == before:
            return
        if now:
            self._pairs[key, source] = now
        else:
            del self._pairs[key, source]
        others = frozenset[TargetKey]().union(
            *(self._pairs.get((key, each), ()) for each in AddressSource if each != source)
        )
        changed = [pair for pair in now - before if pair not in self._holders]
        for pair in now - before:
            self._holders.setdefault(pair, set()).add(key)
        for pair in before - now - others:
            self._holders[pair].discard(key)
            if not self._holders[pair]:
                del self._holders[pair]
                changed.append(pair)
        if changed:
            self._changed(changed)
