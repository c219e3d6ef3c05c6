"""Messages about a LoadBalancerClass or DNSZone that is in use.

In: the object and its users. Out: condition InUse. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api.meta import KubeObject
from fairlead.model.condition import Condition, ConditionReason, ConditionType


def build_in_use(obj: KubeObject, users: Sequence[str], *, short: str) -> Condition:
    """Return condition InUse of ``obj``; ``short`` is the name of its kind for kubectl."""
    if not users:
        return Condition(ConditionType.IN_USE, False, ConditionReason.UNUSED, "nothing uses it")
    count, first, name = len(users), min(users), obj.metadata.name
    text = f"used by {count}, first {first}" if count > 1 else f"used by {first}"
    if obj.deleting:
        text = (
            f"it was deleted, and stays until nothing uses it: {text}; delete what uses it, or move it elsewhere. "
            f"To undo it, save it with kubectl get {short} {name} -o yaml, remove its finalizers, and apply what was "
            "saved; what it serves stays meanwhile"
        )
    return Condition(ConditionType.IN_USE, True, ConditionReason.IN_USE, text)
