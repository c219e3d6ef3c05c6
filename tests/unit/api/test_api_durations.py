"""Durations of Gateway API."""

from __future__ import annotations

import pytest

from fairlead.api.times import duration_ms, gateway_duration


@pytest.mark.req("G-76")
@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("0s", 0), ("500ms", 500), ("1s", 1000), ("1h30m500ms", 5_400_500), ("2m", 120_000), ("1s1s", 2000)],
)
def test_milliseconds(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "1", "1.5s", "-1s", "1d", "1 s", "100000s", "1s1s1s1s1s"])
def test_invalid_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write numbers"):
        duration_ms(text)


@pytest.mark.req("L7-5", "EDGE-07")
@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0s"),
        (500, "500ms"),
        (120_000, "2m"),
        (172_800_000, "48h"),
        (5_400_500, "1h30m500ms"),
        (99_999, "1m39s999ms"),
    ],
)
def test_durations_of_gateway_api_are_written(milliseconds: int, text: str) -> None:
    assert gateway_duration(milliseconds) == text
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("milliseconds", [-1, 100_000 * 3_600_000])
def test_a_duration_that_gateway_api_cannot_hold(milliseconds: int) -> None:
    with pytest.raises(ValueError, match="hours"):
        gateway_duration(milliseconds)
