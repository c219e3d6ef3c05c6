"""``fairlead route``: the listener, route, rule and backends that a request matches, and why no other matches.

    HTTPLoadBalancers as the hub sees them now, a request  ──►  the nearest of them, with rule, actions and backends

The decision itself is in ``providers/envoy/http/route_lookup.py``. Never: a request that no client could send.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, HTTPLoadBalancer
from fairlead.api.names import ANNOTATION_ORIGIN, near_names
from fairlead.cli.hub_reader import connect_hub, snapshot_of
from fairlead.cli.options import HubApi, Output
from fairlead.cli.output import VerbAnswer, show
from fairlead.cli.run import ATTENTION, OK
from fairlead.cli.selection import Selection, selection_of
from fairlead.errors import BadConfiguration, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.model.condition import ConditionReason
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.http import L7Config, L7Listener, RequestMatch, Route, RouteKind, Rule
from fairlead.model.in_words import counted, listed
from fairlead.model.keys import LoadBalancerKey, backend_key
from fairlead.model.observed import unhealthy_name
from fairlead.providers.envoy.http.names import most_specific
from fairlead.providers.envoy.http.route_action import status_without_backend
from fairlead.providers.envoy.http.route_lookup import ClientRequest, Passed, RouteDecision, lookup
from fairlead.status.formatting import actions_of, actions_of_backend, columns, match_text
from fairlead.status.object_ref import ANY, IN_MEMBERS, ObjectRef


def selection_of_named(text: str, namespace: str, selector: str) -> Selection:
    """Return the load balancers to look at; ``BadConfiguration`` for another kind."""
    selection = selection_of(text, namespace, selector)
    if selection.ref is not None and selection.ref.kind not in (HTTP_LOAD_BALANCERS.kind, ANY):
        raise BadConfiguration(
            f"--lb: {text!r} is not an HTTPLoadBalancer such as httplb/tenant-east/ingressclass.fairlead"
        )
    return selection


async def show_route(
    api: HubApi, typed: TypedRequest, selection: Selection, address: str, output: Output, *, watch: bool
) -> int:
    """Print what the request meets; the exit code says whether it is taken."""

    async def ask() -> VerbAnswer:
        async with connect_hub(api, quiet=True) as cluster:
            held = await _read(cluster, selection, address)
        rows = answers(held, typed)
        return VerbAnswer(
            {"request": typed.title, "answers": rows},
            lambda: lines_of(rows, typed, wide=output is Output.WIDE),
            lambda: [row.load_balancer for row in rows],
            OK if any(row.taken for row in rows) else ATTENTION,
        )

    return await show(ask, output, watch=watch)


async def _read(cluster: Cluster, selection: Selection, address: str) -> list[HeldHTTP]:
    """Read the load balancers that are meant, as the hub would serve them now."""
    snapshot = await snapshot_of(cluster, selection)
    previewed = {lb.key: lb.translation for lb in snapshot.load_balancers}
    held: list[HeldHTTP] = []
    for obj in await cluster.list(HTTP_LOAD_BALANCERS):
        translation = previewed.get(LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, *obj.key))
        if translation is not None and address in ("", *obj.status.addresses):
            held.append(HeldHTTP(obj, translation.desired))
    if held or not (selection.ref or address):
        return held
    if not address:
        raise NotFound(f"{selection.title} is not an HTTPLoadBalancer; to list them: kubectl get httplb -A")
    raise NotFound(f"No HTTPLoadBalancer has the address {address}; to list addresses: kubectl get httplb -A")


#: Of load balancers that are all as near, so many are explained.
MOST_ANSWERS = 10


class RouteOutcome(StrEnum):
    """The outcome of a request."""

    FORWARDED = "Forwarded"
    REDIRECTED = "Redirected"
    #: The proxy itself answers it, with an error.
    ANSWERED = "Answered"
    #: The connection is refused or closed.
    CLOSED = "Closed"


class HeldHTTP(msgspec.Struct, frozen=True):
    """One load balancer at the hub; ``desired`` is None when nothing is served of it."""

    obj: HTTPLoadBalancer
    desired: DesiredLoadBalancer | None


class RoutedBackend(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One backend of the rule. ``unhealthy`` are the ready targets that a proxy sees unhealthy."""

    backend: str
    service: str
    weight: int
    percent: float
    ready: int
    draining: int
    unhealthy: list[str]
    actions: list[str]

    @property
    def failing(self) -> bool:
        """Return whether proxies see none of its ready targets healthy."""
        return self.ready > 0 and len(self.unhealthy) == self.ready


