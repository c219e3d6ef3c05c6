"""Whether an expression matches, as RE2 decides it, and in a time that does not depend on how it was written."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import pytest

from fairlead.providers.envoy.http.route_match import invalid_regex, matches_whole

CATASTROPHIC = (r"(a+)+b", r"(a|a)*b", r"(a|aa)+b", r"(.*a){12}b", r"((a*)*)*b", r"^(\w+\s?)*$!")


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_an_expression_that_makes_python_backtrack_is_decided_at_once(pattern: str) -> None:
    program = f"from {matches_whole.__module__} import matches_whole; print(matches_whole({pattern!r}, 'a' * 2000))"
    # Python's own re takes longer than the age of the universe.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"\Qa.b\E+", "a.bb", "axb"),
        ("(?i)/Api|/v[0-9]", "/aPI", "/w1"),
        ("(?i)/Api|/v[0-9]", "/V1", "/Vx"),
        ("a(?i)b|c", "aB", "Ab"),
        ("a(?i)b|c", "C", "ac"),
        ("(a(?i)b)c", "aBc", "aBC"),
        ("(?i:[^a])x", "bx", "Ax"),
        ("(?i)[^a]x", "BX", "Ax"),
        ("(?i-s:A)b", "ab", "aB"),
        ("(?U)a+(?i-U)b", "aaB", "A"),
        ("(?s).", "\n", "ab"),
        (".", "x", "\n"),
        ("é", "é", "e"),
        ("..", "é", "e"),
        (r"[[:alpha:]]+\d{2,3}", "ab123", "ab1234"),
        (r"\bab\b", "ab", "abc"),
        (r"a\b.*", "a c", "ab"),
        (r"(?m)a$\n^b", "a\nb", "ab"),
        (r"^a$\n?", "a", "a\n"),
        (r"\Aa\z", "a", "b"),
        (r"(|a){2}b?", "ab", "aaab"),
        (r"[](?i)|[]+", "(|", "x"),
        ("a{,3}", "a{,3}", "aaa"),
        ("x*?y+?", "xyy", "xx"),
        ("", "", "x"),
    ],
)
def test_the_lookup_decides_like_envoy(pattern: str, matching: str, other: str) -> None:
    assert not invalid_regex(pattern)
    assert matches_whole(pattern, matching)
    assert not matches_whole(pattern, other)


def test_what_both_understand_python_decides_in_the_same_way() -> None:
    chance = random.Random(7)
    pieces = ("a", "b", "ab", ".", "[ab]", "[^a]", "(a|b)", "(?:ab|c)", "(a*)", "\\w", "\\b", "^", "$", "|", "\\.")
    decided = set[bool]()
    for _ in range(3000):
        parts = [chance.choice(pieces) for _ in range(chance.randint(1, 6))]
        pattern = "".join(
            part + (chance.choice(("", "", "*", "+", "?", "{2}", "{1,2}")) if part not in "|^$\\b" else "")
            for part in parts
        )
        text = "".join(chance.choice("aabbc.") for _ in range(chance.randint(0, 6)))
        expected = re.fullmatch(pattern, text) is not None
        assert matches_whole(pattern, text) == expected, (pattern, text)
        decided.add(expected)
    assert decided == {True, False}
