"""A Kubernetes API in a dictionary: resourceVersions, uids, finalizers, deletion in two steps, and watches that lag.

In: the calls of a ledger. Out: what a real API server would answer. Every call passes ``at_call`` before and after.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from fairlead.api.backendgroup import BACKEND_RECORDS, BackendRecord
from fairlead.api.meta import AnyResource, JSONObject
from fairlead.errors import AlreadyExists, Conflict, NotFound

Key = tuple[str, str, str]
Watch = Callable[[BackendRecord | None, BackendRecord | None], None]


async def _at_once(_when: str, _what: str, number: int = 0) -> int:
    """Be a perfect API server."""
    return number


class TinyApi:
    """The objects, and who watches the records."""

    def __init__(self) -> None:
        self.objects: dict[Key, JSONObject] = {}
        self.writes = 0
        self.at_call: Callable[..., Awaitable[int]] = _at_once
        self.lag_s: Callable[[], float] = lambda: 0.0
        self._versions = itertools.count(1)
        self._watches: list[Watch] = []
        self._events: deque[tuple[Watch, BackendRecord | None, BackendRecord | None]] = deque()
        self._sent_s = 0.0

    # --- what tests look at ---

    def records(self) -> list[BackendRecord]:
        return [_typed(BACKEND_RECORDS, each) for key, each in self.objects.items() if key[0] == "BackendRecord"]

    def typed(self, resource: AnyResource, namespace: str, name: str) -> Any:
        stored = self.objects.get((resource.kind, namespace, name))
        return _typed(resource, stored) if stored is not None else None

    def watch(self, watch: Watch) -> Callable[[], None]:
        self._watches.append(watch)
        return lambda: self._watches.remove(watch)

    # --- the calls of a ledger ---

    async def get(self, resource: AnyResource, namespace: str, name: str) -> Any:
        number = await self.at_call("before", f"get {resource.kind}")
        result = self._stored(resource, namespace, name)
        await self.at_call("after", f"get {resource.kind}", number)
        return _typed(resource, result)

    async def create(self, resource: AnyResource, obj: JSONObject) -> Any:
        number = await self.at_call("before", f"create {resource.kind}")
        answer = self.do_create(resource, obj)
        await self.at_call("after", f"create {resource.kind}", number)
        return answer

    async def apply(
        self, resource: AnyResource, obj: JSONObject, *, manager: str, force: bool = True, subresource: str = ""
    ) -> Any:
        number = await self.at_call("before", f"apply {resource.kind}")
        meta, (entry,) = obj["metadata"], obj["status"]["provisioned"]
        status = self._stored(resource, meta["namespace"], meta["name"]).get("status") or {}
        others = [known for known in status.get("provisioned") or () if known["provider"] != entry["provider"]]
        version = {"resourceVersion": meta["resourceVersion"]} if "resourceVersion" in meta else {}
        patch: JSONObject = {"metadata": version, "status": {"provisioned": [*others, entry]}}
        answer = self.do_patch(resource, meta["namespace"], meta["name"], patch)
        await self.at_call("after", f"apply {resource.kind}", number)
        return answer

    async def list(self, resource: AnyResource, namespace: str = "", **_selectors: str) -> list[Any]:
        await self.at_call("before", f"list {resource.kind}")
        return [_typed(resource, obj) for key, obj in self.objects.items() if key[0] == resource.kind]

    async def merge_patch(
        self,
        resource: AnyResource,
        namespace: str,
        name: str,
        patch: JSONObject,
        *,
        subresource: str = "",
        manager: str = "",
    ) -> Any:
        number = await self.at_call("before", f"patch {resource.kind}")
        answer = self.do_patch(resource, namespace, name, patch)
        await self.at_call("after", f"patch {resource.kind}", number)
        return answer

    async def delete(
        self, resource: AnyResource, namespace: str, name: str, *, uid: str = "", resource_version: str = ""
    ) -> bool:
        number = await self.at_call("before", f"delete {resource.kind}")
        answer = self.do_delete(resource, namespace, name, uid=uid)
        await self.at_call("after", f"delete {resource.kind}", number)
        return answer

    # --- the same, done by others and at once ---

    def do_create(self, resource: AnyResource, obj: JSONObject) -> Any:
        meta = obj["metadata"]
        key = (resource.kind, str(meta["namespace"]), str(meta["name"]))
        if key in self.objects:
            raise AlreadyExists(f"{key} exists already")
        given = copy.deepcopy(obj)
        given["metadata"]["uid"] = f"uid-{next(self._versions)}"
        self._put(key, given)
        return _typed(resource, given)

    def do_patch(self, resource: AnyResource, namespace: str, name: str, patch: JSONObject) -> Any:
        old = self._stored(resource, namespace, name)
        meta = patch.get("metadata") or {}
        if meta.get("resourceVersion", old["metadata"]["resourceVersion"]) != old["metadata"]["resourceVersion"]:
            raise Conflict(f"{name} was written by somebody else")
        new = _merged(old, patch)
        key = (resource.kind, namespace, name)
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            new["metadata"]["resourceVersion"] = str(next(self._versions))
            self._remove(key)
        elif new != old:
            self._put(key, new)
        return _typed(resource, new)

    def do_delete(self, resource: AnyResource, namespace: str, name: str, *, uid: str = "") -> bool:
        key = (resource.kind, namespace, name)
        old = self.objects.get(key)
        if old is None:
            return False
        if uid and old["metadata"]["uid"] != uid:
            raise Conflict(f"{name} is another one of that name")
        if not old["metadata"].get("finalizers"):
            self._remove(key)
        elif "deletionTimestamp" not in old["metadata"]:
            new = copy.deepcopy(old)
            new["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
            self._put(key, new)
        return True

    # --- inside ---

    def _stored(self, resource: AnyResource, namespace: str, name: str) -> JSONObject:
        stored = self.objects.get((resource.kind, namespace, name))
        if stored is None:
            raise NotFound(f"there is no {resource.kind} {namespace}/{name}")
        return stored

    def _put(self, key: Key, new: JSONObject) -> None:
        old = self.objects.get(key)
        new["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[key] = new
        self.writes += 1
        self._send(key, old, new)

    def _remove(self, key: Key) -> None:
        old = self.objects.pop(key)
        self.writes += 1
        self._send(key, old, None)

    def _send(self, key: Key, old: JSONObject | None, new: JSONObject | None) -> None:
        if key[0] != "BackendRecord" or not self._watches:
            return
        before = _typed(BACKEND_RECORDS, old) if old is not None else None
        after = _typed(BACKEND_RECORDS, new) if new is not None else None
        loop = asyncio.get_running_loop()
        # Late, but in order.
        self._sent_s = max(self._sent_s, loop.time() + self.lag_s())
        for watch in self._watches:
            self._events.append((watch, before, after))
            loop.call_at(self._sent_s, self._deliver)

    def _deliver(self) -> None:
        # Timers of one moment fire in any order; events do not.
        watch, before, after = self._events.popleft()
        if watch in self._watches:
            watch(before, after)


def _typed(resource: AnyResource, obj: JSONObject) -> Any:
    return msgspec.convert(obj, resource.type)


def _merged(old: Any, patch: Any) -> Any:
    """RFC 7386, on a copy of only what changes."""
    out = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict):
            out[key] = _merged(out.get(key), value)
        else:
            out[key] = value
    return out
