"""Delays of changes of the condition Serving: shown at once, or once they have lasted.

    serving ──► not serving      shown at once
    not serving ──► serving      shown at once; when it has changed too often, once it has lasted
    known ──► not known          a proxy or the hub that starts again takes a moment: what was known stays for so long,
                                 unless what is seen now shows that it is wrong

In: the Serving condition as it is seen now, the one that was written last, the time. Out: the one to show, and in how
many seconds that may be another one. No clock of its own, no input or output.
"""

from __future__ import annotations

import msgspec

from fairlead.api.meta import WireCondition
from fairlead.model.condition import Condition, ConditionReason, ConditionType, reason_from
from fairlead.runtime.queue import doubled_s

#: So many changes in so many seconds are flapping; better news then has to last.
FLAPS = 3
WINDOW_S = 60.0
STABLE_S = 15.0
#: For so long what was known stays, when nothing is known any more.
UNKNOWN_S = 10.0
#: So many writes of counts go as fast as they may; after each further one in a minute they take twice as long.
_QUICK_COUNTS = 5
_SLOWEST = 16

#: These have lasted already, or stay.
_AT_ONCE = (ConditionReason.NOT_CHECKED, ConditionReason.PROXIES_SILENT, ConditionReason.SOME_BACKENDS_UNHEALTHY)

_HELD = Condition(
    ConditionType.SERVING,
    False,
    ConditionReason.FLAPPING,
    f"its targets change between healthy and unhealthy; it is serving again after {STABLE_S:g} s healthy",
)
_STATUS = {"True": True, "False": False}


class Damping(msgspec.Struct):
    """The recent changes of one load balancer."""

    seen: bool | None = None
    since_s: float = 0.0
    changes_s: list[float] = []
    unknown_since_s: float | None = None
    counts: int = 0
    counted_s: float = 0.0

    def shown(self, now: Condition, written: WireCondition | None, *, now_s: float) -> tuple[Condition, float]:
        """Return the condition to show, and seconds until it may be another one; 0 for never."""
        before = _STATUS.get(written.status) if written is not None else None
        if now.status is None:
            return self._unknown(now, written if before is not None else None, now_s)
        self.unknown_since_s = None
        if now.status is not self.seen:
            # What an earlier process has written counts as what was seen before.
            if (self.seen if self.seen is not None else before) is (not now.status):
                self.changes_s.append(now_s)
            self.seen, self.since_s = now.status, now_s
        self.changes_s = [at_s for at_s in self.changes_s if now_s - at_s < WINDOW_S]
        if len(self.changes_s) < FLAPS or before is not False:
            return now, 0.0
        if now.status:
            left_s = self.since_s + STABLE_S - now_s
            return (_HELD, left_s) if left_s > 0 else (now, 0.0)
        held = written is not None and written.reason == _HELD.reason
        return (_HELD, self.changes_s[0] + WINDOW_S - now_s) if held else (now, 0.0)

    def gather_s(self, least_s: float, *, now_s: float) -> float:
        """Return how long after the last write a change of counts is worth the next one."""
        if now_s - self.counted_s > WINDOW_S:
            self.counts = 0
        return doubled_s(self.counts - _QUICK_COUNTS + 1, base_s=least_s, limit_s=least_s * _SLOWEST)

    def counted(self, *, now_s: float) -> None:
        """Take note that counts were written."""
        self.counts, self.counted_s = self.counts + 1, now_s

    def _unknown(self, now: Condition, written: WireCondition | None, now_s: float) -> tuple[Condition, float]:
        reason = reason_from(written.reason) if written is not None else None
        # The reason of a newer release is not ours to repeat.
        if written is None or reason is None or now.reason in _AT_ONCE or self._is_refuted(written, now):
            return now, 0.0
        if self.unknown_since_s is None:
            self.unknown_since_s = now_s
        left_s = self.unknown_since_s + UNKNOWN_S - now_s
        if left_s <= 0:
            return now, 0.0
        kept = Condition(now.type, _STATUS[written.status], reason, written.message)
        return kept, left_s

    def _is_refuted(self, written: WireCondition, now: Condition) -> bool:
        """Return whether ``written`` is wrong by now: targets that wait for their check are there, healthy ones too."""
        if written.status != "False" or len(self.changes_s) >= FLAPS:
            return False
        waiting = now.reason is ConditionReason.WAITING_FOR_FIRST_CHECK and written.reason == ConditionReason.NO_TARGETS
        return waiting or now.reason is ConditionReason.NOT_PROGRAMMED
