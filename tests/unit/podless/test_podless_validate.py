"""Validation against a schema."""

import struct
from typing import Any

import pytest
from podless_objects import causes, node


def message(number: int, value: bytes) -> bytes:
    return struct.pack("BB", number << 3 | 2, len(value)) + value


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("integer", [0, 2.0], [1.5, True, "1", None]),
        ("number", [0, 1.5], [True, "1"]),
        ("string", ["", "x"], [1, [], {}]),
        ("boolean", [True], [0, "true"]),
        ("array", [[]], [{}]),
        ("object", [{}], [[]]),
    ],
)
def test_types(kind: str, good: list[Any], bad: list[Any]) -> None:
    assert [causes(value, node(type=kind)) for value in good] == [[]] * len(good)
    assert all("must be of type " + kind in causes(value, node(type=kind))[0] for value in bad)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"enum": [1], "x-kubernetes-preserve-unknown-fields": True}, True, "Unsupported value"),
        ({"type": "integer"}, 2**63, "must be of type integer with 64 bits"),
        ({"type": "integer", "format": "int32"}, -(2**31) - 1, "must be of type integer with 32 bits"),
        ({"type": "integer", "maximum": 3}, 4, "should be less than or equal to 3"),
        ({"type": "integer", "maximum": 3, "exclusiveMaximum": True}, 3, "should be less than 3"),
        ({"type": "integer", "multipleOf": 2}, 3, "should be a multiple of 2"),
        ({"type": "string", "minLength": 2}, "a", "should be at least 2 chars long"),
        ({"type": "array", "minItems": 1, "items": {}}, [], "should have at least 1 items"),
        ({"type": "object", "minProperties": 1}, {}, "should have at least 1 properties"),
        ({"type": "integer", "anyOf": [{"maximum": 1}, {"minimum": 5}]}, 3, "(anyOf)"),
        ({"type": "integer", "oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, "(oneOf)"),
        ({"type": "integer", "not": {"minimum": 1}}, 3, "(not)"),
        ({"type": "integer", "allOf": [{"minimum": 5}]}, 3, "greater than or equal to 5"),
    ],
)
def test_limits(schema: dict[str, Any], value: Any, message: str) -> None:
    assert message in causes(value, node(**schema))[0]


@pytest.mark.req("S-11")
@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^[a-z]+$", "ab", ["ab\n", "ab\nc", "\nab"]),
        (r"^a\$$", "a$", ["a$\n", "a"]),
        ("^[$]a$", "$a", ["$a\n", "a"]),
        ("^([]$]|a$|b)", "a", ["a\n"]),
    ],
)
def test_the_end_of_a_pattern_is_the_end_of_the_text(pattern: str, good: str, bad: list[str]) -> None:
    schema = node(type="string", pattern=pattern)
    assert causes(good, schema) == []
    assert all(causes(value, schema) for value in bad)
