"""Formats of texts."""

import pytest

from podless.schema.formats import matches_format


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("ipv4", "10.0.0.1", "::1"),
        ("ipv6", "::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("date-time", "2026-01-02T03:04:05Z", "2026-01-02"),
        ("duration", "1h30m", "soon"),
        ("uri", "https://example.com", "example"),
        ("hostname", "a.example.com", "-a"),
        ("byte", "Yg==", "b"),
        ("unheard-of", "anything", ""),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    assert matches_format(good, name)
    assert matches_format(bad, name) is (name == "unheard-of")
