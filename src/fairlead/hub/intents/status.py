"""The status of intents: conditions, addresses, counts and Events, written only when they differ.

    translation ─┐
    report      ─┼─► conditions ─► status ─► one write, Events about what changed
    observation ─┘

A load balancer that was programmed is not called unprogrammed for the moment that a change takes to be acknowledged:
a worse status that may pass waits ``patience_s``; counts are gathered for ``gather_s``. In: what was translated, what
the worker reported, what providers hold. Never: a write while another replica leads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from fairlead.api.intent import IntentObject
from fairlead.api.meta import WireCondition
from fairlead.api.times import wire_time
from fairlead.hub.intents.conditions import build_conditions
from fairlead.hub.inventory import IntentObjects
from fairlead.hub.providers.observe import observed_of
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.providers.runner import DurableRunner
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue
from fairlead.sync.readback import Drift
from fairlead.sync.report import Report
from fairlead.translate.protection import is_leaving
from fairlead.translate.view import Translation

#: After that long the cache is right, even if it never showed our very write (a relist skips versions).
_CACHE_LAG_S = 5.0

Obj = TypeVar("Obj", bound=IntentObject)
T = TypeVar("T", bound=Translation)
T_contra = TypeVar("T_contra", bound=Translation, contravariant=True)


class StatusRules(Protocol[Obj, T_contra]):
    """What is particular to the status of one kind of intent."""

    #: Whether a load balancer without an address is programmed.
    needs_address: bool
    #: Seconds that a worse status is waited out, and that counts are gathered, before they are written.
    patience_s: float
    gather_s: float

    def compose(
        self, obj: Obj, translation: T_contra, conditions: list[WireCondition], observed: Observed | None
    ) -> Any:
        """Return the status of ``obj``; what other writers own is as it is in ``obj``."""
        ...

    def is_count(self, old: Any, new: Any) -> bool:
        """Say whether two statuses differ in counts only."""
        ...

    async def write(self, obj: Obj, status: Any) -> Obj:
        """Write ``status`` without what other writers own; returns the object as written."""
        ...

    def with_status(self, obj: Obj, written: Obj) -> Obj:
        """Return ``obj`` with the status of ``written``, but for what other writers own."""
        ...

    def announce(self, obj: Obj, status: Any, changed: list[WireCondition], report: Report | None) -> None:
        """Emit Events about the conditions whose status or reason changed."""
        ...

    def reported(self, obj: Obj, report: Report) -> None:
        """Emit Events about what the worker did."""
        ...


class _Known(msgspec.Struct, Generic[T]):
    """What is known of one load balancer since this process started."""

    translation: T
    waiting_for: str = ""
    report: Report | None = None
    #: Since when (monotonic seconds) a worse status than the written one is being waited out.
    worse_since_s: float | None = None
    written_at_s: float = 0.0
    #: What was written last, until the cache shows it: the next status is composed from it.
    written: Any = None


class StatusWriter(Generic[Obj, T]):
    """Writes what is known of each load balancer of one kind into its object."""

    def __init__(
        self,
        *,
        objects: IntentObjects[Any],
        rules: StatusRules[Any, T],
        providers: ProviderRegistry,
        clock: Clock,
        leading: Callable[[], bool],
        queue: KeyedQueue[LoadBalancerKey],
    ) -> None:
        self._objects = objects
        self._rules = rules
        self._providers = providers
        self._clock = clock
        self._leading = leading
        self._queue = queue
        self._known: dict[LoadBalancerKey, _Known[T]] = {}
        objects.cache.on_change(self._object_changed)

    def translation(self, key: LoadBalancerKey) -> T | None:
        """Return what was translated last, without its ``desired``; None when ``key`` is unknown."""
        known = self._known.get(key)
        return known.translation if known is not None else None

    def publish(self, key: LoadBalancerKey, translation: T, waiting_for: str = "") -> bool:
        """Take over what was translated, without its targets; returns whether it differs from the last one.

        ``waiting_for``: its provider does not serve yet; the address that users know stays until then.
        """
        known = self._known.get(key)
        said = msgspec.structs.replace(translation, desired=None)
        if known is None:
            self._known[key] = _Known(said, waiting_for)
        elif (known.translation, known.waiting_for) == (said, waiting_for):
            return False
        else:
            if known.translation.provider != said.provider:
                known.report = None
            known.translation, known.waiting_for = said, waiting_for
        self._queue.add(key)
        return True

    def report(self, report: Report) -> None:
        """Take over what the worker did."""
        key = report.load_balancer
        known, obj = self._known.get(key), self._objects.get(key)
        if obj is not None:
            self._rules.reported(obj, report)
        if known is None or report.provider not in ("", known.translation.provider):
            return
        known.report = report
        self._queue.add(key)

    def refresh(self, key: LoadBalancerKey | None = None) -> None:
        """Compare the status of ``key``, None for every key, with what it should be."""
        for each in (key,) if key is not None else self._known:
            self._queue.add(each)

    def forget(self, key: LoadBalancerKey) -> None:
        """Write nothing more for ``key``."""
        self._known.pop(key, None)
        self._queue.forget(key)

    async def write(self, key: LoadBalancerKey) -> float | None:
        """Write the status of ``key`` when it differs; returns seconds until it is to be compared again."""
        known, obj = self._known.get(key), self._objects.get(key)
        if known is None or obj is None or is_leaving(obj) or not self._leading():
            return None
        observed, drift = await self._observe(key, obj, known.translation.provider)
        conditions = build_conditions(
            known.translation,
            known.report,
            observed,
            drift,
            needs_address=self._rules.needs_address,
            waiting_for=known.waiting_for,
        )
        obj = self._as_written(known, obj)
        old = obj.status
        wire = wire_conditions(obj, conditions, wire_time(self._clock.now()))
        new = self._rules.compose(obj, known.translation, wire, observed)
        if new == old or msgspec.to_builtins(new) == msgspec.to_builtins(old):
            known.worse_since_s = None
            return None
        wait_s = self._wait_s(known, old, new)
        if wait_s > 0:
            return wait_s
        known.worse_since_s = None
        known.written_at_s = self._clock.monotonic()
        known.written = await self._rules.write(obj, new)
        self._rules.announce(obj, new, changed_conditions(old.conditions, new.conditions), known.report)
        return None

    async def _observe(
        self, key: LoadBalancerKey, obj: IntentObject, provider: str
    ) -> tuple[Observed | None, Drift | None]:
        runner = self._providers.get(provider)
        if runner is None:
            return None, None
        observed = await observed_of(runner, key, obj.status.frontend_of(provider))
        if not isinstance(runner, DurableRunner):
            return observed, None
        unread = observed is not None and not observed.addresses and key not in runner.readback.seen
        if unread and self._rules.needs_address:
            observed = None  # its address has not been read back yet
        return observed, runner.readback.drifts.get(key)

    def _as_written(self, known: _Known[T], obj: Any) -> Any:
        """Return ``obj`` as we wrote it last, while the cache may not show that yet."""
        written = known.written
        if written is None or written.metadata.uid != obj.metadata.uid:
            return obj
        recent = self._clock.monotonic() - known.written_at_s < _CACHE_LAG_S
        return self._rules.with_status(obj, written) if recent else obj

    def _wait_s(self, known: _Known[T], old: Any, new: Any) -> float:
        """Return how long to wait before ``new`` is worth a write, 0 for now."""
        now_s = self._clock.monotonic()
        if self._rules.patience_s and _is_passing(old.conditions, new.conditions):
            if known.worse_since_s is None:
                known.worse_since_s = now_s
            return known.worse_since_s + self._rules.patience_s - now_s
        known.worse_since_s = None
        if self._rules.gather_s and self._rules.is_count(old, new):
            return max(0.0, known.written_at_s + self._rules.gather_s - now_s)
        return 0.0

    def _object_changed(self, _old: Any, new: Any) -> None:
        """Compare with what the cache shows now: other writers may have changed the status."""
        if new is None:
            return
        key = self._objects.key(new)
        known = self._known.get(key)
        if known is None:
            return
        if known.written is not None and known.written.metadata.resource_version == new.metadata.resource_version:
            known.written = None
        self._queue.add(key)


def wire_conditions(obj: Any, conditions: list[Condition], now: str) -> list[WireCondition]:
    """Return conditions as they are written; the time of each is that of the last change of its status."""
    known = {condition.type: condition for condition in obj.status.conditions or ()}
    return [
        wire_condition(condition, known.get(condition.type), obj.metadata.generation, now) for condition in conditions
    ]


def wire_condition(condition: Condition, old: WireCondition | None, generation: int, now: str) -> WireCondition:
    """Return a condition as it is written; its time is that of the last change of its status."""
    status = "True" if condition.status else "False"
    since = old.last_transition_time if old is not None and old.status == status else now
    return WireCondition(
        type=condition.type.value,
        status=status,
        reason=condition.reason.value,
        message=condition.message,
        observed_generation=generation,
        last_transition_time=since,
    )


def changed_conditions(old: list[WireCondition] | None, new: list[WireCondition] | None) -> list[WireCondition]:
    """Return those of ``new`` that are new, or have another status or reason than in ``old``."""
    known = {condition.type: (condition.status, condition.reason) for condition in old or ()}
    return [one for one in new or () if known.get(one.type) != (one.status, one.reason)]


def _is_passing(old: list[WireCondition] | None, new: list[WireCondition] | None) -> bool:
    """Say whether ``new`` is only the moment between a change and its acknowledgement, or a proxy reconnecting."""
    before = next((one for one in old or () if one.type == ConditionType.PROGRAMMED), None)
    after = next((one for one in new or () if one.type == ConditionType.PROGRAMMED), None)
    return (
        before is not None
        and before.status == "True"
        and after is not None
        and after.status == "False"
        and after.reason in (ConditionReason.PENDING, ConditionReason.NO_PROXY_CONNECTED)
    )
