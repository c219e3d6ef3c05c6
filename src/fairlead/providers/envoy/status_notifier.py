"""Notifies of load balancers whose ``observe`` would report something else now.

In: hints that something may have changed for a load balancer. Out: one call of ``notify`` for each whose status really
differs from the last one reported, coalesced: a hundred acknowledgements of one load balancer are one comparison.
Comparing takes a third of the time at most, in short turns: a thousand proxies acknowledge one change one by one, and
one proxy acknowledges thousands of load balancers at once.
A push alone is not reported, since its acknowledgement comes within milliseconds; when that does not come, it is
(``expect_ack``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import msgspec

from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed

LATE_S = 5.0
#: Pushes may follow each other without a pause: after so many times ``late_s`` they are compared all the same.
_LONGEST = 12
#: How long comparisons go on before others have their turn, and what is too short for a pause after it, in seconds.
_TURN_S, _SHORT_S = 0.01, 0.002
#: How often late ones are looked for.
_LATE_EVERY_S = 0.1


class StatusNotifier:
    """The last status of each load balancer, and the callbacks for changes."""

    def __init__(self, *, observe: Callable[[LoadBalancerKey], Observed | None], late_s: float = LATE_S) -> None:
        self._observe = observe
        self._late_s = late_s
        self._notify: list[Callable[[LoadBalancerKey], None]] = []
        self._last: dict[LoadBalancerKey, Observed | None] = {}
        self._hints: set[LoadBalancerKey] = set()
        #: When the first push since the last comparison was, and when the next one is due; in the loop's time.
        self._expecting: dict[LoadBalancerKey, tuple[float, float]] = {}
        self._flush_handle: asyncio.Handle | None = None
        #: When the next comparison may begin, in the loop's time.
        self._flush_at_s = 0.0
        self._late_handle: asyncio.TimerHandle | None = None

    def subscribe(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Call ``notify`` with each load balancer whose status changes."""
        self._notify.append(notify)

    def reported(self, key: LoadBalancerKey, status: Observed | None) -> None:
        """Store a status that ``observe`` has returned: later ones are compared with it."""
        if status is None:
            self._last.pop(key, None)
        else:
            self._last[key] = _without_unknown(status)

    def hint(self, keys: Iterable[LoadBalancerKey]) -> None:
        """Compare these soon: in the next round of the event loop, if comparing has taken no time lately."""
        self._hints.update(keys)
        if self._hints and self._flush_handle is None:
            loop = asyncio.get_running_loop()
            due = self._flush_at_s <= loop.time()
            self._flush_handle = loop.call_soon(self._flush) if due else loop.call_at(self._flush_at_s, self._flush)

    def expect_ack(self, key: LoadBalancerKey) -> None:
        """Compare this one ``late_s`` after its last push, in case no acknowledgement comes."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        first_s, _ = self._expecting.get(key, (now_s, now_s))
        self._expecting[key] = (first_s, min(now_s + self._late_s, first_s + _LONGEST * self._late_s))
        if self._late_handle is None:
            self._late_handle = loop.call_later(self._late_s, self._late)

    def close(self) -> None:
        """Call no callback any more."""
        for handle in (self._flush_handle, self._late_handle):
            if handle is not None:
                handle.cancel()
        self._notify.clear()

    def _flush(self) -> None:
        self._flush_handle = None
        # Processor time: what others on the machine take is no reason to wait.
        started_s, took_s = time.thread_time(), 0.0
        while self._hints and took_s < _TURN_S:
            self._compare(self._hints.pop())
            took_s = time.thread_time() - started_s
        if took_s > _SHORT_S:
            self._flush_at_s = asyncio.get_running_loop().time() + 2 * took_s
        self.hint(())

    def _compare(self, key: LoadBalancerKey) -> None:
        seen = self._observe(key)
        now, last = None if seen is None else _without_unknown(seen), self._last.get(key)
        if now == last or (key in self._expecting and _only_pending(now, last)):
            return
        self.reported(key, now)
        for notify in self._notify:
            notify(key)

    def _late(self) -> None:
        """Compare what was pushed some time ago, acknowledged or not."""
        loop = asyncio.get_running_loop()
        self._late_handle = None
        late = [key for key, (_, due_s) in self._expecting.items() if due_s <= loop.time()]
        for key in late:
            del self._expecting[key]
        if self._expecting:
            next_s = min(due_s for _, due_s in self._expecting.values())
            # Thousands of pushes have as many times, and each look is at all of them.
            self._late_handle = loop.call_at(max(next_s, loop.time() + min(_LATE_EVERY_S, self._late_s)), self._late)
        self.hint(late)


def _without_unknown(status: Observed) -> Observed:
    """Return a status without the number of targets of which nothing is known: who changes targets knows that number.

    It would make each change of targets a change of status, with Programmed False until it is acknowledged.
    """
    if status.health is None or not status.health.unknown:
        return status
    return msgspec.structs.replace(status, health=msgspec.structs.replace(status.health, unknown=0))


def _only_pending(now: Observed | None, last: Observed | None) -> bool:
    """Return whether the one difference is that something newer is on its way to the proxies."""
    if now is None or last is None:
        return False
    return now == msgspec.structs.replace(last, programmed=now.programmed, acknowledged=now.acknowledged) and (
        last.programmed and not now.programmed
    )
