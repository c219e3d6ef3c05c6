"""Finds the listener, route, rule and backends that a request matches, and why no other matches.

A pure model of what Envoy does with an ``L7Config``, for people: the same precedence and hostnames as the encoder, but
the matches are evaluated here. The tests hold it to the real Envoy on thousands of requests. In: a configuration and a
request. Out: a ``RouteDecision``. Never: load balancing; of several backends all are named, with their weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from fairlead.model.http import L7Config, L7Listener, PathMatch, RequestMatch, Route, Rule, ValueMatch
from fairlead.providers.envoy.http.names import has_one_label_more, most_specific, normal, patterns_for
from fairlead.providers.envoy.http.refused_routes import checked_route, invalid_hostnames
from fairlead.providers.envoy.http.route_action import status_without_backend
from fairlead.providers.envoy.http.route_budget import PricedRoute, ReducedRoute, cost_of, over_budget
from fairlead.providers.envoy.http.route_match import (
    Rank,
    encoded_regex,
    first_of_each,
    is_every_path,
    matches_whole,
    prefix_of,
    rank,
    why_later,
)
from fairlead.providers.envoy.http.route_table import attached_by_listener, routes_by_server_name
from fairlead.providers.envoy.http.sessions import at_backend, backend_of_cookies, own_cookies

_REQUESTS = frozenset({"HTTP", "GRPC"})
_TERMINATED = frozenset({"HTTP", "HTTPS"})


class ClientRequest(msgspec.Struct, frozen=True):
    """A request as a client sends it. ``target`` is path and query, ``headers`` are in the order of the request.

    ``server_name`` is the SNI; empty over TLS means none was sent.
    """

    host: str
    target: str = "/"
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    port: int = 80
    server_name: str = ""


class Passed(NamedTuple):
    """A match that a request does not fulfil, with the first reason; ``met`` counts the conditions that hold."""

    route: str
    rule: int
    match: int
    reason: str
    met: int = 0


class RouteDecision(msgspec.Struct, frozen=True):
    """The outcome of a request.

    ``status`` is the answer of the proxy itself, 0 when the request goes to a backend or is redirected by ``rule``.
    ``passed`` are the matches that came before, or that would be next, and were not met, in order of precedence.
    ``outranked`` are those that fit as well and come later.
    """

    status: int
    reason: str
    listener: str = ""
    hostname: str = ""
    route: str = ""
    rule_number: int = -1
    match_number: int = -1
    rule: Rule | None = None
    passed: tuple[Passed, ...] = ()
    outranked: tuple[Passed, ...] = ()


class _Candidate(NamedTuple):
    rank: Rank
    route: Route
    rule_number: int
    match_number: int
    rule: Rule
    match: RequestMatch
    #: The wildcard whose star is exactly one label; empty for none.
    one_label: str


def lookup(config: L7Config, request: ClientRequest) -> RouteDecision:
    """Return the decision about a request, and why no earlier match applies."""
    port = [
        listener
        for listener in config.listeners
        if listener.port == request.port and listener.protocol in {"HTTP", "HTTPS", "TLS"}
    ]
    owners = {normal(listener.hostname): listener for listener in port}
    if not port:
        return RouteDecision(0, f"no listener has port {request.port}: the connection is refused")
    secure = port[0].protocol != "HTTP"
    server_name = normal(request.server_name)
    chain = owners.get(most_specific(server_name, owners) or "") if secure else None
    if chain is not None and chain.protocol not in _TERMINATED:
        # The decision about a connection by its server name only.
        routes = [served.route for served in _served(config, {"TLS"})]
        by_name = routes_by_server_name(chain, attached_by_listener(routes), owners)
        hostname = most_specific(server_name, by_name)
        if hostname is None:
            return RouteDecision(0, f"no TLS route for the server name {server_name!r}", chain.name)
        route = by_name[hostname]
        how = "passed through" if chain.passthrough else "terminated, and its bytes passed on"
        return RouteDecision(
            0, f"the connection is {how} by its server name", chain.name, hostname, route.name, 0, 0, route.rules[0]
        )
    if secure and chain is None:
        return RouteDecision(0, f"no HTTPS listener takes the server name {request.server_name!r}")
    host = normal(re.sub(r":[0-9]+$", "", request.host))
    owned = most_specific(host, owners)
    owner = owners[owned] if owned is not None else None
    if chain is not None and owner is not chain:
        where = f"listener {owner.name}" if owner is not None else "no listener"
        return RouteDecision(421, f"the host {host!r} belongs to {where}, the server name to this one", chain.name)
    if owner is None:
        return RouteDecision(404, f"no listener of port {request.port} has the host {host!r}")
    if _ESCAPED_SLASH.search(request.target.partition("?")[0]):
        return RouteDecision(307, "the path holds an escaped slash: it is redirected to the path without", owner.name)
    return _in_listener(config, owner, owners, host, request)


def _in_listener(
    config: L7Config, listener: L7Listener, owners: Mapping[str, L7Listener], host: str, request: ClientRequest
) -> RouteDecision:
    by_hostname = _candidates(config, listener)
    domains = {
        name: None
        for name in (*by_hostname, normal(listener.hostname))
        if owners.get(most_specific(name, owners) or "") is listener
    }
    domain = most_specific(host, domains)
    passed: list[Passed] = []
    in_order = (
        (hostname, candidate)
        for hostname in (patterns_for(domain) if domain is not None else ())
        for candidate in sorted(by_hostname.get(hostname, ()), key=lambda candidate: candidate.rank)
    )
    for hostname, candidate in in_order:
        failed = _not_met(candidate, host, request)
        if failed is None:
            later = ((of, lower) for of, lower in in_order if _not_met(lower, host, request) is None)
            outranked = [_passed(lower, _why_later(candidate, hostname, lower, of), 0) for of, lower in later]
            return _met(_in_session(candidate, request), listener, hostname, passed, outranked)
        passed.append(_passed(candidate, *failed))
    reason = "no rule of the routes matches" if passed else "no route for this host"
    return RouteDecision(404, reason, listener.name, domain or "", passed=tuple(passed))


def _passed(candidate: _Candidate, reason: str, met: int) -> Passed:
    return Passed(candidate.route.name, candidate.rule_number, candidate.match_number, reason, met)


def _why_later(first: _Candidate, hostname: str, second: _Candidate, of_hostname: str) -> str:
    if hostname != of_hostname:
        return f"matches too, but the host {of_hostname or '*'} is less specific than {hostname}"
    return f"matches too, but {why_later(first.rank, second.rank)}"


def _in_session(candidate: _Candidate, request: ClientRequest) -> _Candidate:
    """Return the candidate with the one backend of the request's session, if it has one."""
    cookies = [value for name, value in request.headers if name.lower() == "cookie"]
    backend = backend_of_cookies(candidate.route, candidate.rule, cookies)
    return candidate if backend is None else candidate._replace(rule=at_backend(candidate.rule, backend))


