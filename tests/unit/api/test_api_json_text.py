"""JSON in annotations: whatever stands there, reading it is no error."""

from __future__ import annotations

import pytest

from fairlead.api.json_text import read_json


def test_what_can_be_read() -> None:
    assert read_json('{"a": ["192.0.2.7"]}', dict[str, tuple[str, ...]]) == {"a": ("192.0.2.7",)}


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", '{"a": 1}', '{"a": ' * 100_000, "[" * 100_000, '{"a": [' * 50_000],
    ids=["empty", "cut", "null", "a list", "another type", "deep objects", "deep lists", "both"],
)
def test_what_cannot_is_nothing(text: str) -> None:
    assert read_json(text, dict[str, tuple[str, ...]]) is None
