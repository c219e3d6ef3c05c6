"""Apply the defaults of a schema, nested ones too.

In: an object and its node. Out: the same object, completed in place. A null that may not be null takes the default.
"""

from __future__ import annotations

from typing import Any, cast

from podless.objects import Obj, clone
from podless.schema.node import SchemaNode


def fill_defaults(value: Any, node: SchemaNode) -> None:
    """Set the defaults of ``node`` in ``value`` and below, in place."""
    if not node.has_defaults:
        return
    if isinstance(value, dict):
        mapping = cast("Obj", value)
        for key, sub in node.properties.items():
            if sub.default is not None and (key not in mapping or (mapping[key] is None and not sub.nullable)):
                mapping[key] = clone(sub.default)
            if sub.has_defaults and mapping.get(key) is not None:
                fill_defaults(mapping[key], sub)
        if node.additional is not None and node.additional.has_defaults:
            for key, item in mapping.items():
                if key not in node.properties:
                    fill_defaults(item, node.additional)
    elif isinstance(value, list) and node.items is not None and node.items.has_defaults:
        for item in cast("list[Any]", value):
            fill_defaults(item, node.items)
