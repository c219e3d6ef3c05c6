"""Limits what the routes of one load balancer make of Envoy's configuration, and of the work for one request.

Envoy has each match of a route once for each hostname of each listener, with all that its rule does, and the rules of a
wildcard once more for each name below it: a route of some kilobytes could become gigabytes. A request is compared with
one expression after the other, and RE2 takes time in proportion to the size of each: Envoy's thread, which serves
other members, does nothing else meanwhile.

In: routes. Out: what is served of those that do not fit, and why. Older routes go first. A rule that does not fit
keeps its matches, which answer 500; if these do not fit either, it is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add, sub
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from fairlead.model.http import L7Listener, RequestMatch, Route, Rule
from fairlead.providers.envoy.http.names import normal, patterns_for
from fairlead.providers.envoy.http.route_action import origin_regex, refused_rule, sees_bodies
from fairlead.providers.envoy.http.route_match import age, encoded_regex, steps_of
from fairlead.providers.envoy.http.sessions import backends_of_sessions

#: Some 150,000 matches, for which Envoy's main thread needs about two seconds.
MAX_BYTES = 16 * 1024 * 1024
#: Instructions of RE2 for one host: with a path of 96 KiB these take up to a second.
MAX_STEPS = 4_000
#: Bytes of an entry in addition to the user's text; of a filter chain, and of each of its certificates.
_ENTRY_BYTES, _CHAIN_BYTES, _CERTIFICATE_BYTES = 100, 2_000, 8_000
#: The cost of compiling an instruction, up to 15 us, as bytes of configuration.
_STEP_BYTES = 100

_TOO_LARGE = (
    f"the routes of the load balancer would be larger than {MAX_BYTES // 1_048_576} MiB in Envoy, with each match once "
    "for each hostname. Use fewer hostnames, matches or filters, or another load balancer"
)
_TOO_MANY_STEPS = (
    f"the regular expressions for one host would have more than {MAX_STEPS:,} instructions together. "
    "Use fewer or smaller ones, or paths of type PathPrefix"
)


class Cost(NamedTuple):
    """The bytes of a route at one hostname, about, and the instructions of its regular expressions.

    ``everywhere`` are its bytes at all hostnames, ``of_wildcards`` those for each name that its wildcards may cover.
    ``names`` are those of its hostnames that wildcards may cover, ``chains`` its filter chains.
    """

    size: int
    steps: int
    everywhere: int
    of_wildcards: int
    names: int
    chains: int

    def plus(self, other: Cost) -> Cost:
        """Return the sum of two costs."""
        return Cost(*map(add, self, other))

    def minus(self, other: Cost) -> Cost:
        """Return the difference of two costs."""
        return Cost(*map(sub, self, other))


NO_COST = Cost(0, 0, 0, 0, 0, 0)


class _Place(msgspec.Struct):
    """The rules at one hostname of a listener.

    ``names``: how many names have its rules. ``below``: the most instructions that names below it have of their own.
    """

    size: int = 0
    steps: int = 0
    names: int = 0
    below: int = 0
    there: bool = False


class PricedRoute(NamedTuple):
    """A route, what is served of each of its rules (None: nothing), and the cost of that."""

    route: Route
    rules: tuple[Rule | None, ...]
    cost: Cost


class ReducedRoute(NamedTuple):
    """A route, what is served of each of its rules (None: nothing), and why some are not served as written.

    ``problems`` are by number of the rule, from 0.
    """

    route: Route
    rules: tuple[Rule | None, ...]
    problems: Mapping[int, str] = MappingProxyType({})


def cost_of(route: Route, rules: Iterable[Rule | None] | None = None) -> Cost:
    """Return what a route of requests, or the rule of a route of connections, costs at one hostname.

    ``rules`` are those that are served, if they differ from the written ones.
    """
    if route.kind not in ("HTTP", "GRPC"):
        size = _CHAIN_BYTES + sum(len(msgspec.json.encode(rule)) for rule in route.rules[:1])
        return _at_hostnames(route, size, 0, chains=True)
    size = steps = 0
    for rule in route.rules if rules is None else rules:
        if rule is None:
            continue
        matches = rule.matches or (RequestMatch(),)
        # A rule that keeps sessions at one of several backends has its matches once more for each of these, and one
        # whose processor sees bodies for upgrades.
        matches *= (1 + len(backends_of_sessions(rule))) * (1 + sees_bodies(rule))
        each = len(msgspec.json.encode(replace(rule, matches=()))) + _ENTRY_BYTES
        cors = sum(map(steps_of, _of_rule(rule)))
        own = sum(steps_of(pattern) for match in matches for pattern in _of_match(match))
        size += len(msgspec.json.encode(matches)) + len(matches) * (each + cors * _STEP_BYTES) + own * _STEP_BYTES
        steps += own + cors
    return _at_hostnames(route, size, steps, chains=False)


def _at_hostnames(route: Route, size: int, steps: int, *, chains: bool) -> Cost:
    hostnames = [host for attachment in route.attachments for host in attachment.hostnames or ("",)]
    wildcards = sum(map(_is_wildcard, hostnames))
    names = sum(host not in ("", "*") for host in hostnames)
    return Cost(size, steps, size * len(hostnames), size * wildcards, names, len(hostnames) if chains else 0)


def _of_match(match: RequestMatch) -> Iterator[str]:
    if match.path.type == "RegularExpression":
        yield match.path.value
    yield from (
        condition.value for condition in (*match.headers, *match.query_params) if condition.type == "RegularExpression"
    )
    yield from filter(
        None, (encoded_regex(parameter.value) for parameter in match.query_params if parameter.type == "Exact")
    )


def _of_rule(rule: Rule) -> Iterator[str]:
    origins = rule.filters.cors.allow_origins if rule.filters.cors is not None else ()
    return (origin_regex(origin) for origin in origins if "*" in origin)


def over_budget(routes: Mapping[str, PricedRoute], listeners: Sequence[L7Listener]) -> dict[str, ReducedRoute]:
    """Return what is served of the routes that do not fit, by name; empty when all fit."""
    if surely_fit(reduce(Cost.plus, (route.cost for route in routes.values()), NO_COST), listeners):
        return {}
    by_name = {listener.name: listener for listener in listeners}
    places = {name: _places(priced.route, by_name) for name, priced in routes.items()}
    budget = _Budget({place for each in places.values() for place in each if _is_wildcard(place[1])})
    reduced: dict[str, ReducedRoute] = {}
    for name in sorted(routes, key=lambda name: age(routes[name].route)):
        if problem := budget.problem(routes[name].cost, places[name]):
            reduced[name] = _reduced(routes[name], budget, places[name], problem)
    return reduced


def _reduced(priced: PricedRoute, budget: _Budget, places: Mapping[tuple[str, str], int], problem: str) -> ReducedRoute:
    route = priced.route
    if route.kind not in ("HTTP", "GRPC"):
        return ReducedRoute(route, (None,) * len(route.rules), dict.fromkeys(range(len(route.rules)), problem))
    kept: list[Rule | None] = []
    problems: dict[int, str] = {}
    for number, rule in enumerate(priced.rules):
        fits = rule
        if rule is not None and (why := budget.problem(cost_of(route, (rule,)), places)):
            problems[number] = why
            fits = refused_rule(rule)
            if fits == rule or budget.problem(cost_of(route, (fits,)), places):
                fits = None
        kept.append(fits)
    return ReducedRoute(route, tuple(kept), problems)


def surely_fit(total: Cost, listeners: Iterable[L7Listener]) -> bool:
    """Return whether routes that cost ``total`` fit even if each wildcard covered every name: nearly always."""
    size = total.everywhere + total.of_wildcards * total.names
    if total.chains:
        size += (
            total.chains * max((len(listener.certificates) for listener in listeners), default=0) * _CERTIFICATE_BYTES
        )
    return size <= MAX_BYTES and total.steps <= MAX_STEPS


def _places(route: Route, listeners: Mapping[str, L7Listener]) -> dict[tuple[str, str], int]:
    """Return the hostnames of a route at each listener, with the cost of each in addition to the route."""
    places: dict[tuple[str, str], int] = {}
    for attachment in route.attachments:
        listener = listeners.get(attachment.listener)
        if listener is None:
            continue
        beside = 0 if route.kind in ("HTTP", "GRPC") else len(listener.certificates) * _CERTIFICATE_BYTES
        for hostname in attachment.hostnames or (listener.hostname,):
            places[listener.name, normal(hostname)] = beside
    return places


def _is_wildcard(hostname: str) -> bool:
    return hostname in ("", "*") or hostname.startswith("*.")


class _Budget:
    """The cost of the routes so far; ``wildcards`` are all wildcards of all routes."""

    def __init__(self, wildcards: Collection[tuple[str, str]]) -> None:
        self._wildcards = wildcards
        self._at: dict[tuple[str, str], _Place] = {}
        self._size = 0

    def problem(self, cost: Cost, places: Mapping[tuple[str, str], int]) -> str:
        """Add a route and return an empty text, or return why the route is left out."""
        chains = {place: self._chain(*place) for place in places}
        size = 0
        for place, beside in places.items():
            own, *above = chains[place]
            if sum(part.steps for part in chains[place]) + own.below + cost.steps > MAX_STEPS:
                return _TOO_MANY_STEPS
            # Its own names below its own wildcards are not counted yet: all of them may be.
            names = max(1, own.names) + (len(places) - 1 if _is_wildcard(place[1]) else 0)
            size += cost.size * names + beside + (0 if own.there else sum(part.size for part in above))
            if self._size + size > MAX_BYTES:
                return _TOO_LARGE
        self._size += size
        for chain in chains.values():
            self._take(cost, chain)
        return ""

    def _take(self, cost: Cost, chain: Iterable[_Place]) -> None:
        own, *above = chain
        if not own.there:
            own.there = True
            for place in (own, *above):
                place.names += 1
        own.size += cost.size
        own.steps += cost.steps
        most = own.steps + own.below
        for place in above:
            place.below = max(place.below, most)
            most = place.steps + place.below

    def _chain(self, listener: str, hostname: str) -> list[_Place]:
        """Return what is at a hostname and at the wildcards over it, the nearest first."""
        return [
            self._at.setdefault((listener, pattern), _Place())
            for pattern in patterns_for(hostname)
            if pattern == hostname or (listener, pattern) in self._wildcards
        ]
