"""Provider ``ingress``: Ingresses of any controller in the hub's cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from fairlead.api.kubernetes import INGRESSES, IngressObject
from fairlead.api.meta import AnyResource, JSONObject, KubeObject
from fairlead.kube.cluster import Cluster
from fairlead.model.desired import FrontendSpec
from fairlead.model.http import Attachment, Backend, Filters, L7Config, L7Listener, RequestMatch, Route, Rule
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.keys import Protocol as TransportProtocol
from fairlead.model.observed import RefusedPart
from fairlead.providers.controller.objects import (
    SERVICE_PORT,
    UNRESOLVED,
    AppliedObject,
    ControllerSettings,
    FormAnswer,
    Rendered,
    made,
    service_name,
    unrendered_parts,
    with_spec,
)
from fairlead.providers.controller.provider import ControllerProvider


def create(cluster: Cluster) -> ControllerProvider:
    """Return the provider, for the cluster of the hub."""
    return ControllerProvider(cluster, IngressForm())


_PATH_TYPES = {"Exact": "Exact", "PathPrefix": "Prefix"}
_PORTS = {"HTTP": 80, "HTTPS": 443}
_INEXPRESSIBLE = "an Ingress cannot express this: {}"


class IngressForm:
    """Ingresses of class ``controllerClass``."""

    name = "ingress"
    protocols = frozenset({TransportProtocol.TCP})
    answering: AnyResource = INGRESSES
    reporting: tuple[AnyResource, ...] = (INGRESSES,)
    others: tuple[AnyResource, ...] = ()

    def render(self, spec: FrontendSpec, settings: ControllerSettings) -> Rendered:
        """Return one Ingress for each route that an Ingress can express."""
        config = spec.l7 or L7Config(())
        objects: list[AppliedObject] = []
        refused = list(_refused_listeners(config))
        unserved = {part.name for part in refused}
        refused += unrendered_parts(config)
        listeners = {listener.name: listener for listener in config.listeners if listener.name not in unserved}
        backends = {backend.name: backend for backend in config.backends}
        for route in config.routes:
            attachments = tuple(attachment for attachment in route.attachments if attachment.listener in listeners)
            if not attachments:
                continue
            problems = {
                number: problem for number, rule in enumerate(route.rules) for problem in _rule_problems(rule, backends)
            }
            whole = next(_problems(route, attachments), "")
            if len(problems) == len(route.rules):
                whole = whole or next(iter(problems.values()), "")
            if whole:
                refused.append(RefusedPart("route", route.name, _INEXPRESSIBLE.format(whole)))
                continue
            refused += [
                RefusedPart(
                    "rule",
                    route.name,
                    f"rule {route.rules[number].name or number + 1}: {_INEXPRESSIBLE.format(problem)}",
                )
                for number, problem in problems.items()
            ]
            objects.append(_ingress(spec.key, route, attachments, listeners, settings, closed=problems))
        return Rendered(tuple(objects), tuple(refused))

    def rules_of(self, obj: AppliedObject) -> int:
        """Return the number of paths of an Ingress; each host has the same ones."""
        return len(obj.body["spec"]["rules"][0]["http"]["paths"])

    def close(self, obj: AppliedObject, rules: Collection[int]) -> AppliedObject:
        """Return an Ingress whose paths with these numbers lead to a Service that does not exist."""
        spec = obj.body["spec"]
        hosts = [
            {
                **host,
                "http": {
                    "paths": [
                        {**path, "backend": _backend(UNRESOLVED)} if number in rules else path
                        for number, path in enumerate(host["http"]["paths"])
                    ]
                },
            }
            for host in spec["rules"]
        ]
        return with_spec(obj, {**spec, "rules": hosts})

    def answer(self, obj: KubeObject) -> FormAnswer:
        """Return the addresses of an Ingress."""
        there = obj.status.load_balancer.ingress or () if isinstance(obj, IngressObject) else ()
        addresses = tuple(entry.address for entry in there if entry.address)
        return FormAnswer(addresses, "" if addresses else "no address yet")


def _refused_listeners(config: L7Config) -> Iterator[RefusedPart]:
    for listener in config.listeners:
        if listener.protocol not in _PORTS:
            yield RefusedPart("listener", listener.name, f"an Ingress has no listener of protocol {listener.protocol}")
        elif listener.port != _PORTS[listener.protocol]:
            yield RefusedPart(
                "listener", listener.name, f"an Ingress is served at ports 80 and 443, not at {listener.port}"
            )
        elif listener.client_validation is not None:
            yield RefusedPart("listener", listener.name, "an Ingress cannot request client certificates")
        elif listener.checks_sources:
            yield RefusedPart("listener", listener.name, "an Ingress has no lists of client addresses")


def _problems(route: Route, attachments: tuple[Attachment, ...]) -> Iterator[str]:
    """Yield why no rule of a route can be served; one that is left out would have another take its requests."""
    if route.kind != "HTTP":
        yield f"route of kind {route.kind}"
    for attachment in attachments:
        for hostname in attachment.hostnames:
            if hostname.startswith("*.") and not attachment.one_label:
                yield f"{hostname} matches several labels"
    for rule in route.rules:
        for match in rule.matches:
            if match.method or match.headers or match.query_params:
                yield "matches more than host and path"
            if match.path.type not in _PATH_TYPES:
                yield "matches paths by a regular expression"


def _rule_problems(rule: Rule, backends: Mapping[str, Backend]) -> Iterator[str]:
    """Yield the features of a rule that an Ingress cannot express."""
    if rule.filters != Filters() or any(ref.filters != Filters() for ref in rule.backends):
        yield "has filters"
    if rule.request_timeout_ms or rule.backend_timeout_ms or rule.retry is not None or rule.session is not None:
        yield "has timeouts, retries or sessions"
    if rule.checks_sources:
        yield "has lists of client addresses"
    if rule.processor is not None:
        yield "has an external processor"
    if rule.jwt:
        yield "asks for tokens"
    if rule.requests_per_second:
        yield "limits requests per second"
    wanted = [ref for ref in rule.backends if ref.weight]
    if len(wanted) != 1:
        yield "a rule does not have exactly one backend"
    elif wanted[0].backend not in backends:
        yield "a rule names a backend that cannot be resolved"
    elif backends[wanted[0].backend].tls is not None:
        yield "a backend requires TLS"


def _ingress(
    key: LoadBalancerKey,
    route: Route,
    attachments: tuple[Attachment, ...],
    listeners: Mapping[str, L7Listener],
    settings: ControllerSettings,
    *,
    closed: Collection[int],
) -> AppliedObject:
    hosts = sorted({hostname for place in attachments for hostname in (place.hostnames or ("",))})
    paths: list[JSONObject] = []
    for number, rule in enumerate(route.rules):
        of = next((ref.backend for ref in rule.backends if ref.weight), "")
        backend = _backend(UNRESOLVED if number in closed else service_name(key, of))
        paths += [
            {"path": match.path.value, "pathType": _PATH_TYPES[match.path.type], "backend": backend}
            for match in (rule.matches or (RequestMatch(),))
        ]
    rules: list[JSONObject] = [({"host": host} if host else {}) | {"http": {"paths": paths}} for host in hosts]
    tls: list[JSONObject] = []
    for attachment in attachments:
        listener = listeners[attachment.listener]
        if listener.certificates:
            names = sorted(attachment.hostnames or ((listener.hostname,) if listener.hostname else ()))
            tls.append(({"hosts": names} if names else {}) | {"secretName": listener.certificates[0]})
    spec: JSONObject = {"ingressClassName": settings.controller_class, "rules": rules}
    if tls:
        spec["tls"] = tls
    return made(INGRESSES, key, route.name, {"spec": spec}, annotations=dict(settings.annotations), route=route.name)


def _backend(service: str) -> JSONObject:
    return {"service": {"name": service, "port": {"number": SERVICE_PORT}}}
