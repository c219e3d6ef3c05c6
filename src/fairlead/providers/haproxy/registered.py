"""The servers that this process has registered at HAProxy, and since when each one is being removed.

In: changes that were applied, and the clock. Out: the targets that should be there at least (``of``), and whether the
drain time of a removed server is over. Nothing here is durable: after a restart drain times begin anew.
"""

from __future__ import annotations

from fairlead.model.change import Action, TargetChange
from fairlead.model.keys import BackendKey, ListenerKey, LoadBalancerKey, TargetKey
from fairlead.runtime.clock import Clock


class RegisteredServers:
    """The servers of all load balancers of this process."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._registered: dict[LoadBalancerKey, set[tuple[ListenerKey, TargetKey]]] = {}
        #: By target, and whether it is removed or only one of its servers is replaced.
        self._draining_since_s: dict[tuple[BackendKey, bool], float] = {}

    def of(self, key: LoadBalancerKey) -> frozenset[tuple[ListenerKey, TargetKey]]:
        """Return the targets of ``key`` that this process has registered and not drained or removed since."""
        return frozenset(self._registered.get(key, ()))

    def drain_is_over(self, change: TargetChange, *, timeout_s: float) -> bool:
        """Return whether the open sessions of a server that is removed or replaced have had ``timeout_s``.

        A removal starts the time, and so does ``drains``.
        """
        removes = change.action is Action.DEREGISTER
        self._draining_since_s.pop((change.backend_key, not removes), None)
        if removes:
            self.drains(change)
        since_s = self._draining_since_s.get((change.backend_key, removes))
        return since_s is not None and self._clock.monotonic() - since_s >= timeout_s

    def drains(self, change: TargetChange) -> None:
        """Store that a server of the target is drained to be removed: its drain time begins, unless it already has."""
        place = (change.backend_key, change.action is Action.DEREGISTER)
        self._draining_since_s.setdefault(place, self._clock.monotonic())

    def applied(self, change: TargetChange) -> None:
        """Store that a change has had its effect."""
        targets = self._registered.setdefault(change.load_balancer, set())
        self._draining_since_s.pop((change.backend_key, change.action is Action.DEREGISTER), None)
        if change.action is Action.DEREGISTER:
            targets.discard((change.listener, change.key))
        elif change.action is Action.DRAIN or change.target.draining:
            # After a reload a draining server is not added again.
            targets.discard((change.listener, change.key))
        else:
            targets.add((change.listener, change.key))

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop all servers of a load balancer."""
        self._registered.pop(key, None)
        for place in [place for place in self._draining_since_s if place[0].load_balancer == key]:
            del self._draining_since_s[place]
