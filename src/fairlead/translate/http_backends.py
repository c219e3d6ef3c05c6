"""The routes and backends of one HTTP load balancer with their targets; only differences are translated again.

In: the successive ``HTTPView`` values of a load balancer. Out: its configuration and targets, with identical objects
for unchanged parts, so that later steps can skip them too. Parts of views are immutable, and compared by identity.
Pure: the result depends on the last view alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import NamedTuple

from fairlead.api.httploadbalancer import HTTPLoadBalancerSpec, LoadBalancerRoute
from fairlead.api.names import ANNOTATION_ROUTE_FIGURES, LABEL_ORIGIN_UID
from fairlead.model.desired import Shares, Targets
from fairlead.model.http import Backend, L7Config, L7Listener, Route, differing_keys, differing_part
from fairlead.model.keys import Family, ListenerKey, TargetKey, backend_key
from fairlead.translate.endpoints import (
    MAX_TARGETS,
    Admission,
    EndpointState,
    TargetPolicy,
    addresses_in,
    by_port,
    node_families,
    owner_of_endpoints,
    targets_from_nodes,
    targets_from_slices,
)
from fairlead.translate.generated import with_challenge_listeners, with_generated_names
from fairlead.translate.view import HTTPView


class _Translated(NamedTuple):
    """One backend with its targets, and their source.

    ``owners`` are the Services whose endpoints it lists; empty if the slices do not say or there are none.
    ``endpoints`` is the number of examined endpoints.
    """

    backend: Backend
    source: object
    targets: Targets
    owners: frozenset[str]
    refused: frozenset[str]
    endpoints: int


class KnownTargets:
    """The targets of the backends of one load balancer; a changed backend costs only its own targets."""

    def __init__(self) -> None:
        self.backends: dict[ListenerKey, _Translated] = {}
        self.targets: dict[ListenerKey, Targets] = {}
        self.owners: dict[ListenerKey, frozenset[str]] = {}
        #: In how many backends each target is, and is ready.
        self.places: dict[TargetKey, list[int]] = {}
        #: The backends without a ready target.
        self.empty: set[ListenerKey] = set()
        self.refused: dict[ListenerKey, frozenset[str]] = {}
        self.endpoints = 0
        self._ready = 0

    @property
    def count(self) -> str:
        """Return "ready/total" of distinct targets."""
        return f"{self._ready}/{len(self.places)}"

    def put(self, key: ListenerKey, backend: _Translated) -> None:
        """Add or replace a backend."""
        self._uncount(key)
        self.backends[key], self.targets[key] = backend, backend.targets
        self.endpoints += backend.endpoints
        if backend.owners:
            self.owners[key] = backend.owners
        if backend.refused:
            self.refused[key] = backend.refused
        if all(target.draining for target in backend.targets.values()):
            self.empty.add(key)
        for place, target in backend.targets.items():
            self._count(place, 1, ready=not target.draining)

    def drop(self, key: ListenerKey) -> None:
        """Forget a backend."""
        self._uncount(key)
        del self.backends[key], self.targets[key]

    def _uncount(self, key: ListenerKey) -> None:
        if (known := self.backends.get(key)) is None:
            return
        self.endpoints -= known.endpoints
        self.empty.discard(key)
        self.owners.pop(key, None)
        self.refused.pop(key, None)
        for place, target in known.targets.items():
            self._count(place, -1, ready=not target.draining)

    def _count(self, place: TargetKey, by: int, *, ready: bool) -> None:
        counts = self.places.setdefault(place, [0, 0])
        self._ready -= counts[1] > 0
        counts[0] += by
        counts[1] += by * ready
        self._ready += counts[1] > 0
        if not counts[0]:
            del self.places[place]


class Translated:
    """The translation of the last view of one load balancer; parts with an identical source are kept."""

    def __init__(self) -> None:
        #: The routes without a backend that can be resolved, with the member's object.
        self.unresolved: dict[str, str] = {}
        self._config: L7Config | None = None
        self._made_of: tuple[object, ...] = ()
        #: The objects and their translated routes in the same order, and both by name.
        self._routes: tuple[LoadBalancerRoute, ...] = ()
        self._translated: tuple[Route, ...] = ()
        self._sources: dict[str, LoadBalancerRoute] = {}
        self._by_name: dict[str, Route] = {}
        #: The routes of each backend with their settings for it; the first by name counts.
        self._named_by: dict[str, dict[str, Backend]] = {}
        self._backends: dict[str, Backend] = {}
        self._listed: tuple[Backend, ...] = ()
        self._known = KnownTargets()
        self._targets_of: tuple[object, ...] = ()
        self._with_targets: tuple[Backend, ...] = ()
        self._slices: Mapping[str, object] = {}
        self._shared: Mapping[str, object] = {}
        #: How members share backends, and the source of this.
        self._shares: dict[str, Shares] = {}
        self._shares_of: tuple[object, ...] = ()

    def update_config(self, view: HTTPView, spec: HTTPLoadBalancerSpec) -> L7Config:
        """Return the configuration of ``view``; the same object if it is equal."""
        figures = view.load_balancer.annotation(ANNOTATION_ROUTE_FIGURES, "false") != "false"
        settings = (view.domains, spec.origin, spec.listeners, view.domain_certificates)
        made_of = (*settings, view.certificates, view.answers, figures, view.maintenance, spec.error_pages)
        same_settings = settings == self._made_of[: len(settings)]
        if same_settings and view.routes is self._routes and made_of == self._made_of and self._config is not None:
            return self._config
        listeners = self._update_routes(view, spec, again=not same_settings)
        self._made_of, self._routes = made_of, view.routes
        self._config = L7Config(
            listeners=with_challenge_listeners(listeners, view.answers),
            routes=self._translated,
            backends=self._listed,
            certificates=view.certificates,
            answers=view.answers,
            route_figures=figures,
            maintenance=view.maintenance,
            error_pages=spec.error_pages,
        )
        return self._config

    def update_shares(self, view: HTTPView, backends: tuple[Backend, ...]) -> Mapping[str, Shares]:
        """Return how members share ``backends``, by name; the same object if nothing differs."""
        source = (view.shared, backends, view.capabilities)
        if not all(map(is_, source, self._shares_of)) or not self._shares_of:
            self._shares_of = source
            listed = ((backend.name, view.shared_backend(backend)) for backend in backends) if view.shared else ()
            shares = {name: shared.shares for name, shared in listed if shared is not None}
            self._shares = self._shares if shares == self._shares else shares
        return self._shares

    def _update_routes(self, view: HTTPView, spec: HTTPLoadBalancerSpec, *, again: bool) -> tuple[L7Listener, ...]:
        """Update the changed routes, or all of them with ``again``; return the listeners."""
        old, new = differing_part(() if again else self._routes, view.routes)
        before = {route.metadata.name: route for route in self._routes[slice(None) if again else old]}
        present = {route.metadata.name: route for route in view.routes[new]}
        changed = [route for name, route in present.items() if again or before.get(name) is not route]
        names: set[str] = set()
        for name in before.keys() - present.keys():
            names |= self._drop_route(name)
        listeners, served = with_generated_names(
            view.domains, spec.origin, spec.listeners, changed, view.domain_certificates
        )
        for source, translated in zip(changed, served, strict=True):
            name, route, known = source.metadata.name, translated.route, self._by_name.get(source.metadata.name)
            names |= self._drop_route(name)
            self._sources[name], self._by_name[name] = source, known if known is not None and known == route else route
            if source.unresolved:
                self.unresolved[name] = source.unresolved
            for backend in source.spec.backends:
                self._named_by.setdefault(backend.name, {}).setdefault(name, backend)
                names.add(backend.name)
        kept = () if again else self._translated
        self._translated = (*kept[: old.start], *map(self._by_name.__getitem__, present), *kept[old.stop :])
        self._update_backends(names)
        return listeners

    def _drop_route(self, name: str) -> set[str]:
        """Drop a route; return the backends that it names."""
        self.unresolved.pop(name, None)
        if self._by_name.pop(name, None) is None:
            return set()
        backends = {backend.name for backend in self._sources.pop(name).spec.backends}
        for backend in backends:
            del self._named_by[backend][name]
            if not self._named_by[backend]:
                del self._named_by[backend]
        return backends

    def _update_backends(self, names: Iterable[str]) -> None:
        """Update these backends from the routes; the list stays the same object if nothing differs."""
        moved = False
        for name in names:
            by_route = self._named_by.get(name)
            backend = by_route[min(by_route)] if by_route else None
            if backend == self._backends.get(name):
                continue
            moved = True
            if backend is None:
                del self._backends[name]
            else:
                self._backends[name] = backend
        if moved:
            self._backends = {name: self._backends[name] for name in sorted(self._backends)}
            self._listed = tuple(self._backends.values())

    def update_targets(
        self, view: HTTPView, spec: HTTPLoadBalancerSpec, backends: tuple[Backend, ...], admission: Admission
    ) -> KnownTargets:
        """Return the targets of ``backends``, the backends of the configuration."""
        if view.member.drained:
            return _translate_all(view, spec, backends, admission)
        made_of = (view.nodes, spec.targets, admission.policy)
        if not self._targets_of or admission.policy != self._targets_of[-1]:
            self._known, self._targets_of, self._with_targets = KnownTargets(), (), ()
        known, same = self._known, bool(self._targets_of) and all(map(is_, made_of[:-1], self._targets_of))
        moved_from = (self._with_targets, self._slices, self._shared)
        if not same or not all(map(is_, moved_from, (backends, view.slices, view.shared))):
            old, new = differing_part(self._with_targets, backends)
            listed: Sequence[Backend] = backends
            if same:
                moved = differing_keys(self._slices, view.slices) | differing_keys(self._shared, view.shared)
                others = (*backends[: new.start], *backends[new.stop :]) if moved else ()
                listed = [*backends[new], *(backend for backend in others if backend.service in moved)]
            translate = _Translator(view, spec, admission.policy)
            changed = [
                (key, backend)
                for backend, source in zip(listed, _sources(view, spec, listed), strict=True)
                if (there := known.backends.get(key := backend_key(backend.name))) is None
                or there.backend is not backend
                or there.source is not source
            ]
            present = {backend.name for backend in backends[new]}
            gone = [backend_key(backend.name) for backend in self._with_targets[old] if backend.name not in present]
            if changed or gone:
                # Returned objects are never changed.
                known.targets, known.owners = dict(known.targets), dict(known.owners)
            for key in gone:
                known.drop(key)
            for key, backend in changed:
                known.put(key, translate(backend))
            self._targets_of, self._with_targets = made_of, backends
            self._slices, self._shared = view.slices, view.shared
        if known.endpoints > MAX_TARGETS:
            return _translate_all(view, spec, backends, admission)
        admission.refused.update(*known.refused.values())
        return known


def _sources(view: HTTPView, spec: HTTPLoadBalancerSpec, backends: Sequence[Backend]) -> list[object]:
    """Return the source of each backend's targets; another object if it differs."""
    slices, nodes = view.slices, view.nodes
    own: list[object]
    if spec.targets == "Node":
        own = [nodes if backend.node_port else slices.get(backend.service, ()) for backend in backends]
    else:
        own = [slices.get(backend.service, ()) for backend in backends]
    if not view.shared:
        return own
    return [view.shared_backend(backend) or source for backend, source in zip(backends, own, strict=True)]


