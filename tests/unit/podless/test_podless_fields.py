"""Field sets."""

from typing import Any

from hypothesis import given
from podless_objects import LISTS, VALUES

from podless.patch.fields import applied_fields, compare, from_tree, path_text, to_tree
from podless.schema.node import SchemaNode


def test_field_sets_are_written_as_kubernetes_does() -> None:
    value = {"spec": {"map": [{"k": "a", "v": 1}], "set": ["x"], "atomic": [1], "whole": {"a": 1}}}
    tree = to_tree(applied_fields(value, LISTS))
    assert tree == {
        "f:spec": {
            "f:map": {'k:{"k":"a"}': {".": {}, "f:k": {}, "f:v": {}}},
            "f:set": {'v:"x"': {}},
            "f:atomic": {},
            "f:whole": {},
        }
    }
    assert from_tree(tree) == applied_fields(value, LISTS)
    assert path_text(("f:spec", "f:map", 'k:{"k":"a"}', "f:v")) == '.spec.map[k="a"].v'


@given(VALUES, VALUES)
def test_compare_finds_a_difference_exactly_when_there_is_one(old: Any, new: Any) -> None:
    changed: set[Any] = set()
    removed: set[Any] = set()
    compare(old, new, SchemaNode(), (), changed, removed)
    assert bool(changed or removed) is (old != new)
    back_changed: set[Any] = set()
    back_removed: set[Any] = set()
    compare(new, old, SchemaNode(), (), back_changed, back_removed)
    assert bool(changed or removed) is bool(back_changed or back_removed)
