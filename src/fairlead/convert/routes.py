"""The routes of one Ingress.

    each host of its rules   an HTTPRoute: one rule for each path, the default backend behind them
    a host with TLS          a second HTTPRoute that redirects plain requests, unless ssl-redirect is false
    the default backend      an HTTPRoute for all hosts
    ssl-passthrough          a TLSRoute, and the redirect of plain requests

In: an Ingress with its annotations read, its canaries, the listeners. Out: routes. A rule that would not do what the
path did is left out, with a remark. Source: https://gateway-api.sigs.k8s.io/guides/migrating-from-ingress/
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from fairlead.api.gateway import (
    ConnectionRouteSpec,
    ConnectionRule,
    HTTPMatch,
    HTTPPathMatch,
    HTTPRoute,
    HTTPRouteSpec,
    HTTPRule,
    Match,
    ParentReference,
    PathModifierSpec,
    RedirectFilter,
    RewriteFilter,
    RouteBackendRef,
    RouteFilter,
    TLSRoute,
)
from fairlead.api.kubernetes import IngressBackend, IngressObject, IngressPath, Service
from fairlead.api.meta import ObjectKey, ObjectMeta
from fairlead.api.names import fit
from fairlead.convert.annotations import Remarks, number_of
from fairlead.convert.listeners import Listeners, backend_ref, tls_hosts
from fairlead.convert.nginx import ConvertedPath, NginxSettings, nginx_order, re2_problem

#: As many hostnames, rules and matches as the schema of a route allows; the last ones in a rule, and in all rules.
_MOST_HOSTNAMES = 16
_MOST_RULES = 16
_MOST_MATCHES = 64
_MOST_MATCHES_IN_ALL = 128
NAME_LIMIT = 253
_EVERY_PATH = ("Prefix", "/")
#: A path as it identifies a rule: host, type and value.
PathKey = tuple[str, str, str]


class Canary(msgspec.Struct, frozen=True):
    """A canary Ingress for one path of another."""

    ingress: IngressObject
    annotations: Mapping[str, str]
    backend: IngressBackend


class IngressInput(msgspec.Struct, frozen=True):
    """All that the routes of one Ingress depend on.

    ``taken`` maps each path to the oldest Ingress that has it. ``paths`` are those of this Ingress that are converted;
    ``regex_hosts`` the hosts whose paths nginx matches as regular expressions.
    """

    ingress: IngressObject
    annotations: Mapping[str, str]
    settings: NginxSettings
    services: Mapping[ObjectKey, Service]
    canaries: Mapping[PathKey, Sequence[Canary]]
    taken: Mapping[PathKey, IngressObject]
    paths: Mapping[PathKey, ConvertedPath]
    regex_hosts: Collection[str]


def path_key(host: str, path: IngressPath) -> PathKey:
    """Return a key that is equal for paths which match the same requests."""
    return host, "Exact" if path.path_type == "Exact" else "Prefix", path.path or "/"


def paths_of(ingress: IngressObject) -> Iterator[PathKey]:
    """Yield the paths of an Ingress, its default backend among them."""
    for host, paths in hosts_of(ingress).items():
        yield from (path_key(host, path) for path in paths)
        if ingress.spec.default_backend is not None:
            yield host, *_EVERY_PATH


def hosts_of(ingress: IngressObject) -> dict[str, list[IngressPath]]:
    """Return the paths of each host; with a default backend there is one for every host, too."""
    hosts: dict[str, list[IngressPath]] = {}
    for rule in ingress.spec.rules or ():
        hosts.setdefault(rule.host, []).extend((rule.http.paths if rule.http else None) or ())
    if ingress.spec.default_backend is not None:
        hosts.setdefault("", [])
    return hosts


def convert_routes(view: IngressInput, listeners: Listeners, remarks: Remarks) -> Iterator[HTTPRoute | TLSRoute]:
    """Yield the routes of one Ingress."""
    hosts = hosts_of(view.ingress)
    for host, paths in hosts.items():
        # Of names, the host is a part where there are several.
        part = (f"-{host or 'default'}" if len(hosts) > 1 else "").replace("*", "wildcard")
        yield from _Routes(view, listeners, remarks, host, part).all(paths)


class _Routes:
    """The routes of one host of an Ingress."""

    def __init__(self, view: IngressInput, listeners: Listeners, remarks: Remarks, host: str, part: str) -> None:
        self._view = view
        self._listeners = listeners
        self._remarks = remarks
        self._host = host
        self._part = part
        if host.startswith("*."):
            remarks.lost(view.ingress, f"host {host}", "the star matches any number of labels, not exactly one")

    def all(self, paths: Sequence[IngressPath]) -> Iterator[HTTPRoute | TLSRoute]:
        rules = [] if self._view.settings.unserved else self._rules(paths)
        if not rules:
            self._remarks.note(self._view.ingress, f"host {self._host or '*'}", "no rule is left for it")
        elif self._host:
            yield from self._of_host(rules)
        else:
            yield from self._http("", [self._listeners.http()], [], rules)
            for host, _ in tls_hosts(self._view.ingress):
                yield from self._behind(host, rules)

    def _of_host(self, rules: list[HTTPRule]) -> Iterator[HTTPRoute | TLSRoute]:
        settings, hostnames = self._view.settings, [self._host, *self._view.settings.aliases]
        plain = [self._listeners.http()]
        if settings.www and not self._host.startswith("*."):
            yield self._www()
        if settings.passthrough:
            yield from self._passed_through(rules)
            return
        below = [parent for hostname in hostnames for parent in self._listeners.below(hostname)]
        secure = list(dict.fromkeys([*filter(None, map(self._listeners.secure, hostnames)), *below]))
        if not secure and settings.always_https:
            why = "there is no certificate for the host here: a proxy before it has to end TLS; not converted"
            self._remarks.lost(self._view.ingress, "force-ssl-redirect", why)
        for alias in settings.aliases if secure else ():
            if self._listeners.secure(alias) is None:
                why = "the alias has no certificate of its own, so it is not served over HTTPS"
                self._remarks.lost(self._view.ingress, f"server-alias {alias}", why)
        if secure and (settings.force_https or settings.always_https):
            yield from self._http("", secure, hostnames, rules)
            yield from self._http("-to-https", plain, hostnames, _to_https(rules))
        else:
            yield from self._http("", [*plain, *secure], hostnames, rules)

    def _behind(self, host: str, rules: Sequence[HTTPRule]) -> Iterator[HTTPRoute]:
        """Yield the route of a TLS host: its own paths, then those for every host."""
        parent = self._listeners.secure(host)
        own_rules = [rule for rule in rules if (host, *_path_of(rule)) not in self._view.taken]
        if parent is not None and own_rules:
            yield from self._http(f"-{host.replace('*', 'wildcard')}-https", [parent], [host], own_rules)

    def _rules(self, paths: Sequence[IngressPath]) -> list[HTTPRule]:
        view, rules = self._view, list[HTTPRule]()
        own: set[PathKey] = set()
        if self._host in view.regex_hosts:
            paths = sorted(paths, key=lambda path: nginx_order(path.path or "/"))
        for path in paths:
            key = path_key(self._host, path)
            older = view.taken.get(key, view.ingress)
            if older.key != view.ingress.key or key in own:
                why = f"Ingress {older.key} is older and has the path too; it keeps it"
                self._remarks.note(view.ingress, f"path {self._host}{path.path}", why)
                continue
            own.add(key)
            rules += self._path(path, key)
        default, every = view.ingress.spec.default_backend, (self._host, *_EVERY_PATH)
        if default is not None and every not in own and view.taken[every].key == view.ingress.key:
            ref = self._backend(default)
            rules += [self._rule(ConvertedPath(HTTPPathMatch("PathPrefix", "/")), ref)] if ref is not None else []
        if view.settings.app_root:
            root = RedirectFilter(path=PathModifierSpec("ReplaceFullPath", view.settings.app_root), status_code=302)
            match = HTTPMatch(HTTPPathMatch("Exact", "/"))
            filters = [RouteFilter("RequestRedirect", request_redirect=root)]
            rules.insert(0, HTTPRule(matches=[match], filters=filters))
        return rules

    def _path(self, path: IngressPath, key: PathKey) -> list[HTTPRule]:
        view = self._view
        converted = view.paths.get(key)
        ref = self._backend(path.backend)
        if converted is None or ref is None:
            return []
        rules = [*self._slash(path), self._rule(converted, ref)]
        for canary in view.canaries.get(key, ()):
            other = backend_ref(canary.ingress, canary.backend, view.services, self._remarks)
            if other is not None:
                last = rules.pop()
                rules += with_canary(last, canary.ingress, canary.annotations, other, self._remarks)
        return rules

    def _slash(self, path: IngressPath) -> list[HTTPRule]:
        """Return the redirect with which nginx answers a path without the / that ``path`` ends with."""
        value = path.path or "/"
        bare = value.removesuffix("/")
        other = any((self._host, kind, bare) in self._view.taken for kind in ("Exact", "Prefix"))
        if bare in {"", value} or other or self._host in self._view.regex_hosts:
            return []
        redirect = RedirectFilter(path=PathModifierSpec("ReplaceFullPath", replace_full_path=value), status_code=301)
        filters = [RouteFilter("RequestRedirect", request_redirect=redirect)]
        return [HTTPRule(matches=[HTTPMatch(HTTPPathMatch("Exact", bare))], filters=filters)]

    def _backend(self, backend: IngressBackend) -> RouteBackendRef | None:
        return backend_ref(self._view.ingress, backend, self._view.services, self._remarks)

    def _rule(self, path: ConvertedPath, ref: RouteBackendRef) -> HTTPRule:
        settings = self._view.settings
        matches = [HTTPMatch(path.match)]
        # nginx runs the rewrite of a path after the redirect of its Ingress.
        if (redirect := settings.redirect or path.redirect) is not None:
            return HTTPRule(matches=matches, filters=[RouteFilter("RequestRedirect", request_redirect=redirect)])
        filters = list(settings.filters)
        if path.change is not None or settings.hostname:
            filters.append(RouteFilter("URLRewrite", url_rewrite=RewriteFilter(settings.hostname or None, path.change)))
        return HTTPRule(
            matches=matches,
            filters=filters or None,
            backend_refs=[ref],
            retry=settings.retry,
            session_persistence=settings.session,
        )

    def _http(
        self, suffix: str, parents: list[ParentReference], hostnames: list[str], rules: list[HTTPRule]
    ) -> Iterator[HTTPRoute]:
        by_hostnames = [hostnames[at : at + _MOST_HOSTNAMES] for at in range(0, len(hostnames), _MOST_HOSTNAMES)]
        parts = [(names, part) for names in by_hostnames or [[]] for part in _parts(rules)]
        for number, (names, part) in enumerate(parts, 1):
            more = f"-{number:02}" if number > 1 else ""
            yield HTTPRoute(self._meta(f"{suffix}{more}"), HTTPRouteSpec(parents, names or None, part))

    def _www(self) -> HTTPRoute:
        other = self._host.removeprefix("www.") if self._host.startswith("www.") else f"www.{self._host}"
        to_host = RouteFilter("RequestRedirect", request_redirect=RedirectFilter(hostname=self._host, status_code=308))
        secure = self._listeners.secure(other)
        if self._listeners.secure(self._host) is not None and secure is None:
            why = f"there is no certificate for {other}: over HTTPS it is not redirected"
            self._remarks.note(self._view.ingress, "from-to-www-redirect", why)
        parents = [self._listeners.http(), *([secure] if secure is not None else [])]
        return HTTPRoute(self._meta("-www"), HTTPRouteSpec(parents, [other], [HTTPRule(filters=[to_host])]))

    def _passed_through(self, rules: list[HTTPRule]) -> Iterator[TLSRoute | HTTPRoute]:
        """Yield the TLSRoute, and the redirect of plain requests where nginx has one."""
        view, parent = self._view, self._listeners.secure(self._host)
        refs = next((rule.backend_refs for rule in rules if rule.backend_refs), list[RouteBackendRef]())
        if len(rules) > 1:
            why = f"connections go to one backend, {refs[0].name if refs else 'none'}: paths cannot be seen"
            self._remarks.note(view.ingress, "ssl-passthrough", why)
        for alias in view.settings.aliases:
            self._remarks.lost(view.ingress, f"server-alias {alias}", "connections are passed through by host alone")
        if parent is not None and refs:
            spec = ConnectionRouteSpec([parent], [self._host], [ConnectionRule(backend_refs=refs)])
            yield TLSRoute(self._meta(""), spec)
        has_certificate = any(host == self._host and secret for host, secret in tls_hosts(view.ingress))
        if view.settings.always_https or (view.settings.force_https and has_certificate):
            yield from self._http("-to-https", [self._listeners.http()], [self._host], _to_https(rules))
        else:
            why = "nginx sends plain requests to the backend over TLS: force-ssl-redirect redirects them; left out"
            self._remarks.lost(view.ingress, "ssl-passthrough", why)

    def _meta(self, suffix: str) -> ObjectMeta:
        meta = self._view.ingress.metadata
        name = fit(f"{meta.name}{self._part}{suffix}", limit=NAME_LIMIT)
        return ObjectMeta(name=name, namespace=meta.namespace)


def _parts(rules: Sequence[HTTPRule]) -> Iterator[list[HTTPRule]]:
    """Yield the rules in parts that one route can hold."""
    part: list[HTTPRule] = []
    matches = 0
    for rule in rules:
        more = len(rule.matches or ()) or 1
        if part and (len(part) == _MOST_RULES or matches + more > _MOST_MATCHES_IN_ALL):
            yield part
            part, matches = [], 0
        part.append(rule)
        matches += more
    if part:
        yield part


def _path_of(rule: HTTPRule) -> tuple[str, str]:
    """Return type and value of a rule's path as a ``PathKey`` has them; all its matches have the same."""
    path = (rule.matches or [HTTPMatch()])[0].path or HTTPPathMatch()
    return "Prefix" if path.type == "PathPrefix" else path.type or "", path.value or "/"


