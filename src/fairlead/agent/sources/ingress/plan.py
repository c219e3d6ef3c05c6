"""An Ingress as routes at the hub, and an IngressClass as a load balancer.

    IngressClass               one HTTPLoadBalancer: a listener for HTTP, and one for each host with a certificate
    each host of its rules     one LoadBalancerRoute: the listeners that take the host, one rule for each path
    default backend            the same without paths; for all hosts, and behind the paths of each host of its own

A star in a host matches exactly one label. ImplementationSpecific is Prefix. An Ingress whose annotations of
ingress-nginx keep requests out is not served, unless its owner acknowledges that they are ignored. In: Ingresses, the
Services that they name, certificates. Out: routes, listeners, and messages about parts that cannot be served. Pure.
Source: https://kubernetes.io/docs/concepts/services-networking/ingress/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from fairlead.agent.identity import certificate_name, class_load_balancer_name, fallback_name
from fairlead.agent.sources.http import (
    NOT_IN_MEMBER,
    PENDING,
    TLS_ONLY,
    AuthRequest,
    CertificateRequest,
    CertificateState,
    Processing,
    SourceLists,
    accepts_problem,
    access_log_of,
    access_log_problem,
    annotation_problem,
    auth_request,
    backend_of,
    backend_tls_of,
    client_secret,
    families_by_annotation,
    find_port,
    issuer_of,
    keys_tls,
    limit_problem,
    limited,
    limits_problem,
    policy_of,
    ports_of,
    processing_of,
    request,
    source_lists,
    tokens_of,
    too_many,
    tracing_of,
    tracing_problem,
    with_processor,
)
from fairlead.api.hostname import WILDCARD, wildcards_over
from fairlead.api.httploadbalancer import HTTPLoadBalancerSpec, LoadBalancerRouteSpec
from fairlead.api.kubernetes import (
    ANNOTATION_DEFAULT_CLASS,
    ANNOTATION_LEGACY_CLASS,
    IngressBackend,
    IngressClass,
    IngressObject,
    IngressPath,
    IngressPort,
    IngressService,
    Service,
)
from fairlead.api.meta import ObjectKey
from fairlead.api.names import (
    ANNOTATION_ACCEPT_PROXY_PROTOCOL,
    ANNOTATION_BACKEND_TLS,
    ANNOTATION_EXTERNAL_AUTH,
    ANNOTATION_EXTERNAL_PROCESSOR,
    ANNOTATION_IGNORED_ANNOTATIONS,
    ANNOTATION_JWT,
    ANNOTATION_LIMITS,
    DEFAULT_CLASS,
)
from fairlead.api.tcploadbalancer import CertificateRef, Origin, TargetType
from fairlead.convert.annotations import WITHOUT_EFFECT, by_name, ignorable, of_other_controllers, protecting_any
from fairlead.model.http import (
    EVERYONE,
    Attachment,
    Backend,
    BackendRef,
    BackendTls,
    ExternalAuth,
    Filters,
    JWTProvider,
    L7Listener,
    PathMatch,
    RequestMatch,
    Rule,
)

# --- routes ----------------------------------------------------------------------------------------------------------

HTTP_LISTENER = "http"
#: The listener of an IngressClass for server names without a certificate, and for clients that send none.
FALLBACK_LISTENER = "https"
#: How many annotations one sentence names.
_MOST_NAMED = 12


class IngressView(msgspec.Struct, frozen=True):
    """The input of the translation of one Ingress.

    ``load_balancer`` is the name of the HTTPLoadBalancer of its class. ``services`` are those of its namespace that it
    names, by name, ``unreachable`` has the reasons why some are not reached as they should be. ``tls_listeners`` maps
    the hosts that its class serves over HTTPS to their listener. ``certificate`` and ``authorities`` (PEM) are those of
    the Secret that its annotation for TLS towards backends names. ``untraced_by`` is the LoadBalancerClass, if that
    traces no requests. ``of_class`` inspects the requests of all Ingresses of the class, and ``inspecting`` is the
    Service, with why it is not reached.
    """

    ingress: IngressObject
    load_balancer: str
    services: Mapping[str, Service] = {}
    tls_listeners: Mapping[str, str] = {}
    unreachable: Mapping[str, str] = {}
    certificate: CertificateState = CertificateState(problem=NOT_IN_MEMBER, missing=True)
    authorities: str = ""
    untraced_by: str = ""
    of_class: Processing = Processing()
    inspecting: tuple[Service | None, str] = (None, "")


class IngressRoutes(msgspec.Struct, frozen=True):
    """The routes of one Ingress by host (empty: every host), and messages about parts that cannot be served.

    ``ignored`` names annotations of ingress-nginx without effect. ``refused``: the Ingress asks for something
    unsupported, and published routes are kept. ``undecided`` are invalid annotations that decide about requests: with
    them, ``routes`` answer 500 and replace published routes that are not protected.
    """

    routes: Mapping[str, LoadBalancerRouteSpec]
    problems: tuple[str, ...] = ()
    ignored: str = ""
    refused: bool = False
    undecided: frozenset[str] = frozenset()


def https_listener(host: str) -> str:
    """Name the listener of one host that is served over HTTPS."""
    return f"https/{host}"


def services_of(ingress: IngressObject) -> frozenset[str]:
    """Return the names of the Services that an Ingress names."""
    spec = ingress.spec
    paths = [path.backend for rule in spec.rules or () for path in (rule.http.paths if rule.http else None) or ()]
    backends = [*paths, *([spec.default_backend] if spec.default_backend is not None else [])]
    names = {backend.service.name for backend in backends if backend.service is not None}
    asked = (_asked_service(ingress)[0], processing_of(ingress).request)
    names |= {request.service for request in asked if request is not None}
    return frozenset(names | {each[0] for each in tokens_of(ingress).services if each is not None})


def _asked_service(ingress: IngressObject) -> tuple[AuthRequest | None, str]:
    """Return the external authorization service, and the error in the annotation."""
    try:
        return auth_request(ingress), ""
    except ValueError as error:
        return None, str(error)


def class_processing(ingress_class: IngressClass) -> Processing:
    """Return the processor for all Ingresses of a class: a Service of any namespace."""
    processing, title = processing_of(ingress_class), f"IngressClass {ingress_class.metadata.name}"
    if processing.request is not None and not processing.request.namespace:
        return Processing(problem=f"{title}: annotation {ANNOTATION_EXTERNAL_PROCESSOR}: namespace is missing")
    return Processing(problem=f"{title}: {processing.problem}") if processing.problem else processing


def _leaves_choice(of_class: Processing) -> bool:
    """Return whether the Ingresses of a class may choose their own processor."""
    return not of_class.problem and (of_class.request is None or of_class.request.allow_off)


def _processing(view: IngressView) -> Processing:
    """Return the processor of an Ingress: that of its class, or a Service of the Ingress's namespace."""
    own = processing_of(view.ingress)
    if own == Processing() or not _leaves_choice(view.of_class):
        return view.of_class
    if own.request is None or own.request.namespace in ("", view.ingress.metadata.namespace):
        return own
    problem = f"annotation {ANNOTATION_EXTERNAL_PROCESSOR}: an Ingress can only name a Service of its own namespace"
    return Processing(problem=problem)


