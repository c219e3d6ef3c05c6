"""JSON in a text field of an object, such as an annotation: written by any client with a right to the object."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def read_json(text: str, as_type: type[T]) -> T | None:
    """Return what ``text`` holds, None when it is no JSON of this type, or nested too deeply to be read."""
    try:
        return msgspec.json.decode(text, type=as_type)
    except (msgspec.DecodeError, RecursionError):
        return None
