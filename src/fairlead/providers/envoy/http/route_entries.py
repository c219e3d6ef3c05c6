"""A route as entries of a virtual host, each encoded once.

In: a route. Out: its entries as bytes, with what decides their order. They depend on the listener's port (redirects)
and on a wildcard that stands for one label, so each such variant is encoded when it is first needed and kept: a changed
rule costs the entries of its own route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from fairlead.model.http import BackendRef, RequestMatch, Route, Rule
from fairlead.providers.envoy.http.held_routes import backends_of
from fairlead.providers.envoy.http.rate_limits import in_bucket
from fairlead.providers.envoy.http.route_action import ClusterOf, action_fields
from fairlead.providers.envoy.http.route_budget import Cost, cost_of
from fairlead.providers.envoy.http.route_filters import filter_settings
from fairlead.providers.envoy.http.route_match import Rank, match_fields, rank, takes_every_request
from fairlead.providers.envoy.http.sessions import (
    at_backend,
    backend_cookie,
    backends_of_sessions,
    set_backend_cookie,
)
from fairlead.providers.envoy.schema import Fields, Schema
from fairlead.providers.envoy.wire import delimited

ROUTE = "envoy.config.route.v3.Route"
_ROUTES_OF_VIRTUAL_HOST = 3


class Variant(NamedTuple):
    """What the entries of a route depend on beside the route."""

    port: int
    secure: bool
    #: The wildcard hostname of which the star is exactly one label; empty for none.
    one_label: str = ""


class RouteEntry(msgspec.Struct, frozen=True, gc=False):
    """One match of one rule: the encoded field of a virtual host. ``whole``: no request passes it."""

    rank: Rank
    content: bytes
    whole: bool


class EncodedRoute:
    """A route with its entries, by variant. Two are never equal: a changed route is another one."""

    __slots__ = ("_cluster_of", "_cost", "_entries", "_schema", "backends", "figures", "idle", "route", "sticky")

    def __init__(
        self,
        schema: Schema,
        route: Route,
        cluster_of: ClusterOf,
        figures: str = "",
        idle_of: Callable[[frozenset[str]], frozenset[str]] = lambda _names: frozenset(),
    ) -> None:
        self.route = route
        #: The backends that a session can name, and those of them that have no usable target now.
        self.sticky = frozenset(each.backend for rule in route.rules for each in backends_of_sessions(rule))
        self.idle = idle_of(self.sticky) if self.sticky else self.sticky
        #: The name under which its requests are counted; empty: they are not.
        self.figures = figures
        self.backends = frozenset(backends_of(route)) - {""}
        self._schema = schema
        self._cluster_of = cluster_of
        self._entries: dict[Variant, tuple[RouteEntry, ...]] = {}
        self._cost: Cost | None = None

    @property
    def cost(self) -> Cost:
        """Return what it costs at one hostname; of a route that Envoy takes."""
        if self._cost is None:
            self._cost = cost_of(self.route)
        return self._cost

    @property
    def buckets(self) -> Mapping[str, int]:
        """Return the requests of a second that each of its limited rules takes, by the name of the rule's bucket."""
        return {
            bucket_name(self.route, number): rule.requests_per_second
            for number, rule in enumerate(self.route.rules)
            if rule.requests_per_second
        }

    def entries(self, variant: Variant) -> tuple[RouteEntry, ...]:
        """Return the entries, in no particular order."""
        known = self._entries.get(variant)
        if known is None:
            known = self._entries[variant] = tuple(self._encode(variant))
        return known

    def _encode(self, variant: Variant) -> Iterator[RouteEntry]:
        for number, rule in enumerate(self.route.rules):
            common: dict[str, object] = {}
            if self.figures:
                common["stat_prefix"] = self.figures
            if rule.requests_per_second:
                common["metadata"] = in_bucket(bucket_name(self.route, number))
            if settings := filter_settings(self._schema, self.route, rule):
                common["typed_per_filter_config"] = settings
            sessions = backends_of_sessions(rule)
            for index, match in enumerate(rule.matches or (RequestMatch(),)):
                # Those of sessions have the rank of the match, and come before it.
                for backend in sessions:
                    if backend.backend not in self.idle:
                        yield self._entry(variant, number, index, match, at_backend(rule, backend), common, backend)
                yield self._entry(variant, number, index, match, rule, common)

    def _entry(
        self,
        variant: Variant,
        number: int,
        index: int,
        match: RequestMatch,
        rule: Rule,
        common: Fields,
        at: BackendRef | None = None,
    ) -> RouteEntry:
        """Encode a match of a rule; ``at``: for the sessions of this backend only."""
        written = self.route.rules[number]
        cookies = backends_of_sessions(written) if at is None else []
        fields: dict[str, object] = {
            "name": entry_name(self.route, written, number, index),
            "match": match_fields(
                match,
                self.route.kind,
                one_label=variant.one_label,
                cookie="" if at is None else backend_cookie(self.route, written, at),
            ),
            **action_fields(
                self._schema,
                rule,
                match,
                kind=self.route.kind,
                port=variant.port,
                secure=variant.secure,
                cluster_of=self._cluster_of,
                added_to_answers={
                    each.backend: set_backend_cookie(self.route, written, each) for each in cookies if each.backend
                },
            ),
            **common,
        }
        return RouteEntry(
            rank=rank(self.route, match, rule=number, number=index),
            content=route_field(self._schema.encode(ROUTE, fields)),
            whole=at is None and not variant.one_label and takes_every_request(match, self.route.kind),
        )


def route_field(route: bytes) -> bytes:
    """Return an encoded Route as a field of a virtual host."""
    return delimited(_ROUTES_OF_VIRTUAL_HOST, route)


def bucket_name(route: Route, number: int) -> str:
    """Name the bucket of a rule, in which all its requests count, whichever match and hostname they meet."""
    return f"{route.name}/{number}"


def entry_name(route: Route, rule: Rule, number: int, match: int) -> str:
    """Name an entry in access logs: route, rule (its name, or its number from 0), match."""
    return f"{route.name}/{rule.name or number}/{match}"