def _kept_processor(view: IngressView) -> str:
    """Return a message if the annotation of an Ingress has no effect, otherwise an empty string."""
    request = view.of_class.request
    if request is None or _leaves_choice(view.of_class) or processing_of(view.ingress) == Processing():
        return ""
    return (
        f"annotation {ANNOTATION_EXTERNAL_PROCESSOR} has no effect: the IngressClass does not set allowOff, so "
        f"{request.namespace}/{request.service} inspects the requests"
    )


def unprotected(ingress: IngressObject) -> str:
    """Return an error if an annotation that restricts access would be ignored; otherwise an empty string."""
    protections = protecting_any(ingress.metadata.annotations)
    if not set(protections) - ignorable(ingress):
        return ""
    meta = ingress.metadata
    return (
        f"not served, since Fairlead ignores {_listed(protections)} of another controller, and more clients would "
        "get in. "
        f"Protect the backend otherwise, then: kubectl annotate ingress {meta.name} -n {meta.namespace} "
        f"{ANNOTATION_IGNORED_ANNOTATIONS}={','.join(protections)}"
    )


def translate_ingress(view: IngressView) -> IngressRoutes:
    """Return the routes of ``view``; a backend that cannot be found answers 500 on its path only."""
    ignored = _ignored(view.ingress)
    if refusal := unprotected(view.ingress):
        return IngressRoutes({}, (refusal,), ignored)
    undecided = _undecided(view)
    translated = _Translation(view, closed=bool(undecided)).routes()
    if undecided:
        text = (
            f"{'; '.join(undecided.values())}. Until this is corrected, the last version that asked is served, else 500"
        )
        problems = (text, *translated.problems)
        return IngressRoutes(translated.routes, problems, ignored, refused=True, undecided=frozenset(undecided))
    if problem := source_lists(view.ingress).problem:
        text = f"{problem}. Until this is corrected, the last valid version is served"
        return IngressRoutes({}, (text,), ignored, refused=True)
    return msgspec.structs.replace(translated, ignored=ignored)


