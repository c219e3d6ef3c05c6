"""Server-side apply: merge, remove what is no longer stated, and refuse to take over fields unless forced.

    live object ──┐
                  ├─ merge by schema ─► drop fields only I owned and state no more ─► compare with live
    my config ────┘                                                     └─ changed and owned by others? conflict, or
    force

In: the live object (or None), the configuration, the schema. Out: the new object with its managers. Raises 409 with
causes.
"""

from __future__ import annotations

from typing import Any, cast

from fairlead.apiserver.failure import ApiFailure, Cause, bad_request
from fairlead.apiserver.objects import Obj, clone, meta, rfc3339
from fairlead.apiserver.patch.fields import (
    ANY,
    Path,
    all_fields,
    applied_fields,
    compare,
    is_granular,
    shown,
    step_of,
)
from fairlead.apiserver.patch.managers import (
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
from fairlead.apiserver.schema.node import SchemaNode


def server_side_apply(live: Obj | None, config: Obj, node: SchemaNode, write: FieldWriter, *, force: bool) -> Obj:
    """Return what the object becomes when ``write.manager`` applies ``config``."""
    if meta(config).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    config = cast("Obj", without_nulls(config))
    managers = read_managers(live)
    if live is not None and not managers:
        managers = _before_first_apply(live, node, write)
    me = write.key(APPLY)
    stated = {path for path in applied_fields(config, node) if write.owns(path)}
    before = managers[me].fields if me in managers else frozenset[Path]()
    merged = merge(clone(live) if live is not None else {}, config, node)
    _drop_unstated(merged, node, {path for path in before if path not in stated}, stated, managers, me)
    changed, removed = set[Path](), set[Path]()
    old, new = (comparable(obj, built_in=write.built_in) for obj in (live, merged))
    compare(old, new, node, (), changed, removed)
    _take_over(managers, me, changed & stated, force=force)
    # As on a real server, another value of a field that it owned already moves its time too.
    if frozenset(stated) != before or me not in managers or changed & stated:
        managers[me] = Owned(frozenset(stated), rfc3339(write.now))
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
    """Lay ``config`` over ``live``; atomic parts replace, granular ones merge."""
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
            # Which of them would count?
            raise bad_request(f"failed to create typed patch object: duplicate entries for key {shown((step,))}")
        wanted[step] = item
    current = {step_of(item, node): item for item in live}
    # Items that both state stand in the order of the configuration, in the slots that they had.
    shared = [step for step in wanted if step in current]
    slots, merged = iter(shared), list[Any]()
    for item in live:
        if step_of(item, node) not in wanted:
            merged.append(item)
        elif step := next(slots, ""):  # what stands there twice is there once, after it was applied
            merged.append(merge(current[step], wanted[step], node.items or ANY))
    return merged + [item for step, item in wanted.items() if step not in current]


def _before_first_apply(live: Obj, node: SchemaNode, write: FieldWriter) -> Managers:
    fields: set[Path] = set()
    all_fields(comparable(live, built_in=write.built_in), node, (), fields)
    owned = frozenset(path for path in fields if write.owns(path) and len(path) > 1)
    key = Manager("before-first-apply", UPDATE, write.api_version, "")
    return {key: Owned(owned, rfc3339(write.now))}


def _drop_unstated(
    merged: Obj, node: SchemaNode, dropped: set[Path], stated: set[Path], managers: Managers, me: Manager
) -> None:
    """Remove the fields that only ``me`` owned and that it states no more."""
    held: set[Path] = set()
    for key, owned in managers.items():
        if key != me:
            held |= owned.fields
    held |= stated
    kept_prefixes = {path[:length] for path in held for length in range(1, len(path) + 1)}
    gone: set[Path] = set()
    items = _Items()
    for path in sorted(dropped, key=len):  # an item before its fields: without its key fields it could not be found
        if path not in kept_prefixes and not any(path[:length] in gone for length in range(1, len(path))):
            _remove(merged, path, node, items)
            gone.add(path)


class _Items:
    """The items of lists by their steps: a list is read once, however many of its fields are removed."""

    def __init__(self) -> None:
        #: By the id of the list: while fields are removed no list is made, so none can have the id of another.
        self._by_step: dict[int, dict[str, Any]] = {}

    def of(self, values: list[Any], node: SchemaNode) -> dict[str, Any]:
        """Return the items of ``values`` by step: of those that stand twice, the first."""
        by_step = self._by_step.get(id(values))
        if by_step is None:
            by_step = self._by_step[id(values)] = {}
            for item in values:
                by_step.setdefault(step_of(item, node), item)
        return by_step


def _remove(value: Any, path: Path, node: SchemaNode, items: _Items) -> None:
    """Remove the field at ``path``; containers that become empty go too."""
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
            del values[next(index for index, each in enumerate(values) if each is item)]


def _take_over(managers: Managers, me: Manager, changed: set[Path], *, force: bool) -> None:
    contested = {key: owned.fields & changed for key, owned in managers.items() if key != me}
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
        who = f'"{key.name}"{sub}{using}'
        fields = sorted(shown(path) for path in paths)
        causes += [Cause("FieldManagerConflict", f"conflict with {who}", field) for field in fields]
        if len(fields) == 1:
            lines.append(f"conflict with {who}: {fields[0]}")
        else:
            lines.append(f"conflicts with {who}:\n" + "\n".join(f"- {field}" for field in fields))
    plural = "conflict" if len(causes) == 1 else "conflicts"
    message = f"Apply failed with {len(causes)} {plural}: " + "\n".join(lines)
    return ApiFailure(409, "Conflict", message, causes=causes)
