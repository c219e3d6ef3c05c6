"""A route as entries of a virtual host, each encoded once.

In: a route. Out: its entries as bytes, with what decides their order. They depend on the listener's port (redirects)
and on a wildcard that stands for one label, so each such variant is encoded when it is first needed and kept: a changed
rule costs the entries of its own route.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from fairlead.model.http import RequestMatch, Route, Rule
from fairlead.providers.envoy.http.held_routes import backends_of
from fairlead.providers.envoy.http.precedence import Rank, rank
from fairlead.providers.envoy.http.rate_limits import in_bucket
from fairlead.providers.envoy.http.route_action import ClusterOf, action_fields
from fairlead.providers.envoy.http.route_budget import Cost, cost_of
from fairlead.providers.envoy.http.route_filters import filter_settings
from fairlead.providers.envoy.http.route_match import match_fields, takes_every_request
from fairlead.providers.envoy.schema import Schema
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

    __slots__ = ("_cluster_of", "_cost", "_entries", "_schema", "backends", "figures", "route")

    def __init__(self, schema: Schema, route: Route, cluster_of: ClusterOf, figures: str = "") -> None:
        self.route = route
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
            settings = filter_settings(self._schema, rule)
            metadata = in_bucket(bucket_name(self.route, number)) if rule.requests_per_second else None
            for index, match in enumerate(rule.matches or (RequestMatch(),)):
                fields: dict[str, object] = {
                    "name": entry_name(self.route, rule, number, index),
                    "match": match_fields(match, self.route.kind, one_label=variant.one_label),
                    **action_fields(
                        self._schema,
                        rule,
                        match,
                        kind=self.route.kind,
                        port=variant.port,
                        secure=variant.secure,
                        cluster_of=self._cluster_of,
                    ),
                }
                if self.figures:
                    fields["stat_prefix"] = self.figures
                if metadata is not None:
                    fields["metadata"] = metadata
                if settings:
                    fields["typed_per_filter_config"] = settings
                yield RouteEntry(
                    rank=rank(self.route, match, rule=number, number=index),
                    content=route_field(self._schema.encode(ROUTE, fields)),
                    whole=not variant.one_label and takes_every_request(match, self.route.kind),
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
