"""What the conditions of all intents have in common."""

from __future__ import annotations

import pytest

from fairlead.translate.view import first_three


@pytest.mark.parametrize(
    ("items", "text"), [({"a"}, "a"), ({"c", "a", "b"}, "a, b, c"), ({"d", "c", "a", "b"}, "a, b, c and more")]
)
def test_three_are_named_and_the_others_mentioned(items, text):
    assert first_three(items) == text
