"""Which rule of several a request meets first: HTTP routes, and gRPC routes by service and method."""

from __future__ import annotations

import random

import pytest

from fairlead.model.http import PathMatch, RequestMatch, Route, RouteKind, ValueMatch
from fairlead.providers.envoy.http.route_match import rank

HEADER = (ValueMatch("a", "1"),)


def path(kind: str, value: str, **more: object) -> RequestMatch:
    return RequestMatch(PathMatch(kind, value), **more)  # type: ignore[arg-type]


def ordered(kind: RouteKind, matches: list[RequestMatch]) -> list[RequestMatch]:
    shuffled = random.Random(1).sample(matches, len(matches))
    # Rule and number are what decides last: they run against the order that is expected.
    return sorted(
        shuffled, key=lambda match: rank(Route("r", kind, (), ()), match, rule=0, number=-matches.index(match))
    )


@pytest.mark.req("G-29")
def test_http_exact_before_longest_prefix_before_method_headers_and_parameters() -> None:
    matches = [
        path("Exact", "/a"),
        path("PathPrefix", "/a/b"),
        path("PathPrefix", "/a", method="GET"),
        path("PathPrefix", "/a", headers=(*HEADER, ValueMatch("b", "2"))),
        path("PathPrefix", "/a", headers=HEADER),
        path("PathPrefix", "/a", query_params=HEADER),
        path("PathPrefix", "/a"),
        path("PathPrefix", "/", headers=HEADER),
        RequestMatch(),
    ]
    assert ordered("HTTP", matches) == matches


@pytest.mark.req("G-31")
def test_grpc_service_and_method_before_service_before_method_before_headers() -> None:
    matches = [
        path("Exact", "/a.B/Method", headers=HEADER),
        path("Exact", "/a.B/Method"),
        path("Exact", "/a.B/M"),
        path("PathPrefix", "/a.B", headers=HEADER),
        path("PathPrefix", "/a.B"),
        path("RegularExpression", "/[^/]+/Method"),
        path("RegularExpression", "/[^/]+/M"),
        RequestMatch(headers=HEADER),
        RequestMatch(),
    ]
    assert ordered("GRPC", matches) == matches


@pytest.mark.req("G-28", "G-31", "G-100")
@pytest.mark.parametrize("kind", ["HTTP", "GRPC"])
def test_of_equal_matches_the_oldest_route_then_the_first_by_name(kind: RouteKind) -> None:
    routes = [
        Route("z", kind, (), (), "2026-01-01T00:00:00Z", "infra/z"),
        Route("b", kind, (), (), "2026-01-02T00:00:00Z", "infra/a"),
        Route("a", kind, (), (), "2026-01-02T00:00:00Z", "infra/b"),
        Route("undated", kind, (), ()),
    ]
    backwards = routes[::-1]
    backwards.sort(key=lambda route: rank(route, RequestMatch(), rule=0, number=0))
    assert backwards == routes
