"""An Ingress as routes at the hub.

    each host of its rules     one LoadBalancerRoute: the listeners that take the host, one rule for each path
    default backend            the same without paths; for all hosts, and behind the paths of each host of its own

A star in a host stands for exactly one label. ImplementationSpecific is Prefix. An Ingress
whose annotations of ingress-nginx keep requests out is not served, unless its owner acknowledges that they are ignored.
In: an Ingress, the Services that it names, and which hosts have a certificate. Out: routes and sentences about what
cannot be served. Pure.
Source: https://kubernetes.io/docs/concepts/services-networking/ingress/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from fairlead.agent.l7.backends import TLS_ONLY, backend_of, find_port, ports_of
from fairlead.agent.l7.rate_limit import limit_problem, limited
from fairlead.api.hostname import WILDCARD, wildcards_over
from fairlead.api.httploadbalancer import LoadBalancerRouteSpec
from fairlead.api.kubernetes import IngressBackend, IngressObject, IngressPath, Service
from fairlead.api.names import ANNOTATION_IGNORED_ANNOTATIONS
from fairlead.api.tcploadbalancer import Origin
from fairlead.convert.annotations import PREFIX, WITHOUT_EFFECT, by_name, protecting_any
from fairlead.model.http import Attachment, Backend, BackendRef, PathMatch, RequestMatch, Rule

HTTP_LISTENER = "http"
#: The listener of an IngressClass for server names without a certificate, and for clients that send none.
FALLBACK_LISTENER = "https"
#: How many annotations one sentence names.
_MOST_NAMED = 12


class IngressView(msgspec.Struct, frozen=True):
    """All that the translation of one Ingress may depend on.

    ``load_balancer`` is the name of the HTTPLoadBalancer of its class. ``services`` are those of its namespace that it
    names, by name, ``unreachable`` says of some why they are not reached as they should be. ``tls_listeners`` maps the
    hosts that its class serves over HTTPS to their listener.
    """

    ingress: IngressObject
    load_balancer: str
    services: Mapping[str, Service] = {}
    tls_listeners: Mapping[str, str] = {}
    unreachable: Mapping[str, str] = {}


class IngressRoutes(msgspec.Struct, frozen=True):
    """The routes of one Ingress by host (empty: every host), and sentences about what cannot be served.

    ``ignored`` says which annotations of ingress-nginx have no effect.
    """

    routes: Mapping[str, LoadBalancerRouteSpec]
    problems: tuple[str, ...] = ()
    ignored: str = ""


def https_listener(host: str) -> str:
    """Name the listener of one host that is served over HTTPS."""
    return f"https/{host}"


def services_of(ingress: IngressObject) -> frozenset[str]:
    """Return the names of the Services that an Ingress names."""
    spec = ingress.spec
    paths = [path.backend for rule in spec.rules or () for path in (rule.http.paths if rule.http else None) or ()]
    backends = [*paths, *([spec.default_backend] if spec.default_backend is not None else [])]
    return frozenset(each.service.name for each in backends if each.service is not None)


def unprotected(ingress: IngressObject) -> str:
    """Return why an Ingress is not served: an annotation that keeps requests out would be ignored; else empty."""
    acknowledged = {
        each.strip().removeprefix(PREFIX) for each in ingress.annotation(ANNOTATION_IGNORED_ANNOTATIONS).split(",")
    }
    protections = protecting_any(ingress.metadata.annotations)
    if not set(protections) - acknowledged:
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
    return msgspec.structs.replace(_Translation(view).routes(), ignored=ignored)


def _ignored(ingress: IngressObject) -> str:
    annotations = ingress.metadata.annotations
    names = [name for name in by_name(annotations) if name not in WITHOUT_EFFECT]
    names += [name for name in protecting_any(annotations) if name not in names]
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
    def __init__(self, view: IngressView) -> None:
        self._view = view
        self._backends: dict[str, Backend] = {}
        self._problems: dict[str, None] = {}

    def routes(self) -> IngressRoutes:
        spec = self._view.ingress.spec
        paths: dict[str, list[IngressPath]] = {}
        for rule in spec.rules or ():
            paths.setdefault(rule.host, []).extend((rule.http.paths if rule.http else None) or ())
        default = self._default_rule(spec.default_backend)
        if default is not None:
            paths.setdefault("", [])
        routes: dict[str, LoadBalancerRouteSpec] = {}
        for host in sorted(paths):
            self._backends = {}
            rules = (*map(self._rule, paths[host]), *self._defaults(spec.default_backend))
            if rules:
                routes[host] = self._route(host, rules)
            else:
                self._problems[f"host {host}: there is no path and no default backend, so it answers 404"] = None
        if problem := limit_problem(self._view.ingress):
            self._problems[problem] = None
        return IngressRoutes(routes, tuple(self._problems))

    def _route(self, host: str, rules: Iterable[Rule]) -> LoadBalancerRouteSpec:
        meta = self._view.ingress.metadata
        return LoadBalancerRouteSpec(
            load_balancer=self._view.load_balancer,
            attachments=tuple(self._attachments(host)),
            rules=limited(rules, self._view.ingress),
            backends=tuple(self._backends[name] for name in sorted(self._backends)),
            created=meta.creation_timestamp or "",
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
        """Yield the TLS listeners for ``host``, or for names that it covers; a star stands for one label."""
        listeners = self._view.tls_listeners
        if host in listeners:
            yield listeners[host]
        elif not host.startswith(WILDCARD) and (nearest := next(wildcards_over(host), "")) in listeners:
            yield listeners[nearest]
        if host.startswith(WILDCARD):
            below = (each for each in sorted(listeners) if next(wildcards_over(each), "") == host)
            yield from (listeners[each] for each in below if not each.startswith(WILDCARD))

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
        return Rule(matches=(RequestMatch(path=match),), backends=(BackendRef(self._backend(path.backend)),))

    def _default_rule(self, backend: IngressBackend | None) -> Rule | None:
        return None if backend is None else Rule(backends=(BackendRef(self._backend(backend)),))

    def _defaults(self, backend: IngressBackend | None) -> tuple[Rule, ...]:
        rule = self._default_rule(backend)
        return () if rule is None else (rule,)

    def _backend(self, backend: IngressBackend) -> str:
        """Return the name of the backend, empty when there is none; why is among the problems then."""
        if backend.service is None:
            description = f"{backend.resource.kind} {backend.resource.name}" if backend.resource else "an empty backend"
            self._problems[f"{description} cannot be a backend: name a Service"] = None
            return ""
        named = backend.service
        service = self._view.services.get(named.name)
        unreachable = self._view.unreachable.get(named.name, "")
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
        if port.app_protocol in TLS_ONLY:
            # In plain text it would answer 400 to each request, and nothing would say why.
            self._problems[
                f"port {port.name or port.port} of Service {named.name} speaks {port.app_protocol}, and an Ingress "
                "cannot say how it is verified: use an HTTPRoute with a BackendTLSPolicy, or another appProtocol if it "
                "takes plain HTTP"
            ] = None
            return ""
        made = backend_of(service, port)
        self._backends[made.name] = made
        return made.name


class Place(NamedTuple):
    """One path of one host (empty: any host); a prefix has no slash at its end, as it is the same with one."""

    host: str
    path: str
    exact: bool


def places_of(ingress: IngressObject) -> frozenset[Place]:
    """Return the paths of an Ingress."""
    return frozenset(_places(ingress))


def overlaps(ingress: IngressObject, at: Callable[[Place], Iterable[IngressObject]]) -> tuple[str, ...]:
    """Return a sentence for each path that an older Ingress has too; ``at`` returns those of its class with a path."""
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
        for each in (rule.http.paths if rule.http else None) or ():
            exact, path = each.path_type == "Exact", each.path or "/"
            yield Place(rule.host, path if exact else path.rstrip("/") or "/", exact)
