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


def newer_fields(ours: JSONObject, theirs: JSONObject) -> list[str]:
    """Return what ``theirs`` has and ``ours`` has not, sorted; nothing when it lacks one of ours."""
    here, there = fields_of(ours), fields_of(theirs)
    return [] if here - there else sorted(there - here)


def is_within(ours: JSONObject, theirs: JSONObject) -> bool:
    """Return whether the specification of ``theirs`` has all that ``ours`` says, word for word; it may say more."""
    there = _mapping(theirs.get("spec"))
    return all(there.get(key) == value for key, value in ours["spec"].items())


def _below(node: JSONObject, path: str) -> set[str]:
    fields: set[str] = set()
    for name, child in _mapping(node.get("properties")).items():
        if path or name in ("spec", "status"):
            here = f"{path}.{name}".lstrip(".")
            fields |= {here} | _below(_mapping(_mapping(child).get("items") or child), here)
    return fields


def _mapping(value: Any) -> JSONObject:
    return cast("JSONObject", value) if isinstance(value, dict) else {}
