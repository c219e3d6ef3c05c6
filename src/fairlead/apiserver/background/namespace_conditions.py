"""The conditions of a terminating namespace: what is left in it, in Kubernetes' words.

In: the kinds of which something is left, with what is left. Out: the two conditions. Pure.
Source: https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/namespace/deletion/status_condition_utils.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from fairlead.apiserver.kinds.kind import Kind
from fairlead.apiserver.objects import Obj, items
from fairlead.apiserver.store.entry import BucketEntry

#: Of more objects the finalizers are not counted, and nothing is written again when one of them is gone.
MANY = 100


def remaining_conditions(left: Sequence[tuple[Kind, Collection[BucketEntry]]], since: str) -> list[Obj]:
    """Return the conditions of a namespace that is deleted ``since`` then and has these objects ``left``."""
    content = [f"{kind.plural}.{kind.group} has {len(entries)} resource instances" for kind, entries in left]
    conditions = [
        _condition("NamespaceContentRemaining", "SomeResourcesRemain", "Some resources are remaining", content, since)
    ]
    if sum(len(entries) for _, entries in left) <= MANY:
        finalizers = Counter(
            str(name) for _, entries in left for each in entries for name in items(each.obj(), "metadata", "finalizers")
        )
        held = [f"{name} in {count} resource instances" for name, count in sorted(finalizers.items())]
        text = "Some content in the namespace has finalizers remaining"
        conditions += (
            [_condition("NamespaceFinalizersRemaining", "SomeFinalizersRemain", text, held, since)] if held else []
        )
    return conditions


def _condition(kind: str, reason: str, text: str, parts: Sequence[str], since: str) -> Obj:
    message = f"{text}: {', '.join(parts)}"
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since}
