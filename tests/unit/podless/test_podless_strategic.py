"""Strategic merge patch."""

from typing import Any

import pytest
from podless_objects import LISTS

from podless.failure import ApiFailure
from podless.patch.strategic import strategic_merge


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
