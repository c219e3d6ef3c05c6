"""A Kubernetes API in memory: bytes in, bytes out, without sockets and without schemas.

In: method, path, parameters and body of a request. Out: status, headers and body, or an open watch. What users may
not write is for those who write to know: nothing is validated here but what every server does for every kind
(versions, preconditions, namespaces, finalizers, subresources, owners of applied fields).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

Obj = dict[str, Any]
Key = tuple[str, str]
Path = tuple[Any, ...]
_encode = msgspec.json.encode
_decode = msgspec.json.decode

#: Kinds whose status is not a subresource of its own.
_WITHOUT_STATUS = {"leases", "endpointslices", "secrets", "configmaps", "events", "roles", "rolebindings"}
#: Lists that are merged by a key instead of being replaced; None is a set of values.
_MERGED_LISTS: dict[str, str | None] = {
    "conditions": "type",
    "finalizers": None,
    "ownerReferences": "uid",
    "provisioned": "provider",
}
_HISTORY = 400
_JSON = "application/json"


class Answer(NamedTuple):
    """What goes back over the link."""

    status: int
    body: bytes
    content_type: str = _JSON
    retry_after: str | None = None


class Failure(Exception):
    """A request that the API refuses."""

    def __init__(self, code: int, reason: str, message: str, details: Obj | None = None) -> None:
        super().__init__(message)
        self.answer = Answer(code, status_body(code, reason, message, details))


def status_body(code: int, reason: str, message: str, details: Obj | None = None) -> bytes:
    """Return the JSON of a Status."""
    body: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return _encode({**body, "reason": reason, "details": details or {}, "code": code})


class Entry:
    """One stored object with its encoded form."""

    __slots__ = ("obj", "owned", "raw", "rv")

    def __init__(self, obj: Obj, rv: int, owned: dict[str, set[Path]]) -> None:
        self.obj = obj
        self.rv = rv
        self.owned = owned
        self.raw = _encode(obj)


class Event(NamedTuple):
    """One change of a bucket."""

    rv: int
    type: str
    key: Key
    entry: Entry
    before: Entry | None


class Bucket:
    """All objects of one kind, and what has changed lately."""

    def __init__(self, group: str, version: str, kind: str, plural: str, namespaced: bool) -> None:
        self.group, self.version, self.kind, self.plural, self.namespaced = group, version, kind, plural, namespaced
        self.entries: dict[Key, Entry] = {}
        self.history: list[Event] = []
        self.oldest = 0
        self.watches: list[Watch] = []


@dataclass
class Selection:
    """Which objects a list or watch is about."""

    namespace: str
    labels: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    fields: list[tuple[str, str]] = field(default_factory=list)

    def matches(self, key: Key, obj: Obj) -> bool:
        """Return whether an object is selected."""
        if self.namespace and key[0] != self.namespace:
            return False
        if self.labels:
            labels: Obj = obj["metadata"].get("labels") or {}
            for label, operator, values in self.labels:
                there = labels.get(label)
                if operator == "in" and there not in values:
                    return False
                if operator == "notin" and there is not None and there in values:
                    return False
                if operator == "exists" and there is None:
                    return False
                if operator == "absent" and there is not None:
                    return False
        return all(_field(obj, path) == value for path, value in self.fields)


def _field(obj: Obj, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)


def _selected(namespace: str, params: Obj) -> Selection:
    return _selection(namespace, params.get("labelSelector", ""), params.get("fieldSelector", ""))


@lru_cache(maxsize=1000)
def _selection(namespace: str, labels: str, fields: str) -> Selection:
    chosen = Selection(namespace)
    for part in _split(labels):
        text = part.strip()
        if " notin " in text:
            name, _, values = text.partition(" notin ")
            chosen.labels.append((name.strip(), "notin", tuple(v.strip() for v in values.strip(" ()").split(","))))
        elif " in " in text:
            name, _, values = text.partition(" in ")
            chosen.labels.append((name.strip(), "in", tuple(v.strip() for v in values.strip(" ()").split(","))))
        elif "!=" in text:
            name, _, value = text.partition("!=")
            chosen.labels.append((name.strip(), "notin", (value.strip(),)))
        elif "=" in text:
            name, _, value = text.replace("==", "=").partition("=")
            chosen.labels.append((name.strip(), "in", (value.strip(),)))
        elif text.startswith("!"):
            chosen.labels.append((text[1:].strip(), "absent", ()))
        elif text:
            chosen.labels.append((text, "exists", ()))
    for text in filter(None, fields.split(",")):
        name, _, value = text.partition("=")
        chosen.fields.append((name.strip("="), value.strip("=")))
    return chosen


def _split(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    if text[start:]:
        yield text[start:]


class Watch:
    """One open watch: ``pending`` has lines to be sent; ``ended`` once the server has closed it."""

    def __init__(self, bucket: Bucket, selection: Selection, wake: Callable[[], None]) -> None:
        self.bucket = bucket
        self.selection = selection
        self.pending: list[bytes] = []
        self.ended = False
        self.wake = wake
        self._everything = not selection.labels and not selection.fields

    def offer(self, event: Event) -> None:
        """Queue one event if it is about something that is selected."""
        selection = self.selection
        if self._everything:
            if selection.namespace and event.key[0] != selection.namespace:
                return
            self.pending.append(_line(event.type, event.entry.raw))
        else:
            now = event.type != "DELETED" and selection.matches(event.key, event.entry.obj)
            before = event.before is not None and selection.matches(event.key, event.before.obj)
            if now:
                self.pending.append(_line("MODIFIED" if before else "ADDED", event.entry.raw))
            elif before and event.before is not None:
                raw = event.entry.raw
                if event.type != "DELETED":
                    left = {**event.before.obj}
                    left["metadata"] = {**left["metadata"], "resourceVersion": str(event.rv)}
                    raw = _encode(left)
                self.pending.append(_line("DELETED", raw))
            else:
                return
        self.wake()

    def bookmark(self, rv: int, *, initial: bool = False) -> None:
        """Queue a bookmark."""
        meta: Obj = {"resourceVersion": str(rv)}
        if initial:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        self.pending.append(_line("BOOKMARK", _encode({"metadata": meta})))
        self.wake()

    def fail(self, body: bytes) -> None:
        """Queue an error and end."""
        self.pending.append(_line("ERROR", body))
        self.end()

    def end(self) -> None:
        """End it; what is queued is still sent."""
        self.ended = True
        if self in self.bucket.watches:
            self.bucket.watches.remove(self)
        self.wake()


def _line(kind: str, raw: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + raw + b"}\n"


@dataclass(frozen=True)
class Place:
    """What a path names."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Api:
    """One API server. ``written`` is called after each change with the process that made it."""

    def __init__(
        self, name: str, *, now: Callable[[], str], written: Callable[[Bucket, Event, str], None] | None = None
    ) -> None:
        self.name = name
        self.now = now
        self.written = written or (lambda _bucket, _event, _by: None)
        self.rv = 100
        self.uids = 0
        self.buckets: dict[tuple[str, str], Bucket] = {}
        self.served: dict[str, set[str]] = {}
        self._documents: dict[str, Answer] = {}
        #: Missing rights: (process, verb, plural); verb or plural may be "*".
        self.lacking: set[tuple[str, str, str]] = set()
        #: What is done to the stored form of an object before it is read.
        self.spoilt: dict[tuple[str, Key], Callable[[bytes], bytes]] = {}
        self.later: Callable[[Callable[[], None]], None] = lambda run: run()
        self._by = ""
        self._dependents: dict[str, set[tuple[tuple[str, str], Key]]] = {}

    # --- what is served -------------------------------------------------------------------------------------------

    def serve(self, group: str, version: str, kind: str, plural: str, namespaced: bool) -> None:
        """Serve a kind."""
        self._documents.clear()
        self.buckets[group, plural] = Bucket(group, version, kind, plural, namespaced)
        self.served.setdefault(f"{group}/{version}" if group else version, set()).add(plural)

    def bucket(self, plural: str, group: str = "fairlead.dev") -> Bucket:
        """Return the objects of a kind."""
        return self.buckets[group, plural]

    def get(self, plural: str, namespace: str, name: str, group: str = "fairlead.dev") -> Obj | None:
        """Return an object as it is stored."""
        entry = self.bucket(plural, group).entries.get((namespace, name))
        return entry.obj if entry is not None else None

    def objects(self, plural: str, group: str = "fairlead.dev") -> list[Obj]:
        """Return all objects of a kind."""
        return [entry.obj for entry in self.bucket(plural, group).entries.values()]

    # --- requests -------------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, params: Obj, body: bytes | None, content_type: str, by: str) -> Answer:
        """Answer one request that is not a watch."""
        self._by = by
        try:
            return self._request(method, path, params, body, content_type, by)
        except Failure as failure:
            return failure.answer

    def _request(self, method: str, path: str, params: Obj, body: bytes | None, content_type: str, by: str) -> Answer:
        place = parse(path)
        if place is None or (not place.plural):
            return self._document(path)
        bucket = self.buckets.get((place.group, place.plural))
        if bucket is None:
            return self._review(place, body, by)
        self._authorize(method, bucket, place, by)
        if method == "GET":
            return self._read(bucket, place, params)
        content: Any = _decode(body) if body else {}
        if method == "POST":
            return Answer(201, self.create(bucket, place.namespace, content, by).raw)
        if method == "DELETE":
            return self._delete(bucket, place, content)
        if method == "PUT":
            return Answer(200, self._replace(bucket, place, content, by).raw)
        if "apply-patch" in content_type:
            status, entry = self._apply(bucket, place, content, params.get("fieldManager", by))
            return Answer(status, entry.raw)
        entry = self._there(bucket, place)
        merge = _json_patch if "json-patch" in content_type else _merge_patch
        changed = merge(entry.obj, content)
        return Answer(200, self._update(bucket, place, entry, changed, params.get("fieldManager", by)).raw)

    def _authorize(self, method: str, bucket: Bucket, place: Place, by: str) -> None:
        if self.lacking and any(
            (by, verb, plural) in self.lacking for verb in (method, "*") for plural in (bucket.plural, "*")
        ):
            text = f'{bucket.plural} is forbidden: User "{by}" cannot {method} resource "{bucket.plural}"'
            raise Failure(403, "Forbidden", text, {"kind": bucket.plural, "group": bucket.group, "name": place.name})

    def _document(self, path: str) -> Answer:
        if (answer := self._documents.get(path)) is None:
            answer = self._documents[path] = self._described(path)
        return answer

    def _described(self, path: str) -> Answer:
        if path == "/version":
            return Answer(200, _encode({"gitVersion": "v1.36.0", "major": "1", "minor": "36"}))
        parts = path.strip("/").split("/")
        if parts == ["apis"]:
            groups = sorted({group.partition("/")[0] for group in self.served if "/" in group})
            return Answer(200, _encode({"groups": [self._group(group) for group in groups]}))
        version = "/".join(parts[1:])
        if parts[0] == "apis" and len(parts) == 2 and any(each.startswith(version + "/") for each in self.served):
            return Answer(200, _encode(self._group(version)))
        if version not in self.served:
            return Answer(404, b"404 page not found\n", "text/plain")
        resources = [
            {"name": b.plural, "kind": b.kind, "namespaced": b.namespaced, "verbs": ["get", "list", "watch"]}
            for b in self.buckets.values()
            if b.plural in self.served[version] and (f"{b.group}/{b.version}" if b.group else b.version) == version
        ]
        return Answer(200, _encode({"kind": "APIResourceList", "groupVersion": version, "resources": resources}))

    def _group(self, group: str) -> Obj:
        versions = [{"groupVersion": each, "version": each.partition("/")[2]} for each in sorted(self.served)]
        own = [each for each in versions if each["groupVersion"].startswith(group + "/")]
        return {"name": group, "versions": own, "preferredVersion": own[0]}

    def _review(self, place: Place, body: bytes | None, by: str) -> Answer:
        content: Obj = _decode(body) if body else {}
        if place.plural == "selfsubjectaccessreviews":
            attributes = content["spec"]["resourceAttributes"]
            plural = attributes.get("resource", "")
            verb = {"list": "GET", "watch": "GET", "get": "GET", "create": "POST", "delete": "DELETE"}
            method = verb.get(attributes.get("verb", ""), "PATCH")
            denied = any((by, each, plural) in self.lacking for each in (method, "*")) or (by, "*", "*") in self.lacking
            return Answer(201, _encode({**content, "status": {"allowed": not denied}}))
        if place.plural == "selfsubjectreviews":
            return Answer(201, _encode({**content, "status": {"userInfo": {"username": by}}}))
        return Answer(404, b"404 page not found\n", "text/plain")

    def _read(self, bucket: Bucket, place: Place, params: Obj) -> Answer:
        if place.name:
            return Answer(200, self._there(bucket, place).raw)
        selection = _selected(place.namespace, params)
        keys = sorted(key for key, entry in bucket.entries.items() if selection.matches(key, entry.obj))
        items = b",".join(bucket.entries[key].raw for key in keys)
        version = f"{bucket.group}/{bucket.version}" if bucket.group else bucket.version
        head = f'{{"kind":"{bucket.kind}List","apiVersion":"{version}","metadata":{{"resourceVersion":"{self.rv}"}}'
        return Answer(200, head.encode() + b',"items":[' + items + b"]}")

    def watch(self, path: str, params: Obj, by: str, wake: Callable[[], None]) -> Answer | Watch:
        """Open a watch, or refuse it."""
        place = parse(path)
        bucket = self.buckets.get((place.group, place.plural)) if place else None
        if place is None or bucket is None:
            return Answer(404, b"404 page not found\n", "text/plain")
        try:
            self._authorize("GET", bucket, place, by)
        except Failure as failure:
            return failure.answer
        watch = Watch(bucket, _selected(place.namespace, params), wake)
        if params.get("sendInitialEvents") == "true":
            for key in sorted(bucket.entries):
                entry = bucket.entries[key]
                if watch.selection.matches(key, entry.obj):
                    watch.pending.append(_line("ADDED", entry.raw))
            watch.bookmark(self.rv, initial=True)
        else:
            since = int(params.get("resourceVersion") or 0)
            if since < bucket.oldest or since > self.rv:
                watch.pending.append(_line("ERROR", status_body(410, "Expired", "too old resource version")))
                watch.ended = True
                return watch
            for event in bucket.history:
                if event.rv > since:
                    watch.offer(event)
        bucket.watches.append(watch)
        return watch

    def expire(self) -> None:
        """Forget what has changed: every watch ends, and goes on from nowhere (410)."""
        for bucket in self.buckets.values():
            bucket.history, bucket.oldest = [], self.rv
            for watch in list(bucket.watches):
                watch.end()

    def touch(self, bucket: Bucket, key: Key) -> None:
        """Store an object again as it is, with a new version."""
        if (entry := bucket.entries.get(key)) is not None:
            self._store(bucket, key, entry.obj, entry, entry.owned, "storage")

    # --- writes ---------------------------------------------------------------------------------------------------

    def _there(self, bucket: Bucket, place: Place) -> Entry:
        entry = bucket.entries.get((place.namespace, place.name))
        if entry is None:
            details = {"name": place.name, "kind": bucket.plural, "group": bucket.group}
            full = f"{bucket.plural}.{bucket.group}" if bucket.group else bucket.plural
            raise Failure(404, "NotFound", f'{full} "{place.name}" not found', details)
        return entry

    def create(self, bucket: Bucket, namespace: str, obj: Obj, by: str) -> Entry:
        """Store a new object."""
        obj = {**obj, "metadata": {**obj.get("metadata", {})}}
        meta = obj["metadata"]
        if not meta.get("name"):
            self.uids += 1
            meta["name"] = f"{meta.get('generateName', '')}{self.uids}"
        if bucket.namespaced:
            namespace = namespace or meta.get("namespace") or "default"
            meta["namespace"] = namespace
            self._check_namespace(namespace, bucket, meta["name"])
        key = (namespace if bucket.namespaced else "", meta["name"])
        if key in bucket.entries:
            details = {"name": key[1], "kind": bucket.plural, "group": bucket.group}
            raise Failure(409, "AlreadyExists", f'{bucket.plural} "{key[1]}" already exists', details)
        if bucket.plural not in _WITHOUT_STATUS:
            obj.pop("status", None)
            if bucket.plural == "namespaces":
                obj["status"] = {"phase": "Active"}
        self.uids += 1
        obj.setdefault("apiVersion", f"{bucket.group}/{bucket.version}" if bucket.group else bucket.version)
        obj.setdefault("kind", bucket.kind)
        meta["uid"] = f"{self.name}-{self.uids}"
        meta["creationTimestamp"] = self.now()
        meta["generation"] = 1
        meta["managedFields"] = [{"manager": by, "operation": "Update", "time": self.now()}]
        return self._store(bucket, key, obj, None, {}, by)

    def _check_namespace(self, namespace: str, bucket: Bucket, name: str) -> None:
        there = self.buckets["", "namespaces"].entries.get(("", namespace))
        if there is None:
            details = {"name": namespace, "kind": "namespaces"}
            raise Failure(404, "NotFound", f'namespaces "{namespace}" not found', details)
        if there.obj["metadata"].get("deletionTimestamp"):
            text = f"{bucket.plural} {name} is forbidden: unable to create new content in namespace {namespace}"
            raise Failure(
                403, "Forbidden", f"{text} because it is being terminated", {"name": name, "kind": bucket.plural}
            )

    def _replace(self, bucket: Bucket, place: Place, obj: Obj, by: str) -> Entry:
        entry = self._there(bucket, place)
        meta = obj.get("metadata") or {}
        there = entry.obj["metadata"]
        for field_name in ("resourceVersion", "uid"):
            if meta.get(field_name) and meta[field_name] != there[field_name]:
                raise Failure(409, "Conflict", f"the object has been modified: {field_name}", {"name": place.name})
        kept = {name: there[name] for name in ("uid", "creationTimestamp", "generation") if name in there}
        if "deletionTimestamp" in there:
            kept["deletionTimestamp"] = there["deletionTimestamp"]
        new = {**obj, "metadata": {**meta, **kept, "name": place.name, "managedFields": there.get("managedFields")}}
        if place.namespace:
            new["metadata"]["namespace"] = place.namespace
        return self._update(bucket, place, entry, new, by)

    def _update(self, bucket: Bucket, place: Place, entry: Entry, new: Obj, by: str) -> Entry:
        """Store a changed object as an update of ``by``, which then owns what has changed."""
        meta = new.get("metadata") or {}
        wanted = meta.get("resourceVersion")
        if wanted and wanted != entry.obj["metadata"]["resourceVersion"]:
            raise Failure(409, "Conflict", "the object has been modified", {"name": place.name})
        new = self._confined(bucket, place, entry.obj, new)
        owned: dict[str, set[Path]] = {}
        if entry.owned:
            changed = {path for path, value in _leaves(new) if _at(entry.obj, path) != value}
            owned = {manager: paths - changed for manager, paths in entry.owned.items()}
        return self._changed(bucket, place, entry, new, owned, by, "Update")

    def _confined(self, bucket: Bucket, place: Place, old: Obj, new: Obj) -> Obj:
        """Return ``new`` with the parts of ``old`` that this path does not write."""
        if bucket.plural in _WITHOUT_STATUS:
            return new
        if place.subresource == "status":
            meta = {**old["metadata"]}
            kept = {**old, "metadata": meta}
            kept.pop("status", None)
            return {**kept, "status": new["status"]} if "status" in new else kept
        rest = {name: value for name, value in new.items() if name != "status"}
        return {**rest, "status": old["status"]} if "status" in old else rest

    def _changed(
        self, bucket: Bucket, place: Place, entry: Entry, new: Obj, owned: dict[str, set[Path]], by: str, operation: str
    ) -> Entry:
        old_meta, meta = entry.obj["metadata"], {**new["metadata"]}
        for name in ("uid", "creationTimestamp", "generation", "name", "namespace", "resourceVersion"):
            if name in old_meta:
                meta[name] = old_meta[name]
        if "deletionTimestamp" in old_meta:
            meta["deletionTimestamp"] = old_meta["deletionTimestamp"]
        for name in [name for name, value in meta.items() if value in ({}, [], None)]:
            del meta[name]
        meta.pop("managedFields", None)
        kept_fields = old_meta.get("managedFields") or []
        new = {**new, "metadata": meta}
        others = {*new, *entry.obj} - {"metadata"}
        changed = {name for name in others if new.get(name) != entry.obj.get(name)}
        if not changed and {k: v for k, v in old_meta.items() if k != "managedFields"} == meta:
            entry.owned = owned
            return entry
        stamp: Obj = {"manager": by, "operation": operation, "time": self.now()}
        if place.subresource:
            stamp["subresource"] = place.subresource
            if ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress"):
                stamp["fieldsV1"] = {"f:status": {"f:loadBalancer": {"f:ingress": {}}}}
        kept = [
            each for each in kept_fields if (each["manager"], each.get("subresource", "")) != (by, place.subresource)
        ]
        meta["managedFields"] = [*kept, stamp]
        if changed - {"status"}:
            meta["generation"] = old_meta.get("generation", 1) + 1
        key = (place.namespace if bucket.namespaced else "", place.name)
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            return self._remove(bucket, key, new, by)
        return self._store(bucket, key, new, entry, owned, by)

    def _apply(self, bucket: Bucket, place: Place, config: Obj, manager: str) -> tuple[int, Entry]:
        key = (place.namespace if bucket.namespaced else "", place.name)
        entry = bucket.entries.get(key)
        config = _without_nulls(config)
        wanted = (config.get("metadata") or {}).get("resourceVersion")
        uid = (config.get("metadata") or {}).get("uid")
        if entry is None:
            if place.subresource or wanted or uid:
                self._there(bucket, place)
            entry = self.create(bucket, place.namespace, config, manager)
            entry.owned[manager] = {path for path, _ in _leaves(config) if _is_owned(path)}
            return 201, entry
        if (wanted and wanted != entry.obj["metadata"]["resourceVersion"]) or (
            uid and uid != entry.obj["metadata"]["uid"]
        ):
            raise Failure(409, "Conflict", "the object has been modified", {"name": place.name})
        # A status and the rest are applied apart, each with its own set of owned fields.
        owner = f"{manager}/{place.subresource}"
        stated = {
            path for path, _ in _leaves(config) if _is_owned(path) and (path[0] == "status") == bool(place.subresource)
        }
        if bucket.plural in _WITHOUT_STATUS:
            stated = {path for path, _ in _leaves(config) if _is_owned(path)}
        before = entry.owned.get(owner) or (entry.owned.get(manager) if not place.subresource else None) or set()
        merged = _merge(entry.obj, config)
        for path in before - stated:
            if not any(
                path in paths for each, paths in entry.owned.items() if each not in (owner, manager)
            ) and not any(each[: len(path)] == path for each in stated):
                merged = _without(merged, path)
        new = self._confined(bucket, place, entry.obj, merged)
        owned = {each: paths for each, paths in entry.owned.items() if each != manager or place.subresource}
        # Others lose what this one changes by force.
        changed = {path for path in stated if _at(entry.obj, path) != _at(new, path)}
        owned = {each: paths - changed if each != owner else paths for each, paths in owned.items()}
        owned[owner] = stated
        return 200, self._changed(bucket, place, entry, new, owned, manager, "Apply")

    def _delete(self, bucket: Bucket, place: Place, options: Obj) -> Answer:
        entry = self._there(bucket, place)
        meta = entry.obj["metadata"]
        for name, value in (options.get("preconditions") or {}).items():
            if meta[name] != value:
                raise Failure(409, "Conflict", f"the {name} in the precondition does not match", {"name": place.name})
        key = (place.namespace if bucket.namespaced else "", place.name)
        if bucket.plural == "namespaces":
            if not meta.get("deletionTimestamp"):
                obj = {**entry.obj, "metadata": {**meta, "deletionTimestamp": self.now()}}
                obj["status"] = {"phase": "Terminating"}
                entry = self._store(bucket, key, obj, entry, entry.owned, self._by)
                self.later(lambda: self._empty_namespace(key[1]))
            return Answer(200, entry.raw)
        if meta.get("finalizers"):
            if not meta.get("deletionTimestamp"):
                obj = {**entry.obj, "metadata": {**meta, "deletionTimestamp": self.now()}}
                obj["metadata"]["generation"] = meta.get("generation", 1) + 1
                entry = self._store(bucket, key, obj, entry, entry.owned, self._by)
            return Answer(200, entry.raw)
        return Answer(200, self._remove(bucket, key, entry.obj, self._by).raw)

    def _empty_namespace(self, namespace: str) -> None:
        left = False
        self._by = "namespace-controller"
        for bucket in self.buckets.values():
            if not bucket.namespaced:
                continue
            for key in [key for key in bucket.entries if key[0] == namespace]:
                self._delete(bucket, Place("", "", bucket.plural, *key), {})
                left = left or key in bucket.entries
        bucket = self.buckets["", "namespaces"]
        entry = bucket.entries.get(("", namespace))
        if entry is None or not entry.obj["metadata"].get("deletionTimestamp"):
            return
        if left:
            self.later(lambda: self._empty_namespace(namespace))
        else:
            self._remove(bucket, ("", namespace), entry.obj, self._by)

    def _store(
        self, bucket: Bucket, key: Key, obj: Obj, before: Entry | None, owned: dict[str, set[Path]], by: str
    ) -> Entry:
        self.rv += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.rv)}}
        entry = bucket.entries[key] = Entry(obj, self.rv, owned)
        if self.spoilt and (bucket.plural, key) in self.spoilt:
            entry.raw = self.spoilt[bucket.plural, key](entry.raw)
        for owner in obj["metadata"].get("ownerReferences") or ():
            self._dependents.setdefault(owner.get("uid", ""), set()).add(((bucket.group, bucket.plural), key))
        self._notify(bucket, Event(self.rv, "MODIFIED" if before else "ADDED", key, entry, before), by)
        return entry

    def _remove(self, bucket: Bucket, key: Key, obj: Obj, by: str) -> Entry:
        self.rv += 1
        before = bucket.entries.pop(key)
        entry = Entry({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.rv)}}, self.rv, {})
        self._notify(bucket, Event(self.rv, "DELETED", key, entry, before), by)
        if orphans := self._dependents.pop(obj["metadata"]["uid"], None):
            self.later(lambda: self._collect(orphans))
        return entry

    def _collect(self, orphans: set[tuple[tuple[str, str], Key]]) -> None:
        self._by = "garbage-collector"
        for kind, key in sorted(orphans):
            bucket = self.buckets[kind]
            if key in bucket.entries:
                self._delete(bucket, Place("", "", bucket.plural, *key), {})

    def _notify(self, bucket: Bucket, event: Event, by: str) -> None:
        bucket.history.append(event)
        if len(bucket.history) > _HISTORY:
            bucket.oldest = bucket.history[0].rv
            del bucket.history[0]
        for watch in list(bucket.watches):
            watch.offer(event)
        self.written(bucket, event, by)


