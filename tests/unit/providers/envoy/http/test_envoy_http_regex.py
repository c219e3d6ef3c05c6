"""What Envoy would not compile of a regular expression is known before, with a sentence that says why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.providers.envoy.http.route_match import invalid_expression, invalid_regex

#: What RE2 writes out to more than Envoy takes, and what RE2 has not: each with a part of the sentence.
REFUSED = {
    "(?<=a)b": "perl operator: (?<", "(?!a)b": "perl operator: (?!", r"(a)\1": r"escape sequence: \\1",
    "(?(1)a|b)": "(?(", "(?>a)b": "(?>", "a++": "repetition operator: ++", "a{1001}": "repetition size: {1001}",
    "(a{100}){20}": "repetition size", "(": "missing )", "[z-a]": "range: z-a", "*a": "no argument", r"a\Z": r"\\Z",
    r"\u0041": r"\\u", "(?#x)a": "(?#", "x" * 1025: "1024 characters", "é(": "missing ): é(",
    r"(\pL{1000}){1000}": "repetition size", r"\pL{2000}": "repetition size", r"x|\p{Lu}{1001}": "repetition size",
    r"\pL{300}": "2104 instructions", r"[\pL\pN_-]{250}": "instructions", r"[^\pL]{300}": "instructions",
    r"/(?<id>\pL{300})": "instructions", "[^/]{1000}": "instructions", r"\D{1000}": "instructions",
    r"(\w{300}){3}": "instructions", "(?:[a-z]{500}|[^0-9]{500}){2}": "instructions", "(?:😀{999}){1}😀{999}": "instr",
    r"\pN{1000}" * 100: "8 Unicode classes", r"\pL" * 9: "8 Unicode classes",
    r"\pX": r"range: \\pX", r"\p": "range", "[[:letter:]]": "range: [:letter:]",
    r"\x{100}": r"sequence: \\x{100", r"[\Qa\E]": r"sequence: \\Q", r"a\E": r"sequence: \\E",
    # RE2 takes these, in up to 22 ms for each class.
    r"(?i)\pL": "with (?i)", r"\PL|(?m-s:x)(?si:[\p{Any}])": "with (?i)", r"(?i)" + r"\p{Any}" * 140: "with (?i)",
}  # fmt: skip


@pytest.mark.parametrize("pattern", REFUSED)
def test_patterns_that_envoy_does_not_take(pattern: str) -> None:
    problem = invalid_regex(pattern)
    assert problem
    assert REFUSED[pattern] in problem


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a|b", r"\d+\.\w*?", "(?i)a", "(?P<x>a)", r"\pL+", r"\Qa.b\E", "(a+)+$", "a{1000}", r"\pL\PN?",
        r"[\pL-z\d-_[:alpha:]-]", "a(?s)+", "[]a]{3}", "[[a]", "[^]a]", "a(?i-s:b)(?U)c", "(?<x>a)", r"\x{e9}", r"\C\z",
        "é{1000}", "[é-ü]", r"\p{Greek}{200}", r"[\p{Lm}]",
        "a{,3000}", r"\Q{2000}\Z", r"\p{^Lu}", "\U000f0fff{400}", r"\pL{3}", "[(?i)[:^space:]]", r"[^/]{1,36}",
        r"(?i)[a-z]{5}", r"(?s)\p{Lu}{5}", r"[^\x00-\xff]", "[^/]{998}",
    ],
)  # fmt: skip
def test_patterns_that_re2_takes(pattern: str) -> None:
    assert invalid_regex(pattern) == ""


@given(st.text(max_size=40) | st.from_regex(r"[()\[\]{}\\pQEx^:?*+|,a-c0-9]{0,30}"))
def test_whatever_is_written_there_is_an_answer(pattern: str) -> None:
    assert isinstance(invalid_regex(pattern), str)


@pytest.mark.parametrize(
    ("pattern", "is_taken"),
    [("(?:a|%41){250}", True), ("a" * 1990, True), ("a" * 2000, False), ("(?:a|%41)" * 100_000, False)],
)
def test_an_expression_that_is_made_here_is_never_too_big_for_envoy(pattern: str, *, is_taken: bool) -> None:
    assert (invalid_expression(pattern) == "") is is_taken
