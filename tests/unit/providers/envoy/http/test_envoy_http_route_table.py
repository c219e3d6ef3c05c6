"""Which routes are at which place: added, taken away, at several places."""

from __future__ import annotations

from fairlead.model.http import Attachment, BackendRef, Route, Rule
from fairlead.providers.envoy.http.route_table import EncodedRoute, RouteTable
from fairlead.providers.envoy.resources import packaged_schema

SCHEMA = packaged_schema()
HOSTNAMES = {"http": "", "https": "shop.example.com"}


def encoded(name: str, *attachments: Attachment, backend: str = "web", limit: int = 0) -> EncodedRoute:
    rule = Rule(backends=(BackendRef(backend),), requests_per_second=limit)
    route = Route(name, "HTTP", attachments, (rule,))
    return EncodedRoute(SCHEMA, route, lambda each: each)


def test_a_route_is_at_each_listener_that_takes_it_until_it_goes() -> None:
    table = RouteTable()
    both = encoded("both", Attachment("http", ("a.example", "b.example")), Attachment("https"))
    other = encoded("other", Attachment("http", ("a.example",)), backend="api")
    assert table.update([both, other], HOSTNAMES) is None, "everything may have changed"
    assert table.routes_of(["http"]) == {both, other}
    assert table.routes_of(["https"]) == {both}
    assert table.routes_of(["http", "https"]) == {both, other}
    assert table.backends["http"] == {"web": 2, "api": 1}
    assert table.update([other], HOSTNAMES) == {
        ("http", "a.example"), ("http", "b.example"), ("https", "shop.example.com"),
    }  # fmt: skip
    assert table.routes_of(["http", "https"]) == {other}
    assert table.backends["http"] == {"api": 1}


def test_what_has_not_changed_touches_nothing() -> None:
    table = RouteTable()
    other = encoded("other", Attachment("http", ("a.example",)))
    table.update([other], HOSTNAMES)
    assert table.update([other], HOSTNAMES) == set()
    assert table.update([other], {"http": "other.example"}) is None
    assert table.routes_of(["http"]) == {other}


def test_the_buckets_of_a_listener_are_those_of_its_routes() -> None:
    table = RouteTable()
    limited = encoded("r", Attachment("http", ("a.example", "b.example")), Attachment("https"), limit=5)
    table.update([limited], HOSTNAMES)
    assert table.buckets == {"http": {"r/0": 5}, "https": {"r/0": 5}}
    table.update([encoded("r", Attachment("http", ("a.example",)), limit=7)], HOSTNAMES)
    assert table.buckets == {"http": {"r/0": 7}, "https": {}}
    table.update([], HOSTNAMES)
    assert table.buckets == {"http": {}, "https": {}}
