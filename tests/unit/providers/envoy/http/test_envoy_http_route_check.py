"""Each thing for which Envoy would refuse all routes of a port is found in its route, with a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.http import (
    BackendRef,
    Cors,
    Filters,
    HeaderModifier,
    HeaderValue,
    Mirror,
    PathMatch,
    PathModifier,
    Redirect,
    RequestMatch,
    Rewrite,
    Route,
    Rule,
    SessionPersistence,
    ValueMatch,
)
from fairlead.providers.envoy.http.regex import invalid_regex
from fairlead.providers.envoy.http.route_check import invalid_route


def path(kind: str, value: str) -> RequestMatch:
    return RequestMatch(path=PathMatch(kind, value))  # type: ignore[arg-type]


def set_header(name: str, value: str = "x") -> HeaderModifier:
    return HeaderModifier(set=(HeaderValue(name, value),))


PREFIX_REWRITE = Rewrite(path=PathModifier("ReplacePrefixMatch", "/x"))

BAD: list[tuple[Rule, str]] = [
    (Rule(matches=(path("RegularExpression", "/a(?=b)"),)), "lookahead"),
    (Rule(matches=(path("RegularExpression", "/("),)), "path: the regular expression"),
    (Rule(matches=(path("Exact", "a"),)), "does not begin with a slash"),
    (Rule(matches=(path("PathPrefix", "/a?b"),)), "match query parameters"),
    (Rule(matches=(path("Exact", "/a\n"),)), "control character"),
    (Rule(matches=(RequestMatch(headers=(ValueMatch("a b", "x"),)),)), "no name of a header"),
    (Rule(matches=(RequestMatch(headers=(ValueMatch("a", r"(a)\1", "RegularExpression"),)),)), "backreference"),
    (Rule(matches=(RequestMatch(query_params=(ValueMatch("q", "[", "RegularExpression"),)),)), "query parameter q"),
    (Rule(filters=Filters(request_headers=set_header("Host"))), "use a rewrite of the hostname"),
    (Rule(filters=Filters(response_headers=set_header(":status"))), "no name of a header"),
    (Rule(filters=Filters(request_headers=set_header("a", "b\r\nc: d"))), "control character"),
    (Rule(filters=Filters(redirect=Redirect(), rewrite=Rewrite())), "exclude each other"),
    (Rule(matches=(path("Exact", "/a"),), filters=Filters(rewrite=PREFIX_REWRITE)), "use ReplaceFullPath"),
    (Rule(filters=Filters(cors=Cors(allow_origins=("a\x00",)))), "CORS"),
    (Rule(backends=(BackendRef("b", filters=Filters(redirect=Redirect())),)), "belongs to the rule"),
    (Rule(backends=(BackendRef("b", filters=Filters(rewrite=PREFIX_REWRITE)),)), "rewrite of the path"),
    (Rule(backends=(BackendRef("b", filters=Filters(mirrors=(Mirror("c"),))), BackendRef("d"))), "one of several"),
    (Rule(session=SessionPersistence(name="a b")), "session persistence"),
]


@pytest.mark.req("G-54")
@pytest.mark.parametrize(("rule", "expected"), BAD)
def test_what_envoy_would_refuse_is_said_with_its_rule(rule: Rule, expected: str) -> None:
    problems = invalid_route(Route("r", "HTTP", (), (Rule(), rule)))
    assert len(problems) == 1
    assert problems[0].startswith("rule 2: ")
    assert expected in problems[0]


GOOD = [
    Rule(),
    Rule(matches=(path("PathPrefix", "/"), path("PathPrefix", "/a/")), filters=Filters(rewrite=PREFIX_REWRITE)),
    Rule(matches=(path("RegularExpression", "/[a-z]+(/x)?"),)),
    Rule(backends=(BackendRef("b", filters=Filters(mirrors=(Mirror("c"),))),)),
    Rule(filters=Filters(response_headers=set_header("a", "100 %"), redirect=Redirect())),
]


@pytest.mark.parametrize("rule", GOOD)
def test_what_envoy_takes_is_no_problem(rule: Rule) -> None:
    assert invalid_route(Route("r", "HTTP", (), (rule,))) == []


#: What RE2 writes out to more than Envoy takes, and what RE2 has not: each with a part of the sentence.
REFUSED = {
    "(?<=a)b": "lookbehind", "(?!a)b": "lookahead", r"(a)\1": "backreference", "(?(1)a|b)": "", "(?>a)b": "atomic",
    "a++": "possessive", "a{1001}": "1001 times", "(a{100}){20}": "2000 times", "(": "", "[z-a]": "", "*a": "",
    r"a\Z": r"\Z", r"\u0041": r"\u", "(?#x)a": "(?#", "x" * 1025: "1024 characters",
    # Only RE2 has these.
    r"(\pL{1000}){1000}": "1000000 times", r"\pL{2000}": "2000 times", r"(?i)x|\p{Lu}{1001}": "1001 times",
    r"\pL{2}": "instructions", r"[\pL\pN_-]{50}": "instructions", r"[^\pL]{3}": "instructions",
    r"/(?<id>\pL{3})": "instructions", r"[^/]{300}": "instructions", r"\D{300}": "instructions",
    r"(\w{300}){3}": "instructions", "(?:a{500}|[0-9]{600}){4}": "2000 times", r"\x{1F600}{600}": "instructions",
    r"\Qab\E{1001}": "1001 times", r"a(?i)b{1001}": "1001 times", r"[[:alpha:]]{1001}": "1001 times",
    r"\pX": r"no class \pX", r"\p{Xx}": "no class", r"\p": "no class", "[[:letter:]]": "no class [:letter:]",
    r"\x{110000}": "no character", r"[\Qa\E]": r"\Q inside of a class", r"a\E": "", "a(?s)+": "nothing to repeat",
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
        r"[\pL-z\d-_[:alpha:]-]", "[]a]{3}", "[[a]", "[^]a]", "a(?i-s:b)(?U)c", "(?<x>a)", r"\x{1F600}", r"\C\z",
        "a{,3000}", r"\Q{2000}\Z", r"\p{Greek}{20}", r"\p{^Lu}", "\U000f0fff{400}", "[(?i)[:^space:]]", r"[^/]{1,36}",
        r"(?i)\p{Lu}{5}",
    ],
)  # fmt: skip
def test_patterns_that_re2_takes(pattern: str) -> None:
    assert invalid_regex(pattern) == ""


@given(st.text(max_size=40) | st.from_regex(r"[()\[\]{}\\pQEx^:?*+|,a-c0-9]{0,30}"))
def test_whatever_is_written_there_is_an_answer(pattern: str) -> None:
    assert isinstance(invalid_regex(pattern), str)
