"""What only RE2 has means the same to Python, byte by byte."""

from __future__ import annotations

import re

import pytest

from fairlead.providers.envoy.http.re2_syntax import as_python


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"\Qa.b\E+", "a.bb", "axb"),
        (r"\pL\PL", "x1", "xx"),
        (r"\p{^Lu}", "a", "A"),
        (r"[\pN-z]", "-", "y"),
        (r"[^[:digit:]x]", "a", "5"),
        (r"[[:^alpha:]]", "5", "a"),
        (r"\x{41}\z", "A", "B"),
        (r"(?U)a(?<n>b)(?i-s:c)", "abc", "ab"),
        ("a{,3}", "a{,3}", "aaa"),
        ("[](?i)[]", "(", "x"),
        (r"\C", "\xff", "ab"),
        ("é", "\xc3\xa9", "é"),
        (r"\p{Any}", "x", ""),
        (r"\P{Any}|y", "y", "x"),
    ],
)
def test_a_pattern_matches_as_in_re2(pattern: str, matching: str, other: str) -> None:
    read = re.compile(as_python(pattern))
    assert read.fullmatch(matching)
    assert not read.fullmatch(other)


@pytest.mark.parametrize("pattern", [r"\pX", r"\p{Xy}", "[[:no:]]", r"\x{100}", r"[\Qa\E]", "(?i)*"])
def test_what_re2_has_not_is_said(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"RE2 has no|matches bytes|nothing to repeat"):
        as_python(pattern)
