"""How does an object come into being and change? Create, replace, patch and apply, with the semantics of Kubernetes.

In: a kind, where, a body and a ``Context``. Out: what is stored now. Every operation is synchronous from reading
the current object to storing its successor, so nothing can come between. Never speaks HTTP; deletion has its own
file.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from typing import Any, cast

from fairlead.apiserver.auth.escalation import check_escalation
from fairlead.apiserver.auth.rbac import Authorizer
from fairlead.apiserver.failure import (
    MODIFIED,
    ApiFailure,
    Cause,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from fairlead.apiserver.kinds.catalog import Catalog
from fairlead.apiserver.kinds.kind import Kind, ObjectChange
from fairlead.apiserver.objects import Obj, clone, meta, rfc3339, same
from fairlead.apiserver.patch.apply import server_side_apply
from fairlead.apiserver.patch.json_patch import json_patch
from fairlead.apiserver.patch.managers import FieldWriter, track_update
from fairlead.apiserver.patch.merge_patch import merge_patch
from fairlead.apiserver.patch.strategic import strategic_merge
from fairlead.apiserver.registry.admission import check_identity, check_valid, to_storage
from fairlead.apiserver.registry.context import Context, WriteResult
from fairlead.apiserver.schema.rules import Rules
from fairlead.apiserver.store.entry import BucketEntry
from fairlead.apiserver.store.store import ObjectStore

JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH, APPLY_PATCH = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_KEPT = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


class Registry:
    """The writes of one server."""

    def __init__(
        self, store: ObjectStore, catalog: Catalog, *, authorizer: Authorizer, rules: Rules, now: Callable[[], float]
    ) -> None:
        self.store = store
        self.catalog = catalog
        self._authorizer = authorizer
        self._rules = rules
        self._now = now

    def stored_kind(self, kind: Kind) -> Kind:
        """Return the kind in whose form the objects of ``kind`` are stored."""
        return kind if kind.conversion is None else self.catalog.by_bucket(kind.bucket) or kind

    def entry(self, kind: Kind, namespace: str, name: str) -> BucketEntry:
        """Return a stored object or raise 404."""
        found = self.store.bucket(kind.bucket).get(namespace, name)
        if found is None:
            raise not_found(kind.plural, kind.group, name)
        return found

    def create(self, kind: Kind, namespace: str, body: Obj, context: Context) -> WriteResult:
        """Store a new object."""
        check_identity(body, kind, namespace, "")
        about = meta(body)
        if about.get("resourceVersion"):
            raise ApiFailure(500, "", "resourceVersion should not be set on objects to be created")
        return self._create(kind, to_storage(body, kind, context), context)

    def _create(self, kind: Kind, obj: Obj, context: Context, *, track: bool = True) -> WriteResult:
        stored = self.stored_kind(kind)
        about = meta(obj)
        self._check_namespace(kind, about)
        generated = not about.get("name") and bool(about.get("generateName"))
        if generated:
            about["name"] = self._generate(kind, about)
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink"):
            about.pop(key, None)
        about |= {"uid": str(uuid.uuid4()), "creationTimestamp": rfc3339(self._now())}
        if stored.generation:
            about["generation"] = 1
        else:
            about.pop("generation", None)
        if stored.has_status and not stored.built_in:
            obj.pop("status", None)
        stored.behaviour.default(obj)
        stored.behaviour.on_create(obj)
        check_valid(obj, None, stored, context, self._rules)
        check_escalation(self._authorizer, context.user, stored, obj, None)
        if self.store.bucket(kind.bucket).get(about.get("namespace", ""), about["name"]) is not None:
            raise already_exists(kind.plural, kind.group, about["name"])
        stored.behaviour.allocate(obj)
        if track:
            track_update(None, obj, stored.node, self._write(stored, context))
        return self._store(stored, obj, context, created=True)

    def _generate(self, kind: Kind, about: Obj) -> str:
        prefix = str(about["generateName"])[:58]
        for _ in range(8):
            name = prefix + "".join(secrets.choice(_LETTERS) for _ in range(5))
            if self.store.bucket(kind.bucket).get(about.get("namespace", ""), name) is None:
                return name
        raise already_exists(kind.plural, kind.group, prefix)

    def _check_namespace(self, kind: Kind, about: Obj) -> None:
        if not kind.namespaced:
            return
        name = str(about.get("namespace") or "")
        namespace = self.store.bucket("namespaces").get("", name)
        if namespace is None:
            raise not_found("namespaces", "", name)
        if namespace.deleting:
            why = f"unable to create new content in namespace {name} because it is being terminated"
            failure = forbidden(kind.plural, kind.group, str(about.get("name") or ""), why)
            message = f"namespace {name} is being terminated"
            failure.details["causes"] = [
                {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            ]
            raise failure

    def replace(self, kind: Kind, namespace: str, name: str, body: Obj, context: Context) -> WriteResult:
        """Put a whole object in the place of the stored one."""
        entry = self.entry(kind, namespace, name)
        check_identity(body, kind, namespace, name)
        return self._update(kind, entry, body, context)

    def patch(self, kind: Kind, namespace: str, name: str, patch: Any, media: str, context: Context) -> WriteResult:
        """Apply a patch of one of the four media types."""
        if media == APPLY_PATCH:
            return self._apply(kind, namespace, name, patch, context)
        entry = self.entry(kind, namespace, name)
        current = self.shown(kind, entry)
        if media == JSON_PATCH:
            patched = json_patch(current, patch)
        elif media == MERGE_PATCH:
            patched = merge_patch(current, _mapping(patch))
        elif kind.built_in:
            patched = strategic_merge(current, _mapping(patch), kind.node)
        else:
            message = "the body of the request was in an unknown format - accepted media types include: "
            message += f"{JSON_PATCH}, {MERGE_PATCH}, {APPLY_PATCH}"
            raise ApiFailure(415, "UnsupportedMediaType", message)
        if not isinstance(patched, dict):
            raise bad_request(f"the patch leaves no {kind.kind} behind")
        body = cast("Obj", patched)
        check_identity(body, kind, namespace, name)
        return self._update(kind, entry, body, context)

    def shown(self, kind: Kind, entry: BucketEntry) -> Obj:
        """Return the object of ``entry`` in the version of ``kind``."""
        obj = entry.obj()
        return kind.conversion.from_storage(obj) if kind.conversion is not None else obj

    def _update(self, kind: Kind, entry: BucketEntry, body: Obj, context: Context) -> WriteResult:
        wanted_rv = meta(body).get("resourceVersion")
        if wanted_rv not in (None, "", "0", str(entry.rv)):
            raise conflict(kind.plural, kind.group, entry.name, MODIFIED)
        wanted_uid = meta(body).get("uid")
        if wanted_uid and wanted_uid != entry.uid:
            why = f"Precondition failed: UID in precondition: {wanted_uid}, UID in object meta: {entry.uid}"
            raise conflict(kind.plural, kind.group, entry.name, why)
        return self._change(kind, entry, to_storage(body, kind, context), context)

    def _change(self, kind: Kind, entry: BucketEntry, new: Obj, context: Context, *, track: bool = True) -> WriteResult:
        stored, old = self.stored_kind(kind), entry.obj()
        new = self._reset(stored, new, old, context)
        stored.behaviour.default(new)
        stored.behaviour.on_update(ObjectChange(new, old, context.status))
        if same(new, old):
            return WriteResult(old, entry)
        if stored.generation and not context.status and _spec_changed(new, old):
            meta(new)["generation"] = int(meta(old).get("generation") or 0) + 1
        check_valid(new, old, stored, context, self._rules)
        check_escalation(self._authorizer, context.user, stored, new, old)
        if not context.status:
            stored.behaviour.allocate(new)
        if track:
            track_update(old, new, stored.node, self._write(stored, context))
        if same(new, old):
            return WriteResult(old, entry)
        return self._store(stored, new, context)

    @staticmethod
    def _reset(kind: Kind, new: Obj, old: Obj, context: Context) -> Obj:
        """Undo what this write may not change."""
        if context.status:
            kept = {**old, "metadata": dict(meta(old))}
            if "managedFields" in meta(new):
                kept["metadata"]["managedFields"] = meta(new)["managedFields"]
            if "status" in new:
                kept["status"] = new["status"]
            else:
                kept.pop("status", None)
            return kept
        before, about = meta(old), meta(new)
        for key in _KEPT:
            if key in before:
                about[key] = before[key]
            else:
                about.pop(key, None)
        about["resourceVersion"] = before["resourceVersion"]
        if "generateName" in before:
            about.setdefault("generateName", before["generateName"])
        if about.get("managedFields") is None and "managedFields" in before:
            about["managedFields"] = before["managedFields"]
        if kind.has_status:
            if "status" in old:
                new["status"] = clone(old["status"])
            else:
                new.pop("status", None)
        return new

    def _apply(self, kind: Kind, namespace: str, name: str, config: Any, context: Context) -> WriteResult:
        body = _mapping(config)
        check_identity(body, kind, namespace, name)
        if not context.manager:
            raise _manager_missing()
        entry = self.store.bucket(kind.bucket).get(namespace, name)
        if entry is None and context.status:
            raise not_found(kind.plural, kind.group, name)
        if entry is not None:
            self._check_versions(kind, entry, body)
        stored = self.stored_kind(kind)
        for key in ("resourceVersion", "uid", "creationTimestamp", "generation"):
            meta(body).pop(key, None)
        body = to_storage(body, kind, context, partial=True) if kind.built_in else body
        if kind.conversion is not None and not kind.built_in:
            body = kind.conversion.to_storage(body)
        live = entry.obj() if entry is not None else None
        merged = server_side_apply(live, body, stored.node, self._write(stored, context), force=context.force)
        merged = to_storage(merged, stored, context)
        if entry is None:
            return self._create(stored, merged, context, track=False)
        return self._change(stored, entry, merged, context, track=False)

    def _check_versions(self, kind: Kind, entry: BucketEntry, body: Obj) -> None:
        wanted = meta(body).get("resourceVersion")
        if wanted and wanted != str(entry.rv):
            raise conflict(kind.plural, kind.group, entry.name, MODIFIED)
        uid = meta(body).get("uid")
        if uid and uid != entry.uid:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {entry.uid}"
            raise conflict(kind.plural, kind.group, entry.name, why)

    def _write(self, kind: Kind, context: Context) -> FieldWriter:
        return FieldWriter(
            manager=context.manager,
            api_version=kind.api_version,
            subresource=context.subresource,
            now=self._now(),
            has_status=kind.has_status,
            built_in=kind.built_in,
        )

    def _store(self, kind: Kind, obj: Obj, context: Context, *, created: bool = False) -> WriteResult:
        if context.dry_run:
            return WriteResult(obj, None, created)
        about = meta(obj)
        if "deletionTimestamp" in about and not about.get("finalizers") and not _held(kind, obj):
            entry = self.store.delete(kind.bucket, obj)
        else:
            entry = self.store.put(kind.bucket, obj)
        return WriteResult(obj, entry, created)


def _held(kind: Kind, obj: Obj) -> bool:
    """Say whether a namespace still waits for its content to go."""
    return kind.bucket == "namespaces" and bool((obj.get("spec") or {}).get("finalizers"))


def _spec_changed(new: Obj, old: Obj) -> bool:
    keys = (new.keys() | old.keys()) - {"metadata", "status"}
    return any(new.get(key) != old.get(key) for key in keys)


def _mapping(patch: Any) -> Obj:
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: the patch must be an object")
    return cast("Obj", patch)


def _manager_missing() -> ApiFailure:
    cause = Cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager")
    failure = invalid("PatchOptions", "meta.k8s.io", "", [cause])
    failure.code = 422
    return failure