class PassedRow(msgspec.Struct, frozen=True, rename="camel"):
    """A rule that the request does not go by, and why; ``rule`` and ``match`` count from 0."""

    origin: str
    route: str
    rule: int
    match: int
    condition: str
    reason: str


class RouteAnswer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The answer of one load balancer to a request. ``status`` is the answer of the proxy itself, 0 for none."""

    load_balancer: str
    member: str
    origin: str
    address: str
    outcome: RouteOutcome
    status: int
    reason: str
    next_step: str
    listener: str
    hostname: str
    origin_of_route: str
    route: str
    rule: int
    match: int
    condition: str
    actions: list[str]
    backends: list[RoutedBackend]
    passed: list[PassedRow]
    outranked: list[PassedRow]
    notes: list[str]

    @property
    def taken(self) -> bool:
        """Return whether the request reaches a backend, or is redirected."""
        return self.outcome in (RouteOutcome.FORWARDED, RouteOutcome.REDIRECTED)


def answers(held: Sequence[HeldHTTP], typed: TypedRequest) -> list[RouteAnswer]:
    """Return what the request meets at the load balancers that are nearest to taking it, ordered by name."""
    ranked = [
        (_nearness(candidate, decision), candidate, decision)
        for candidate in held
        for decision in [_decided(candidate, typed)]
    ]
    best = max((nearness for nearness, _, _ in ranked), default=0)
    nearest = [(candidate, decision) for nearness, candidate, decision in ranked if nearness == best]
    nearest.sort(key=lambda pair: pair[0].obj.key)
    return [_answer(lb, decision, typed) for lb, decision in nearest[:MOST_ANSWERS]]


def _config(held: HeldHTTP) -> L7Config:
    l7 = held.desired.spec.l7 if held.desired is not None else None
    return l7 or L7Config(())


def _decided(held: HeldHTTP, typed: TypedRequest) -> RouteDecision:
    if held.desired is None:
        return RouteDecision(0, "not served yet")
    config, port = _config(held), typed.request.port
    protocols = {listener.protocol for listener in config.listeners if listener.port == port}
    if typed.secure and protocols == {"HTTP"}:
        return RouteDecision(0, f"port {port} speaks HTTP, not HTTPS: the TLS handshake fails")
    if not typed.secure and protocols and protocols <= {"HTTPS", "TLS"}:
        return RouteDecision(0, f"port {port} speaks TLS, not HTTP: the connection is closed")
    return lookup(config, typed.request)


def _nearness(held: HeldHTTP, decision: RouteDecision) -> int:
    """Return how near a decision is to taking the request: 3 a rule takes it, 2 it has the host, 1 the listener."""
    if decision.rule is not None:
        return 3
    if decision.passed or decision.status in (307, 421):
        return 2
    return 1 if decision.listener and held.desired is not None else 0


def _answer(held: HeldHTTP, decision: RouteDecision, typed: TypedRequest) -> RouteAnswer:
    obj, config = held.obj, _config(held)
    routes = {route.name: route for route in config.routes}
    listener = next((listener for listener in config.listeners if listener.name == decision.listener), None)
    match = _match(decision.rule, decision.match_number)
    backends = list(_backends(held, decision.rule, match))
    outcome, status, reason = _outcome(decision, backends)
    route = routes.get(decision.route)
    origin = origin_of(route) if route is not None else ""
    member, _, asked_by = obj.annotation(ANNOTATION_ORIGIN).partition("/")
    answer = RouteAnswer(
        load_balancer=ObjectRef(HTTP_LOAD_BALANCERS.kind, obj.metadata.namespace, obj.metadata.name).path,
        member=member or obj.metadata.namespace,
        origin=f"{obj.spec.origin.kind} {asked_by}".strip(),
        address=",".join(obj.status.addresses),
        outcome=outcome,
        status=status,
        reason=reason,
        next_step="",
        listener=listener_text(listener) if listener is not None else "",
        hostname=decision.hostname or ("*" if decision.route else ""),
        origin_of_route=origin,
        route=decision.route,
        rule=decision.rule_number,
        match=decision.match_number,
        condition=match_text(match) if decision.rule is not None else "",
        actions=actions_of(decision.rule, match) if decision.rule is not None else [],
        backends=backends,
        passed=_passed(nearest_first(decision), routes),
        outranked=_passed(decision.outranked, routes),
        notes=list(_notes(held, decision, backends, kind=route.kind if route is not None else "HTTP")),
    )
    if answer.taken:
        return answer
    services = [row.service for row in backends]
    step = next_step(config, decision, typed, member=answer.member, origin=origin, services=services)
    return msgspec.structs.replace(answer, next_step=step)


def _match(rule: Rule | None, number: int) -> RequestMatch:
    return rule.matches[number] if rule is not None and rule.matches else RequestMatch()


def _outcome(decision: RouteDecision, backends: Sequence[RoutedBackend]) -> tuple[RouteOutcome, int, str]:
    if decision.rule is None and not decision.status:
        return RouteOutcome.CLOSED, 0, decision.reason
    if decision.status == 307 or (decision.rule is not None and decision.rule.filters.redirect is not None):
        return RouteOutcome.REDIRECTED, decision.status, decision.reason
    if decision.status:
        return RouteOutcome.ANSWERED, decision.status, decision.reason
    weighted = [row for row in backends if row.weight]
    if not any(row.ready for row in weighted):
        return RouteOutcome.ANSWERED, 503, f"{decision.reason}, but no backend has a ready target"
    if all(row.failing or not row.ready for row in weighted):
        return RouteOutcome.ANSWERED, 503, f"{decision.reason}, but no backend has a healthy target"
    return RouteOutcome.FORWARDED, 0, decision.reason


def _backends(held: HeldHTTP, rule: Rule | None, match: RequestMatch) -> Iterator[RoutedBackend]:
    if rule is None or held.desired is None:
        return
    unhealthy = frozenset(held.obj.status.unhealthy_targets or ())
    failing = {name for route in held.obj.status.failing_routes for name in route.backends}
    services = {backend.name: backend.service for backend in _config(held).backends}
    total = sum(backend.weight for backend in rule.backends)
    for reference in rule.backends:
        targets = held.desired.targets.get(backend_key(reference.backend), {})
        ready = [key for key, target in targets.items() if not target.draining]
        yield RoutedBackend(
            backend=reference.backend,
            service=services.get(reference.backend, ""),
            weight=reference.weight,
            percent=round(100 * reference.weight / total, 2) if total else 0.0,
            ready=len(ready),
            draining=len(targets) - len(ready),
            # The status names only the first unhealthy targets, and all failing routes.
            unhealthy=sorted(
                str(key)
                for key in ready
                if reference.backend in failing or unhealthy_name(backend_key(reference.backend), key) in unhealthy
            ),
            actions=actions_of_backend(reference.filters, match),
        )


def _passed(passed: Sequence[Passed], routes: Mapping[str, Route]) -> list[PassedRow]:
    rows: list[PassedRow] = []
    for passed_rule in passed:
        route = routes[passed_rule.route]
        condition = match_text(_match(route.rules[passed_rule.rule], passed_rule.match))
        rows.append(
            PassedRow(
                origin_of(route), passed_rule.route, passed_rule.rule, passed_rule.match, condition, passed_rule.reason
            )
        )
    return rows


def _notes(
    held: HeldHTTP, decision: RouteDecision, backends: Sequence[RoutedBackend], *, kind: RouteKind
) -> Iterator[str]:
    some = [row for row in backends if row.weight and row.percent < 100]
    for row in some:
        if not row.ready:
            code = 503 if row.backend else status_without_backend(kind)
            yield f"{row.percent:g} % of the requests are answered {code}: {row.backend or 'a backend'} has no target"
        elif row.failing:
            yield f"{row.percent:g} % of the requests are answered 503: no target of {row.backend} is healthy"
    served = {condition.type: condition for condition in held.obj.status.conditions or ()}
    for name in ("Accepted", "Programmed", "Serving"):
        condition = served.get(name)
        if condition is not None and condition.status == "False" and condition.reason != ConditionReason.ROUTES_REFUSED:
            why = ": ".join(filter(None, (condition.reason, condition.message)))
            yield f"the load balancer is not {name}: {why}"
    paused = {entry.host: entry for entry in held.obj.status.maintenance}
    if decision.rule is not None and (host := most_specific(decision.hostname, paused)) is not None:
        yield f"{paused[host].sentence}: clients get its page"
    for part in held.obj.status.refused:
        if part.name in (decision.route, decision.listener):
            yield f"the proxies do not serve {part.title}: {part.reason}"


def origin_of(route: Route) -> str:
    """Return kind, namespace and name of the member's object that a route is for."""
    prefix = route.name.partition(".")[0]
    kind = next((member for member in IN_MEMBERS if member.lower() == prefix), f"{route.kind} route")
    return f"{kind} {route.origin or route.name}"


