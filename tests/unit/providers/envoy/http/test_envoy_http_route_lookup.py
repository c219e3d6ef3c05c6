"""What a request meets, in the model that people ask; ``tests/xds`` holds it to the real Envoy."""

from __future__ import annotations

import pytest

from fairlead.model.http import (
    Attachment,
    BackendRef,
    Filters,
    L7Config,
    L7Listener,
    PathMatch,
    Redirect,
    RequestMatch,
    Route,
    Rule,
    ValueMatch,
)
from fairlead.providers.envoy.http.route_lookup import ClientRequest, lookup, normal_path

LISTENERS = (
    L7Listener("http", 80),
    L7Listener("any", 443, "HTTPS"),
    L7Listener("a", 443, "HTTPS", "a.example.com"),
    L7Listener("wild", 443, "HTTPS", "*.example.com"),
    L7Listener("pass", 443, "TLS", "pass.example.com", passthrough=True),
    L7Listener("empty", 444, "TLS"),
    L7Listener("org", 445, "HTTPS", "*.net"),
    L7Listener("named", 8080, hostname="*.example.com"),
)
RULES = (
    Rule(
        matches=(
            RequestMatch(path=PathMatch("Exact", "/exact")),
            RequestMatch(path=PathMatch("PathPrefix", "/p"), method="POST", headers=(ValueMatch("X-A", "1"),)),
            RequestMatch(path=PathMatch("RegularExpression", "/r[0-9]+"), query_params=(ValueMatch("q", "a b"),)),
        ),
        backends=(BackendRef("b"),),
    ),
    Rule(
        matches=(RequestMatch(path=PathMatch("PathPrefix", "/old")),),
        filters=Filters(redirect=Redirect(scheme="https")),
    ),
    Rule(matches=(RequestMatch(path=PathMatch("PathPrefix", "/none")),), backends=(BackendRef(""), BackendRef("b", 0))),
)
BAD = Rule(matches=(RequestMatch(path=PathMatch("RegularExpression", "(")),))
UNRESOLVED = Rule(matches=(RequestMatch(PathMatch("PathPrefix", "/u")),), backends=(BackendRef(),))
CONFIG = L7Config(
    LISTENERS,
    (
        Route("r", "HTTP", (Attachment("http"), Attachment("a"), Attachment("wild")), RULES),
        Route(
            "one", "HTTP", (Attachment("http", ("*.one.org",), one_label=True),), (Rule(backends=(BackendRef("b"),)),)
        ),
        Route("grpc", "GRPC", (Attachment("any"),), (Rule(backends=(BackendRef("b"),)), UNRESOLVED)),
        Route("bad", "HTTP", (Attachment("http"),), (BAD,)),
        Route("stream", "TLS", (Attachment("pass"),), (Rule(backends=(BackendRef("b"),)),)),
    ),
)


@pytest.mark.parametrize(
    ("request_", "status", "met"),
    [
        (ClientRequest("x.org", "/exact?x"), 0, "r/0/0"),
        (ClientRequest("x.org", "/p/q", "POST", (("x-a", "2"), ("x-a", "1"))), 0, "r/0/1"),
        (ClientRequest("x.org", "/p/q", "POST", (("x-a", "2"),)), 404, ""),
        (ClientRequest("x.org", "/p/q", "GET", (("x-a", "1"),)), 404, ""),
        (ClientRequest("x.org", "/px", "POST", (("x-a", "1"),)), 404, ""),
        (ClientRequest("x.org", "/r7?q=a+b"), 0, "r/0/2"),
        (ClientRequest("x.org", "/r7?q=a%20b&q=c"), 0, "r/0/2"),
        (ClientRequest("x.org", "/r7?q=ab"), 404, ""),
        (ClientRequest("x.org", "/r7"), 404, ""),
        (ClientRequest("x.org", "/old"), 0, "r/1/0"),
        (ClientRequest("x.org", "/none"), 500, "r/2/0"),
        (ClientRequest("x.org", "/a%2fb"), 307, ""),
        (ClientRequest("a.one.org:80", "/any"), 0, "one/0/0"),
        (ClientRequest("a.b.one.org", "/any"), 404, ""),
        (ClientRequest("x.org", "/exact", port=8080), 404, ""),
        (ClientRequest("x.example.com", "/exact", port=8080), 404, ""),
        (ClientRequest("x.org", port=81), 0, ""),
        (ClientRequest("a.example.com", "/exact", port=443, server_name="a.example.com"), 0, "r/0/0"),
        (ClientRequest("b.example.com", "/exact", port=443, server_name="A.example.com"), 421, ""),
        (ClientRequest("x.org", "/exact", port=443, server_name="a.example.com"), 421, ""),
        (ClientRequest("b.example.com", "/exact", port=443, server_name="b.example.com"), 0, "r/0/0"),
        (ClientRequest("pass.example.com", port=443, server_name="pass.example.com"), 0, "stream/0/0"),
        (ClientRequest("x.example.com", port=444, server_name="x.example.com"), 0, ""),
        (ClientRequest("x.org", port=445, server_name="x.org"), 0, ""),
        (
            ClientRequest("x.org", "/s/m", "POST", (("content-type", "application/grpc+proto"),), 443, "x.org"),
            0,
            "grpc/0/0",
        ),
        (
            ClientRequest("x.org", "/u/m", "POST", (("content-type", "application/grpc"),), 443, "x.org"),
            503,
            "grpc/1/0",
        ),
        (ClientRequest("x.org", "/s/m", "POST", (("content-type", "application/grpc-web"),), 443), 404, ""),
    ],
)
@pytest.mark.req("G-28", "G-63", "G-64")
def test_requests(request_: ClientRequest, status: int, met: str) -> None:
    decision = lookup(CONFIG, request_)
    assert decision.status == status, decision
    assert (f"{decision.route}/{decision.rule_number}/{decision.match_number}" if decision.route else "") == met
    assert decision.reason


