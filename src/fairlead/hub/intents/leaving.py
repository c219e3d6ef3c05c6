"""The condition of a load balancer that is deleted and still there: why it waits.

In: the providers that have not released it, what their workers reported, and those that cannot be asked. Out: the
condition Programmed. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.api.intent import IntentObject
from fairlead.api.meta import WireCondition, wire_conditions
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.in_words import counted
from fairlead.sync.history import Report


class Leaving(msgspec.Struct):
    """One load balancer on its way out, since ``since_s`` (monotonic); ``reports`` by the name of their provider."""

    since_s: float
    reports: dict[str, Report] = msgspec.field(default_factory=dict[str, Report])


def build_leaving(waits_for: Sequence[str], reports: Mapping[str, Report], silent: Mapping[str, str]) -> Condition:
    """Return Programmed of a load balancer that ``waits_for`` these providers.

    ``silent``: those that do not run, by name, with the reason where it is known.
    """

    def no(reason: ConditionReason, why: str) -> Condition:
        return Condition(ConditionType.PROGRAMMED, False, reason, f"it is being deleted, and {why}")

    for provider, problem in silent.items():
        text = f"only provider {provider} can release it, which does not run at this hub"
        step = problem or "start the hub with that provider, or see its log for why it has not started"
        return no(ConditionReason.NO_SUCH_PROVIDER, f"{text}: {step}")
    for provider in waits_for:
        report = reports.get(provider)
        if report is not None and report.quarantined:
            first, backends = report.quarantined[0], counted(len(report.quarantined), "backend")
            why = f"provider {provider} refuses to deregister {backends}, {first.change.key}: {first.message}"
            return no(ConditionReason.PROVIDER_FAILED, why)
        if report is not None and report.failure:
            why = f"provider {provider} has not released it: {report.failure}"
            return no(ConditionReason.PROVIDER_FAILED, why)
    return no(ConditionReason.DELETING, f"its provider {waits_for[0]} has not answered yet")


def with_programmed(obj: IntentObject, programmed: Condition, *, now: str) -> list[WireCondition]:
    """Return the conditions of ``obj`` with this one in the place of its own; the others are as they were last."""
    old = obj.status.conditions or ()
    (written,) = wire_conditions([programmed], old, generation=obj.metadata.generation, now=now)
    if all(each.type != written.type for each in old):
        return [*old, written]
    return [written if each.type == written.type else each for each in old]
