"""The load balancers that may begin now, by failure domain, and those that are under way.

In: keys that became dirty, and those that ended. Out: keys to begin with, each once at a time: namespaces take turns,
and within one the oldest comes first. What becomes dirty while it is under way is remembered, with its age, and handed
back when that ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter

from fairlead.model.fair_order import FairOrder
from fairlead.model.keys import LoadBalancerKey


class Ready:
    """The load balancers of one worker; times are monotonic seconds."""

    def __init__(self) -> None:
        self._by_failure_domain: dict[str, FairOrder[LoadBalancerKey]] = {}
        self._waiting: set[LoadBalancerKey] = set()
        self._under_way: set[LoadBalancerKey] = set()
        #: Became dirty again while it was under way, and since when.
        self._again_since_s: dict[LoadBalancerKey, float] = {}

    def __bool__(self) -> bool:
        """Return whether anything waits or is under way."""
        return bool(self._waiting or self._under_way)

    def add(self, key: LoadBalancerKey, since_s: float, failure_domain: Callable[[LoadBalancerKey], str]) -> bool:
        """Queue ``key``; return False when it is in progress, and so will be returned by ``ended``."""
        if key in self._under_way:
            self._again_since_s.setdefault(key, since_s)
            return False
        if key not in self._waiting:
            self._waiting.add(key)
            domain = failure_domain(key)
            if domain not in self._by_failure_domain:
                self._by_failure_domain[domain] = FairOrder(attrgetter("namespace"))
            self._by_failure_domain[domain].add(key)
        return True

    def begin(self, free: Callable[[str], bool]) -> Iterator[tuple[LoadBalancerKey, str]]:
        """Yield each key to start now, with its failure domain, while ``free`` returns True for it."""
        for failure_domain in list(self._by_failure_domain):
            waiting = self._by_failure_domain[failure_domain]
            while waiting and free(failure_domain):
                key = waiting.pop()
                self._waiting.discard(key)
                self._under_way.add(key)
                yield key, failure_domain
            if not waiting:
                del self._by_failure_domain[failure_domain]

    def ended(self, key: LoadBalancerKey) -> float | None:
        """Mark ``key`` as not in progress; return since when it has been dirty again, None when it is not."""
        self._under_way.discard(key)
        return self._again_since_s.pop(key, None)
