"""Finds the route for which Envoy refuses a route configuration, so that all others are served.

``route_check`` finds what is known to be refused; this is for the rest. Envoy refuses a configuration as a whole and
goes on with the one before, so until the culprit is out, no other change on that port comes through. In: what was
sent, refusals and acknowledgements. Out: the routes to leave out: one that is named by Envoy's message, else halves of
those that are new since the last good configuration, until one is left. The innocent ones come back after that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.model.http import Route, ValueMatch
from fairlead.providers.envoy.http.route_entries import EncodedRoute


class RefusedRoutes:
    """The routes of one load balancer that its proxies refused, or that wait until the culprit is known."""

    def __init__(self) -> None:
        self._blamed: dict[EncodedRoute, str] = {}
        self._waiting: set[EncodedRoute] = set()
        #: The routes of the last configuration that was sent, and of the last that was accepted, by its name.
        self._sent: dict[str, tuple[str, frozenset[EncodedRoute]]] = {}
        self._good: dict[str, frozenset[EncodedRoute]] = {}

    @property
    def reasons(self) -> dict[str, str]:
        """Return Envoy's message about each blamed route, by its name."""
        return {encoded.route.name: message for encoded, message in self._blamed.items()}

    def choose(self, routes: Sequence[EncodedRoute]) -> list[EncodedRoute]:
        """Return those that are to be served; what no longer exists is forgotten."""
        if not (self._blamed or self._waiting):
            return list(routes)
        present = set(routes)
        self._blamed = {encoded: message for encoded, message in self._blamed.items() if encoded in present}
        self._waiting &= present
        return [encoded for encoded in routes if encoded not in self._blamed and encoded not in self._waiting]

    def sent(self, name: str, version: str, routes: frozenset[EncodedRoute]) -> None:
        """Store of which routes this version of a configuration consists."""
        self._sent[name] = (version, routes)

    def accepted(self, name: str, version: str) -> bool:
        """Store that a proxy took a version; return whether routes that waited may be tried now."""
        sent = self._sent.get(name)
        if sent is None or sent[0] != version:
            return False
        self._good[name] = sent[1]
        waited = bool(self._waiting)
        self._waiting.clear()
        return waited

    def refused(self, name: str, version: str, message: str) -> bool:
        """Store that a proxy refused a version; return whether other routes are to be served now."""
        sent = self._sent.get(name)
        if sent is None or sent[0] != version:
            return False
        new = sorted(sent[1] - self._good.get(name, frozenset()), key=lambda encoded: encoded.route.name)
        named = [encoded for encoded in new if any(text in message for text in patterns(encoded.route))]
        culprits = named or (new if len(new) == 1 else [])
        self._blamed |= dict.fromkeys(culprits, f"the proxy refused it: {message}")
        if not culprits:
            self._waiting.update(new[len(new) // 2 :])
        return bool(new)


def patterns(route: Route) -> Iterator[str]:
    """Yield the regular expressions of a route: what Envoy names when it refuses one."""
    for rule in route.rules:
        for match in rule.matches:
            if match.path.type == "RegularExpression":
                yield match.path.value
            yield from (each.value for each in (*match.headers, *match.query_params) if is_pattern(each))


def is_pattern(match: ValueMatch) -> bool:
    """Return whether a value is a regular expression that says something."""
    return match.type == "RegularExpression" and bool(match.value)
