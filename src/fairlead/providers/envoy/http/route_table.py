"""The routes at each hostname of each listener, and the places that a change touches.

In: the encoded routes, time after time. Out: routes by listener and hostname, and the touched places: the cost of a
changed route does not depend on how many others there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fairlead.providers.envoy.http.hostnames import normal
from fairlead.providers.envoy.http.route_entries import EncodedRoute


class HostRoute(NamedTuple):
    """A route at a hostname; ``one_label``: the star of the hostname stands for exactly one label."""

    route: EncodedRoute
    one_label: bool


#: For each hostname of a listener its routes, in no particular order.
AtListener = dict[str, dict[HostRoute, None]]


class RouteTable:
    """The routes of one load balancer by place."""

    def __init__(self) -> None:
        self.by_listener: dict[str, AtListener] = {}
        #: How many entries of routes name a backend, by listener and backend.
        self.backends: dict[str, Counter[str]] = {}
        #: At how many places each route is, by listener.
        self._at: dict[str, Counter[EncodedRoute]] = {}
        self._hostnames: dict[str, str] = {}
        self._routes: dict[EncodedRoute, None] = {}

    def update(self, routes: Sequence[EncodedRoute], hostnames: Mapping[str, str]) -> set[tuple[str, str]] | None:
        """Take over routes; returns the touched (listener, hostname), or None when everything may have changed.

        ``hostnames`` are those of the listeners, by name.
        """
        touched: set[tuple[str, str]] | None = set()
        if hostnames != self._hostnames:
            self._hostnames, self._routes, touched = dict(hostnames), {}, None
            self.by_listener = {name: {} for name in hostnames}
            self.backends = {name: Counter() for name in hostnames}
            self._at = {name: Counter() for name in hostnames}
        new = dict.fromkeys(routes)
        for route in [route for route in self._routes if route not in new]:
            for listener, hostname, host_route in self._places(route):
                self._take_away(listener, hostname, host_route)
                if touched is not None:
                    touched.add((listener, hostname))
        for route in [route for route in routes if route not in self._routes]:
            for listener, hostname, host_route in self._places(route):
                self.by_listener[listener].setdefault(hostname, {})[host_route] = None
                self.backends[listener].update(route.backends)
                self._at[listener][route] += 1
                if touched is not None:
                    touched.add((listener, hostname))
        self._routes = new
        return touched

    def routes_of(self, listeners: Iterable[str]) -> frozenset[EncodedRoute]:
        """Return the routes at these listeners."""
        return frozenset[EncodedRoute]().union(*(self._at[listener] for listener in listeners))

    def _take_away(self, listener: str, hostname: str, host_route: HostRoute) -> None:
        at_listener = self.by_listener[listener]
        at_listener[hostname].pop(host_route, None)
        if not at_listener[hostname]:
            del at_listener[hostname]
        at = self._at[listener]
        at[host_route.route] -= 1
        if at[host_route.route] <= 0:
            del at[host_route.route]
        counts = self.backends[listener]
        for backend in host_route.route.backends:
            counts[backend] -= 1
            if counts[backend] <= 0:
                del counts[backend]

    def _places(self, encoded: EncodedRoute) -> Iterator[tuple[str, str, HostRoute]]:
        places: dict[tuple[str, str, HostRoute], None] = {}
        for attachment in encoded.route.attachments:
            own = self._hostnames.get(attachment.listener)
            if own is None:
                continue
            for hostname in attachment.hostnames or (own,):
                name = normal(hostname)
                one_label = attachment.one_label and name.startswith("*.")
                places[attachment.listener, name, HostRoute(encoded, one_label)] = None
        yield from places
