"""The work that is not done yet, and since when: dirty load balancers, and those with draining backends.

In: what the worker takes, finishes and waits for. Out: counts and the oldest age, for metrics. A load balancer
is pending from the trigger after its change until a run about it has ended well: a call under way, a retry that is
due later and a provider that says Running count; what a guard holds, what is parked and what drains does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.model.keys import LoadBalancerKey


class Backlog:
    """The pending load balancers of one worker; times are monotonic seconds."""

    def __init__(self) -> None:
        self._since_s: dict[LoadBalancerKey, float] = {}
        self._triggered_s: float | None = None
        self._draining: set[LoadBalancerKey] = set()

    def __iter__(self) -> Iterator[LoadBalancerKey]:
        return iter(self._since_s)

    def triggered(self, now_s: float) -> None:
        """Note that a load balancer became dirty; its age counts from the first such call after the last ``took``."""
        if self._triggered_s is None:
            self._triggered_s = now_s

    def took(self, now_s: float) -> float:
        """Return since when the load balancers that the worker takes now have been waiting."""
        since_s = now_s if self._triggered_s is None else self._triggered_s
        self._triggered_s = None
        return since_s

    def add(self, key: LoadBalancerKey, since_s: float) -> None:
        """Mark ``key`` as pending; one that is pending already keeps its age."""
        self._since_s.setdefault(key, since_s)

    def ended(self, key: LoadBalancerKey, *, draining: bool) -> None:
        """Mark ``key`` as not pending: it is done, or only waits for drains."""
        self._since_s.pop(key, None)
        if draining:
            self._draining.add(key)
        else:
            self._draining.discard(key)

    @property
    def draining(self) -> int:
        """Return the number of load balancers that wait for draining backends."""
        return len(self._draining)

    def oldest_s(self, now_s: float, *, untaken: bool) -> float:
        """Return the age of the oldest; ``untaken``: something is dirty that the worker has not taken yet."""
        oldest_s = min(self._since_s.values(), default=now_s)
        if untaken and self._triggered_s is not None:
            oldest_s = min(oldest_s, self._triggered_s)
        return now_s - oldest_s