class _Translator:
    """Translates single backends of one view."""

    def __init__(self, view: HTTPView, spec: HTTPLoadBalancerSpec, policy: TargetPolicy) -> None:
        self._view = view
        self._spec = spec
        self._at_nodes = spec.targets == "Node"
        self._policy = policy
        self._addresses: dict[tuple[Family, ...], Mapping[str, EndpointState]] = {}

    def __call__(self, backend: Backend, admission: Admission | None = None) -> _Translated:
        """Return the backend with the targets that ``admission`` accepts.

        Targets of a Service that members share were admitted for each member.
        """
        if (shared := self._view.shared_backend(backend)) is not None:
            return _Translated(backend, shared, shared.targets, shared.owners, frozenset(), len(shared.targets))
        admission = admission or Admission(self._policy)
        all_refused, left, refused = admission.refused, admission.left, set[str]()
        admission.refused = refused
        owners = frozenset[str]()
        if self._at_nodes and backend.node_port:
            targets = targets_from_nodes(self._nodes(backend.ip_families), backend.node_port, admission)
        else:
            slices = self._view.slices.get(backend.service, ())
            port = (backend.port_name, "UDP" if backend.protocol == "UDP" else "TCP")
            targets = targets_from_slices(by_port(slices).get(port, ()), admission, backend.service)
            uids = {endpoint_slice.label(LABEL_ORIGIN_UID) for endpoint_slice in slices}
            if uids and "" not in uids:
                owners = frozenset(owner_of_endpoints(backend.service, uid) for uid in uids)
        all_refused |= refused
        admission.refused = all_refused
        endpoints = left - admission.left + admission.full
        (source,) = _sources(self._view, self._spec, (backend,))
        return _Translated(backend, source, targets, owners, frozenset(refused), endpoints)

    def _nodes(self, families: tuple[Family, ...]) -> Mapping[str, EndpointState]:
        addresses = self._addresses.get(families)
        if addresses is None:
            wanted = node_families(families, ipv6=self._policy.ipv6)
            addresses = self._addresses[families] = addresses_in(self._view.nodes, wanted)
        return addresses


def _translate_all(
    view: HTTPView, spec: HTTPLoadBalancerSpec, backends: Sequence[Backend], admission: Admission
) -> KnownTargets:
    """Return the targets of all backends in their order, under one common limit."""
    translate, known = _Translator(view, spec, admission.policy), KnownTargets()
    for backend in backends:
        # A drained member has no targets; its owners are the owners of its endpoints. Others still serve shared
        # endpoints.
        drained = view.member.drained and view.shared_backend(backend) is None
        translated = translate(backend)._replace(targets={}) if drained else translate(backend, admission)
        known.put(backend_key(backend.name), translated)
    return known
