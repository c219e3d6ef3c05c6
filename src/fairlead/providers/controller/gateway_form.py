"""A load balancer as a Gateway of another controller's class, with a route of Gateway API for each of its routes.

What Gateway API cannot say (a star that stands for one label), or what is not said here (TLS to backends, client
certificates), is refused part by part with the reason; the rest is served. In: a FrontendSpec. Out: objects. Pure.
Source: https://gateway-api.sigs.k8s.io/reference/spec/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.api.gateway import GATEWAY_GROUP, GATEWAYS, Gateway
from fairlead.api.gateway_routes import GRPC_ROUTES, HTTP_ROUTES, TCP_ROUTES, TLS_ROUTES, UDP_ROUTES
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, Resource
from fairlead.model.desired import FrontendSpec
from fairlead.model.http import (
    Attachment,
    Backend,
    BackendRef,
    L7Config,
    L7Listener,
    RequestMatch,
    Route,
    Rule,
    unsafe_parts,
)
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.keys import Protocol as TransportProtocol
from fairlead.model.observed import RefusedPart
from fairlead.providers.controller.form import Answer
from fairlead.providers.controller.gateway_filters import filters
from fairlead.providers.controller.objects import Made, Rendered, dns_name, made, service_name
from fairlead.providers.controller.services import SERVICE_PORT
from fairlead.providers.controller.settings import ControllerSettings

_KINDS: Mapping[str, AnyResource] = {
    "HTTP": HTTP_ROUTES,
    "GRPC": GRPC_ROUTES,
    "TLS": TLS_ROUTES,
    "TCP": TCP_ROUTES,
    "UDP": UDP_ROUTES,
}
#: A backend that could not be resolved in the member: a Service that does not exist answers as such a backend must.
_UNRESOLVED = "fairlead-unresolved-backend"


class GatewayForm:
    """A Gateway of class ``controllerClass``, and its routes."""

    name = "gateway"
    protocols = frozenset(TransportProtocol)
    answering: Resource[Any] = GATEWAYS
    others: tuple[AnyResource, ...] = tuple(_KINDS.values())

    def render(self, spec: FrontendSpec, settings: ControllerSettings) -> Rendered:
        """Return the Gateway and its routes."""
        config = spec.l7 or L7Config(())
        refused = [
            RefusedPart("listener", each.name, "this provider does not ask for client certificates")
            for each in config.listeners
            if each.client_validation is not None
        ]
        unserved = {part.name for part in refused}
        listeners = [each for each in config.listeners if each.name not in unserved]
        gateway = _gateway(spec, listeners, settings)
        objects: list[Made] = [gateway] if listeners else []
        backends = {each.name: each for each in config.backends}
        for route in config.routes:
            attachments = [each for each in route.attachments if each.listener not in unserved]
            if not attachments:
                continue
            problem = next(_problems(route, attachments, backends), "")
            if problem:
                refused.append(RefusedPart("route", route.name, problem))
            else:
                objects.append(_route(spec.key, gateway.name, route, attachments))
        return Rendered(tuple(objects), tuple(refused))

    def answer(self, obj: KubeObject) -> Answer:
        """Return the addresses of a Gateway; it serves once its controller says Programmed of this generation."""
        status = obj.status if isinstance(obj, Gateway) else None
        addresses = tuple(each.value for each in (status.addresses if status else None) or () if each.value)
        programmed = next(
            (each for each in (status.conditions if status else None) or () if each.type == "Programmed"), None
        )
        if programmed is None or programmed.observed_generation < obj.metadata.generation:
            return Answer(addresses, "its controller has not said Programmed yet")
        if programmed.status != "True":
            return Answer(addresses, f"its controller says {programmed.reason}: {programmed.message}")
        return Answer(addresses, "" if addresses else "it has no address yet")


def _gateway(spec: FrontendSpec, listeners: list[L7Listener], settings: ControllerSettings) -> Made:
    body: JSONObject = {"gatewayClassName": settings.controller_class, "listeners": list(map(_listener, listeners))}
    if spec.address:
        body["addresses"] = [{"type": "IPAddress", "value": spec.address}]
    name = dns_name(spec.key.name, *spec.key)
    return made(GATEWAYS, spec.key, name, {"spec": body}, annotations=dict(settings.annotations))


def _listener(of: L7Listener) -> JSONObject:
    part: JSONObject = {"name": _section(of.name), "port": of.port, "protocol": of.protocol}
    if of.hostname:
        part["hostname"] = of.hostname
    if of.passthrough:
        part["tls"] = {"mode": "Passthrough"}
    elif of.certificates:
        part["tls"] = {"mode": "Terminate", "certificateRefs": [{"name": name} for name in of.certificates]}
    return part


def _section(listener: str) -> str:
    return dns_name(listener, listener)


def _problems(route: Route, attachments: list[Attachment], backends: Mapping[str, Backend]) -> Iterator[str]:
    for attachment in attachments:
        stars = [each for each in attachment.hostnames if each.startswith("*.")]
        if attachment.one_label and stars:
            yield f"the star of {stars[0]} stands for one label, and in Gateway API for several"
    for rule in route.rules:
        yield from unsafe_parts(rule)
        for each in rule.backends:
            backend = backends.get(each.backend)
            if backend is not None and backend.tls is not None:
                yield f"backend {each.backend} speaks TLS, which this provider does not ask for"
        if rule.session is not None:
            yield "it has sessions, which this provider does not ask for"


def _route(key: LoadBalancerKey, gateway: str, route: Route, attachments: list[Attachment]) -> Made:
    spec: JSONObject = {
        "parentRefs": [
            {"group": GATEWAY_GROUP, "kind": "Gateway", "name": gateway, "sectionName": _section(each.listener)}
            for each in attachments
        ],
        "rules": [_rule(key, route, rule) for rule in route.rules],
    }
    hostnames = sorted({hostname for each in attachments for hostname in each.hostnames})
    if hostnames and all(each.hostnames for each in attachments) and route.kind in {"HTTP", "GRPC", "TLS"}:
        spec["hostnames"] = hostnames
    return made(_KINDS[route.kind], key, route.name, {"spec": spec})


def _rule(key: LoadBalancerKey, route: Route, rule: Rule) -> JSONObject:
    part: JSONObject = {"name": rule.name} if rule.name else {}
    if route.kind in {"HTTP", "GRPC"}:
        matches = [_match(match) if route.kind == "HTTP" else _grpc_match(match) for match in rule.matches]
        part |= {"matches": matches} if matches else {}
        part |= _with("filters", filters(rule.filters, lambda backend: _service(key, backend)))
    if route.kind == "HTTP":
        part |= _with("timeouts", _timeouts(rule)) | _with("retry", _retry(rule))
    part |= _with("backendRefs", [_backend(key, route, each) for each in rule.backends])
    return part


def _with(name: str, value: Any) -> JSONObject:
    return {name: value} if value else {}


def _match(match: RequestMatch) -> JSONObject:
    part: JSONObject = {"path": {"type": match.path.type, "value": match.path.value}}
    part |= _with("method", match.method)
    part |= _with("headers", [{"type": each.type, "name": each.name, "value": each.value} for each in match.headers])
    query = [{"type": each.type, "name": each.name, "value": each.value} for each in match.query_params]
    return part | _with("queryParams", query)


def _grpc_match(match: RequestMatch) -> JSONObject:
    service, _, method = match.path.value.removeprefix("/").partition("/")
    kind = "RegularExpression" if match.path.type == "RegularExpression" else "Exact"
    named = _with("service", service) | _with("method", method)
    part: JSONObject = {"method": {"type": kind, **named}} if named else {}
    return part | _with(
        "headers", [{"type": each.type, "name": each.name, "value": each.value} for each in match.headers]
    )


def _timeouts(rule: Rule) -> JSONObject:
    return {
        name: f"{value}ms"
        for name, value in (("request", rule.request_timeout_ms), ("backendRequest", rule.backend_timeout_ms))
        if value is not None
    }


def _retry(rule: Rule) -> JSONObject:
    if rule.retry is None:
        return {}
    part: JSONObject = {"attempts": rule.retry.attempts, **_with("codes", list(rule.retry.codes))}
    return part | ({"backoff": f"{rule.retry.backoff_ms}ms"} if rule.retry.backoff_ms else {})


def _service(key: LoadBalancerKey, backend: str) -> JSONObject:
    return {"name": service_name(key, backend) if backend else _UNRESOLVED, "port": SERVICE_PORT}


def _backend(key: LoadBalancerKey, route: Route, ref: BackendRef) -> JSONObject:
    part = {**_service(key, ref.backend), "weight": ref.weight}
    own = filters(ref.filters, lambda backend: _service(key, backend))
    return part | (_with("filters", own) if route.kind in {"HTTP", "GRPC"} else {})
