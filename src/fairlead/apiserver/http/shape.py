"""In which form does the client want objects? Plain, as a table, or metadata only.

In: the Accept header, objects of a kind. Out: the JSON of one object, of a list and of a watch line. The plain form
of a stored object is its stored bytes: nothing is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from aiohttp import web

from fairlead.apiserver.kinds.kind import Column, Kind
from fairlead.apiserver.objects import Obj, encode, meta
from fairlead.apiserver.store.entry import Entry, Event

_AS = re.compile(r"as=(Table|PartialObjectMetadataList|PartialObjectMetadata)\b")
_MEMBER = "meta.k8s.io/v1"


class Shape:
    """The plain form; ``changes`` says whether lines differ from the stored bytes."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.changes = kind.conversion is not None
        self._prefix = len(f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",') if kind.built_in else 0

    def obj(self, entry: Entry) -> Obj:
        """Return the object of ``entry`` in the version asked for."""
        obj = entry.obj()
        return self.kind.conversion.from_storage(obj) if self.kind.conversion is not None else obj

    def one(self, entry: Entry) -> bytes:
        """Return the answer to a get."""
        return encode(self.obj(entry)) if self.changes else entry.raw

    def unstored(self, obj: Obj) -> bytes:
        """Return the answer for an object that was not stored (dry run)."""
        return encode(self.kind.conversion.from_storage(obj) if self.kind.conversion is not None else obj)

    def list(self, entries: list[Entry], listmeta: Obj) -> bytes:
        """Return the answer to a list; like the real server, items of built-in kinds do not repeat their kind."""
        head = f'{{"kind":"{self.kind.list_kind}","apiVersion":"{self.kind.api_version}","metadata":'
        if self.changes:
            bodies = [encode(self.obj(entry)) for entry in entries]
        elif self._prefix:
            cut = self._prefix
            bodies = [b"{" + entry.raw[cut:] for entry in entries]
        else:
            bodies = [entry.raw for entry in entries]
        return b'%b%b,"items":[%b]}\n' % (head.encode(), encode(listmeta), b",".join(bodies))

    def line(self, type_: str, event: Event) -> bytes:
        """Return a watch line; shared by all watchers of the same form."""
        if not self.changes:
            return event.line(type_)
        key = (type_, self._form(), self.kind.api_version)
        found = event.lines.get(key)
        if found is None:
            found = event.lines[key] = self.wrap(type_, event.entry)
        return found

    def wrap(self, type_: str, entry: Entry) -> bytes:
        """Return a watch line that is not shared."""
        return b'{"type":"%b","object":%b}\n' % (type_.encode(), self.one(entry))

    def bookmark(self, rv: int, *, initial: bool) -> bytes:
        """Return a bookmark line."""
        about: Obj = {"resourceVersion": str(rv), "creationTimestamp": None}
        if initial:
            about["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": about}
        return encode({"type": "BOOKMARK", "object": self._bookmark(obj)}) + b"\n"

    def _bookmark(self, obj: Obj) -> Obj:
        return obj

    def _form(self) -> str:
        return "plain"


class PartialShape(Shape):
    """Metadata only."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.changes = True

    def one(self, entry: Entry) -> bytes:
        """Return the metadata of one object."""
        return encode(self._partial(entry))

    def list(self, entries: list[Entry], listmeta: Obj) -> bytes:
        """Return the metadata of many objects."""
        head: Obj = {"kind": "PartialObjectMetadataList", "apiVersion": _MEMBER, "metadata": listmeta}
        return encode(head | {"items": [self._partial(entry) for entry in entries]})

    def _partial(self, entry: Entry) -> Obj:
        return {"kind": "PartialObjectMetadata", "apiVersion": _MEMBER, "metadata": meta(entry.obj())}

    def _bookmark(self, obj: Obj) -> Obj:
        return obj | {"kind": "PartialObjectMetadata", "apiVersion": _MEMBER}

    def _form(self) -> str:
        return "partial"


class TableShape(Shape):
    """Rows for ``kubectl get``; ``include`` is the ``includeObject`` parameter."""

    def __init__(self, kind: Kind, include: str, now: Callable[[], float]) -> None:
        super().__init__(kind)
        self.changes = True
        self._include = include or "Metadata"
        self._now = now

    def one(self, entry: Entry) -> bytes:
        """Return a table of one row."""
        return encode(self._table([entry], {"resourceVersion": str(entry.rv)}))

    def list(self, entries: list[Entry], listmeta: Obj) -> bytes:
        """Return a table."""
        return encode(self._table(entries, listmeta))

    def line(self, type_: str, event: Event) -> bytes:
        """Return a table of one row; never shared, because ages are made for the moment."""
        return self.wrap(type_, event.entry)

    def _table(self, entries: list[Entry], listmeta: Obj) -> Obj:
        now = self._now()
        columns = [_definition(column) for column in self.kind.columns]
        head: Obj = {"kind": "Table", "apiVersion": _MEMBER, "metadata": listmeta, "columnDefinitions": columns}
        return head | {"rows": [self._row(entry, now) for entry in entries]}

    def _row(self, entry: Entry, now: float) -> Obj:
        obj = entry.obj()
        row: Obj = {"cells": [column.cell(obj, now) for column in self.kind.columns]}
        if self._include == "Object":
            row["object"] = self.obj(entry)
        elif self._include == "Metadata":
            row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": _MEMBER, "metadata": meta(obj)}
        return row

    def _bookmark(self, obj: Obj) -> Obj:
        partial: Any = obj | {"kind": "PartialObjectMetadata", "apiVersion": _MEMBER}
        head: Obj = {"kind": "Table", "apiVersion": _MEMBER, "metadata": obj["metadata"], "columnDefinitions": []}
        return head | {"rows": [{"cells": [], "object": partial}]}


def _definition(column: Column) -> Obj:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": 1 if column.wide else 0,
    }


def shape_of(request: web.BaseRequest, kind: Kind, now: Callable[[], float]) -> Shape:
    """Choose the form by the Accept header, the first one that we know."""
    for accepted in request.headers.get("Accept", "").split(","):
        match = _AS.search(accepted)
        if match is None:
            if "json" in accepted or "*/*" in accepted:
                break
        elif "json" in accepted and match.group(1) == "Table":
            return TableShape(kind, request.query.get("includeObject", ""), now)
        elif "json" in accepted:
            return PartialShape(kind)
    return Shape(kind)
