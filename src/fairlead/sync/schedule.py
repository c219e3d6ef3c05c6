"""The time at which each load balancer is due again although nothing has changed.

    plan              when a later plan can differ: a drain ends, a guard allows more
    InProgress        after POLL_S, or the delay that the provider asks for
    Failed            with exponential backoff, or the delay that the provider asks for
    UnexpectedError   after BUG_RETRY_S at the least

In: plans and results. Out: the keys that are due, and when the next one will be. Times are monotonic seconds.
Never: an earlier call after a failure because of a guard's interval.
"""

from __future__ import annotations

from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import BUG_RETRY_S
from fairlead.runtime.queue import backoff_s
from fairlead.sync.result import Failed, Finished, InProgress, Result, UnexpectedError

#: The least time between two questions about something that is under way.
POLL_S = 0.1


class Schedule:
    """The load balancers of one worker that are due at some time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_at_s: dict[LoadBalancerKey, float] = {}
        self._failures: dict[LoadBalancerKey, int] = {}
        #: Counts the runs that failed.
        self.retries = 0

    @property
    def failing(self) -> int:
        """Return how many load balancers wait for a retry."""
        return len(self._failures)

    @property
    def next_s(self) -> float | None:
        """Return in how many seconds the next one is due, None when none is."""
        if not self._due_at_s:
            return None
        return max(0.0, min(self._due_at_s.values()) - self._clock.monotonic())

    def take_due(self) -> list[LoadBalancerKey]:
        """Hand over the keys that are due now."""
        now_s = self._clock.monotonic()
        due = [key for key, at_s in self._due_at_s.items() if at_s <= now_s]
        for key in due:
            del self._due_at_s[key]
        return due

    def planned(self, key: LoadBalancerKey, at_s: float | None) -> None:
        """Set when a later plan can differ; None: only after a change, which cancels an earlier time."""
        if at_s is None:
            self._due_at_s.pop(key, None)
        else:
            self.add(key, at_s)

    def add(self, key: LoadBalancerKey, at_s: float) -> None:
        """Have ``key`` due at ``at_s``, or before when it is already."""
        self._due_at_s[key] = min(at_s, self._due_at_s.get(key, at_s))

    def ended(self, key: LoadBalancerKey, result: Result, *, drained_s: float | None) -> None:
        """Note how carrying out a plan ended; ``drained_s`` is when the next drain of ``key`` ends."""
        match result:
            case Finished():
                self._failures.pop(key, None)
            case InProgress(after_s):
                self._failures.pop(key, None)
                self._again(key, max(POLL_S, after_s), drained_s)
            case Failed(after_s=after_s):
                self._again(key, max(self._pause_s(key), after_s), drained_s)
            case UnexpectedError():
                self._again(key, max(self._pause_s(key), BUG_RETRY_S), drained_s)

    def _pause_s(self, key: LoadBalancerKey) -> float:
        self.retries += 1
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return backoff_s(failures)

    def _again(self, key: LoadBalancerKey, after_s: float, drained_s: float | None) -> None:
        """Schedule ``key`` for when the provider may be called again, not earlier for a guard."""
        self._due_at_s.pop(key, None)
        self.planned(key, drained_s)
        self.add(key, self._clock.monotonic() + after_s)
