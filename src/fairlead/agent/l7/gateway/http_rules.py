"""The rules of an HTTPRoute.

In: its rules, and what resolves their references. Out: one ``Rule`` for each, in order, with what is wrong. A rule that
cannot be programmed keeps its matches and answers 500: were it left out, its requests would reach rules that were not
meant for them, past a filter that was. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from fairlead.agent.l7.gateway.backend_refs import BackendRefs
from fairlead.agent.l7.gateway.http_filters import (
    Unusable,
    build_backend_filters,
    build_filters,
    first_of_each_header,
)
from fairlead.api.gateway import HTTPMatch, HTTPRetry, HTTPRule, Match, RouteBackendRef, SessionPersistenceSpec
from fairlead.api.times import duration_ms
from fairlead.model.http import BackendRef, PathMatch, RequestMatch, Retry, Rule, SessionPersistence, ValueMatch

_BROWSER_SESSION = "Session"


class RuleProblem(NamedTuple):
    """Why a rule cannot be programmed: the reason of condition Accepted, and a sentence."""

    reason: str
    message: str


class PlannedRule(NamedTuple):
    """A rule, and why it answers 500 instead of what it asks for; None when not even its matches can be used."""

    rule: Rule | None
    problem: RuleProblem | None = None


def http_rules(rules: Iterable[HTTPRule], refs: BackendRefs) -> list[PlannedRule]:
    """Return the rules of an HTTPRoute."""
    return [_http_rule(rule, refs) for rule in rules]


def plan_rule(
    name: str | None, matches: Callable[[], tuple[RequestMatch, ...]], build: Callable[[], Rule]
) -> PlannedRule:
    """Return what ``build`` makes of a rule, with its ``matches``; these alone when it raises ``Unusable``."""
    try:
        rule = msgspec.structs.replace(build(), name=name or "", matches=matches())
        return PlannedRule(_valid(rule))
    except Unusable as error:
        problem = RuleProblem(error.reason, str(error))
    try:
        return PlannedRule(_valid(Rule(name=name or "", matches=matches())), problem)
    except Unusable:
        return PlannedRule(None, problem)


def backends_of(refs: Iterable[RouteBackendRef] | None, resolve: BackendRefs) -> tuple[BackendRef, ...]:
    """Return the backends of a rule with their filters; raises ``Unusable`` after all references are resolved."""
    listed = tuple(refs or ())
    names = [resolve.resolve(ref) for ref in listed]
    return tuple(
        BackendRef(
            name,
            1 if ref.weight is None else ref.weight,
            build_backend_filters(ref.filters, resolve, alone=len(listed) == 1),
        )
        for name, ref in zip(names, listed, strict=True)
    )


def value_matches(matches: Iterable[Match] | None) -> tuple[ValueMatch, ...]:
    """Return matches of headers or query parameters; raises ``Unusable``."""
    return tuple(_value_match(match) for match in matches or ())


def session_of(spec: SessionPersistenceSpec | None) -> SessionPersistence | None:
    """Return how sessions are kept; raises ``Unusable``."""
    if spec is None:
        return None
    if spec.idle_timeout:
        raise Unusable("sessionPersistence.idleTimeout is not supported; use absoluteTimeout")
    absolute_s = -(-_milliseconds("sessionPersistence.absoluteTimeout", spec.absolute_timeout) // 1000)
    name = spec.session_name or ""
    match spec.type or "Cookie":
        case "Cookie":
            lifetime = (spec.cookie_config or {}).get("lifetimeType") or _BROWSER_SESSION
            if lifetime != _BROWSER_SESSION and not absolute_s:
                raise Unusable("sessionPersistence: a permanent cookie needs absoluteTimeout")
            return SessionPersistence("Cookie", name, absolute_s)
        case "Header" if absolute_s:
            raise Unusable("sessionPersistence.absoluteTimeout is supported for cookies only")
        case "Header":
            return SessionPersistence("Header", name)
        case other:
            raise Unusable(f"sessionPersistence.type {other} is not supported; use Cookie or Header")


def _http_rule(rule: HTTPRule, refs: BackendRefs) -> PlannedRule:
    def build() -> Rule:
        backends = backends_of(rule.backend_refs, refs)
        timeouts = rule.timeouts
        return Rule(
            filters=build_filters(rule.filters, refs),
            backends=backends,
            request_timeout_ms=_timeout("timeouts.request", timeouts.request if timeouts else None),
            backend_timeout_ms=_timeout("timeouts.backendRequest", timeouts.backend_request if timeouts else None),
            retry=_retry(rule.retry),
            session=session_of(rule.session_persistence),
        )

    return plan_rule(rule.name, lambda: tuple(_request_match(match) for match in rule.matches or ()), build)


def _request_match(match: HTTPMatch) -> RequestMatch:
    return RequestMatch(
        path=_path_match(match),
        method=match.method or "",
        headers=value_matches(first_of_each_header(match.headers)),
        query_params=value_matches(match.query_params),
    )


def _path_match(match: HTTPMatch) -> PathMatch:
    if match.path is None:
        return PathMatch()
    value = match.path.value or "/"
    match match.path.type or "PathPrefix":
        case "Exact":
            return PathMatch("Exact", value)
        case "PathPrefix":
            return PathMatch("PathPrefix", value)
        case "RegularExpression":
            return PathMatch("RegularExpression", value)
        case other:
            raise Unusable(f"matches: path type {other} is not supported")


def _value_match(match: Match) -> ValueMatch:
    match match.type or "Exact":
        case "Exact":
            return ValueMatch(match.name, match.value)
        case "RegularExpression":
            return ValueMatch(match.name, match.value, "RegularExpression")
        case other:
            raise Unusable(f"matches: type {other} of {match.name} is not supported")


def _retry(retry: HTTPRetry | None) -> Retry | None:
    if retry is None:
        return None
    return Retry(
        codes=tuple(retry.codes or ()),
        attempts=Retry().attempts if retry.attempts is None else retry.attempts,
        backoff_ms=_milliseconds("retry.backoff", retry.backoff),
    )


def _timeout(field: str, text: str | None) -> int | None:
    return None if text is None else _milliseconds(field, text)


def _milliseconds(field: str, text: str | None) -> int:
    try:
        return duration_ms(text) if text else 0
    except ValueError as error:
        raise Unusable(f"{field}: {error}") from None


def _valid(rule: Rule) -> Rule:
    """Return ``rule``; raises ``Unusable`` when it is outside of what an object at the hub can hold."""
    try:
        msgspec.convert(msgspec.to_builtins(rule), Rule)
    except msgspec.ValidationError as error:
        raise Unusable(f"a value cannot be programmed: {error}") from None
    return rule
