"""Finds the route for which Envoy refuses a route configuration, so that all others are served.

``route_check`` finds what is known to be refused; this is for the rest. Envoy refuses a configuration as a whole and
goes on with the one before, so until that route is out, no other change on that port comes through. In: what was
sent, refusals and acknowledgements. Out: the routes to leave out: one that is named by Envoy's message, else those that
are new since the last good configuration are tried in parts, until one is left. All others are tried again after that.

Every attempt has all routes that a proxy has taken before. What is left out is a part of the configuration's version
(``note``), which a proxy shows when it connects again: the next hub begins with what is served (``resume``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b

import msgspec

from fairlead.model.http import Route, ValueMatch
from fairlead.model.observed import RefusedPart
from fairlead.providers.envoy.http.route_entries import EncodedRoute
from fairlead.providers.envoy.store import shortened

_SPACE = re.compile(r"\s+")
_NOTE = "-without-"
_WAITS = "it waits until it is known which route the proxy refuses; until then the version before is served, if any"


class RefusedRoutes:
    """The routes of one load balancer that its proxies refused, or that wait until the refused one is known."""

    def __init__(self) -> None:
        self._blamed: dict[EncodedRoute, str] = {}
        #: By the name of the configuration in which a refused route is searched for.
        self._waiting: dict[str, set[EncodedRoute]] = {}
        self._present: frozenset[EncodedRoute] = frozenset()
        #: The routes of the last configuration that was sent, and of the last that was accepted, by its name.
        self._sent: dict[str, tuple[str, frozenset[EncodedRoute]]] = {}
        self._good: dict[str, frozenset[EncodedRoute]] = {}
        #: The names of configurations of which all is known: the last one that was sent was accepted, and none waits.
        self._settled: set[str] = set()
        #: By the names of others, versions that say nothing new: those of this search, and those that were resumed.
        self._attempts: dict[str, set[str]] = {}

    @property
    def parts(self) -> list[RefusedPart]:
        """Return what is left out: each blamed route with Envoy's message, and those that wait."""
        blamed = [RefusedPart("route", encoded.route.name, message) for encoded, message in self._blamed.items()]
        return blamed + [RefusedPart("route", encoded.route.name, _WAITS) for encoded in self._all_waiting()]

    @property
    def searching(self) -> bool:
        """Return whether routes wait."""
        return bool(self._waiting)

    def choose(self, routes: Sequence[EncodedRoute]) -> list[EncodedRoute]:
        """Return those that are to be served; what no longer exists is forgotten."""
        self._present = frozenset(routes)
        if not (self._blamed or self._waiting):
            return list(routes)
        self._blamed = {encoded: message for encoded, message in self._blamed.items() if encoded in self._present}
        self._waiting = {name: left for name, each in self._waiting.items() if (left := each & self._present)}
        waiting = self._all_waiting()
        return [encoded for encoded in routes if encoded not in self._blamed and encoded not in waiting]

    def note(self, listeners: set[str]) -> str:
        """Return which routes at these listeners are left out, for the version of their configuration."""
        excluded = sorted(
            digest_of(encoded.route)
            for encoded in self._blamed.keys() | self._all_waiting()
            if any(attachment.listener in listeners for attachment in encoded.route.attachments)
        )
        return _NOTE + ",".join(excluded) if excluded else ""

    def sent(self, name: str, version: str, routes: frozenset[EncodedRoute]) -> None:
        """Store of which routes this version of a configuration consists."""
        self._sent[name] = (version, routes & self._present)
        if name not in self._settled:
            self._attempts.setdefault(name, set()).add(version)

    def forget(self, kept: AbstractSet[str]) -> None:
        """Drop what is kept of configurations that are no longer wanted."""
        self._sent = {name: sent for name, sent in self._sent.items() if name in kept}
        self._good = {name: good for name, good in self._good.items() if name in kept}
        self._waiting = {name: waiting for name, waiting in self._waiting.items() if name in kept}
        self._attempts = {name: attempts for name, attempts in self._attempts.items() if name in kept}
        self._settled &= kept

    def resume(self, name: str, version: str) -> bool:
        """Leave out what a hub before this one left out of the version that a proxy has; return whether that is new.

        They are tried again once the others are known to be good. Those that wait since a proxy without such a version
        refused what it was sent first are served again: this one has them, and is to keep them.
        """
        digests = set(version.partition(_NOTE)[2].split(",")) - {""}
        attempts = self._attempts.setdefault(name, set())
        if not digests or version in attempts or name in self._settled:
            return False
        attempts.add(version)
        known = frozenset[EncodedRoute]().union(*self._good.values())
        excluded = {encoded for encoded in self._present if digest_of(encoded.route) in digests}
        left = excluded - known - self._blamed.keys()
        others = set[EncodedRoute]().union(*(each for at, each in self._waiting.items() if at != name))
        before = self._waiting.pop(name, set[EncodedRoute]()) | others
        if left:
            self._waiting[name] = left
        return left | others != before

    def accepted(self, name: str, version: str) -> bool:
        """Store that a proxy took a version; return whether routes that waited are to be tried now."""
        sent = self._sent.get(name)
        if sent is None or sent[0] != version:
            return False
        self._good[name] = sent[1]
        if self._waiting.pop(name, None):
            return True
        self._settled.add(name)
        self._attempts.pop(name, None)
        return False

    def refused(self, name: str, version: str, message: str) -> bool:
        """Store that a proxy refused a version; return whether other routes are to be served now."""
        sent = self._sent.get(name)
        if sent is None or sent[0] != version:
            return False
        self._settled.discard(name)
        known = frozenset[EncodedRoute]().union(*self._good.values())
        new = sorted(sent[1] - known or sent[1] - self._good.get(name, frozenset()), key=_by_name)
        culprits = [encoded for encoded in new if _is_named(encoded.route, message)]
        if not culprits and len(new) == 1:
            culprits = new
        if culprits:
            self._blamed |= dict.fromkeys(culprits, f"the proxy refused it: {shortened(message)}")
            # Without the refused route all others are another configuration, which may well be good.
            self._waiting.pop(name, None)
        elif new:
            self._waiting.setdefault(name, set()).update(_suspected(new))
        return bool(new)

    def _all_waiting(self) -> set[EncodedRoute]:
        return set[EncodedRoute]().union(*self._waiting.values())


