"""Whose ``observe`` would answer differently now?

In: hints that something may have changed for a load balancer. Out: one call of ``notify`` for each that really answers
differently than the last time, coalesced: a hundred acknowledgements of one load balancer are one comparison.
A push alone is no news, since its acknowledgement comes within milliseconds; when that does not come, it is
(``watch``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed

LATE_S = 5.0


class Answers:
    """The last answers, and who is to be told of new ones."""

    def __init__(self, *, observe: Callable[[LoadBalancerKey], Observed | None], late_s: float = LATE_S) -> None:
        self._observe = observe
        self._late_s = late_s
        self._notify: list[Callable[[LoadBalancerKey], None]] = []
        self._last: dict[LoadBalancerKey, Observed | None] = {}
        self._hints: set[LoadBalancerKey] = set()
        self._watched: set[LoadBalancerKey] = set()
        self._flush_handle: asyncio.Handle | None = None
        self._late_handle: asyncio.TimerHandle | None = None

    def subscribe(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Add somebody to be told."""
        self._notify.append(notify)

    def gave(self, key: LoadBalancerKey, answer: Observed | None) -> None:
        """Take note of an answer that somebody got by asking: from now on news is what differs from that."""
        if answer is None:
            self._last.pop(key, None)
        else:
            self._last[key] = answer

    def hint(self, keys: Iterable[LoadBalancerKey]) -> None:
        """Compare these soon."""
        self._hints.update(keys)
        if self._hints and self._flush_handle is None:
            self._flush_handle = asyncio.get_running_loop().call_soon(self._flush)

    def watch(self, key: LoadBalancerKey) -> None:
        """Compare this one later, in case nothing is heard of it."""
        self._watched.add(key)
        if self._late_handle is None:
            self._late_handle = asyncio.get_running_loop().call_later(self._late_s, self._late)

    def close(self) -> None:
        """Tell nobody any more."""
        for handle in (self._flush_handle, self._late_handle):
            if handle is not None:
                handle.cancel()
        self._notify.clear()

    def _flush(self) -> None:
        self._flush_handle = None
        hints, self._hints = self._hints, set()
        for key in hints:
            now, last = self._observe(key), self._last.get(key)
            if now == last:
                continue
            if key in self._watched and _only_pending(now, last):
                continue
            self.gave(key, now)
            for notify in self._notify:
                notify(key)

    def _late(self) -> None:
        """Compare what was watched, however it stands now."""
        self._late_handle = None
        watched, self._watched = self._watched, set()
        self.hint(watched)


def _only_pending(now: Observed | None, last: Observed | None) -> bool:
    """Say whether the one difference is that something newer is on its way to the proxies."""
    if now is None or last is None:
        return False
    return now == msgspec.structs.replace(last, programmed=now.programmed, acknowledged=now.acknowledged) and (
        last.programmed and not now.programmed
    )
