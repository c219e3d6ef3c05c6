"""What no proxy may do for a rule: other framing, and what is not a request target."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.http import (
    Backend,
    BackendRef,
    ExternalAuth,
    Filters,
    IdleBackends,
    L7Config,
    PathModifier,
    Redirect,
    Rewrite,
    Route,
    Rule,
    SessionPersistence,
    differing_keys,
    differing_part,
    unsafe_parts,
)


@pytest.mark.req("L7-2")
def test_a_session_header_is_held_to_the_same_rule() -> None:
    for name in ("Content-Length", "host", "transfer_encoding"):
        assert list(unsafe_parts(Rule(session=SessionPersistence("Header", name))))
    assert not list(unsafe_parts(Rule(session=SessionPersistence("Header", "x-session"))))
    assert not list(unsafe_parts(Rule(session=SessionPersistence("Cookie", "Upgrade"))))


@pytest.mark.req("F-19")
@pytest.mark.parametrize(
    "auth",
    [
        ExternalAuth("auth", path="check"),
        ExternalAuth("auth", path="/check?x=1"),
        ExternalAuth("auth", allowed_headers=("a b",)),
        ExternalAuth("auth", allowed_headers=("x%y",)),
        ExternalAuth("auth", allowed_headers=("Content-Length",)),
        ExternalAuth("auth", allowed_headers=("proxy-connection",)),
        ExternalAuth("auth", allowed_headers=("X-User",), allowed_response_headers=("x-user",)),
        ExternalAuth("auth", allowed_response_headers=("Transfer-Encoding",)),
        ExternalAuth("auth", allowed_response_headers=("Host",)),
        ExternalAuth("auth", protocol="GRPC", allowed_headers=("x-user",)),
    ],
)
def test_an_external_service_changes_no_framing_and_gets_valid_requests(auth: ExternalAuth) -> None:
    assert list(unsafe_parts(Rule(filters=Filters(auth=auth))))


TARGETS = ["/x HTTP/1.1", "index.html", "new", "/\u00e9", "/a\tb", "/x\r\nHost: y", "http://evil.example/", " /", "*"]


@pytest.mark.req("L7-8")
@pytest.mark.parametrize("value", TARGETS)
@pytest.mark.parametrize("kind", ["ReplaceFullPath", "ReplacePrefixMatch"])
def test_a_new_path_must_be_a_request_target(kind: str, value: str) -> None:
    modifier = PathModifier(kind, value)  # type: ignore[arg-type]
    for filters in (Filters(rewrite=Rewrite(path=modifier)), Filters(redirect=Redirect(path=modifier))):
        (problem,) = unsafe_parts(Rule(filters=filters))
        assert "is not a valid path" in problem


@pytest.mark.req("L7-8")
@pytest.mark.parametrize("value", ["", "/", "/new", "/%C3%A9/~a_b!$&'()*+,;=:@"])
def test_a_valid_new_path_is_taken(value: str) -> None:
    for kind in ("ReplaceFullPath", "ReplacePrefixMatch"):
        modifier = PathModifier(kind, value)  # type: ignore[arg-type]
        assert not list(unsafe_parts(Rule(filters=Filters(rewrite=Rewrite(path=modifier)))))
        assert not list(unsafe_parts(Rule(filters=Filters(redirect=Redirect(path=modifier)))))


@pytest.mark.req("L7-8")
def test_a_rewrite_keeps_the_query_and_a_redirect_may_have_one() -> None:
    modifier = PathModifier("ReplaceFullPath", "/login?next=1")
    (problem,) = unsafe_parts(Rule(filters=Filters(rewrite=Rewrite(path=modifier))))
    assert "query" in problem
    assert not list(unsafe_parts(Rule(filters=Filters(redirect=Redirect(path=modifier)))))


@pytest.mark.req("L7-8")
@pytest.mark.parametrize("hostname", ["a b", "$host", "x.org/path", "a@b", "\u00e9.example"])
def test_a_new_hostname_must_be_one(hostname: str) -> None:
    for filters in (Filters(rewrite=Rewrite(hostname)), Filters(redirect=Redirect(hostname=hostname))):
        assert list(unsafe_parts(Rule(filters=filters)))
        assert list(unsafe_parts(Rule(backends=(BackendRef("b", filters=filters),))))


OBJECTS = [object() for _ in range(4)]


@given(st.lists(st.sampled_from(OBJECTS), max_size=6), st.lists(st.sampled_from(OBJECTS), max_size=6))
def test_two_sequences_differ_only_in_the_part_between_their_ends(before: list[object], after: list[object]) -> None:
    old, new = differing_part(before, after)
    assert before[: old.start] == after[: new.start]
    assert before[old.stop :] == after[new.stop :]
    assert [*before[: old.start], *after[new], *before[old.stop :]] == after
    if before[old] and after[new]:
        assert before[old][0] is not after[new][0]
        assert before[old][-1] is not after[new][-1]


SHARES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1)), max_size=3)


@given(
    st.lists(st.tuples(st.dictionaries(st.sampled_from("rst"), SHARES), st.sets(st.sampled_from("abcd"))), max_size=6)
)
def test_backends_without_requests_follow_every_change(steps: list[tuple[dict[str, Any], set[str]]]) -> None:
    idle, known = IdleBackends(), dict[str, Route]()
    for routes, backends in steps:
        for name, shares in routes.items():
            route = Route(name, "HTTP", (), (Rule(backends=tuple(BackendRef(*share) for share in shares)),))
            known[name] = known[name] if known.get(name) == route else route
        listed = tuple(map(Backend, sorted(backends)))
        config = L7Config((), tuple(known[name] for name in sorted(routes)), listed)
        answering = {name for shares in routes.values() for name, weight in shares if weight}
        assert idle.update(config) == backends - answering
    assert idle.update(None) == frozenset()


MAPPINGS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from([[0], [1]]))


@given(MAPPINGS, MAPPINGS, st.booleans())
def test_mappings_differ_at_keys_without_the_same_object(
    before: dict[str, list[int]], after: dict[str, list[int]], alike: bool
) -> None:
    if alike:  # most keys are there in the same order, as after a copy
        after = {**before, **dict([*after.items()][:2])}
    missing = object()
    differ = {key for key in {*before, *after} if before.get(key, missing) is not after.get(key, missing)}
    assert differing_keys(before, after) == differ
