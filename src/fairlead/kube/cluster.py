"""Requests to a cluster: get, list, apply, create, replace, patch, delete, and reviews of rights.

In: a Resource and plain JSON for writes. Out: objects of ``resource.type``, or a Fairlead error with a sentence.
``Listing`` has all pages of a list, with the objects that could not be decoded apart. Never: a global; one Cluster per
kubeconfig context, any number of them in one event loop. One bad object never hides the others, nor is it forgotten.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

import msgspec

from fairlead.api.json_text import decode, is_cut, read_json, repaired, salvage
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, ObjectKey, Resource, Wire
from fairlead.errors import Bug, Expired, NotFound
from fairlead.kube.config import ClusterConfig
from fairlead.kube.kubeconfig import load_config
from fairlead.kube.transport import (
    PAGE_BYTES,
    Call,
    HttpRequest,
    KubeMetrics,
    Reachability,
    RetryPolicy,
    ServerClock,
    StateSize,
    Transport,
    invalid_object,
    no_api_answer,
)
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.runtime.queue import TokenBucket

T = TypeVar("T")
K = TypeVar("K", bound=KubeObject)


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    """The metadata of a list."""

    resource_version: str = ""
    next_page: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], gc=False):
    """One answer to a list request; real servers send ``items: null`` too."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[T] | None = None


@dataclass
class DecodedPage(Generic[K]):
    """One page, after every object was tried."""

    items: list[K]
    resource_version: str
    next_page: str
    broken: dict[ObjectKey, str]


@dataclass
class Listing(Generic[K]):
    """All objects as of one resourceVersion; ``broken`` maps the keys of unreadable ones to the reason."""

    items: list[K] = field(default_factory=list[K])
    resource_version: str = ""
    broken: dict[ObjectKey, str] = field(default_factory=dict[ObjectKey, str])

    def add(self, page: DecodedPage[K]) -> None:
        """Add one more page."""
        self.items.extend(page.items)
        self.broken.update(page.broken)
        self.resource_version = page.resource_version


#: The key of an object whose name cannot be read; any held object may be meant.
UNNAMED = ObjectKey("", "")


def decode_page(body: bytes, of: type[K]) -> DecodedPage[K]:
    """Decode one page, whole if possible, else object by object.

    Raises:
        msgspec.DecodeError: the body is not a list.
    """
    try:
        page = decode(body, Page[of])
    except msgspec.DecodeError:
        decoded = _decode_each(body, of)
    else:
        if not all(obj.metadata.name for obj in page.items or ()):
            return _decode_each(body, of)
        decoded = DecodedPage(page.items or [], page.metadata.resource_version, page.metadata.next_page, {})
    if not (decoded.items or decoded.broken or decoded.resource_version):
        # What a proxy between says with 200, such as {"error": "log in"}: no server has a list without a version.
        raise msgspec.ValidationError("neither items nor metadata.resourceVersion")
    return decoded


def _decode_each(body: bytes, of: type[K]) -> DecodedPage[K]:
    try:
        page = decode(body, Page[msgspec.Raw])
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        page = decode(repaired(body), Page[msgspec.Raw])
    items: list[K] = []
    broken: dict[ObjectKey, str] = {}
    for raw in page.items or ():
        obj = decode_object(raw, of)
        if isinstance(obj, str):
            broken[key_of(raw)] = obj
        else:
            items.append(obj)
    return DecodedPage(items, page.metadata.resource_version, page.metadata.next_page, broken)


def decode_object(raw: msgspec.Raw, of: type[K]) -> K | str:
    """Return an object of a list or of a watch, or why it cannot be read."""
    try:
        obj = decode(raw, of)
    except msgspec.DecodeError as error:
        return Undecodable(str(error), raw)
    if is_cut(raw):
        return Undecodable("JSON is nested too deeply", raw)
    return obj if obj.metadata.name else "metadata.name is missing"


class _Identity(Wire, frozen=True, gc=False):
    class Metadata(Wire, frozen=True, gc=False):
        name: str = ""
        namespace: str = ""

    metadata: Metadata = Metadata()


