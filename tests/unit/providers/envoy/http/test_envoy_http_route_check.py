"""Each thing for which Envoy would refuse all routes of a port is found in its route, with a sentence."""

from __future__ import annotations

import pytest

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
from fairlead.providers.envoy.http.route_check import invalid_route


def path(kind: str, value: str) -> RequestMatch:
    return RequestMatch(path=PathMatch(kind, value))  # type: ignore[arg-type]


def set_header(name: str, value: str = "x") -> HeaderModifier:
    return HeaderModifier(set=(HeaderValue(name, value),))


PREFIX_REWRITE = Rewrite(path=PathModifier("ReplacePrefixMatch", "/x"))

BAD: list[tuple[Rule, str]] = [
    (Rule(matches=(path("RegularExpression", "/a(?=b)"),)), "invalid perl operator: (?="),
    (Rule(matches=(path("RegularExpression", "/("),)), "path: the regular expression"),
    (Rule(matches=(path("Exact", "a"),)), "does not begin with a slash"),
    (Rule(matches=(path("PathPrefix", "/a?b"),)), "match query parameters"),
    (Rule(matches=(path("Exact", "/a\n"),)), "control character"),
    (Rule(matches=(RequestMatch(headers=(ValueMatch("a b", "x"),)),)), "no name of a header"),
    (
        Rule(matches=(RequestMatch(headers=(ValueMatch("a", r"(a)\1", "RegularExpression"),)),)),
        r"invalid escape sequence: \\1",
    ),
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
    (Rule(backends=tuple(BackendRef(str(number), weight=10**6) for number in range(4295))), "add up to 4295000000"),
    (Rule(filters=Filters(request_headers=HeaderModifier(add=(HeaderValue("a"),) * 1001))), "1001 are set or added"),
    (Rule(matches=(RequestMatch(query_params=(ValueMatch("q", "é" * 500),)),)), "query parameter q: it is too long"),
    (Rule(filters=Filters(cors=Cors(allow_origins=("*" + "x" * 2000,)))), "it is too long"),
    (Rule(matches=(path("RegularExpression", ""),)), "the regular expression is empty"),
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
