"""The routes of a port: entries of virtual hosts, their order by hostname, and the places that a change touches.

A route becomes entries, each encoded once for each variant (a listener's port, a wildcard for one label): a changed
rule costs the entries of its own route. Envoy looks into one virtual host only, the most specific one. The rules of
less specific hostnames of the same listener therefore follow in it, up to an entry that no request passes. A listener
with a more specific hostname keeps its requests for itself, even without a fitting route; over TLS the requests of
another listener of the port are misdirected (421).

Listeners without requests (TCP, UDP, TLS by SNI) get one rule for each server name: of several routes the oldest wins,
and of a route its first rule.

A changed route comes with ``ensure``, the targets of its new backends afterwards with ``apply``. In between the route
would be answered 503. The served version is therefore kept, with its backends, until every new backend has its first
target, or until ``release``: a backend may have no targets at all. Nothing waits before the first configuration.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar, NamedTuple

import msgspec
from msgspec.structs import replace

from fairlead.api.annotations import read_route_tracing
from fairlead.model.http import (
    Backend,
    BackendRef,
    JWTProviders,
    L7Config,
    L7Listener,
    Maintenance,
    RequestMatch,
    Route,
    Rule,
    differing_part,
)
from fairlead.providers.envoy.connection_frontend import source_ranges
from fairlead.providers.envoy.http.names import has_one_label_more, most_specific, normal, patterns_for
from fairlead.providers.envoy.http.route_action import (
    BUCKET,
    LISTENER_SOURCES,
    LOG,
    ClusterOf,
    action_fields,
    filter_settings,
    route_metadata,
    sees_bodies,
    source_settings,
)
from fairlead.providers.envoy.http.route_budget import Cost, cost_of
from fairlead.providers.envoy.http.route_match import Rank, age, match_fields, rank, takes_every_request
from fairlead.providers.envoy.http.sessions import (
    at_backend,
    backend_cookie,
    backends_of_sessions,
    named_cookie,
    set_backend_cookie,
)
from fairlead.providers.envoy.resources import TYPE_URL_PREFIX, Fields, Schema, delimited, fields_of, text
from fairlead.providers.envoy.settings import TRACED_BELOW, log_mark, traced_below


class HostRoute(NamedTuple):
    """A route at a hostname; ``one_label``: the star of the hostname matches exactly one label."""

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
        #: The requests of a second that each bucket of a limited rule takes, by listener and bucket.
        self.buckets: dict[str, dict[str, int]] = {}
        #: How many entries of routes check addresses or tokens of clients, by listener.
        self.guarded: Counter[str] = Counter()
        #: How many entries of routes have each access log of their own, by listener.
        self.logs: dict[str, Counter[str]] = {}
        #: How many entries of routes ask for tokens of each set of issuers, by listener.
        self.jwt: dict[str, Counter[JWTProviders]] = {}
        #: How many entries of routes have a processor that may take so many milliseconds, by listener.
        self.processor_timeouts: dict[str, Counter[int]] = {}
        #: How many entries of routes keep sessions, by listener.
        self.sessions: dict[str, Counter[bool]] = {}
        #: At how many places each route is, by listener.
        self._at: dict[str, Counter[EncodedRoute]] = {}
        #: The listeners that got another backend, or lost one, in the last update.
        self.renamed: set[str] = set()
        self._hostnames: dict[str, str] = {}
        self._routes: Sequence[EncodedRoute] = ()

    def update(self, routes: Sequence[EncodedRoute], hostnames: Mapping[str, str]) -> set[tuple[str, str]] | None:
        """Take over routes; returns the touched (listener, hostname), or None when everything may have changed.

        ``hostnames`` are those of the listeners, by name.
        """
        touched: set[tuple[str, str]] | None = set()
        self.renamed = set()
        if hostnames != self._hostnames:
            self._hostnames, self._routes, touched = dict(hostnames), (), None
            self.by_listener = {name: {} for name in hostnames}
            self.backends = {name: Counter() for name in hostnames}
            self.buckets = {name: {} for name in hostnames}
            self._at = {name: Counter() for name in hostnames}
            self.guarded.clear()
            self.logs = {name: Counter() for name in hostnames}
            self.jwt = {name: Counter() for name in hostnames}
            self.processor_timeouts = {name: Counter() for name in hostnames}
            self.sessions = {name: Counter() for name in hostnames}
        old, new = differing_part(self._routes, routes)
        before, offered = dict.fromkeys(self._routes[old]), dict.fromkeys(routes[new])
        for route in before.keys() - offered.keys():
            for listener, hostname, host_route in self._places(route):
                self._take_away(listener, hostname, host_route)
                if touched is not None:
                    touched.add((listener, hostname))
        for route in [route for route in offered if route not in before]:
            for listener, hostname, host_route in self._places(route):
                self.by_listener[listener].setdefault(hostname, {})[host_route] = None
                counts = self.backends[listener]
                if not counts.keys() >= route.backends:
                    self.renamed.add(listener)
                counts.update(route.backends)
                self._at[listener][route] += 1
                self.guarded[listener] += route.guarded
                if route.route.access_log:
                    self.logs[listener][route.route.access_log] += 1
                self.jwt[listener].update(route.jwt)
                self.processor_timeouts[listener].update(route.processor_timeouts)
                self.sessions[listener][True] += route.keeps_sessions
                self.buckets[listener].update(route.buckets)
                if touched is not None:
                    touched.add((listener, hostname))
        self._routes = routes
        return touched

    def routes_of(self, listeners: Iterable[str]) -> frozenset[EncodedRoute]:
        """Return the routes at these listeners."""
        return frozenset[EncodedRoute]().union(*(self._at[listener] for listener in listeners))

    def _take_away(self, listener: str, hostname: str, host_route: HostRoute) -> None:
        at_listener = self.by_listener[listener]
        at_listener[hostname].pop(host_route, None)
        if not at_listener[hostname]:
            del at_listener[hostname]
        self.guarded[listener] -= host_route.route.guarded
        if text := host_route.route.route.access_log:
            self.logs[listener][text] -= 1
        self.jwt[listener].subtract(host_route.route.jwt)
        self.processor_timeouts[listener].subtract(host_route.route.processor_timeouts)
        self.sessions[listener][True] -= host_route.route.keeps_sessions
        at = self._at[listener]
        at[host_route.route] -= 1
        if at[host_route.route] <= 0:
            del at[host_route.route]
            for bucket in host_route.route.buckets:
                self.buckets[listener].pop(bucket, None)
        counts = self.backends[listener]
        for backend in host_route.route.backends:
            counts[backend] -= 1
            if counts[backend] <= 0:
                del counts[backend]
                self.renamed.add(listener)

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


ROUTE = "envoy.config.route.v3.Route"
_ROUTES_OF_VIRTUAL_HOST = 3


class Variant(NamedTuple):
    """The inputs of a route's entries in addition to the route."""

    port: int
    secure: bool
    #: The wildcard hostname whose star is exactly one label; empty for none.
    one_label: str = ""


