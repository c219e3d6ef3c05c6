"""The routes of a load balancer that are served, and those that are left out.

In: all routes. Out: the encoded ones of HTTP and gRPC, those of connections as they are, and why each of the others is
left out. A route that has not changed is the same object as before, with its encoded entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.model.http import L7Listener, Route, RouteKind
from fairlead.model.observed import RefusedPart
from fairlead.providers.envoy.http.route_action import ClusterOf
from fairlead.providers.envoy.http.route_budget import cost_of, over_budget
from fairlead.providers.envoy.http.route_check import invalid_hostnames, invalid_route
from fairlead.providers.envoy.http.route_entries import EncodedRoute
from fairlead.providers.envoy.http.stream_routes import Attached, attached_by_listener
from fairlead.providers.envoy.schema import Schema

_REQUESTS = frozenset({"HTTP", "GRPC"})
_SHOWN, _LONGEST = 5, 1_500


class Routes:
    """The routes of one load balancer."""

    def __init__(self, schema: Schema, cluster_of: ClusterOf) -> None:
        self.encoded: list[EncodedRoute] = []
        #: What is left out, and why.
        self.refused: list[RefusedPart] = []
        self._schema = schema
        self._cluster_of = cluster_of
        self._known: dict[str, EncodedRoute] = {}
        self._problems: dict[str, str] = {}
        self._streams: dict[str, Attached] = {}
        #: What the limits were last applied to, and what is above them.
        self._limited: object = None
        self._excess: dict[str, str] = {}

    def update(
        self,
        routes: Sequence[Route],
        listeners: Sequence[L7Listener] = (),
        figures_of: Callable[[Route], str] = lambda _route: "",
    ) -> None:
        """Take over the routes of ``listeners``; only changed ones are checked and encoded.

        ``figures_of`` returns the name under which the requests of one are counted, empty for none.
        """
        known: dict[str, EncodedRoute] = {}
        problems: dict[str, str] = {}
        streams: dict[str, Route] = {}
        for route in routes:
            if route.kind not in _REQUESTS:
                if reasons := invalid_hostnames(route):
                    problems[route.name] = _joined(reasons)
                    continue
                streams[route.name] = route
                continue
            before = self._known.get(route.name)
            figures = figures_of(route)
            if before is not None and before.figures == figures and (before.route is route or before.route == route):
                known[route.name] = before
                if self._problems and (problem := self._problems.get(route.name)) is not None:
                    problems[route.name] = problem
                continue
            known[route.name] = EncodedRoute(self._schema, route, self._cluster_of, figures)
            if reasons := invalid_route(route):
                problems[route.name] = _joined(reasons)
        self._known, self._problems = known, dict(problems)
        limited = (known, streams, tuple(listeners))
        if limited != self._limited:
            costs = {name: (each.route, each.cost) for name, each in known.items() if name not in problems}
            costs |= {name: (route, cost_of(route)) for name, route in streams.items() if route.kind == "TLS"}
            self._limited, self._excess = limited, over_budget(costs, listeners)
        problems |= self._excess
        served = [route for name, route in streams.items() if name not in problems]
        self._streams = {
            kind: attached_by_listener(route for route in served if route.kind == kind)
            for kind in {route.kind for route in served}
        }
        self.refused = [RefusedPart("route", name, problem) for name, problem in problems.items()]
        self.encoded = (
            [encoded for name, encoded in known.items() if name not in problems] if problems else [*known.values()]
        )

    def streams(self, kind: RouteKind) -> Attached:
        """Return the routes of connections or datagrams of a kind, by listener."""
        return self._streams.get(kind, {})


def _joined(reasons: Sequence[str]) -> str:
    """Return the first of what is wrong with a route, and how much more there is: it goes into a status."""
    more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
    return "; ".join(each[:_LONGEST] for each in reasons[:_SHOWN]) + more
