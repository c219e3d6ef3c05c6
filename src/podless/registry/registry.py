"""Create, replace, patch and apply objects with the semantics of Kubernetes.

In: a kind, namespace and name, a body and a ``Context``. Out: the stored object. Every operation is synchronous from
reading the current object to storing the next one, so operations are serialized. Knows no HTTP; deletion has its own
module.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, cast

from podless.auth.rbac import Authorizer, check_escalation
from podless.bounds import LEASES_BYTES, MAX_NAMESPACE_BYTES
from podless.failure import (
    ApiFailure,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_value,
    not_found,
    required_value,
)
from podless.kinds.catalog import Catalog
from podless.kinds.kind import Kind, ObjectChange
from podless.objects import Obj, at, meta, same
from podless.patch.apply import server_side_apply
from podless.patch.json_patch import json_patch, merge_patch
from podless.patch.managers import FieldWriter, track_update
from podless.patch.strategic import strategic_merge
from podless.registry.admission import check_identity, check_valid, strip_unknown, to_storage
from podless.registry.context import Context, WriteResult
from podless.registry.metadata import (
    check_preconditions,
    check_unchanged,
    count_generation,
    has_other_content,
    keep_unwritable,
    start_metadata,
)
from podless.schema.prune import fill_defaults
from podless.schema.rules import Rules
from podless.store.entry import BucketEntry
from podless.store.store import ObjectStore

JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH, APPLY_PATCH = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Registry:
    """Creates, replaces, patches and applies the objects of one server."""

    def __init__(
        self,
        store: ObjectStore,
        catalog: Catalog,
        *,
        authorizer: Authorizer,
        rules: Rules,
        now: Callable[[], float],
        user_annotations: Mapping[str, str] = {},
    ) -> None:
        """``user_annotations``: by bucket, the annotation with the user that wrote an object last."""
        self.store = store
        self.catalog = catalog
        self._authorizer = authorizer
        self._rules = rules
        self._now = now
        self._user_annotations = user_annotations

    def stored_kind(self, kind: Kind) -> Kind:
        """Return ``kind`` at its storage version."""
        return kind if kind.conversion is None else self.catalog.by_bucket(kind.bucket) or kind

    def entry(self, kind: Kind, namespace: str, name: str) -> BucketEntry:
        """Return a stored object or raise 404."""
        entry = self.store.bucket(kind.bucket).get(namespace, name)
        if entry is None:
            raise not_found(kind.plural, kind.group, name)
        return entry

    def create(self, kind: Kind, namespace: str, body: Obj, context: Context) -> WriteResult:
        """Store a new object."""
        check_identity(body, kind, namespace, "")
        if meta(body).get("resourceVersion"):
            raise ApiFailure(500, "", "resourceVersion should not be set on objects to be created")
        return self._create(kind, to_storage(body, kind, context), context)

    def _create(self, kind: Kind, obj: Obj, context: Context, *, track: bool = True) -> WriteResult:
        stored, about = self.stored_kind(kind), meta(obj)
        self._check_namespace(kind, about)
        if not about.get("name") and about.get("generateName"):
            about["name"] = self._generate(kind, about)
        start_metadata(stored, about, self._now())
        self._restore_user(stored, obj, None)
        if stored.has_status and not stored.built_in:
            obj.pop("status", None)
            fill_defaults(obj, stored.node)
        stored.behaviour.default(obj)
        stored.behaviour.on_create(obj)
        check_valid(obj, None, stored, context, self._rules)
        check_escalation(self._authorizer, context.user, stored, obj, None)
        if self.store.bucket(kind.bucket).get(about.get("namespace", ""), about["name"]) is not None:
            raise already_exists(kind.plural, kind.group, about["name"])
        stored.behaviour.allocate(obj)
        if track:
            track_update(None, obj, stored.node, self._writer(stored, context))
        self._sign(stored, obj, None, context)
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
        """Replace the stored object."""
        entry = self.entry(kind, namespace, name)
        check_identity(body, kind, namespace, name, named=True)
        check_preconditions(kind, entry, meta(body))
        check_unchanged(kind, entry, meta(body), context)
        return self._change(kind, entry, to_storage(body, kind, context), context)

    def patch(self, kind: Kind, namespace: str, name: str, patch: Any, media: str, context: Context) -> WriteResult:
        """Apply a patch of one of the four media types."""
        if media == APPLY_PATCH:
            return self._apply(kind, namespace, name, patch, context)
        entry = self.entry(kind, namespace, name)
        patched = _patched(kind, kind.from_storage(entry.obj()), patch, media)
        if not isinstance(patched, dict):
            raise bad_request(f"the patch leaves no {kind.kind} behind")
        body = cast("Obj", patched)
        check_identity(body, kind, namespace, name, named=True)
        check_unchanged(kind, entry, meta(body), context)
        check_preconditions(kind, entry, meta(body))
        try:
            new = to_storage(body, kind, context)
        except ApiFailure as failure:
            if failure.code != 400:
                raise
            raise invalid("", "", "", [invalid_value("patch", patched, failure.message)]) from failure
        return self._change(kind, entry, new, context)

    def _change(self, kind: Kind, entry: BucketEntry, new: Obj, context: Context, *, track: bool = True) -> WriteResult:
        stored, old = self.stored_kind(kind), entry.obj()
        new = keep_unwritable(stored, new, old, status_only=context.status)
        self._restore_user(stored, new, old)
        stored.behaviour.default(new)
        stored.behaviour.on_update(ObjectChange(new, old, context.status))
        if same(new, old):
            return WriteResult(old, entry)
        if stored.generation and not context.status:
            count_generation(new, old)
        check_valid(new, old, stored, context, self._rules)
        check_escalation(self._authorizer, context.user, stored, new, old)
        if not context.status:
            stored.behaviour.allocate(new)
        if track:
            track_update(old, new, stored.node, self._writer(stored, context))
        if same(new, old):
            return WriteResult(old, entry)
        self._sign(stored, new, old, context)
        return self._store(stored, new, context)

    def _apply(self, kind: Kind, namespace: str, name: str, config: Any, context: Context) -> WriteResult:
        body = _mapping(config)
        if not body.get("apiVersion") or not body.get("kind"):
            sent = f"{body.get('apiVersion') or ''}, Kind={body.get('kind') or ''}"
            raise bad_request(f"invalid object type: {sent}; expected {kind.api_version}, Kind={kind.kind}")
        entry = self.store.bucket(kind.bucket).get(namespace, name)
        check_identity(body, kind, namespace, name, named=entry is None)
        if not context.manager:
            raise invalid(
                "PatchOptions", "meta.k8s.io", "", [required_value("fieldManager", "is required for apply patch")]
            )
        if entry is None and context.status:
            raise not_found(kind.plural, kind.group, name)
        if entry is not None:
            check_unchanged(kind, entry, meta(body), context)
            check_preconditions(kind, entry, meta(body))
        elif uid := meta(body).get("uid"):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise conflict(kind.plural, kind.group, name, why)
        stored = self.stored_kind(kind)
        for key in ("resourceVersion", "uid", "creationTimestamp", "generation"):
            meta(body).pop(key, None)
        if kind.built_in:
            body = to_storage(body, kind, context, partial=True)
        else:
            strip_unknown(body, kind, context)  # before the merge: a pruned field gets no owner
            body = kind.to_storage(body)
        live = entry.obj() if entry is not None else None
        merged = server_side_apply(live, body, stored.node, self._writer(stored, context), force=context.force)
        merged = to_storage(merged, stored, context)
        if entry is None:
            return self._create(stored, merged, context, track=False)
        return self._change(stored, entry, merged, context, track=False)

    def _restore_user(self, kind: Kind, new: Obj, old: Obj | None) -> None:
        """Set the annotation with the user as it was, whatever a client sends there."""
        if (annotation := self._user_annotations.get(kind.bucket)) is None:
            return
        before = (meta(old).get("annotations") or {}) if old is not None else {}
        annotations = meta(new).get("annotations") or {}
        if annotations.get(annotation) != before.get(annotation):
            rest = {key: value for key, value in annotations.items() if key != annotation}
            meta(new)["annotations"] = rest | {key: before[key] for key in (annotation,) if key in before}

    def _sign(self, kind: Kind, new: Obj, old: Obj | None, context: Context) -> None:
        """Store the user in the annotation of an object that changes in more than finalizers, owners and status."""
        annotation = self._user_annotations.get(kind.bucket)
        if annotation is None or context.status:
            return
        if (
            old is None
            or has_other_content(new, old)
            or any(meta(new).get(key) != meta(old).get(key) for key in ("labels", "annotations"))
        ):
            meta(new)["annotations"] = {**(meta(new).get("annotations") or {}), annotation: context.user.name}

    def _writer(self, kind: Kind, context: Context) -> FieldWriter:
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
        # A namespace is also kept until spec.finalizers is empty, which is when its content has been deleted.
        held = about.get("finalizers") or (kind.bucket == "namespaces" and at(obj, "spec", "finalizers"))
        if "deletionTimestamp" in about and not held:
            entry = self.store.delete(kind.bucket, obj)
        else:
            entry = self.store.put(kind.bucket, obj, bounded=True, quota_bytes=_quota_bytes(kind, context))
        return WriteResult(obj, entry, created)


def _quota_bytes(kind: Kind, context: Context) -> int:
    """Return the limit in bytes of the namespace for this write, 0 for none."""
    if not kind.namespaced or context.user.is_master:
        return 0
    # so that the agent of a full namespace can still renew its Lease
    return MAX_NAMESPACE_BYTES + (LEASES_BYTES if kind.bucket == "leases.coordination.k8s.io" else 0)


def _patched(kind: Kind, current: Obj, patch: Any, media: str) -> Any:
    if media == JSON_PATCH:
        return json_patch(current, patch)
    if media == MERGE_PATCH:
        return merge_patch(current, _mapping(patch))
    if kind.built_in:
        return strategic_merge(current, _mapping(patch), kind.node)
    message = "the body of the request was in an unknown format - accepted media types include: "
    raise ApiFailure(415, "UnsupportedMediaType", f"{message}{JSON_PATCH}, {MERGE_PATCH}, {APPLY_PATCH}")


def _mapping(patch: Any) -> Obj:
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: the patch must be an object")
    return cast("Obj", patch)
