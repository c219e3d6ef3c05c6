"""Do patches and field sets follow their specifications?"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.apiserver.failure import ApiFailure
from fairlead.apiserver.objects import clone
from fairlead.apiserver.patch.apply import merge, server_side_apply
from fairlead.apiserver.patch.fields import applied_fields, compare, from_tree, shown, to_tree
from fairlead.apiserver.patch.json_patch import json_patch
from fairlead.apiserver.patch.managers import FieldWriter, track_update
from fairlead.apiserver.patch.merge_patch import merge_patch
from fairlead.apiserver.patch.strategic import strategic_merge
from fairlead.apiserver.schema.node import Compiler, SchemaNode

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


@pytest.mark.parametrize(
    ("document", "operations", "result"),
    [
        ({"a": [1, 2]}, [{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        (
            {"a/b": 1, "m~n": 2},
            [{"op": "remove", "path": "/a~1b"}, {"op": "test", "path": "/m~0n", "value": 2}],
            {"m~n": 2},
        ),
        ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
        ({"a": 1}, [{"op": "test", "path": "/b", "value": None}], {"a": 1}),
    ],
)
def test_json_patch(document: Any, operations: list[Any], result: Any) -> None:
    assert json_patch(document, operations) == result


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ({}, 400),
        ([1], 400),
        ([{"op": "fly", "path": "/a"}], 400),
        ([{"op": "add", "path": "/a"}], 400),
        ([{"op": "remove", "path": "a"}], 400),
        ([{"op": "remove", "path": "/none"}], 422),
        ([{"op": "replace", "path": "/none", "value": 1}], 422),
        ([{"op": "add", "path": "/l/7", "value": 1}], 422),
        ([{"op": "add", "path": "/l/x", "value": 1}], 422),
        ([{"op": "add", "path": "/t/x", "value": 1}], 422),
        ([{"op": "test", "path": "/t", "value": "other"}], 422),
        ([{"op": "test", "path": "/l/0", "value": True}], 422),
        ([{"op": "move", "path": "/l"}], 400),
        ([{"op": "remove", "path": ""}], 422),
    ],
)
def test_json_patch_refusals(operations: Any, code: int) -> None:
    with pytest.raises(ApiFailure) as refused:
        json_patch({"l": [1], "t": "x"}, operations)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "operation", [{"op": "test", "value": "guess"}, {"op": "replace", "value": 1}, {"op": "remove"}]
)
@pytest.mark.parametrize("path", ["/data/password", "/data/none/below", "/list/7", "/list/x"])
def test_a_refusal_never_quotes_the_document(operation: Any, path: str) -> None:
    document = {"data": {"password": {"hidden": "s3cret"}, "other": "s3cret"}, "list": ["s3cret"]}
    with pytest.raises(ApiFailure) as refused:
        json_patch(document, [operation | {"path": path}, {"op": "test", "path": "/data", "value": 0}])
    assert "s3cret" not in refused.value.message


def test_merge_patch_removes_nested_nulls_even_where_nothing_was() -> None:
    assert merge_patch({"a": {"b": 1}}, {"a": {"b": None, "c": {"d": None, "e": 1}}}) == {"a": {"c": {"e": 1}}}


@given(VALUES, VALUES)
def test_merge_patch_is_idempotent(document: Any, patch: Any) -> None:
    once = merge_patch(clone(document), clone(patch))
    assert merge_patch(clone(once), clone(patch)) == once


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        ({"map": [{"k": "b", "v": 9}]}, {"map": [{"k": "a", "v": 1}, {"k": "b", "v": 9}], "set": ["x"]}),
        ({"map": [{"k": "a", "$patch": "delete"}]}, {"map": [{"k": "b", "v": 2}], "set": ["x"]}),
        ({"map": [{"$patch": "replace"}, {"k": "c"}]}, {"map": [{"k": "c"}], "set": ["x"]}),
        ({"set": ["y", "x"]}, {"map": [{"k": "a", "v": 1}, {"k": "b", "v": 2}], "set": ["x", "y"]}),
        ({"$deleteFromPrimitiveList/set": ["x"]}, {"map": [{"k": "a", "v": 1}, {"k": "b", "v": 2}], "set": []}),
        (
            {"$setElementOrder/map": [{"k": "b"}, {"k": "a"}]},
            {"map": [{"k": "b", "v": 2}, {"k": "a", "v": 1}], "set": ["x"]},
        ),
        ({"$retainKeys": ["set"], "set": ["x"]}, {"set": ["x"]}),
        ({"$patch": "replace", "set": ["z"]}, {"set": ["z"]}),
        ({"map": None}, {"set": ["x"]}),
    ],
)
def test_strategic_merge(patch: Any, result: Any) -> None:
    current = {"map": [{"k": "a", "v": 1}, {"k": "b", "v": 2}], "set": ["x"]}
    assert strategic_merge(current, patch, LISTS.properties["spec"]) == result


def test_a_list_item_needs_its_merge_key() -> None:
    with pytest.raises(ApiFailure, match="does not contain declared merge key: k"):
        strategic_merge({"map": [{"k": "a"}]}, {"map": [{"v": 1}]}, LISTS.properties["spec"])


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
    assert shown(("f:spec", "f:map", 'k:{"k":"a"}', "f:v")) == '.spec.map[k="a"].v'


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


def write(manager: str) -> FieldWriter:
    return FieldWriter(manager=manager, api_version="v1", subresource="", now=0.0, has_status=False, built_in=False)


def thing(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "T", "metadata": {"name": "t"}, "spec": spec}


def test_items_change_places_as_the_configuration_says() -> None:
    live = {"map": [{"k": "a"}, {"k": "other"}, {"k": "b"}]}
    merged = merge(live, {"map": [{"k": "b"}, {"k": "a"}, {"k": "new"}]}, LISTS.properties["spec"])
    assert [item["k"] for item in merged["map"]] == ["b", "other", "a", "new"]


def test_giving_up_an_item_keeps_what_another_owns() -> None:
    obj = server_side_apply(None, thing(map=[{"k": "a", "v": 1}]), LISTS, write("one"), force=False)
    obj = server_side_apply(obj, thing(map=[{"k": "a"}]), LISTS, write("two"), force=False)
    obj = server_side_apply(obj, thing(), LISTS, write("one"), force=False)
    assert obj["spec"]["map"] == [{"k": "a"}]
    obj = server_side_apply(obj, thing(), LISTS, write("two"), force=False)
    assert "map" not in obj.get("spec", {})


def test_an_object_without_managers_belongs_to_before_first_apply() -> None:
    with pytest.raises(ApiFailure, match="before-first-apply"):
        server_side_apply(thing(atomic=[1]), thing(atomic=[2]), LISTS, write("one"), force=False)


@given(
    st.lists(
        st.tuples(st.sampled_from(["m1", "m2"]), st.dictionaries(st.sampled_from("abc"), st.integers(0, 2))), max_size=6
    )
)
def test_forced_applies_end_with_what_the_last_ones_state(steps: list[tuple[str, dict[str, int]]]) -> None:
    obj: Any = None
    last: dict[str, dict[str, int]] = {}
    for manager, whole in steps:
        config = thing(map=[{"k": key, "v": value} for key, value in whole.items()])
        obj = server_side_apply(obj, config, LISTS, write(manager), force=True)
        last[manager] = whole
    have = {item["k"] for item in (obj or thing()).get("spec", {}).get("map", [])}
    assert have == {key for whole in last.values() for key in whole}


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)),
)
def test_tracking_an_update_twice_changes_nothing(first: dict[str, int], second: dict[str, int]) -> None:
    old = thing(map=[{"k": key, "v": value} for key, value in first.items()])
    track_update(None, old, LISTS, write("one"))
    new = thing(map=[{"k": key, "v": value} for key, value in second.items()])
    new["metadata"]["managedFields"] = clone(old["metadata"].get("managedFields"))
    track_update(old, new, LISTS, write("two"))
    again = clone(new)
    track_update(new, again, LISTS, write("two"))
    assert again == new
