"""The pace of status writes: one for each object, and the differences between two statuses that it depends on.

    nothing is decided yet: the first status only awaits an answer      waits ``first_s``, and is most often replaced
    was programmed, and only awaits an answer                           waits ``patience_s``
    a condition awaits its first answer                                 waits ``AWAITED_S``, with the counts next to it
    counts and messages (*progress*)                                    gathered for a moment, at most once a second
    a condition is decided, appears or goes; an address or the
    generation changes                                                  at once

In: the written status and the next one. Out: seconds to wait. Never: a delay of a record, which is written before it is
used, and by other means. What waits when a term ends is left to the next leader, which compares every status.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.api.meta import KubeObject, ObjectKey, Resource, Transition, WireCondition, condition_of
from fairlead.api.names import MANAGER_HUB
from fairlead.kube.cluster import Cluster
from fairlead.kube.status import write_status
from fairlead.kube.writes import Overlay
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import doubled_s
from fairlead.translate.view import says_no_ready

T = TypeVar("T", bound=KubeObject)

#: How long progress is gathered, and how long when a condition awaits its first answer: proxies check twice a second.
SETTLE_S = 0.25
AWAITED_S = 2.0
#: The least time between two writes of progress.
GATHER_S = 1.0
#: How long a status that only awaits an answer is held back: the first one, and a later one.
FIRST_S = 1.0
PATIENCE_S = 5.0
#: So many writes of progress in a minute keep that pace; each further one takes twice as long.
_QUICK_WRITES = 5
_SLOWEST = 16
_WINDOW_S = 60.0

_SEEN = frozenset({ConditionType.PROGRAMMED, ConditionType.SERVING})
_MAY_PASS = frozenset({ConditionReason.PENDING, ConditionReason.NO_PROXY_CONNECTED})
#: Reasons that say only that nothing is known yet.
_AWAITED = _MAY_PASS | {ConditionReason.WAITING_FOR_FIRST_CHECK}
_UNDECIDED = _AWAITED | {ConditionReason.NOT_CHECKED}


def is_passing(old: list[WireCondition] | None, new: list[WireCondition] | None) -> bool:
    """Return whether ``new`` is only the moment until an answer: of a provider, of a proxy, or of the first read-back.

    It is not when nothing is served any more.
    """
    before = condition_of(old, ConditionType.PROGRAMMED)
    return before is not None and before.reason not in _MAY_PASS and awaits(new) and not has_stopped(old, new)


def awaits(conditions: list[WireCondition] | None) -> bool:
    """Return whether it is not programmed only since an answer is awaited."""
    after = condition_of(conditions, ConditionType.PROGRAMMED)
    return after is not None and after.status == "False" and after.reason in _MAY_PASS


def only_seen(old: Any, new: Any) -> bool:
    """Say whether two statuses differ only in what is seen of the provider, and are about one version of the spec."""

    def rest(conditions: list[WireCondition] | None) -> list[WireCondition]:
        return [each for each in conditions or () if each.type not in _SEEN]

    return old.observed_generation == new.observed_generation and rest(old.conditions) == rest(new.conditions)


def has_stopped(old: list[WireCondition] | None, new: list[WireCondition] | None) -> bool:
    """Return whether it serves nothing any more since ``new``; never of one that had no condition Serving before."""
    before, after = (condition_of(conditions, ConditionType.SERVING) for conditions in (old, new))
    return after is not None and after.status == "False" and before is not None and before.status != "False"


def is_without_targets_yet(change: Transition) -> bool:
    """Return whether a condition says that it has no target, of a load balancer that is not known to have had any.

    Its endpoints are written next to it, a moment later.
    """
    reason, before = change.condition.reason, change.before
    if reason == ConditionReason.BACKEND_NOT_FOUND:
        return before is None
    return reason == ConditionReason.NO_TARGETS and (before is None or before.status == "Unknown")


def is_said_by_references(change: Transition, conditions: list[WireCondition] | None) -> bool:
    """Return whether that there is no target has its Event already: no endpoint is ready, which is read first."""
    references = condition_of(conditions, ConditionType.RESOLVED_REFS)
    return (
        change.condition.reason == ConditionReason.NO_TARGETS
        and references is not None
        and says_no_ready(references.reason, references.message)
    )


def is_progress(old: Any, new: Any) -> bool:
    """Return whether two statuses differ only in counts, messages, and conditions that await an answer."""
    if old.observed_generation != new.observed_generation or _addresses(old) != _addresses(new):
        return False
    before = {condition.type: condition for condition in old.conditions or ()}
    after = {condition.type: condition for condition in new.conditions or ()}
    return before.keys() == after.keys() and all(_is_same_or_awaits(before[kind], after[kind]) for kind in after)


def awaits_more(old: Any, new: Any) -> bool:
    """Return whether a condition of ``new`` awaits an answer that it did not await before."""
    awaited = {condition.type: condition.reason for condition in old.conditions or ()}
    return any(
        condition.reason in _AWAITED and awaited.get(condition.type) != condition.reason
        for condition in new.conditions or ()
    )


def _is_same_or_awaits(before: WireCondition, after: WireCondition) -> bool:
    if (before.status, before.reason) == (after.status, after.reason):
        return True
    return before.status != "True" and after.status != "True" and after.reason in _UNDECIDED


def _addresses(status: Any) -> object:
    """Return the addresses that users read in a status; a BackendGroup has none."""
    return getattr(status, "load_balancer", None)


class Pace(msgspec.Struct):
    """When the next status of one object is written; all times are monotonic seconds."""

    #: Since when a status is held back that only awaits an answer, and since when one that shows progress.
    awaits_since_s: float | None = None
    progress_since_s: float | None = None
    written_s: float = -math.inf
    #: The writes of progress since the last quiet minute.
    writes: int = 0

    def wait_s(
        self,
        old: Any,
        new: Any,
        *,
        now_s: float,
        first_s: float = FIRST_S,
        patience_s: float = PATIENCE_S,
        settle_s: float = SETTLE_S,
    ) -> float:
        """Return for how many seconds ``new`` is held back, 0 when it is worth a write now."""
        first = not old.conditions and awaits(new.conditions)
        if first or is_passing(old.conditions, new.conditions):
            if self.awaits_since_s is None:
                self.awaits_since_s = now_s
            return max(0.0, self.awaits_since_s + (first_s if first else patience_s) - now_s)
        self.awaits_since_s = None
        if not is_progress(old, new):
            return 0.0
        if self.progress_since_s is None:
            self.progress_since_s = now_s
        settles_s = self.progress_since_s + (AWAITED_S if awaits_more(old, new) else settle_s)
        return max(0.0, settles_s - now_s, self.written_s + self._gather_s(now_s) - now_s)

    def rest(self) -> None:
        """Note that the written status is the present one: nothing is held back."""
        self.awaits_since_s = self.progress_since_s = None

    def written(self, now_s: float, *, progress: bool) -> None:
        """Note a write; ``progress``: only counts and the like have changed."""
        self.rest()
        self.writes = self.writes + 1 if progress and now_s - self.written_s < _WINDOW_S else int(progress)
        self.written_s = now_s

    def _gather_s(self, now_s: float) -> float:
        """Return the least time between the last write and one of progress."""
        if now_s - self.written_s > _WINDOW_S:
            return GATHER_S
        return doubled_s(self.writes - _QUICK_WRITES + 1, base_s=GATHER_S, limit_s=GATHER_S * _SLOWEST)


class CoalescingWriter(Generic[T]):
    """Writes the statuses of one kind, each at its own pace.

    ``objects`` are those of the cache with our own writes, which the next status is composed from. ``others`` are the
    fields of the status that have another field manager, ``always`` those that are written though they are 0.
    """

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource[T],
        *,
        objects: Overlay[T],
        clock: Clock,
        others: Collection[str] = (),
        always: Collection[str] = (),
        first_s: float = FIRST_S,
        patience_s: float = PATIENCE_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._cluster = cluster
        self._resource = resource
        self._objects = objects
        self._clock = clock
        self._others = others
        self._always = always
        self._first_s = first_s
        self._patience_s = patience_s
        self._settle_s = settle_s
        self._paces: dict[ObjectKey, Pace] = {}

    async def write(self, obj: T, old: Any, new: Any, *, at_least_s: float = 0.0) -> tuple[T | None, float]:
        """Write ``new`` when it differs from ``old``, the status of ``obj``, and is worth a write.

        Returns the object as written, None for no write, and seconds until the status is to be compared again, 0 for
        none. ``at_least_s``: how long a status that differs is held back in any case.
        """
        pace, now_s = self._paces.setdefault(obj.key, Pace()), self._clock.monotonic()
        if new == old or msgspec.to_builtins(new) == msgspec.to_builtins(old):
            pace.rest()
            return None, 0.0
        wait_s = pace.wait_s(
            old, new, now_s=now_s, first_s=self._first_s, patience_s=self._patience_s, settle_s=self._settle_s
        )
        if (wait_s := max(wait_s, at_least_s)) > 0:
            return None, wait_s
        pace.written(now_s, progress=is_progress(old, new))
        answer = await write_status(
            self._cluster,
            self._resource,
            obj,
            old,
            new,
            manager=MANAGER_HUB,
            others=self._others,
            always=self._always,
        )
        return (self._objects.written(answer, before=obj) if answer is not None else None), 0.0

    def forget(self, namespace: str, name: str) -> None:
        """Forget the pace of an object that is gone."""
        self._paces.pop(ObjectKey(namespace, name), None)
