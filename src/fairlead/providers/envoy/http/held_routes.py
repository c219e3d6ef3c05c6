"""Routes that wait until the targets of a new backend are known.

A changed route comes with ``ensure``, the targets of its new backends after it with ``apply``. Between the two it would
be answered 503. So the version that is served stays, with its backends, until every new backend has its first target,
or until ``release``: a backend may have no targets at all. Nothing waits before the first configuration is served.

In: configurations, names of backends that got a target. Out: the routes and backends to be served now.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.model.http import Backend, L7Config, Route

#: How long a route may wait for targets, in seconds.
HOLD_S = 2.0


class HeldRoutes:
    """The routes of one load balancer."""

    def __init__(self) -> None:
        self.routes: list[Route] = []
        self.backends: list[Backend] = []
        self._config: L7Config | None = None
        self._served: dict[str, Route] = {}
        self._served_backends: dict[str, Backend] = {}
        self._awaited: set[str] = set()
        self._holding = False

    @property
    def awaited(self) -> frozenset[str]:
        """Return the backends for which a route waits."""
        return frozenset(self._awaited) if self._holding else frozenset()

    def update(self, config: L7Config) -> None:
        """Take over a configuration."""
        names = {backend.name for backend in config.backends}
        if self._config is not None:
            self._awaited |= names - self._served_backends.keys()
        self._awaited &= names
        self._config = config
        self._choose(config)

    def has_target(self, backend: str) -> bool:
        """Store that a backend has a target; return whether that ends the waiting of a route."""
        if backend not in self._awaited:
            return False
        self._awaited.discard(backend)
        return self._again()

    def release(self, backends: frozenset[str]) -> bool:
        """Wait no longer for these; return whether a route did."""
        self._awaited -= backends
        return self._again()

    def _again(self) -> bool:
        if not self._holding or self._config is None:
            return False
        self._choose(self._config)
        return True

    def _choose(self, config: L7Config) -> None:
        self._holding = False
        kept: set[str] = set()
        self.routes = [] if self._awaited else list(config.routes)
        for route in config.routes if self._awaited else ():
            served = self._served.get(route.name)
            if served is route or self._awaited.isdisjoint(backends_of(route)):
                self.routes.append(route)
                continue
            self._holding = True
            if served is not None:
                self.routes.append(served)
                kept.update(backends_of(served))
        self._served = {route.name: route for route in self.routes}
        given = {backend.name for backend in config.backends}
        old = [backend for name, backend in self._served_backends.items() if name in kept and name not in given]
        self.backends = [*config.backends, *old]
        self._served_backends = {backend.name: backend for backend in self.backends}


def backends_of(route: Route) -> Iterator[str]:
    """Yield the backends that a route names, mirrors too; some may come twice."""
    for rule in route.rules:
        for backend in rule.backends:
            yield backend.backend
            yield from (mirror.backend for mirror in backend.filters.mirrors)
        yield from (mirror.backend for mirror in rule.filters.mirrors)
