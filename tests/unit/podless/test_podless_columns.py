"""Ages as kubectl prints them."""

import pytest

from podless.kinds.columns import human_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600 + 60, "8h"),
        (2 * 86400, "2d"),
        (2 * 86400 + 3600, "2d1h"),
        (8 * 86400 + 3600, "8d"),
        (3 * 365 * 86400, "3y"),
        (3 * 365 * 86400 + 86400, "3y1d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text
