"""The conditions that every intent has in common.

In: a refusal, or the object. Out: ``Condition`` values. Never: a decision; that is the caller's.
"""

from __future__ import annotations

import msgspec

from fairlead.api.meta import KubeObject
from fairlead.api.names import ANNOTATION_PAUSED, COMMAND_NAMES, LABEL_DO_NOT_DELETE, PAUSED_BY_CAPI
from fairlead.model.condition import Condition, ConditionReason, ConditionType

_NO_READY = "no ready"


def refused(reason: ConditionReason, message: str) -> Condition:
    """Return condition Accepted with status False."""
    return Condition(ConditionType.ACCEPTED, False, reason, message)


def build_accepted(refusal: Condition | None, *, served: bool = True) -> Condition:
    """Return condition Accepted; ``served``: an earlier version stays in force while this one is refused."""
    if refusal is None:
        return Condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, "")
    message = f"{refusal.message}; the last accepted version is served until then" if served else refusal.message
    return msgspec.structs.replace(refusal, message=message)


def build_unprogrammed(refusal: Condition) -> Condition:
    """Return condition Programmed for a rejected object, which is not programmed."""
    return msgspec.structs.replace(refusal, type=ConditionType.PROGRAMMED)


def unresolved(reason: ConditionReason, message: str) -> Condition:
    """Return condition ResolvedRefs with status False."""
    return Condition(ConditionType.RESOLVED_REFS, False, reason, message)


def no_ready(noun: str, places: str) -> str:
    """Return the message of BackendNotFound about ``places`` whose backends are there, and take no connections."""
    return f"{_NO_READY} {noun} for {places}"


def says_no_ready(reason: str, message: str) -> bool:
    """Return whether a condition says that alone: then it has the same cause as Serving with the reason NoTargets.

    It is read from a status, which other versions have written too, and which has no other field for it.
    """
    return reason == ConditionReason.BACKEND_NOT_FOUND and message.startswith(_NO_READY)


def resolved() -> Condition:
    """Return condition ResolvedRefs with status True."""
    return Condition(ConditionType.RESOLVED_REFS, True, ConditionReason.RESOLVED_REFS, "")


def _end_of_pause(paused: KubeObject) -> str:
    if paused.annotation(ANNOTATION_PAUSED) == PAUSED_BY_CAPI:
        return "the Cluster is no longer paused"
    name, namespace = paused.metadata.name, paused.metadata.namespace
    short = COMMAND_NAMES.get(type(paused).__name__, "")
    if not short:
        return f"annotation {ANNOTATION_PAUSED} is removed"
    return f"fairlead resume {short}/{name}" + (f" -n {namespace}" if namespace else "")


def build_paused(*objects: KubeObject | None) -> Condition | None:
    """Return condition Paused when one of ``objects`` carries the annotation with any value but "false"."""
    by = [item for item in objects if item is not None and item.annotation(ANNOTATION_PAUSED, "false") != "false"]
    if not by:
        return None
    ends = " and ".join(map(_end_of_pause, by))
    text = f"nothing is changed or removed until {ends}"
    return Condition(ConditionType.PAUSED, True, ConditionReason.PAUSED_BY_USER, text)


def first_three(items: set[str]) -> str:
    """Return the first three of ``items`` by name, for a message."""
    return ", ".join(sorted(items)[:3]) + (" and more" if len(items) > 3 else "")


def is_labelled(item: KubeObject) -> bool:
    """Return whether ``item`` carries the label, with any value."""
    return LABEL_DO_NOT_DELETE in (item.metadata.labels or {})


def is_leaving(item: KubeObject) -> bool:
    """Return whether ``item`` was deleted and the label does not hold it: what was made for it is removed now."""
    return item.deleting and not is_labelled(item)


def build_protected(item: KubeObject) -> Condition | None:
    """Return condition Protected; None when ``item`` is not deleted, or not held."""
    if not item.deleting or not is_labelled(item):
        return None
    text = (
        f"deleted, but label {LABEL_DO_NOT_DELETE} keeps the object and all it serves; remove the label to release it"
    )
    return Condition(ConditionType.PROTECTED, True, ConditionReason.DO_NOT_DELETE, text)
