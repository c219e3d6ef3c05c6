"""Validate a value against its schema: one walk that collects every violation.

In: a value, its node, its path and the value that it replaces, if any. Out: causes, with the messages of
kube-apiserver. A value that an update does not change is not validated again ("ratcheting"), so that an object whose
schema became stricter can still be updated.
"""

from __future__ import annotations

from typing import Any, cast

from podless.failure import (
    Cause,
    display_text,
    duplicate_value,
    invalid_value,
    required_value,
    too_long,
    too_many,
    unsupported_value,
)
from podless.objects import Obj, encode, same
from podless.schema.formats import matches_format
from podless.schema.node import SchemaNode

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}


def has_type(value: Any, node: SchemaNode) -> bool:
    """Return whether ``value`` has the type of ``node``."""
    if node.int_or_string:
        return isinstance(value, (str, float) if node.format == "quantity" else str) or type(value) is int
    wanted = _TYPES.get(node.type)
    if wanted is None:
        return True
    if isinstance(value, bool) and node.type != "boolean":
        return False
    return isinstance(value, wanted) or (node.type == "integer" and isinstance(value, float) and value.is_integer())


ABSENT: Any = object()


def validate(value: Any, node: SchemaNode, path: str, causes: list[Cause], old: Any = ABSENT) -> None:
    """Append every violation at and below ``value``, except in parts that are equal in ``old``."""
    if old is not ABSENT and same(value, old):
        return
    if value is None:
        if not node.nullable and not node.preserve and (node.type or node.int_or_string):
            causes.append(_type_cause(path, "null", node))
        return
    if not has_type(value, node):
        causes.append(_type_cause(path, _NAMES.get(type(value), "null"), node))
        _validate_choice(value, node, path, causes)
        return
    _validate_choice(value, node, path, causes)
    if isinstance(value, dict):
        _validate_map(cast("Obj", value), node, path, causes, cast("Obj", old) if isinstance(old, dict) else {})
    elif isinstance(value, list):
        _validate_list(cast("list[Any]", value), node, path, causes, old)
    elif isinstance(value, str):
        _validate_text(value, node, path, causes)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _validate_number(value, node, path, causes)
    if node.branches:
        _validate_branches(value, node, path, causes)


def _validate_choice(value: Any, node: SchemaNode, path: str, causes: list[Cause]) -> None:
    # In Python, ``true`` equals 1.
    if node.enum and not any(
        value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in node.enum
    ):
        causes.append(unsupported_value(path, value, node.enum))


def _type_cause(path: str, actual: str, node: SchemaNode) -> Cause:
    want = "integer,string" if node.int_or_string else node.type
    where = path or "<root>"
    message = f'Invalid value: "{actual}": {where} in body must be of type {want}: "{actual}"'
    return Cause("FieldValueTypeInvalid", message, path)


def _validate_map(value: Obj, node: SchemaNode, path: str, causes: list[Cause], old: Obj) -> None:
    causes += [required_value(f"{path}.{key}" if path else key) for key in node.required if key not in value]
    properties, extra = node.properties, node.additional
    for key, item in value.items():
        sub = properties.get(key)
        if sub is not None:
            validate(item, sub, f"{path}.{key}" if path else key, causes, old.get(key, ABSENT))
        elif extra is not None:
            validate(item, extra, f"{path}.{key}" if path else key, causes, old.get(key, ABSENT))
    if node.limits:
        _validate_size(len(value), node, path, causes, "Properties")


def _validate_list(value: list[Any], node: SchemaNode, path: str, causes: list[Cause], old: Any) -> None:
    if node.items is not None:
        earlier = by_key(old, node)
        for index, item in enumerate(value):
            validate(item, node.items, f"{path}[{index}]", causes, earlier.get(key_of(item, node), ABSENT))
    if node.limits:
        _validate_size(len(value), node, path, causes, "Items")
    if node.list_type in {"set", "map"} or node.limits.get("uniqueItems"):
        _validate_unique(value, node, path, causes)


