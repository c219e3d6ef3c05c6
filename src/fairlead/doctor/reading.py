"""Reads fields of JSON objects for checks: names, labels and conditions that may be missing, or null.

In: an object as an API server sent it. Out: plain values, empty where there is nothing. Never: an exception.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fairlead.api.meta import JSONObject
from fairlead.api.times import parsed_time


def mapping(value: Any) -> JSONObject:
    """Return a mapping that may be missing or null."""
    return value or {}


def meta(obj: JSONObject, field: str) -> Any:
    """Return a field of the metadata, None without it."""
    return mapping(obj.get("metadata")).get(field)


def name_of(obj: JSONObject) -> str:
    """Return the name."""
    return str(meta(obj, "name") or "")


def path_of(kind: str, obj: JSONObject) -> str:
    """Return KIND/NAMESPACE/NAME, or KIND/NAME of what has no namespace."""
    return "/".join(filter(None, (kind, str(meta(obj, "namespace") or ""), name_of(obj))))


def label(obj: JSONObject, key: str) -> str | None:
    """Return the value of a label, None without it."""
    return mapping(meta(obj, "labels")).get(key)


def annotation(obj: JSONObject, key: str) -> str:
    """Return the value of an annotation, empty without it."""
    return str(mapping(meta(obj, "annotations")).get(key, ""))


def spec(obj: JSONObject) -> JSONObject:
    """Return the spec, empty without one."""
    return mapping(obj.get("spec"))


def status(obj: JSONObject) -> JSONObject:
    """Return the status, empty without one."""
    return mapping(obj.get("status"))


def items(value: Any) -> list[Any]:
    """Return a list that may be null."""
    return value or []


def condition(obj: JSONObject, kind: str) -> JSONObject:
    """Return a condition of the status, empty without it."""
    of_kind = [each for each in items(status(obj).get("conditions")) if each.get("type") == kind]
    return mapping(of_kind[0]) if of_kind else {}


def message_of(obj: JSONObject, kind: str) -> str:
    """Return the message of a condition; without one its reason, else its type."""
    of_kind = condition(obj, kind)
    return str(of_kind.get("message") or of_kind.get("reason") or kind)


def is_false(obj: JSONObject, kind: str) -> bool:
    """Return whether a condition is False."""
    return condition(obj, kind).get("status") == "False"


def since(text: Any) -> datetime | None:
    """Return a time as it stands in an object; None where there is none."""
    return parsed_time(str(text)) if text else None


def stored_at(obj: JSONObject) -> datetime | None:
    """Return when the API server stored the last change of an object, by its own clock."""
    times = [since(entry.get("time")) for entry in items(meta(obj, "managedFields"))]
    return max((time for time in times if time is not None), default=None)
