"""The JSONPath of printer columns."""

from typing import Any

import pytest

from podless.kinds.columns import find_values, parse_path


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (".a.b", [1]),
        ("{.a.b}", [1]),
        (".a['c.d']", [2]),
        (r".a.c\.d", [2]),
        (".l[0].n", ["x"]),
        (".l[-1].n", ["y"]),
        (".l[*].n", ["x", "y"]),
        ('.l[?(@.n=="y")].v', [2]),
        ('.l[?(@.n!="y")].v', [1]),
        (".l[?(@.v)].n", ["x", "y"]),
        (".none.at.all", []),
        (".l[7]", []),
    ],
)
def test_json_paths(path: str, values: list[Any]) -> None:
    obj = {"a": {"b": 1, "c.d": 2}, "l": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]}
    assert find_values(parse_path(path), obj) == values


def test_a_json_path_beyond_the_subset() -> None:
    with pytest.raises(ValueError, match="is not a JSON path"):
        parse_path("..a")
