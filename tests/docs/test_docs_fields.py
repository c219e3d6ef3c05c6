"""Every field of our kinds has a description, so that ``kubectl explain`` and the reference say what it is for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from fairlead.api.crd import FIELDS
from fairlead.api.kinds import CRDS, all_crds
from fairlead.api.meta import KubeObject

#: The API server describes these itself, and allows no description of metadata.
_OF_THE_API_SERVER = {"apiVersion", "kind", "metadata"}


def _fields(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, child in node.get("properties", {}).items():
        if "." in path or name not in _OF_THE_API_SERVER:
            yield f"{path}.{name}", child
        yield from _fields(child, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(node.get(inner), dict):
            yield from _fields(node[inner], f"{path}[]")


@pytest.mark.req("X-21")
def test_every_field_has_a_description() -> None:
    missing = [
        path
        for crd in all_crds()
        for version in crd["spec"]["versions"]
        for path, field in _fields(version["schema"]["openAPIV3Schema"], crd["spec"]["names"]["kind"])
        if not field.get("description")
    ]
    assert missing == [], "describe them in src/fairlead/api/descriptions, by struct and wire name"


def test_nothing_is_described_that_is_not_there() -> None:
    """Compare with every struct that a kind is made of, so that a field that is renamed takes its row along."""
    types: list[type[KubeObject]] = [crd.resource.type for crd in CRDS]
    there: dict[str, set[str]] = {}
    for each in types:
        _, components = msgspec.json.schema_components([each])
        for component in components.values():
            there.setdefault(str(component.get("title")), set()).update(component.get("properties", {}))
    shared = set(FIELDS) - set(there)
    assert shared == set(), "no kind has such a struct"
    # Rows that several structs share may have more names than each of them.
    used = {name for names in there.values() for name in names}
    assert {f"{struct}.{name}" for struct, rows in FIELDS.items() for name in rows if name not in used} == set()
