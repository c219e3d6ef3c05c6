"""Checks whether Envoy would refuse a route, and with it every route of the port.

In: a route. Out: sentences that name rule, field and next step; empty when it is accepted. Such a route is
left out, and its sentences are reported; all others are served.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fairlead.model.http import (
    Filters,
    HeaderModifier,
    PathModifier,
    RequestMatch,
    Route,
    Rule,
    ValueMatch,
    hostname_problem,
)
from fairlead.providers.envoy.http.paths import removed_prefix
from fairlead.providers.envoy.http.precedence import is_every_path
from fairlead.providers.envoy.http.regex import invalid_expression, invalid_regex
from fairlead.providers.envoy.http.route_filters import origin_regex
from fairlead.providers.envoy.http.route_match import encoded_regex

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
#: What Envoy keeps to itself: the Host header is changed by a rewrite.
_UNCHANGEABLE = frozenset({"host"})
_MAX_TOTAL_WEIGHT = 2**32 - 1
#: What Envoy takes of headers to set and add, together.
_MAX_HEADERS = 1000
#: How much of a long value a sentence shows.
_SHOWN = 60
_PREFIX = re.compile(r"/[^?#]*")


def invalid_hostnames(route: Route) -> list[str]:
    """Return what is wrong with the hostnames of a route of any kind."""
    hostnames = dict.fromkeys(hostname for attachment in route.attachments for hostname in attachment.hostnames)
    return [problem for hostname in hostnames if (problem := hostname_problem(hostname))]


def invalid_route(route: Route) -> list[str]:
    """Return what is wrong with a route of kind HTTP or GRPC."""
    return invalid_hostnames(route) + [
        f"rule {rule.name or number}: {problem}"
        for number, rule in enumerate(route.rules, start=1)
        for problem in _rule(rule)
    ]


def _rule(rule: Rule) -> Iterator[str]:
    for number, match in enumerate(rule.matches, start=1):
        for problem in _match(match):
            yield f"match {number}: {problem}"
    matches = rule.matches or (RequestMatch(),)
    yield from _filters(rule.filters, matches)
    for backend in rule.backends:
        for problem in _backend_filters(backend.filters, alone=len(rule.backends) == 1):
            yield f"backend {backend.backend or '(unresolved)'}: {problem}"
    total = sum(backend.weight for backend in rule.backends)
    if total > _MAX_TOTAL_WEIGHT:
        yield f"the weights of its backends add up to {total}, Envoy takes {_MAX_TOTAL_WEIGHT}; use smaller ones"
    if rule.session is not None and rule.session.name and not _HEADER_NAME.fullmatch(rule.session.name):
        yield f"session persistence: {rule.session.name!r} is no name of a header or cookie"


def _match(match: RequestMatch) -> Iterator[str]:
    path = match.path
    if path.type == "RegularExpression":
        yield from _regex("path", path.value)
    elif not path.value.startswith("/"):
        yield f"path {path.value!r} does not begin with a slash"
    elif path.type == "PathPrefix" and not is_every_path(path) and not _PREFIX.fullmatch(path.value):
        yield f"path prefix {path.value!r} holds a ? or a #, which no path has; match query parameters instead"
    yield from _text("path", path.value)
    for header in match.headers:
        yield from _name("header", header.name)
        yield from _value(f"header {header.name}", header)
    for parameter in match.query_params:
        what = f"query parameter {parameter.name}"
        yield from _value(what, parameter)
        if parameter.type == "Exact":
            yield from _expression(what, encoded_regex(parameter.value))


def _value(what: str, match: ValueMatch) -> Iterator[str]:
    if match.type == "RegularExpression":
        yield from _regex(what, match.value)
    yield from _text(what, match.value)


def _filters(filters: Filters, matches: Iterable[RequestMatch]) -> Iterator[str]:
    yield from _modifier("request headers", filters.request_headers)
    yield from _modifier("response headers", filters.response_headers)
    if filters.redirect is not None and filters.rewrite is not None:
        yield "a redirect and a rewrite exclude each other; keep one of them"
    redirect_path = filters.redirect.path if filters.redirect is not None else None
    rewrite_path = filters.rewrite.path if filters.rewrite is not None else None
    for what, modifier in (("redirect", redirect_path), ("rewrite", rewrite_path)):
        if modifier is not None:
            yield from _path_modifier(what, modifier, matches)
    if filters.rewrite is not None:
        yield from _text("rewrite: hostname", filters.rewrite.hostname)
    if filters.redirect is not None:
        yield from _text("redirect: hostname", filters.redirect.hostname)
    if filters.cors is not None:
        cors = filters.cors
        for text in (*cors.allow_origins, *cors.allow_methods, *cors.allow_headers, *cors.expose_headers):
            yield from _text("CORS", text)
        for origin in cors.allow_origins:
            if "*" in origin:
                yield from _expression(f"CORS: origin {origin[:_SHOWN]}", origin_regex(origin))


def _path_modifier(what: str, modifier: PathModifier, matches: Iterable[RequestMatch]) -> Iterator[str]:
    yield from _text(f"{what}: path", modifier.value)
    if modifier.type == "ReplacePrefixMatch" and any(match.path.type != "PathPrefix" for match in matches):
        yield f"{what}: ReplacePrefixMatch needs matches of type PathPrefix; use ReplaceFullPath"
    elif modifier.type == "ReplacePrefixMatch" and not modifier.value.rstrip("/"):
        for match in matches:
            yield from _expression(f"{what}: path prefix", removed_prefix(match.path))


def _expression(what: str, pattern: str) -> Iterator[str]:
    """Yield what is wrong with an expression that is made of what a user wrote."""
    if problem := invalid_expression(pattern):
        yield f"{what}: {problem}"


def _backend_filters(filters: Filters, *, alone: bool) -> Iterator[str]:
    yield from _modifier("request headers", filters.request_headers)
    yield from _modifier("response headers", filters.response_headers)
    if filters.redirect is not None or filters.cors is not None:
        yield "a redirect or CORS belongs to the rule, not to one of its backends"
    if filters.rewrite is not None and filters.rewrite.path is not None:
        yield "a rewrite of the path belongs to the rule, not to one of its backends"
    if filters.mirrors and not alone:
        yield "a mirror belongs to the rule, not to one of several backends"


def _modifier(what: str, modifier: HeaderModifier | None) -> Iterator[str]:
    if modifier is None:
        return
    for name in (*(header.name for header in (*modifier.set, *modifier.add)), *modifier.remove):
        yield from _name(what, name)
        if name.lower() in _UNCHANGEABLE:
            yield f"{what}: {name} cannot be changed so; use a rewrite of the hostname"
    if (count := len(modifier.set) + len(modifier.add)) > _MAX_HEADERS:
        yield f"{what}: {count} are set or added, Envoy takes {_MAX_HEADERS}; use fewer"
    for header in (*modifier.set, *modifier.add):
        yield from _text(f"{what}: {header.name}", header.value)


def _name(what: str, name: str) -> Iterator[str]:
    if not _HEADER_NAME.fullmatch(name):
        yield f"{what}: {name!r} is no name of a header"


def _text(what: str, text: str) -> Iterator[str]:
    if _CONTROL.search(text):
        yield f"{what}: {text!r} holds a control character"


def _regex(what: str, pattern: str) -> Iterator[str]:
    if not pattern:
        yield f"{what}: the regular expression is empty; leave the match away, or use one of type Exact"
    elif problem := invalid_regex(pattern):
        yield f"{what}: the regular expression {pattern!r} cannot be used: {problem}"
