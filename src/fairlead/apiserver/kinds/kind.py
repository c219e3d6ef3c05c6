"""One served kind: names, schema, columns, and its behaviour beyond the schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairlead.apiserver.failure import Cause
from fairlead.apiserver.objects import Obj, child
from fairlead.apiserver.schema.node import SchemaNode

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class PrinterColumn(NamedTuple):
    """One column of a table; ``cell`` reads it from an object at a wall clock time."""

    name: str
    cell: Callable[[Obj, float], Any]
    wide: bool = False
    type: str = "string"
    format: str = ""
    description: str = ""


class ObjectChange(NamedTuple):
    """A write about to happen; ``old`` is None for a new object, ``status`` says that only the status is written."""

    new: Obj
    old: Obj | None
    status: bool


class Behaviour:
    """A kind beyond its schema; ``objects`` are paths such as ``status`` that are never missing or null."""

    def __init__(self, *objects: str) -> None:
        self._objects = [path.split(".") for path in objects]

    def default(self, obj: Obj) -> None:
        """Fill in what the user left out, in place."""
        for path in self._objects:
            parent = obj
            for step in path:
                parent = child(parent, step)

    def on_create(self, obj: Obj) -> None:
        """Set what every new object starts with, in place."""

    def on_update(self, change: ObjectChange) -> None:
        """Carry over or clear what a write may not change, in place."""

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Return what is wrong with the new object."""
        _ = change
        return []

    def allocate(self, new: Obj) -> None:
        """Give out addresses and the like, just before the object is stored; may raise ``ApiFailure``."""


class Conversion(NamedTuple):
    """The conversion of a kind between the version that is stored and another one."""

    to_storage: Callable[[Obj], Obj]
    from_storage: Callable[[Obj], Obj]


@dataclass(slots=True, eq=False)
class Kind:
    """One (group, version, plural)."""

    group: str
    version: str
    plural: str
    kind: str
    node: SchemaNode
    namespaced: bool = True
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    built_in: bool = True
    generation: bool = False
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: dict[str, tuple[str, str, str]] = field(default_factory=dict[str, tuple[str, str, str]])
    """Other subresources than status: name -> (group, version, kind) of their body."""
    bucket: str = ""
    definition: str = ""
    schema: Obj = field(default_factory=dict[str, Any])
    columns: tuple[PrinterColumn, ...] = ()
    selectable: frozenset[str] = frozenset({"metadata.name", "metadata.namespace"})
    behaviour: Behaviour = field(default_factory=Behaviour)
    conversion: Conversion | None = None

    def __post_init__(self) -> None:
        self.singular = self.singular or self.kind.lower()
        self.list_kind = self.list_kind or self.kind + "List"
        self.bucket = self.bucket or (f"{self.plural}.{self.group}" if self.group else self.plural)

    def shown(self, obj: Obj) -> Obj:
        """Return a stored object in this version."""
        return self.conversion.from_storage(obj) if self.conversion is not None else obj

    def stored(self, obj: Obj) -> Obj:
        """Return an object of this version as it is stored."""
        return self.conversion.to_storage(obj) if self.conversion is not None else obj

    @property
    def api_version(self) -> str:
        """Return ``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def prefix(self) -> str:
        """Return the URL path of the group version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