def listener_text(listener: L7Listener) -> str:
    """Return a listener with its protocol, port and hostname."""
    host = f", host {listener.hostname}" if listener.hostname else ""
    return f"{listener.name} ({listener.protocol} {listener.port}{host})"


_MOST_NAMES = 5


def nearest_first(decision: RouteDecision) -> Sequence[Passed]:
    """Return what was not met: in order of precedence, or when nothing takes it those first that hold the most."""
    if decision.rule is not None:
        return decision.passed
    return sorted(decision.passed, key=lambda passed_rule: -passed_rule.met)


def next_step(
    config: L7Config, decision: RouteDecision, typed: TypedRequest, *, member: str, origin: str, services: Iterable[str]
) -> str:
    """Return what to do next; ``origin`` is the object whose rule met it, ``services`` those of its backends."""
    if not config.listeners:
        return "see what it waits for: fairlead status --problems"
    if decision.rule is not None:
        kind, _, path = origin.partition(" ")
        namespace, _, name = path.partition("/")
        if decision.status:
            return f"see its Events for the reason; in {member}: kubectl describe {kind.lower()} {name} -n {namespace}"
        named = sorted(filter(None, services))
        of = f" {named[0]}" if named else "s of the rule"
        return f"see why no endpoint of Service{of} is ready in {member}: kubectl get endpointslices -n {namespace}"
    if decision.passed:
        return "change the request, or add a rule; the nearest ones are below"
    if decision.status == 421:
        return "send the host as the server name too, or have one listener serve both"
    ports = sorted({listener.port for listener in config.listeners})
    if typed.request.port not in ports:
        return f"the load balancer has the ports {', '.join(map(str, ports))}: add a listener, or ask one of these"
    if not decision.listener and not decision.status and not _speaks_both(config, typed):
        return f"use {'http' if typed.secure else 'https'}, or another port; it has {', '.join(map(str, ports))}"
    return _without_host(config, typed, member)


