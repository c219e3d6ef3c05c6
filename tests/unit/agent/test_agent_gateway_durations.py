"""Durations of Gateway API."""

from __future__ import annotations

import pytest

from fairlead.agent.l7.gateway.durations import duration_ms


@pytest.mark.req("G-76")
@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("0s", 0), ("500ms", 500), ("1s", 1000), ("1h30m500ms", 5_400_500), ("2m", 120_000), ("1s1s", 2000)],
)
def test_milliseconds(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "1", "1.5s", "-1s", "1d", "1 s", "100000s", "1s1s1s1s1s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration: write numbers"):
        duration_ms(text)
