"""Is an object on its way out, or does its label hold it?

In: an object. Out: whether what was made for it may be taken away, and how that is told. Never: a reason to make
something new: what is held is what there was, and what changes about it while it is held.
"""

from __future__ import annotations

from fairlead.api.meta import KubeObject
from fairlead.api.names import LABEL_DO_NOT_DELETE
from fairlead.model.condition import Condition, ConditionReason, ConditionType


def is_labelled(one: KubeObject) -> bool:
    """Say whether ``one`` carries the label, with whatever value."""
    return LABEL_DO_NOT_DELETE in (one.metadata.labels or {})


def is_leaving(one: KubeObject) -> bool:
    """Say whether ``one`` was deleted and nothing holds it: what was made for it goes now."""
    return one.deleting and not is_labelled(one)


def build_protected(one: KubeObject) -> Condition | None:
    """Say that a deletion is held; None when nobody has deleted it, or it is not held."""
    if not one.deleting or not is_labelled(one):
        return None
    text = f"it was deleted, and label {LABEL_DO_NOT_DELETE} holds it and all it serves; remove the label to let it go"
    return Condition(ConditionType.PROTECTED, True, ConditionReason.DO_NOT_DELETE, text)
