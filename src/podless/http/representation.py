"""The representation of objects in responses: plain, as a Table, or as PartialObjectMetadata.

In: the Accept header, objects of a kind. Out: the JSON of one object, of a list and of a watch line. The plain form
of a stored object is its stored bytes: nothing is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from aiohttp import web

from podless.kinds.kind import Kind, PrinterColumn
from podless.objects import Obj, encode, meta
from podless.store.entry import BucketEntry, WatchEvent

_AS = re.compile(r"as=(Table|PartialObjectMetadataList|PartialObjectMetadata)\b")
_MEMBER = "meta.k8s.io/v1"


class Representation:
    """The plain representation; ``changes`` says whether it differs from the stored bytes."""

    _items = b"items"

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.changes = kind.conversion is not None
        self._prefix = len(f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",') if kind.built_in else 0

    def obj(self, entry: BucketEntry) -> Obj:
        """Return the object of ``entry`` in the requested version."""
        return self.kind.from_storage(entry.obj())

    def object(self, entry: BucketEntry) -> bytes:
        """Return the body of the response to a get, JSON."""
        return encode(self.obj(entry)) if self.changes else entry.raw

    def dry_run(self, obj: Obj) -> bytes:
        """Return the body of the response for an object that was not stored (dry run)."""
        return encode(self.kind.from_storage(obj))

    def list(self, entries: Iterable[BucketEntry], listmeta: Obj) -> Iterator[bytes]:
        """Yield the body of the response to a list; items of built-in kinds have no ``kind``, as in Kubernetes."""
        yield b'%b,"%b":[' % (encode(self._list_head(listmeta))[:-1], self._items)
        comma = b""
        for entry in entries:
            yield comma + self._item(entry)
            comma = b","
        yield b"]}\n"

    def _list_head(self, listmeta: Obj) -> Obj:
        return {"kind": self.kind.list_kind, "apiVersion": self.kind.api_version, "metadata": listmeta}

    def _item(self, entry: BucketEntry) -> bytes:
        if self.changes:
            return self.object(entry)
        return b"{" + entry.raw[self._prefix :] if self._prefix else entry.raw

    def line(self, type_: str, event: WatchEvent) -> bytes:
        """Return the line of a watch event; it is encoded once for all watchers of this representation."""
        if not self.changes:
            return event.line(type_)
        key = (type_, self._form(), self.kind.api_version)
        line = event.lines.get(key)
        if line is None:
            line = event.lines[key] = self.wrap(type_, event.entry)
        return line

    def wrap(self, type_: str, entry: BucketEntry) -> bytes:
        """Return the line of a watch event for this watcher alone."""
        return b'{"type":"%b","object":%b}\n' % (type_.encode(), self.object(entry))

    def bookmark(self, rv: int, *, initial: bool) -> bytes:
        """Return the line of a BOOKMARK event; ``initial``: with the annotation that initial events have ended."""
        about: Obj = {"resourceVersion": str(rv), "creationTimestamp": None}
        if initial:
            about["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": about}
        return encode({"type": "BOOKMARK", "object": self._bookmark(obj)}) + b"\n"

    def _bookmark(self, obj: Obj) -> Obj:
        return obj

    def _form(self) -> str:
        return "plain"


class MetadataRepresentation(Representation):
    """Metadata only."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.changes = True

    def object(self, entry: BucketEntry) -> bytes:
        """Return the metadata of one object."""
        return encode(self._partial(entry))

    def _list_head(self, listmeta: Obj) -> Obj:
        return {"kind": "PartialObjectMetadataList", "apiVersion": _MEMBER, "metadata": listmeta}

    def _partial(self, entry: BucketEntry) -> Obj:
        return {"kind": "PartialObjectMetadata", "apiVersion": _MEMBER, "metadata": meta(entry.obj())}

    def _bookmark(self, obj: Obj) -> Obj:
        return obj | {"kind": "PartialObjectMetadata", "apiVersion": _MEMBER}

    def _form(self) -> str:
        return "partial"


class TableRepresentation(Representation):
    """A Table, as ``kubectl get`` requests it; ``include`` is the ``includeObject`` parameter."""

    _items = b"rows"

    def __init__(self, kind: Kind, include: str, now: Callable[[], float]) -> None:
        super().__init__(kind)
        self.changes = True
        self._include = include or "Metadata"
        self._now = now

    def object(self, entry: BucketEntry) -> bytes:
        """Return a table of one row."""
        return b"".join(self.list([entry], {"resourceVersion": str(entry.rv)})).rstrip()

    def line(self, type_: str, event: WatchEvent) -> bytes:
        """Return a Table of one row; never shared between watchers, because ages are computed when it is sent."""
        return self.wrap(type_, event.entry)

    def _list_head(self, listmeta: Obj) -> Obj:
        columns = [_definition(column) for column in self.kind.columns]
        return {"kind": "Table", "apiVersion": _MEMBER, "metadata": listmeta, "columnDefinitions": columns}

    def _item(self, entry: BucketEntry) -> bytes:
        obj, now = entry.obj(), self._now()
        row: Obj = {"cells": [column.cell(obj, now) for column in self.kind.columns]}
        if self._include == "Object":
            row["object"] = self.obj(entry)
        elif self._include == "Metadata":
            row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": _MEMBER, "metadata": meta(obj)}
        return encode(row)

    def _bookmark(self, obj: Obj) -> Obj:
        partial: Any = obj | {"kind": "PartialObjectMetadata", "apiVersion": _MEMBER}
        head: Obj = {"kind": "Table", "apiVersion": _MEMBER, "metadata": obj["metadata"], "columnDefinitions": []}
        return head | {"rows": [{"cells": [], "object": partial}]}


def _definition(column: PrinterColumn) -> Obj:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": 1 if column.wide else 0,
    }


def representation_of(request: web.BaseRequest, kind: Kind, now: Callable[[], float]) -> Representation:
    """Return the representation that the first supported media type of the Accept header asks for."""
    for accepted in request.headers.get("Accept", "").split(","):
        match = _AS.search(accepted)
        if match is None:
            if "json" in accepted or "*/*" in accepted:
                break
        elif "json" in accepted and match.group(1) == "Table":
            return TableRepresentation(kind, request.query.get("includeObject", ""), now)
        elif "json" in accepted:
            return MetadataRepresentation(kind)
    return Representation(kind)
