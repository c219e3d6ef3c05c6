"""Fields of CustomResourceDefinitions, and whether one definition is newer than another or contained in it.

In: definitions as plain JSON. Out: dotted paths below spec and status of the version that is stored.
"""

from __future__ import annotations

from typing import Any, cast

from fairlead.api.meta import JSONObject


def fields_of(crd: JSONObject) -> frozenset[str]:
    """Return the paths of all fields, such as ``spec.ports.name``; those of list items without an index."""
    versions = cast("list[JSONObject]", _mapping(crd.get("spec")).get("versions") or [])
    stored = next((each for each in versions if each.get("storage")), cast("JSONObject", {}))
    return frozenset(_below(_mapping(_mapping(stored.get("schema")).get("openAPIV3Schema")), ""))


def newer_fields(expected: JSONObject, present: JSONObject) -> list[str]:
    """Return the fields of ``present`` that ``expected`` lacks, sorted; none when it lacks some of ``expected``."""
    if expected["spec"] == present.get("spec"):
        return []
    expected_fields, present_fields = fields_of(expected), fields_of(present)
    return [] if expected_fields - present_fields else sorted(present_fields - expected_fields)


def is_within(expected: JSONObject, present: JSONObject) -> bool:
    """Return whether each value in the spec of ``expected`` is the same in that of ``present``, which may have more."""
    present_spec = _mapping(present.get("spec"))
    return all(present_spec.get(key) == value for key, value in expected["spec"].items())


def _below(node: JSONObject, path: str) -> set[str]:
    fields: set[str] = set()
    for name, child in _mapping(node.get("properties")).items():
        if path or name in ("spec", "status"):
            child_path = f"{path}.{name}".lstrip(".")
            fields |= {child_path} | _below(_mapping(_mapping(child).get("items") or child), child_path)
    return fields


def _mapping(value: Any) -> JSONObject:
    return cast("JSONObject", value) if isinstance(value, dict) else {}
