"""A Kubernetes API with BackendRecords only: versions, finalizers, and writes that may be refused or got in between."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from fairlead.api.backendgroup import BackendRecord
from fairlead.api.meta import JSONObject
from fairlead.errors import AlreadyExists, Conflict, NotFound

DELETED_AT = "2030-01-01T00:00:00Z"


class RecordApi:
    """The objects by name, the ``calls`` made, and ``before_call``, which may raise or write between."""

    def __init__(self) -> None:
        self.objects: dict[str, JSONObject] = {}
        self.calls: list[str] = []
        self.before_call: Callable[[str, str], None] = lambda _verb, _name: None
        self._versions = itertools.count(1)

    def records(self) -> list[BackendRecord]:
        return [self.read(name) for name in self.objects]

    def read(self, name: str) -> BackendRecord:
        if name not in self.objects:
            raise NotFound(f"there is no BackendRecord {name}")
        return msgspec.convert(self.objects[name], BackendRecord)

    def edit(self, name: str, patch: JSONObject) -> None:
        """Write as another client; a record that is deleted goes with its last finalizer."""
        new = merged(self.objects[name], patch)
        new["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[name] = new
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            del self.objects[name]

    def _call(self, verb: str, name: str) -> None:
        self.before_call(verb, name)
        self.calls.append(verb)

    async def get(self, resource: Any, namespace: str, name: str) -> Any:
        if resource.kind != "BackendRecord":
            return resource.type()
        self._call("get", name)
        return self.read(name)

    async def create(self, resource: Any, obj: JSONObject) -> Any:
        name = obj["metadata"]["name"]
        self._call("create", name)
        if name in self.objects:
            raise AlreadyExists(f"{name} exists already")
        self.objects[name] = copy.deepcopy(obj)
        self.edit(name, {"metadata": {"uid": f"uid-{next(self._versions)}"}})
        return self.read(name)

    async def merge_patch(self, resource: Any, namespace: str, name: str, patch: JSONObject, **_others: str) -> Any:
        self._call("patch", name)
        if patch["metadata"]["resourceVersion"] != self.read(name).metadata.resource_version:
            raise Conflict(f"{name} was written by another client")
        new = merged(self.objects[name], patch)
        self.edit(name, patch)
        return msgspec.convert(self.objects.get(name, new), BackendRecord)

    async def delete(
        self, resource: Any, namespace: str, name: str, *, uid: str = "", resource_version: str = ""
    ) -> bool:
        self._call("delete", name)
        if self.read(name).metadata.uid == uid:
            self.edit(name, {"metadata": {"deletionTimestamp": DELETED_AT}})
        return True

    async def apply(self, resource: Any, obj: JSONObject, **_others: Any) -> Any:
        self._call("apply", obj["metadata"]["name"])

    async def list(self, resource: Any, namespace: str = "", **_selectors: str) -> Any:
        return self.records()


def merged(old: JSONObject, patch: JSONObject) -> JSONObject:
    """RFC 7386."""
    out = dict(old)
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key) or {}, value) if isinstance(value, dict) else value
    return out
