"""An Ingress as routes at the hub.

    each host of its rules     one LoadBalancerRoute: the listeners that take the host, one rule for each path
    default backend            the same without paths; for all hosts, and behind the paths of each host of its own

A star in a host stands for exactly one label. ImplementationSpecific is Prefix. In: an Ingress, the Services that it
names, and which hosts have a certificate. Out: routes and sentences about what cannot be served. Pure.
Source: https://kubernetes.io/docs/concepts/services-networking/ingress/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fairlead.agent.l7.backends import TLS_ONLY, backend_of, find_port
from fairlead.agent.l7.rate_limit import limit_problem, limited
from fairlead.api.httploadbalancer import LoadBalancerRouteSpec
from fairlead.api.ingress import IngressBackend, IngressObject, IngressPath
from fairlead.api.kubernetes import Service
from fairlead.api.tcploadbalancer import Origin
from fairlead.model.http import Attachment, Backend, BackendRef, PathMatch, RequestMatch, Rule

HTTP_LISTENER = "http"
#: The listener of an IngressClass for server names without a certificate, and for clients that send none.
FALLBACK_LISTENER = "https"


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
    """The routes of one Ingress by host (empty: every host), and sentences about what cannot be served."""

    routes: Mapping[str, LoadBalancerRouteSpec]
    problems: tuple[str, ...] = ()


def https_listener(host: str) -> str:
    """Name the listener of one host that is served over HTTPS."""
    return f"https/{host}"


def services_of(ingress: IngressObject) -> frozenset[str]:
    """Return the names of the Services that an Ingress names."""
    spec = ingress.spec
    paths = [path.backend for rule in spec.rules or () for path in (rule.http.paths if rule.http else None) or ()]
    backends = [*paths, *([spec.default_backend] if spec.default_backend is not None else [])]
    return frozenset(each.service.name for each in backends if each.service is not None)


def translate_ingress(view: IngressView) -> IngressRoutes:
    """Return the routes of ``view``; a backend that cannot be found answers 500 on its path only."""
    return _Translation(view).routes()


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
        if host and (listener := self._view.tls_listeners.get(host)):
            yield Attachment(listener, hostnames, one_label=wildcard)
        if not host:
            for served, listener in sorted(self._view.tls_listeners.items()):
                if served in self._own_tls_hosts() - self._own_hosts():
                    yield Attachment(listener, (served,) if listener == FALLBACK_LISTENER else ())

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
        port = find_port(service, name=named.port.name, number=named.port.number)
        if port is None:
            port_text = named.port.name or str(named.port.number)
            self._problems[f"Service {named.name} has no port {port_text}"] = None
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