class RouteEntry(msgspec.Struct, frozen=True, gc=False):
    """One match of one rule: the encoded field of a virtual host. ``whole``: no request passes it."""

    rank: Rank
    content: bytes
    whole: bool


class EncodedRoute:
    """A route with its entries, by variant. Two are never equal: a changed route is another one."""

    #: Whether the load balancer itself answers, to an authority that issues certificates.
    is_answer: ClassVar[bool] = False

    __slots__ = (
        "_cluster_of",
        "_cost",
        "_entries",
        "_schema",
        "backends",
        "figures",
        "guarded",
        "idle",
        "is_empty",
        "jwt",
        "keeps_sessions",
        "names_cookies",
        "processor_timeouts",
        "route",
        "rules",
        "sticky",
    )

    def __init__(
        self,
        schema: Schema,
        route: Route,
        cluster_of: ClusterOf,
        figures: str = "",
        idle_of: Callable[[frozenset[str]], frozenset[str]] = lambda _names: frozenset(),
        rules: tuple[Rule | None, ...] | None = None,
    ) -> None:
        self.route = route
        #: What is served of each rule, in their order; None for one that is left out.
        self.rules: tuple[Rule | None, ...] = route.rules if rules is None else rules
        served = [rule for rule in self.rules if rule is not None]
        self.is_empty = not served
        #: Whether a rule checks clients or requests.
        self.guarded = any(rule.is_guarded for rule in served)
        #: The issuers whose tokens rules ask for.
        self.jwt = frozenset(rule.jwt for rule in served if rule.jwt and not rule.is_undecided)
        #: How long its processors may take, in milliseconds.
        self.processor_timeouts = frozenset(rule.processor.timeout_ms for rule in served if rule.processor is not None)
        self.keeps_sessions = any(rule.session is not None for rule in served)
        #: Whether users named cookies of its sessions.
        self.names_cookies = any(map(named_cookie, served))
        #: The backends that a session can name, and those of them that have no usable target now.
        self.sticky = frozenset(backend.backend for rule in served for backend in backends_of_sessions(rule))
        self.idle = idle_of(self.sticky) if self.sticky else self.sticky
        #: The name under which its requests are counted; empty: they are not.
        self.figures = figures
        self.backends = frozenset(backends_of(served)) - {""}
        self._schema = schema
        self._cluster_of = cluster_of
        self._entries: dict[Variant, tuple[RouteEntry, ...]] = {}
        self._cost: Cost | None = None

    def with_rules(self, rules: tuple[Rule | None, ...]) -> EncodedRoute:
        """Return the same route with these rules served."""
        return EncodedRoute(
            self._schema, self.route, self._cluster_of, self.figures, lambda names: names & self.idle, rules
        )

    @property
    def cost(self) -> Cost:
        """Return what it costs at one hostname; of a route that Envoy takes."""
        if self._cost is None:
            self._cost = cost_of(self.route, self.rules)
        return self._cost

    @property
    def buckets(self) -> Mapping[str, int]:
        """Return the requests of a second that each of its limited rules takes, by the name of the rule's bucket."""
        return {
            bucket_name(self.route, number): rule.requests_per_second
            for number, rule in enumerate(self.rules)
            if rule is not None and rule.requests_per_second
        }

    def entries(self, variant: Variant) -> tuple[RouteEntry, ...]:
        """Return the entries, in no particular order."""
        entries = self._entries.get(variant)
        if entries is None:
            entries = self._entries[variant] = tuple(self._encode(variant))
        return entries

    def _encode(self, variant: Variant) -> Iterator[RouteEntry]:
        for number, rule in enumerate(self.rules):
            if rule is None:
                continue
            common: dict[str, object] = {}
            if self.figures:
                common["stat_prefix"] = self.figures
            marks: dict[str, str] = {}
            if rule.requests_per_second:
                marks[BUCKET] = bucket_name(self.route, number)
            if self.route.access_log:
                marks[LOG] = log_mark(self.route.access_log)
            if self.route.tracing:
                marks[TRACED_BELOW] = traced_below(read_route_tracing(self.route.tracing))
            if marks:
                common["metadata"] = route_metadata(marks)
            # Those of upgrades and sessions have the rank of the match, and come before it.
            for upgrade in (True, False) if sees_bodies(rule) else (False,):
                yield from self._encode_rule(variant, number, rule, common, upgrade=upgrade)

    def _encode_rule(
        self, variant: Variant, number: int, rule: Rule, common: Mapping[str, object], *, upgrade: bool
    ) -> Iterator[RouteEntry]:
        if upgrade and rule.processor is not None:
            rule = replace(rule, processor=replace(rule.processor, max_size=0))
        if settings := filter_settings(self._schema, self.route, rule, self._cluster_of):
            common = {**common, "typed_per_filter_config": settings}
        if sees_bodies(rule) and rule.processor is not None:
            common = {**common, "request_body_buffer_limit": {"value": rule.processor.max_size}}
        sessions = backends_of_sessions(rule)
        for index, match in enumerate(rule.matches or (RequestMatch(),)):
            for backend in sessions:
                if backend.backend not in self.idle:
                    yield self._entry(variant, number, index, match, rule, common, backend, upgrade=upgrade)
            yield self._entry(variant, number, index, match, rule, common, upgrade=upgrade)

    def _entry(
        self,
        variant: Variant,
        number: int,
        index: int,
        match: RequestMatch,
        rule: Rule,
        common: Fields,
        at: BackendRef | None = None,
        *,
        upgrade: bool,
    ) -> RouteEntry:
        """Encode a match of a rule; ``at``: for the sessions of this backend only, ``upgrade``: for upgrades only."""
        if at is None:
            cookies = backends_of_sessions(rule)
        else:
            cookies = [at] if rule.session is not None and rule.session.idle_timeout_s else []
        fields: dict[str, object] = {
            # In access logs.
            "name": f"{self.route.name}/{rule.name or number}/{index}",
            "match": match_fields(
                match,
                self.route.kind,
                one_label=variant.one_label,
                cookie="" if at is None else backend_cookie(self.route, rule, at),
                upgrade=upgrade,
            ),
            **action_fields(
                self._schema,
                rule if at is None else at_backend(rule, at),
                match,
                kind=self.route.kind,
                port=variant.port,
                secure=variant.secure,
                cluster_of=self._cluster_of,
                added_to_answers={
                    backend.backend: set_backend_cookie(self.route, rule, backend)
                    for backend in cookies
                    if backend.backend
                },
            ),
            **common,
        }
        return RouteEntry(
            rank=rank(self.route, match, rule=number, number=index),
            content=route_field(self._schema.encode(ROUTE, fields)),
            whole=at is None and not upgrade and not variant.one_label and takes_every_request(match, self.route.kind),
        )


