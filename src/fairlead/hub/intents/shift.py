"""Moves the weights of GlobalServices in steps, and stops on errors.

Each step is a write of ``status.shift``, and takes effect once it is recorded: if the hub dies, the shift pauses there,
and the next hub continues. A second write begins the time of the step, once all connected proxies have its weights;
until then errors count for the steps before it. Errors are those that the proxies have counted, of the load balancer
itself and of all routes to the Services of the members. After a restart they are counted again from zero. No step is
taken before the first count, nor while a proxy does not report, nor while stopOn says nothing of the traffic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import NamedTuple

import structlog

from fairlead.api.globalservice import (
    GLOBAL_SERVICES,
    GlobalService,
    GlobalServiceStatus,
    GlobalShift,
    GlobalShiftStatus,
)
from fairlead.api.intent import IntentObject
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
    is_unapplied,
    next_step,
    step_before,
    unmeasured,
    wait_s,
)

_log = structlog.get_logger(__name__)
#: How often errors are checked between two steps.
_LOOK_S = 5.0
#: How often proxies that lack the weights of a step are checked.
_APPLY_S = 1.0
#: States of a member that must not gain connections.
_NOT_SERVING = ("Draining", "Down", "Flapping", "Returning", "Dropped", "NoEndpoints", "Missing")


class _Base(NamedTuple):
    """The counts at a moment: ``since`` is its time, and stopOn."""

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
        # The requests of a route that was deleted meanwhile still count.
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
        """Return why the errors of ``stop_on`` cannot be counted; empty if they can."""
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
        """Stop counting."""
        self._base.pop(watch, None)
        self._watched.forget(watch)


class Shifts:
    """The shifts of all GlobalServices.

    ``counted`` returns whose answers over HTTP count for one of them, and ``unapplied`` why not all connected proxies
    have the weights on record, empty when they have.
    """

    def __init__(
        self,
        context: IntentContext,
        objects: IntentObjects[GlobalService],
        counted: Callable[[LoadBalancerKey], Iterable[Counted]],
        unapplied: Callable[[LoadBalancerKey], Awaitable[str]],
    ) -> None:
        self._context = context
        self._objects = objects
        self._unapplied = unapplied
        self._errors = ErrorCounts(context, counted, since="last step", field="spec.shift.stopOn")
        self._queue: KeyedQueue[LoadBalancerKey] = KeyedQueue(clock=context.clock)
        #: Since when errors are judged, and the percent moved before: steps with few answers are judged together.
        self._judged: dict[LoadBalancerKey, tuple[str, int]] = {}
        #: The percent moved before the last step.
        self._before: dict[LoadBalancerKey, int] = {}

    def controller(self) -> Controller:
        """Return the controller that takes the steps."""
        return Controller("global-shift", self._queue, self.step)

    def note(self, obj: GlobalService) -> None:
        """Enqueue an object whose shift may have begun or ended."""
        if obj.spec.shift is not None:
            self._queue.add(self._objects.key(obj))

    def lead(self) -> None:
        """Continue all shifts from the last leader's records."""
        self._judged.clear()
        self._before.clear()
        for obj in self._objects.served():
            self.note(obj)

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop the state of a load balancer that is to be removed."""
        self._queue.forget(key)
        self._errors.forget(key)
        self._forget_steps(key)

    async def begin(self, obj: GlobalService) -> GlobalService:
        """Record where the shift to the spec of ``obj`` begins, before its spec is on record; return the object."""
        shift = begun(obj.spec, obj.status)
        if shift.members != obj.status.shift.members:
            # The evaluated percentage refers to other shares.
            self._forget_steps(self._objects.key(obj))
        return await self._write(obj, shift)

    def _forget_steps(self, key: LoadBalancerKey) -> None:
        self._judged.pop(key, None)
        self._before.pop(key, None)

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
        before = self._before.get(key, step_before(wanted, shift))
        moment, back_to = self._judged.get(key, (shift.stepped_at or f"{shift.moved} % moved", before))
        errors, waits = self._errors.errors(key, obj, wanted.stop_on, moment)
        if errors is None and not is_unapplied(shift):
            return _LOOK_S
        errors = errors or Errors()
        unapplied = await self._why_unapplied(key, obj, wanted)
        newest = self._objects.get(key)
        if newest is None or (newest.spec, newest.status.shift) != (obj.spec, shift):
            return _APPLY_S  # The object has changed meanwhile.
        now, waits = self._context.clock.now(), waits or _why_waiting(obj, shift)
        after = next_step(wanted, shift, now=now, errors=errors, waits=waits, unapplied=unapplied, back_to=back_to)
        if after.moved > shift.moved:
            self._before[key] = shift.moved
            if shift.stepped_at:
                self._judged.setdefault(key, (moment, back_to))
        elif after.stepped_at != shift.stepped_at:
            if key not in self._judged or errors.answers >= LEAST_ANSWERS:
                self._judged[key] = after.stepped_at, before
            self._errors.errors(key, obj, wanted.stop_on, self._judged[key][0])
        await self._put(key, obj, after)
        if after.state != "Shifting":
            return None
        if unapplied or is_unapplied(after):
            return _APPLY_S
        due_s = max(0.1, wait_s(wanted, after, now=now))
        return min(_LOOK_S, due_s) if wanted.stop_on or after.message else due_s

    async def _why_unapplied(self, key: LoadBalancerKey, obj: GlobalService, wanted: GlobalShift) -> str:
        """Return why not all connected proxies have the weights in force, empty when they have, or no step is due."""
        shift = obj.status.shift
        if not is_unapplied(shift) and wait_s(wanted, shift, now=self._context.clock.now()) > 0:
            return ""
        if paused := why_paused(obj):
            return paused
        if why := await self._unapplied(key):
            return f"waits until all connected proxies have the weights: {why}"
        if is_unapplied(shift) and wanted.stop_on:
            # What was counted until now is of the steps before.
            await self._context.watched.read()
        return ""

    async def _put(self, key: LoadBalancerKey, obj: GlobalService, after: GlobalShiftStatus) -> None:
        """Record a changed shift, and serve its weights."""
        shift = obj.status.shift
        if after == shift:
            return
        await self._write(obj, after)
        if (after.moved, after.state) != (shift.moved, shift.state):
            self._context.inventory.wake([key], f"the weights of the members: {in_words(after) or 'all is moved'}")
        _log.info("shift", load_balancer=str(key), state=after.state, moved=after.moved, message=after.message)
        if after.state == "Stopped":
            self._context.events.emit_about(
                GLOBAL_SERVICES, obj, warning=True, reason=ConditionReason.SHIFT_STOPPED, message=after.message
            )

    async def _write(self, obj: GlobalService, shift: GlobalShiftStatus) -> GlobalService:
        old, new = GlobalServiceStatus(shift=obj.status.shift), GlobalServiceStatus(shift=shift)
        check_leads(self._context.leading, f"GlobalService {obj.key}")
        cluster = self._context.cluster
        answer = await write_status(cluster, GLOBAL_SERVICES, obj, old, new, manager=MANAGER_SHIFT)
        return self._objects.present.written(answer, before=obj) if answer is not None else obj


def _why_waiting(obj: GlobalService, shift: GlobalShiftStatus) -> str:
    """Return the member that would gain connections and does not serve; empty if all serve."""
    gains = gaining(shift)
    for member in obj.status.members or ():
        if member.state == "Drilled":
            return f"waits for {member.tenant}, which is {member.message}"
        if member.tenant in gains and member.state in _NOT_SERVING:
            return f"waits for {member.tenant}, which is {member.state}"
    return ""


def why_paused(obj: IntentObject) -> str:
    """Return that ``obj`` is paused, empty when it is not."""
    if any(condition.type == "Paused" and condition.status == "True" for condition in obj.status.conditions or ()):
        return "waits until the load balancer is no longer paused"
    return ""
