"""Moves the weights of GlobalServices in steps, and stops on errors.

Each step is a write of ``status.shift``, and in force once it is on record: a hub that dies leaves the shift where it
is, and the next one continues. Errors are those that the proxies have counted since the last step, of the load balancer
itself and of all routes to the Services of the members. After a restart they are counted again from zero. No step is
taken before the first count, nor while a proxy does not report, nor while stopOn says nothing of the traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import NamedTuple

import structlog

from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalService, GlobalServiceStatus, GlobalShiftStatus
from fairlead.api.names import MANAGER_SHIFT
from fairlead.hub.intents.intent import Controller, IntentContext
from fairlead.hub.inventory import IntentObjects
from fairlead.kube.lease import check_leads
from fairlead.kube.writes import write_status
from fairlead.model.condition import ConditionReason
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Counted, Totals, added
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.shift import (
    LEAST_ANSWERS,
    Errors,
    begun,
    errors_in,
    gaining,
    in_words,
    next_step,
    step_before,
    unmeasured,
    wait_s,
)

_log = structlog.get_logger(__name__)
#: Errors are looked at this often between two steps.
_LOOK_S = 5.0
#: States of a member that must not gain connections.
_NOT_SERVING = ("Draining", "Down", "Flapping", "Returning", "Dropped", "NoEndpoints", "Missing")


class _Base(NamedTuple):
    """What had been counted at a moment: ``since`` is its time, and stopOn."""

    since: tuple[str, str]
    counted: Mapping[Counted, Totals]


class ErrorCounts:
    """The errors of GlobalServices since a moment, as stopOn counts them.

    ``routes`` returns the backends of routes that one of them shares; ``since`` and ``field`` name the moment and
    stopOn in sentences.
    """

    def __init__(
        self, context: IntentContext, routes: Callable[[LoadBalancerKey], Iterable[Counted]], *, since: str, field: str
    ) -> None:
        self._watched = context.watched
        self._capabilities = context.providers.capabilities
        self._routes = routes
        self._since = since
        self._field = field
        self._base: dict[Hashable, _Base] = {}

    def errors(self, watch: Hashable, obj: GlobalService, stop_on: str, moment: str) -> tuple[Errors | None, str]:
        """Return the errors since ``moment``, None while they are not known; and why they do not become known.

        ``watch`` names who counts them.
        """
        if not stop_on:
            return Errors(), ""
        if problem := self.unable(obj, stop_on):
            return Errors(), problem
        key = LoadBalancerKey(GLOBAL_SERVICES.kind, *obj.key)
        counted = {*self._routes(key), *([Counted(key)] if self._counts_failed(obj) else [])}
        since, base = (moment, stop_on), self._base.get(watch)
        before = base.counted if base is not None and base.since == since else None
        # A route that was deleted meanwhile has been answered all the same.
        now, problem = self._watched.apart(watch, counted.union(before or ())), self._watched.problem()
        waits = f"{self._field}: the errors since the {self._since} are unknown: {problem}" if problem else ""
        if now is not None:
            self._base[watch] = _Base(
                since, {each: before.get(each, Totals()) for each in now} if before is not None else now
            )
        if now is None or before is None:
            return (Errors(), waits) if waits else (None, "")
        grown = [added(before.get(each, Totals()), totals) for each, totals in now.items()]
        if not waits and (problem := unmeasured(grown, stop_on)):
            waits = f"{self._field}: {problem}"
        return errors_in(grown, stop_on), waits

    def unable(self, obj: GlobalService, stop_on: str) -> str:
        """Return why nothing counts what ``stop_on`` is of, empty when something does."""
        if not stop_on or self._counts_failed(obj):
            return ""
        what = f"{self._field}: the class of the GlobalService does not count failed connections"
        if stop_on.startswith("failed"):
            return f"{what}; use 5xx, or none"
        if any(self._routes(LoadBalancerKey(GLOBAL_SERVICES.kind, *obj.key))):
            return ""
        return f"{what}, and no route to the Services of its members counts 5xx; use a class with provider envoy"

    def _counts_failed(self, obj: GlobalService) -> bool:
        capabilities = self._capabilities.get(obj.status.serving_provider)
        return capabilities is None or capabilities.localities

    def forget(self, watch: Hashable) -> None:
        """Count no longer."""
        self._base.pop(watch, None)
        self._watched.forget(watch)


class Shifts:
    """The shifts of all GlobalServices; ``counted`` returns whose answers over HTTP count for one of them."""

    def __init__(
        self,
        context: IntentContext,
        objects: IntentObjects[GlobalService],
        counted: Callable[[LoadBalancerKey], Iterable[Counted]],
    ) -> None:
        self._context = context
        self._objects = objects
        self._errors = ErrorCounts(context, counted, since="last step", field="spec.shift.stopOn")
        self._queue: KeyedQueue[LoadBalancerKey] = KeyedQueue(clock=context.clock)
        #: Since when errors are judged, and the percent moved before: steps with few answers are judged together.
        self._judged: dict[LoadBalancerKey, tuple[str, int]] = {}

    def controller(self) -> Controller:
        """Return the controller that takes the steps."""
        return Controller("global-shift", self._queue, self.step)

    def note(self, obj: GlobalService) -> None:
        """Have an object looked at whose shift may have begun or ended."""
        if obj.spec.shift is not None:
            self._queue.add(self._objects.key(obj))

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop the state of a load balancer that is to be removed."""
        self._queue.forget(key)
        self._errors.forget(key)
        self._judged.pop(key, None)

    async def begin(self, obj: GlobalService) -> GlobalService:
        """Record where the shift to the spec of ``obj`` begins, before its spec is on record; return the object."""
        shift = begun(obj.spec, obj.status)
        if shift.members != obj.status.shift.members:
            # The percent that is judged is of other shares.
            self._judged.pop(self._objects.key(obj), None)
        return await self._write(obj, shift)

    async def step(self, key: LoadBalancerKey) -> float | None:
        """Take the next step if it is due; return the seconds until the key is due again, None at the end."""
        obj = self._objects.get(key)
        if obj is None or obj.spec.shift is None or not self._context.may_write(key):
            return None
        wanted, shift = obj.spec.shift, obj.status.shift
        if begun(obj.spec, obj.status) != shift:
            return _LOOK_S  # The spec is newer than the record: its shift begins with that.
        if shift.state != "Shifting":
            self.forget(key)
            return None
        if not gaining(shift) <= {member.tenant for member in obj.status.members or ()}:
            return _LOOK_S  # The status is older than the list of members: whether one of them serves is unknown.
        moment, back_to = self._judged.get(key, (shift.stepped_at, step_before(wanted, shift)))
        errors, waits = self._errors.errors(key, obj, wanted.stop_on, moment)
        if errors is None:
            return _LOOK_S
        now = self._context.clock.now()
        waits = waits or _why_waiting(obj, shift)
        after = next_step(wanted, shift, now=now, errors=errors, waits=waits, back_to=back_to)
        if after != shift:
            if after.stepped_at != shift.stepped_at:
                if not shift.stepped_at or errors.answers >= LEAST_ANSWERS:
                    moment, back_to = after.stepped_at, shift.moved
                self._judged[key] = moment, back_to
            await self._write(obj, after)
            self._context.inventory.wake([key], f"the weights of the members: {in_words(after) or 'all is moved'}")
            _log.info("shift", load_balancer=str(key), state=after.state, moved=after.moved, message=after.message)
        if after.state == "Stopped":
            self._context.events.emit_about(
                GLOBAL_SERVICES, obj, warning=True, reason=ConditionReason.SHIFT_STOPPED, message=after.message
            )
        if after.state != "Shifting":
            return None
        due_s = max(0.1, wait_s(wanted, after, now=now))
        return min(_LOOK_S, due_s) if wanted.stop_on or after.message else due_s

    async def _write(self, obj: GlobalService, shift: GlobalShiftStatus) -> GlobalService:
        old, new = GlobalServiceStatus(shift=obj.status.shift), GlobalServiceStatus(shift=shift)
        check_leads(self._context.leading, f"GlobalService {obj.key}")
        cluster = self._context.cluster
        answer = await write_status(cluster, GLOBAL_SERVICES, obj, old, new, manager=MANAGER_SHIFT)
        return self._objects.present.written(answer, before=obj) if answer is not None else obj


def _why_waiting(obj: GlobalService, shift: GlobalShiftStatus) -> str:
    """Return which member that gains connections does not serve, empty when all do; also while the object is paused."""
    gains = gaining(shift)
    for member in obj.status.members or ():
        if member.state == "Drilled":
            return f"waits for {member.tenant}, which is {member.message}"
        if member.tenant in gains and member.state in _NOT_SERVING:
            return f"waits for {member.tenant}, which is {member.state}"
    if any(condition.type == "Paused" and condition.status == "True" for condition in obj.status.conditions or ()):
        return "waits until the load balancer is no longer paused"
    return ""
