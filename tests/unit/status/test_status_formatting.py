"""Reasons with their meaning, columns, counts and ages."""

from __future__ import annotations

import pytest

from fairlead.model.change import Reason
from fairlead.model.in_words import counted
from fairlead.status.formatting import REASONS, age_text, columns, reason_text


def test_every_reason_has_a_meaning() -> None:
    assert set(REASONS) == set(Reason)
    assert reason_text("Drained") == "Drained: the drain time is over"
    assert reason_text("SomebodyElses") == "SomebodyElses"


def test_columns_are_aligned_and_numbers_have_nouns() -> None:
    assert columns([("a", "bb", "c"), ("aaa", "b", "long last one")]) == ["  a    bb  c", "  aaa  b   long last one"]
    assert columns([]) == []
    assert [counted(number, "load balancer") for number in (0, 1, 2)] == [
        "0 load balancers",
        "1 load balancer",
        "2 load balancers",
    ]
    assert counted(2, "entry") == "2 entries"


@pytest.mark.parametrize(
    ("age_s", "text"), [(None, "never"), (0.4, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200_000, "2d")]
)
def test_ages_read_as_with_kubectl(age_s: float | None, text: str) -> None:
    assert age_text(age_s) == text
