"""What a rule does with a request, in sentences."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.model.http import (
    Cors,
    ExternalAuth,
    ExternalProcessor,
    Filters,
    HeaderModifier,
    HeaderValue,
    JWTProvider,
    Mirror,
    PathMatch,
    PathModifier,
    Redirect,
    RequestMatch,
    RetryRule,
    Rewrite,
    Rule,
    SessionPersistence,
)
from fairlead.status.formatting import actions_of, actions_of_backend

MATCH = RequestMatch(path=PathMatch("PathPrefix", "/a"))
HEADERS = HeaderModifier((HeaderValue("x", "1"),), (HeaderValue("y", "2"),), ("z",))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (Filters(), []),
        (
            Filters(request_headers=HEADERS),
            ["request header x is set to '1'", "request header y gets '2' added", "request header z is removed"],
        ),
        (Filters(response_headers=HeaderModifier(remove=("z",))), ["response header z is removed"]),
        (
            Filters(redirect=Redirect("https", "b.org", PathModifier("ReplacePrefixMatch", "/b"), 8443, 301)),
            ["answered with 301, a redirect: "
             "scheme https, host b.org, port 8443, the prefix /a of the path becomes /b"],
        ),
        (Filters(redirect=Redirect()), ["answered with 302, a redirect: to the same place"]),
        (
            Filters(rewrite=Rewrite("b.org", PathModifier("ReplaceFullPath", "/x"))),
            ["the Host header becomes b.org", "the path becomes /x"],
        ),
        (
            Filters(mirrors=(Mirror("m"), Mirror("n", 1, 8), Mirror())),
            ["requests are copied to m", "12.5 % of the requests are copied to n",
             "requests are not copied: the mirror could not be resolved"],
        ),
        (
            Filters(cors=Cors(("https://a",))),
            ["CORS: preflight requests are answered here; origins https://a"],
        ),
    ],
)  # fmt: skip
def test_filters(filters: Filters, expected: list[str]) -> None:
    assert actions_of(Rule(filters=filters), MATCH) == expected
    assert actions_of_backend(filters, MATCH) == expected


def test_limits_retries_and_sessions() -> None:
    rule = Rule(
        request_timeout_ms=1500,
        backend_timeout_ms=0,
        retry=RetryRule((502, 503), 2),
        session=SessionPersistence(name="sid", idle_timeout_s=60),
    )
    assert actions_of(rule, MATCH) == [
        "timeout 1.5 s",
        "timeout of each try none",
        "retried up to 2 times on 502, 503, for any method",
        "one session stays at one target, by the cookie sid, until it is idle for 60 s",
    ]


def test_what_admits_a_request_is_listed() -> None:
    rule = Rule(
        filters=Filters(auth=ExternalAuth("shop/login:80")),
        requests_per_second=5,
        allowed_sources=("192.0.2.0/24",),
        denied_sources=("192.0.2.9/32",),
        jwt=(JWTProvider("https://a", jwks="{}"), JWTProvider("https://b", jwks="{}")),
    )
    assert actions_of(rule, MATCH) == [
        "answered 403 for clients in 192.0.2.9/32",
        "answered 403 for clients outside of 192.0.2.0/24",
        "answered 429 above 5 requests a second at each proxy",
        "answered 401 without a valid token of https://a or https://b",
        "passed only if shop/login:80 allows it; answered 503 while that does not answer",
    ]


def test_every_field_of_a_rule_has_a_sentence() -> None:
    """A field that a rule gets later must not be silent in ``fairlead route``."""
    shown_elsewhere = {"name", "matches", "backends", "filters"}
    of_rule: dict[str, Any] = {
        "request_timeout_ms": 1, "backend_timeout_ms": 1, "retry": RetryRule(), "session": SessionPersistence(),
        "requests_per_second": 1, "allowed_sources": ("::/0",), "denied_sources": ("::/0",),
        "jwt": (JWTProvider("https://a", jwks="{}"),), "processor": ExternalProcessor("a"),
    }  # fmt: skip
    of_filters: dict[str, Any] = {
        "request_headers": HEADERS, "response_headers": HEADERS, "redirect": Redirect(), "rewrite": Rewrite("b.org"),
        "mirrors": (Mirror("m"),), "cors": Cors(), "auth": ExternalAuth("a"),
    }  # fmt: skip
    assert of_rule.keys() == set(Rule.__struct_fields__) - shown_elsewhere
    assert of_filters.keys() == set(Filters.__struct_fields__)
    assert all(actions_of(Rule(**{name: value}), MATCH) for name, value in of_rule.items())
    assert all(actions_of(Rule(filters=Filters(**{name: value})), MATCH) for name, value in of_filters.items())
