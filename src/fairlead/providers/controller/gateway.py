"""Provider ``gateway``: a Gateway of another controller's class, with routes of Gateway API for each route.

    more than 64 listeners              ListenerSets in addition to the Gateway
    more rules, matches, hostnames or   several routes of Gateway API
    parents than one route may have

Part by part, the form rejects with a reason what Gateway API cannot express (a wildcard for one label, a limit of
requests) and what is not rendered (TLS to backends, client certificates). The rest is served.
In: a FrontendSpec. Out: objects. Pure.
Source: https://gateway-api.sigs.k8s.io/reference/spec/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from fairlead.api.gateway import (
    GATEWAY_GROUP,
    GATEWAYS,
    GRPC_ROUTES,
    HTTP_ROUTES,
    LISTENER_SETS,
    TCP_ROUTES,
    TLS_ROUTES,
    UDP_ROUTES,
    Gateway,
    ListenerSet,
)
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, WireCondition
from fairlead.api.names import fit
from fairlead.api.times import gateway_duration
from fairlead.kube.cluster import Cluster
from fairlead.model.desired import FrontendSpec
from fairlead.model.http import (
    Attachment,
    Backend,
    BackendRef,
    Cors,
    Filters,
    HeaderModifier,
    L7Config,
    L7Listener,
    PathMatch,
    PathModifier,
    Redirect,
    RequestMatch,
    Route,
    RouteKind,
    Rule,
    unsafe_parts,
)
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
    dns_name,
    made,
    service_name,
    unrendered_parts,
    with_spec,
)
from fairlead.providers.controller.provider import ControllerProvider


def create(cluster: Cluster) -> ControllerProvider:
    """Return the provider, for the cluster of the hub."""
    return ControllerProvider(cluster, GatewayForm())


_KINDS: Mapping[str, AnyResource] = {
    "HTTP": HTTP_ROUTES,
    "GRPC": GRPC_ROUTES,
    "TLS": TLS_ROUTES,
    "TCP": TCP_ROUTES,
    "UDP": UDP_ROUTES,
}
#: Limits of the schemas: listeners of a Gateway or ListenerSet; parents, hostnames and rules of a route, and matches in
#: one rule and in all rules.
_MOST_LISTENERS = 64
_MOST_PARENTS = 32
_MOST_HOSTNAMES = 16
_MOST_RULES = 16
_MOST_MATCHES = 64
_MOST_MATCHES_IN_ALL = 128
#: The beginning of the path that matches a gRPC method of any service.
_ANY_SERVICE = "/[^/]+/"
_ESCAPED = re.compile(r"\\(.)")
_NAME_LIMIT = 253
_Item = TypeVar("_Item")


class GatewayForm:
    """A Gateway of class ``controllerClass``, and its routes."""

    name = "gateway"
    protocols = frozenset(TransportProtocol)
    answering: AnyResource = GATEWAYS
    reporting: tuple[AnyResource, ...] = (GATEWAYS, LISTENER_SETS)
    others: tuple[AnyResource, ...] = (*_KINDS.values(), LISTENER_SETS)

    def render(self, spec: FrontendSpec, settings: ControllerSettings) -> Rendered:
        """Return the Gateway and its routes."""
        config = spec.l7 or L7Config(())
        refused = [
            RefusedPart("listener", listener.name, "this provider does not support client certificates")
            for listener in config.listeners
            if listener.client_validation is not None
        ]
        refused += [
            RefusedPart("listener", listener.name, "this provider does not support lists of client addresses")
            for listener in config.listeners
            if listener.checks_sources
        ]
        unserved = {part.name for part in refused}
        listeners = [listener for listener in config.listeners if listener.name not in unserved]
        refused += unrendered_parts(config)
        holders, parents = _holders(spec, listeners, settings)
        objects: list[AppliedObject] = list(holders) if listeners else []
        backends = {backend.name: backend for backend in config.backends}
        for route in config.routes:
            attachments = [attachment for attachment in route.attachments if attachment.listener in parents]
            if not attachments:
                continue
            problems: dict[int, str] = {}
            for number, rule in enumerate(route.rules):
                if problem := next(_problems(f"rule {rule.name or number + 1}", rule, backends), ""):
                    problems[number] = problem
            stars = (
                hostname
                for attachment in attachments
                if attachment.one_label
                for hostname in attachment.hostnames
                if hostname.startswith("*.")
            )
            star = next(stars, "")
            whole = f"{star} matches one label, which Gateway API cannot express" if star else ""
            if route.kind not in {"HTTP", "GRPC"} or len(problems) == len(route.rules):
                whole = whole or next(iter(problems.values()), "")
            if whole:
                refused.append(RefusedPart("route", route.name, whole))
                continue
            refused += [RefusedPart("rule", route.name, text) for text in problems.values()]
            rules = tuple(
                Rule(name=rule.name, matches=rule.matches) if number in problems else rule
                for number, rule in enumerate(route.rules)
            )
            objects += _routes(spec.key, replace(route, rules=rules), attachments, parents)
        return Rendered(tuple(objects), tuple(refused))

    def rules_of(self, obj: AppliedObject) -> int:
        """Return the number of rules of an HTTPRoute or GRPCRoute; routes of other kinds have one each."""
        return len(obj.body["spec"]["rules"]) if obj.resource in {HTTP_ROUTES, GRPC_ROUTES} else 0

    def close(self, obj: AppliedObject, rules: Collection[int]) -> AppliedObject:
        """Return a route with these rules closed: a rule without backends is answered with 500."""
        spec = obj.body["spec"]
        closed = [
            {name: rule[name] for name in ("name", "matches") if name in rule} if number in rules else rule
            for number, rule in enumerate(spec["rules"])
        ]
        return with_spec(obj, {**spec, "rules": closed})

    def answer(self, obj: KubeObject) -> FormAnswer:
        """Return the addresses of a Gateway, and whether its controller reports Programmed for this generation."""
        match obj:
            case ListenerSet():
                return _programmed(obj, obj.status.conditions, ())
            case Gateway(status=status):
                addresses = tuple(address.value for address in status.addresses or () if address.value)
                answer = _programmed(obj, status.conditions, addresses)
                return answer if answer.waiting or addresses else FormAnswer(waiting="no address yet")
            case _:
                return _programmed(obj, (), ())


def _programmed(obj: KubeObject, conditions: Iterable[WireCondition] | None, addresses: tuple[str, ...]) -> FormAnswer:
    programmed = next((condition for condition in conditions or () if condition.type == "Programmed"), None)
    if programmed is None or programmed.observed_generation < obj.metadata.generation:
        return FormAnswer(addresses, "the controller has not reported Programmed yet")
    if programmed.status != "True":
        return FormAnswer(addresses, f"the controller reports {programmed.reason}: {programmed.message}")
    return FormAnswer(addresses)


def _holders(
    spec: FrontendSpec, listeners: list[L7Listener], settings: ControllerSettings
) -> tuple[list[AppliedObject], Mapping[str, JSONObject]]:
    """Return the Gateway with its ListenerSets, and the reference to each listener by its name."""
    name = dns_name(spec.key.name, *spec.key)
    parts = [listeners[at : at + _MOST_LISTENERS] for at in range(0, len(listeners), _MOST_LISTENERS)]
    body: JSONObject = {"gatewayClassName": settings.controller_class, "listeners": list(map(_listener, parts[0]))}
    if spec.addresses:
        body["addresses"] = [{"type": "IPAddress", "value": address} for address in spec.addresses]
    if parts[1:]:
        body["allowedListeners"] = {"namespaces": {"from": "Same"}}
    gateway: JSONObject = {"group": GATEWAY_GROUP, "kind": "Gateway", "name": name}
    holders = [made(GATEWAYS, spec.key, name, {"spec": body}, annotations=dict(settings.annotations))]
    parents = {listener.name: {**gateway, "sectionName": _section(listener.name)} for listener in parts[0]}
    for number, part in enumerate(parts[1:], 2):
        of_set = dns_name(spec.key.name, *spec.key, str(number))
        body = {"parentRef": gateway, "listeners": list(map(_listener, part))}
        holders.append(made(LISTENER_SETS, spec.key, of_set, {"spec": body}))
        reference: JSONObject = {"group": GATEWAY_GROUP, "kind": "ListenerSet", "name": of_set}
        parents |= {listener.name: {**reference, "sectionName": _section(listener.name)} for listener in part}
    return holders, parents


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


def _problems(title: str, rule: Rule, backends: Mapping[str, Backend]) -> Iterator[str]:
    for ref in rule.backends:
        backend = backends.get(ref.backend)
        if backend is not None and backend.tls is not None:
            yield f"{title}: backend {ref.backend} requires TLS, which this provider does not support"
    if rule.session is not None:
        yield f"{title} has sessions, which this provider does not support"
    if rule.checks_sources:
        yield f"{title} has lists of client addresses, which Gateway API cannot express"
    if rule.filters.auth is not None:
        yield f"{title} asks an external service, which this provider does not support"
    if rule.processor is not None:
        yield f"{title} has an external processor, which this provider does not support"
    if rule.jwt:
        yield f"{title} asks for tokens, which this provider does not support"
    if rule.requests_per_second:
        yield f"{title} limits requests per second, which Gateway API cannot express"
    yield from (f"{title}: {problem}" for problem in unsafe_parts(rule))
    try:
        _timing(rule)
    except ValueError as error:
        yield f"{title}: {error}"


def _routes(
    key: LoadBalancerKey, route: Route, attachments: list[Attachment], parents: Mapping[str, JSONObject]
) -> Iterator[AppliedObject]:
    """Yield the objects for one route: several where it has more than the schema of one allows."""
    hostnames = sorted({hostname for attachment in attachments for hostname in attachment.hostnames})
    if not all(attachment.hostnames for attachment in attachments) or route.kind not in {"HTTP", "GRPC", "TLS"}:
        hostnames = []
    references = [parents[name] for name in dict.fromkeys(attachment.listener for attachment in attachments)]
    parts = [
        (part, names, rules)
        for part in _chunks(references, _MOST_PARENTS)
        for names in (_chunks(hostnames, _MOST_HOSTNAMES) if hostnames else [[]])
        for rules in _rule_parts(key, route)
    ]
    for number, (part, names, rules) in enumerate(parts, 1):
        spec = {"parentRefs": part, "rules": rules} | _with("hostnames", names)
        name = fit(f"{route.name}.{number}", limit=_NAME_LIMIT) if number > 1 else route.name
        yield made(_KINDS[route.kind], key, name, {"spec": spec}, route=route.name)


def _chunks(items: Sequence[_Item], size: int) -> list[Sequence[_Item]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _rule_parts(key: LoadBalancerKey, route: Route) -> Iterator[list[JSONObject]]:
    """Yield the rules in parts that one object can hold; of two with the same name, the second has none."""
    part: list[JSONObject] = []
    matches = 0
    for rule in route.rules:
        for at in range(0, len(rule.matches) or 1, _MOST_MATCHES):
            name = rule.name if not at else ""
            some = replace(rule, name=name, matches=rule.matches[at : at + _MOST_MATCHES])
            more = len(some.matches) or 1
            if part and (len(part) == _MOST_RULES or matches + more > _MOST_MATCHES_IN_ALL):
                yield part
                part, matches = [], 0
            part.append(_rule(key, route, some))
            matches += more
    if part:
        yield part


def _rule(key: LoadBalancerKey, route: Route, rule: Rule) -> JSONObject:
    part: JSONObject = {"name": rule.name} if rule.name else {}
    if route.kind in {"HTTP", "GRPC"}:
        part |= _with("matches", [_match(route.kind, match) for match in rule.matches])
        part |= _with("filters", list(filters(rule.filters, lambda backend: _service(key, backend))))
    if route.kind == "HTTP":
        part |= _timing(rule)
    # The schema allows no backends with a redirect, which answers every request.
    backends = () if rule.filters.redirect is not None else rule.backends
    part |= _with("backendRefs", [_backend(key, route, ref) for ref in backends])
    return part


def _with(name: str, value: Any) -> JSONObject:
    return {name: value} if value else {}


def _match(kind: RouteKind, match: RequestMatch) -> JSONObject:
    headers = [{"type": header.type, "name": header.name, "value": header.value} for header in match.headers]
    if kind == "GRPC":
        return _with("method", _grpc_method(match.path)) | _with("headers", headers)
    query = [{"type": param.type, "name": param.name, "value": param.value} for param in match.query_params]
    path: JSONObject = {"path": {"type": match.path.type, "value": match.path.value}}
    return path | _with("method", match.method) | _with("headers", headers) | _with("queryParams", query)


def _grpc_method(path: PathMatch) -> JSONObject:
    """Return the gRPC method that the agent encoded as ``path``; empty for all methods."""
    if path.type != "RegularExpression":
        service, _, method = path.value.removeprefix("/").partition("/")
        return {"type": "Exact", **_with("service", service) | _with("method", method)} if service else {}
    if path.value.startswith(_ANY_SERVICE) and not path.value.startswith(f"{_ANY_SERVICE}(?:"):
        return {"type": "Exact", "method": _ESCAPED.sub(r"\1", path.value.removeprefix(_ANY_SERVICE))}
    service, method = _halves(path.value.removeprefix("/"))
    return {"type": "RegularExpression", **_with("service", _unwrapped(service)) | _with("method", _unwrapped(method))}


def _halves(text: str) -> tuple[str, str]:
    """Return the two expressions on both sides of the slash between them: each is a group, or any name."""
    any_name = _ANY_SERVICE.strip("/")
    if text.startswith(f"{any_name}/"):
        return any_name, text.removeprefix(f"{any_name}/")
    if text.endswith(f")/{any_name}"):
        return text.removesuffix(f"/{any_name}"), any_name
    service, _, method = text.partition(")/(?:")
    return f"{service})", f"(?:{method}"


def _unwrapped(expression: str) -> str:
    return "" if expression == _ANY_SERVICE.strip("/") else expression.removeprefix("(?:").removesuffix(")")


def _timing(rule: Rule) -> JSONObject:
    """Return timeouts and retries; raises ValueError for a duration that Gateway API cannot express."""
    timeouts = {
        name: gateway_duration(value)
        for name, value in (("request", rule.request_timeout_ms), ("backendRequest", rule.backend_timeout_ms))
        if value is not None
    }
    if rule.retry is None:
        return _with("timeouts", timeouts)
    retry: JSONObject = {"attempts": rule.retry.attempts, **_with("codes", list(rule.retry.codes))}
    backoff = {"backoff": gateway_duration(rule.retry.backoff_ms)} if rule.retry.backoff_ms else {}
    return _with("timeouts", timeouts) | {"retry": retry | backoff}


def _service(key: LoadBalancerKey, backend: str) -> JSONObject:
    return {"name": service_name(key, backend) if backend else UNRESOLVED, "port": SERVICE_PORT}


def _backend(key: LoadBalancerKey, route: Route, ref: BackendRef) -> JSONObject:
    part = {**_service(key, ref.backend), "weight": ref.weight}
    own = list(filters(ref.filters, lambda backend: _service(key, backend)))
    return part | (_with("filters", own) if route.kind in {"HTTP", "GRPC"} else {})


_PATH_FIELDS = {"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"}


def filters(of: Filters, service_ref: Callable[[str], JSONObject]) -> Iterator[JSONObject]:
    """Yield what ``of`` does; ``service_ref`` says how a backend is referred to."""
    if of.request_headers is not None:
        yield {"type": "RequestHeaderModifier", "requestHeaderModifier": _headers(of.request_headers)}
    if of.response_headers is not None:
        yield {"type": "ResponseHeaderModifier", "responseHeaderModifier": _headers(of.response_headers)}
    if of.redirect is not None:
        yield {"type": "RequestRedirect", "requestRedirect": _redirect(of.redirect)}
    if of.rewrite is not None:
        yield {"type": "URLRewrite", "urlRewrite": _with("hostname", of.rewrite.hostname) | _path(of.rewrite.path)}
    for mirror in of.mirrors:
        if mirror.backend:
            part: JSONObject = {"backendRef": service_ref(mirror.backend)}
            if mirror.numerator != mirror.denominator:
                part["fraction"] = {"numerator": mirror.numerator, "denominator": mirror.denominator}
            yield {"type": "RequestMirror", "requestMirror": part}
    if of.cors is not None:
        yield {"type": "CORS", "cors": _cors(of.cors)}


def _headers(of: HeaderModifier) -> JSONObject:
    part = _with("set", [{"name": header.name, "value": header.value} for header in of.set])
    part |= _with("add", [{"name": header.name, "value": header.value} for header in of.add])
    return part | _with("remove", list(of.remove))


def _redirect(of: Redirect) -> JSONObject:
    part: JSONObject = {"statusCode": of.status_code, **_with("scheme", of.scheme), **_with("hostname", of.hostname)}
    return part | _with("port", of.port) | _path(of.path)


def _path(of: PathModifier | None) -> JSONObject:
    return {} if of is None else {"path": {"type": of.type, _PATH_FIELDS[of.type]: of.value}}


def _cors(of: Cors) -> JSONObject:
    lists: JSONObject = {
        name: list(values)
        for name, values in msgspec.to_builtins(of).items()
        if isinstance(values, (list, tuple)) and values
    }
    return lists | {"maxAge": of.max_age} | ({"allowCredentials": True} if of.allow_credentials else {})