def route_field(route: bytes) -> bytes:
    """Return an encoded Route as a field of a virtual host."""
    return delimited(_ROUTES_OF_VIRTUAL_HOST, route)


def bucket_name(route: Route, number: int) -> str:
    """Name the bucket of a rule, in which all its requests count, whichever match and hostname they meet."""
    return f"{route.name}/{number}"


_MISDIRECTED = {"match": {"prefix": "/"}, "direct_response": {"status": 421}}


class Group:
    """The entries of one hostname of one listener, in order of precedence."""

    __slots__ = ("answers", "content", "routes", "whole")

    def __init__(self, routes: tuple[HostRoute, ...], hostname: str, *, port: int, secure: bool) -> None:
        self.routes = routes
        chosen: list[RouteEntry] = []
        for host_route in routes:
            variant = Variant(port, secure, hostname if host_route.one_label else "")
            chosen += host_route.route.entries(variant)
        #: The entries of answers alone, which maintenance does not replace.
        self.answers = b"".join(
            entry.content
            for served in routes
            if served.route.is_answer
            for entry in served.route.entries(Variant(port, secure))
        )
        chosen.sort(key=lambda entry: entry.rank)
        whole = next((number for number, entry in enumerate(chosen) if entry.whole), None)
        self.whole = whole is not None
        self.content = b"".join(entry.content for entry in (chosen if whole is None else chosen[: whole + 1]))


