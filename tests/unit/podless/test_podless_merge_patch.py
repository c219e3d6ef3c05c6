"""JSON merge patch."""

from typing import Any

from hypothesis import given
from podless_objects import VALUES

from podless.objects import clone
from podless.patch.json_patch import merge_patch


def test_merge_patch_removes_nested_nulls_even_where_nothing_was() -> None:
    assert merge_patch({"a": {"b": 1}}, {"a": {"b": None, "c": {"d": None, "e": 1}}}) == {"a": {"c": {"e": 1}}}


@given(VALUES, VALUES)
def test_merge_patch_is_idempotent(document: Any, patch: Any) -> None:
    once = merge_patch(clone(document), clone(patch))
    assert merge_patch(clone(once), clone(patch)) == once
