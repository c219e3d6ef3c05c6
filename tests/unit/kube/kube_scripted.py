"""A Kubernetes API over real HTTP that does as a test asks: enough truth to work, and any fault on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.transport import RetryPolicy

JSON = dict[str, Any]
QUICK = RetryPolicy(attempts=4, base_s=0.001, limit_s=0.01, deadline_s=60.0)


@dataclass
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"


Fault = Callable[[Seen], Awaitable[web.StreamResponse | None]]


@dataclass
class Watch:
    """One open watch; ``send`` writes to it, ``end`` closes it in an orderly way."""

    seen: Seen
    lines: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)

    def send(self, data: bytes) -> None:
        self.lines.put_nowait(data)

    def end(self) -> None:
        self.lines.put_nowait(None)


def status(code: int, reason: str = "", message: str = "", **details: Any) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details or None}
    return web.json_response(body, status=code)


def line(kind: str, obj: JSON) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


class ScriptedApi:
    def __init__(self) -> None:
        self.objects: dict[str, dict[tuple[str, str], JSON]] = {}
        self.seen: list[Seen] = []
        self.watches: list[Watch] = []
        self.version = 100
        self.watch_list = "yes"  # yes, no (422), ignored
        self.oldest = 0  # watches from before this version get a 410
        self.faults: list[tuple[Callable[[Seen], bool], Fault, list[int]]] = []
        self.changed = asyncio.Event()
        self.written: dict[bytes, bytes] = {}  # what takes the place of other bytes on the wire
        self._runner: web.AppRunner | None = None
        self._port = 0

    # --- the script -------------------------------------------------------------------------------------------

    def fault(self, match: Callable[[Seen], bool], answer: Fault, *, times: int = 1) -> None:
        self.faults.append((match, answer, [times]))

    def answer(
        self,
        match: Callable[[Seen], bool],
        code: int,
        reason: str = "",
        message: str = "",
        *,
        times: int = 1,
        headers: dict[str, str] | None = None,
        details: dict[str, str] | None = None,
    ) -> None:
        async def respond(_seen: Seen) -> web.StreamResponse:
            response = status(code, reason, message, **(details or {}))
            response.headers.update(headers or {})
            return response

        self.fault(match, respond, times=times)

    def put(self, plural: str, obj: JSON, *, notify: bool = True) -> JSON:
        """Store an object with a new version, and send it to the watches."""
        self.version += 1
        meta = obj.setdefault("metadata", {})
        key = (meta.get("namespace", ""), meta["name"])
        before = self.objects.setdefault(plural, {}).get(key)
        meta["uid"] = before["metadata"]["uid"] if before else f"uid-{self.version}"
        meta["resourceVersion"] = str(self.version)
        self.objects[plural][key] = obj
        if notify:
            self.notify(plural, line("MODIFIED" if before else "ADDED", obj))
        return obj

    def drop(self, plural: str, namespace: str, name: str, *, notify: bool = True) -> None:
        self.version += 1
        obj = self.objects[plural].pop((namespace, name))
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        if notify:
            self.notify(plural, line("DELETED", obj))

    def notify(self, plural: str, data: bytes) -> None:
        for watch in self.watches:
            if watch.seen.path.rsplit("/", 1)[-1] == plural:
                watch.send(data)

    def end_watches(self) -> None:
        for watch in list(self.watches):
            watch.end()

    def requests(self, method: str, *, watch: bool | None = None) -> list[Seen]:
        return [s for s in self.seen if s.method == method and (watch is None or s.is_watch == watch)]

    async def until(self, done: Callable[[], bool], limit_s: float = 180.0) -> None:
        """Wait until ``done()``: what is waited for comes over a socket, so there is nothing else to wait on."""
        async with asyncio.timeout(limit_s):
            while not done():  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    # --- the server -------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def cluster(self, **more: Any) -> Cluster:
        config = more.pop("config", None) or ClusterConfig(server=self.url, user="tester", source="kubeconfig test")
        more.setdefault("policy", QUICK)
        return Cluster(config, name=more.pop("name", "one"), **more)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end_watches()
        assert self._runner
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(request.method, request.path, dict(request.query), dict(request.headers), await request.read())
        self.seen.append(seen)
        for entry in self.faults:
            match, answer, left = entry
            if left[0] > 0 and match(seen):
                left[0] -= 1
                response = await answer(seen)
                if response is not None:
                    return response
        if seen.is_watch:
            return await self._watch(request, seen)
        parts = seen.path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        if seen.path == "/apis":
            return web.json_response({"kind": "APIGroupList", "groups": []})
        if not rest:
            return web.Response(status=404, text="404 page not found")
        return self._rest(seen, rest[0], namespace, rest[1] if len(rest) > 1 else "")

    def _rest(self, seen: Seen, plural: str, namespace: str, name: str) -> web.Response:
        objects = self.objects.setdefault(plural, {})
        if seen.method == "GET" and not name:
            return self._list(seen, plural, namespace)
        if seen.method == "POST":
            obj = seen.json
            meta = obj.get("metadata", {})
            meta.setdefault("namespace", namespace)
            name = meta["name"] = meta.get("name") or f"{meta.get('generateName', '')}1"
            if (namespace, name) in objects:
                return status(409, "AlreadyExists", f"{plural} {name} already exists", name=name)
            return web.json_response(self.put(plural, obj), status=201)
        old = objects.get((namespace, name))
        if seen.method == "PATCH" and "apply-patch" in seen.headers["Content-Type"]:
            obj = seen.json
            obj.get("metadata", {}).setdefault("namespace", namespace)
            if old and _same(old, obj):
                return web.json_response(old)
            return web.json_response(self.put(plural, obj))
        if old is None:
            return status(404, "NotFound", f'{plural} "{name}" not found', name=name, kind=plural)
        if seen.method == "GET":
            return web.json_response(old)
        if seen.method == "PUT":
            obj = seen.json
            wanted = obj["metadata"].get("resourceVersion")
            if wanted and wanted != old["metadata"]["resourceVersion"]:
                return status(409, "Conflict", "the object has been modified", name=name)
            return web.json_response(self.put(plural, obj))
        if seen.method == "PATCH" and "json-patch" in seen.headers["Content-Type"]:
            return web.json_response(old)
        if seen.method == "PATCH":
            return web.json_response(self.put(plural, {**old, **seen.json, "metadata": dict(old["metadata"])}))
        uid = (json.loads(seen.body or b"{}").get("preconditions") or {}).get("uid")
        if uid and uid != old["metadata"]["uid"]:
            return status(409, "Conflict", "the UID in the precondition does not match", name=name)
        self.drop(plural, namespace, name)
        return web.json_response({"kind": "Status", "status": "Success"})

    def _list(self, seen: Seen, plural: str, namespace: str) -> web.Response:
        items = [obj for (ns, _), obj in sorted(self.objects[plural].items()) if not namespace or ns == namespace]
        start, limit = int(seen.query.get("continue", "0")), int(seen.query.get("limit", "0"))
        more = limit and start + limit < len(items)
        page = items[start : start + limit] if limit else items
        meta = {"resourceVersion": str(self.version), "continue": str(start + limit) if more else ""}
        body = self._on_the_wire(json.dumps({"kind": "List", "metadata": meta, "items": page or None}).encode())
        return web.Response(body=body, content_type="application/json")

    def _on_the_wire(self, data: bytes) -> bytes:
        for before, after in self.written.items():
            data = data.replace(before, after)
        return data

    async def _watch(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        plural = seen.path.rsplit("/", 1)[-1]
        wants_state = seen.query.get("sendInitialEvents") == "true"
        if wants_state and self.watch_list == "no":
            return status(422, "Invalid", "sendInitialEvents: Forbidden: watch list feature is disabled")
        version = seen.query.get("resourceVersion", "")
        if version and int(version) < self.oldest:
            return status(410, "Expired", "too old resource version")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        watch = Watch(seen)
        for obj in self.objects.get(plural, {}).values():
            if wants_state or int(obj["metadata"]["resourceVersion"]) > int(version or 0):
                watch.send(line("ADDED", obj))
        if wants_state and self.watch_list == "yes":
            watch.send(bookmark(self.version, end=True))
        self.watches.append(watch)
        try:
            while (data := await watch.lines.get()) is not None:
                await response.write(self._on_the_wire(data))
            await response.write_eof()
        except ConnectionError:
            pass
        finally:
            self.watches.remove(watch)
        return response


def bookmark(version: int, *, end: bool = False) -> bytes:
    meta: JSON = {"resourceVersion": str(version)}
    if end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return line("BOOKMARK", {"kind": "Service", "metadata": meta})


def service(name: str, namespace: str = "a", *, port: object = 80, **spec: Any) -> JSON:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "LoadBalancer", "ports": [{"port": port}], **spec},
    }


def _same(old: JSON, new: JSON) -> bool:
    return all(old.get(key) == value for key, value in new.items() if key != "metadata")


def is_list(seen: Seen) -> bool:
    return seen.method == "GET" and not seen.is_watch


def is_watch(seen: Seen) -> bool:
    return seen.is_watch


def method(name: str) -> Callable[[Seen], bool]:
    return lambda seen: seen.method == name