class VirtualHosts:
    """The virtual hosts of one route configuration; only what a change has touched is encoded again."""

    def __init__(self, schema: Schema, *, port: int, secure: bool, maintenance: Sequence[Maintenance] = ()) -> None:
        self._port, self._secure = port, secure
        #: For each listener its groups by hostname.
        self._groups: dict[str, dict[str, Group]] = {}
        #: For each domain its listener, the groups that a request meets, and the encoded virtual host.
        self._hosts: dict[str, tuple[str, tuple[Group, ...], bytes]] = {}
        #: The domains in their order, and the encoded virtual host of each.
        self._domains: list[str] = []
        self._encoded: list[bytes] = []
        self._misdirected = delimited(3, schema.encode("envoy.config.route.v3.Route", _MISDIRECTED))
        self._schema = schema
        #: The settings of the filter that checks the clients of a listener, by its name.
        self._sources: dict[str, bytes] = {}
        self._maintenance = {normal(entry.host): entry for entry in maintenance}

    def encode(
        self,
        served: Sequence[L7Listener],
        owners: Mapping[str, L7Listener],
        routes: Mapping[str, AtListener],
        touched: Iterable[tuple[str, str]] | None,
    ) -> list[bytes]:
        """Encode the virtual hosts of ``served``, as fields of a route configuration, ordered by domain.

        ``owners`` are all listeners of the port by hostname, ``routes`` those of each listener by hostname.
        ``touched`` may differ from the last call; None: all of them, and the listeners too.
        """
        if touched is None:
            self._groups, self._hosts = {listener.name: {} for listener in served}, {}
            self._sources = {listener.name: self._sources_of(listener) for listener in served}
            for listener in served:
                for hostname in routes.get(listener.name, {}):
                    self._regroup(listener.name, hostname, routes)
                for domain in {normal(listener.hostname), *self._groups[listener.name], *self._maintenance}:
                    self._host(domain, listener, owners)
            for domain in self._others(served, owners):
                host = virtual_host(domain, self._misdirected)
                self._hosts.setdefault(domain, ("", (), host))
            self._domains = sorted(self._hosts)
            self._encoded = [self._hosts[domain][2] for domain in self._domains]
        else:
            by_name = {listener.name: listener for listener in served}
            for name, hostname in touched:
                if name in by_name:
                    self._touch(by_name[name], hostname, owners, routes)
        return self._encoded

    def _touch(
        self, listener: L7Listener, hostname: str, owners: Mapping[str, L7Listener], routes: Mapping[str, AtListener]
    ) -> None:
        self._regroup(listener.name, hostname, routes)
        groups, changed = self._groups[listener.name], [hostname]
        if hostname in groups or hostname == normal(listener.hostname):
            self._host(hostname, listener, owners)
        elif self._hosts.get(hostname, ("",))[0] == listener.name:
            del self._hosts[hostname]
        if not hostname or hostname.startswith("*."):
            # More specific domains have its entries behind theirs.
            for domain, (owner, _, _) in list(self._hosts.items()):
                if owner == listener.name and domain != hostname and hostname in patterns_for(domain):
                    self._host(domain, listener, owners)
                    changed.append(domain)
        for domain in changed:
            at = bisect_left(self._domains, domain)
            existed = self._domains[at : at + 1] == [domain]
            now = [domain] if domain in self._hosts else []
            self._domains[at : at + existed] = now
            self._encoded[at : at + existed] = [self._hosts[domain][2] for domain in now]

    def _regroup(self, listener: str, hostname: str, routes: Mapping[str, AtListener]) -> None:
        members = tuple(routes.get(listener, {}).get(hostname, ()))
        if members:
            self._groups[listener][hostname] = Group(members, hostname, port=self._port, secure=self._secure)
        else:
            self._groups[listener].pop(hostname, None)

    def _host(self, domain: str, listener: L7Listener, owners: Mapping[str, L7Listener]) -> None:
        owner = most_specific(domain, owners)
        if owner is None or owners[owner] is not listener:
            return
        groups = tuple(met(domain, self._groups[listener.name]))
        known = self._hosts.get(domain)
        if known is None or known[:2] != (listener.name, groups):
            content = b"".join(group.content for group in groups)
            pattern = most_specific(domain, self._maintenance)
            if pattern is not None:
                answers = b"".join(group.answers for group in groups)
                content = maintained(self._schema, self._maintenance[pattern], answers, content)
            host = virtual_host(domain, content + self._sources[listener.name])
            self._hosts[domain] = (listener.name, groups, host)

    def _sources_of(self, listener: L7Listener) -> bytes:
        """Return the settings that check the clients of a listener, as a field of a virtual host; empty for none."""
        if not listener.checks_sources:
            return b""
        settings = {LISTENER_SOURCES: source_settings(self._schema, listener)}
        return self._schema.encode("envoy.config.route.v3.VirtualHost", {"typed_per_filter_config": settings})

    def _others(self, served: Sequence[L7Listener], owners: Mapping[str, L7Listener]) -> Iterable[str]:
        """Return the domains of requests that came to the wrong listener: with TLS the name was known before.

        That is every name; the hostname of another listener is listed only where one of ``served`` covers it.
        """
        if not self._secure:
            return ()
        mine = {normal(listener.hostname) for listener in served}
        if not any(not hostname or hostname.startswith("*.") for hostname in mine):
            return ("",)
        # Of a thousand listeners each asks this of all others.
        below = tuple(hostname[1:] for hostname in mine if hostname.startswith("*."))
        foreign = [hostname for hostname in owners if hostname not in mine and ("" in mine or hostname.endswith(below))]
        return foreign if "" in mine else [*foreign, ""]