def _met(
    candidate: _Candidate, listener: L7Listener, hostname: str, passed: Sequence[Passed], outranked: Sequence[Passed]
) -> RouteDecision:
    rule = candidate.rule
    answered = rule.filters.redirect is None and not any(
        backend.backend and backend.weight for backend in rule.backends
    )
    drained = any(backend.backend for backend in rule.backends) and not any(backend.weight for backend in rule.backends)
    status, reason = 0, "the rule takes it"
    if answered:
        status = status_without_backend(candidate.route.kind, rule.backends)
        reason = "all backends have weight 0" if drained else "the rule has no backend that could be resolved"
    if rule.is_undecided:
        status, reason = 500, "the external service or processor, or the keys of tokens, could not be resolved"
    return RouteDecision(
        status,
        reason,
        listener.name,
        hostname,
        candidate.route.name,
        candidate.rule_number,
        candidate.match_number,
        rule,
        tuple(passed),
        tuple(outranked),
    )


def _candidates(config: L7Config, listener: L7Listener) -> dict[str, list[_Candidate]]:
    by_hostname: dict[str, list[_Candidate]] = {}
    for served in _served(config, _REQUESTS):
        for attachment in served.route.attachments:
            if attachment.listener != listener.name:
                continue
            for hostname in dict.fromkeys(map(normal, attachment.hostnames or (listener.hostname,))):
                one_label = hostname if attachment.one_label and hostname.startswith("*.") else ""
                by_hostname.setdefault(hostname, []).extend(_of_route(served, one_label))
    return by_hostname


