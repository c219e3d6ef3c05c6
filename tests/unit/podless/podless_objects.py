"""What the tests of the embedded API share: schemas, objects and events."""

from typing import Any

from hypothesis import strategies as st

from podless.failure import Cause
from podless.patch.managers import FieldWriter
from podless.schema.node import Compiler, SchemaNode
from podless.schema.validate import validate
from podless.store.entry import WatchEvent, entry_of


def event(rv: int, type_: str = "ADDED", **labels: str) -> WatchEvent:
    obj = {"kind": "X", "apiVersion": "v1", "metadata": {"name": f"n{rv}", "namespace": "ns", "labels": labels}}
    return WatchEvent(rv, type_, entry_of(obj, rv), None)


def node(**schema: Any) -> SchemaNode:
    return Compiler().compile(schema)


def causes(value: Any, schema: SchemaNode) -> list[str]:
    violations: list[Cause] = []
    validate(value, schema, "x", violations)
    return [str(cause) for cause in violations]


LISTS = Compiler().compile(
    {
        "type": "object",
        "properties": {
            "metadata": {"type": "object", "additionalProperties": {}},
            "spec": {
                "type": "object",
                "properties": {
                    "map": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["k"],
                        "x-kubernetes-patch-merge-key": "k",
                        "x-kubernetes-patch-strategy": "merge",
                        "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}},
                    },
                    "set": {
                        "type": "array",
                        "x-kubernetes-list-type": "set",
                        "x-kubernetes-patch-strategy": "merge",
                        "items": {"type": "string"},
                    },
                    "atomic": {"type": "array", "items": {"type": "integer"}},
                    "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {}},
                },
            },
        },
    }
)


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("abc~/", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc~/", max_size=2), inner, max_size=3),
    max_leaves=8,
)


def write(manager: str) -> FieldWriter:
    return FieldWriter(manager=manager, api_version="v1", subresource="", now=0.0, has_status=False, built_in=False)


def thing(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "T", "metadata": {"name": "t"}, "spec": spec}
