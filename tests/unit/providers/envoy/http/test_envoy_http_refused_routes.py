"""A proxy that refuses configurations without naming the route: all good routes are served in the end, and always."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.http import Attachment, BackendRef, PathMatch, RequestMatch, Route, Rule
from fairlead.providers.envoy.http.refused_routes import RefusedRoutes
from fairlead.providers.envoy.http.route_action import refused_rule
from fairlead.providers.envoy.http.route_table import EncodedRoute
from fairlead.providers.envoy.resources import packaged_schema

SCHEMA = packaged_schema()
Routes = dict[str, bool]


def encoded(name: str, *listeners: str, pattern: str = "") -> EncodedRoute:
    path = PathMatch("RegularExpression", pattern) if pattern else PathMatch()
    route = Route(name, "HTTP", tuple(map(Attachment, listeners)), (Rule(matches=(RequestMatch(path=path),)),))
    return EncodedRoute(SCHEMA, route, str)


class Proxy:
    """A proxy with one configuration for each listener, and what a provider sends it."""

    def __init__(
        self,
        bad: set[str],
        message: Callable[[list[str]], str] = lambda _names: "no good",
        bad_rules: frozenset[Rule] = frozenset(),
    ) -> None:
        self.bad = bad
        self.bad_rules = bad_rules
        #: What is served of the rules of each route, by configuration.
        self.rules: dict[str, dict[str, tuple[Rule | None, ...]]] = {}
        self.message = message
        #: What it serves, by configuration: version and routes.
        self.served: dict[str, tuple[str, frozenset[str]]] = {}
        self.refusals = 0
        self.watch: Callable[[dict[str, tuple[Rule | None, ...]]], None] = lambda _rules: None
        self.lost: list[str] = []

    def settle(self, refused: RefusedRoutes, routes: list[EncodedRoute], listeners: list[str]) -> None:
        """Send like the provider until nothing is left to send."""
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
            content = sorted(f"{each.route.name}{hash(each.rules)}" for each in mine)
            version = ",".join(content) + refused.note({name})
            refused.sent(name, version, mine)
            if self.served.get(name, ("",))[0] == version:
                if refused.accepted(name, version):
                    return True
                continue
            bad_ones = [each.route.name for each in mine if not self.bad_rules.isdisjoint(each.rules)]
            if culprits := sorted({*bad_ones, *(each for each in names if each in self.bad)}):
                self.refusals += 1
                assert refused.refused(name, version, self.message(culprits)), "nothing is left to be done"
                return True
            self.watch({each.route.name: each.rules for each in mine})
            self.lost += sorted(self.served.get(name, ("", frozenset()))[1] - mine_names(mine))
            self.served[name] = version, mine_names(mine)
            self.rules[name] = {each.route.name: each.rules for each in mine}
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


def test_routes_that_wait_are_reported_until_the_rejected_one_is_known() -> None:
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


def rule_of(name: str, number: int) -> Rule:
    match = RequestMatch(path=PathMatch("PathPrefix", f"/{name}/{number}"))
    return Rule(str(number), (match,), backends=(BackendRef(name),))


#: Of a route, what its proxy refuses of each rule: nothing, the rule, or its match too.
RULES = st.lists(st.sampled_from(["good", "good", "good", "rule", "match"]), min_size=1, max_size=20)


def world_of(kinds: dict[str, list[str]]) -> tuple[list[EncodedRoute], frozenset[Rule], dict[str, list[Rule | None]]]:
    """Return routes, what a proxy refuses of their rules, and what is to be served of each route."""
    routes: list[EncodedRoute] = []
    bad: set[Rule] = set()
    served: dict[str, list[Rule | None]] = {}
    for name, kinds_of_rules in kinds.items():
        rules = [rule_of(name, number) for number in range(len(kinds_of_rules))]
        routes.append(EncodedRoute(SCHEMA, Route(name, "HTTP", (Attachment("x"),), tuple(rules)), str))
        bad |= {rule for rule, kind in zip(rules, kinds_of_rules, strict=True) if kind != "good"}
        bad |= {refused_rule(rule) for rule, kind in zip(rules, kinds_of_rules, strict=True) if kind == "match"}
        left = [
            rule if kind == "good" else refused_rule(rule) if kind == "rule" else None
            for rule, kind in zip(rules, kinds_of_rules, strict=True)
        ]
        if any(left):
            served[name] = left
    return routes, frozenset(bad), served


@pytest.mark.req("L7-1")
@given(kinds=st.dictionaries(st.text("abc", min_size=1, max_size=2), RULES, max_size=4), grown=RULES)
def test_of_a_refused_route_only_the_refused_rules_are_left_out(kinds: dict[str, list[str]], grown: list[str]) -> None:
    routes, bad, served = world_of(kinds)
    proxy = Proxy(set(), bad_rules=bad)
    refused = RefusedRoutes()
    proxy.settle(refused, routes, ["x"])
    assert {name: list(rules) for name, rules in proxy.rules.get("x", {}).items()} == served
    assert not refused.searching
    assert {each.route.name for each in refused.reduced} == {name for name in served if set(kinds[name]) != {"good"}}
    assert all(each.problems for each in refused.reduced)

    # A hub that starts goes on with what the proxy has: nothing is sent again.
    before = dict(proxy.served)
    heir = RefusedRoutes()
    proxy.settle(heir, routes, ["x"])
    assert proxy.served == before
    assert {each.route.name: each for each in heir.reduced} == {each.route.name: each for each in refused.reduced}

    # Rules that a proxy had are served while new ones of their route are tried.
    for name in served:
        changed, more_bad, now = world_of({**kinds, name: [*kinds[name], *grown]})
        more = [after if after.route.name == name else before for before, after in zip(routes, changed, strict=True)]
        proxy.bad_rules |= more_bad
        had = [rule for rule in served[name] if rule is not None and rule not in more_bad and rule.backends]
        seen: list[tuple[Rule | None, ...]] = []
        proxy.watch = lambda at, name=name, seen=seen: seen.append(at.get(name, ()))
        proxy.settle(heir, more, ["x"])
        assert {name: list(rules) for name, rules in proxy.rules["x"].items()} == now
        assert all(rule in rules for rules in seen for rule in had)
        proxy.settle(heir, routes, ["x"])


@pytest.mark.req("L7-1")
def test_of_many_rules_a_refused_one_is_found_in_few_steps() -> None:
    routes, bad, served = world_of({"r": ["good"] * 77 + ["rule"] + ["good"] * 50})
    proxy = Proxy(set(), bad_rules=bad)
    refused = RefusedRoutes()
    proxy.settle(refused, routes, ["x"])
    assert list(proxy.rules["x"]["r"]) == served["r"]
    assert proxy.refusals <= 1 + 8
    (reduced,) = refused.reduced
    assert list(reduced.problems) == [77]


@pytest.mark.req("L7-1")
def test_a_rule_whose_expression_is_quoted_is_found_at_once() -> None:
    bad = Rule(matches=(RequestMatch(path=PathMatch("RegularExpression", "/a  b{9}")),), backends=(BackendRef("b"),))
    good = rule_of("r", 1)
    route = Route("r", "HTTP", (Attachment("x"),), (bad, good))
    proxy = Proxy(set(), lambda _names: "regex '/a b{9}' RE2 program size of 3000", frozenset({bad, refused_rule(bad)}))
    refused = RefusedRoutes()
    proxy.settle(refused, [EncodedRoute(SCHEMA, route, str)], ["x"])
    assert proxy.refusals == 1
    assert proxy.rules["x"]["r"] == (None, good)


@pytest.mark.req("L7-1")
def test_a_route_that_is_refused_as_a_whole_is_left_out_as_a_whole() -> None:
    routes, _, _ = world_of({"bad": ["good"] * 4, "good": ["good"]})
    proxy = Proxy({"bad"})
    refused = RefusedRoutes()
    proxy.settle(refused, routes, ["x"])
    assert list(proxy.rules["x"]) == ["good"]
    assert [(part.kind, part.name) for part in refused.parts] == [("route", "bad")]
    assert refused.reduced == []
