"""Rules of one kind of intent for its status: the conditions that compose it, and its Events.

In: an object, its translation, conditions, what its provider holds. Out: a status, and Events about what has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.api.intent import IntentObject
from fairlead.api.kubernetes import Ingress, LoadBalancerStatus
from fairlead.api.meta import Resource, Transition, WireCondition, condition_of, is_taken_over, transitions
from fairlead.hub.intents.conditions import ingress_of
from fairlead.hub.pacing import FIRST_S, PATIENCE_S, is_said_by_references, is_without_targets_yet
from fairlead.kube.events import EventRecorder
from fairlead.kube.status import emit_transitions
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.model.observed import Observed
from fairlead.sync.history import Report
from fairlead.translate.view import Decision

Obj = TypeVar("Obj", bound=IntentObject)
T = TypeVar("T", bound=Decision)


class StatusRules(Generic[Obj, T]):
    """What is particular to the status of one kind of intent; a subclass overrides what differs.

    ``needs_address``: without an address it is not programmed; ``needs_all_targets``: nor without all of its targets.
    ``patience_s``: how long a worse status is held back that only awaits an answer, ``first_s``: how long such a first
    one. ``owned_elsewhere``: the fields of the status that have another field manager, which are never written.
    """

    needs_address = True
    needs_all_targets = False
    patience_s = PATIENCE_S
    first_s = FIRST_S
    owned_elsewhere: tuple[str, ...] = ("allocation", "provisioned", "frontend")

    def __init__(self, *, events: EventRecorder, resource: Resource[Obj]) -> None:
        self._events = events
        self.resource = resource

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

    def is_wanted(self, obj: Obj, translation: T) -> bool:
        """Return whether ``obj`` is to have a status at all."""
        del obj, translation
        return True

    def ingress(self, obj: Obj, addresses: Sequence[str]) -> list[Ingress]:
        """Return ``addresses`` as status shows them."""
        del obj
        return [ingress_of(address) for address in addresses]

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
            self.resource,
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
        self._events.emit_about(self.resource, obj, warning=warning, reason=reason, message=message)
