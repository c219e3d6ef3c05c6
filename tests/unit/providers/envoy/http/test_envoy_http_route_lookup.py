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
from fairlead.providers.envoy.http.normal_path import normal_path
from fairlead.providers.envoy.http.route_lookup import Request, lookup

LISTENERS = (
    L7Listener("http", 80),
    L7Listener("any", 443, "HTTPS"),
    L7Listener("a", 443, "HTTPS", "a.example.com"),
    L7Listener("wild", 443, "HTTPS", "*.example.com"),
    L7Listener("pass", 443, "TLS", "pass.example.com", passthrough=True),
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
CONFIG = L7Config(
    LISTENERS,
    (
        Route("r", "HTTP", (Attachment("http"), Attachment("a"), Attachment("wild")), RULES),
        Route(
            "one", "HTTP", (Attachment("http", ("*.one.org",), one_label=True),), (Rule(backends=(BackendRef("b"),)),)
        ),
        Route("grpc", "GRPC", (Attachment("any"),), (Rule(backends=(BackendRef("b"),)),)),
        Route("bad", "HTTP", (Attachment("http"),), (BAD,)),
        Route("stream", "TLS", (Attachment("pass"),), (Rule(backends=(BackendRef("b"),)),)),
    ),
)


@pytest.mark.parametrize(
    ("request_", "status", "met"),
    [
        (Request("x.org", "/exact?x"), 0, "r/0/0"),
        (Request("x.org", "/p/q", "POST", (("x-a", "2"), ("x-a", "1"))), 0, "r/0/1"),
        (Request("x.org", "/p/q", "POST", (("x-a", "2"),)), 404, ""),
        (Request("x.org", "/p/q", "GET", (("x-a", "1"),)), 404, ""),
        (Request("x.org", "/px", "POST", (("x-a", "1"),)), 404, ""),
        (Request("x.org", "/r7?q=a+b"), 0, "r/0/2"),
        (Request("x.org", "/r7?q=a%20b&q=c"), 0, "r/0/2"),
        (Request("x.org", "/r7?q=ab"), 404, ""),
        (Request("x.org", "/r7"), 404, ""),
        (Request("x.org", "/old"), 0, "r/1/0"),
        (Request("x.org", "/none"), 500, "r/2/0"),
        (Request("x.org", "/a%2fb"), 307, ""),
        (Request("a.one.org:80", "/any"), 0, "one/0/0"),
        (Request("a.b.one.org", "/any"), 404, ""),
        (Request("x.org", "/exact", port=8080), 404, ""),
        (Request("x.example.com", "/exact", port=8080), 404, ""),
        (Request("x.org", port=81), 0, ""),
        (Request("a.example.com", "/exact", port=443, server_name="a.example.com"), 0, "r/0/0"),
        (Request("b.example.com", "/exact", port=443, server_name="A.example.com"), 421, ""),
        (Request("x.org", "/exact", port=443, server_name="a.example.com"), 421, ""),
        (Request("b.example.com", "/exact", port=443, server_name="b.example.com"), 0, "r/0/0"),
        (Request("pass.example.com", port=443, server_name="pass.example.com"), 0, ""),
        (Request("x.org", "/s/m", "POST", (("content-type", "application/grpc+proto"),), 443, "x.org"), 0, "grpc/0/0"),
        (Request("x.org", "/s/m", "POST", (("content-type", "application/grpc-web"),), 443), 404, ""),
    ],
)
@pytest.mark.req("G-28", "G-63", "G-64")
def test_requests(request_: Request, status: int, met: str) -> None:
    decision = lookup(CONFIG, request_)
    assert decision.status == status, decision
    assert (f"{decision.route}/{decision.rule_number}/{decision.match_number}" if decision.route else "") == met
    assert decision.reason


def test_it_says_why_not_another() -> None:
    decision = lookup(CONFIG, Request("x.org", "/old", "POST"))
    assert [(each.route, each.rule, each.match) for each in decision.passed] == [("r", 0, 0), ("r", 0, 2), ("r", 2, 0)]
    assert decision.passed[0].reason == "the path is not Exact /exact"
    assert lookup(CONFIG, Request("x.org", port=81)).reason == "no listener has port 81: the connection is refused"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/../b", "/b"), ("/a/..", "/"), ("/../a", "/a"), ("/a/.", "/a/"), ("//a///b", "/a/b"), ("/a/%2e%2E/b", "/b"),
        ("/%61%20", "/a%20"), ("/a\\b", "/a/b"), ("/", "/"), ("//", "//"),
    ],
)  # fmt: skip
def test_paths_are_normal(path: str, expected: str) -> None:
    assert normal_path(path) == expected
