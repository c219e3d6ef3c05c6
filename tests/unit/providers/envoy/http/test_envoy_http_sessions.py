"""Which cookies a rule's sessions have, and which backend they name."""

from __future__ import annotations

import pytest

from fairlead.model.http import (
    Attachment,
    BackendRef,
    Filters,
    PathMatch,
    Redirect,
    RequestMatch,
    Route,
    Rule,
    SessionPersistence,
    ValueMatch,
)
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.http.sessions import (
    at_backend,
    backend_cookie,
    backend_of_cookies,
    backends_of_sessions,
    own_cookies,
    session_filter,
    session_name,
    set_backend_cookie,
)
from fairlead.providers.envoy.resources import packaged_schema

A, B = BackendRef("a"), BackendRef("b", weight=0)


def rule(*matches: RequestMatch, **fields: object) -> Rule:
    given = {"session": SessionPersistence(), "backends": (A, B), "matches": matches, **fields}
    return Rule(**given)  # type: ignore[arg-type]


def path(kind: str, value: str) -> RequestMatch:
    return RequestMatch(path=PathMatch(kind, value))  # type: ignore[arg-type]


def route(*rules: Rule, name: str = "r") -> Route:
    return Route(name, "HTTP", (Attachment("http"),), rules)


@pytest.mark.req("EDGE-08")
def test_a_cookie_without_a_name_is_that_of_its_rule() -> None:
    first, second = rule(path("Exact", "/a")), rule(path("Exact", "/b"))
    both = route(first, second)
    names = {session_name(both, first), session_name(both, second), session_name(route(first, name="s"), first)}
    assert len(names) == 3
    assert session_name(route(second, first), first) in names, "the order of rules does not change it"
    assert session_name(both, rule(session=SessionPersistence(name="sid"))) == "sid"
    assert session_name(both, Rule()) == ""


@pytest.mark.req("L7-3")
def test_only_a_choice_of_backends_needs_a_cookie_of_its_own() -> None:
    assert backends_of_sessions(rule()) == [A, B]
    assert backends_of_sessions(rule(backends=(A, BackendRef(""), A))) == [A]
    for without in (
        rule(backends=(A,)),
        rule(session=None),
        rule(session=SessionPersistence("Header")),
        rule(filters=Filters(redirect=Redirect())),
    ):
        assert backends_of_sessions(without) == []
    assert at_backend(rule(), B).backends == (BackendRef("b", weight=1),)


@pytest.mark.req("L7-3")
def test_the_cookie_of_a_backend_is_recognised_among_others() -> None:
    written = rule()
    of_b = backend_cookie(route(written), written, B)
    assert backend_of_cookies(route(written), written, ["x=1", f"y=2; {of_b}; z=3"]) == B
    assert backend_of_cookies(route(written), written, ["x=1"]) is None
    assert backend_of_cookies(route(written), written, [f"{of_b[:-8]}00000000"]) is None


@pytest.mark.req("EDGE-08")
@pytest.mark.parametrize(
    ("matches", "expected"),
    [
        ((), "/"),
        ((path("PathPrefix", "/a/"),), "/a"),
        ((path("Exact", "/a"), path("Exact", "/a")), "/a"),
        ((path("PathPrefix", "/a"), path("PathPrefix", "/b")), "/"),
        ((path("RegularExpression", "/a"),), "/"),
        ((path("PathPrefix", "/a;Domain=x"),), "/"),
    ],
)
def test_a_cookie_has_the_path_of_its_rule(matches: tuple[RequestMatch, ...], expected: str) -> None:
    written = rule(*matches, session=SessionPersistence(absolute_timeout_s=9))
    header = str(set_backend_cookie(route(written), written, A)["header"])
    assert f"; Path={expected}; Max-Age=9; HttpOnly" in header


NAMED = SessionPersistence(name="sid")


def with_header(value: str, *backends: BackendRef, session: SessionPersistence = NAMED) -> Rule:
    match = RequestMatch(path=PathMatch("PathPrefix", "/shop"), headers=(ValueMatch("x", value),))
    return rule(match, session=session, backends=backends)


def names_of(*routes: Route) -> list[list[str]]:
    changed = own_cookies([(each, each.rules) for each in routes], {"http": ""})
    return [
        [session_name(each, now) for now in changed.get(each.name, each.rules) if now is not None] for each in routes
    ]


@pytest.mark.req("L7-3")
def test_rules_that_would_share_a_cookie_have_one_each() -> None:
    ((first, second),) = names_of(route(with_header("1", A), with_header("2", B)))
    assert first == "sid"
    assert second.startswith("sid-")
    ((_, again),) = names_of(route(with_header("0", A), with_header("2", B)))
    assert again == second, "the name is that of the rule, not of its neighbours"


@pytest.mark.req("L7-3")
@pytest.mark.parametrize(
    ("session", "backend"),
    [(NAMED, A), (SessionPersistence(name="other"), B), (SessionPersistence("Header", "sid"), B)],
    ids=["same-backends", "other-name", "header"],
)
def test_sessions_that_cannot_meet_keep_their_names(session: SessionPersistence, backend: BackendRef) -> None:
    ((first, second),) = names_of(route(with_header("1", A), with_header("2", backend, session=session)))
    assert (first, second) == ("sid", session.name)


@pytest.mark.req("L7-3")
@pytest.mark.parametrize(
    ("older", "younger", "meet"),
    [
        ("a.example.com", "a.example.com", True),
        ("a.example.com", "*.example.com", True),
        ("*.example.com", "x.y.example.com", True),
        ("", "a.example.com", True),
        ("a.example.com", "", True),
        ("a.example.com", "b.example.com", False),
        ("*.example.com", "*.example.org", False),
    ],
)
def test_the_older_of_two_routes_of_a_host_keeps_the_name(older: str, younger: str, *, meet: bool) -> None:
    routes = [
        Route(name, "HTTP", (Attachment("http", (host,) if host else ()),), (with_header(name, to),), created)
        for name, host, to, created in (
            ("z", older, A, "2026-01-01T00:00:00Z"),
            ("a", younger, B, "2026-01-02T00:00:00Z"),
        )
    ]
    ((first,), (second,)) = names_of(*routes)
    assert first == "sid"
    assert second.startswith("sid-") is meet


@pytest.mark.req("F-23")
def test_the_script_has_a_key_of_the_hub_and_the_load_balancer() -> None:
    web, api = LoadBalancerKey("HTTPLoadBalancer", "shop", "web"), LoadBalancerKey("HTTPLoadBalancer", "shop", "api")
    filters = [session_filter(packaged_schema(), key, of) for key in (b"a" * 64, b"b" * 64) for of in (web, api)]
    scripts = set(map(str, filters))
    assert len(scripts) == 4
    assert not any("a" * 64 in script or "b" * 64 in script for script in scripts), "the hub's key stays at the hub"
    assert session_filter(packaged_schema(), b"a" * 64, web) == filters[0], "every hub makes the same listener"


@pytest.mark.req("F-23")
def test_the_cookie_of_a_backend_ends_with_an_idle_session() -> None:
    idle = rule(session=SessionPersistence(absolute_timeout_s=600, idle_timeout_s=5))
    assert "Max-Age=5;" in str(set_backend_cookie(route(idle), idle, A)["header"])
