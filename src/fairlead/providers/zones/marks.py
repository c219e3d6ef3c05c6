"""Ownership marks of records, which are TXT records beside them.

    fairlead-a.www.example.com TXT "heritage=fairlead,fairlead/owner=hub-1,fairlead/for=5d2c…,fairlead/value=192.0.2.1"
    a-www.example.com          TXT "heritage=external-dns,external-dns/owner=prod,…"       (external-dns's registry)

A mark of ours is about one value, so that several hubs may each have values of one name: a value goes with the last
mark of it. In: names and texts. Out: marks. Pure. Never: the name of a tenant or an object in a zone that others read.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from fairlead.api.hostname import is_within
from fairlead.providers.zones.rrsets import TXT, Edit, RRKey

_PREFIX = "fairlead-"
#: The longest label that is put before a host.
PREFIX_LENGTH = len(f"{_PREFIX}cname.")
_HERITAGE = "heritage=fairlead"
_THEIR_HERITAGE = "heritage=external-dns"
_LONGEST_VALUE = 100


class Holder(NamedTuple):
    """The holder of a value: the hub (ownerId of the zone), and which of its objects, as a digest."""

    owner: str
    object: str


class Mark(NamedTuple):
    """One value that one object of one hub has."""

    holder: Holder
    value: str


def mark_key(host: str, type_: str) -> RRKey:
    """Return where the marks of the records of ``host`` with this type are."""
    return RRKey(f"{_PREFIX}{type_.lower()}.{host}", TXT)


def marked(value: str) -> str:
    """Return ``value`` as marks name it; a long one by its digest."""
    if len(value) <= _LONGEST_VALUE and not set(value) & {",", '"', "\\"} and value.isascii():
        return value
    return f"sha256:{hashlib.sha256(value.encode()).hexdigest()[:40]}"


def mark_text(mark: Mark) -> str:
    """Return the text of a mark."""
    fields = (f"owner={mark.holder.owner}", f"for={mark.holder.object}", f"value={mark.value}")
    return ",".join((_HERITAGE, *(f"fairlead/{field}" for field in fields)))


def mark_from_text(text: str) -> Mark | None:
    """Return the mark that ``text`` is, None when it is another text."""
    heritage, *fields = text.strip('"').split(",")
    if heritage != _HERITAGE:
        return None
    values = dict(field.removeprefix("fairlead/").split("=", 1) for field in fields if "=" in field)
    if not {"owner", "for", "value"} <= values.keys():
        return None
    return Mark(Holder(values["owner"], values["for"]), values["value"])


def host_of(edit: Edit) -> str:
    """Return the name that an edit is about; a mark is about the name below its first label."""
    return edit.key.name.partition(".")[2] if mark_from_text(edit.value) is not None else edit.key.name


def external_marks(host: str, type_: str, zone: str, *, prefix: str = "", suffix: str = "") -> tuple[RRKey, ...]:
    """Return where external-dns marks what it has of ``host``: its present format, and its former one."""
    label, dot, rest = host.partition(".")
    with_type = (f"{prefix}{type_.lower()}-{label}{suffix}{dot}{rest}", f"{prefix}{label}{suffix}{dot}{rest}")
    return tuple(RRKey(name, TXT) for name in with_type if is_within(name, zone))


def is_external_mark(text: str) -> bool:
    """Return whether ``text`` is a mark of external-dns."""
    return text.strip('"').startswith(_THEIR_HERITAGE)