def _speaks_both(config: L7Config, typed: TypedRequest) -> bool:
    """Return whether the port speaks what the request does."""
    protocols = {listener.protocol for listener in config.listeners if listener.port == typed.request.port}
    return bool(protocols & {"HTTPS", "TLS"}) == typed.secure


def _without_host(config: L7Config, typed: TypedRequest, member: str) -> str:
    listeners = {
        listener.name: listener.hostname for listener in config.listeners if listener.port == typed.request.port
    }
    hosts = {
        hostname
        for route in config.routes
        for attachment in route.attachments
        if attachment.listener in listeners
        for hostname in attachment.hostnames or (listeners[attachment.listener],)
    }
    known = sorted(hosts - {""})
    host = typed.request.host.lower()
    near = near_names(host, known, most=_MOST_NAMES)
    add = f"add the host to an Ingress or a route in {member}"
    if typed.secure:
        add += ", with a certificate for it"
    if near:
        return f"{add}, or ask for the nearest: {', '.join(near)}"
    return f"{add}; it has {listed(known, _MOST_NAMES)}" if known else add


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PORTS = {"http": 80, "https": 443}
_EXAMPLE = "as in: fairlead route GET https://shop.example.com/cart -H 'x-version: 2'"


class TypedRequest(msgspec.Struct, frozen=True):
    """A request; ``secure`` when it comes over TLS. ``address`` is the host of the URL when that is an IP address."""

    request: ClientRequest
    secure: bool
    address: str = ""

    @property
    def title(self) -> str:
        """Return method and URL, as sentences have them."""
        scheme = "https" if self.secure else "http"
        host = self.request.host
        port = "" if self.request.port == _PORTS[scheme] or ":" in host.rpartition("]")[2] else f":{self.request.port}"
        return f"{self.request.method} {scheme}://{host}{port}{self.request.target}"


def parse_request(method: str, url: str, headers: Iterable[str] = ()) -> TypedRequest:
    """Return what was typed; a header Host replaces the host of the URL, and the server name stays that of the URL."""
    if "://" in method:
        raise BadConfiguration(f"the method comes first, {_EXAMPLE}")
    if not _TOKEN.fullmatch(method):
        raise BadConfiguration(f"{method!r} is not a method such as GET, {_EXAMPLE}")
    scheme, host, port, target = _parts(url)
    pairs = [_header(text) for text in headers]
    given = [value for name, value in pairs if name.lower() == "host"]
    if len(given) > 1:
        raise BadConfiguration("-H: a request has one Host header only")
    address = _address(host)
    name = f"[{address}]" if ":" in address else host
    written = name if port in (0, _PORTS[scheme]) else f"{name}:{port}"
    secure = scheme == "https"
    return TypedRequest(
        ClientRequest(
            host=given[0] if given else written,
            target=target,
            method=method.upper(),
            headers=tuple((name, value) for name, value in pairs if name.lower() != "host"),
            port=port or _PORTS[scheme],
            # A client sends no server name for an address.
            server_name="" if address or not secure else host,
        ),
        secure,
        address,
    )


