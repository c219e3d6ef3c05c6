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
        self._removing_since_s: dict[BackendKey, float] = {}

    def of(self, key: LoadBalancerKey) -> frozenset[tuple[ListenerKey, TargetKey]]:
        """Return the targets of ``key`` that this process has registered and not drained or removed since."""
        return frozenset(self._registered.get(key, ()))

    def drain_is_over(self, change: TargetChange, *, timeout_s: float) -> bool:
        """Return whether the open sessions of a removed server have had ``timeout_s``; a removal starts the time."""
        if change.action is not Action.DEREGISTER:
            self._removing_since_s.pop(change.backend_key, None)
            return False
        now_s = self._clock.monotonic()
        return now_s - self._removing_since_s.setdefault(change.backend_key, now_s) >= timeout_s

    def applied(self, change: TargetChange) -> None:
        """Store that a change has had its effect."""
        targets = self._registered.setdefault(change.load_balancer, set())
        if change.action is Action.DEREGISTER:
            targets.discard((change.listener, change.key))
            self._removing_since_s.pop(change.backend_key, None)
        elif change.action is not Action.DRAIN and not change.target.draining:
            targets.add((change.listener, change.key))

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop all servers of a load balancer."""
        self._registered.pop(key, None)
        for backend in [backend for backend in self._removing_since_s if backend.load_balancer == key]:
            del self._removing_since_s[backend]