def _served(config: L7Config, kinds: AbstractSet[str]) -> list[PricedRoute | ReducedRoute]:
    """Return the routes of these kinds, with what is served of their rules."""
    rules: dict[str, tuple[Route, tuple[Rule | None, ...]]] = {}
    for route in config.routes:
        if route.kind in _REQUESTS and isinstance(checked := checked_route(route), ReducedRoute):
            rules[route.name] = (route, checked.rules)
        elif route.kind == "TLS" and invalid_hostnames(route) is None:
            rules[route.name] = (route, route.rules)
    own = own_cookies(rules.values(), {listener.name: listener.hostname for listener in config.listeners})
    priced = {
        name: PricedRoute(route, own.get(name, kept), cost_of(route, kept)) for name, (route, kept) in rules.items()
    }
    reduced = over_budget(priced, config.listeners)
    served = (reduced.get(name, whole) for name, whole in priced.items())
    return [part for part in served if part.route.kind in kinds and any(rule is not None for rule in part.rules)]


def _of_route(served: PricedRoute | ReducedRoute, one_label: str) -> Iterator[_Candidate]:
    route = served.route
    for number, rule in enumerate(served.rules):
        if rule is None:
            continue
        for index, match in enumerate(rule.matches or (RequestMatch(),)):
            key = rank(route, match, rule=number, number=index)
            yield _Candidate(key, route, number, index, rule, match, one_label)


def _not_met(candidate: _Candidate, host: str, request: ClientRequest) -> tuple[str, int] | None:
    """Return the first condition that a request does not fulfil, and how many it does; None when it fulfils all."""
    for number, (holds, reason) in enumerate(_conditions(candidate, host, request)):
        if not holds:
            return reason, number
    return None


def _conditions(candidate: _Candidate, host: str, request: ClientRequest) -> Iterator[tuple[bool, str]]:
    """Yield whether each condition holds, with the explanation if it does not."""
    match = candidate.match
    path, _, query = request.target.partition("?")
    headers: dict[str, list[str]] = {"host": [request.host]}
    for name, value in request.headers:
        headers.setdefault(name.lower(), []).append(value)
    yield _path_fits(match.path, normal_path(path)), f"the path is not {match.path.type} {match.path.value}"
    if match.method:
        yield match.method == request.method, f"the method is not {match.method}"
    if candidate.one_label:
        why = f"the host has more than one label in the place of the star of {candidate.one_label}"
        yield has_one_label_more(host, candidate.one_label), why
    if candidate.route.kind == "GRPC":
        yield any(map(_is_grpc, headers.get("content-type", ()))), "not gRPC"
    for name, header in first_of_each(match.headers, str.lower):
        # A header with several values fulfils a condition if one value does.
        fits = any(_value_fits(header, value) for value in headers.get(name, ()))
        yield fits, f"the header {header.name} is not {header.type} {header.value!r}"
    parameters: dict[str, str] = {}
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        parameters.setdefault(name, value)  # the first one counts
    for name, parameter in first_of_each(match.query_params, str):
        fits = name in parameters and _parameter_fits(parameter, parameters[name])
        yield fits, f"the query parameter {name} is not {parameter.type} {parameter.value!r}"


def _path_fits(match: PathMatch, path: str) -> bool:
    if match.type == "Exact":
        return path == match.value
    if match.type == "RegularExpression":
        return matches_whole(match.value, path)
    prefix = prefix_of(match)
    return is_every_path(match) or path == prefix or path.startswith(f"{prefix}/")


def _parameter_fits(match: ValueMatch, value: str) -> bool:
    pattern = encoded_regex(match.value) if match.type == "Exact" else ""
    return matches_whole(pattern, value) if pattern else _value_fits(match, value)


def _is_grpc(content_type: str) -> bool:
    return content_type == "application/grpc" or content_type.startswith("application/grpc+")


def _value_fits(match: ValueMatch, value: str) -> bool:
    return value == match.value if match.type == "Exact" else matches_whole(match.value, value)


_ESCAPED_SLASH = re.compile(r"%(2f|5c)", re.IGNORECASE)
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def normal_path(path: str) -> str:
    """Return a path in the form that is compared with the paths of rules."""
    decoded = _ESCAPED.sub(_decode, path).replace("\\", "/")
    kept: list[str] = []
    segments = decoded.split("/")[1:]
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        if segment == "..":
            if kept:
                kept.pop()
            if last:
                kept.append("")
        elif segment == ".":
            if last:
                kept.append("")
        else:
            kept.append(segment)
    path = "/" + "/".join(kept)
    # A path of slashes alone keeps two of them.
    return "//" if len(path) > 1 and not path.strip("/") else re.sub("/+", "/", path)


def _decode(match: re.Match[str]) -> str:
    character = chr(int(match[1], 16))
    return character if character in _UNRESERVED else match[0]
