"""Field ownership: read and write ``metadata.managedFields``.

In: an object before and after a write, and its writer. Out: the object with updated managedFields. An Update that
changes a field takes its ownership from all other managers; an Apply does so only by force (``apply.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from podless.objects import Obj, child, items, meta, rfc3339
from podless.patch.fields import Fields, Path, compare, from_tree, to_tree
from podless.schema.node import SchemaNode

APPLY, UPDATE = "Apply", "Update"
_SERVER_FIELDS = frozenset(
    "f:" + name
    for name in (
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    )
)


class Manager(NamedTuple):
    """The key of one entry of ``managedFields``."""

    name: str
    operation: str
    api_version: str
    subresource: str


@dataclass(frozen=True, slots=True)
class Owned:
    """The fields that one manager owns, and when it last changed any of them (RFC 3339)."""

    fields: Fields
    since: str


Managers = dict[Manager, Owned]


@dataclass(frozen=True, slots=True)
class FieldWriter:
    """The parts of a write that field ownership depends on: manager, version, subresource and time."""

    manager: str
    api_version: str
    subresource: str
    now: float
    has_status: bool
    built_in: bool

    def owns(self, path: Path) -> bool:
        """Return whether fields at ``path`` can be owned through this write."""
        if not path or path[0] in {"f:apiVersion", "f:kind"} or path == ("f:metadata",):
            return False
        if path[0] == "f:metadata" and path[1] in _SERVER_FIELDS:
            return False
        if self.subresource == "status":
            return path[0] == "f:status"
        return not (self.has_status and path[0] == "f:status")

    def key(self, operation: str) -> Manager:
        """Return this writer's entry key."""
        return Manager(self.manager, operation, self.api_version, self.subresource)


def read_managers(obj: Obj | None) -> Managers:
    """Decode ``managedFields``; malformed entries are dropped."""
    managers: Managers = {}
    for entry in items(obj, "metadata", "managedFields"):
        if isinstance(entry, dict) and entry.get("operation") in {APPLY, UPDATE}:
            entry_ = cast("dict[str, Any]", entry)
            key = Manager(
                str(entry_.get("manager", "")),
                entry_["operation"],
                str(entry_.get("apiVersion", "")),
                str(entry_.get("subresource", "")),
            )
            managers[key] = Owned(frozenset(from_tree(entry_.get("fieldsV1"))), str(entry_.get("time", "")))
    return managers


def write_managers(obj: Obj, managers: Managers) -> None:
    """Write ``managers`` into ``obj``: those of Apply first, then by time."""
    kept = [(key, owned) for key, owned in managers.items() if owned.fields]
    kept.sort(key=lambda pair: (pair[0].operation, pair[1].since, pair[0]))
    entries: list[Obj] = []
    for key, owned in kept:
        entry: Obj = {"manager": key.name, "operation": key.operation, "apiVersion": key.api_version}
        entry |= {"time": owned.since, "fieldsType": "FieldsV1", "fieldsV1": to_tree(owned.fields)}
        entries.append(entry | ({"subresource": key.subresource} if key.subresource else {}))
    if entries:
        meta(obj)["managedFields"] = entries
    else:
        meta(obj).pop("managedFields", None)


def inherited(old: Obj | None, new: Obj) -> Managers:
    """Return the managers before a write: those in the request if it has any, else the stored ones."""
    sent = meta(new).get("managedFields")
    if sent in ([], [{}]):
        return {}
    return read_managers(new) or read_managers(old)


def comparable(obj: Obj | None, *, built_in: bool) -> Obj:
    """Return ``obj`` without the metadata that has no field manager, so that it is not compared."""
    base: Obj = {"metadata": {}} | ({"spec": {}, "status": {}} if built_in else {})
    if obj is None:
        return base
    bare = base | obj
    bare["metadata"] = {key: value for key, value in meta(obj).items() if "f:" + key not in _SERVER_FIELDS}
    return bare


def track_update(old: Obj | None, new: Obj, node: SchemaNode, write: FieldWriter) -> None:
    """Make the writer the only owner of the fields that differ between ``old`` and ``new``."""
    changed: set[Path] = set()
    removed: set[Path] = set()
    built_in = write.built_in
    compare(comparable(old, built_in=built_in), comparable(new, built_in=built_in), node, (), changed, removed)
    changed = {path for path in changed if write.owns(path)}
    managers = inherited(old, new)
    writer = write.key(UPDATE)
    if changed or removed:
        for key, owned in list(managers.items()):
            lost = removed if key == writer else removed | changed
            if owned.fields & lost:
                managers[key] = Owned(owned.fields - lost, owned.since)
    if changed:
        own_fields = managers[writer].fields if writer in managers else frozenset[Path]()
        managers[writer] = Owned(own_fields | changed, rfc3339(write.now))
    child(new, "metadata")
    write_managers(new, managers)