#: Envoy writes the address of the client there, behind the trusted hops, over what the client wrote.
_CLIENT_ADDRESS = "x-envoy-external-address"
#: A message with one field, the name of a header.
_HEADER_INPUT = "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"


def maintained(schema: Schema, maintenance: Maintenance, answers: bytes, routes: bytes) -> bytes:
    """Return the content of a virtual host in maintenance; ``answers`` and ``routes`` are its encoded fields."""
    headers = {"content-type": "text/html; charset=utf-8", "cache-control": "no-store"}
    if maintenance.retry_after_s:
        headers["retry-after"] = str(maintenance.retry_after_s)
    response: dict[str, object] = {"status": maintenance.status}
    if maintenance.page:
        response["body"] = {"inline_string": maintenance.page}
    page: Fields = {
        "name": f"maintenance/{maintenance.host or '*'}",
        "match": {"prefix": "/"},
        "direct_response": response,
        "response_headers_to_add": [
            {"header": {"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for name, value in headers.items()
        ],
    }
    closed = answers
    if maintenance.page:
        # Envoy would send the page as grpc-message, in a header that is too large for clients.
        grpc: Fields = {**page, "match": {"prefix": "/", "grpc": {}}, "direct_response": {"status": maintenance.status}}
        closed += route_field(schema.encode(ROUTE, grpc))
    closed += route_field(schema.encode(ROUTE, page))
    if not maintenance.allowed_sources:
        return closed
    predicate: Fields = {
        "single_predicate": {
            "input": {
                "name": "client",
                "typed_config": {"type_url": TYPE_URL_PREFIX + _HEADER_INPUT, "value": text(1, _CLIENT_ADDRESS)},
            },
            "custom_match": schema.extension(
                "allowed",
                "envoy.extensions.matching.input_matchers.ip.v3.Ip",
                {"cidr_ranges": source_ranges(maintenance.allowed_sources), "stat_prefix": "maintenance"},
            ),
        }
    }
    matcher: Fields = {
        "matcher_list": {"matchers": [{"predicate": predicate, "on_match": _route_list(routes)}]},
        "on_no_match": _route_list(closed),
    }
    return schema.encode("envoy.config.route.v3.VirtualHost", {"matcher": matcher})


def _route_list(routes: bytes) -> Fields:
    """Return the action that chooses among routes, which are encoded fields of a virtual host."""
    content = b"".join(delimited(1, route) for route in fields_of(routes, _ROUTES_OF_VIRTUAL_HOST))
    kind = "envoy.config.route.v3.RouteList"
    return {"action": {"name": "routes", "typed_config": {"type_url": TYPE_URL_PREFIX + kind, "value": content}}}


def met(domain: str, groups: Mapping[str, Group]) -> Iterator[Group]:
    """Yield the groups that a request to a domain meets, the most specific hostname first."""
    for pattern in patterns_for(domain):
        group = groups.get(pattern)
        if group is None or not group.content:
            continue
        one_label = all(host_route.one_label for host_route in group.routes)
        if pattern != domain and one_label and not has_one_label_more(domain, pattern):
            continue
        yield group
        if group.whole:
            return


def virtual_host(domain: str, routes: bytes) -> bytes:
    """Encode a virtual host as a field of a route configuration; ``routes`` are encoded fields."""
    name = domain or "*"
    return delimited(2, text(1, name) + text(2, name) + routes)


#: The routes at each listener, by its name, each with the hostnames at which it is attached there.
Attached = Mapping[str, Sequence[tuple[Route, tuple[str, ...]]]]


def attached_by_listener(routes: Iterable[Route]) -> Attached:
    """Return the routes with rules, older ones first, by listener: looked for once, and not by each of a thousand."""
    by_listener: dict[str, list[tuple[Route, tuple[str, ...]]]] = {}
    for route in sorted((route for route in routes if route.rules), key=age):
        for attachment in route.attachments:
            by_listener.setdefault(attachment.listener, []).append((route, attachment.hostnames))
    return by_listener


def routes_by_server_name(listener: L7Listener, routes: Attached, owners: Mapping[str, L7Listener]) -> dict[str, Route]:
    """Return the route for each server name of a listener, sorted; ``owners`` are the port's listeners by hostname."""
    chosen: dict[str, Route] = {}
    for route, hostnames in routes.get(listener.name, ()):
        for hostname in hostnames or (listener.hostname,):
            name = normal(hostname)
            owner = most_specific(name, owners)
            if owner is not None and owners[owner] is listener:
                chosen.setdefault(name, route)
    return dict(sorted(chosen.items()))


def first_rule(listener: L7Listener, routes: Attached) -> Rule | None:
    """Return the rule of a listener without server names (TCP, UDP)."""
    return next((route.rules[0] for route, _ in routes.get(listener.name, ())), None)


#: How long a route may wait for targets, in seconds.
HOLD_S = 2.0


class HeldRoutes:
    """The routes of one load balancer, and those that wait for targets of new backends; a change costs its routes."""

    def __init__(self) -> None:
        self.routes: Sequence[Route] = ()
        self.backends: Sequence[Backend] = ()
        self._config: L7Config | None = None
        self._awaited: set[str] = set()
        #: By name the routes that wait, each with the version that is served meanwhile, if there is any.
        self._waiting: dict[str, tuple[Route, Route | None]] = {}

    @property
    def awaited(self) -> frozenset[str]:
        """Return the backends that routes wait for."""
        return frozenset(self._awaited) if self._waiting else frozenset()

    def update(self, config: L7Config) -> None:
        """Apply a new configuration."""
        if config.backends is not self.backends:
            old, new = differing_part(self.backends, config.backends)
            gone = {backend.name for backend in self.backends[old]}
            names = {backend.name for backend in config.backends[new]}
            self._awaited -= gone - names
            if self._config is not None:
                self._awaited |= names - gone
        given = self._config.routes if self._config is not None else ()
        old, new = differing_part(given, config.routes)
        before = {route.name: self._served(route) for route in given[old]}
        for name in before:
            self._waiting.pop(name, None)
        if self._awaited:
            changed = (route for route in config.routes[new] if before.get(route.name) is not route)
            self._waiting |= {route.name: (route, before.get(route.name)) for route in changed}
        self._config = config
        self._choose(config)

    def release(self, backends: AbstractSet[str]) -> bool:
        """Wait no longer for these, which have targets or may have none; return whether that ends a route's wait."""
        waiting = len(self._waiting)
        if self._config is None or self._awaited.isdisjoint(backends):
            return False
        self._awaited -= backends
        if waiting:
            self._choose(self._config)
        return len(self._waiting) < waiting

    def _served(self, route: Route) -> Route | None:
        """Return what is served of a route of the present configuration."""
        return self._waiting[route.name][1] if route.name in self._waiting else route

    def _choose(self, config: L7Config) -> None:
        self._waiting = {
            name: (route, served)
            for name, (route, served) in self._waiting.items()
            if not self._awaited.isdisjoint(backends_of(route.rules))
        }
        if not self._waiting:
            self.routes, self.backends = config.routes, config.backends
            return
        # One expression without calls: a configuration may have thousands of routes.
        waiting = self._waiting
        self.routes = [
            served
            for route in config.routes
            if (served := waiting[route.name][1] if route.name in waiting else route) is not None
        ]
        kept = {
            name for _, served in self._waiting.values() if served is not None for name in backends_of(served.rules)
        }
        offered = {backend.name for backend in config.backends} if kept else set[str]()
        old = [backend for backend in self.backends if backend.name in kept and backend.name not in offered]
        self.backends = [*config.backends, *old] if old else config.backends


def backends_of(rules: Iterable[Rule]) -> Iterator[str]:
    """Yield the backends that rules name, mirrors too; some may come twice."""
    for rule in rules:
        for backend in rule.backends:
            yield backend.backend
            yield from (mirror.backend for mirror in backend.filters.mirrors)
        yield from (mirror.backend for mirror in rule.filters.mirrors)
        if rule.filters.auth is not None:
            yield rule.filters.auth.backend
        if rule.processor is not None:
            yield rule.processor.backend
        yield from (provider.backend for provider in rule.jwt)
