"""Turn writes over HTTP into operations of the registry, and their results into answers."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from podless.auth.identity import User
from podless.auth.rbac import AccessRequest, Authorizer
from podless.cooperative_yield import TimeSlice
from podless.failure import forbidden, no_such_path, unsupported_media_type
from podless.http.info import RequestInfo
from podless.http.options import delete_options, selection, write_context
from podless.http.parse import parse_any, parse_object, read_bytes
from podless.http.protobuf import ProtobufReader
from podless.http.reads import select_entries
from podless.http.representation import representation_of
from podless.http.responses import json_response, json_response_in_chunks
from podless.kinds.kind import Kind
from podless.objects import Obj, at, encode
from podless.registry.context import Context, DeleteOptions, WriteResult
from podless.registry.deletion import DeleteResult, Deletion
from podless.registry.registry import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Registry

_PATCHES = frozenset({JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH})


class Writes:
    """Creates, updates, patches and deletes of one server."""

    def __init__(
        self,
        registry: Registry,
        deletion: Deletion,
        *,
        protobuf: ProtobufReader,
        authorizer: Authorizer,
        now: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._deletion = deletion
        self._protobuf = protobuf
        self._authorizer = authorizer
        self._now = now

    async def serve(self, request: web.BaseRequest, kind: Kind, info: RequestInfo, user: User) -> web.StreamResponse:
        """Answer one write."""
        raw = await read_bytes(request)
        media = request.headers.get("Content-Type", "").partition(";")[0].strip()
        context = write_context(request, user, info, applies=media == APPLY_PATCH)
        match info.verb:
            case "create":
                body = parse_object(raw, media, self._protobuf)
                return self._stored(request, kind, self._registry.create(kind, info.namespace, body, context), context)
            case "update":
                return self._stored(request, kind, self._update(kind, info, raw, media, context), context)
            case "patch":
                return self._stored(request, kind, self._patch(kind, info, raw, media, context), context)
            case "delete":
                return self._delete(request, kind, info, raw, media, context)
            case "deletecollection":
                return await self._delete_collection(request, kind, info, raw, media, context)
            case _:
                raise no_such_path()

    def _stored(self, request: web.BaseRequest, kind: Kind, stored: WriteResult, context: Context) -> web.Response:
        representation = representation_of(request, kind, self._now)
        body = representation.object(stored.entry) if stored.entry is not None else representation.dry_run(stored.obj)
        return json_response(body, 201 if stored.created else 200, context.warnings)

    def _update(self, kind: Kind, info: RequestInfo, raw: bytes, media: str, context: Context) -> WriteResult:
        body = parse_object(raw, media, self._protobuf)
        missing = self._registry.store.bucket(kind.bucket).get(info.namespace, info.name) is None
        if missing and not info.subresource and kind.bucket in {"leases.coordination.k8s.io", "events"}:
            # These kinds may be created by PUT, as on a real server.
            self._may_create(context.user, kind, info)
            return self._registry.create(kind, info.namespace, body, context)
        return self._registry.replace(kind, info.namespace, info.name, body, context)

    def _patch(self, kind: Kind, info: RequestInfo, raw: bytes, media: str, context: Context) -> WriteResult:
        if media not in _PATCHES:
            raise unsupported_media_type(media)
        missing = self._registry.store.bucket(kind.bucket).get(info.namespace, info.name) is None
        if media == APPLY_PATCH and missing:
            self._may_create(context.user, kind, info)
        patch = parse_any(raw, media)
        return self._registry.patch(kind, info.namespace, info.name, patch, media, context)

    def _may_create(self, user: User, kind: Kind, info: RequestInfo) -> None:
        if not self._authorizer.allows(
            user, AccessRequest("create", kind.group, kind.plural, namespace=info.namespace)
        ):
            raise forbidden(
                kind.plural, kind.group, info.name, f'User "{user.name}" cannot create resource "{kind.plural}"'
            )

    def _options(self, request: web.BaseRequest, raw: bytes, media: str, context: Context) -> DeleteOptions:
        """Return the options of a delete, and have ``context`` be a dry run when they ask for it."""
        options = delete_options(request, parse_object(raw, media, self._protobuf) if raw else None)
        context.dry_run = options.dry_run
        return options

    def _delete(
        self, request: web.BaseRequest, kind: Kind, info: RequestInfo, raw: bytes, media: str, context: Context
    ) -> web.Response:
        options = self._options(request, raw, media, context)
        entry = self._registry.entry(kind, info.namespace, info.name)
        deleted = self._deletion.delete(self._registry.stored_kind(kind), entry, context, options)
        return json_response(self._outcome(kind, deleted))

    @staticmethod
    def _outcome(kind: Kind, deleted: DeleteResult) -> bytes:
        if not deleted.gone:
            return encode(kind.from_storage(deleted.obj))
        details: Obj = {"name": at(deleted.obj, "metadata", "name")} | ({"group": kind.group} if kind.group else {})
        details |= {"kind": kind.plural, "uid": at(deleted.obj, "metadata", "uid")}
        status: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return encode(status)

    async def _delete_collection(
        self, request: web.BaseRequest, kind: Kind, info: RequestInfo, raw: bytes, media: str, context: Context
    ) -> web.StreamResponse:
        options = self._options(request, raw, media, context)
        selectors = selection(request, kind, info)
        stored = self._registry.stored_kind(kind)
        bucket = self._registry.store.bucket(kind.bucket)
        time_slice, entries = TimeSlice(), await select_entries(bucket.sorted_entries(info.namespace), selectors)
        for entry in entries:
            current = bucket.entries.get(entry.key)
            if current is not None and current.uid == entry.uid:
                self._deletion.delete(stored, current, context, options)
            await time_slice.yield_if_used_up()
        listmeta = {"resourceVersion": str(self._registry.store.rv)}
        return await json_response_in_chunks(
            request, representation_of(request, kind, self._now).list(entries, listmeta)
        )
