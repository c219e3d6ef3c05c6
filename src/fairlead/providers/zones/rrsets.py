"""The content of a zone: sets of records by name and type, and edits of single records.

In: names in lower case without a final dot, values as text in one canonical form. Out: values. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

A, AAAA, CNAME, TXT = "A", "AAAA", "CNAME", "TXT"
#: Asks for all sets of a name.
ANY = "ANY"
#: The types that a Hostname may have, in the order in which they are planned.
TYPES = (A, AAAA, CNAME, TXT)


class RRKey(NamedTuple):
    """A set of records: its name and its type."""

    name: str
    type: str


class RRSet(msgspec.Struct, frozen=True):
    """The values of one set, and the TTL (seconds) that they share."""

    values: frozenset[str] = frozenset()
    ttl: int = 0


RRSets = Mapping[RRKey, RRSet]
EMPTY = RRSet()


class Edit(NamedTuple):
    """One record that is added, or deleted; ``ttl`` counts for additions."""

    key: RRKey
    value: str
    ttl: int
    add: bool


def canonical_name(name: str) -> str:
    """Return ``name`` in lower case and without its final dot."""
    return name.lower().removesuffix(".")


def canonical_value(type_: str, value: str) -> str:
    """Return ``value`` of a record as this provider writes it everywhere."""
    if type_ in (A, AAAA):
        return str(ipaddress.ip_address(value))
    return canonical_name(value) if type_ == CNAME else value