def _to_https(rules: Sequence[HTTPRule]) -> list[HTTPRule]:
    """Return rules that redirect the requests of ``rules`` to HTTPS."""
    matches = list({msgspec.json.encode(match): match for rule in rules for match in rule.matches or ()}.values())
    redirect = RouteFilter("RequestRedirect", request_redirect=RedirectFilter(scheme="https", status_code=308))
    return [
        HTTPRule(matches=matches[at : at + _MOST_MATCHES], filters=[redirect])
        for at in range(0, len(matches), _MOST_MATCHES)
    ]


_ALWAYS, _NEVER = "always", "never"


def with_canary(
    rule: HTTPRule, canary: IngressObject, annotations: Mapping[str, str], backend: RouteBackendRef, remarks: Remarks
) -> list[HTTPRule]:
    """Return ``rule`` with its canary: first the rules for certain requests, last the one that shares by weight."""
    rules = [
        msgspec.structs.replace(rule, matches=[_also(match, header) for match in rule.matches or [HTTPMatch()]],
                                backend_refs=[backend] if chosen else rule.backend_refs)
        for header, chosen in _headers(canary, annotations, remarks)
    ]  # fmt: skip
    return [*rules, _weighted(rule, canary, annotations, backend, remarks)]


def _headers(canary: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> Iterator[tuple[Match, bool]]:
    """Yield each header match, with whether its requests go to the canary."""
    if name := annotations.get("canary-by-header", ""):
        value, pattern = annotations.get("canary-by-header-value", ""), annotations.get("canary-by-header-pattern", "")
        if value:
            yield Match(name, value), True
        elif pattern and (problem := re2_problem(pattern)):
            remarks.lost(canary, "canary-by-header-pattern", f"{problem}; the rule for the header is left out")
        elif pattern:
            yield Match(name, f".*(?:{pattern}).*", "RegularExpression"), True
        else:
            yield Match(name, _ALWAYS), True
            yield Match(name, _NEVER), False
    if cookie := annotations.get("canary-by-cookie", ""):
        for value, chosen in ((_ALWAYS, True), (_NEVER, False)):
            pattern = rf"(?:.*;\s*)?{re.escape(cookie)}={value}(?:;.*)?"
            yield Match("Cookie", pattern, "RegularExpression"), chosen


def _also(match: HTTPMatch, header: Match) -> HTTPMatch:
    return msgspec.structs.replace(match, headers=[*(match.headers or ()), header])


def _weighted(
    rule: HTTPRule, canary: IngressObject, annotations: Mapping[str, str], backend: RouteBackendRef, remarks: Remarks
) -> HTTPRule:
    weight = number_of(canary, annotations, "canary-weight", 0, remarks)
    total = number_of(canary, annotations, "canary-weight-total", 100, remarks)
    if not weight:
        return rule
    main = [msgspec.structs.replace(each, weight=max(0, total - weight)) for each in rule.backend_refs or ()]
    return msgspec.structs.replace(rule, backend_refs=[*main, msgspec.structs.replace(backend, weight=weight)])
