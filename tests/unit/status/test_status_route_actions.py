"""What a rule does with a request, in sentences."""

from __future__ import annotations

import pytest

from fairlead.model.http import (
    Cors,
    Filters,
    HeaderModifier,
    HeaderValue,
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
        session=SessionPersistence(name="sid"),
    )
    assert actions_of(rule, MATCH) == [
        "timeout 1.5 s",
        "timeout of each try none",
        "retried up to 2 times on 502, 503, for any method",
        "one session stays at one target, by the cookie sid",
    ]
