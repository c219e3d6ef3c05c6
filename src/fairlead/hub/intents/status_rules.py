"""Rules of one kind of intent for its status: the conditions that compose it, and its Events.

In: an object, its translation, conditions, what its provider holds. Out: a status, and the write of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.api.intent import IntentObject
from fairlead.api.kubernetes import Ingress, LoadBalancerStatus
from fairlead.api.meta import Resource, Transition, WireCondition, condition_of, is_taken_over, transitions
from fairlead.api.names import MANAGER_HUB
from fairlead.hub.intents.conditions import ingress_of
from fairlead.hub.intents.status_changes import is_said_by_references, is_without_targets_yet, uncounted
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.status import emit_transitions, write_status
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.model.observed import Observed
from fairlead.sync.report import Report
from fairlead.translate.view import Translation

Obj = TypeVar("Obj", bound=IntentObject)
T = TypeVar("T", bound=Translation)


class StatusRules(Generic[Obj, T]):
    """What is particular to the status of one kind of intent; a subclass overrides what differs.

    ``needs_address``: without an address it is not programmed; ``needs_all_targets``: nor without all of its targets.
    ``patience_s``: how long a worse status is waited out, ``first_s``: how long a first one that says only that an
    answer is awaited, ``gather_s``: how long ``counts`` are gathered, before they are written. ``owned_elsewhere``: the
    fields of the status that have another field manager; they are read, and never written.
    """

    needs_address = True
    needs_all_targets = False
    patience_s = 5.0
    first_s = 0.0
    gather_s = 1.0
    counts: tuple[str, ...] = ("unhealthy_targets",)
    owned_elsewhere: tuple[str, ...] = ("allocation", "provisioned", "frontend")

    def __init__(self, *, cluster: Cluster, events: EventRecorder, resource: Resource[Obj]) -> None:
        self._cluster = cluster
        self._events = events
        self._resource = resource

    def compose(self, obj: Obj, translation: T, conditions: list[WireCondition], observed: Observed | None) -> Any:
        """Return the status; an address that users have read stays until another one takes its place."""
        del translation
        health = observed.health if observed is not None else None
        ingress = obj.status.load_balancer.ingress
        programmed = condition_of(conditions, ConditionType.PROGRAMMED)
        if is_taken_over(programmed) and observed is not None:
            ingress = self.ingress(obj, observed.addresses)
        return msgspec.structs.replace(
            obj.status,
            address=ingress[0].address if ingress else "",
            load_balancer=LoadBalancerStatus(ingress=ingress or None),
            observed_generation=obj.metadata.generation,
            unhealthy_targets=(list(health.unhealthy) or None) if health is not None else None,
            conditions=conditions,
        )

    def ingress(self, obj: Obj, addresses: Sequence[str]) -> list[Ingress]:
        """Return ``addresses`` as status shows them."""
        del obj
        return [ingress_of(address) for address in addresses]

    def is_count(self, old: Any, new: Any) -> bool:
        """Return whether two statuses differ in counts only, such as how many targets are healthy."""
        same = {name: getattr(new, name) for name in self.counts}
        before = msgspec.structs.replace(old, conditions=uncounted(old.conditions), **same)
        return before == msgspec.structs.replace(new, conditions=uncounted(new.conditions))

    def programmed(self, obj: Obj, status: Any) -> str:
        """Return the message of the Event about a load balancer that its provider has taken over."""
        del obj
        return f"programmed at {status.address}"

    def quiet(self, change: Transition, report: Report | None) -> bool:
        """Return whether a condition that turned bad needs no Event; one that is only Pending never has one.

        That endpoints are missing of a load balancer that is seconds old is worth an Event once it had some.
        """
        del report
        return is_without_targets_yet(change)

    def announce(self, obj: Obj, status: Any, report: Report | None) -> None:
        """Emit conditions that turned bad as Warnings, and Programmed and Serving when they turn good."""
        serving = condition_of(status.conditions, ConditionType.SERVING)
        emit_transitions(
            self._events,
            self._resource,
            obj,
            transitions(obj.status.conditions, status.conditions),
            good={
                ConditionType.PROGRAMMED: self.programmed(obj, status),
                ConditionType.SERVING: f"it serves: {serving.message}" if serving is not None else "",
            },
            # The condition Drifted has the Event about it.
            quiet=lambda change: (
                (change.condition.reason == ConditionReason.DRIFTED and change.condition.type != ConditionType.DRIFTED)
                or is_said_by_references(change, status.conditions)
                or self.quiet(change, report)
            ),
        )

    def reported(self, obj: Obj, report: Report) -> None:
        """Emit Events about what the worker did; by default it is in the conditions only."""

    def event(self, obj: Obj, reason: str, message: str, *, warning: bool) -> None:
        """Emit one Event about ``obj``."""
        self._events.emit_about(self._resource, obj, warning=warning, reason=reason, message=message)

    async def write(self, obj: Obj, status: Any) -> Obj | None:
        """Apply ``status`` without what other field managers own; returns the object as written, None if unchanged."""
        return await write_status(
            self._cluster,
            self._resource,
            obj,
            obj.status,
            status,
            manager=MANAGER_HUB,
            others=self.owned_elsewhere,
        )

    def as_written(self, obj: Any, written: Any) -> Any:
        """Return ``obj`` with the status of ``written``; what other field managers own is that of ``obj``."""
        theirs = {name: getattr(obj.status, name) for name in self.owned_elsewhere}
        return msgspec.structs.replace(obj, status=msgspec.structs.replace(written.status, **theirs))
