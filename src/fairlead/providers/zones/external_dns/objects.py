"""The objects that external-dns reads, as sets of records with their marks.

    one object for each name; its annotation has the marks that stand beside records in a zone of our own
    an object without our label is another writer's: its records count, without a mark

In: objects, edits. Out: sets of records with their marks. Pure. What an object says in which fields is a ``Form``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from fairlead.api.json_text import decode
from fairlead.api.meta import AnyResource, JSONObject, KubeObject
from fairlead.api.names import ANNOTATION_MARKS, LABEL_MANAGED_BY, MANAGED_BY, SYSTEM_NAMESPACE, short_hash
from fairlead.providers.zones.marks import mark_from_text, mark_key, mark_text
from fairlead.providers.zones.rrsets import EMPTY, TYPES, Edit, RRKey, RRSet, RRSets, canonical_value

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_READABLE = 40


class Held(msgspec.Struct, frozen=True):
    """The records of the object of one name, and its version that was read; empty for one that is not there."""

    rrsets: Mapping[RRKey, RRSet] = {}
    uid: str = ""
    version: str = ""


class Form(Protocol):
    """The kind of object that external-dns reads, and how it says records.

    ``prefix`` begins the names of the objects. ``missing`` and ``refused`` are the next steps where the kind is not
    served, or refuses an object; ``manifest`` is the file that gives the hub the rights.
    """

    kind: AnyResource
    prefix: str
    missing: str
    refused: str
    manifest: str

    def records(self, obj: Any) -> Mapping[RRKey, RRSet]:
        """Return the records of an object, ours or not, without marks."""
        ...

    def body(self, host: str, rrsets: RRSets) -> JSONObject:
        """Return the records of ``host`` as the object says them, without what every object of ours has."""
        ...


def object_name(form: Form, host: str) -> str:
    """Name the object of ``host``: readable, and unique by a digest of the host."""
    readable = _NOT_IN_NAMES.sub("-", host)[:_READABLE].strip("-")
    return f"{form.prefix}{readable or 'name'}-{short_hash(host, size_bytes=8)}"


def is_ours(obj: KubeObject) -> bool:
    """Return whether Fairlead made an object."""
    return obj.label(LABEL_MANAGED_BY) == MANAGED_BY


def held(form: Form, obj: KubeObject) -> Held:
    """Return the records of an object, and the marks of one of ours."""
    rrsets = dict(form.records(obj))
    if is_ours(obj):
        for host in {key.name for key in rrsets}:
            rrsets |= _marks(obj, host)
    return Held(rrsets, obj.metadata.uid, obj.metadata.resource_version)


def joined(parts: Iterable[Held]) -> dict[RRKey, RRSet]:
    """Return the records of several objects as one zone."""
    rrsets: dict[RRKey, RRSet] = {}
    for part in parts:
        for key, rrset in part.rrsets.items():
            before = rrsets.get(key, EMPTY)
            rrsets[key] = RRSet(before.values | rrset.values, before.ttl or rrset.ttl)
    return rrsets


def changed(before: RRSets, edits: Sequence[Edit]) -> dict[RRKey, RRSet]:
    """Return the sets of an object after ``edits``; empty ones are left out."""
    rrsets = dict(before)
    for edit in edits:
        there = rrsets.get(edit.key, EMPTY)
        if edit.add:
            rrsets[edit.key] = RRSet(there.values | {edit.value}, edit.ttl)
        else:
            rrsets[edit.key] = RRSet(there.values - {edit.value}, there.ttl)
    return {key: rrset for key, rrset in rrsets.items() if rrset.values}


def body(form: Form, host: str, rrsets: RRSets, *, version: str = "") -> JSONObject:
    """Return the object of ``host``; with ``version`` it replaces only that version of it."""
    marks: dict[str, list[str]] = {}
    for type_ in TYPES:
        own = rrsets.get(mark_key(host, type_), EMPTY).values
        if texts := sorted(text for text in own if mark_from_text(text) is not None):
            marks[type_] = texts
    content = form.body(host, rrsets)
    metadata: JSONObject = {
        "name": object_name(form, host),
        "namespace": SYSTEM_NAMESPACE,
        "labels": {LABEL_MANAGED_BY: MANAGED_BY},
        "annotations": {**content.get("annotations", {}), ANNOTATION_MARKS: msgspec.json.encode(marks).decode()},
    }
    if version:
        metadata["resourceVersion"] = version
    return {"metadata": metadata, "spec": content["spec"]}


def _marks(obj: KubeObject, host: str) -> dict[RRKey, RRSet]:
    try:
        by_type = decode(obj.annotation(ANNOTATION_MARKS, "{}"), dict[str, list[str]])
    except msgspec.DecodeError:
        return {}  # records without a mark are not ours
    return {
        mark_key(host, type_): RRSet(frozenset(mark_text(mark) for mark in map(mark_from_text, texts) if mark), 1)
        for type_, texts in by_type.items()
        if type_ in TYPES
    }


def value_of(type_: str, target: str) -> str:
    """Return a target as a value of that type; one that is none stays as it is, since another writer made it."""
    try:
        return canonical_value(type_, target)
    except ValueError:
        return target
