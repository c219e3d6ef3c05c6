"""Each thing for which Envoy would refuse all routes of a port is found in its route, with a sentence."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.model.http import (
    Attachment,
    BackendRef,
    Cors,
    ExternalAuth,
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
    RouteKind,
    Rule,
    SessionPersistence,
    ValueMatch,
)
from fairlead.model.observed import RefusedPart
from fairlead.providers.envoy.http.refused_routes import checked_route, refused_parts
from fairlead.providers.envoy.http.route_budget import ReducedRoute


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
    (Rule(matches=(RequestMatch(headers=(ValueMatch("a b", "x"),)),)), "not a valid name of a header"),
    (
        Rule(matches=(RequestMatch(headers=(ValueMatch("a", r"(a)\1", "RegularExpression"),)),)),
        r"invalid escape sequence: \\1",
    ),
    (Rule(matches=(RequestMatch(query_params=(ValueMatch("q", "[", "RegularExpression"),)),)), "query parameter q"),
    (Rule(filters=Filters(request_headers=set_header("Host"))), "use a rewrite of the hostname"),
    (Rule(filters=Filters(response_headers=set_header(":status"))), "not a valid name of a header"),
    (Rule(filters=Filters(request_headers=set_header("a", "b\r\nc: d"))), "control character"),
    (Rule(filters=Filters(redirect=Redirect(), rewrite=Rewrite())), "exclude each other"),
    (Rule(matches=(path("Exact", "/a"),), filters=Filters(rewrite=PREFIX_REWRITE)), "use ReplaceFullPath"),
    (Rule(filters=Filters(cors=Cors(allow_origins=("a\x00",)))), "CORS"),
    (Rule(backends=(BackendRef("b", filters=Filters(redirect=Redirect())),)), "belongs to the rule"),
    (Rule(backends=(BackendRef("b", filters=Filters(auth=ExternalAuth("a"))),)), "external auth belongs to the rule"),
    (Rule(backends=(BackendRef("b", filters=Filters(rewrite=PREFIX_REWRITE)),)), "rewrite of the path"),
    (Rule(backends=(BackendRef("b", filters=Filters(mirrors=(Mirror("c"),))), BackendRef("d"))), "one of several"),
    (Rule(session=SessionPersistence(name="a b")), "session persistence"),
    (Rule(backends=tuple(BackendRef(str(number), weight=10**6) for number in range(4295))), "add up to 4295000000"),
    (Rule(filters=Filters(request_headers=HeaderModifier(add=(HeaderValue("a"),) * 1001))), "1001 are set or added"),
    (Rule(matches=(RequestMatch(query_params=(ValueMatch("q", "é" * 500),)),)), "query parameter q: too long"),
    (Rule(filters=Filters(cors=Cors(allow_origins=("*" + "x" * 2000,)))), "too long"),
    (Rule(matches=(path("RegularExpression", ""),)), "the regular expression is empty"),
]


def checked(*rules: Rule) -> ReducedRoute:
    result = checked_route(Route("r", "HTTP", (), rules))
    assert isinstance(result, ReducedRoute)
    return result


@pytest.mark.req("G-54", "L7-1")
@pytest.mark.parametrize(("rule", "expected"), BAD)
def test_what_envoy_would_refuse_is_refused_with_its_rule(rule: Rule, expected: str) -> None:
    good = Rule(matches=(path("Exact", "/good"),), backends=(BackendRef("b"),))
    result = checked(good, rule)
    ((kind, name, reason),) = refused_parts(result)
    assert (kind, name) == ("rule", "r")
    assert reason.startswith("rule 2")
    assert expected in reason
    assert result.rules[0] == good
    assert all(rest is None or rest == Rule(matches=rest.matches) for rest in result.rules[1:])


@pytest.mark.req("L7-1")
def test_a_refused_rule_keeps_its_usable_matches_and_nothing_else() -> None:
    wrong, right = path("RegularExpression", "/("), path("PathPrefix", "/a")
    good = Rule(matches=(path("Exact", "/good"),), backends=(BackendRef("b"),))
    assert checked(Rule("named", (wrong, right), backends=(BackendRef("b"),)), good).rules == (
        Rule("named", (right,)),
        good,
    )
    assert checked(Rule("named", (wrong,), backends=(BackendRef("b"),)), good).rules == (None, good)


@pytest.mark.req("L7-1")
def test_a_route_without_a_usable_rule_is_refused_as_a_whole() -> None:
    rule = Rule(filters=Filters(request_headers=set_header("Host")), backends=(BackendRef("b"),))
    result = checked(rule, rule)
    (refused,) = refused_parts(result)
    assert (refused.kind, refused.name) == ("route", "r")
    assert result.rules == (Rule(), Rule())


def test_a_route_with_a_hostname_that_is_none_is_not_served() -> None:
    refused = checked_route(Route("r", "HTTP", (Attachment("http", ("a.*",)),), (Rule(),)))
    assert isinstance(refused, RefusedPart)
    assert "a.*" in refused.reason


FRAMING = [
    "Content-Length",
    "transfer-encoding",
    "Connection",
    "Keep-Alive",
    "Upgrade",
    "TE",
    "Trailer",
    "Proxy-Connection",
    "proxy-authorization",
    "HTTP2-Settings",
    "Content_Length",
    "Transfer_Encoding",
    ":path",
    ":status",
    "Host",
]
MODIFIERS = {
    "set": lambda name: HeaderModifier(set=(HeaderValue(name, "0"),)),
    "add": lambda name: HeaderModifier(add=(HeaderValue("x-ok", "1"), HeaderValue(name, "0"))),
    "remove": lambda name: HeaderModifier(remove=("x-ok", name)),
}


@pytest.mark.req("L7-2")
@pytest.mark.parametrize("side", ["request_headers", "response_headers"])
@pytest.mark.parametrize("how", sorted(MODIFIERS))
@pytest.mark.parametrize("name", FRAMING)
@pytest.mark.parametrize("kind", ["HTTP", "GRPC"])
def test_no_rule_or_backend_may_change_the_framing(kind: RouteKind, name: str, how: str, side: str) -> None:
    filters = msgspec.structs.replace(Filters(), **{side: MODIFIERS[how](name)})
    rules = (
        Rule("good", backends=(BackendRef("b"),)),
        Rule("of-rule", filters=filters, backends=(BackendRef("b"),)),
        Rule("of-backend", backends=(BackendRef("b"), BackendRef("c", filters=filters))),
    )
    result = checked_route(Route("r", kind, (), rules))
    assert isinstance(result, ReducedRoute)
    assert result.rules == (rules[0], Rule("of-rule"), Rule("of-backend"))
    refused = refused_parts(result)
    assert [part.reason.partition(":")[0] for part in refused] == ["rule of-rule", "rule of-backend"]
    assert all(name in part.reason for part in refused)


GOOD = [
    Rule(),
    Rule(matches=(path("PathPrefix", "/"), path("PathPrefix", "/a/")), filters=Filters(rewrite=PREFIX_REWRITE)),
    Rule(matches=(path("RegularExpression", "/[a-z]+(/x)?"),)),
    Rule(backends=(BackendRef("b", filters=Filters(mirrors=(Mirror("c"),))),)),
    Rule(filters=Filters(response_headers=set_header("a", "100 %"), redirect=Redirect())),
]


@pytest.mark.parametrize("rule", GOOD)
def test_configurations_accepted_by_envoy_have_no_problem(rule: Rule) -> None:
    assert checked(rule) == (Route("r", "HTTP", (), (rule,)), (rule,), {})
