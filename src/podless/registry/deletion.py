"""Delete objects: preconditions, finalizers, propagation.

    delete ─► finalizers left? ─ yes ─► deletionTimestamp is set; the last finalizer's removal deletes
                               └ no ──► gone; the collector follows the owner references

In: a kind, an entry, and ``DeleteOptions``. Out: the last state, and whether the object is gone. The collector
(``background/``) deletes dependents; only ``Orphan`` is done here, before the delete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from podless.failure import conflict, forbidden
from podless.kinds.kind import Kind
from podless.objects import Obj, at, meta, rfc3339
from podless.registry.context import Context, DeleteOptions
from podless.registry.metadata import check_uid
from podless.store.entry import BucketEntry
from podless.store.store import ObjectStore

FOREGROUND = "foregroundDeletion"
PERMANENT_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


class DeleteResult(NamedTuple):
    """The result of a delete."""

    obj: Obj
    gone: bool


class Deletion:
    """Deletes the objects of one server; ``dependents`` returns the (bucket, entry) of those that a UID owns."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        dependents: Callable[[str], list[tuple[str, BucketEntry]]],
        now: Callable[[], float],
        user_annotations: Mapping[str, str] = {},
    ) -> None:
        self._store = store
        self._user_annotations = user_annotations
        self._dependents = dependents
        self._now = now

    def delete(self, kind: Kind, entry: BucketEntry, context: Context, options: DeleteOptions) -> DeleteResult:
        """Delete an object, or set its deletionTimestamp when it has finalizers."""
        self._check(kind, entry, options)
        obj = entry.obj()
        about = meta(obj)
        finalizers = [finalizer for finalizer in about.get("finalizers") or [] if finalizer != FOREGROUND]
        if options.propagation == "Foreground":
            finalizers.append(FOREGROUND)
        elif entry.deleting:
            finalizers = list(about.get("finalizers") or [])
        if options.propagation == "Orphan" and not context.dry_run:
            self._orphan(entry)
        held = bool(finalizers) or (kind.bucket == "namespaces" and bool(at(obj, "spec", "finalizers")))
        if not held:
            if not context.dry_run:
                self._store.delete(kind.bucket, obj)
            return DeleteResult(obj, gone=True)
        if entry.deleting and finalizers == (about.get("finalizers") or []):
            return DeleteResult(obj, gone=False)
        if not entry.deleting:
            about |= {"deletionTimestamp": rfc3339(self._now()), "deletionGracePeriodSeconds": 0}
            if "generation" in about:
                about["generation"] += 1
            if annotation := self._user_annotations.get(kind.bucket):
                about["annotations"] = {**(about.get("annotations") or {}), annotation: context.user.name}
        if finalizers:
            about["finalizers"] = finalizers
        if kind.bucket == "namespaces":
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        if not context.dry_run:
            self._store.put(kind.bucket, obj)
        return DeleteResult(obj, gone=False)

    @staticmethod
    def _check(kind: Kind, entry: BucketEntry, options: DeleteOptions) -> None:
        check_uid(kind, entry, options.uid)
        if options.rv and options.rv != str(entry.rv):
            why = "Precondition failed: ResourceVersion in precondition: "
            why += f"{options.rv}, ResourceVersion in object meta: {entry.rv}"
            raise conflict(kind.plural, kind.group, entry.name, why)
        if kind.bucket == "namespaces" and entry.name in PERMANENT_NAMESPACES:
            raise forbidden(kind.plural, kind.group, entry.name, "this namespace may not be deleted")

    def _orphan(self, owner: BucketEntry) -> None:
        for bucket, entry in self._dependents(owner.uid):
            if owner.namespace not in {"", entry.namespace}:
                continue
            obj = entry.obj()
            kept = [ref for ref in meta(obj).get("ownerReferences") or [] if ref.get("uid") != owner.uid]
            if kept:
                meta(obj)["ownerReferences"] = kept
            else:
                meta(obj).pop("ownerReferences", None)
            self._store.put(bucket, obj)
