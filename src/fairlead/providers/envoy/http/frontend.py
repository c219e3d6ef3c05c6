"""The resources of an L7 load balancer, and those that a change concerns.

In: specs; targets through its ``ports``, one for each backend. Out: ``ResourceChange``s, only those that differ: an
unchanged route, backend, certificate or listener is neither encoded nor compared byte by byte. It refuses nothing
silently: what is left out is in ``refused``, and the rest is served.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.http import (
    MAX_PAGE_BYTES,
    Attachment,
    BackendRef,
    FixedAnswer,
    L7Config,
    L7Listener,
    ListenerProtocol,
    Maintenance,
    Route,
    RouteKind,
    Rule,
    differing_part,
)
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey, backend_key
from fairlead.model.observed import RefusedPart
from fairlead.providers.envoy.clusters import CLUSTER, TargetPort, collector_clusters, udp_cluster_fields
from fairlead.providers.envoy.fleet import Fleet
from fairlead.providers.envoy.http.backend_clusters import BackendClusters, Name, endpoints_of
from fairlead.providers.envoy.http.listeners import ListenerEncoder, PortListeners, http3_listeners
from fairlead.providers.envoy.http.names import (
    figures_name,
    http3_listener_name,
    most_specific,
    normal,
    routes_name,
    udp_cluster_name,
    unresolved_name,
)
from fairlead.providers.envoy.http.refused_routes import (
    UNSEEN_CLIENTS,
    RefusedRoutes,
    checked_route,
    closed_to_all,
    invalid_hostnames,
    listeners_by_port,
    refused_parts,
    without_clients,
)
from fairlead.providers.envoy.http.route_action import (
    BANDWIDTH_LIMIT,
    LISTENER_SOURCES,
    LOCAL_RATE_LIMIT,
    RATE_LIMIT,
    RETRY_HEADER,
    ClusterOf,
    bandwidth_limit,
    rate_limits,
)
from fairlead.providers.envoy.http.route_budget import (
    NO_COST,
    PricedRoute,
    ReducedRoute,
    cost_of,
    over_budget,
    surely_fit,
)
from fairlead.providers.envoy.http.route_match import Rank
from fairlead.providers.envoy.http.route_table import (
    ROUTE,
    AtListener,
    Attached,
    EncodedRoute,
    HeldRoutes,
    RouteEntry,
    RouteTable,
    Variant,
    VirtualHosts,
    attached_by_listener,
    first_rule,
    route_field,
    routes_by_server_name,
)
from fairlead.providers.envoy.http.secrets import EnvoySecrets
from fairlead.providers.envoy.http.sessions import own_cookies
from fairlead.providers.envoy.resources import (
    EncodedResource,
    Fields,
    ResourceType,
    Schema,
    cluster_name,
    encoded_resource,
    listener_name,
    resource_name,
    text,
)
from fairlead.providers.envoy.settings import HttpSettings, http_settings
from fairlead.providers.envoy.store import ResourceChange

K = TypeVar("K", bound=Hashable)


class HttpFrontend:
    """One load balancer of requests; ``ports`` of an earlier one keep their targets.

    ``session_key`` seals the sessions of clients.
    """

    def __init__(
        self,
        schema: Schema,
        fleet: Fleet,
        spec: FrontendSpec,
        *,
        ports: Mapping[ListenerKey, TargetPort] | None = None,
        session_key: bytes = b"",
    ) -> None:
        self.refused: tuple[RefusedPart, ...] = ()
        self.http3_problem = ""
        self._schema = schema
        self._fleet = fleet
        self._spec = spec
        self._session_key = session_key
        self._bind_addresses: tuple[str, ...] = ()
        self._held = HeldRoutes()
        self._routes = Routes(schema, self._cluster_of)
        self._refused_routes = RefusedRoutes()
        self._answers = Answers(schema)
        self._table = RouteTable()
        self._route_configs = RouteConfigs(schema, spec.key)
        self._secrets = EnvoySecrets(schema, spec.key)
        self._backends = BackendClusters(schema, self._secrets, ports or {}, connections=fleet.connections_per_cluster)
        #: The resources that were last returned for the store, except those of the backends.
        self._current: dict[Name, EncodedResource] = {}
        #: What each listener was last encoded from: a port may have a thousand filter chains.
        self._made_of: dict[str, object] = {}
        #: The clusters of the backends when routes were last encoded.
        self._clusters: Mapping[str, str] = {}
        self._labels: dict[str, str] = {}
        self._udp_rules: dict[int, Rule | None] = {}

    @property
    def ports(self) -> Mapping[ListenerKey, TargetPort]:
        """Return the targets of each backend."""
        return self._backends.ports

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the names of all resources, each without the load balancer."""
        return self._labels

    def update(self, spec: FrontendSpec, *, bind_addresses: Sequence[str]) -> list[ResourceChange]:
        """Serve this, keeping the targets of backends that stay."""
        if spec.l7 is None:
            raise ValueError(f"{spec.key} has no L7 part")
        self._spec, self._bind_addresses = spec, tuple(bind_addresses)
        self._held.update(spec.l7)
        return self._changes(spec.l7)

    def refused_by_proxy(self, name: str, version: str, message: str) -> list[ResourceChange]:
        """Leave out what a proxy refused of a route configuration; returns what the others need."""
        again = self._refused_routes.refused(name, version, message)
        return self._changes(self._spec.l7) if again and self._spec.l7 is not None else []

    def resumed_from_proxy(self, name: str, version: str) -> list[ResourceChange]:
        """Leave out what a proxy has been without since before this hub; returns what the others need."""
        again = self._refused_routes.resume(name, version)
        return self._changes(self._spec.l7) if again and self._spec.l7 is not None else []

    @property
    def searching(self) -> bool:
        """Return whether routes wait until the ones that proxies refuse are found."""
        return self._refused_routes.searching

    def accepted_by_proxy(self, name: str, version: str) -> list[ResourceChange]:
        """Try the routes that waited until the refused one was found."""
        again = self._refused_routes.accepted(name, version)
        return self._changes(self._spec.l7) if again and self._spec.l7 is not None else []

    @property
    def awaited(self) -> frozenset[str]:
        """Return the new backends for whose targets a route waits."""
        return self._held.awaited

    def fleet_changed(self) -> list[ResourceChange]:
        """Announce HTTP/3 once the fleet serves it, or stop."""
        changed = self.http3_problem != self._fleet.http3_problem(self._spec)
        return self._changes(self._spec.l7) if changed and self._spec.l7 is not None else []

    def release(self, backends: frozenset[str]) -> list[ResourceChange]:
        """Serve the routes that wait for targets of these backends, even without targets."""
        return self._changes(self._spec.l7) if self._held.release(backends) and self._spec.l7 is not None else []

    def _sees(self, settings: HttpSettings, protocol: ListenerProtocol) -> bool:
        """Return whether the proxies see the addresses of clients of a listener, themselves or in a header."""
        return (
            self._fleet.sees_clients(self._spec)
            or (settings.accept_proxy_protocol is not None and protocol != "UDP")
            or (settings.trusted_hops > 0 and protocol in {"HTTP", "HTTPS"})
        )

    def _changes(self, config: L7Config) -> list[ResourceChange]:
        """Return the differences from the last returned resources."""
        spec = self._spec
        settings = http_settings(spec.parameters)
        sees = self._sees(settings, "HTTP")
        unseen = {
            listener.name
            for listener in config.listeners
            if listener.checks_sources and not self._sees(settings, listener.protocol)
        }
        if unseen:
            listeners = (
                closed_to_all(listener) if listener.name in unseen else listener for listener in config.listeners
            )
            config = replace(config, listeners=tuple(listeners))
        closed = [RefusedPart("listener", name, UNSEEN_CLIENTS) for name in unseen]
        if not sees and any(entry.allowed_sources for entry in config.maintenance):
            closed += [
                RefusedPart("maintenance", entry.host or "*", UNSEEN_CLIENTS)
                for entry in config.maintenance
                if entry.allowed_sources
            ]
            maintenance = (replace(entry, allowed_sources=()) for entry in config.maintenance)
            config = replace(config, maintenance=tuple(maintenance))
        self._secrets.update(config)
        changes = self._backends.update(spec, self._held.backends)
        wanted: dict[Name, EncodedResource] = {}
        self._routes.update(
            self._held.routes,
            config.listeners,
            (lambda route: figures_name(spec.key, route)) if config.route_figures else None,
            lambda backends: frozenset(filter(self._is_idle, backends)),
            sees_clients=sees,
        )
        self._update_listeners(config, wanted)
        self._secrets.drop_unused()
        wanted |= {(ResourceType.SECRET, name): secret for name, secret in self._secrets.resources.items()}
        self.refused = tuple(sorted({*self._refused_of_routes(), *self._secrets.refused, *closed}))
        changes += [
            ResourceChange(kind, name, resource)
            for (kind, name), resource in wanted.items()
            if self._current.get((kind, name)) is not resource
        ]
        changes += [ResourceChange(kind, name, None) for kind, name in self._current if (kind, name) not in wanted]
        self._current = wanted
        self._label(changes)
        return changes

    def _label(self, changes: Iterable[ResourceChange]) -> None:
        """Add the names of new resources to the labels, and remove names of deleted resources."""
        prefix = len(f"{self._spec.key}/")
        for name in {change.name for change in changes}:
            if any((kind, name) in self._current or (kind, name) in self._backends.resources for kind in ResourceType):
                self._labels[name] = name[prefix:]
            else:
                self._labels.pop(name, None)

    def _refused_of_routes(self) -> Iterator[RefusedPart]:
        """Yield which routes and rules are not served, each once."""
        whole = [*self._routes.refused, *self._refused_routes.parts]
        yield from whole
        reduced = dict(self._routes.reduced)
        for part in self._refused_routes.reduced:
            before = reduced.get(part.route.name, part)
            reduced[part.route.name] = part._replace(problems={**before.problems, **part.problems})
        for name in reduced.keys() - {part.name for part in whole}:
            yield from refused_parts(reduced[name])

    def target_changes(self, touched: Mapping[ListenerKey, bool]) -> list[ResourceChange]:
        """Return the endpoints of backends, and what else their targets are inside of, each once."""
        changes = [
            change
            for key, was_inline in touched.items()
            for change in self._backends.target_changes(self._spec, key, was_inline=was_inline)
        ]
        names = {key.backend for key in touched}
        for number, rule in self._udp_rules.items():
            if rule is not None and any(backend.backend in names for backend in rule.backends):
                for name, resource in self._udp_cluster(number, rule).items():
                    changes.append(ResourceChange(*name, resource))
                    if resource is None:
                        self._current.pop(name, None)
                    else:
                        self._current[name] = resource
        self._label(changes)
        sticky = self._routes.sticky
        begins = any(sticky[name] != self._is_idle(name) for name in names & sticky.keys())
        if (self._held.release(names) or begins) and self._spec.l7 is not None:
            changes += self._changes(self._spec.l7)
        return changes

    def removal(self) -> list[ResourceChange]:
        """Return the removal of everything."""
        return [ResourceChange(kind, name, None) for kind, name in (*self._current, *self._backends.resources)]

    # --- backends ---------------------------------------------------------------------------------------------

    def _cluster_of(self, backend: str) -> str:
        return cluster_name(self._spec.key, backend) if backend else unresolved_name(self._spec.key)

    def _is_idle(self, backend: str) -> bool:
        """Return whether a backend has no target for new requests: no session stays there."""
        held = self.ports.get(backend_key(backend))
        return held is None or not any(target.weight and not target.draining for target in held.targets.targets())

    def _udp_cluster(self, port: int, rule: Rule | None) -> dict[Name, EncodedResource | None]:
        name = udp_cluster_name(self._spec.key, port)
        used = {backend.backend for backend in rule.backends} if rule is not None else set[str]()
        listed = {
            backend: held.targets.targets()
            for backend in used
            if (held := self.ports.get(backend_key(backend))) is not None
        }
        merged = TargetPort(name)
        for target in weighted_targets(rule, listed):
            merged.put(target)
        inline = merged.targets.targets() if merged.inline else ()
        limit = self._fleet.connections_per_cluster
        content = self._schema.encode(CLUSTER, udp_cluster_fields(self._spec, name, inline, connections=limit))
        cluster = encoded_resource(ResourceType.CLUSTER, name, content, warms_by_ack=merged.inline)
        endpoints = None if merged.inline else endpoints_of(name, merged)
        return {(ResourceType.CLUSTER, name): cluster, (ResourceType.ENDPOINTS, name): endpoints}

    # --- listeners and routes ---------------------------------------------------------------------------------

    def _update_listeners(self, config: L7Config, wanted: dict[Name, EncodedResource]) -> None:
        spec = self._spec
        settings = http_settings(spec.parameters)
        self.http3_problem = self._fleet.http3_problem(spec)
        announced = replace(settings, http3=settings.http3 and not self.http3_problem)
        self._route_configs.configure(announced, config.maintenance)
        # Where clients hide behind a node's address, their ranges are checked in front of the proxy, not here.
        seen = spec if self._fleet.sees_clients(spec) else replace(spec, source_ranges=())
        encoder = ListenerEncoder(
            self._schema,
            seen,
            settings,
            cluster_of=self._cluster_of,
            routes_of=self._route_configs.name,
            error_pages=config.error_pages,
            session_key=self._session_key,
        )
        collectors = collector_clusters(self._schema, spec.key, settings.access_log, settings.tracing)
        self._keep(wanted, {(ResourceType.CLUSTER, name): cluster for name, cluster in collectors.items()})
        hostnames = {listener.name: listener.hostname for listener in config.listeners}
        answers = self._answers.routes(config.answers, config.listeners)
        if self._refused_routes.searching:
            served = (listener for listener in config.listeners if self._secrets.of_listener(listener) is not None)
            self._refused_routes.forget(self._route_configs.names(list(served)).keys())
        touched = self._table.update([*answers, *self._refused_routes.choose(self._routes.encoded)], hostnames)
        self._udp_rules = {}
        opened = {listener.key: listener for listener in spec.listeners}
        for key, listeners in listeners_by_port(config).items():
            if listeners[0].protocol == "UDP":
                rule = first_rule(listeners[0], self._routes.streams("UDP"))
                self._udp_rules[key.port] = rule
                cluster = udp_cluster_name(spec.key, key.port)
                self._keep(wanted, self._udp_cluster(key.port, rule))
                self._keep_listeners(
                    wanted,
                    resource_name(spec.key, key),
                    (cluster,),
                    lambda address, port=opened[key], listener=listeners[0], cluster=cluster: encoder.encode_udp(
                        port, listener, cluster, bind_address=address
                    ),
                )
            else:
                port = self._port(opened[key], listeners)
                self._route_configs.guard(port)
                needs = tuple(sorted(self._needs(port)))
                made_of = (port, needs, seen.source_ranges, settings, self._fleet.reuse_port, config.error_pages)
                owners = self._route_configs.owners(key, listeners)
                self._encode_routes(wanted, listeners, owners, port.closed, touched)
                if settings.http3 and http3_listeners(port):
                    self._keep_listeners(
                        wanted,
                        http3_listener_name(spec.key, key.port),
                        needs,
                        lambda address, port=port: encoder.encode_http3(port, bind_address=address),
                        made_of,
                    )
                self._keep_listeners(
                    wanted,
                    resource_name(spec.key, key),
                    needs,
                    lambda address, port=port: encoder.encode(
                        port, bind_address=address, reuse_port=self._fleet.reuse_port
                    ),
                    made_of,
                )
        configs = {name for kind, name in wanted if kind is ResourceType.ROUTES}
        self._route_configs.forget(configs)
        self._refused_routes.forget(configs)
        self._clusters = self._backends.clusters
        self._made_of = {
            name: parts for name, parts in self._made_of.items() if (ResourceType.LISTENER, name) in wanted
        }

    def _port(self, port: Listener, listeners: Sequence[L7Listener]) -> PortListeners:
        owners = {normal(listener.hostname): listener for listener in listeners}
        certificates: dict[str, tuple[str, ...]] = {}
        rules: dict[str, dict[str, Rule]] = {}
        closed: set[str] = set()
        for listener in listeners:
            usable = self._secrets.of_listener(listener)
            if usable is None:
                closed.add(listener.name)
                continue
            certificates[listener.name] = usable
            if listener.protocol == "TLS":
                routes = routes_by_server_name(listener, self._routes.streams("TLS"), owners)
                rules[listener.name] = {name: route.rules[0] for name, route in routes.items()}
            elif listener.protocol == "TCP" and (rule := first_rule(listener, self._routes.streams("TCP"))) is not None:
                rules[listener.name] = {"": rule}
        guarded = {
            listener.name for listener in listeners if listener.checks_sources or self._table.guarded[listener.name]
        }
        if guarded and listeners[0].protocol == "HTTP":
            guarded = {listener.name for listener in listeners}
        return PortListeners(
            port=port,
            listeners=listeners,
            rules=rules,
            certificates=certificates,
            closed=frozenset(closed),
            guarded=frozenset(guarded),
            logs=_asked_at(listeners, self._table.logs),
            jwt=_asked_at(listeners, self._table.jwt),
            processor_timeouts=_asked_at(listeners, self._table.processor_timeouts),
            sessions=frozenset(_asked_at(listeners, self._table.sessions)),
        )

    def _needs(self, port: PortListeners) -> set[str]:
        """Return the clusters without which a listener's connections would fail."""
        used = {
            backend.backend for rules in port.rules.values() for rule in rules.values() for backend in rule.backends
        }
        used |= {provider.backend for asked in port.jwt.values() for providers in asked for provider in providers}
        return {self._cluster_of(name) for name in used if name in self._backends.clusters}

    def _encode_routes(
        self,
        wanted: dict[Name, EncodedResource],
        listeners: Sequence[L7Listener],
        owners: Mapping[str, L7Listener],
        closed: frozenset[str],
        touched: set[tuple[str, str]] | None,
    ) -> None:
        touched_listeners = {listener for listener, _ in touched or ()}
        same_clusters = self._backends.clusters is self._clusters
        for name, served in self._route_configs.names(
            [listener for listener in listeners if listener.name not in closed]
        ).items():
            names = {listener.name for listener in served}
            current = self._current.get((ResourceType.ROUTES, name))
            if current is not None and touched is not None and names.isdisjoint(self._table.renamed) and same_clusters:
                needs = current.needs
            else:
                used: dict[str, None] = {}
                for listener in served:
                    used |= dict.fromkeys(self._table.backends[listener.name])
                needs = tuple(filter(None, map(self._backends.clusters.get, used)))
            if (
                current is not None
                and touched is not None
                and current.needs == needs
                and names.isdisjoint(touched_listeners)
                and self._route_configs.is_same(name, served, owners)
            ):
                wanted[ResourceType.ROUTES, name] = current
                continue
            routes = self._table.routes_of(names)
            buckets: dict[str, int] = {}
            for listener in served:
                buckets |= self._table.buckets[listener.name]
            content = self._route_configs.encode(
                name, served, owners, self._table.by_listener, touched, buckets=buckets
            )
            note = self._refused_routes.note(names)
            resource = encoded_resource(ResourceType.ROUTES, name, content, needs=needs, note=note)
            self._refused_routes.sent(name, resource.version, routes)
            self._keep(wanted, {(ResourceType.ROUTES, name): resource})

    def _keep_listeners(
        self,
        wanted: dict[Name, EncodedResource],
        name: str,
        needs: tuple[str, ...],
        encode: Callable[[str], bytes],
        made_of: object = None,
    ) -> None:
        """Add what ``encode`` makes of each address that is bound, once for each ``made_of`` if that is given."""
        for address in self._bind_addresses:
            own = listener_name(name, address)
            current = self._current.get((ResourceType.LISTENER, own))
            if current is not None and made_of is not None and self._made_of.get(own) == made_of:
                wanted[ResourceType.LISTENER, own] = current
                continue
            self._made_of[own] = made_of
            listener = encoded_resource(ResourceType.LISTENER, own, encode(address), needs=needs)
            self._keep(wanted, {(ResourceType.LISTENER, own): listener})

    def _keep(self, wanted: dict[Name, EncodedResource], new: Mapping[Name, EncodedResource | None]) -> None:
        """Add resources to the wanted ones; unchanged resources stay the same objects."""
        for name, resource in new.items():
            if resource is None:
                continue
            current = self._current.get(name)
            wanted[name] = current if current is not None and current == resource else resource


