"""The fields of an object as sets of paths, and what differs between two objects.

A path is a tuple of steps: ``f:<field>``, ``k:<json of the list keys>`` or ``v:<json of the value>``. Lists follow
the schema: atomic ones are one field, maps and sets have one step per item. Pure functions.
Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from podless.bounds import check_items
from podless.objects import Obj
from podless.schema.node import SchemaNode

Path = tuple[str, ...]
Fields = frozenset[Path]
ANY = SchemaNode()
_sorted = msgspec.json.Encoder(order="sorted").encode


def is_granular(node: SchemaNode) -> bool:
    """Return whether the items of a list at ``node`` are owned individually."""
    return node.list_type == "set" or (node.list_type == "map" and bool(node.map_keys))


def step_of(item: Any, node: SchemaNode) -> str:
    """Return the step of one item of a granular list; missing key fields have their defaults."""
    if node.list_type == "set" or not isinstance(item, dict):
        return "v:" + _sorted(item).decode()
    keys: Obj = {}
    for key in node.map_keys:
        value = cast("Obj", item).get(key)
        if value is None and node.items is not None and key in node.items.properties:
            value = node.items.properties[key].default
        if value is not None:
            keys[key] = value
    return "k:" + _sorted(keys).decode()


def _children(value: Any, node: SchemaNode) -> list[tuple[str, Any, SchemaNode, bool]] | None:
    """Return (step, child, node, is an owned field itself) of each child, or None when ``value`` is one field."""
    if isinstance(value, dict) and not node.atomic_map:
        mapping = cast("Obj", value)
        properties = node.properties
        return [("f:" + key, item, node.child(key) or ANY, key not in properties) for key, item in mapping.items()]
    if isinstance(value, list) and is_granular(node):
        check_items(cast("list[Any]", value))
        return [(step_of(item, node), item, node.items or ANY, True) for item in cast("list[Any]", value)]
    return None


def applied_fields(value: Any, node: SchemaNode, path: Path = ()) -> set[Path]:
    """Return the fields that an applied configuration owns: leaves, list items and map entries."""
    fields: set[Path] = set()
    children = _children(value, node)
    if children is None:
        fields.add(path)
        return fields
    for step, item, sub, own in children:
        child_path = (*path, step)
        if own or item is None or item == {}:
            fields.add(child_path)
        fields |= applied_fields(item, sub, child_path)
    if isinstance(value, list) and not value:
        fields.add(path)
    return fields


def all_fields(value: Any, node: SchemaNode, path: Path, fields: set[Path]) -> None:
    """Add ``path`` and every path below it to ``fields``."""
    fields.add(path)
    for step, item, sub, _ in _children(value, node) or ():
        all_fields(item, sub, (*path, step), fields)


def compare(old: Any, new: Any, node: SchemaNode, path: Path, changed: set[Path], removed: set[Path]) -> None:
    """Add to ``changed`` the paths that ``new`` changes or adds, to ``removed`` those that it no longer has."""
    if old == new:
        return
    before, after = _children(old, node), _children(new, node)
    if before is None or after is None or type(old) is not type(new):
        if before is not None:
            all_fields(old, node, path, removed)
            removed.discard(path)
        if after is None:
            changed.add(path)
        else:
            all_fields(new, node, path, changed)
        return
    earlier = {step: item for step, item, _, _ in before}
    for step, item, sub, _ in after:
        child_path = (*path, step)
        if step in earlier:
            compare(earlier.pop(step), item, sub, child_path, changed, removed)
        else:
            all_fields(item, sub, child_path, changed)
    nodes = {step: sub for step, _, sub, _ in before}
    for step, item in earlier.items():
        all_fields(item, nodes[step], (*path, step), removed)


def to_tree(fields: set[Path] | Fields) -> Obj:
    """Return the ``fieldsV1`` form of a set of paths."""
    tree: Obj = {}
    for path in sorted(fields):
        subtree = tree
        for step in path:
            subtree = subtree.setdefault(step, {})
        subtree["."] = {}
    return _trimmed(tree)


def _trimmed(tree: Obj) -> Obj:
    return {step: {} if below == {".": {}} else _trimmed(below) for step, below in tree.items()}


def from_tree(tree: Any) -> set[Path]:
    """Return the paths in a ``fieldsV1`` document."""
    fields: set[Path] = set()
    if isinstance(tree, dict):
        _collect(cast("Obj", tree), (), fields)
    return fields


def _collect(tree: Obj, path: Path, fields: set[Path]) -> None:
    if not tree and path:
        fields.add(path)
    for step, below in tree.items():
        if step == ".":
            fields.add(path)
        elif isinstance(below, dict):
            _collect(cast("Obj", below), (*path, step), fields)


def path_text(path: Path) -> str:
    """Return a path as conflict messages show it: ``.spec.ports[port=80,protocol="TCP"].name``."""
    text = ""
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == "f":
            text += "." + rest
        elif kind == "k":
            keys = cast("Obj", msgspec.json.decode(rest))
            text += "[" + ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items()) + "]"
        else:
            text += f"[={rest}]"
    return text
