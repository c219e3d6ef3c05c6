"""JSON patch."""

from typing import Any

import pytest

from podless.failure import ApiFailure
from podless.patch.json_patch import json_patch


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
        ({"a": 1}, [{"op": "replace", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
    ],
)
def test_json_patch(document: Any, operations: list[Any], result: Any) -> None:
    assert json_patch(document, operations) == result


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ({}, 400),
        ([1], 400),
        ([{"op": "fly", "path": "/a"}], 422),
        ([{"op": "add", "path": "/a"}], 422),
        ([{"op": "remove", "path": "a"}], 422),
        ([{"op": "remove", "path": "/none"}], 422),
        ([{"op": "replace", "path": "/l/1", "value": 1}], 422),
        ([{"op": "add", "path": "/l/7", "value": 1}], 422),
        ([{"op": "add", "path": "/l/x", "value": 1}], 422),
        ([{"op": "add", "path": "/t/x", "value": 1}], 422),
        ([{"op": "test", "path": "/t", "value": "other"}], 422),
        ([{"op": "test", "path": "/l/0", "value": True}], 422),
        ([{"op": "move", "path": "/l"}], 422),
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
