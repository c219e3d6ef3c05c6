"""A stored object as its JSON bytes and a few fields, and a change of one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from podless.objects import Obj, at, decode, encode, items, ordered

Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is empty."""


@dataclass(frozen=True, slots=True)
class BucketEntry:
    """One stored object: its JSON bytes, and the fields that selectors and garbage collection read."""

    namespace: str
    name: str
    uid: str
    rv: int
    raw: bytes
    labels: dict[str, str]
    owners: tuple[str, ...]
    deleting: bool
    _texts: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str], compare=False, repr=False)

    @property
    def key(self) -> Key:
        """Return (namespace, name)."""
        return (self.namespace, self.name)

    def obj(self) -> Obj:
        """Return a fresh copy of the object."""
        return cast("Obj", decode(self.raw))

    def text(self, path: tuple[str, ...]) -> str:
        """Return the field at ``path`` as field selectors compare it; empty when it is missing.

        Cached by path, because each watch with a field selector reads it for every change.
        """
        if path == ("metadata", "name"):
            return self.name
        if path == ("metadata", "namespace"):
            return self.namespace
        text = self._texts.get(path)
        if text is None:
            text = self._texts[path] = _text(at(self.obj(), *path))
        return text


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def entry_of(obj: Obj, rv: int) -> BucketEntry:
    """Set the resourceVersion in ``obj`` and return its entry."""
    meta = cast("Obj", obj["metadata"])
    meta["resourceVersion"] = str(rv)
    owners = tuple(str(at(ref, "uid")) for ref in items(meta, "ownerReferences"))
    return BucketEntry(
        namespace=meta.get("namespace") or "",
        name=meta["name"],
        uid=meta.get("uid") or "",
        rv=rv,
        raw=encode(ordered(obj)),
        labels=cast("dict[str, str]", meta.get("labels") or {}),
        owners=owners,
        deleting="deletionTimestamp" in meta,
    )


def entry_from_raw(raw: bytes) -> BucketEntry:
    """Return the entry of stored JSON."""
    obj = cast("Obj", decode(raw))
    return entry_of(obj, int(obj["metadata"]["resourceVersion"]))


@dataclass(slots=True, eq=False)
class WatchEvent:
    """One watch event; its JSON lines are encoded once and shared by all watchers."""

    rv: int
    type: str
    entry: BucketEntry
    previous: BucketEntry | None
    lines: dict[Any, bytes] = field(default_factory=dict[Any, bytes])

    def line(self, type_: str) -> bytes:
        """Return the watch line of the stored form, as ``type_``."""
        line = self.lines.get(type_)
        if line is None:
            line = self.lines[type_] = b'{"type":"%b","object":%b}\n' % (type_.encode(), self.entry.raw)
        return line