def _parts(url: str) -> tuple[str, str, int, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadConfiguration(f"{url!r} is not a URL: {error}; {_EXAMPLE}") from error
    if parts.scheme not in _PORTS or not host:
        raise BadConfiguration(f"{url!r} is not a URL that begins with http:// or https://, {_EXAMPLE}")
    if parts.username is not None:
        raise BadConfiguration(f"{url!r}: a user name is a header, as in -H 'Authorization: ...'")
    if not url.isprintable() or not url.isascii() or " " in url:
        raise BadConfiguration(
            f"{url!r}: write characters other than printable ASCII as %XX, and the host in its ASCII form"
        )
    path = parts.path or "/"
    return parts.scheme, host, port or 0, f"{path}?{parts.query}" if parts.query else path


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not _TOKEN.fullmatch(name.strip()):
        raise BadConfiguration(f"-H: {text!r} is not 'name: value'")
    return name.strip(), value.strip()


def _address(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""


#: Of the rules that a request does not go by, so many are shown without ``-o wide``.
_MOST_PASSED = 5


def lines_of(rows: Sequence[RouteAnswer], typed: TypedRequest, *, wide: bool) -> list[str]:
    """Return the lines of all answers."""
    lines = [typed.title]
    if not rows:
        return [*lines, "No HTTPLoadBalancer accepts requests at this hub; to list all: kubectl get httplb -A"]
    if len(rows) > 1:
        how = "accept" if rows[0].taken else "reject"
        lines.append(f"{len(rows)} load balancers {how} it; choose one with --address ADDRESS or --lb httplb/NAME")
    for row in rows:
        lines += ["", *_route_text_answer(row, wide=wide)] if len(rows) > 1 else _route_text_answer(row, wide=wide)
    return lines


def _route_text_answer(row: RouteAnswer, *, wide: bool) -> Iterator[str]:
    address = f", address {row.address}" if row.address else ", no address yet"
    of = f" ({row.origin})" if row.origin else ""
    yield from columns([("load balancer", f"{row.load_balancer}{of}{address}"), ("member", row.member), *_way(row)])
    yield _end(row)
    if row.backends:
        yield from columns(
            [("BACKEND", "WEIGHT", "READY", "UNHEALTHY", "SERVICE"), *(_backend(backend) for backend in row.backends)]
        )
    yield from (f"    {backend.backend}: {text}" for backend in row.backends for text in backend.actions)
    yield from _others("Earlier rules that do not match:" if row.rule >= 0 else "Nearest rules:", row.passed, wide)
    yield from _others("Later rules that match too:", row.outranked, wide)
    yield from (f"Note: {text}" for text in row.notes)
    if row.next_step:
        yield f"Next: {row.next_step}"


def _way(row: RouteAnswer) -> Iterator[tuple[str, str]]:
    if row.listener:
        yield "listener", row.listener
    if row.route:
        yield "host", row.hostname
        yield "route", f"{row.origin_of_route} ({row.route})"
        yield "rule", f"{row.rule}, match {row.match}: {row.condition}"
    yield from (("then", action) for action in row.actions)


def _end(row: RouteAnswer) -> str:
    if row.outcome is RouteOutcome.FORWARDED:
        return "Goes to a backend:"
    if row.outcome is RouteOutcome.REDIRECTED:
        return "Is redirected." if row.rule >= 0 else f"Is redirected with {row.status}: {row.reason}."
    if row.outcome is RouteOutcome.CLOSED:
        return f"Gets no answer: {row.reason}."
    return f"Is answered {row.status}: {row.reason}."


def _backend(row: RoutedBackend) -> tuple[str, str, str, str, str]:
    draining = f" (+{row.draining} draining)" if row.draining else ""
    weight = f"{row.weight} ({row.percent:g} %)"
    unhealthy = ", ".join(row.unhealthy) or "-"
    return row.backend or "(not resolved)", weight, f"{row.ready}{draining}", unhealthy, row.service or "-"


def _others(title: str, rows: Sequence[PassedRow], wide: bool) -> Iterator[str]:
    shown = rows if wide else rows[:_MOST_PASSED]
    if shown:
        yield title
        yield from columns([(f"{row.origin} rule {row.rule}", row.condition, row.reason) for row in shown])
    if len(shown) < len(rows):
        yield f"  and {counted(len(rows) - len(shown), 'other')}; see all with -o wide"