def key_of(raw: msgspec.Raw) -> ObjectKey:
    """Return the key of an object that cannot be decoded, ``UNNAMED`` when not even that can be read."""
    identity = read_json(raw, _Identity) or read_json(repaired(raw), _Identity)
    meta = (identity or _Identity()).metadata
    return ObjectKey(meta.namespace, meta.name) if meta.name else UNNAMED


def selector_params(label_selector: str, field_selector: str) -> dict[str, str]:
    """Return the query parameters of a selection."""
    params: dict[str, str] = {}
    if label_selector:
        params["labelSelector"] = label_selector
    if field_selector:
        params["fieldSelector"] = field_selector
    return params


class Undecodable(str):
    """Why an object cannot be decoded, with what was received of it."""

    __slots__ = ("body",)
    body: bytes

    def __new__(cls, why: str, body: bytes | msgspec.Raw) -> Self:
        """Return ``why``, which keeps ``body``."""
        text = super().__new__(cls, why)
        text.body = bytes(memoryview(body))
        return text


class Remains(msgspec.Struct, Generic[K], frozen=True):
    """The readable part of an object that cannot be decoded: None for nothing. ``lost`` names the other fields."""

    obj: K | None
    lost: frozenset[str]

    def has(self, field: str) -> bool:
        """Return whether ``field`` was read with all that it contains, or is known to be absent."""
        parts = (f"{lost}." for lost in self.lost)
        return self.obj is not None and not any(
            f"{field}.".startswith(lost) or lost.startswith(f"{field}.") for lost in parts
        )


def remains_of(why: str, of: type[K]) -> Remains[K]:
    """Return the readable part of an object that cannot be decoded."""
    return Remains(*salvage(why.body, of)) if isinstance(why, Undecodable) else Remains(None, frozenset())


class Unreadable(MutableMapping[ObjectKey, str]):
    """Why objects cannot be decoded, by their key."""

    def __init__(self) -> None:
        self._reasons: dict[ObjectKey, str] = {}
        self._callbacks: list[Callable[[ObjectKey], None]] = []

    def __getitem__(self, key: ObjectKey) -> str:
        return self._reasons[key]

    def __setitem__(self, key: ObjectKey, why: str) -> None:
        # Also when the reason is the same: it may be being deleted now.
        self._reasons[key] = why
        self._notify(key)

    def __delitem__(self, key: ObjectKey) -> None:
        del self._reasons[key]
        self._notify(key)

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self._reasons)

    def __len__(self) -> int:
        return len(self._reasons)

    def on_change(self, callback: Callable[[ObjectKey], None]) -> None:
        """Call ``callback`` with the key of each object that is shown with a reason, or has one no more."""
        self._callbacks.append(callback)

    def replace(self, reasons: Mapping[ObjectKey, str]) -> None:
        """Replace the set of undecodable objects."""
        for key in self._reasons.keys() - reasons.keys():
            del self[key]
        self.update(reasons)

    def _notify(self, key: ObjectKey) -> None:
        for callback in self._callbacks:
            callback(key)


PAGE_SIZE = 500


#: Requests a second of a controller: a thousand Services that appear at once are two thousand writes, one in fifty
#: regions is fifty; the API server's own fairness does the rest.
CONTROLLER_QPS = 1000.0

_JSON = "application/json"
_JSON_PATCH = "application/json-patch+json"


class _RightReview(msgspec.Struct):
    """A review of a right."""

    class ReviewAnswer(msgspec.Struct):
        """The answer."""

        allowed: bool = False

    status: ReviewAnswer


class _ServerVersion(msgspec.Struct):
    """The version of a server."""

    git_version: str = msgspec.field(name="gitVersion")


class _Deletion(KubeObject, frozen=True, gc=False):
    """The answer to a deletion: the object, which something holds, or a Status without a name."""

    kind: str = ""
    status: object = None

    def done(self, call: Call) -> bool:
        """Return whether the server has accepted the deletion."""
        return self.metadata.name == call.name or (self.kind == "Status" and self.status == "Success")


