"""The state that a provider keeps in memory for each of its load balancers, and those it has released.

In: states, put and released by the provider. Out: the state of a load balancer, or the outcome of a change whose load
balancer has none. Nothing here is durable: after a restart the states come back from the ledger (``restore``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from fairlead.errors import Retry
from fairlead.model.change import DONE, Outcome, OutcomeStatus, TargetChange
from fairlead.model.keys import LoadBalancerKey

State = TypeVar("State")

_MAX_RELEASED = 4096


class LoadBalancerStates(Mapping[LoadBalancerKey, State]):
    """The states by load balancer; also the last 4096 keys that were released, oldest first."""

    def __init__(self) -> None:
        self._states: dict[LoadBalancerKey, State] = {}
        self._released: dict[LoadBalancerKey, None] = {}

    def __getitem__(self, key: LoadBalancerKey) -> State:
        return self._states[key]

    def __iter__(self) -> Iterator[LoadBalancerKey]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def put(self, key: LoadBalancerKey, state: State) -> None:
        """Store the state of ``key``, which so is no longer a released one."""
        self._states[key] = state
        self._released.pop(key, None)

    def release(self, key: LoadBalancerKey) -> None:
        """Drop the state of ``key``, and remember that nothing of ours is left on it."""
        self._states.pop(key, None)
        self._released[key] = None
        while len(self._released) > _MAX_RELEASED:
            del self._released[next(iter(self._released))]

    def outcome_without(self, change: TargetChange, missing: str) -> Outcome:
        """Return the outcome of a change whose load balancer cannot be called yet; ``missing`` says what it lacks.

        A removal is ``DONE`` only where the load balancer was released by this process: what another process may have
        registered must not be called removed.
        """
        if change.is_removal and change.load_balancer in self._released and change.load_balancer not in self._states:
            return DONE
        return Outcome(OutcomeStatus.RETRY, f"{change.key}: {change.load_balancer} {missing}; it is tried again")


def outcome_from_error(error: Retry) -> Outcome:
    """Return the outcome of a change whose own call failed, with the delay that the other side asked for."""
    return Outcome(OutcomeStatus.RETRY, error.sentence, error.after_s or 0.0)
