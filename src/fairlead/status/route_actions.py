"""The requests that a rule takes and its action, in plain sentences.

In: a rule, and the match by which it is met. Out: the conditions of a match; one sentence for each filter, time-out,
retry and session, none when the request goes on as it came.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.model.http import Filters, HeaderModifier, PathModifier, Redirect, RequestMatch, Rule, ValueMatch


def match_text(match: RequestMatch) -> str:
    """Return the conditions of a match."""
    parts = [f"{match.path.type} {match.path.value}"]
    parts += [f"method {match.method}"] if match.method else []
    parts += [_value_text("header", each) for each in match.headers]
    parts += [_value_text("query", each) for each in match.query_params]
    return ", ".join(parts)


def actions_of(rule: Rule, match: RequestMatch) -> list[str]:
    """Return what the rule does beside choosing a backend, in the order in which it is done."""
    return [*_filters(rule.filters, match), *_limits(rule)]


def actions_of_backend(filters: Filters, match: RequestMatch) -> list[str]:
    """Return what is done for one backend only."""
    return list(_filters(filters, match))


def _filters(filters: Filters, match: RequestMatch) -> Iterator[str]:
    if filters.cors is not None:
        origins = ", ".join(filters.cors.allow_origins) or "none"
        yield f"CORS: preflight requests are answered here; origins {origins}"
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
        copied = f"{percent:g} % of the requests are" if percent < 100 else "it is"
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
    return f"it is answered {redirect.status_code}, a redirect: {', '.join(parts) or 'to the same place'}"


def _path(path: PathModifier, match: RequestMatch) -> str:
    if path.type == "ReplaceFullPath":
        return f"the path becomes {path.value or '/'}"
    return f"the prefix {match.path.value} of the path becomes {path.value or '/'}"


def _modifier(of: str, modifier: HeaderModifier | None) -> Iterator[str]:
    if modifier is None:
        return
    yield from (f"{of} header {each.name} is set to {each.value!r}" for each in modifier.set)
    yield from (f"{of} header {each.name} gets {each.value!r} added" for each in modifier.add)
    yield from (f"{of} header {name} is removed" for name in modifier.remove)


def _limits(rule: Rule) -> Iterator[str]:
    if rule.request_timeout_ms is not None:
        yield f"time-out {_seconds(rule.request_timeout_ms)}"
    if rule.backend_timeout_ms is not None:
        yield f"time-out of each try {_seconds(rule.backend_timeout_ms)}"
    if rule.retry is not None and rule.retry.attempts:
        on = ", ".join(map(str, rule.retry.codes)) or "failed connections"
        yield f"tried again up to {rule.retry.attempts} times on {on}, whatever its method"
    if rule.session is not None:
        named = f" {rule.session.name}" if rule.session.name else ""
        yield f"one session stays at one target, by the {rule.session.type.lower()}{named}"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s" if ms else "none"


def _value_text(kind: str, match: ValueMatch) -> str:
    return f"{kind} {match.name}{'=' if match.type == 'Exact' else '~'}{match.value}"
