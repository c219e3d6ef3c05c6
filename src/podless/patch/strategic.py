"""Strategic merge patch for built-in kinds: lists merge by the key that the schema names.

Directives: ``$patch: replace|delete|merge``, ``$retainKeys``, ``$deleteFromPrimitiveList/<field>`` and
``$setElementOrder/<field>``. In: the document (consumed), the patch and the schema. Out: the new document.
Source: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from __future__ import annotations

from typing import Any, cast

from podless.bounds import check_items
from podless.failure import bad_request
from podless.objects import Obj
from podless.schema.node import SchemaNode

DELETE_FROM, SET_ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"
_ANY = SchemaNode()


def strategic_merge(document: Any, patch: Any, node: SchemaNode | None) -> Any:
    """Return ``document`` merged with ``patch`` by the merge strategies of ``node``."""
    if not isinstance(patch, dict):
        return patch
    changes, node = dict(cast("Obj", patch)), node or _ANY
    directive = changes.pop("$patch", None)
    if directive == "replace":
        return changes
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown patch type: {directive!r}; use replace, delete or merge")
    target: Obj = cast("Obj", document) if isinstance(document, dict) else {}
    if isinstance(retained := changes.pop("$retainKeys", None), list):
        keep = {name for name in cast("list[Any]", retained) if isinstance(name, str)}
        target = {key: value for key, value in target.items() if key in keep}
    orders = {key.removeprefix(SET_ORDER): changes.pop(key) for key in list(changes) if key.startswith(SET_ORDER)}
    for key in [key for key in changes if key.startswith(DELETE_FROM)]:
        field, doomed = key.removeprefix(DELETE_FROM), _list(changes.pop(key), key)
        target[field] = [item for item in _list(target.get(field), field) if item not in doomed]
    for key, value in changes.items():
        _merge_field(target, key, value, node.child(key) or _ANY)
    for key, order in orders.items():
        if isinstance(target.get(key), list) and isinstance(order, list):
            target[key] = _reordered(target[key], cast("list[Any]", order), node.child(key) or _ANY)
    return target


def _merge_field(target: Obj, key: str, value: Any, node: SchemaNode) -> None:
    if value is None:
        target.pop(key, None)
    elif isinstance(value, dict):
        replace = "replace" in node.merge_strategy
        target[key] = strategic_merge(None if replace else target.get(key), value, node)
    elif isinstance(value, list) and "merge" in node.merge_strategy and isinstance(target.get(key), list):
        target[key] = _merge_list(target[key], cast("list[Any]", value), node, key)
    elif isinstance(value, list) and node.merge_key:
        target[key] = _merge_list([], cast("list[Any]", value), node, key)
    else:
        target[key] = value


def _list(value: Any, field: str) -> list[Any]:
    if not isinstance(value, list | None):
        raise bad_request(f"error decoding patch: {field} is not a list")
    values = cast("list[Any]", value or [])
    check_items(values, field)
    return values


def _merge_list(current: list[Any], patch: list[Any], node: SchemaNode, field: str) -> list[Any]:
    check_items(patch, field)
    if not node.merge_key:
        return current + [item for item in patch if item not in current]
    merged, key = list(current), node.merge_key
    if any(isinstance(item, dict) and item.get("$patch") == "replace" and len(item) == 1 for item in patch):
        merged, patch = [], [item for item in patch if item != {"$patch": "replace"}]
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item!r} does not contain declared merge key: {key} (in {field})")
        changes = cast("Obj", item)
        index = next((i for i, old in enumerate(merged) if _at(old, key) == changes[key]), None)
        if changes.get("$patch") == "delete":
            merged = [old for old in merged if _at(old, key) != changes[key]]
        elif index is None:
            merged.append(strategic_merge({}, changes, node.items))
        else:
            merged[index] = strategic_merge(merged[index], changes, node.items)
    return merged


def _at(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, dict) else None


def _reordered(current: list[Any], order: list[Any], node: SchemaNode) -> list[Any]:
    key = node.merge_key

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    rank = {repr(identity(item)): position for position, item in enumerate(order)}
    ranked = iter(sorted((i for i in current if repr(identity(i)) in rank), key=lambda i: rank[repr(identity(i))]))
    return [next(ranked) if repr(identity(item)) in rank else item for item in current]
