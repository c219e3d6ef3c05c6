"""Checks whether Envoy would refuse a rule of a route, and with it every route of the port.

In: a route. Out: what is served of it, and what is refused with sentences that name rule, field and next step. A rule
that is refused answers 500, and all others are served.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from fairlead.model.http import (
    HEADER_NAME,
    Filters,
    HeaderModifier,
    PathModifier,
    RequestMatch,
    Route,
    Rule,
    ValueMatch,
    hostname_problem,
    unsafe_parts,
)
from fairlead.model.observed import RefusedPart
from fairlead.providers.envoy.http.regex import invalid_expression, invalid_regex
from fairlead.providers.envoy.http.route_action import removed_prefix
from fairlead.providers.envoy.http.route_filters import origin_regex
from fairlead.providers.envoy.http.route_match import encoded_regex, is_every_path

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MAX_TOTAL_WEIGHT = 2**32 - 1
#: What Envoy takes of headers to set and add, together.
_MAX_HEADERS = 1000
#: How much of a long value a sentence shows.
_SHOWN = 60
#: Of a route, so many rules are shown, with the first reason of each. A condition takes 32,768 characters.
_RULES_SHOWN, _LONGEST = 5, 1_200
_PREFIX = re.compile(r"/[^?#]*")


def invalid_hostnames(route: Route) -> RefusedPart | None:
    """Return the refusal of a route of any kind for its hostnames; None when all of them are valid."""
    hostnames = dict.fromkeys(hostname for attachment in route.attachments for hostname in attachment.hostnames)
    problems = [problem for hostname in hostnames if (problem := hostname_problem(hostname))]
    return RefusedPart("route", route.name, _joined(problems)) if problems else None


class CheckedRoute(NamedTuple):
    """What is served of a route, and what is refused: the whole route, or rules of it."""

    route: Route
    refused: tuple[RefusedPart, ...] = ()


def checked_route(route: Route) -> CheckedRoute | RefusedPart:
    """Return what is served of a route of kind HTTP or GRPC; the refusal when nothing is.

    A rule that is refused keeps the matches that can be used and answers 500: without it, its requests would reach
    other rules, past a filter that was meant for them. The number of each other rule stays in its name.
    """
    if (refusal := invalid_hostnames(route)) is not None:
        return refusal
    rules: list[Rule] = []
    refused: list[str] = []
    for number, rule in enumerate(route.rules):
        matches = [(match, list(_match(match))) for match in rule.matches]
        problems = [
            f"match {index}: {text}"[:_LONGEST] for index, (_, errors) in enumerate(matches, start=1) for text in errors
        ]
        problems += [text[:_LONGEST] for text in _actions(rule)]
        kept = rule
        if problems:
            kept = Rule(name=rule.name, matches=tuple(match for match, errors in matches if not errors))
            unmatched = bool(rule.matches and not kept.matches)
            title = f"rule {rule.name or number + 1}{' (without a usable match)' if unmatched else ''}"
            refused.append(f"{title}: {_joined(problems, shown=1)}")
            if unmatched:
                continue
        if len(rules) < number and not kept.name:
            kept = msgspec.structs.replace(kept, name=str(number))
        rules.append(kept)
    if not refused:
        return CheckedRoute(route)
    served = msgspec.structs.replace(route, rules=tuple(rules))
    if len(refused) == len(route.rules):
        return CheckedRoute(served, (RefusedPart("route", route.name, _joined(refused)),))
    return CheckedRoute(served, tuple(RefusedPart("rule", route.name, text) for text in refused))


def _joined(reasons: Sequence[str], *, shown: int = _RULES_SHOWN) -> str:
    """Return the first of several reasons, and the number of the others: they go into a status."""
    more = f"; and {len(reasons) - shown} more" if len(reasons) > shown else ""
    return "; ".join(reasons[:shown]) + more


def _actions(rule: Rule) -> Iterator[str]:
    """Yield what is wrong with a rule beside its matches."""
    yield from unsafe_parts(rule)
    yield from _filters(rule.filters, rule.matches or (RequestMatch(),))
    for backend in rule.backends:
        for problem in _backend_filters(backend.filters, alone=len(rule.backends) == 1):
            yield f"backend {backend.backend or '(unresolved)'}: {problem}"
    served = {backend.backend for backend in rule.backends if backend.backend and backend.weight}
    if rule.session is not None and rule.session.type == "Header" and len(served) > 1:
        yield "session persistence: a header cannot name one of several backends; use type Cookie, or one backend"
    total = sum(backend.weight for backend in rule.backends)
    if total > _MAX_TOTAL_WEIGHT:
        yield f"the weights of its backends add up to {total}, Envoy takes {_MAX_TOTAL_WEIGHT}; use smaller ones"


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
        if not HEADER_NAME.fullmatch(header.name):
            yield f"header: {header.name!r} is not a valid name of a header"
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
    if filters.cors is not None:
        cors = filters.cors
        for text in (*cors.allow_origins, *cors.allow_methods, *cors.allow_headers, *cors.expose_headers):
            yield from _text("CORS", text)
        for origin in cors.allow_origins:
            if "*" in origin:
                yield from _expression(f"CORS: origin {origin[:_SHOWN]}", origin_regex(origin))


def _path_modifier(what: str, modifier: PathModifier, matches: Iterable[RequestMatch]) -> Iterator[str]:
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
    if (count := len(modifier.set) + len(modifier.add)) > _MAX_HEADERS:
        yield f"{what}: {count} are set or added, Envoy takes {_MAX_HEADERS}; use fewer"
    for header in (*modifier.set, *modifier.add):
        yield from _text(f"{what}: {header.name}", header.value)


def _text(what: str, text: str) -> Iterator[str]:
    if _CONTROL.search(text):
        yield f"{what}: {text!r} holds a control character"


def _regex(what: str, pattern: str) -> Iterator[str]:
    if not pattern:
        yield f"{what}: the regular expression is empty; leave the match away, or use one of type Exact"
    elif problem := invalid_regex(pattern):
        yield f"{what}: the regular expression {pattern!r} cannot be used: {problem}"
