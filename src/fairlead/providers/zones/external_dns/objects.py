"""Which DNSEndpoint has the records of a name, and whose are they?

    one object for each name; its annotation has the marks that stand beside records in a zone of our own
    an object without our label is another writer's: its records count, without a mark

In: objects, edits. Out: sets of records with their marks, and objects as JSON. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fairlead.api.dnsendpoint import DNSEndpoint, Endpoint
from fairlead.api.meta import JSONObject
from fairlead.api.names import ANNOTATION_MARKS, LABEL_MANAGED_BY, MANAGED_BY, SYSTEM_NAMESPACE
from fairlead.api.naming import short_hash
from fairlead.providers.zones.marks import mark_from_text, mark_key, mark_text
from fairlead.providers.zones.rrsets import EMPTY, TYPES, Edit, RRKey, RRSet, RRSets, canonical_name, canonical_value

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_READABLE = 40


class Held(msgspec.Struct, frozen=True):
    """What the object of one name has, and which version of it was read; empty for one that is not there."""

    rrsets: Mapping[RRKey, RRSet] = {}
    uid: str = ""
    version: str = ""


def object_name(host: str) -> str:
    """Name the DNSEndpoint of ``host``: readable, and unique by a digest of the host."""
    readable = _NOT_IN_NAMES.sub("-", host)[:_READABLE].strip("-")
    return f"{readable or 'name'}-{short_hash(host, size_bytes=8)}"


def is_ours(obj: DNSEndpoint) -> bool:
    """Say whether Fairlead made an object."""
    return obj.label(LABEL_MANAGED_BY) == MANAGED_BY


def held(obj: DNSEndpoint) -> Held:
    """Return the records of an object, and the marks of one of ours."""
    rrsets: dict[RRKey, RRSet] = {}
    for endpoint in obj.spec.endpoints or ():
        if endpoint.record_type not in TYPES:
            continue
        key = RRKey(canonical_name(endpoint.dns_name), endpoint.record_type)
        values = frozenset(_value(endpoint.record_type, target) for target in endpoint.targets or ())
        rrsets[key] = RRSet(rrsets.get(key, EMPTY).values | values, endpoint.record_ttl)
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


def body(host: str, rrsets: RRSets, *, version: str = "") -> JSONObject:
    """Return the DNSEndpoint of ``host``; with ``version`` it replaces only that version of it."""
    marks: dict[str, list[str]] = {}
    endpoints: list[Endpoint] = []
    for type_ in TYPES:
        own = rrsets.get(mark_key(host, type_), EMPTY).values
        if texts := sorted(text for text in own if mark_from_text(text) is not None):
            marks[type_] = texts
        rrset = rrsets.get(RRKey(host, type_), EMPTY)
        if rrset.values:
            endpoints.append(Endpoint(host, type_, rrset.ttl, sorted(rrset.values)))
    metadata: JSONObject = {
        "name": object_name(host),
        "namespace": SYSTEM_NAMESPACE,
        "labels": {LABEL_MANAGED_BY: MANAGED_BY},
        "annotations": {ANNOTATION_MARKS: msgspec.json.encode(marks).decode()},
    }
    if version:
        metadata["resourceVersion"] = version
    return {"metadata": metadata, "spec": {"endpoints": msgspec.to_builtins(endpoints)}}


def _marks(obj: DNSEndpoint, host: str) -> dict[RRKey, RRSet]:
    try:
        by_type = msgspec.json.decode(obj.annotation(ANNOTATION_MARKS, "{}"), type=dict[str, list[str]])
    except msgspec.DecodeError:
        return {}  # records without a mark are not ours
    return {
        mark_key(host, type_): RRSet(frozenset(mark_text(mark) for mark in map(mark_from_text, texts) if mark), 1)
        for type_, texts in by_type.items()
        if type_ in TYPES
    }


def _value(type_: str, target: str) -> str:
    try:
        return canonical_value(type_, target)
    except ValueError:
        return target