def test_the_lookup_says_why_other_routes_do_not_match() -> None:
    decision = lookup(CONFIG, ClientRequest("x.org", "/old", "POST"))
    assert [(each.route, each.rule, each.match) for each in decision.passed] == [("r", 0, 0), ("r", 0, 2), ("r", 2, 0)]
    assert decision.passed[0].reason == "the path is not Exact /exact"
    assert (
        lookup(CONFIG, ClientRequest("x.org", port=81)).reason == "no listener has port 81: the connection is refused"
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/../b", "/b"), ("/a/..", "/"), ("/../a", "/a"), ("/a/.", "/a/"), ("//a///b", "/a/b"), ("/a/%2e%2E/b", "/b"),
        ("/%61%20", "/a%20"), ("/a\\b", "/a/b"), ("/", "/"), ("//", "//"),
    ],
)  # fmt: skip
def test_paths_are_normal(path: str, expected: str) -> None:
    assert normal_path(path) == expected


def test_what_fits_too_and_comes_later_is_listed_with_why() -> None:
    paths = Rule(
        matches=(RequestMatch(path=PathMatch("PathPrefix", "/")), RequestMatch(path=PathMatch("PathPrefix", "/a")))
    )
    config = L7Config(
        (L7Listener("http", 80),),
        (
            Route("old", "HTTP", (Attachment("http", ("x.org",)),), (paths,), created="2026-01-01T00:00:00Z"),
            Route("new", "HTTP", (Attachment("http", ("x.org", "*.org")),), (paths,), created="2026-02-01T00:00:00Z"),
        ),
    )
    decision = lookup(config, ClientRequest("x.org", "/a"))
    assert (decision.route, decision.match_number, decision.passed) == ("old", 1, ())
    assert [(each.route, each.match, each.reason) for each in decision.outranked] == [
        ("new", 1, "matches too, but the route is younger"),
        ("old", 0, "matches too, but the path is less specific"),
        ("new", 0, "matches too, but the path is less specific"),
        ("new", 1, "matches too, but the host *.org is less specific than x.org"),
        ("new", 0, "matches too, but the host *.org is less specific than x.org"),
    ]


def test_of_what_is_not_met_the_conditions_that_hold_are_counted() -> None:
    decision = lookup(CONFIG, ClientRequest("x.org", "/p", "POST"))
    by_match = {(each.rule, each.match): each.met for each in decision.passed}
    assert by_match[0, 1] == 2
    assert by_match[0, 0] == 0


def test_the_reason_of_a_connection_that_only_has_a_server_name() -> None:
    assert "passed through" in lookup(CONFIG, ClientRequest("x", port=443, server_name="pass.example.com")).reason
    assert "no TLS route" in lookup(CONFIG, ClientRequest("x", port=444, server_name="x.example.com")).reason
    assert "no HTTPS listener" in lookup(CONFIG, ClientRequest("x.org", port=445, server_name="x.org")).reason
