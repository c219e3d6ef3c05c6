"""Whole numbers in foreign text: what ``int`` would reject is read as absent, without an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.in_words import whole_number


@pytest.mark.parametrize(
    "text", ["", " ", "-1", "+1", "1.0", "1e3", "²", "٣", "1 ", "0x1", "9" * 19, "9" * 5_000, "1\n", "one"]
)
def test_values_that_are_not_whole_numbers(text: str) -> None:
    assert whole_number(text) is None


def test_numbers_within_their_bounds() -> None:
    assert [whole_number(text) for text in ("0", "7", "007", "9" * 18)] == [0, 7, 7, 10**18 - 1]
    assert [whole_number(text, least=1, most=10) for text in ("0", "1", "10", "11")] == [None, 1, 10, None]


@given(st.integers(min_value=0, max_value=10**18 - 1))
def test_every_number_is_read_as_it_is_written(number: int) -> None:
    assert whole_number(str(number)) == number


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    number = whole_number(text)
    assert number is None or str(number) == (text.lstrip("0") or "0")
