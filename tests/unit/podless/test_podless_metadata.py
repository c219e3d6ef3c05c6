"""The metadata that a write starts with, keeps and must match."""

from typing import Any

import pytest
from podless_objects import event

from podless.failure import ApiFailure
from podless.kinds.kind import Kind
from podless.objects import clone
from podless.registry.metadata import check_preconditions, count_generation, keep_unwritable, start_metadata
from podless.schema.node import SchemaNode


def kind(*, generation: bool = False) -> Kind:
    return Kind("example.com", "v1", "things", "Thing", SchemaNode(), has_status=True, generation=generation)


@pytest.mark.parametrize("generation", [True, False])
def test_a_new_object_starts_with_an_identity_of_its_own(generation: bool) -> None:
    about: dict[str, Any] = {"name": "a", "uid": "sent", "generation": 7, "resourceVersion": "3", "selfLink": "/x"}
    start_metadata(kind(generation=generation), about, 0.0)
    assert about.pop("uid") != "sent"
    assert about == {"name": "a", "creationTimestamp": "1970-01-01T00:00:00Z"} | (
        {"generation": 1} if generation else {}
    )


@pytest.mark.parametrize(
    ("about", "refused"),
    [
        ({}, False),
        ({"resourceVersion": "0"}, False),
        ({"resourceVersion": "5"}, False),
        ({"resourceVersion": "4"}, True),
        ({"uid": "other"}, True),
    ],
)
def test_preconditions(about: dict[str, Any], refused: bool) -> None:
    entry = event(5).entry
    if not refused:
        check_preconditions(kind(), entry, about)
        return
    with pytest.raises(ApiFailure) as failure:
        check_preconditions(kind(), entry, about)
    assert (failure.value.code, failure.value.reason) == (409, "Conflict")


OLD = {"metadata": {"uid": "u", "resourceVersion": "5", "managedFields": [1]}, "spec": {"a": 1}, "status": {"b": 1}}


def test_a_write_keeps_identity_and_status() -> None:
    new = {"metadata": {"uid": "other", "deletionTimestamp": "now"}, "spec": {"a": 2}, "status": {"b": 2}}
    kept = keep_unwritable(kind(), new, clone(OLD), status_only=False)
    assert kept == OLD | {"spec": {"a": 2}}


@pytest.mark.parametrize("status", [{"status": {"b": 2}}, {}])
def test_a_write_of_the_status_keeps_all_else(status: dict[str, Any]) -> None:
    new = {"metadata": {"uid": "other", "labels": {}}, "spec": {"a": 2}} | status
    kept = keep_unwritable(kind(), new, clone(OLD), status_only=True)
    assert kept == {"metadata": OLD["metadata"], "spec": OLD["spec"]} | status


@pytest.mark.parametrize(("change", "counted"), [({"spec": {"a": 2}}, 2), ({"status": {}}, None), ({"extra": 1}, 2)])
def test_the_generation_counts_changes_outside_metadata_and_status(change: Any, counted: int | None) -> None:
    old = clone(OLD) | {"metadata": {"generation": 1}}
    new = clone(OLD) | {"metadata": {}} | change
    count_generation(new, old)
    assert new["metadata"].get("generation") == counted
