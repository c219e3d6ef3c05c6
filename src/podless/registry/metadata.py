"""The metadata of a write: initial values, immutable fields and preconditions.

In: an object before and after a write. Out: the object in place, or 409. Never stores anything.
"""

from __future__ import annotations

import uuid

from podless.failure import MODIFIED, conflict, immutable_field, invalid
from podless.kinds.kind import Kind
from podless.objects import Obj, clone, meta, rfc3339
from podless.registry.context import Context
from podless.store.entry import BucketEntry

_KEPT = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


def start_metadata(kind: Kind, about: Obj, now: float) -> None:
    """Set uid, creationTimestamp and generation in the metadata of a new object."""
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink"):
        about.pop(key, None)
    about |= {"uid": str(uuid.uuid4()), "creationTimestamp": rfc3339(now)}
    if kind.generation:
        about["generation"] = 1
    else:
        about.pop("generation", None)


def check_preconditions(kind: Kind, entry: BucketEntry, about: Obj) -> None:
    """Raise 409 when the resourceVersion or UID of the request is not the stored one."""
    if about.get("resourceVersion") not in (None, "", "0", str(entry.rv)):
        raise conflict(kind.plural, kind.group, entry.name, MODIFIED)
    check_uid(kind, entry, str(about.get("uid") or ""))


def check_uid(kind: Kind, entry: BucketEntry, uid: str) -> None:
    """Raise 409 when ``uid`` is given and not the stored one."""
    if uid and uid != entry.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {entry.uid}"
        raise conflict(kind.plural, kind.group, entry.name, why)


def check_unchanged(kind: Kind, entry: BucketEntry, about: Obj, context: Context) -> None:
    """Raise 422 when a write, not of the status, sets another UID or time of deletion than the stored one."""
    stored = meta(entry.obj())
    fields = () if context.status else ("uid", "deletionTimestamp")
    if causes := [
        immutable_field(f"metadata.{key}", about[key])
        for key in fields
        if about.get(key) and about[key] != stored.get(key)
    ]:
        raise invalid(kind.kind, kind.group, entry.name, causes)


def keep_unwritable(kind: Kind, new: Obj, old: Obj, *, status_only: bool) -> Obj:
    """Return ``new`` with the fields that this write may not change as in ``old``."""
    if status_only:
        kept = {**old, "metadata": dict(meta(old))}
        _carry_over("managedFields", meta(new), kept["metadata"], drop=False)
        _carry_over("status", new, kept)
        return kept
    before, about = meta(old), meta(new)
    for key in _KEPT:
        _carry_over(key, before, about)
    about["resourceVersion"] = before["resourceVersion"]
    if "generateName" in before:
        about.setdefault("generateName", before["generateName"])
    if about.get("managedFields") is None:
        _carry_over("managedFields", before, about, drop=False)
    if kind.has_status:
        _carry_over("status", old, new)
        if "status" in new:
            new["status"] = clone(new["status"])
    return new


def _carry_over(key: str, source: Obj, target: Obj, *, drop: bool = True) -> None:
    """Set a key of ``target`` as in ``source``; with ``drop`` also where it is missing there."""
    if key in source:
        target[key] = source[key]
    elif drop:
        target.pop(key, None)


def has_other_content(new: Obj, old: Obj) -> bool:
    """Return whether anything but metadata and status differs."""
    return any(new.get(key) != old.get(key) for key in (new.keys() | old.keys()) - {"metadata", "status"})


def count_generation(new: Obj, old: Obj) -> None:
    """Increase ``metadata.generation`` when anything but metadata and status changed."""
    if has_other_content(new, old):
        meta(new)["generation"] = int(meta(old).get("generation") or 0) + 1
