"""Reads JSON that others wrote: answers of servers, objects of users, annotations. The only place that decodes JSON.

    decode           a value of a type, or ``msgspec.DecodeError``, whatever is wrong with the text
    decode_leniently what can be read of a value: wrong fields have their defaults
    salvage          the same, with the names of the wrong fields
    read_json        a value of a type, or None

In: text or bytes, and a type. Out: a value. Never: raises anything but ``msgspec.DecodeError``: text that is not UTF-8
or nested too deeply must not end the task that reads it.
"""

from __future__ import annotations

import functools
import re
from typing import TypeVar

import msgspec

from fairlead.api.meta import JSONObject

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

#: Nothing that Fairlead reads is nested so deeply.
_DEEPEST = 100
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.?)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
#: An escape sequence; the group is one half of a surrogate pair without the other.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
#: What takes the place of a value that is nested too deeply.
_CUT = b'"\\u0000nested too deeply"'


def decode(text: bytes | str | msgspec.Raw, as_type: type[T]) -> T:
    """Return what ``text`` holds.

    Raises:
        msgspec.DecodeError: it is not JSON of this type, not UTF-8, or nested too deeply.
    """
    try:
        return _decoder(as_type).decode(text)
    except msgspec.DecodeError:
        raise
    except RecursionError as error:
        raise msgspec.DecodeError("JSON is nested too deeply") from error
    except (ValueError, OverflowError) as error:
        raise msgspec.DecodeError(f"JSON cannot be read: {error}") from error


def read_json(text: bytes | str | msgspec.Raw, as_type: type[T]) -> T | None:
    """Return what ``text`` holds, None when it cannot be decoded."""
    try:
        return decode(text, as_type)
    except msgspec.DecodeError:
        return None


def decode_leniently(text: bytes | msgspec.Raw, as_type: type[S]) -> S:
    """Return what can be read: fields that are missing, wrong or nested too deeply have their defaults.

    Every field of ``as_type`` needs a default. Text that is not JSON gives a value of defaults.
    """
    try:
        return decode(text, as_type)
    except msgspec.DecodeError:
        return salvage(text, as_type)[0] or as_type()


def salvage(text: bytes | msgspec.Raw, as_type: type[S]) -> tuple[S | None, frozenset[str]]:
    """Return what can be read, None for nothing, and the fields that cannot, such as "spec.ports"."""
    lost: set[str] = set()
    value = _readable(repaired(text), as_type, "", lost)
    return value, frozenset(lost)


def repaired(text: bytes | msgspec.Raw) -> bytes:
    """Return ``text`` in valid UTF-8, with a marker in place of each value that is nested too deeply."""
    data = bytes(memoryview(text)).decode(errors="replace").encode()
    data = _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], data)
    parts: list[bytes] = []
    depth = kept = 0
    for match in _STRING_OR_BRACKET.finditer(data):
        bracket = match[0]
        if bracket in (b"{", b"["):
            depth += 1
            if depth == _DEEPEST + 1:
                parts += [data[kept : match.start()], _CUT]
        elif bracket in (b"}", b"]"):
            if depth == _DEEPEST + 1:
                kept = match.end()
            depth -= 1
    return b"".join(parts) + data[kept:] if depth <= _DEEPEST else b"".join(parts)


def is_cut(text: bytes | msgspec.Raw) -> bool:
    """Return whether ``repaired`` has taken out a part of ``text``."""
    return _CUT in bytes(memoryview(text))


@functools.cache
def _decoder(as_type: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(as_type)


@functools.cache
def _fields(as_type: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(as_type)


def _readable(text: bytes | msgspec.Raw, as_type: type[S], path: str, lost: set[str]) -> S | None:
    members = read_json(text, dict[str, msgspec.Raw])
    if members is None:
        lost.add(path)
        return None
    fields: JSONObject = {}
    for field in _fields(as_type):
        if (member := members.get(field.encode_name)) is None:
            continue
        place = f"{path}.{field.encode_name}" if path else field.encode_name
        try:
            fields[field.name] = decode(member, field.type)
        except msgspec.DecodeError:
            if not (isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)):
                lost.add(place)
            elif (value := _readable(member, field.type, place, lost)) is not None:
                fields[field.name] = value
    try:
        return as_type(**fields)
    except TypeError:  # a required field is lost
        lost.add(path)
        return None