class Cluster:
    """One cluster, as one user; connections open at the first request."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        name: str,
        qps: float = 200,
        clock: Clock | None = None,
        metrics: KubeMetrics | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.server = config.server
        self.namespace = config.namespace
        self.clock: Clock = clock or SystemClock()
        self.metrics = metrics or KubeMetrics()
        self._transport = Transport(
            config,
            name=name,
            limiter=TokenBucket(qps, int(2 * qps), self.clock),
            clock=self.clock,
            metrics=self.metrics,
            policy=policy or RetryPolicy(),
        )

    @classmethod
    def from_kubeconfig(
        cls,
        path: str | Path | None = None,
        *,
        context: str = "",
        name: str = "",
        qps: float = 200,
        clock: Clock | None = None,
        metrics: KubeMetrics | None = None,
        policy: RetryPolicy | None = None,
    ) -> Self:
        """Read a kubeconfig; None means $KUBECONFIG, then ~/.kube/config, then the service account of this pod.

        Nothing is asked of the server, and no sign-in plugin runs, before the first request.

        Raises:
            BadConfiguration: it is missing or broken; the sentence names file, context and field.
        """
        config = load_config(path, context=context, clock=clock)
        return cls(config, name=name or "default", qps=qps, clock=clock, metrics=metrics, policy=policy)

    @property
    def writes(self) -> int:
        """Return how many changing requests the server has accepted."""
        return self._transport.writes

    @property
    def server_clock(self) -> ServerClock:
        """Return the server's clock, derived from its answers."""
        return self._transport.server_clock

    @property
    def silent_s(self) -> float:
        """Return the seconds since the server last answered, or since the start; makes no request."""
        return self.clock.monotonic() - self._transport.answered_at_s

    @property
    def reachable(self) -> Reachability:
        """Return the tracker of whether the server answers, whose ``pause`` ends retry delays."""
        return self._transport.reachable

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # --- reading ----------------------------------------------------------------------------------------------

    async def get(self, resource: Resource[K], namespace: str, name: str) -> K:
        """Return one object.

        Raises:
            NotFound: there is none.
        """
        call = self.call_for("get", resource, namespace, name)
        request = HttpRequest(method="GET", path=resource.path(namespace, name))
        return await self._answer(call, request, resource.type)

    async def list(
        self, resource: Resource[K], namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> list[K]:
        """Return all objects; an empty namespace means all namespaces.

        Raises:
            Invalid: one of them does not have the expected shape.
        """
        listing = await self.listing(resource, namespace, label_selector=label_selector, field_selector=field_selector)
        for key, problem in listing.broken.items():
            raise invalid_object(self.call_for("list", resource, *key), problem)
        return listing.items

    async def listing(
        self,
        resource: Resource[K],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Listing[K]:
        """Return all objects as of one resourceVersion, with those apart that cannot be decoded."""
        try:
            return await self._pages(resource, namespace, label_selector, field_selector, page_size)
        except Expired:
            # The continue token outlived its snapshot. One answer with everything cannot expire half-way.
            return await self._pages(resource, namespace, label_selector, field_selector, 0)

    async def _pages(
        self, resource: Resource[K], namespace: str, label_selector: str, field_selector: str, page_size: int
    ) -> Listing[K]:
        call = self.call_for("list", resource, namespace)
        params = selector_params(label_selector, field_selector)
        if page_size:
            params["limit"] = str(page_size)
        listing, size = Listing[K](), StateSize(call)
        while True:
            request = HttpRequest(method="GET", path=resource.path(namespace), params=params)
            body = await self._transport.call(call, request)
            size.add(max(len(body), PAGE_BYTES))
            try:
                page = decode_page(body, resource.type)
            except msgspec.DecodeError as error:
                raise no_api_answer(call, "something that is not a list", detail=_size(error, body)) from error
            listing.add(page)
            if not page.next_page:
                return listing
            if page.next_page == params.get("continue"):
                raise no_api_answer(call, "the same page again")
            params["continue"] = page.next_page

    def watch(
        self, resource: AnyResource, namespace: str, *, params: Mapping[str, str], idle_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch as a stream of chunks of JSON lines, for WatchCache."""
        call = self.call_for("watch", resource, namespace)
        request = HttpRequest(method="GET", path=resource.path(namespace), params={**params, "watch": "true"})
        return self._transport.stream(call, request, idle_s=idle_s)

    # --- writing ----------------------------------------------------------------------------------------------

    async def apply(
        self,
        resource: Resource[K],
        obj: JSONObject,
        *,
        manager: str,
        force: bool = True,
        subresource: str = "",
        dry_run: bool = False,
    ) -> K:
        """Own the fields of ``obj`` (server-side apply), creating the object when there is none.

        ``dry_run``: the API server answers as usual, but stores nothing.

        Raises:
            Conflict: without ``force``, another manager owns one of the fields.
        """
        obj = _typed(resource, obj)
        params = {"fieldManager": manager, "force": "true" if force else "false"}
        if dry_run:
            params["dryRun"] = "All"
        key = self._key(resource, obj)
        return await self._change("apply", resource, key, obj, subresource, params, "application/apply-patch+yaml")

    async def create(self, resource: Resource[K], obj: JSONObject) -> K:
        """Create an object; ``metadata.generateName`` works too.

        Raises:
            AlreadyExists: there is one of that name.
        """
        obj = _typed(resource, obj)
        namespace, name = self._key(resource, obj, generated=True)
        request = HttpRequest(
            method="POST", path=resource.path(namespace), body=msgspec.json.encode(obj), idempotent=False
        )
        return await self._answer(self.call_for("create", resource, namespace, name), request, resource.type)

    async def replace(self, resource: Resource[K], obj: JSONObject, *, subresource: str = "") -> K:
        """Replace an object as a whole.

        Raises:
            Conflict: ``metadata.resourceVersion`` is given and no longer the current one.
        """
        obj = _typed(resource, obj)
        return await self._change("replace", resource, self._key(resource, obj), obj, subresource, None, _JSON)

    async def merge_patch(
        self,
        resource: Resource[K],
        namespace: str,
        name: str,
        patch: JSONObject,
        *,
        subresource: str = "",
        manager: str = "",
    ) -> K:
        """Change some fields (RFC 7386: null removes, lists are replaced)."""
        params, key = {"fieldManager": manager} if manager else None, ObjectKey(namespace, name)
        return await self._change("patch", resource, key, patch, subresource, params, "application/merge-patch+json")

    async def json_patch(
        self,
        resource: Resource[K],
        namespace: str,
        name: str,
        ops: Sequence[JSONObject],
        *,
        subresource: str = "",
        manager: str = "",
    ) -> K:
        """Change some fields by operations (RFC 6902); never sent twice, as "add" to a list would add twice."""
        params, key = {"fieldManager": manager} if manager else None, ObjectKey(namespace, name)
        return await self._change("patch", resource, key, ops, subresource, params, _JSON_PATCH)

    async def _change(
        self,
        verb: str,
        resource: Resource[K],
        key: ObjectKey,
        body: JSONObject | Sequence[JSONObject],
        subresource: str,
        params: Mapping[str, str] | None,
        content_type: str,
    ) -> K:
        request = HttpRequest(
            method="PUT" if verb == "replace" else "PATCH",
            path=resource.path(*key, subresource),
            params=params,
            body=msgspec.json.encode(body),
            content_type=content_type,
            idempotent=content_type != _JSON_PATCH,
        )
        return await self._answer(self.call_for(verb, resource, *key, subresource), request, resource.type)

    async def delete(
        self, resource: AnyResource, namespace: str, name: str, *, uid: str = "", resource_version: str = ""
    ) -> bool:
        """Delete an object, on condition of ``uid`` or ``resource_version``; return False when it did not exist.

        Raises:
            Conflict: ``uid`` or ``resource_version`` is no longer that of the object.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options: JSONObject = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if wanted := {key: value for key, value in preconditions.items() if value}:
            options["preconditions"] = wanted
        path = resource.path(namespace, name)
        request = HttpRequest(method="DELETE", path=path, body=msgspec.json.encode(options))
        try:
            await self._answer(self.call_for("delete", resource, namespace, name), request, _Deletion)
        except NotFound:
            return False
        return True

    async def raw(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Return the body of any request; only GET is retried."""
        call = Call(config=self.config, cluster=self.name, verb=method.lower(), path=path)
        request = HttpRequest(
            method=method,
            path=path,
            params=params,
            body=body,
            content_type=content_type,
            idempotent=method in {"GET", "HEAD"},
        )
        return await self._transport.call(call, request)

    async def raw_as(self, method: str, path: str, of: type[T], *, body: bytes | None = None) -> T:
        """Return the decoded body of any request that changes nothing; only GET is retried."""
        call = Call(config=self.config, cluster=self.name, verb=method.lower(), path=path)
        request = HttpRequest(method=method, path=path, body=body, idempotent=method == "GET", review=True)
        return await self._answer(call, request, of)

    async def can_i(
        self, verb: str, group: str, resource: str, namespace: str = "", name: str = "", subresource: str = ""
    ) -> bool:
        """Ask the server whether we have a right; an empty namespace means all of them."""
        wanted = {
            "verb": verb,
            "group": group,
            "resource": resource,
            "namespace": namespace,
            "name": name,
            "subresource": subresource,
        }
        api_version = "authorization.k8s.io/v1"
        body: JSONObject = {
            "apiVersion": api_version,
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: value for key, value in wanted.items() if value}},
        }
        path = f"/apis/{api_version}/selfsubjectaccessreviews"
        call = Call(config=self.config, cluster=self.name, verb="create", path=path)
        request = HttpRequest(method="POST", path=path, body=msgspec.json.encode(body), review=True)
        return (await self._answer(call, request, _RightReview)).status.allowed

    async def version(self) -> str:
        """Return the server's version, such as ``v1.36.2``."""
        call = Call(config=self.config, cluster=self.name, verb="get", path="/version")
        return (await self._answer(call, HttpRequest(method="GET", path="/version"), _ServerVersion)).git_version

    def call_for(
        self, verb: str, resource: AnyResource, namespace: str = "", name: str = "", subresource: str = ""
    ) -> Call:
        """Describe a request for error messages and metrics."""
        return Call(
            config=self.config,
            cluster=self.name,
            verb=verb,
            resource=resource,
            namespace=namespace if resource.namespaced else "",
            name=name,
            subresource=subresource,
        )

    async def _answer(self, call: Call, request: HttpRequest, of: type[T]) -> T:
        body = await self._transport.call(call, request)
        try:
            answer = decode(body, of)
        except msgspec.ValidationError as error:
            if call.resource and _is_of(call, key_of(msgspec.Raw(body))):
                raise invalid_object(call, str(error)) from error
            raise no_api_answer(call, "something that is not an object", detail=_size(error, body)) from error
        except msgspec.DecodeError as error:
            raise no_api_answer(call, "something that is not JSON", detail=_size(error, body)) from error
        # A lease without a holder is free, and what was not deleted would count as gone.
        if isinstance(answer, KubeObject) and not (
            answer.done(call) if isinstance(answer, _Deletion) else _is_of(call, answer.key)
        ):
            raise no_api_answer(call, "something that is not the object")
        return answer

    def _key(self, resource: AnyResource, obj: JSONObject, *, generated: bool = False) -> ObjectKey:
        meta: JSONObject = obj.get("metadata") or {}
        name = str(meta.get("name") or "")
        if not name and not (generated and meta.get("generateName")):
            raise Bug(f"A {resource.kind} without metadata.name was to be written to {self.name}.")
        # As kubectl does: what names no namespace goes to the one of the context.
        namespace = str(meta.get("namespace") or self.namespace) if resource.namespaced else ""
        return ObjectKey(namespace, name)


def _is_of(call: Call, key: ObjectKey) -> bool:
    """Return whether an object is the one that ``call`` names."""
    return bool(key.name) and key.name == (call.name or key.name) and key.namespace == call.namespace


def _size(error: msgspec.DecodeError, body: bytes) -> str:
    return f"{error}; {len(body)} bytes"


def _typed(resource: AnyResource, obj: JSONObject) -> JSONObject:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
