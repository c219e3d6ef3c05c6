"""Remove the fields of an object that its schema does not have, and apply the defaults of the schema.

In: an object and its node. Out: the same object, changed in place, and the paths of removed fields in document order. A
null that may not be null takes the default.
"""

from __future__ import annotations

from typing import Any, cast

from podless.objects import Obj, clone
from podless.schema.node import SchemaNode

EMBEDDED = frozenset({"apiVersion", "kind", "metadata"})


def prune(value: Any, node: SchemaNode, path: str, unknown: list[str], *, drop_nulls: bool) -> None:
    """Remove unknown fields below ``value``; with ``drop_nulls`` also every null, which Go decodes as absent.

    Without it only nulls are removed that the schema neither allows nor has a default for.
    """
    if isinstance(value, dict):
        _prune_map(cast("Obj", value), node, path, unknown, drop_nulls=drop_nulls)
    elif isinstance(value, list) and node.items is not None:
        for index, item in enumerate(cast("list[Any]", value)):
            if isinstance(item, (dict, list)):
                prune(item, node.items, f"{path}[{index}]", unknown, drop_nulls=drop_nulls)


def _prune_map(value: Obj, node: SchemaNode, path: str, unknown: list[str], *, drop_nulls: bool) -> None:
    properties, extra = node.properties, node.additional
    opaque = node.preserve or not (node.type or properties or extra)
    removed: list[str] = []
    for key, item in value.items():
        sub = properties.get(key) or extra
        if sub is None:
            if not opaque and not (node.embedded and key in EMBEDDED):
                unknown.append(f"{path}.{key}" if path else key)
                removed.append(key)
        elif item is None:
            if not sub.preserve and (drop_nulls or (not sub.nullable and sub.default is None)):
                removed.append(key)
        elif isinstance(item, (dict, list)):
            prune(item, sub, f"{path}.{key}" if path else key, unknown, drop_nulls=drop_nulls)
    for key in removed:
        del value[key]


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
