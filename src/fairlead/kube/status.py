"""Status of our kinds: written when it changes, and its transitions emitted as Events.

    old = obj.status
    new = Status(..., conditions=wire_conditions(conditions, old.conditions, generation=..., now=...))
    written = await write_status(cluster, KIND, obj, old, new, manager="m", others=("record",), always=("backends",))
    if written is not None:
        emit_transitions(events, KIND, obj, transitions(old.conditions, new.conditions), good={...}, quiet=...)

In: an object as it was read, its status and the next one. Out: at most one server-side apply, and Events.
Ready and Stalled are added to the conditions of our kinds here, so they go with the same write.
Never: a write that changes nothing, or one to an object of the same name that was created later.
``fairlead.api.meta`` has the pure part: ``wire_conditions``, ``with_summary`` and ``transitions``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from fairlead.api.meta import (
    AnyResource,
    JSONObject,
    KubeObject,
    Resource,
    Transition,
    Wire,
    WireCondition,
    with_summary,
)
from fairlead.api.names import GROUP
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import RESOLVED, EventRecorder, resolved_message
from fairlead.kube.writes import patch_version
from fairlead.model.condition import ConditionReason

T = TypeVar("T", bound=KubeObject)
S = TypeVar("S", bound=Wire)


async def write_status(
    cluster: Cluster,
    resource: Resource[T],
    obj: T,
    old: S,
    new: S,
    *,
    manager: str,
    others: Collection[str] = (),
    always: Collection[str] = (),
    force: bool = True,
) -> T | None:
    """Apply ``new`` as the status of ``obj``; return the object as written, or None when ``new`` is ``old``.

    A field that ``manager`` has applied before and that has its default in ``new`` is removed by the server.
    ``others``: fields (their names on the wire) that have another manager; they are left out, and so not touched.
    ``always``: fields that are written though they have their default, such as a count of 0.
    ``force``: fields of other managers are taken over.

    Raises:
        Conflict: another object has this name by now; without ``force``, or another manager owns a field.
        NotFound: there is none.
    """
    new = summarized(resource, old, new)
    after = msgspec.to_builtins(new)
    # Twice, since to_builtins leaves out defaults by identity: a decoded default is not left out, ours is.
    if new == old or after == msgspec.to_builtins(old):
        return None
    status = {name: value for name, value in after.items() if name not in others}
    if always:
        values = {field.encode_name: getattr(new, field.name) for field in msgspec.structs.fields(new)}
        status |= {name: msgspec.to_builtins(values[name]) for name in always}
    return await apply_status(cluster, resource, obj, status, manager=manager, force=force)


def summarized(resource: Resource[Any], old: S, new: S) -> S:
    """Return a status of one of our kinds with Ready and Stalled; another status, or a part of one, as it is."""
    conditions: list[WireCondition] | None = getattr(new, "conditions", None)
    if resource.group != GROUP or not conditions:
        return new
    held = bool(getattr(new, "held_total", 0))
    summary = with_summary(conditions, getattr(old, "conditions", None), held=held)
    return msgspec.structs.replace(new, conditions=summary)


async def apply_status(
    cluster: Cluster, resource: Resource[T], obj: T, status: JSONObject, *, manager: str, force: bool = True
) -> T:
    """Apply fields of the status of ``obj``; fields that ``manager`` applied before are given up.

    Raises:
        Conflict: another object has this name by now; without ``force``, or another manager owns a field.
        NotFound: there is none.
    """
    meta = obj.metadata
    # The uid makes it a Conflict when the object was deleted and created again.
    body: JSONObject = {"metadata": {"name": meta.name, "uid": meta.uid}, "status": status}
    if resource.namespaced:
        body["metadata"]["namespace"] = meta.namespace
    return await cluster.apply(resource, body, manager=manager, force=force, subresource="status")


async def replace_status(cluster: Cluster, resource: Resource[T], obj: T, status: Wire, *, manager: str) -> T:
    """Write a status whose lists are replaced as a whole, only onto the version of ``obj`` that it was made from.

    Raises:
        Conflict: the object has changed, or another one has this name by now.
        NotFound: there is none.
    """
    patch: JSONObject = {"metadata": {"uid": obj.metadata.uid}, "status": msgspec.to_builtins(status)}
    return await patch_version(cluster, resource, obj, patch, manager=manager, subresource="status")


def emit_transitions(
    events: EventRecorder,
    resource: AnyResource,
    obj: KubeObject,
    changes: Iterable[Transition],
    *,
    good: Mapping[str, str] | None = None,
    quiet: Callable[[Transition], bool] = lambda _: False,
) -> None:
    """Emit a Warning for each condition that became bad, and a Normal Event for those that became good.

    One that became Unknown has no Event.

    ``good``: the message of the Normal Event by condition type; of a type that is not in it, the Warning is resolved.
    ``quiet``: bad conditions without an Event, besides those that are only Pending.
    """
    messages = good or {}
    for change in changes:
        condition = change.condition
        if condition.status == "Unknown":
            continue
        if change.good:
            if condition.type in messages:
                message = messages[condition.type]
                events.emit_about(resource, obj, warning=False, reason=condition.reason, message=message)
            elif (before := change.before) is not None and _is_warned(was := Transition(before, None), quiet):
                message = resolved_message(was.condition.reason, was.condition.message or was.condition.type)
                events.emit_about(resource, obj, warning=False, reason=RESOLVED, message=message)
        elif _is_warned(change, quiet):
            message = condition.message or condition.type
            events.emit_about(resource, obj, warning=True, reason=condition.reason, message=message)


def _is_warned(change: Transition, quiet: Callable[[Transition], bool]) -> bool:
    """Return whether a condition that became like this has a Warning."""
    condition = change.condition
    bad = condition.status != "Unknown" and not change.good
    return bad and condition.reason != ConditionReason.PENDING and not quiet(change)
