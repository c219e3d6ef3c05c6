"""A client for the tests: one namespace, answers that are read, and the bodies most tests send."""

import asyncio
import io
import uuid
from typing import Any

import aiohttp
import msgspec
import pytest

MERGE, JSON_PATCH, STRATEGIC, APPLY = (
    f"application/{name}"
    for name in ("merge-patch+json", "json-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")
)


class Answer:
    """An answer that has been read."""

    def __init__(self, code: int, headers: Any, raw: bytes) -> None:
        self.code = code
        self.headers = headers
        self.raw = raw

    @property
    def body(self) -> Any:
        return msgspec.json.decode(self.raw)

    def ok(self, code: int = 200) -> Any:
        assert self.code == code, self.raw.decode()
        return self.body

    def refused(self, code: int, reason: str, message: str = "") -> Any:
        assert (self.code, self.body["reason"]) == (code, reason), self.raw.decode()
        assert message in self.body["message"]
        return self.body


class Api:
    """A client of (url, token) with a namespace of its own."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self.session = session
        self.url = url
        self.token = token
        self.ns = f"t-{uuid.uuid4().hex[:8]}"
        self.cms = f"/api/v1/namespaces/{self.ns}/configmaps"
        self.svcs = f"/api/v1/namespaces/{self.ns}/services"

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = "",
        token: str | None = None,
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> Answer:
        heads = {"Authorization": f"Bearer {self.token if token is None else token}"} | (headers or {})
        data = None
        if body is not None:
            raw = body.encode() if isinstance(body, str) else body
            data = io.BytesIO(raw if isinstance(raw, bytes) else msgspec.json.encode(raw))
            heads["Content-Type"] = media or "application/json"
        params = [(k, str(v)) for k, v in query.items()]
        async with self.session.request(method, self.url + path, data=data, headers=heads, params=params) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, **kw: Any) -> Answer:
        return await self.call("GET", path, **kw)

    async def post(self, path: str, body: Any, **kw: Any) -> Answer:
        return await self.call("POST", path, body, **kw)

    async def put(self, path: str, body: Any, **kw: Any) -> Answer:
        return await self.call("PUT", path, body, **kw)

    async def patch(self, path: str, body: Any, media: str = MERGE, **kw: Any) -> Answer:
        return await self.call("PATCH", path, body, media=media, **kw)

    async def delete(self, path: str, body: Any = None, **kw: Any) -> Answer:
        return await self.call("DELETE", path, body, **kw)

    async def watch(
        self, path: str, *, until: int, seen: asyncio.Event | None = None, **query: Any
    ) -> list[dict[str, Any]]:
        """Read ``until`` events of a watch; ``seen`` is set at the first."""
        events: list[dict[str, Any]] = []
        heads = {"Authorization": f"Bearer {self.token}"}
        query = {"watch": "1", "timeoutSeconds": "10"} | {k: str(v) for k, v in query.items()}
        async with self.session.get(self.url + path, headers=heads, params=query) as response:
            async for line in response.content:
                events.append(msgspec.json.decode(line))
                if seen is not None:
                    seen.set()
                if len(events) == until:
                    break
        return events

    async def locked_out(self, token: str, code: int = 401, reason: str = "Unauthorized") -> None:
        """Wait until ``token`` opens nothing; a real server hears of it late, and remembers a token for ten seconds."""
        async with asyncio.timeout(180):
            while True:
                answer = await self.get(self.cms, token=token)
                if answer.code != 200:
                    break
                await asyncio.sleep(0.2)
        answer.refused(code, reason)

    async def served(self, path: str) -> None:
        """Wait until a new kind is listed at ``path``: a real server needs a moment."""
        async with asyncio.timeout(180):
            while True:
                if (await self.get(path)).code == 200:
                    return
                await asyncio.sleep(0.05)

    async def until(self, path: str, *keys: str) -> Any:
        """Wait until the object at ``path`` has a value at ``keys``; controllers work in the background."""
        async with asyncio.timeout(180):
            while True:
                value = (await self.get(path)).ok()
                for key in keys:
                    value = (value or {}).get(key)
                if value:
                    return value
                await asyncio.sleep(0.05)

    async def gone(self, path: str, **query: Any) -> None:
        """Wait until ``path`` is 404, by watching for its deletion; the collector works in the background."""
        collection, _, name = path.rpartition("/")
        listed = (await self.get(collection)).ok()
        if not any(item["metadata"]["name"] == name for item in listed["items"]):
            return
        rv = listed["metadata"]["resourceVersion"]
        heads = {"Authorization": f"Bearer {self.token}"}
        params = {"watch": "1", "resourceVersion": rv, "timeoutSeconds": "30", "fieldSelector": f"metadata.name={name}"}
        async with self.session.get(self.url + collection, headers=heads, params=params) as response:
            async for line in response.content:
                if msgspec.json.decode(line)["type"] == "DELETED":
                    return
        pytest.fail(f"{path} is still there")


def config_map(name: str, data: dict[str, str] | None = None, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}, "data": data or {"k": "v"}}


def service(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"name": "a", "port": 80}]} | spec
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


async def account(api: Api, name: str, verbs: list[str]) -> str:
    """Return the token of an account that may do ``verbs`` with ConfigMaps."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{api.ns}"
    accounts = f"/api/v1/namespaces/{api.ns}/serviceaccounts"
    (await api.post(accounts, {"metadata": {"name": name}})).ok(201)
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}
    (await api.post(f"{rbac}/roles", {"metadata": {"name": name}, "rules": [rule]})).ok(201)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": api.ns}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    (await api.post(f"{rbac}/rolebindings", {"metadata": {"name": name}, "subjects": [subject], "roleRef": ref})).ok(
        201
    )
    return (await api.post(f"{accounts}/{name}/token", {"spec": {}})).ok(201)["status"]["token"]
