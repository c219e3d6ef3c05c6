"""Actions for a matched request: redirects, weights, timeouts, mirrors, answers without a backend."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.model.http import (
    BackendRef,
    Filters,
    HeaderModifier,
    HeaderValue,
    Mirror,
    PathModifier,
    Redirect,
    RequestMatch,
    Rewrite,
    RouteKind,
    Rule,
)
from fairlead.providers.envoy.http.route_action import action_fields, mirrors_of
from fairlead.providers.envoy.resources import duration, packaged_schema

SCHEMA = packaged_schema()


def fields(rule: Rule, kind: RouteKind = "HTTP") -> dict[str, Any]:
    return action_fields(
        SCHEMA, rule, RequestMatch(), kind=kind, port=80, secure=False, cluster_of=lambda name: f"<{name}>"
    )


def action(*backends: BackendRef, kind: RouteKind = "HTTP", **more: Any) -> dict[str, Any]:
    return fields(Rule(backends=backends or (BackendRef("a"),), **more), kind)["route"]


@pytest.mark.req("G-54", "G-56", "G-110")
@pytest.mark.parametrize(("kind", "status"), [("HTTP", 500), ("GRPC", 503)])
@pytest.mark.parametrize("backends", [(), (BackendRef(),), (BackendRef("", 0),), (BackendRef("a", 0), BackendRef())])
def test_without_a_backend(backends: tuple[BackendRef, ...], kind: RouteKind, status: int) -> None:
    assert fields(Rule(backends=backends), kind)["direct_response"] == {"status": status}


@pytest.mark.req("G-55")
@pytest.mark.parametrize("kind", ["HTTP", "GRPC"])
def test_backends_that_are_all_drained_answer_as_those_without_targets(kind: RouteKind) -> None:
    backends = (BackendRef("a", 0), BackendRef("", 0), BackendRef("c", 0))
    assert fields(Rule(backends=backends), kind)["direct_response"] == {"status": 503}


@pytest.mark.req("G-55", "G-61", "G-110")
def test_shares() -> None:
    route = action(BackendRef("a", 70), BackendRef("", 30), BackendRef("c", 0))
    shares = [(each["name"], each["weight"]["value"]) for each in route["weighted_clusters"]["clusters"]]
    assert shares == [("<a>", 70), ("<>", 30)]
    assert route["cluster_not_found_response_code"] == "INTERNAL_SERVER_ERROR"
    assert action(kind="GRPC")["cluster_not_found_response_code"] == "SERVICE_UNAVAILABLE"
    assert action()["cluster"] == "<a>"


@pytest.mark.req("G-71", "G-74")
def test_filters_of_a_backend_need_a_share_of_their_own() -> None:
    modifier = HeaderModifier(set=(HeaderValue("x", "1"),))
    (share,) = action(BackendRef("a", filters=Filters(request_headers=modifier, rewrite=Rewrite("b.com"))))[
        "weighted_clusters"
    ]["clusters"]
    assert share["host_rewrite_literal"] == "b.com"
    assert share["request_headers_to_add"]


@pytest.mark.req("G-58", "G-74")
def test_redirects_and_rewrites() -> None:
    assert fields(Rule(filters=Filters(redirect=Redirect(hostname="b.com"))))["redirect"]["host_redirect"] == "b.com"
    rewrite = Rewrite("b.com", PathModifier("ReplaceFullPath", "/x"))
    route = action(filters=Filters(rewrite=rewrite))
    assert route["host_rewrite_literal"] == "b.com"
    assert route["regex_rewrite"]["substitution"] == "/x"


@pytest.mark.req("G-76", "G-112")
@pytest.mark.parametrize(
    ("request_ms", "backend_ms", "has_idle_timeout"),
    [(None, None, False), (500, None, False), (0, None, True), (None, 0, True), (400_000, None, True)],
)
def test_times(request_ms: int | None, backend_ms: int | None, has_idle_timeout: bool) -> None:
    route = action(request_timeout_ms=request_ms, backend_timeout_ms=backend_ms)
    assert ("idle_timeout" in route) is has_idle_timeout
    assert route["timeout"] == duration((request_ms or 0) / 1000)


@pytest.mark.req("G-75")
def test_mirrors() -> None:
    mirrors = (Mirror("m", 1, 3), Mirror("", 100, 100))
    (policy,) = action(filters=Filters(mirrors=mirrors))["request_mirror_policies"]
    assert policy["cluster"] == "<m>"
    assert policy["runtime_fraction"]["default_value"] == {"numerator": 333_333, "denominator": "MILLION"}
    of_backend = BackendRef("a", filters=Filters(mirrors=(Mirror("m"),)))
    assert mirrors_of(Rule(backends=(of_backend,))) == [Mirror("m")]
    assert mirrors_of(Rule(backends=(of_backend, BackendRef("b")))) == []
