"""The routes of a load balancer that are served, and those that are left out.

In: all routes. Out: the encoded ones of HTTP and gRPC, those of connections as they are, and which routes and rules are
refused, with the reason. A route that has not changed is the same object as before, with its encoded entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.model.http import L7Listener, Route, RouteKind
from fairlead.model.observed import RefusedPart
from fairlead.providers.envoy.http.route_action import ClusterOf
from fairlead.providers.envoy.http.route_budget import cost_of, over_budget
from fairlead.providers.envoy.http.route_check import checked_route, invalid_hostnames
from fairlead.providers.envoy.http.route_entries import EncodedRoute
from fairlead.providers.envoy.http.stream_routes import Attached, attached_by_listener
from fairlead.providers.envoy.schema import Schema

_REQUESTS = frozenset({"HTTP", "GRPC"})


class Routes:
    """The routes of one load balancer."""

    def __init__(self, schema: Schema, cluster_of: ClusterOf) -> None:
        self.encoded: list[EncodedRoute] = []
        #: What is left out, and why.
        self.refused: list[RefusedPart] = []
        #: The backends that sessions can name, and whether each was encoded as one without a usable target.
        self.sticky: dict[str, bool] = {}
        self._schema = schema
        self._cluster_of = cluster_of
        #: By name each route as it was given, and what is served of it; None when nothing is.
        self._known: dict[str, tuple[Route, EncodedRoute | None]] = {}
        self._parts: dict[str, tuple[RefusedPart, ...]] = {}
        self._streams: dict[str, Attached] = {}
        #: What the limits were last applied to, and what is above them.
        self._limited: object = None
        self._excess: dict[str, str] = {}

    def update(
        self,
        routes: Sequence[Route],
        listeners: Sequence[L7Listener] = (),
        figures_of: Callable[[Route], str] = lambda _route: "",
        idle_of: Callable[[frozenset[str]], frozenset[str]] = lambda _names: frozenset(),
    ) -> None:
        """Take over the routes of ``listeners``; only changed ones are checked and encoded.

        ``figures_of`` returns the name under which the requests of one are counted, empty for none; ``idle_of`` those
        of several backends that have no usable target.
        """
        known: dict[str, tuple[Route, EncodedRoute | None]] = {}
        parts: dict[str, tuple[RefusedPart, ...]] = {}
        streams: dict[str, Route] = {}
        for route in routes:
            name = route.name
            if route.kind not in _REQUESTS:
                if (refusal := invalid_hostnames(route)) is not None:
                    parts[name] = (refusal,)
                else:
                    streams[name] = route
                continue
            before, encoded = self._known.get(name, (None, None))
            figures = figures_of(route)
            same = before is route or before == route
            if same and (
                encoded is None
                or (encoded.figures == figures and (not encoded.sticky or encoded.idle == idle_of(encoded.sticky)))
            ):
                known[name] = (route, encoded)
                if name in self._parts:
                    parts[name] = self._parts[name]
                continue
            checked = checked_route(route)
            if isinstance(checked, RefusedPart):
                known[name], parts[name] = (route, None), (checked,)
                continue
            known[name] = (route, EncodedRoute(self._schema, checked.route, self._cluster_of, figures, idle_of))
            if checked.refused:
                parts[name] = checked.refused
        self._known, self._parts = known, parts
        encoded_routes = [encoded for _, encoded in known.values() if encoded is not None and encoded.sticky]
        self.sticky = {name: name in each.idle for each in encoded_routes for name in each.sticky}
        served = {name: encoded for name, (_, encoded) in known.items() if encoded is not None}
        limited = (served, streams, tuple(listeners))
        if limited != self._limited:
            costs = {name: (each.route, each.cost) for name, each in served.items()}
            costs |= {name: (route, cost_of(route)) for name, route in streams.items() if route.kind == "TLS"}
            self._limited, self._excess = limited, over_budget(costs, listeners)
        excess = self._excess
        kept = [route for name, route in streams.items() if name not in excess]
        self._streams = {
            kind: attached_by_listener(route for route in kept if route.kind == kind)
            for kind in {route.kind for route in kept}
        }
        self.refused = [part for name, each in parts.items() if name not in excess for part in each]
        self.refused += [RefusedPart("route", name, problem) for name, problem in excess.items()]
        self.encoded = [encoded for name, encoded in served.items() if name not in excess]

    def streams(self, kind: RouteKind) -> Attached:
        """Return the routes of connections or datagrams of a kind, by listener."""
        return self._streams.get(kind, {})
