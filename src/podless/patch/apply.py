"""Server-side apply: merge, remove fields that are no longer applied, and report conflicts unless forced.

    live object ──────────┐
                          ├─ merge by schema ─► remove fields that only this manager owned and no longer applies
    applied configuration ┘                      ─► compare with live: changed and owned by others? 409, or force

In: the live object (or None), the configuration, the schema. Out: the new object with its managers. Raises 409 with
causes.
"""

from __future__ import annotations

from typing import Any, cast

from podless.failure import ApiFailure, Cause, bad_request
from podless.objects import Obj, clone, meta, rfc3339
from podless.patch.fields import ANY, Path, all_fields, applied_fields, compare, is_granular, path_text, step_of
from podless.patch.managers import (
    APPLY,
    UPDATE,
    FieldWriter,
    Manager,
    Managers,
    Owned,
    comparable,
    read_managers,
    write_managers,
)
from podless.schema.node import SchemaNode


def server_side_apply(live: Obj | None, config: Obj, node: SchemaNode, write: FieldWriter, *, force: bool) -> Obj:
    """Return the object after ``write.manager`` has applied ``config``, with its managedFields."""
    if meta(config).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    config = cast("Obj", without_nulls(config))
    managers = read_managers(live)
    if live is not None and not managers:
        managers = _before_first_apply(live, node, write)
    applier = write.key(APPLY)
    stated = {path for path in applied_fields(config, node) if write.owns(path)}
    before = managers[applier].fields if applier in managers else frozenset[Path]()
    merged = merge(clone(live) if live is not None else {}, config, node)
    _drop_unstated(merged, node, {path for path in before if path not in stated}, stated, managers, applier)
    changed, removed = set[Path](), set[Path]()
    old, new = (comparable(obj, built_in=write.built_in) for obj in (live, merged))
    compare(old, new, node, (), changed, removed)
    _take_over(managers, applier, changed & stated, force=force)
    # As in kube-apiserver, a new value of a field that the manager already owned updates its time, too.
    if frozenset(stated) != before or applier not in managers or changed & stated:
        managers[applier] = Owned(frozenset(stated), rfc3339(write.now))
    write_managers(merged, {key: Owned(owned.fields - removed, owned.since) for key, owned in managers.items()})
    return merged


