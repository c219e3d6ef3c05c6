"""The rules of an HTTPRoute, their filters, and the Services that rules of any route name.

In: rules, and what resolves their references. Out: one ``Rule`` for each, in order, with its problems. A rule that
cannot be programmed keeps its matches and answers 500. Without it, its requests would reach other rules and bypass
its filters. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from fairlead.agent.sources.gateway.plan import RESOLVED_REFS, SERVICE, BackendPolicy, Judgement, bad, good, permits
from fairlead.agent.sources.http import TLS_ONLY, backend_of, find_port, keys_tls, ports_of
from fairlead.api.gateway import (
    GATEWAY_GROUP,
    AuthSettings,
    BackendObject,
    CorsFilter,
    ExternalAuthFilter,
    GrantFrom,
    HeaderFilter,
    HeaderPair,
    HTTPMatch,
    HTTPRetry,
    HTTPRule,
    Match,
    MirrorFilter,
    PathModifierSpec,
    RedirectFilter,
    ReferenceGrant,
    RewriteFilter,
    RouteBackendRef,
    RouteFilter,
    SessionPersistenceSpec,
)
from fairlead.api.kubernetes import Service, ServicePort
from fairlead.api.multicluster import MULTICLUSTER_GROUP, SERVICE_IMPORTS, derived_name
from fairlead.api.names import ANNOTATION_UNUSED_SINCE, LABEL_IMPORT
from fairlead.api.times import duration_ms
from fairlead.model.http import (
    MAX_AUTH_BODY,
    Backend,
    BackendProtocol,
    BackendRef,
    Cors,
    ExternalAuth,
    Filters,
    HeaderModifier,
    HeaderValue,
    JWTProvider,
    Mirror,
    PathMatch,
    PathModifier,
    Redirect,
    RequestMatch,
    RetryRule,
    Rewrite,
    Rule,
    SessionPersistence,
    ValueMatch,
    unsafe_parts,
)

# --- rules -----------------------------------------------------------------------------------------------------------

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
    """Return the result of ``build`` with the rule's ``matches``; only the matches if it raises ``Unusable``."""
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
    """Return the session persistence of a rule; raises ``Unusable``."""
    if spec is None:
        return None
    absolute_s = -(-_milliseconds("sessionPersistence.absoluteTimeout", spec.absolute_timeout) // 1000)
    idle_s = -(-_milliseconds("sessionPersistence.idleTimeout", spec.idle_timeout) // 1000)
    name = spec.session_name or ""
    match spec.type or "Cookie":
        case "Cookie":
            lifetime = (spec.cookie_config or {}).get("lifetimeType") or _BROWSER_SESSION
            if lifetime != _BROWSER_SESSION and not absolute_s:
                raise Unusable("sessionPersistence: a permanent cookie needs absoluteTimeout")
            return SessionPersistence("Cookie", name, absolute_s, idle_s)
        case "Header":
            return SessionPersistence("Header", name, absolute_s, idle_s)
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


def _retry(retry: HTTPRetry | None) -> RetryRule | None:
    if retry is None:
        return None
    return RetryRule(
        codes=tuple(retry.codes or ()),
        attempts=RetryRule().attempts if retry.attempts is None else retry.attempts,
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
    """Return ``rule``; raises ``Unusable`` if it exceeds the limits of an object at the hub."""
    try:
        msgspec.convert(msgspec.to_builtins(rule), Rule)
    except msgspec.ValidationError as error:
        raise Unusable(f"a value cannot be programmed: {error}") from None
    return rule


# --- filters ---------------------------------------------------------------------------------------------------------
#
# The filters of an HTTPRoute or GRPCRoute, at a rule and at one of its backends.
#
#     filter                                       at a rule   at a backend
#     -------------------------------------------  ----------  -----------------------------
#     RequestHeaderModifier, ResponseHeaderModifier  yes         yes
#     RequestMirror                                  yes         of a rule with one backend
#     URLRewrite                                     yes         hostname only
#     RequestRedirect, CORS, ExternalAuth            yes         no
#     ExtensionRef, unknown ones                     no          no

_Header = TypeVar("_Header", HeaderPair, Match)

_CORS_MAX_AGE_S = 5
_AT_RULES_ONLY = frozenset({"RequestRedirect", "CORS", "ExternalAuth"})
#: All others may be there once.
_MANY = frozenset({"RequestMirror"})


class Unusable(ValueError):
    """A rule asks for something unsupported; ``reason`` is that of condition Accepted."""

    def __init__(self, message: str, *, reason: str = "UnsupportedValue") -> None:
        super().__init__(message)
        self.reason = reason


def build_filters(filters: Iterable[RouteFilter] | None, refs: BackendRefs) -> Filters:
    """Return the filters of a rule; raises ``Unusable``."""
    return _Builder(refs).build(filters or ())


def build_backend_filters(filters: Iterable[RouteFilter] | None, refs: BackendRefs, *, alone: bool) -> Filters:
    """Return the filters of a backend, ``alone`` when its rule has no other; raises ``Unusable``."""
    filters = tuple(filters or ())
    for route_filter in filters:
        if route_filter.type in _AT_RULES_ONLY:
            raise Unusable(f"a filter {route_filter.type} belongs to the rule, not to one of its backends")
    built = _Builder(refs).build(filters)
    if built.rewrite is not None and built.rewrite.path is not None:
        raise Unusable("a URLRewrite of the path belongs to the rule, not to one of its backends")
    if built.mirrors and not alone:
        raise Unusable("a filter RequestMirror belongs to the rule, not to one of several backends")
    return built


class _Builder:
    def __init__(self, refs: BackendRefs) -> None:
        self._refs = refs

    def build(self, filters: Iterable[RouteFilter]) -> Filters:
        by_type: dict[str, RouteFilter] = {}
        mirrors: list[Mirror] = []
        for route_filter in filters:
            if route_filter.type in by_type and route_filter.type not in _MANY:
                raise Unusable(f"the filter {route_filter.type} is there twice", reason="IncompatibleFilters")
            by_type[route_filter.type] = route_filter
            if route_filter.request_mirror is not None:
                mirrors.append(self._mirror(route_filter.request_mirror))
            elif not _is_known(route_filter):
                raise Unusable(f"the filter {route_filter.type} is not supported")
        if "RequestRedirect" in by_type and "URLRewrite" in by_type:
            raise Unusable("RequestRedirect and URLRewrite exclude each other", reason="IncompatibleFilters")
        of = {kind: by_type.get(kind, RouteFilter()) for kind in _KNOWN}
        return Filters(
            request_headers=_modifier(of["RequestHeaderModifier"].request_header_modifier),
            response_headers=_modifier(of["ResponseHeaderModifier"].response_header_modifier),
            redirect=_redirect(of["RequestRedirect"].request_redirect),
            rewrite=_rewrite(of["URLRewrite"].url_rewrite),
            mirrors=tuple(mirrors),
            cors=_cors(of["CORS"].cors),
            auth=self._auth(of["ExternalAuth"].external_auth),
        )

    def _auth(self, auth: ExternalAuthFilter | None) -> ExternalAuth | None:
        if auth is None:
            return None
        size = auth.forward_body.max_size if auth.forward_body is not None else 0
        if not 0 <= size <= MAX_AUTH_BODY:
            raise Unusable(f"ExternalAuth: forwardBody.maxSize is {size}; at most {MAX_AUTH_BODY} bytes are supported")
        match auth.protocol:
            case "HTTP":
                settings, backend = auth.http or AuthSettings(), self._refs.resolve(auth.backend_ref)
            case "GRPC":
                settings, backend = auth.grpc or AuthSettings(), self._refs.resolve(auth.backend_ref, spoken="HTTP2")
            case other:
                raise Unusable(f"ExternalAuth: protocol {other!r} is not supported; use HTTP or GRPC")
        built = ExternalAuth(
            backend=backend,
            protocol=auth.protocol,
            path=settings.path,
            allowed_headers=tuple(settings.allowed_headers or ()),
            allowed_response_headers=tuple(settings.allowed_response_headers or ()),
            max_size=size,
            fail_open=self._refs.fail_open,
        )
        if problem := next(unsafe_parts(Rule(filters=Filters(auth=built))), ""):
            raise Unusable(problem)
        return built

    def _mirror(self, mirror: MirrorFilter) -> Mirror:
        backend = self._refs.resolve(mirror.backend_ref)
        if mirror.percent is not None:
            return Mirror(backend, mirror.percent, 100)
        if mirror.fraction is not None:
            return Mirror(backend, mirror.fraction.numerator, mirror.fraction.denominator or 100)
        return Mirror(backend)


_KNOWN = ("RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect", "URLRewrite", "CORS", "ExternalAuth")


def _is_known(route_filter: RouteFilter) -> bool:
    """Return whether the field that belongs to the type of a filter is set."""
    fields = (
        route_filter.request_header_modifier,
        route_filter.response_header_modifier,
        route_filter.request_redirect,
        route_filter.url_rewrite,
        route_filter.cors,
        route_filter.external_auth,
    )
    return any(kind == route_filter.type and field is not None for kind, field in zip(_KNOWN, fields, strict=True))


def _modifier(modifier: HeaderFilter | None) -> HeaderModifier | None:
    if modifier is None:
        return None
    return HeaderModifier(set=_pairs(modifier.set), add=_pairs(modifier.add), remove=tuple(modifier.remove or ()))


def _pairs(pairs: Iterable[HeaderPair] | None) -> tuple[HeaderValue, ...]:
    return tuple(HeaderValue(pair.name, pair.value) for pair in first_of_each_header(pairs))


def first_of_each_header(headers: Iterable[_Header] | None) -> Iterable[_Header]:
    """Return the first entry of each header; as Gateway API requires, names are case-insensitive."""
    first: dict[str, _Header] = {}
    for header in headers or ():
        first.setdefault(header.name.lower(), header)
    return first.values()


def _redirect(redirect: RedirectFilter | None) -> Redirect | None:
    if redirect is None:
        return None
    scheme, code = redirect.scheme or "", redirect.status_code or 302
    match scheme:
        case "" | "http" | "https":
            pass
        case _:
            raise Unusable(f"RequestRedirect: the scheme {scheme!r} is neither http nor https")
    match code:
        case 301 | 302 | 303 | 307 | 308:
            pass
        case _:
            raise Unusable(f"RequestRedirect: invalid redirect status code {code}; use 301, 302, 303, 307 or 308")
    return Redirect(
        scheme=scheme,
        hostname=redirect.hostname or "",
        path=_path(redirect.path),
        port=redirect.port or 0,
        status_code=code,
    )


def _rewrite(rewrite: RewriteFilter | None) -> Rewrite | None:
    return None if rewrite is None else Rewrite(rewrite.hostname or "", _path(rewrite.path))


def _path(modifier: PathModifierSpec | None) -> PathModifier | None:
    if modifier is None:
        return None
    match modifier.type:
        case "ReplaceFullPath":
            return PathModifier("ReplaceFullPath", modifier.replace_full_path or "")
        case "ReplacePrefixMatch":
            return PathModifier("ReplacePrefixMatch", modifier.replace_prefix_match or "")
        case _:
            raise Unusable(f"the path modifier {modifier.type} is not supported")


def _cors(cors: CorsFilter | None) -> Cors | None:
    if cors is None:
        return None
    return Cors(
        allow_origins=tuple(cors.allow_origins or ()),
        allow_methods=tuple(cors.allow_methods or ()),
        allow_headers=tuple(cors.allow_headers or ()),
        expose_headers=tuple(cors.expose_headers or ()),
        allow_credentials=bool(cors.allow_credentials),
        max_age=_CORS_MAX_AGE_S if cors.max_age is None else cors.max_age,
    )


#: The protocol to the backends of a route; for an HTTPRoute, ``appProtocol`` decides.
_SPOKEN: dict[str, BackendProtocol] = {"GRPCRoute": "HTTP2", "TLSRoute": "TCP", "TCPRoute": "TCP", "UDPRoute": "UDP"}

# --- backends --------------------------------------------------------------------------------------------------------
#
# Resolves the backend references of a route to backends, or to the reason why there is none.
#
#     what is tested                                            ResolvedRefs=False
#     --------------------------------------------------------  -------------------
#     group and kind: a Service or ServiceImport                InvalidKind
#     in another namespace: a ReferenceGrant permits it         RefNotPermitted
#     the Service is there, can be reached, and has the port    BackendNotFound
#     its port speaks what the route needs                      UnsupportedProtocol
#
# A reference that is not permitted is reported as such whether or not the Service exists. The share of a reference
# without a backend is answered 500, or its connection closed. So is that of a Service whose BackendTLSPolicy cannot be
# fulfilled: it never gets plain text.

AnyBackendRef = BackendObject | RouteBackendRef
SERVICE_IMPORT = (MULTICLUSTER_GROUP, SERVICE_IMPORTS.kind)


def service_key(reference: AnyBackendRef, namespace: str) -> tuple[str, str] | None:
    """Return namespace and name of the referenced Service, None if the reference is not to a Service.

    A ServiceImport means the Service that has its ClusterSetIP: its endpoints are those of all exporting members.
    """
    kind = _kind_of(reference)
    if kind not in (SERVICE, SERVICE_IMPORT):
        return None
    return (
        reference.namespace or namespace,
        derived_name(reference.name) if kind == SERVICE_IMPORT else reference.name,
    )


def _is_import(service: Service | None, name: str) -> bool:
    """Return whether a Service has the ClusterSetIP of an existing ServiceImport."""
    return (
        service is not None and service.label(LABEL_IMPORT) == name and not service.annotation(ANNOTATION_UNUSED_SINCE)
    )


def _kind_of(reference: AnyBackendRef) -> tuple[str, str]:
    return (reference.group or "", reference.kind or "Service")


class BackendRefs:
    """Resolves the references of one route, and collects the backends and problems.

    ``passthrough``: connections carry the client's own TLS, so policies do not apply; ``terminated``: TLS of some
    connections is terminated. With both, a Service with a policy cannot be a backend. ``fail_open``: requests pass
    while an external service does not answer.
    """

    def __init__(
        self,
        *,
        kind: str,
        namespace: str,
        services: Mapping[tuple[str, str], Service],
        grants: Iterable[ReferenceGrant],
        policies: Mapping[tuple[str, str, str], BackendPolicy],
        unreachable: Mapping[tuple[str, str], str] | None = None,
        passthrough: bool = False,
        terminated: bool = True,
        fail_open: bool = False,
    ) -> None:
        self.fail_open = fail_open
        self.backends: dict[str, Backend] = {}
        self._kind = kind
        self._namespace = namespace
        self._services = services
        self._grants = tuple(grants)
        self._policies = policies
        self._unreachable = unreachable or {}
        self._passthrough = passthrough
        self._terminated = terminated
        #: Reason and message of each problem, in the order of discovery.
        self._problems: dict[tuple[str, str], None] = {}

    def resolve(
        self, reference: AnyBackendRef, *, spoken: BackendProtocol | None = None, origin: GrantFrom | None = None
    ) -> str:
        """Return the name of the backend, empty if there is none; ``spoken`` overrides its protocol.

        ``origin`` is the referring object, if that is not the route.
        """
        key = service_key(reference, self._namespace)
        if key is None:
            group = f"{reference.group}/" if reference.group else ""
            return self._no(
                "InvalidKind",
                f"{group}{reference.kind} {reference.name} cannot be a backend: use Services or ServiceImports",
            )
        namespace, name = key[0], reference.name
        origin, kind = origin or GrantFrom(GATEWAY_GROUP, self._kind, self._namespace), _kind_of(reference)
        if not permits(self._grants, origin, kind, namespace, name):
            return self._no(
                "RefNotPermitted",
                f"no ReferenceGrant in namespace {namespace} lets {origin.kind}s of namespace {origin.namespace} "
                f"refer to {kind[1]} {name}",
            )
        service, unreachable = self._services.get(key), self._unreachable.get(key, "")
        if kind == SERVICE_IMPORT and not _is_import(service, name):
            sentence = f"there is no ServiceImport {name} with a ClusterSetIP in namespace {namespace}"
            return self._no("BackendNotFound", sentence)
        if unreachable:
            self._no("BackendNotFound", unreachable)
        if service is None:
            missing = f"there is no Service {name} in namespace {namespace}"
            return self._no("BackendNotFound", unreachable or missing)
        if service.spec.type == "ExternalName":
            return self._no(
                "BackendNotFound", f"Service {namespace}/{name} is of type ExternalName: it has no endpoints"
            )
        return self._port(service, reference.port or 0, spoken)

    def resolve_keys(self, service: str, port: int, provider: JWTProvider) -> str:
        """Return the name of the backend with the keys of an issuer, empty if there is none."""
        name = self.resolve(RouteBackendRef(name=service, port=port), spoken="HTTP1")
        if not name or self.backends[name].tls is not None:
            return name
        try:
            tls = keys_tls(provider.uri)
        except ValueError as error:
            return self._no("UnsupportedProtocol", str(error))
        if tls is None:
            return name
        verified = msgspec.structs.replace(self.backends[name], name=f"{name}/keys/{tls.server_name}", tls=tls)
        self.backends[verified.name] = verified
        return verified.name

    def judgement(self) -> Judgement:
        """Return condition ResolvedRefs; its reason is that of the first problem."""
        if not self._problems:
            return good(RESOLVED_REFS)
        message = "; ".join(sentence for _, sentence in self._problems)
        return bad(RESOLVED_REFS, next(iter(self._problems))[0], message)

    def _port(self, service: Service, number: int, spoken: BackendProtocol | None) -> str:
        named = f"Service {service.metadata.namespace}/{service.metadata.name}"
        transport = "UDP" if self._kind == "UDPRoute" else "TCP"
        port = find_port(service, number=number, protocol=transport)
        other = "TCP" if transport == "UDP" else "UDP"
        if port is None and find_port(service, number=number, protocol=other) is None:
            problem = f"has no port {number}{ports_of(service)}" if number else "is named without a port"
            return self._no("BackendNotFound", f"{named} {problem}")
        if port is None:
            return self._no("UnsupportedProtocol", f"port {number} of {named} is not {transport}")
        policy = self._policy(service, port)
        if self._passthrough and self._terminated and policy != BackendPolicy():
            return self._no(
                "UnsupportedProtocol",
                f"{named} has a BackendTLSPolicy, which cannot hold for a listener with mode Passthrough: "
                "use a route for each mode",
            )
        if policy.broken:
            return ""
        if policy.tls is None and self._kind in {"HTTPRoute", "GRPCRoute"} and port.app_protocol in TLS_ONLY:
            return self._no(
                "UnsupportedProtocol",
                f"port {number} of {named} speaks {port.app_protocol}: say in a BackendTLSPolicy how it is verified",
            )
        backend = backend_of(service, port)
        name, protocol = backend.name, spoken or _SPOKEN.get(self._kind, backend.protocol)
        # One load balancer may use several protocols to the same port: each is a separate backend.
        if protocol != backend.protocol:
            name += f"/{protocol.lower()}"
        if policy.tls is not None:
            name += "/tls"
        self.backends[name] = msgspec.structs.replace(backend, name=name, protocol=protocol, tls=policy.tls)
        return name

    def _policy(self, service: Service, port: ServicePort) -> BackendPolicy:
        if self._kind == "UDPRoute" or not self._terminated:
            return BackendPolicy()
        of_service = (service.metadata.namespace, service.metadata.name)
        of_port = self._policies.get((*of_service, port.name)) or self._policies.get((*of_service, ""))
        return of_port or BackendPolicy()

    def _no(self, reason: str, sentence: str) -> str:
        self._problems[reason, sentence] = None
        return ""
