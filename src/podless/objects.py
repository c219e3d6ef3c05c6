"""Hold, read and write one Kubernetes object in memory.

An object is the plain dict that JSON decodes to. The stored form is its JSON bytes, in the order ``kind, apiVersion,
metadata, ...`` as Kubernetes prints it; a copy is made by decoding those bytes again. Never does input or output.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

Obj = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_sorted = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode
_HEAD = ("kind", "apiVersion", "metadata")


def encode(value: object) -> bytes:
    """Return the JSON bytes of ``value``."""
    return _encode(value)


def decode(raw: bytes | str) -> Any:
    """Return the decoded JSON; raises ``msgspec.DecodeError``."""
    return _decode(raw)


def same(first: Any, second: Any) -> bool:
    """Return whether two JSON values are equal; unlike in Python, ``true`` and ``1`` differ."""
    return bool(first == second) and _sorted(first) == _sorted(second)


def ordered(obj: Obj) -> Obj:
    """Return a shallow copy of ``obj`` with kind, apiVersion and metadata first."""
    head = {key: obj[key] for key in _HEAD if key in obj}
    head.update(obj)
    return head


def clone(value: Any) -> Any:
    """Return a deep copy of a JSON value."""
    return _decode(_encode(value))


def meta(obj: Obj) -> Obj:
    """Return the metadata of ``obj``, adding an empty one when it is missing or null."""
    return child(obj, "metadata")


def child(obj: Obj, key: str) -> Obj:
    """Return the mapping under ``key``, adding an empty one when it is missing or null."""
    value = obj.get(key)
    if isinstance(value, dict):
        return cast("Obj", value)
    fresh: Obj = {}
    obj[key] = fresh
    return fresh


def at(obj: Any, *path: str) -> Any:
    """Return the value at ``path``, or None when any step of it is missing."""
    for step in path:
        if not isinstance(obj, dict):
            return None
        obj = cast("Obj", obj).get(step)
    return obj


def items(obj: Any, *path: str) -> list[Any]:
    """Return the list at ``path``, or an empty one."""
    value = at(obj, *path)
    return cast("list[Any]", value) if isinstance(value, list) else []


def rfc3339(moment: float) -> str:
    """Return a Unix time in seconds as RFC 3339 text in UTC, without fractions."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: object) -> float | None:
    """Return the Unix time in seconds of an RFC 3339 text, or None when it is not one."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).timestamp()
    except ValueError:
        return None
