"""Defaults of a schema."""

from typing import Any

from podless_objects import node

from podless.schema.prune import fill_defaults


def test_defaults_are_copies() -> None:
    schema = node(type="object", properties={"l": {"type": "array", "items": {}, "default": [1]}})
    first: dict[str, Any] = {}
    second: dict[str, Any] = {"l": None}
    fill_defaults(first, schema)
    fill_defaults(second, schema)
    first["l"].append(2)
    assert second == {"l": [1]}