def backend_tls(view: IngressView) -> tuple[BackendTls | None, str]:
    """Return the TLS settings for the backends of an Ingress, and why they cannot be used."""
    return backend_tls_of(view.ingress, view.certificate, view.authorities)


def _undecided(view: IngressView) -> dict[str, str]:
    """Return the error in each annotation that decides about requests: external service, tokens, TLS."""
    ingress = view.ingress
    problems = {
        ANNOTATION_EXTERNAL_AUTH: _asked_service(ingress)[1],
        ANNOTATION_EXTERNAL_PROCESSOR: _processing(view).problem,
        ANNOTATION_JWT: tokens_of(ingress).problem,
        ANNOTATION_BACKEND_TLS: backend_tls(view)[1],
    }
    return {name: problem for name, problem in problems.items() if problem}


def _ignored(ingress: IngressObject) -> str:
    annotations = ingress.metadata.annotations
    names = [name for name in by_name(annotations) if name not in WITHOUT_EFFECT]
    names += [name for name in (*protecting_any(annotations), *of_other_controllers(annotations)) if name not in names]
    if not names:
        return ""
    meta = ingress.metadata
    return (
        f"annotations of another controller have no effect here: {_listed(names)}. "
        "Convert the Ingress to Gateway API: "
        f"kubectl get ingress {meta.name} -n {meta.namespace} -o yaml | fairlead convert -"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


class _Translation:
    def __init__(self, view: IngressView, *, closed: bool) -> None:
        self._view, self._closed = view, closed
        self._tls = None if closed else backend_tls(view)[0]
        self._backends: dict[str, Backend] = {}
        self._problems: dict[str, None] = {}

    def routes(self) -> IngressRoutes:
        spec = self._view.ingress.spec
        paths: dict[str, list[IngressPath]] = {}
        asked, _ = _asked_service(self._view.ingress)
        tokens, inspecting = tokens_of(self._view.ingress), _processing(self._view).request
        for rule in spec.rules or ():
            paths.setdefault(rule.host, []).extend((rule.http.paths if rule.http else None) or ())
        default = self._default_rule(spec.default_backend)
        if default is not None:
            paths.setdefault("", [])
        routes: dict[str, LoadBalancerRouteSpec] = {}
        for host in sorted(paths):
            self._backends = {}
            rules = (*map(self._rule, paths[host]), *self._defaults(spec.default_backend))
            rules = tokens.on(rules, self._keys_backend)
            if self._closed or asked is not None:
                # Without an authorization backend, all requests are answered 500.
                asking = asked if not self._closed else None
                auth = asking.as_filter(self._asked_backend(asking)) if asking is not None else ExternalAuth()
                filters = Filters(auth=auth)
                rules = tuple(msgspec.structs.replace(rule, filters=filters) for rule in rules)
            if inspecting is not None and not self._closed:
                processor = self._view.inspecting if inspecting is self._view.of_class.request else None
                rules = with_processor(
                    rules, inspecting, self._grpc_backend(inspecting.service, inspecting.port, processor)
                )
            if rules:
                routes[host] = self._route(host, rules)
            else:
                self._problems[f"host {host}: there is no path and no default backend, so it answers 404"] = None
        ingress = self._view.ingress
        traced, kept = tracing_problem(ingress, self._view.untraced_by), _kept_processor(self._view)
        for problem in filter(None, (limit_problem(ingress), access_log_problem(ingress), traced, kept)):
            self._problems[problem] = None
        return IngressRoutes(routes, tuple(self._problems))

    def _route(self, host: str, rules: Iterable[Rule]) -> LoadBalancerRouteSpec:
        meta = self._view.ingress.metadata
        return LoadBalancerRouteSpec(
            load_balancer=self._view.load_balancer,
            attachments=tuple(self._attachments(host)),
            rules=source_lists(self._view.ingress).on(limited(rules, self._view.ingress)),
            backends=tuple(self._backends[name] for name in sorted(self._backends)),
            created=meta.creation_timestamp or "",
            access_log=access_log_of(self._view.ingress),
            tracing=tracing_of(self._view.ingress),
            origin=Origin(kind="Ingress", namespace=meta.namespace, name=meta.name, uid=meta.uid),
        )

    def _attachments(self, host: str) -> Iterable[Attachment]:
        hostnames = (host,) if host else ()
        wildcard = host.startswith("*.")
        yield Attachment(HTTP_LISTENER, hostnames, one_label=wildcard)
        for listener in dict.fromkeys(self._listeners_of(host)) if host else ():
            yield Attachment(listener, hostnames, one_label=wildcard)
        if not host:
            for served, listener in sorted(self._view.tls_listeners.items()):
                if served in self._own_tls_hosts() - self._own_hosts():
                    yield Attachment(listener, (served,) if listener == FALLBACK_LISTENER else ())

    def _listeners_of(self, host: str) -> Iterable[str]:
        """Yield the TLS listeners for ``host``, or for names that it covers; a star matches one label."""
        listeners = self._view.tls_listeners
        if host in listeners:
            yield listeners[host]
        elif not host.startswith(WILDCARD) and (nearest := next(wildcards_over(host), "")) in listeners:
            yield listeners[nearest]
        if host.startswith(WILDCARD):
            below = (listener for listener in sorted(listeners) if next(wildcards_over(listener), "") == host)
            yield from (listeners[listener] for listener in below if not listener.startswith(WILDCARD))

    def _own_hosts(self) -> frozenset[str]:
        """Return the hosts of its rules: the routes of these end with the default backend themselves.

        At a listener of one host, a route for every host is as specific as that of the host.
        """
        return frozenset(rule.host for rule in self._view.ingress.spec.rules or ())

    def _own_tls_hosts(self) -> frozenset[str]:
        return frozenset(host for tls in self._view.ingress.spec.tls or () for host in tls.hosts or ())

    def _rule(self, path: IngressPath) -> Rule:
        exact = path.path_type == "Exact"
        match = PathMatch(type="Exact" if exact else "PathPrefix", value=path.path or "/")
        return Rule(matches=(RequestMatch(path=match),), backends=(BackendRef(self._backend(path.backend, self._tls)),))

    def _default_rule(self, backend: IngressBackend | None) -> Rule | None:
        return None if backend is None else Rule(backends=(BackendRef(self._backend(backend, self._tls)),))

    def _defaults(self, backend: IngressBackend | None) -> tuple[Rule, ...]:
        rule = self._default_rule(backend)
        return () if rule is None else (rule,)

    def _keys_backend(self, service: str, port: int, provider: JWTProvider) -> str:
        """Return the name of the backend with the keys of an issuer, empty if there is none."""
        try:
            tls = keys_tls(provider.uri)
        except ValueError as error:
            self._problems[f"annotation {ANNOTATION_JWT}: {error}"] = None
            return ""
        return self._backend(IngressBackend(service=IngressService(service, IngressPort(number=port))), tls)

    def _asked_backend(self, asked: AuthRequest) -> str:
        """Return the name of the external authorization backend."""
        if asked.protocol == "GRPC":
            return self._grpc_backend(asked.service, asked.port)
        return self._backend(IngressBackend(service=IngressService(asked.service, IngressPort(number=asked.port))))

    def _grpc_backend(self, service: str, port: int, resolved: tuple[Service | None, str] | None = None) -> str:
        """Return the name of a backend that always speaks HTTP/2, empty if there is none."""
        name = self._backend(
            IngressBackend(service=IngressService(service, IngressPort(number=port))), resolved=resolved
        )
        if not name or self._backends[name].protocol == "HTTP2":
            return name
        spoken = msgspec.structs.replace(self._backends[name], name=f"{name}/http2", protocol="HTTP2")
        self._backends[spoken.name] = spoken
        return spoken.name

    def _backend(
        self, backend: IngressBackend, tls: BackendTls | None = None, resolved: tuple[Service | None, str] | None = None
    ) -> str:
        """Return the name of the backend; if there is none, return an empty string and add a problem.

        ``resolved`` is the Service, with why it is not reached; None for the one of the Ingress's namespace.
        """
        if backend.service is None:
            description = f"{backend.resource.kind} {backend.resource.name}" if backend.resource else "an empty backend"
            self._problems[f"{description} cannot be a backend: name a Service"] = None
            return ""
        named = backend.service
        view = self._view
        service, unreachable = resolved or (view.services.get(named.name), view.unreachable.get(named.name, ""))
        if unreachable:
            self._problems[unreachable] = None
        if service is None:
            missing = f"there is no Service {named.name} in namespace {self._view.ingress.metadata.namespace}"
            self._problems[unreachable or missing] = None
            return ""
        if service.spec.type == "ExternalName":
            self._problems[f"Service {named.name} is of type ExternalName: it has no endpoints"] = None
            return ""
        port = find_port(service, name=named.port.name, number=named.port.number, protocol="TCP")
        if port is None:
            port_text = named.port.name or str(named.port.number)
            self._problems[f"Service {named.name} has no TCP port {port_text}{ports_of(service)}"] = None
            return ""
        if port.app_protocol in TLS_ONLY and tls is None:
            # In plain text it would answer 400 to each request, and nothing would say why.
            self._problems[
                f"port {port.name or port.port} of Service {named.name} speaks {port.app_protocol}, which an Ingress "
                f"cannot verify: say in annotation {ANNOTATION_BACKEND_TLS} how, or correct appProtocol for plain HTTP"
            ] = None
            return ""
        made = backend_of(service, port)
        if tls is not None:
            # A new certificate must keep the cluster, and so the name.
            of_ingress = tls is self._tls
            suffix = f"tls/{self._view.ingress.metadata.name}" if of_ingress else f"keys/{tls.server_name}"
            name = f"{made.name}/{suffix}"
            made = msgspec.structs.replace(made, name=name, tls=tls)
        self._backends[made.name] = made
        return made.name


# --- paths that several Ingresses have -------------------------------------------------------------------------------


class Place(NamedTuple):
    """One path of one host (empty: any host); a prefix is stored without its trailing slash."""

    host: str
    path: str
    exact: bool


def places_of(ingress: IngressObject) -> frozenset[Place]:
    """Return the paths of an Ingress."""
    return frozenset(_places(ingress))


def overlaps(ingress: IngressObject, at: Callable[[Place], Iterable[IngressObject]]) -> tuple[str, ...]:
    """Return a message for each path that an older Ingress has, too; ``at`` returns its class's Ingresses by path."""
    return tuple(filter(None, (_overlap(ingress, place, at(place)) for place in dict.fromkeys(_places(ingress)))))


def _overlap(ingress: IngressObject, place: Place, others: Iterable[IngressObject]) -> str:
    oldest = min((ingress, *others), key=attrgetter("age_order"))
    if oldest.key == ingress.key:
        return ""
    path = f"{'exact path' if place.exact else 'path'} {place.path}"
    of = f"{oldest.metadata.namespace}/{oldest.metadata.name}"
    return f"host {place.host or '*'}, {path}: Ingress {of} is older and has it too, so all of its requests go there"


def _places(ingress: IngressObject) -> Iterator[Place]:
    for rule in ingress.spec.rules or ():
        for http_path in (rule.http.paths if rule.http else None) or ():
            exact, path = http_path.path_type == "Exact", http_path.path or "/"
            yield Place(rule.host, path if exact else path.rstrip("/") or "/", exact)


# --- load balancers of classes ---------------------------------------------------------------------------------------
#
# An IngressClass as a load balancer at the hub: one HTTP listener, and one HTTPS listener for each TLS host.
#
# Several Ingresses may name one host: the certificate of the oldest counts. One more listener, for other names and for
# hosts whose Secret is missing, shows a fallback certificate. Above the most listeners that a load balancer may have,
# the hosts of the youngest Ingresses are left out.

#: An HTTPLoadBalancer has 1,024 listeners at most; one is for HTTP, one for the fallback certificate.
MOST_TLS_HOSTS = 1022


class ClassView(msgspec.Struct, frozen=True):
    """One IngressClass of ours with its Ingresses in any order, and the Secrets that they name, by key.

    ``issuer`` applies to Ingresses that name none; ``managed`` are the certificates that the hub gets, by name. If not
    ``is_whole``, some Ingresses cannot be read.
    """

    ingress_class: IngressClass
    ingresses: tuple[IngressObject, ...]
    certificates: Mapping[tuple[str, str], CertificateState]
    targets: TargetType = "Pod"
    #: The digest of the fallback certificate, empty while there is none.
    fallback: str = ""
    issuer: str = ""
    managed: Mapping[str, CertificateState] = {}
    #: The published load balancer of the class.
    published: HTTPLoadBalancerSpec | None = None
    is_whole: bool = True


class ClassPlan(msgspec.Struct, frozen=True):
    """The load balancer of one class, the listener of each TLS host, and messages by Ingress.

    ``has_tls``: it has Ingresses with TLS, so it needs a fallback certificate. ``requests`` are for certificates that
    the hub should get, by name.
    """

    spec: HTTPLoadBalancerSpec
    tls_listeners: Mapping[str, str]
    problems: Mapping[ObjectKey, tuple[str, ...]]
    has_tls: bool = False
    requests: Mapping[str, tuple[CertificateRequest, ...]] = {}
    processing: Processing = Processing()


def class_of(ingress: IngressObject, classes: Iterable[IngressClass]) -> IngressClass | None:
    """Return the Fairlead class of an Ingress, None if it has none.

    An Ingress without a name has the default class; of several, the newest one, then the first by name.
    """
    classes_present = list(classes)
    named = ingress.spec.ingress_class_name
    if named is None:
        named = ingress.annotation(ANNOTATION_LEGACY_CLASS) or None
    if named is None:
        defaults = [
            ingress_class
            for ingress_class in classes_present
            if ingress_class.annotation(ANNOTATION_DEFAULT_CLASS) == "true"
        ]
        by_name = sorted(defaults, key=lambda ingress_class: ingress_class.metadata.name)
        newest = max((ingress_class.metadata.creation_timestamp or "" for ingress_class in defaults), default="")
        chosen = next(
            (ingress_class for ingress_class in by_name if (ingress_class.metadata.creation_timestamp or "") == newest),
            None,
        )
    else:
        chosen = next(
            (ingress_class for ingress_class in classes_present if ingress_class.metadata.name == named), None
        )
    return chosen if chosen is not None and chosen.is_ours else None


def plan_class(view: ClassView) -> ClassPlan:
    """Return the load balancer of ``view``."""
    name = view.ingress_class.metadata.name
    hosts = _Hosts()
    lookup = Lookup(class_load_balancer_name(name), view.certificates, view.managed, view.issuer)
    for ingress in sorted(view.ingresses, key=attrgetter("age_order")):
        for section in sections_of(ingress, lookup):
            hosts.add(ingress, section)
        hosts.add_client_certificate(ingress, view.certificates)
    sources = source_lists(view.ingress_class)
    problems = [annotation_problem(view.ingress_class), access_log_problem(view.ingress_class)]
    limits, wrong = view.ingress_class.annotation(ANNOTATION_LIMITS), limits_problem(view.ingress_class)
    if wrong:
        limits = view.published.limits if view.published is not None else ""
        problems.append(f"{wrong}. Until this is corrected, the last valid limits count")
    unclear = accepts_problem(view.ingress_class)
    accepted = view.ingress_class.annotation(ANNOTATION_ACCEPT_PROXY_PROTOCOL)
    if unclear:
        accepted = view.published.accept_proxy_protocol if view.published is not None else ""
        problems.append(f"{unclear}. Until this is corrected, the last valid setting counts")
    if sources.problem:
        problems.append(f"{sources.problem}. Until this is corrected, the last valid lists count")
        sources = _published_sources(view.published)
    listeners = [L7Listener(HTTP_LISTENER, 80), *hosts.listeners]
    has_tls = any(ingress.spec.tls for ingress in view.ingresses)
    if has_tls and view.fallback:
        fallback = CertificateRef(fallback_name(name), view.fallback)
        hosts.used[fallback.name] = fallback
        listeners.append(L7Listener(FALLBACK_LISTENER, 443, "HTTPS", certificates=(fallback.name,)))
    if view.published is not None and not view.is_whole:
        names = {listener.name for listener in listeners}
        listeners += [listener for listener in view.published.listeners if listener.name not in names]
        hosts.used = {certificate.name: certificate for certificate in view.published.certificates} | hosts.used
    families = families_by_annotation(view.ingress_class)
    for problem in filter(None, problems):
        for ingress in view.ingresses:
            hosts.problems.setdefault(ingress.key, []).append(f"IngressClass {name}: {problem}")
    spec = HTTPLoadBalancerSpec(
        listeners=tuple(
            msgspec.structs.replace(listener, allowed_sources=sources.allowed, denied_sources=sources.denied)
            for listener in sorted(listeners, key=lambda listener: (listener.port, listener.name))
        ),
        class_name=view.ingress_class.load_balancer_class or DEFAULT_CLASS,
        certificates=tuple(hosts.used[name] for name in sorted(hosts.used)),
        targets=view.targets,
        ip_families=families,
        ip_family_policy=policy_of(families),
        access_log=access_log_of(view.ingress_class),
        limits=limits,
        accept_proxy_protocol=accepted,
        origin=Origin(kind="IngressClass", name=name, uid=view.ingress_class.metadata.uid),
    )
    said_of = {key: tuple(dict.fromkeys(sentences)) for key, sentences in hosts.problems.items() if sentences}
    tls_listeners = {host: https_listener(host) for host in hosts.owners}
    if view.fallback:
        tls_listeners |= {host: FALLBACK_LISTENER for host in hosts.without if host not in hosts.owners}
    requests = {name: tuple(requested) for name, requested in hosts.requests.items()}
    return ClassPlan(spec, tls_listeners, said_of, has_tls, requests, class_processing(view.ingress_class))


def _published_sources(published: HTTPLoadBalancerSpec | None) -> SourceLists:
    """Return the published lists of all listeners of a class; without valid lists yet, all clients are refused."""
    if published is None or not published.listeners:
        return SourceLists(denied=EVERYONE)
    return SourceLists(published.listeners[0].allowed_sources, published.listeners[0].denied_sources)


class _Hosts:
    """The TLS hosts of a class, added from the oldest Ingress to the youngest."""

    def __init__(self) -> None:
        self.owners: dict[str, tuple[ObjectKey, str]] = {}
        #: Hosts that have no certificate of their own, as far as the Ingresses say that were added until now.
        self.without: dict[str, None] = {}
        self.used: dict[str, CertificateRef] = {}
        self.listeners: list[L7Listener] = []
        self.problems: dict[ObjectKey, list[str]] = {}
        self.requests: dict[str, list[CertificateRequest]] = {}

    def add(self, ingress: IngressObject, section: Section) -> None:
        """Add an entry of an Ingress, or its problem."""
        sentences = self.problems.setdefault(ingress.key, [])
        if section.request is not None:
            self.requests.setdefault(section.request.name, []).append(section.request)
        taken = [self._add_host(ingress, host, section, sentences) for host in section.hosts]
        if section.problem and (not section.hosts or any(taken)):
            sentences.append(section.problem)

    def add_client_certificate(
        self, ingress: IngressObject, certificates: Mapping[tuple[str, str], CertificateState]
    ) -> None:
        """Add the certificate that an Ingress presents to backends; its problems belong to the routes."""
        key = (ingress.metadata.namespace, client_secret(ingress))
        if key in certificates and (digest := certificates[key].digest):
            name = certificate_name(*key)
            self.used[name] = CertificateRef(name, digest)

    def _add_host(self, ingress: IngressObject, host: str, section: Section, sentences: list[str]) -> bool:
        """Return whether the host belongs to this Ingress, and not to an older one."""
        owner, of_owner = self.owners.get(host, (ingress.key, section.secret))
        if owner != ingress.key:
            if (owner.namespace, of_owner) != (ingress.metadata.namespace, section.secret):
                sentences.append(f"host {host} is served with the certificate of an older Ingress")
            return False
        if section.certificate is None:
            self.without[host] = None
            return True
        if len(self.listeners) >= MOST_TLS_HOSTS:
            sentences.append(
                f"host {host} is not served over HTTPS: older Ingresses of the class use all {MOST_TLS_HOSTS:,} TLS "
                "hosts of a load balancer. Use another IngressClass for it"
            )
            return True
        self.owners[host] = (ingress.key, section.secret)
        name = section.certificate.name
        self.used[name] = section.certificate
        self.listeners.append(L7Listener(https_listener(host), 443, "HTTPS", hostname=host, certificates=(name,)))
        return True


class Lookup(NamedTuple):
    """The input of sections: the load balancer that answers, Secrets by key, certificates of the hub by name.

    ``issuer`` is that of Ingresses that name none.
    """

    load_balancer: str
    certificates: Mapping[tuple[str, str], CertificateState]
    managed: Mapping[str, CertificateState]
    issuer: str = ""


class Section(NamedTuple):
    """One entry of ``spec.tls``: its hosts, their served certificate, and the request to the hub."""

    hosts: tuple[str, ...]
    secret: str = ""
    certificate: CertificateRef | None = None
    problem: str = ""
    request: CertificateRequest | None = None


def sections_of(ingress: IngressObject, lookup: Lookup) -> Iterable[Section]:
    """Yield each entry of ``spec.tls``; without hosts they are those of the rules."""
    seen: set[str] = set()
    for tls in ingress.spec.tls or ():
        named = tls.hosts or sorted({rule.host for rule in ingress.spec.rules or () if rule.host})
        hosts = tuple(dict.fromkeys(host for host in named if host not in seen))
        seen.update(hosts)
        if tls.secret_name and not named:
            yield Section((), problem=f"spec.tls with Secret {tls.secret_name} names no host, and no rule has one")
        elif hosts or not tls.secret_name:
            yield _section(ingress, lookup, hosts, tls.secret_name)


def _section(ingress: IngressObject, lookup: Lookup, hosts: tuple[str, ...], secret: str) -> Section:
    namespace = ingress.metadata.namespace
    state = CertificateState(missing=True)
    if secret:
        state = lookup.certificates.get((namespace, secret), CertificateState(problem=NOT_IN_MEMBER, missing=True))
    copy = CertificateRef(certificate_name(namespace, secret), state.digest) if secret and state.digest else None
    request = _request(ingress, lookup, hosts) if state.missing else None
    if request is not None:
        return _asked(lookup, request, hosts, secret or request.name, copy)
    if state.missing and (refusal := too_many(hosts, issuer_of(ingress, lookup.issuer))):
        where = f"spec.tls with Secret {secret}" if secret else "an entry of spec.tls without a Secret"
        return Section(hosts, secret, copy, f"{where}: {refusal}")
    if not secret:
        return Section((), problem="an entry of spec.tls names no secretName, so its hosts are not served over HTTPS")
    kept = "the previous version is still served" if copy else f"{_list(hosts)} the fallback certificate"
    problem = f"Secret {secret}: {state.problem}; {kept}" if state.problem else ""
    return Section(hosts, secret, copy, problem)


def _asked(
    lookup: Lookup, request: CertificateRequest, hosts: tuple[str, ...], secret: str, copy: CertificateRef | None
) -> Section:
    state = lookup.managed.get(request.name, CertificateState(problem=PENDING))
    # The hub knows which version it has written: a renewal changes nothing here.
    certificate = CertificateRef(request.name) if state.digest else copy
    problem = ""
    if state.problem and state.problem != PENDING:
        kept = "the previous version is still served" if certificate else f"{_list(hosts)} the fallback certificate"
        problem = f"the certificate for {', '.join(hosts)}: {state.problem}; {kept}"
    return Section(hosts, secret, certificate, problem, request)


def _request(ingress: IngressObject, lookup: Lookup, hosts: tuple[str, ...]) -> CertificateRequest | None:
    meta = ingress.metadata
    return request(
        hosts,
        issuer_of(ingress, lookup.issuer),
        load_balancer=lookup.load_balancer,
        origin=Origin(kind="Ingress", namespace=meta.namespace, name=meta.name, uid=meta.uid),
    )


def _list(hosts: tuple[str, ...]) -> str:
    return f"{', '.join(hosts)} {'gets' if len(hosts) == 1 else 'get'}"