_PARSED: dict[str, Place | None] = {}


def parse(path: str) -> Place | None:
    """Return what a path names, None for one of discovery."""
    if path not in _PARSED:
        _PARSED[path] = _parse(path)
        if len(_PARSED) > 20_000:
            _PARSED.clear()
            return _parse(path)
    return _PARSED[path]


def _parse(path: str) -> Place | None:
    parts = path.strip("/").split("/")
    if parts[0] == "api":
        group, version, rest = "", parts[1] if len(parts) > 1 else "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 2:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if not rest:
        return None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        return Place(group, version, rest[2], rest[1], *rest[3:5])
    return Place(group, version, rest[0], "", *rest[1:3])


def _is_owned(path: Path) -> bool:
    return path[0] not in ("apiVersion", "kind") and path[:2] not in (
        ("metadata", "name"),
        ("metadata", "namespace"),
        ("metadata", "resourceVersion"),
        ("metadata", "uid"),
    )


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value


def _leaves(obj: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the fields that have owners: values, lists as a whole, and items of merged lists."""
    for key, value in obj.items():
        here = (*path, key)
        if isinstance(value, dict) and value:
            yield from _leaves(value, here)
        elif isinstance(value, list) and key in _MERGED_LISTS:
            by = _MERGED_LISTS[key]
            for item in value:
                yield (*here, _Item(by, item if by is None else item.get(by))), item
        else:
            yield here, value


class _Item(NamedTuple):
    """The step into an item of a merged list."""

    by: str | None
    value: Any


def _at(obj: Any, path: Path) -> Any:
    for step in path:
        if isinstance(step, _Item):
            items = [each for each in obj if (each if step.by is None else each.get(step.by)) == step.value]
            if not items:
                return None
            obj = items[0]
        elif isinstance(obj, dict) and step in obj:
            obj = obj[step]
        else:
            return None
    return obj


def _without(obj: Obj, path: Path) -> Obj:
    step, rest = path[0], path[1:]
    if step not in obj:
        return obj
    value = obj[step]
    if rest and isinstance(rest[0], _Item):
        item = rest[0]
        left = [each for each in value if (each if item.by is None else each.get(item.by)) != item.value]
        return {**obj, step: left}
    if rest:
        return {**obj, step: _without(value, rest)}
    return {key: each for key, each in obj.items() if key != step}


def _merge(live: Any, config: Any, name: str = "") -> Any:
    if isinstance(live, dict) and isinstance(config, dict):
        merged = {**live}
        for key, value in config.items():
            merged[key] = _merge(live[key], value, key) if key in live else value
        return merged
    if isinstance(live, list) and isinstance(config, list) and name in _MERGED_LISTS:
        by = _MERGED_LISTS[name]
        if by is None:
            return [*live, *(each for each in config if each not in live)]
        stated = {each.get(by): each for each in config}
        return [_merge(each, stated.pop(each.get(by), {})) for each in live] + list(stated.values())
    return config


def _merge_patch(live: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = {**live} if isinstance(live, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_patch(merged.get(key), value)
    return merged


def _json_patch(live: Obj, operations: list[Obj]) -> Obj:
    new: Any = _decode(_encode(live))
    for operation in operations:
        steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        at = new
        try:
            for step in steps[:-1]:
                at = at[int(step)] if isinstance(at, list) else at[step]
            last: Any = steps[-1]
            if isinstance(at, list):
                last = len(at) if last == "-" else int(last)
            verb = operation["op"]
            if verb == "test":
                if at[last] != operation["value"]:
                    raise Failure(422, "Invalid", "the test of a JSON patch failed")
            elif verb == "remove":
                del at[last]
            elif verb == "replace":
                at[last] = operation["value"]
            elif isinstance(at, list):
                at.insert(last, operation["value"])
            else:
                at[last] = operation["value"]
        except (KeyError, IndexError) as error:
            raise Failure(422, "Invalid", f"the path {operation['path']} does not exist") from error
    return new
