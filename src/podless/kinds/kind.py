"""One served kind: names, schema, columns, and its behaviour beyond the schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from podless.failure import Cause
from podless.objects import Obj, child
from podless.schema.node import SchemaNode

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
    """A write before it is stored; ``old`` is None for a create, ``status`` true for the status subresource."""

    new: Obj
    old: Obj | None
    status: bool


class Behaviour:
    """The behaviour of a kind beyond its schema; ``objects`` are paths, such as ``status``, that default to ``{}``."""

    def __init__(self, *objects: str) -> None:
        self._objects = [path.split(".") for path in objects]

    def default(self, obj: Obj) -> None:
        """Set the defaults, in place."""
        for path in self._objects:
            parent = obj
            for step in path:
                parent = child(parent, step)

    def on_create(self, obj: Obj) -> None:
        """Set the initial fields of a new object, in place."""

    def on_update(self, change: ObjectChange) -> None:
        """Restore or clear the fields that a write may not change, in place."""

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Return the causes for which the new object is invalid."""
        _ = change
        return []

    def warnings(self, new: Obj) -> list[str]:
        """Return what about a valid object its writer is warned of."""
        _ = new
        return []

    def allocate(self, new: Obj) -> None:
        """Allocate addresses and ports just before the object is stored; may raise ``ApiFailure``."""


class Conversion(NamedTuple):
    """The conversion of a kind between its storage version and another served version."""

    to_storage: Callable[[Obj], Obj]
    from_storage: Callable[[Obj], Obj]


@dataclass(slots=True, eq=False)
class Kind:
    """One served kind at one version."""

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

    def from_storage(self, obj: Obj) -> Obj:
        """Return a stored object converted to this version."""
        return self.conversion.from_storage(obj) if self.conversion is not None else obj

    def to_storage(self, obj: Obj) -> Obj:
        """Return an object of this version converted to the storage version."""
        return self.conversion.to_storage(obj) if self.conversion is not None else obj

    @property
    def api_version(self) -> str:
        """Return ``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def prefix(self) -> str:
        """Return the URL path of the group version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
