"""A proxy that refuses configurations without naming the route: all good routes are served in the end, and always."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.http import Attachment, PathMatch, RequestMatch, Route, Rule
from fairlead.providers.envoy.http.refused_routes import RefusedRoutes
from fairlead.providers.envoy.http.route_table import EncodedRoute
from fairlead.providers.envoy.schema import packaged_schema

SCHEMA = packaged_schema()
Routes = dict[str, bool]


def encoded(name: str, *listeners: str, pattern: str = "") -> EncodedRoute:
    path = PathMatch("RegularExpression", pattern) if pattern else PathMatch()
    route = Route(name, "HTTP", tuple(map(Attachment, listeners)), (Rule(matches=(RequestMatch(path=path),)),))
    return EncodedRoute(SCHEMA, route, str)


class Proxy:
    """A proxy with one configuration for each listener, and what a provider sends it."""

    def __init__(self, bad: set[str], message: Callable[[list[str]], str] = lambda _names: "no good") -> None:
        self.bad = bad
        self.message = message
        #: What it serves, by configuration: version and routes.
        self.served: dict[str, tuple[str, frozenset[str]]] = {}
        self.refusals = 0
        self.lost: list[str] = []

    def settle(self, refused: RefusedRoutes, routes: list[EncodedRoute], listeners: list[str]) -> None:
        """Do what the provider does until nothing is to be sent any more."""
        refused.choose(routes)
        for name, (version, _) in self.served.items():
            refused.resume(name, version)
        while self._round(refused, routes, listeners):
            pass

    def _round(self, refused: RefusedRoutes, routes: list[EncodedRoute], listeners: list[str]) -> bool:
        chosen = refused.choose(routes)
        for name in listeners:
            mine = frozenset(each for each in chosen if any(at.listener == name for at in each.route.attachments))
            names = sorted(each.route.name for each in mine)
            version = ",".join(names) + refused.note({name})
            refused.sent(name, version, mine)
            if self.served.get(name, ("",))[0] == version:
                if refused.accepted(name, version):
                    return True
                continue
            if culprits := [each for each in names if each in self.bad]:
                self.refusals += 1
                assert refused.refused(name, version, self.message(culprits)), "nothing is left to be done"
                return True
            self.lost += sorted(self.served.get(name, ("", frozenset()))[1] - mine_names(mine))
            self.served[name] = version, mine_names(mine)
            if refused.accepted(name, version):
                return True
        return False

    def names(self) -> set[str]:
        return set().union(*(names for _, names in self.served.values()))


def mine_names(routes: frozenset[EncodedRoute]) -> frozenset[str]:
    return frozenset(each.route.name for each in routes)


ROUTES = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.tuples(st.booleans(), st.sampled_from([("x",), ("y",), ("x", "y")]), st.sampled_from(["", "/r.*"])),
    max_size=24,
)


@given(first=ROUTES, later=ROUTES)
def test_whatever_is_bad_all_good_routes_are_served_in_bounded_steps_and_stay_so(
    first: dict[str, tuple[bool, tuple[str, ...], str]], later: dict[str, tuple[bool, tuple[str, ...], str]]
) -> None:
    routes = [encoded(name, *at, pattern=pattern) for name, (_, at, pattern) in first.items()]
    proxy = Proxy({name for name, (is_bad, _, _) in first.items() if is_bad})
    refused = RefusedRoutes()
    proxy.settle(refused, routes, ["x", "y"])
    good = {name for name, (is_bad, _, _) in first.items() if not is_bad}
    assert proxy.names() == good
    assert {part.name for part in refused.parts} == proxy.bad
    assert not refused.searching
    assert proxy.lost == []
    assert proxy.refusals <= len(proxy.bad) * (2 * len(routes).bit_length() + 2)

    # A hub that starts goes on with what the proxy has.
    heir = RefusedRoutes()
    proxy.settle(heir, routes, ["x", "y"])
    assert (proxy.names(), proxy.lost) == (good, [])
    assert sorted(heir.parts) == sorted(refused.parts)

    # New routes, some of them bad, cost those that stay nothing.
    new = [encoded(f"new-{name}", *at, pattern=pattern) for name, (_, at, pattern) in later.items()]
    proxy.bad |= {f"new-{name}" for name, (is_bad, _, _) in later.items() if is_bad}
    proxy.settle(heir, [*routes, *new], ["x", "y"])
    assert proxy.names() == good | {f"new-{name}" for name, (is_bad, _, _) in later.items() if not is_bad}
    assert proxy.lost == []


@given(first=ROUTES, rounds=st.integers(0, 12))
def test_a_returning_proxy_loses_no_route_during_the_search(
    first: dict[str, tuple[bool, tuple[str, ...], str]], rounds: int
) -> None:
    routes = [encoded(name, *at, pattern=pattern) for name, (_, at, pattern) in first.items()]
    bad = {name for name, (is_bad, _, _) in first.items() if is_bad}
    old, fresh, listeners = Proxy(bad), Proxy(bad), ["x", "y"]
    old.settle(RefusedRoutes(), routes, listeners)
    heir = RefusedRoutes()
    for _ in range(rounds):
        fresh._round(heir, routes, listeners)
    heir.choose(routes)
    for name, (version, _) in old.served.items():
        heir.resume(name, version)
    while old._round(heir, routes, listeners) or fresh._round(heir, routes, listeners):
        pass
    assert old.lost == []
    assert old.names() == fresh.names() == first.keys() - bad
    assert {part.name for part in heir.parts} == bad


def test_only_a_quoted_expression_is_blamed_at_once() -> None:
    bad, innocent = encoded("bad", "x", pattern="/a  b{9}"), encoded("innocent", "x", pattern="size")
    proxy = Proxy({"bad"}, lambda _names: "regex '/a b{9}' RE2 program size of 3000 > max program size of 2000")
    refused = RefusedRoutes()
    proxy.settle(refused, [bad, innocent], ["x"])
    assert (proxy.refusals, [part.name for part in refused.parts]) == (1, ["bad"])


def test_routes_that_wait_are_reported_until_the_culprit_is_known() -> None:
    refused = RefusedRoutes()
    routes = [encoded(name, "x") for name in ("a", "b")]
    refused.sent("x", "1", frozenset(refused.choose(routes)))
    assert refused.refused("x", "1", "no good")
    assert refused.searching
    ((kind, name, reason),) = refused.parts
    assert (kind, name) == ("route", "b")
    assert "waits" in reason


def test_a_configuration_that_is_gone_keeps_no_route_waiting() -> None:
    refused = RefusedRoutes()
    routes = [encoded(name, "x", "y") for name in ("a", "b")]
    chosen = frozenset(refused.choose(routes))
    refused.sent("x", "1", chosen)
    assert refused.refused("x", "1", "no good")
    refused.forget({"y"})
    assert not refused.searching
    assert refused.choose(routes) == routes


@pytest.mark.parametrize("version", ["1", "", "1-without-", "1-without-0123456789abcdef"])
def test_a_version_that_says_nothing_of_these_routes_leaves_nothing_out(version: str) -> None:
    refused = RefusedRoutes()
    refused.choose([encoded("a", "x")])
    assert not refused.resume("x", version)