def without_nulls(value: Any) -> Any:
    """Return a copy of ``value`` whose mappings have no nulls."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in cast("Obj", value).items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in cast("list[Any]", value)]
    return value


def merge(live: Any, config: Any, node: SchemaNode) -> Any:
    """Return ``live`` merged with ``config``: atomic nodes are replaced, granular ones merged."""
    if isinstance(config, dict) and isinstance(live, dict) and not node.atomic_map:
        target = cast("Obj", live)
        for key, value in cast("Obj", config).items():
            target[key] = merge(target[key], value, node.child(key) or ANY) if key in target else value
        return target
    if isinstance(config, list) and isinstance(live, list) and is_granular(node):
        return _merge_list(cast("list[Any]", live), cast("list[Any]", config), node)
    return config


def _merge_list(live: list[Any], config: list[Any], node: SchemaNode) -> list[Any]:
    wanted: dict[str, Any] = {}
    for item in config:
        if (step := step_of(item, node)) in wanted:
            # ambiguous: either could be meant
            raise bad_request(f"failed to create typed patch object: duplicate entries for key {path_text((step,))}")
        wanted[step] = item
    current = {step_of(item, node): item for item in live}
    # Items of both lists are in the order of the configuration, at the positions that they had.
    shared = [step for step in wanted if step in current]
    slots, merged = iter(shared), list[Any]()
    for item in live:
        if step_of(item, node) not in wanted:
            merged.append(item)
        elif step := next(slots, ""):  # duplicates in the live list are merged by an apply
            merged.append(merge(current[step], wanted[step], node.items or ANY))
    return merged + [item for step, item in wanted.items() if step not in current]


def _before_first_apply(live: Obj, node: SchemaNode, write: FieldWriter) -> Managers:
    fields: set[Path] = set()
    all_fields(comparable(live, built_in=write.built_in), node, (), fields)
    owned = frozenset(path for path in fields if write.owns(path) and len(path) > 1)
    key = Manager("before-first-apply", UPDATE, write.api_version, "")
    return {key: Owned(owned, rfc3339(write.now))}


def _drop_unstated(
    merged: Obj, node: SchemaNode, dropped: set[Path], stated: set[Path], managers: Managers, applier: Manager
) -> None:
    """Remove the fields that only ``applier`` owned and that its new configuration does not have."""
    retained: set[Path] = set()
    for key, owned in managers.items():
        if key != applier:
            retained |= owned.fields
    retained |= stated
    kept_prefixes = {path[:length] for path in retained for length in range(1, len(path) + 1)}
    removed: set[Path] = set()
    items = _Items()
    for path in sorted(dropped, key=len):  # an item before its fields: it is identified by its key fields
        if path not in kept_prefixes and not any(path[:length] in removed for length in range(1, len(path))):
            _remove(merged, path, node, items)
            removed.add(path)


class _Items:
    """A cache of the items of lists by step, so that a list is indexed once, however many fields are removed."""

    def __init__(self) -> None:
        #: By the id of the list. No list is created while fields are removed, so an id cannot be used again.
        self._by_step: dict[int, dict[str, Any]] = {}

    def of(self, values: list[Any], node: SchemaNode) -> dict[str, Any]:
        """Return the items of ``values`` by step; of duplicates the first one."""
        by_step = self._by_step.get(id(values))
        if by_step is None:
            by_step = self._by_step[id(values)] = {}
            for item in values:
                by_step.setdefault(step_of(item, node), item)
        return by_step


def _remove(value: Any, path: Path, node: SchemaNode, items: _Items) -> None:
    """Remove the field at ``path``, and the containers that become empty."""
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        key = step[2:]
        mapping = cast("Obj", value)
        if key in mapping:
            if rest:
                _remove(mapping[key], rest, node.child(key) or ANY, items)
            if not rest or mapping[key] in ({}, []):
                del mapping[key]
    elif isinstance(value, list):
        values = cast("list[Any]", value)
        by_step = items.of(values, node)
        if step not in by_step:
            return
        if rest:
            _remove(by_step[step], rest, node.items or ANY, items)
        else:
            item = by_step.pop(step)
            del values[next(index for index, candidate in enumerate(values) if candidate is item)]


def _take_over(managers: Managers, applier: Manager, changed: set[Path], *, force: bool) -> None:
    contested = {key: owned.fields & changed for key, owned in managers.items() if key != applier}
    contested = {key: paths for key, paths in contested.items() if paths}
    if contested and not force:
        raise _conflict(contested)
    for key, paths in contested.items():
        managers[key] = Owned(managers[key].fields - paths, managers[key].since)


def _conflict(contested: dict[Manager, frozenset[Path]]) -> ApiFailure:
    causes: list[Cause] = []
    lines: list[str] = []
    for key, paths in sorted(contested.items()):
        using = f" using {key.api_version}" if key.operation == UPDATE else ""
        sub = f' with subresource "{key.subresource}"' if key.subresource else ""
        owner = f'"{key.name}"{sub}{using}'
        fields = sorted(path_text(path) for path in paths)
        causes += [Cause("FieldManagerConflict", f"conflict with {owner}", field) for field in fields]
        if len(fields) == 1:
            lines.append(f"conflict with {owner}: {fields[0]}")
        else:
            lines.append(f"conflicts with {owner}:\n" + "\n".join(f"- {field}" for field in fields))
    plural = "conflict" if len(causes) == 1 else "conflicts"
    message = f"Apply failed with {len(causes)} {plural}: " + "\n".join(lines)
    return ApiFailure(409, "Conflict", message, causes=causes)
