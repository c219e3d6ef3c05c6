"""Ingresses as objects of Gateway API, with remarks on what these cannot express.

    port 80                         one listener of HTTP for every host
    each host of spec.tls           a listener of HTTPS; of two Ingresses with one host, the older one's Secret
    each host with ssl-passthrough  a listener of TLS, a TLSRoute, and a redirect of plain requests
    more than 64 listeners          ListenerSets in addition to the Gateway
    each host of the rules          an HTTPRoute: one rule for each path, the default backend behind them
    a host with TLS                 a second HTTPRoute that redirects plain requests, unless ssl-redirect is false
    the default backend             an HTTPRoute for all hosts

In: Ingresses of any namespaces, the Services that are known, where the Gateway shall be. Out: objects in the order in
which they are applied, and remarks. A rule that would not do what the path did is left out, with a remark. Pure;
nothing depends on the order of the input. What the schemas or CEL rules of Gateway API would reject is left out, too.
Source: https://gateway-api.sigs.k8s.io/guides/migrating-from-ingress/
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from fairlead.api.gateway import (
    BACKEND_TLS_POLICIES,
    GATEWAY_GROUP,
    GATEWAYS,
    HTTP_ROUTES,
    LISTENER_SETS,
    REFERENCE_GRANTS,
    TLS_ROUTES,
    AllowedListeners,
    AllowedRoutes,
    BackendTLSPolicy,
    BackendTLSPolicySpec,
    BackendValidation,
    ConnectionRouteSpec,
    ConnectionRule,
    Gateway,
    GatewayListener,
    GatewaySpec,
    GrantFrom,
    GrantTo,
    HTTPMatch,
    HTTPPathMatch,
    HTTPRoute,
    HTTPRouteSpec,
    HTTPRule,
    ListenerSet,
    ListenerSetSpec,
    ListenerTls,
    Match,
    NamespaceSelector,
    ParentGateway,
    ParentReference,
    PathModifierSpec,
    PolicyTarget,
    RedirectFilter,
    Reference,
    ReferenceGrant,
    ReferenceGrantSpec,
    RewriteFilter,
    RouteBackendRef,
    RouteFilter,
    TLSRoute,
)
from fairlead.api.kubernetes import IngressBackend, IngressObject, IngressPath, Service
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, ObjectKey, ObjectMeta
from fairlead.api.names import fit
from fairlead.convert.annotations import SOURCE_RANGES, Remark, Remarks, flag_of, nginx_annotations, number_of
from fairlead.convert.nginx import (
    ConvertedPath,
    NginxSettings,
    PathOfHost,
    convert_path,
    needs_regex,
    nginx_order,
    overtaking,
    re2_problem,
    read_settings,
)
from fairlead.errors import BadConfiguration
from podless.offline import refusals

#: The lists whose items may be left out, by kind.
_PARTS: Mapping[str, tuple[str, ...]] = {
    HTTP_ROUTES.kind: ("rules", "hostnames"),
    TLS_ROUTES.kind: ("hostnames",),
    GATEWAYS.kind: ("listeners",),
    LISTENER_SETS.kind: ("listeners",),
}
_ITEM = re.compile(r"spec\.(\w+)\[(\d+)\]")
#: Of a message, what follows is the text of a pattern or a list of values.
_SHOWN = 300


def body_of(resource: AnyResource, obj: KubeObject) -> JSONObject:
    """Return an object as an API server takes it."""
    body: JSONObject = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        **cast("JSONObject", msgspec.to_builtins(obj)),
    }
    # The schema requires the group of a reference where it is the core one, too.
    spec: JSONObject = body.get("spec", {})
    for field in ("to", "targetRefs"):
        if field in spec:
            spec[field] = [{"group": "", **reference} for reference in spec[field]]
    return body


def problem_of(resource: AnyResource, obj: KubeObject) -> str:
    """Return why an API server refuses ``obj``; empty when it takes it."""
    return next((message for _, message in _problems(resource, obj)), "")


def accepted_part(
    ingress: IngressObject, resource: AnyResource, obj: KubeObject, remarks: Remarks
) -> KubeObject | None:
    """Return as much of ``obj`` as an API server takes; what is left out is a remark."""
    rest: Any = obj
    while problems := list(_problems(resource, rest)):
        items = {(match[1], int(match[2])): message for field, message in problems if (match := _ITEM.match(field))}
        droppable = {key: message for key, message in items.items() if key[0] in _PARTS.get(resource.kind, ())}
        if not droppable:
            field, message = problems[0]
            remarks.lost(ingress, f"{resource.kind} {obj.metadata.name}", f"{field}: {message}; it is left out")
            return None
        for (field, number), message in droppable.items():
            remarks.lost(ingress, _title(rest, field, number), f"{message}; it is left out")
        for field in {key[0] for key in droppable}:
            kept = [item for at, item in enumerate(getattr(rest.spec, field)) if (field, at) not in droppable]
            if not kept:
                return None
            rest = replace(rest, spec=replace(rest.spec, **{field: kept}))
    return cast("KubeObject", rest)


def _problems(resource: AnyResource, obj: KubeObject) -> Iterator[tuple[str, str]]:
    """Yield the field and the message of each refusal."""
    for cause in refusals(body_of(resource, obj)):
        if cause.field != "<nil>":
            yield cause.field, cause.message[:_SHOWN]


def _title(obj: Any, field: str, number: int) -> str:
    """Return what a user knows an item by."""
    if field == "hostnames":
        return f"hostname {obj.spec.hostnames[number]}"
    if field == "listeners":
        return f"host {obj.spec.listeners[number].hostname}"
    rule: HTTPRule = obj.spec.rules[number]
    paths = [match.path.value or "/" for match in rule.matches or () if match.path is not None]
    return f"path {(obj.spec.hostnames or [''])[0]}{(paths or ['/'])[0][:_SHOWN]}"


_RESOURCES: tuple[AnyResource, ...] = (
    GATEWAYS, LISTENER_SETS, REFERENCE_GRANTS, HTTP_ROUTES, TLS_ROUTES, BACKEND_TLS_POLICIES
)  # fmt: skip
_BY_TYPE: Mapping[type[KubeObject], AnyResource] = {resource.type: resource for resource in _RESOURCES}


class ConvertedIngresses(msgspec.Struct, frozen=True):
    """The objects, each with its resource, and the remarks about them."""

    objects: tuple[tuple[AnyResource, KubeObject], ...]
    remarks: tuple[Remark, ...]

    @property
    def lossless(self) -> bool:
        """Return whether the objects do everything that the Ingresses did."""
        return not any(remark.lost for remark in self.remarks)


def convert_ingresses(
    ingresses: Iterable[IngressObject], services: Iterable[Service], *, gateway: ObjectKey, class_name: str
) -> ConvertedIngresses:
    """Return ``ingresses`` converted to Gateway API, with remarks; an API server takes each of the objects.

    Raises:
        BadConfiguration: the name of the Gateway or of its class cannot be one.
    """
    remarks = Remarks()
    in_order = sorted(ingresses, key=attrgetter("age_order"))
    by_key = {service.key: service for service in services}
    annotations = {ingress.key: nginx_annotations(ingress, remarks) for ingress in in_order}
    mains = [ingress for ingress in in_order if not flag_of(annotations[ingress.key], "canary")]
    canaries = _canaries([ingress for ingress in in_order if ingress not in mains], annotations, mains, remarks)
    taken = _taken(mains)
    regex_hosts = _regex_hosts(mains, annotations)
    paths = _paths(mains, annotations, taken, regex_hosts, remarks)
    views = [
        IngressInput(
            ingress=main,
            annotations=annotations[main.key],
            settings=_without_hosts_of_others(
                main, read_settings(main, annotations[main.key], remarks), taken, remarks
            ),
            services=by_key,
            canaries=canaries.get(main.metadata.namespace, {}),
            taken=taken,
            paths=paths[main.key],
            regex_hosts=regex_hosts,
        )
        for main in mains
    ]
    passed_through = {view.ingress.key for view in views if view.settings.passthrough}
    listeners = Listeners(mains, passed_through, gateway=gateway, class_name=class_name, remarks=remarks)
    objects: list[KubeObject] = [*listeners.objects()] if mains else []
    for obj in objects:
        if problem := problem_of(_BY_TYPE[type(obj)], obj):
            raise BadConfiguration(f"{_BY_TYPE[type(obj)].kind} {obj.key}: {problem}")
    policies: dict[ObjectKey, KubeObject] = {}
    for view in views:
        routes = convert_routes(view, listeners, remarks)
        objects += filter(
            None, (accepted_part(view.ingress, _BY_TYPE[type(route)], route, remarks) for route in routes)
        )
        for policy in _policies(view, remarks):
            if accepted_part(view.ingress, BACKEND_TLS_POLICIES, policy, remarks) is not None:
                policies[policy.key] = policy
    return ConvertedIngresses(tuple(_addressed([*objects, *policies.values()])), remarks.all())


def _regex_hosts(mains: Iterable[IngressObject], annotations: Mapping[ObjectKey, Mapping[str, str]]) -> frozenset[str]:
    return frozenset(
        host
        for main in mains
        for host, paths in hosts_of(main).items()
        if any(needs_regex(path, annotations[main.key]) for path in paths)
    )


def _paths(
    mains: Sequence[IngressObject],
    annotations: Mapping[ObjectKey, Mapping[str, str]],
    taken: Mapping[PathKey, IngressObject],
    regex_hosts: Collection[str],
    remarks: Remarks,
) -> dict[ObjectKey, dict[PathKey, ConvertedPath]]:
    """Return the converted paths of each Ingress; those that would take requests from another path are left out."""
    paths: dict[ObjectKey, dict[PathKey, ConvertedPath]] = {main.key: {} for main in mains}
    by_host: dict[str, list[tuple[PathKey, PathOfHost]]] = {}
    for main in mains:
        for host, listed in hosts_of(main).items():
            for path in listed:
                key = path_key(host, path)
                if taken[key].key != main.key or key in paths[main.key]:
                    continue
                regex = host in regex_hosts
                converted = convert_path(main, path, annotations[main.key], remarks, regex=regex)
                if converted is not None:
                    paths[main.key][key] = converted
                if converted is not None and regex:
                    by_host.setdefault(host, []).append((key, PathOfHost(main.key, path.path or "/", converted)))
    for entries in by_host.values():
        keys = {id(entry): key for key, entry in entries}
        for later, first in overtaking([entry for _, entry in entries]):
            key = keys[id(later)]
            why = f"nginx tries {first.value} of Ingress {first.ingress} before, a Gateway after; the path is left out"
            remarks.lost(taken[key], f"path {later.value}", why)
            del paths[later.ingress][key]
    return paths


def _without_hosts_of_others(
    ingress: IngressObject, settings: NginxSettings, taken: Mapping[PathKey, IngressObject], remarks: Remarks
) -> NginxSettings:
    """Return the settings without an alias that is a host with rules of its own: nginx ignores it."""
    hosts = {host for host, _, _ in taken}
    for alias in settings.aliases:
        if alias in hosts:
            remarks.note(ingress, f"server-alias {alias}", "an Ingress has rules for the host; nginx ignores the alias")
    return replace(settings, aliases=tuple(aliase for aliase in settings.aliases if aliase not in hosts))


def _taken(mains: Iterable[IngressObject]) -> dict[PathKey, IngressObject]:
    """Return the oldest Ingress of each path."""
    taken: dict[PathKey, IngressObject] = {}
    for ingress in mains:
        for key in paths_of(ingress):
            taken.setdefault(key, ingress)
    return taken


def _canaries(
    canaries: Sequence[IngressObject],
    annotations: dict[ObjectKey, dict[str, str]],
    mains: Sequence[IngressObject],
    remarks: Remarks,
) -> dict[str, dict[PathKey, list[Canary]]]:
    """Return the canaries by namespace and path; one without a path to be a canary of is a remark."""
    main_paths = {(main.metadata.namespace, key) for main in mains for key in paths_of(main)}
    by_namespace: dict[str, dict[PathKey, list[Canary]]] = {}
    for ingress in canaries:
        namespace = ingress.metadata.namespace
        for name in annotations[ingress.key].keys() & set[str]().union(*SOURCE_RANGES.values()):
            remarks.note(ingress, name, "a canary has the source ranges of its main Ingress; dropped, as in nginx")
        for host, paths in hosts_of(ingress).items():
            for path in paths:
                key = path_key(host, path)
                if (namespace, key) not in main_paths:
                    why = "no Ingress that is not a canary has this path; it is left out"
                    remarks.lost(ingress, f"canary of {host}{path.path}", why)
                    continue
                of_path = by_namespace.setdefault(namespace, {}).setdefault(key, [])
                if of_path:
                    why = f"nginx uses one canary for a path, that of Ingress {of_path[0].ingress.key}; dropped"
                    remarks.note(ingress, f"canary of {host}{path.path}", why)
                else:
                    of_path.append(Canary(ingress, annotations[ingress.key], path.backend))
        if ingress.spec.default_backend is not None:
            remarks.lost(ingress, "canary of the default backend", "only canaries of paths are converted")
    return by_namespace


def _policies(view: IngressInput, remarks: Remarks) -> Iterator[BackendTLSPolicy]:
    # Of connections that are passed through, the client speaks TLS with the backend.
    if view.settings.passthrough or not check_protocol(view.ingress, view.annotations, remarks):
        return
    default = view.ingress.spec.default_backend
    backends = [path.backend for paths in hosts_of(view.ingress).values() for path in paths]
    named = [
        backend.service.name for backend in (*backends, *([default] if default else [])) if backend.service is not None
    ]
    for service in dict.fromkeys(named):
        yield tls_policy(view.ingress, service, view.annotations, remarks)


def _addressed(objects: Iterable[KubeObject]) -> Iterator[tuple[AnyResource, KubeObject]]:
    """Yield objects with their resources, ordered by kind; of two with one name, the later one gets a number."""
    by_type: dict[type[KubeObject], list[KubeObject]] = {}
    for obj in objects:
        by_type.setdefault(type(obj), []).append(obj)
    for resource in _RESOURCES:
        seen: dict[ObjectKey, int] = {}
        for obj in by_type.get(resource.type, ()):
            number = seen[obj.key] = seen.get(obj.key, 0) + 1
            meta = obj.metadata
            name = fit(f"{meta.name}.{number}", limit=NAME_LIMIT) if number > 1 else meta.name
            yield resource, replace(obj, metadata=replace(meta, name=name))


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
        if self._view.settings.closed:
            rules = [HTTPRule(matches=rule.matches) for rule in rules]
        if not rules:
            self._remarks.note(self._view.ingress, f"host {self._host or '*'}", "no rule is left for it")
        elif self._host:
            yield from self._of_host(rules)
        else:
            yield from self._http("", [self._listeners.http()], [], rules)
            for host, _ in tls_hosts(self._view.ingress):
                # The route of a TLS host: its own paths, then those for every host.
                parent = self._listeners.secure(host)
                own_rules = [rule for rule in rules if (host, *_path_of(rule)) not in self._view.taken]
                if parent is not None and own_rules:
                    yield from self._http(f"-{host.replace('*', 'wildcard')}-https", [parent], [host], own_rules)

    def _of_host(self, rules: list[HTTPRule]) -> Iterator[HTTPRoute | TLSRoute]:
        settings, hostnames = self._view.settings, [self._host, *self._view.settings.aliases]
        plain = [self._listeners.http()]
        if settings.www and not self._host.startswith("*."):
            yield from self._www()
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
            meta = replace(self._meta(f"{suffix}{more}"), annotations=dict(self._view.settings.own) or None)
            yield HTTPRoute(meta, HTTPRouteSpec(parents, names or None, part))

    def _www(self) -> Iterator[HTTPRoute]:
        other = self._host.removeprefix("www.") if self._host.startswith("www.") else f"www.{self._host}"
        if any(host == other for host, _, _ in self._view.taken):
            why = f"an Ingress has rules for {other}, so nginx does not redirect it"
            self._remarks.note(self._view.ingress, "from-to-www-redirect", why)
            return
        to_host = RouteFilter("RequestRedirect", request_redirect=RedirectFilter(hostname=self._host, status_code=308))
        secure = self._listeners.secure(other)
        if self._listeners.secure(self._host) is not None and secure is None:
            why = f"there is no certificate for {other}: over HTTPS it is not redirected"
            self._remarks.note(self._view.ingress, "from-to-www-redirect", why)
        parents = [self._listeners.http(), *([secure] if secure is not None else [])]
        yield HTTPRoute(self._meta("-www"), HTTPRouteSpec(parents, [other], [HTTPRule(filters=[to_host])]))

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
        replace(rule, matches=[_also(match, header) for match in rule.matches or [HTTPMatch()]],
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
    return replace(match, headers=[*(match.headers or ()), header])


def _weighted(
    rule: HTTPRule, canary: IngressObject, annotations: Mapping[str, str], backend: RouteBackendRef, remarks: Remarks
) -> HTTPRule:
    weight = number_of(canary, annotations, "canary-weight", 0, remarks)
    # As in nginx, a total below 100 is 100.
    total = max(100, number_of(canary, annotations, "canary-weight-total", 100, remarks))
    if not weight:
        return rule
    main = [replace(ref, weight=max(0, total - weight)) for ref in rule.backend_refs or ()]
    return replace(rule, backend_refs=[*main, replace(backend, weight=weight)])


_HTTP = "http"
#: As many listeners as the schema of a Gateway, and of a ListenerSet, allows.
_MOST = 64
#: As many targets as the schema of a ReferenceGrant allows.
_MOST_GRANTED = 16


class ListenerSection(msgspec.Struct, frozen=True):
    """A listener of HTTPS or TLS for one host: the object that holds it, and its name there."""

    listener: GatewayListener
    kind: str
    name: str


class Listeners:
    """The listeners for some Ingresses, and the objects that hold them."""

    def __init__(
        self, ingresses: Iterable[IngressObject], passed_through: Collection[ObjectKey], *, gateway: ObjectKey,
        class_name: str, remarks: Remarks,
    ) -> None:  # fmt: skip
        self._gateway, self._class_name = gateway, class_name
        ingresses = list(ingresses)
        self._with_rules = {rule.host for ingress in ingresses for rule in ingress.spec.rules or ()}
        self._shared = any(ingress.metadata.namespace != gateway.namespace for ingress in ingresses)
        secrets = _secrets(ingresses, remarks)
        owners = _passthrough_hosts(ingresses, passed_through)
        secrets = {host: secret for host, secret in secrets.items() if host not in owners}
        listeners = [self._https(host, key) for host, (key, _) in secrets.items()]
        listeners += [self._passthrough(host) for host in owners]
        owners |= {host: ingress for host, (_, ingress) in secrets.items()}
        listeners = [
            listener for listener in listeners if self._is_accepted(listener, owners[listener.hostname], remarks)
        ]
        self._sections = {
            listener.hostname: ListenerSection(listener, *self._place(number))
            for number, listener in enumerate(sorted(listeners, key=lambda listener: listener.name), 1)
        }
        self._secrets = [key for host, (key, _) in secrets.items() if host in self._sections]

    def _is_accepted(self, listener: GatewayListener, ingress: IngressObject, remarks: Remarks) -> bool:
        """Return whether an API server takes a listener; one that it refuses is a remark, and has no routes."""
        gateway = Gateway(ObjectMeta(name="some", namespace="some"), GatewaySpec("some", [listener]))
        problem = problem_of(GATEWAYS, gateway)
        if problem:
            remarks.lost(ingress, f"tls of {listener.hostname}", f"{problem}; the host is not served over TLS")
        return not problem

    def http(self) -> ParentReference:
        """Return where a route for plain requests attaches."""
        return self._reference("Gateway", self._gateway.name, _HTTP)

    def secure(self, host: str) -> ParentReference | None:
        """Return where a route of ``host`` attaches over TLS; None where no certificate is for it."""
        wildcard = f"*.{host.partition('.')[2]}"
        section = self._sections.get(host) or self._sections.get(wildcard)
        return self._reference(section.kind, section.name, section.listener.name) if section is not None else None

    def below(self, wildcard: str) -> Iterator[ParentReference]:
        """Yield where routes of ``wildcard`` attach for hosts that it covers, and that no rule names."""
        for host, section in self._sections.items():
            if f"*.{host.partition('.')[2]}" == wildcard != host and host not in self._with_rules:
                yield self._reference(section.kind, section.name, section.listener.name)

    def objects(self) -> Iterator[Gateway | ListenerSet | ReferenceGrant]:
        """Yield the Gateway first, then the objects that it needs."""
        by_place: dict[tuple[str, str], list[GatewayListener]] = {("Gateway", self._gateway.name): [self._plain()]}
        for section in self._sections.values():
            by_place.setdefault((section.kind, section.name), []).append(section.listener)
        more = len(by_place) > 1
        for (kind, name), listeners in by_place.items():
            meta = ObjectMeta(name=name, namespace=self._gateway.namespace)
            if kind == "Gateway":
                allowed = AllowedListeners(NamespaceSelector("Same")) if more else None
                yield Gateway(meta, GatewaySpec(self._class_name, listeners, allowed_listeners=allowed))
            else:
                parent = ParentGateway(GATEWAY_GROUP, "Gateway", self._gateway.name)
                yield ListenerSet(meta, ListenerSetSpec(parent, listeners))
        kinds = sorted({kind for kind, _ in by_place})
        gateway = self._gateway
        by_namespace: dict[str, dict[str, None]] = {}
        for secret in self._secrets:
            if secret.namespace != gateway.namespace:
                by_namespace.setdefault(secret.namespace, {})[secret.name] = None
        from_ = [GrantFrom(GATEWAY_GROUP, kind, gateway.namespace) for kind in kinds]
        for namespace, names in sorted(by_namespace.items()):
            to = [GrantTo("", "Secret", name) for name in sorted(names)]
            for at in range(0, len(to), _MOST_GRANTED):
                name = f"{gateway.name}-certificates{f'-{at // _MOST_GRANTED + 1}' if at else ''}"
                meta = ObjectMeta(name=name, namespace=namespace)
                yield ReferenceGrant(meta, ReferenceGrantSpec(from_, to[at : at + _MOST_GRANTED]))

    def _place(self, number: int) -> tuple[str, str]:
        """Return kind and name of the object that holds the listener of this number; the plain one has number 0."""
        at = number // _MOST
        return ("ListenerSet", f"{self._gateway.name}-{at + 1}") if at else ("Gateway", self._gateway.name)

    def _reference(self, kind: str, name: str, section: str) -> ParentReference:
        return ParentReference(
            kind="ListenerSet" if kind == "ListenerSet" else None,
            group=GATEWAY_GROUP if kind == "ListenerSet" else None,
            namespace=self._gateway.namespace if self._shared else None,
            name=name,
            section_name=section,
        )

    def _allowed(self) -> AllowedRoutes | None:
        return AllowedRoutes(NamespaceSelector("All")) if self._shared else None

    def _plain(self) -> GatewayListener:
        return GatewayListener(_HTTP, 80, "HTTP", allowed_routes=self._allowed())

    def _https(self, host: str, secret: ObjectKey) -> GatewayListener:
        namespace = secret.namespace if secret.namespace != self._gateway.namespace else ""
        reference = Reference(name=secret.name, namespace=namespace)
        tls = ListenerTls(certificate_refs=[reference])
        return GatewayListener(f"https-{_label(host)}", 443, "HTTPS", host, tls, self._allowed())

    def _passthrough(self, host: str) -> GatewayListener:
        return GatewayListener(f"tls-{_label(host)}", 443, "TLS", host, ListenerTls("Passthrough"), self._allowed())


def tls_hosts(ingress: IngressObject) -> Iterator[tuple[str, str]]:
    """Yield each host of ``spec.tls`` with its Secret; an entry without hosts is for those of the rules."""
    for tls in ingress.spec.tls or ():
        hosts = tls.hosts or sorted({rule.host for rule in ingress.spec.rules or () if rule.host})
        yield from ((host, tls.secret_name) for host in hosts)


def _secrets(ingresses: Sequence[IngressObject], remarks: Remarks) -> dict[str, tuple[ObjectKey, IngressObject]]:
    """Return the Secret of each host, with the Ingress that names it."""
    secrets: dict[str, tuple[ObjectKey, IngressObject]] = {}
    for ingress in ingresses:
        for host, name in tls_hosts(ingress):
            key = ObjectKey(ingress.metadata.namespace, name)
            if not name:
                remarks.lost(ingress, f"tls of {host}", "no Secret named; Gateway API has no default certificate")
            elif (used := secrets.setdefault(host, (key, ingress))[0]) != key:
                remarks.note(ingress, f"tls of {host}", f"Secret {used} of an older Ingress is used")
    return secrets


def _passthrough_hosts(ingresses: Iterable[IngressObject], keys: Collection[ObjectKey]) -> dict[str, IngressObject]:
    """Return the hosts whose connections are passed through, with the oldest Ingress of each."""
    hosts: dict[str, IngressObject] = {}
    for ingress in ingresses:
        for rule in ingress.spec.rules or () if ingress.key in keys else ():
            if rule.host:
                hosts.setdefault(rule.host, ingress)
    return hosts


def _label(host: str) -> str:
    return host.replace("*", "wildcard")


_TLS = frozenset({"HTTPS", "GRPCS"})
_HTTP2 = frozenset({"GRPC", "GRPCS"})


def backend_ref(
    ingress: IngressObject, backend: IngressBackend, services: Mapping[ObjectKey, Service], remarks: Remarks
) -> RouteBackendRef | None:
    """Return the reference; None, with a remark, when there is none."""
    if backend.service is None:
        description = f"{backend.resource.kind} {backend.resource.name}" if backend.resource else "an empty backend"
        remarks.lost(ingress, "backend", f"{description} is not a Service; its path is left out")
        return None
    name, port = backend.service.name, backend.service.port
    service = services.get(ObjectKey(ingress.metadata.namespace, name))
    if service is not None and service.spec.type == "ExternalName":
        why = f"Service {name} is of type ExternalName, which routes cannot have; its path is left out"
        remarks.lost(ingress, "backend", why)
        return None
    if port.number:
        return RouteBackendRef(name=name, port=port.number)
    if not port.name:
        remarks.lost(ingress, "backend", f"no port of Service {name} is named; its path is left out")
        return None
    if service is None:
        remarks.lost(
            ingress,
            "backend",
            f"port {port.name} of Service {name} is a name, and Gateway API has numbers only: give the Service too",
        )
        return None
    ports = [port for port in service.spec.ports or () if port.protocol == "TCP"]
    number = next((service_port.port for service_port in ports if service_port.name == port.name), 0)
    if not number:
        remarks.lost(ingress, "backend", f"Service {name} has no TCP port {port.name}; its path is left out")
        return None
    return RouteBackendRef(name=name, port=number)


def check_protocol(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> bool:
    """Return whether TLS is spoken to the backends; note what the annotation cannot become."""
    protocol = annotations.get("backend-protocol", "HTTP").upper()
    if protocol in _HTTP2:
        remarks.note(
            ingress, "backend-protocol", "set appProtocol: kubernetes.io/h2c on the port of each Service, for HTTP/2"
        )
    if protocol not in {"HTTP", *_TLS, *_HTTP2}:
        remarks.lost(ingress, "backend-protocol", f"{protocol} is not supported by Gateway API: HTTP is used")
    return protocol in _TLS


def tls_policy(
    ingress: IngressObject, service: str, annotations: Mapping[str, str], remarks: Remarks
) -> BackendTLSPolicy:
    """Return the policy by which TLS is spoken to a Service of the Ingress's namespace."""
    namespace = ingress.metadata.namespace
    hostname = annotations.get("proxy-ssl-name", "") or f"{service}.{namespace}.svc"
    if annotations.get("proxy-ssl-verify", "off") != "on":
        why = f"nginx did not verify the certificate, Gateway API always does: it has to be valid for {hostname}"
        remarks.lost(ingress, "backend-protocol", why)
    validation = BackendValidation(well_known_ca_certificates="System", hostname=hostname)
    if secret := annotations.get("proxy-ssl-secret", ""):
        name = secret.rpartition("/")[2]
        remarks.note(
            ingress, "proxy-ssl-secret", f"put ca.crt of Secret {secret} into a ConfigMap {name} in {namespace}"
        )
        reference = Reference(group="", kind="ConfigMap", name=name)
        validation = BackendValidation(ca_certificate_refs=[reference], hostname=hostname)
    return BackendTLSPolicy(
        metadata=ObjectMeta(name=f"{service}-tls", namespace=namespace),
        spec=BackendTLSPolicySpec([PolicyTarget("", "Service", service)], validation),
    )
