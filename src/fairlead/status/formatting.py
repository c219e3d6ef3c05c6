"""Format what people are shown: reasons, matches and actions of routes, counts, ages and aligned columns. Pure.

In: rows, whose words others may have written; a rule and the match by which it is met. Out: text in which nothing acts
on a terminal; the conditions of a match, and one sentence for each filter, timeout, retry and session of a rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.model.change import Reason
from fairlead.model.http import Filters, HeaderModifier, PathModifier, Redirect, RequestMatch, Rule, ValueMatch
from fairlead.model.in_words import listed
from fairlead.runtime.logs import legible

#: So many networks of a list of clients are shown.
_MOST_SOURCES = 5

REASONS = {
    Reason.NEW: "desired, but not recorded",
    Reason.VANISHED: "deleted by another party; created again",
    Reason.CHANGED: "differs from the record",
    Reason.OWNERS_CHANGED: "only the owners changed; the provider is not called",
    Reason.DEREGISTERING: "a deregistration has begun and is finished first",
    Reason.REPLACED: "the address now belongs to another object",
    Reason.TERMINATING: "reported as terminating or not ready",
    Reason.ABSENT: "disappeared without being reported as terminating",
    Reason.DRAINED: "the drain time is over",
    Reason.LISTENER_REMOVED: "the listener was removed",
    Reason.OWNER_DELETED: "the owner was deleted",
}


def reason_text(reason: str) -> str:
    """Return a reason with its meaning; a reason that is not one of ``Reason`` (a provider's own) is returned as is."""
    meaning = REASONS.get(Reason(reason)) if reason in tuple(Reason) else None
    return f"{reason}: {meaning}" if meaning else reason


def columns(rows: Sequence[Sequence[str]], *, indent: str = "  ") -> list[str]:
    """Return one line for each row of cells, aligned; the last column is not padded."""
    rows = [[legible(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in rows) for at in range(max(map(len, rows), default=1) - 1)] if rows else []
    return [
        (indent + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])).rstrip()
        for row in rows
    ]


def age_text(age_s: float | None) -> str:
    """Return an age as kubectl prints it: 7s, 3m, 5h, 2d."""
    if age_s is None:
        return "never"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "m"), (172_800, 3600, "h")):
        if age_s < limit:
            return f"{int(age_s // size)}{unit}"
    return f"{int(age_s // 86_400)}d"


def match_text(match: RequestMatch) -> str:
    """Return the conditions of a match."""
    parts = [f"{match.path.type} {match.path.value}"]
    parts += [f"method {match.method}"] if match.method else []
    parts += [_value_text("header", header) for header in match.headers]
    parts += [_value_text("query", param) for param in match.query_params]
    return ", ".join(parts)


def actions_of(rule: Rule, match: RequestMatch) -> list[str]:
    """Return what the rule does in addition to choosing a backend, in order."""
    return [*_admission(rule), *_filters(rule.filters, match), *_limits(rule)]


def actions_of_backend(filters: Filters, match: RequestMatch) -> list[str]:
    """Return what is done for one backend only."""
    return list(_filters(filters, match))


def _admission(rule: Rule) -> Iterator[str]:
    if rule.denied_sources:
        yield f"answered 403 for clients in {listed(rule.denied_sources, _MOST_SOURCES)}"
    if rule.allowed_sources:
        yield f"answered 403 for clients outside of {listed(rule.allowed_sources, _MOST_SOURCES)}"
    if rule.requests_per_second:
        yield f"answered 429 above {rule.requests_per_second} requests a second at each proxy"
    if rule.processor is not None and rule.processor.backend:
        shown = "headers and bodies" if rule.processor.max_size else "headers"
        failing = "passed" if rule.processor.fail_open else "answered 503 or 504"
        yield f"{shown} inspected by {rule.processor.backend}; {failing} while that does not answer"
    if rule.jwt:
        yield f"answered 401 without a valid token of {' or '.join(provider.issuer for provider in rule.jwt)}"


def _filters(filters: Filters, match: RequestMatch) -> Iterator[str]:
    if filters.cors is not None:
        origins = ", ".join(filters.cors.allow_origins) or "none"
        yield f"CORS: preflight requests are answered here; origins {origins}"
    if filters.auth is not None and filters.auth.backend:
        failing = "passed" if filters.auth.fail_open else "answered 503"
        yield f"passed only if {filters.auth.backend} allows it; {failing} while that does not answer"
    if filters.redirect is not None:
        yield _redirect(filters.redirect, match)
    yield from _modifier("request", filters.request_headers)
    if filters.rewrite is not None:
        if filters.rewrite.hostname:
            yield f"the Host header becomes {filters.rewrite.hostname}"
        if filters.rewrite.path is not None:
            yield _path(filters.rewrite.path, match)
    for mirror in filters.mirrors:
        percent = 100 * mirror.numerator / mirror.denominator
        copied = f"{percent:g} % of the requests are" if percent < 100 else "requests are"
        target = f"copied to {mirror.backend}" if mirror.backend else "not copied: the mirror could not be resolved"
        yield f"{copied} {target}"
    yield from _modifier("response", filters.response_headers)


def _redirect(redirect: Redirect, match: RequestMatch) -> str:
    parts = [
        *([f"scheme {redirect.scheme}"] if redirect.scheme else []),
        *([f"host {redirect.hostname}"] if redirect.hostname else []),
        *([f"port {redirect.port}"] if redirect.port else []),
        *([_path(redirect.path, match)] if redirect.path is not None else []),
    ]
    return f"answered with {redirect.status_code}, a redirect: {', '.join(parts) or 'to the same place'}"


def _path(path: PathModifier, match: RequestMatch) -> str:
    if path.type == "ReplaceFullPath":
        return f"the path becomes {path.value or '/'}"
    return f"the prefix {match.path.value} of the path becomes {path.value or '/'}"


def _modifier(of: str, modifier: HeaderModifier | None) -> Iterator[str]:
    if modifier is None:
        return
    yield from (f"{of} header {header.name} is set to {header.value!r}" for header in modifier.set)
    yield from (f"{of} header {header.name} gets {header.value!r} added" for header in modifier.add)
    yield from (f"{of} header {name} is removed" for name in modifier.remove)


def _limits(rule: Rule) -> Iterator[str]:
    if rule.request_timeout_ms is not None:
        yield f"timeout {_seconds(rule.request_timeout_ms)}"
    if rule.backend_timeout_ms is not None:
        yield f"timeout of each try {_seconds(rule.backend_timeout_ms)}"
    if rule.retry is not None and rule.retry.attempts:
        on = ", ".join(map(str, rule.retry.codes)) or "failed connections"
        yield f"retried up to {rule.retry.attempts} times on {on}, for any method"
    if rule.session is not None:
        named = f" {rule.session.name}" if rule.session.name else ""
        idle_s = rule.session.idle_timeout_s
        until = f", until it is idle for {idle_s} s" if idle_s else ""
        yield f"one session stays at one target, by the {rule.session.type.lower()}{named}{until}"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s" if ms else "none"


def _value_text(kind: str, match: ValueMatch) -> str:
    return f"{kind} {match.name}{'=' if match.type == 'Exact' else '~'}{match.value}"