#: The sum of all weights stays below Envoy's limit (2^32 - 1 over a locality), with enough steps for exact shares.
_TOTAL = 1_000_000
#: Gets the share of backends that could not be resolved: nothing answers there.
NOWHERE = TargetKey("192.0.2.1", 9)


def weighted_targets(rule: Rule | None, targets: Mapping[str, Sequence[Target]]) -> list[Target]:
    """Return the targets of all backends, each with its part of the backend's weight."""
    backends = [backend for backend in rule.backends if backend.weight] if rule is not None else []
    if not any(backend.backend in targets for backend in backends):
        return []
    total = sum(backend.weight for backend in backends)
    merged: dict[TargetKey, Target] = {}
    for backend in backends:
        for target in _of_backend(backend, targets, total):
            seen = merged.get(target.key)
            weight = target.weight + (seen.weight if seen is not None else 0)
            merged[target.key] = replace(target, weight=weight)
    return list(merged.values())


def _of_backend(backend: BackendRef, targets: Mapping[str, Sequence[Target]], total: int) -> Iterable[Target]:
    if backend.backend not in targets:
        return [Target(NOWHERE, weight=max(1, backend.weight * _TOTAL // total))]
    usable = [target for target in targets[backend.backend] if target.weight and not target.draining]
    weights = sum(target.weight for target in usable)
    return [
        replace(target, weight=max(1, round(backend.weight * _TOTAL * target.weight / (total * weights))))
        for target in usable
    ]


_PORT = 80
#: Before every rank that a match of a route can have.
_FIRST: Rank = (-1, 0, 0, 0, 0, "", "", "", 0, 0)


def _asked_at(listeners: Sequence[L7Listener], counts: Mapping[str, Counter[K]]) -> Mapping[str, frozenset[K]]:
    """Return what routes ask of their listener, by its name; listeners without routes that ask are left out."""
    asked = {each.name: frozenset(+counts.get(each.name, Counter())) for each in listeners}
    if listeners[0].protocol == "HTTP":
        # The listeners of a port share one chain.
        asked = dict.fromkeys(asked, frozenset[K]().union(*asked.values()))
    return {name: each for name, each in asked.items() if each}


class AnswerRoute(EncodedRoute):
    """One answer, as a route without a backend."""

    is_answer = True

    __slots__ = ("_answer",)

    def __init__(self, schema: Schema, answer: FixedAnswer, listener: str) -> None:
        name = f"answer/{answer.hostname}{answer.path}"
        super().__init__(schema, Route(name, "HTTP", (Attachment(listener, (answer.hostname,)),), ()), str)
        self._answer = answer

    def _encode(self, variant: Variant) -> Iterator[RouteEntry]:
        del variant
        fields: dict[str, object] = {
            "name": self.route.name,
            "match": {"path": self._answer.path},
            "direct_response": {"status": 200, "body": {"inline_string": self._answer.content}},
            # Certificate authorities connect from addresses that no list of a listener contains.
            "typed_per_filter_config": {
                LISTENER_SOURCES: self._schema.any("envoy.config.route.v3.FilterConfig", {"disabled": True})
            },
        }
        content = route_field(self._schema.encode(ROUTE, fields))
        yield RouteEntry(rank=_FIRST, content=content, whole=False)


class Answers:
    """The answers of one load balancer."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: dict[tuple[FixedAnswer, str], AnswerRoute] = {}

    def routes(self, answers: Iterable[FixedAnswer], listeners: Sequence[L7Listener]) -> list[EncodedRoute]:
        """Return the answers at the listener of port 80 that has their name; without one they cannot be given."""
        at_port = {
            normal(listener.hostname): listener.name
            for listener in listeners
            if (listener.port, listener.protocol) == (_PORT, "HTTP")
        }
        routes: dict[tuple[FixedAnswer, str], AnswerRoute] = {}
        for answer in answers:
            owner = most_specific(normal(answer.hostname), at_port)
            if owner is not None:
                key = (answer, at_port[owner])
                routes[key] = self._known.get(key) or AnswerRoute(self._schema, *key)
        self._known = routes
        return list(routes.values())


_REQUESTS = frozenset({"HTTP", "GRPC"})


class Routes:
    """The routes of one load balancer; a change costs the routes that it concerns."""

    def __init__(self, schema: Schema, cluster_of: ClusterOf) -> None:
        self.encoded: list[EncodedRoute] = []
        #: Routes that are left out, with the reason; and routes with rules that are not served as written, by name.
        self.refused: list[RefusedPart] = []
        self.reduced: dict[str, ReducedRoute] = {}
        #: The backends that sessions can name, and whether each was encoded as one without a usable target.
        self.sticky: dict[str, bool] = {}
        self._schema = schema
        self._cluster_of = cluster_of
        #: The routes as they were given; by name what is served of those of requests, and the others.
        self._given: Sequence[Route] = ()
        self._served: dict[str, EncodedRoute] = {}
        self._flows: dict[str, Route] = {}
        #: By name what the check left out.
        self._checked: dict[str, ReducedRoute | RefusedPart] = {}
        #: By name the served routes whose sessions can name a backend, and those whose users named their cookies.
        self._sessions: dict[str, EncodedRoute] = {}
        self._cookies: dict[str, EncodedRoute] = {}
        #: The cost of all that is served, before the limits.
        self._total = NO_COST
        self._listeners: tuple[L7Listener, ...] = ()
        self._counted = False
        self._sees_clients = True
        self._streams: dict[str, Attached] = {}
        #: Routes above the limits, without the rules that are left out for that.
        self._excess: dict[str, ReducedRoute] = {}
        #: By name, a route that passed the check, and the same route with the rules that are served.
        self._changed: dict[str, tuple[EncodedRoute, EncodedRoute]] = {}

    def update(
        self,
        routes: Sequence[Route],
        listeners: Sequence[L7Listener] = (),
        figures_of: Callable[[Route], str] | None = None,
        idle_of: Callable[[frozenset[str]], frozenset[str]] = lambda _names: frozenset(),
        *,
        sees_clients: bool = True,
    ) -> None:
        """Take over the routes of ``listeners``; only changed ones are checked and encoded.

        ``figures_of`` returns the name under which the requests of one are counted, None when they are not counted;
        ``idle_of`` those of several backends that have no usable target. ``sees_clients``: the proxies see the
        addresses of clients.
        """
        again = (self._counted, self._sees_clients) != (figures_of is not None, sees_clients)
        if self._sees_clients != sees_clients:
            self._sees_clients = sees_clients
            for name in list(self._served):
                self._drop(name)
        old, new = differing_part(() if again else self._given, routes)
        before = {route.name: route for route in self._given[slice(None) if again else old]}
        offered = {route.name: route for route in routes[new]}
        gone = before.keys() - offered.keys()
        changed = {name: route for name, route in offered.items() if again or before.get(name) is not route}
        for name, encoded in self._sessions.items():
            if name not in gone and encoded.idle != idle_of(encoded.sticky):
                changed.setdefault(name, encoded.route)
        self._given = routes
        if not (changed or gone) and self._listeners == tuple(listeners):
            return
        flows, excess = dict(self._flows), self._excess
        self._counted, self._listeners = figures_of is not None, tuple(listeners)
        for name in gone:
            self._drop(name)
        for route in changed.values():
            self._take(route, "" if figures_of is None else figures_of(route), idle_of)
        self.sticky = {name: name in session.idle for session in self._sessions.values() for name in session.sticky}
        self._limit()
        if (flows, excess) != (self._flows, self._excess):
            kept = [route for name, route in self._flows.items() if name not in self._excess]
            self._streams = {
                kind: attached_by_listener(route for route in kept if route.kind == kind)
                for kind in {route.kind for route in kept}
            }
        self.refused = [checked for checked in self._checked.values() if isinstance(checked, RefusedPart)]
        self.reduced = {
            name: checked for name, checked in self._checked.items() if not isinstance(checked, RefusedPart)
        }
        for name, affordable in self._excess.items():
            before = self.reduced.get(name, affordable)
            self.reduced[name] = affordable._replace(problems={**before.problems, **affordable.problems})
        chosen = {**self._served, **{name: changed for name, (_, changed) in self._changed.items()}}
        self.encoded = [encoded for encoded in chosen.values() if not encoded.is_empty]

    def _drop(self, name: str) -> None:
        """Forget the served parts of a route."""
        self._checked.pop(name, None)
        if (flow := self._flows.pop(name, None)) is not None and flow.kind == "TLS":
            self._total = self._total.minus(cost_of(flow))
        if (encoded := self._served.pop(name, None)) is not None:
            self._total = self._total.minus(encoded.cost)
            self._sessions.pop(name, None)
            self._cookies.pop(name, None)

    def _take(self, route: Route, figures: str, idle_of: Callable[[frozenset[str]], frozenset[str]]) -> None:
        """Check and encode a route, unless what is known of it is the same."""
        name = route.name
        served = self._served.get(name)
        if (
            served is not None
            and (served.route, served.figures) == (route, figures)
            and (not served.sticky or served.idle == idle_of(served.sticky))
        ):
            return
        self._drop(name)
        if route.kind not in _REQUESTS:
            if (refusal := invalid_hostnames(route)) is not None:
                self._checked[name] = refusal
                return
            self._flows[name] = route
            if route.kind == "TLS":
                self._total = self._total.plus(cost_of(route))
            return
        checked = checked_route(route)
        if isinstance(checked, RefusedPart):
            self._checked[name] = checked
            return
        if not self._sees_clients:
            checked = without_clients(checked)
        if checked.problems:
            self._checked[name] = checked
        encoded = EncodedRoute(self._schema, route, self._cluster_of, figures, idle_of, checked.rules)
        self._served[name] = encoded
        self._total = self._total.plus(encoded.cost)
        if encoded.sticky:
            self._sessions[name] = encoded
        if encoded.names_cookies:
            self._cookies[name] = encoded

    def _limit(self) -> None:
        """Choose the rules that have cookies of their own, and those that fit into the limits."""
        served, listeners = self._served, self._listeners
        hostnames = {listener.name: listener.hostname for listener in listeners}
        rules = own_cookies(((cookie.route, cookie.rules) for cookie in self._cookies.values()), hostnames)
        changed = {name: self._with_rules(served[name], own) for name, own in rules.items()}
        total = self._total
        for name, encoded in changed.items():
            total = total.minus(served[name].cost).plus(encoded.cost)
        self._excess = {}
        if not surely_fit(total, listeners):
            encoded_routes = {**served, **changed}.items()
            priced = {name: PricedRoute(route.route, route.rules, route.cost) for name, route in encoded_routes}
            streams = (route for route in self._flows.values() if route.kind == "TLS")
            priced |= {route.name: PricedRoute(route, route.rules, cost_of(route)) for route in streams}
            self._excess = over_budget(priced, listeners)
        changed |= {
            name: self._with_rules(served[name], route.rules) for name, route in self._excess.items() if name in served
        }
        self._changed = {name: (served[name], route) for name, route in changed.items()}

    def _with_rules(self, encoded: EncodedRoute, rules: tuple[Rule | None, ...]) -> EncodedRoute:
        """Return a route with these rules served: the same object as before if nothing has changed."""
        before, known = self._changed.get(encoded.route.name, (None, None))
        return known if known is not None and before is encoded and known.rules == rules else encoded.with_rules(rules)

    def streams(self, kind: RouteKind) -> Attached:
        """Return the routes of connections or datagrams of a kind, by listener."""
        return self._streams.get(kind, {})


ROUTES = "envoy.config.route.v3.RouteConfiguration"


#: The listeners of a configuration, and all listeners of its port by hostname.
_Shape = tuple[tuple[L7Listener, ...], Mapping[str, L7Listener]]


class RouteConfigs:
    """The route configurations of one load balancer."""

    def __init__(self, schema: Schema, key: LoadBalancerKey) -> None:
        self._schema = schema
        self._key = key
        #: For each configuration its listeners and owners, and its virtual hosts.
        self._hosts: dict[str, tuple[_Shape, VirtualHosts]] = {}
        #: The listeners of each port by hostname, as they were given first.
        self._owners: dict[ListenerKey, Mapping[str, L7Listener]] = {}
        #: By listener that checks clients or requests, or keeps sessions, its filters for that besides those of all.
        self._guarded: dict[str, str] = {}
        self._settings = HttpSettings()
        self._maintenance: tuple[Maintenance, ...] = ()

    def configure(self, settings: HttpSettings, maintenance: tuple[Maintenance, ...]) -> None:
        """Set what all configurations have in common, and which hosts are in maintenance."""
        if (settings, maintenance) != (self._settings, self._maintenance):
            self._settings, self._maintenance = settings, maintenance
            self._hosts.clear()

    def guard(self, port: PortListeners) -> None:
        """Set which listeners of a port check clients or requests, or keep sessions."""
        for listener in port.listeners:
            self._guarded.pop(listener.name, None)
        for name in port.guarded | port.sessions:
            timeouts = sorted(port.processor_timeouts.get(name, ()))
            sessions = "-sessions" if name in port.sessions else ""
            self._guarded[name] = "".join(f"-{timeout_ms}ms" for timeout_ms in timeouts) + sessions

    def owners(self, port: ListenerKey, listeners: Sequence[L7Listener]) -> Mapping[str, L7Listener]:
        """Return the listeners of a port by hostname: the same mapping, with the same listeners, while they are equal.

        So each of a thousand configurations of one port compares an identity, and not a thousand listeners.
        """
        owners = {normal(listener.hostname): listener for listener in listeners}
        of_port = self._owners.get(port)
        if of_port is None or of_port != owners:
            of_port = self._owners[port] = owners
        return of_port

    def names(self, listeners: Sequence[L7Listener]) -> dict[str, list[L7Listener]]:
        """Return the listeners of each route configuration that a port needs, by its name."""
        names: dict[str, list[L7Listener]] = {}
        for listener in listeners:
            if listener.protocol in {"HTTP", "HTTPS"}:
                names.setdefault(self.name(listener), []).append(listener)
        return names

    def name(self, listener: L7Listener) -> str:
        """Return the name of the route configuration of a listener."""
        hostname = None if listener.protocol == "HTTP" else normal(listener.hostname)
        return routes_name(self._key, listener.port, hostname, guarded=self._guarded.get(listener.name))

    def encode(
        self,
        name: str,
        served: Sequence[L7Listener],
        owners: Mapping[str, L7Listener],
        routes: Mapping[str, AtListener],
        touched: Iterable[tuple[str, str]] | None,
        *,
        buckets: Mapping[str, int],
    ) -> bytes:
        """Encode a route configuration.

        ``owners`` comes from the method of that name, ``buckets`` are those of limited rules, the other arguments are
        those of ``VirtualHosts.encode``.
        """
        # Listeners are compared by identity, so these are the very ones of ``owners``.
        served = tuple(owners[normal(listener.hostname)] for listener in served)
        host = self._hosts.get(name)
        if host is not None and self.is_same(name, served, owners):
            hosts = host[1]
            touched = None if self._maintenance else touched
        else:
            secure = served[0].protocol == "HTTPS"
            maintenance = self._maintenance
            hosts = VirtualHosts(self._schema, port=served[0].port, secure=secure, maintenance=maintenance)
            self._hosts[name] = ((served, owners), hosts)
            touched = None
        http3_port = served[0].port if self._settings.http3 and served[0].protocol == "HTTPS" else 0
        return b"".join(
            (text(1, name), *hosts.encode(served, owners, routes, touched), self._options(http3_port, buckets))
        )

    def _options(self, http3_port: int, buckets: Mapping[str, int]) -> bytes:
        """Encode what is not a virtual host; ``http3_port`` 0: HTTP/3 is not served."""
        fields: dict[str, object] = {
            # The port of the Host header is not part of the name, and stays in the header.
            "ignore_port_in_host_matching": True,
            # A missing cluster affects its own share of requests, not the whole configuration.
            "validate_clusters": {"value": False},
            "request_headers_to_add": [RETRY_HEADER],
        }
        if http3_port:
            header = {"key": "alt-svc", "value": f'h3=":{http3_port}"; ma=86400'}
            fields["response_headers_to_add"] = [{"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]
        if self._maintenance:
            fields["max_direct_response_body_size_bytes"] = {"value": MAX_PAGE_BYTES}
        settings: dict[str, Fields] = {}
        if buckets or self._settings.limits.requests_per_second:
            settings[RATE_LIMIT] = self._schema.any(LOCAL_RATE_LIMIT, rate_limits(buckets, self._settings.limits))
        if self._settings.bandwidth_kib:
            settings[BANDWIDTH_LIMIT] = bandwidth_limit(self._schema, self._settings.bandwidth_kib)
        if settings:
            fields["typed_per_filter_config"] = settings
        return self._schema.encode(ROUTES, fields)

    def is_same(self, name: str, served: Sequence[L7Listener], owners: Mapping[str, L7Listener]) -> bool:
        """Return whether a configuration was last encoded for these listeners."""
        host = self._hosts.get(name)
        return host is not None and host[0][1] is owners and host[0][0] == tuple(served)

    def forget(self, kept: Iterable[str]) -> None:
        """Drop what is kept of configurations that are no longer wanted."""
        wanted = set(kept)
        self._hosts = {name: hosts for name, hosts in self._hosts.items() if name in wanted}