def _validate_size(size: int, node: SchemaNode, path: str, causes: list[Cause], noun: str) -> None:
    limits = node.limits
    minimum, maximum = limits.get(f"min{noun}", 0), limits.get(f"max{noun}", size)
    if size < minimum:
        causes.append(invalid_value(path, size, f"{path} in body should have at least {minimum} {noun.lower()}"))
    causes += too_many(path, size, maximum)


def key_of(item: Any, node: SchemaNode) -> bytes:
    """Return the encoded keys of an item of a list of type map; empty for other lists."""
    if node.map_keys and isinstance(item, dict):
        return encode([cast("Obj", item).get(key) for key in node.map_keys])
    return b""


def by_key(old: Any, node: SchemaNode) -> dict[bytes, Any]:
    """Return the items of a list of type map by their encoded keys; empty for other lists."""
    if not isinstance(old, list) or not node.map_keys:
        return {}
    return {key_of(item, node): item for item in cast("list[Any]", old)}


def _validate_unique(value: list[Any], node: SchemaNode, path: str, causes: list[Cause]) -> None:
    seen: set[bytes] = set()
    for index, item in enumerate(value):
        if node.map_keys and not isinstance(item, dict):
            continue  # of the wrong type, which is a cause already
        shape = {key: item.get(key) for key in node.map_keys if key in item} if node.map_keys else item
        if (key := encode(shape)) in seen:
            causes.append(duplicate_value(f"{path}[{index}]", shape))
        seen.add(key)


def _validate_text(value: str, node: SchemaNode, path: str, causes: list[Cause]) -> None:
    limits = node.limits
    if limits:
        causes += too_long(path, len(value), limits.get("maxLength", len(value)))
        if len(value) < limits.get("minLength", 0):
            causes.append(
                invalid_value(path, value, f"{path} in body should be at least {limits['minLength']} chars long")
            )
    if node.pattern is not None and not node.pattern.search(value):
        causes.append(invalid_value(path, value, f"{path} in body should match '{node.pattern_text}'"))
    if node.format and not matches_format(value, node.format):
        message = (
            f"Invalid value: {display_text(value)}: {path} in body must be of type {node.format}: {display_text(value)}"
        )
        causes.append(Cause("FieldValueTypeInvalid", message, path))


def _validate_number(value: float, node: SchemaNode, path: str, causes: list[Cause]) -> None:
    limits, bits = node.limits, 32 if node.format == "int32" else 64
    if node.type == "integer" and not -(1 << bits - 1) <= value < 1 << bits - 1:
        causes.append(invalid_value(path, value, f"must be of type integer with {bits} bits"))
    low, high, step = limits.get("minimum"), limits.get("maximum"), limits.get("multipleOf")
    low_open, high_open = limits.get("exclusiveMinimum") is True, limits.get("exclusiveMaximum") is True
    if low is not None and (value < low or (low_open and value == low)):
        relation = "greater than" if low_open else "greater than or equal to"
        causes.append(invalid_value(path, value, f"{path} in body should be {relation} {low}"))
    if high is not None and (value > high or (high_open and value == high)):
        relation = "less than" if high_open else "less than or equal to"
        causes.append(invalid_value(path, value, f"{path} in body should be {relation} {high}"))
    if step and value % step:
        causes.append(invalid_value(path, value, f"{path} in body should be a multiple of {step}"))


def _validate_branches(value: Any, node: SchemaNode, path: str, causes: list[Cause]) -> None:
    for sub in node.branches.get("allOf", ()):
        validate(value, sub, path, causes)
    if (options := node.branches.get("anyOf")) and not any(_accepts(value, sub) for sub in options):
        causes.append(invalid_value(path, value, f"{path} in body must validate at least one schema (anyOf)"))
    if (options := node.branches.get("oneOf")) and sum(_accepts(value, sub) for sub in options) != 1:
        causes.append(invalid_value(path, value, f"{path} in body must validate one and only one schema (oneOf)"))
    if any(_accepts(value, sub) for sub in node.branches.get("not", ())):
        causes.append(invalid_value(path, value, f"{path} in body must not validate the schema (not)"))


def _accepts(value: Any, node: SchemaNode) -> bool:
    causes: list[Cause] = []
    validate(value, node, "", causes)
    return not causes