def _is_named(route: Route, message: str) -> bool:
    """Return whether Envoy's message, in which white space is one space, quotes an expression of this route."""
    return any(f"'{_SPACE.sub(' ', text)}'" in message for text in patterns(route))


def _by_name(encoded: EncodedRoute) -> str:
    return encoded.route.name


def _suspected(routes: Sequence[EncodedRoute]) -> Sequence[EncodedRoute]:
    """Return those of several routes that wait: the ones with regular expressions, or the second half."""
    risky = [encoded for encoded in routes if next(patterns(encoded.route), None) is not None]
    return risky if 0 < len(risky) < len(routes) else routes[len(routes) // 2 :]


def digest_of(route: Route) -> str:
    """Return what stands for a route in a note: the same for the same route, in every process."""
    return blake2b(msgspec.json.encode(route), digest_size=8).hexdigest()


def patterns(route: Route) -> Iterator[str]:
    """Yield the regular expressions of a route: what Envoy names when it refuses one."""
    for rule in route.rules:
        for match in rule.matches:
            if match.path.type == "RegularExpression" and match.path.value:
                yield match.path.value
            yield from (each.value for each in (*match.headers, *match.query_params) if is_pattern(each))


def is_pattern(match: ValueMatch) -> bool:
    """Return whether a value is a regular expression that says something."""
    return match.type == "RegularExpression" and bool(match.value)
