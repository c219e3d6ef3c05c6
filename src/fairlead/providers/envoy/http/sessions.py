"""Keeps the requests of a session at one target, also where a rule has several backends.

Envoy's filter finds the target of a session within one cluster, and the weights choose the cluster before. So a rule
with several backends has a second cookie, which names the backend, and an entry for each backend that is met by this
cookie: it leads there alone, at weight 0 too. A backend without a usable target has no such entry, so its sessions
begin again elsewhere.

A client has one cookie for a name and path of a host. Two rules whose sessions would share one send each other's
sessions elsewhere, unless they have the same backends. So the older route, or the first rule of a route, keeps the name
that its user chose, and the other gets a name of its own.

In: a route and its rule. Out: names of cookies, the filter's settings, the header that sets the second cookie.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from fairlead.model.http import BackendRef, PathMatch, RequestMatch, Route, Rule, SessionPersistence
from fairlead.providers.envoy.http.names import normal, patterns_for
from fairlead.providers.envoy.http.route_match import age, prefix_of
from fairlead.providers.envoy.resources import Fields, Schema, duration

STATEFUL_SESSION = "envoy.filters.http.stateful_session"
#: What may be the Path attribute of a cookie as it is.
_COOKIE_PATH = re.compile(r"/[0-9A-Za-z/._~-]*")


def session_name(route: Route, rule: Rule) -> str:
    """Return the name of a rule's cookie or header; one that users do not name is that of the rule alone."""
    if rule.session is None:
        return ""
    return rule.session.name or f"fairlead-session-{_digest_of_rule(route, rule)}"


def own_cookies(
    routes: Iterable[tuple[Route, tuple[Rule | None, ...]]], hostnames: Mapping[str, str]
) -> dict[str, tuple[Rule | None, ...]]:
    """Return, by route, rules with cookies of their own: those whose sessions would share the cookie of other rules.

    ``routes`` are routes with what is served of their rules, ``hostnames`` those of the listeners, by name.
    """
    taken: dict[tuple[str, str], _CookieHosts] = {}
    changed: dict[str, tuple[Rule | None, ...]] = {}
    with_cookies = [(route, rules) for route, rules in routes if any(map(named_cookie, rules))]
    for route, rules in sorted(with_cookies, key=lambda served: age(served[0])):
        hosts = {
            normal(host)
            for attachment in route.attachments
            for host in attachment.hostnames or (hostnames.get(attachment.listener, ""),)
        }
        kept = list(rules)
        for number, rule in enumerate(rules):
            session = named_cookie(rule)
            if rule is None or session is None:
                continue
            backends = frozenset(backend.backend for backend in rule.backends)
            if not taken.setdefault((session.name, _path(rule)), _CookieHosts()).take(hosts, backends):
                name = f"{session.name}-{_digest_of_rule(route, rule)}"
                kept[number] = replace(rule, session=replace(session, name=name))
                changed[route.name] = ()
        if route.name in changed:
            changed[route.name] = tuple(kept)
    return changed


class _CookieHosts:
    """The hosts at which rules have one cookie, each with the backends of these rules."""

    def __init__(self) -> None:
        self._at: dict[str, set[frozenset[str]]] = {}
        #: By pattern, those of all hosts that it covers.
        self._covered: dict[str, set[frozenset[str]]] = {}

    def take(self, hosts: Iterable[str], backends: frozenset[str]) -> bool:
        """Add a rule; return whether no rule with other backends has the cookie at one of its hosts."""
        same = {backends}
        for host in hosts:
            above = (self._at.get(pattern, same) for pattern in patterns_for(host))
            if any(others - same for others in (*above, self._covered.get(host, same))):
                return False
        for host in hosts:
            self._at.setdefault(host, set()).add(backends)
            for pattern in patterns_for(host):
                self._covered.setdefault(pattern, set()).add(backends)
        return True


def named_cookie(rule: Rule | None) -> SessionPersistence | None:
    """Return the session of a rule that is kept by a cookie which its user named, None for every other."""
    session = rule.session if rule is not None else None
    return session if session is not None and session.type == "Cookie" and session.name else None


def backends_of_sessions(rule: Rule) -> list[BackendRef]:
    """Return the backends that a rule's sessions choose between; none when there is at most one."""
    if rule.session is None or rule.session.type != "Cookie" or rule.filters.redirect is not None:
        return []
    backends = {backend.backend: backend for backend in rule.backends if backend.backend}
    return list(backends.values()) if len(rule.backends) > 1 else []


def at_backend(rule: Rule, backend: BackendRef) -> Rule:
    """Return the rule as the sessions of one of its backends meet it."""
    return replace(rule, backends=(replace(backend, weight=1),))


def backend_cookie(route: Route, rule: Rule, backend: BackendRef) -> str:
    """Return the cookie that names the backend of a session, with its value."""
    return f"{session_name(route, rule)}-backend={_digest(backend.backend)}"


def backend_of_cookies(route: Route, rule: Rule, cookies: Iterable[str]) -> BackendRef | None:
    """Return the backend that Cookie headers name, None when they name none."""
    texts = list(cookies)
    return next(
        (
            backend
            for backend in backends_of_sessions(rule)
            if any(backend_cookie(route, rule, backend) in text for text in texts)
        ),
        None,
    )


def set_backend_cookie(route: Route, rule: Rule, backend: BackendRef) -> Fields:
    """Return the response header that gives a session its backend."""
    session = rule.session
    age = f"; Max-Age={session.absolute_timeout_s}" if session is not None and session.absolute_timeout_s else ""
    value = f"{backend_cookie(route, rule, backend)}; Path={_path(rule)}{age}; HttpOnly"
    return {"header": {"key": "set-cookie", "value": value}, "append_action": "APPEND_IF_EXISTS_OR_ADD"}


def session_settings(schema: Schema, route: Route, rule: Rule) -> Mapping[str, Fields]:
    """Return the settings of the filter for a rule; empty when it keeps no sessions."""
    session, name = rule.session, session_name(route, rule)
    if session is None:
        return {}
    if session.type == "Header":
        state = schema.extension(
            "envoy.http.stateful_session.header",
            "envoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionState",
            {"name": name},
        )
    else:
        # Envoy itself adds HttpOnly.
        cookie: dict[str, object] = {"name": name, "path": _path(rule)}
        if session.absolute_timeout_s:
            cookie["ttl"] = duration(session.absolute_timeout_s)
        state = schema.extension(
            "envoy.http.stateful_session.cookie",
            "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState",
            {"cookie": cookie},
        )
    settings = schema.any(
        "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute",
        {"stateful_session": {"session_state": state}},
    )
    return {STATEFUL_SESSION: settings}


def _path(rule: Rule) -> str:
    """Return the path of a rule's cookies, so that rules that share a name do not overwrite each other's."""
    matches: tuple[RequestMatch, ...] = rule.matches or (RequestMatch(),)
    paths: set[PathMatch] = {match.path for match in matches}
    path = paths.pop() if len(paths) == 1 else PathMatch()
    value = prefix_of(path) if path.type == "PathPrefix" else path.value
    return value if path.type != "RegularExpression" and _COOKIE_PATH.fullmatch(value) else "/"


def _digest_of_rule(route: Route, rule: Rule) -> str:
    return _digest(route.name, rule.name, msgspec.json.encode(rule.matches))


def _digest(*parts: str | bytes) -> str:
    text = b"\0".join(part.encode() if isinstance(part, str) else part for part in parts)
    return blake2b(text, digest_size=4).hexdigest()
