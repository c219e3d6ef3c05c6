"""The label that holds a deleted object: what was made for it stays until the label is removed.

In: an object. Out: whether what was made for it may be removed now, and the condition. Never: a reason to make
something new; a held object keeps what it has, and follows changes.
"""

from __future__ import annotations

from fairlead.api.meta import KubeObject
from fairlead.api.names import LABEL_DO_NOT_DELETE
from fairlead.model.condition import Condition, ConditionReason, ConditionType


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
    text = f"it was deleted, and label {LABEL_DO_NOT_DELETE} holds it and all it serves; remove the label to release it"
    return Condition(ConditionType.PROTECTED, True, ConditionReason.DO_NOT_DELETE, text)
