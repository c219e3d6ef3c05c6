"""Limits, lists and external services in annotations of a Service, Gateway, IngressClass, Ingress or route."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
import pytest

from fairlead.agent.sources.gateway.listeners import plan_gateway
from fairlead.agent.sources.gateway.plan import find
from fairlead.agent.sources.gateway.routes import plan_route
from fairlead.agent.sources.http import is_protected
from fairlead.agent.sources.ingress.plan import ClassView, IngressView, plan_class, services_of, translate_ingress
from fairlead.api.gateway import ReferenceGrant
from fairlead.api.kubernetes import IngressClass, IngressObject, Service, ServicePort, ServiceSpec
from fairlead.api.meta import KubeObject, ObjectMeta
from fairlead.api.names import (
    ANNOTATION_ACCEPT_PROXY_PROTOCOL,
    ANNOTATION_ALLOWED_SOURCES,
    ANNOTATION_EXTERNAL_AUTH,
    ANNOTATION_EXTERNAL_PROCESSOR,
    ANNOTATION_JWT,
    ANNOTATION_LIMITS,
)
from fairlead.model.http import EVERYONE, BackendTls, ClaimToHeader, ExternalAuth, ExternalProcessor
from fairlead.publish.objects import Refused, ServiceOptions, read_options
from tests.unit.agent.gateway_builders import LOAD_BALANCER, gateway_plan, http_route, listener, ref, service
from tests.unit.agent.gateway_builders import view as route_view
from tests.unit.agent.gateway_objects import gateway, http, reasons, view

Obj = TypeVar("Obj", bound=KubeObject)
LIMITS = '{"requestsPerSecond": 100, "key": "client"}'
WRONG = '{"burst": 1}'


def annotated(obj: Obj, annotations: dict[str, str]) -> Obj:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, annotations=annotations))


@pytest.mark.req("F-18")
def test_a_gateway_has_limits_and_an_invalid_text_keeps_what_is_published() -> None:
    plan = plan_gateway(view(annotated(gateway(http("web")), {ANNOTATION_LIMITS: LIMITS})))
    assert plan.spec is not None
    assert plan.spec.limits == LIMITS
    wrong = plan_gateway(view(annotated(gateway(http("web")), {ANNOTATION_LIMITS: WRONG})))
    accepted = find(wrong.judgements, "Accepted")
    assert wrong.is_refused
    assert accepted is not None
    assert ANNOTATION_LIMITS in accepted.message


@pytest.mark.req("F-18")
def test_a_service_limits_connections() -> None:
    of = Service(metadata=ObjectMeta(name="db", namespace="shop"), spec=ServiceSpec(ports=[ServicePort(53)]))
    options = read_options(annotated(of, {ANNOTATION_LIMITS: '{"connections": 5}'}))
    assert isinstance(options, ServiceOptions)
    assert options.limits == '{"connections": 5}'
    for text in (WRONG, LIMITS):
        refused = read_options(annotated(of, {ANNOTATION_LIMITS: text}))
        assert isinstance(refused, Refused)
        assert ANNOTATION_LIMITS in refused.sentence


def class_view(annotations: dict[str, str], **more: Any) -> ClassView:
    meta = ObjectMeta(name="web", namespace="shop")
    return ClassView(
        annotated(IngressClass(metadata=ObjectMeta(name="fairlead")), annotations),
        (IngressObject(metadata=meta),),
        {},
        **more,
    )


@pytest.mark.req("F-8", "F-18")
def test_a_class_of_ingresses_has_limits_and_lists_and_keeps_the_last_valid_ones() -> None:
    good = {ANNOTATION_LIMITS: LIMITS, ANNOTATION_ALLOWED_SOURCES: "10.0.0.0/8"}
    bad = {ANNOTATION_LIMITS: WRONG, ANNOTATION_ALLOWED_SOURCES: "10.0.0.1/8"}
    spec = plan_class(class_view(good)).spec
    assert spec.limits == LIMITS
    assert {listener.allowed_sources for listener in spec.listeners} == {("10.0.0.0/8",)}
    kept = plan_class(class_view(bad, published=spec))
    assert (kept.spec.limits, kept.spec.listeners) == (spec.limits, spec.listeners)
    (sentences,) = kept.problems.values()
    assert any(ANNOTATION_LIMITS in text for text in sentences)
    assert any(ANNOTATION_ALLOWED_SOURCES in text for text in sentences)
    first = plan_class(class_view(bad)).spec
    assert {listener.denied_sources for listener in first.listeners} == {EVERYONE}, "closed before the first valid list"


# --- external services ------------------------------------------------------------------------------------------------


def asked(name: str = "auth", **more: Any) -> dict[str, Any]:
    http_auth = {"protocol": "HTTP", "http": {"path": "/check", "allowedResponseHeaders": ["x-user"]}}
    return {"type": "ExternalAuth", "externalAuth": {"backendRef": {"name": name, "port": 80}, **http_auth, **more}}


def rule(*filters: dict[str, Any]) -> dict[str, Any]:
    return {"backendRefs": [ref()], "filters": list(filters)}


@pytest.mark.req("F-19")
def test_a_rule_asks_a_service() -> None:
    of = http_route(rule(asked(forwardBody={"maxSize": 100})))
    plan = plan_route(route_view(of, services=(service(), service("auth"))))
    wanted = ExternalAuth("infra/auth:80", path="/check", allowed_response_headers=("x-user",), max_size=100)
    spec = plan.specs[LOAD_BALANCER]
    assert [each.filters.auth for each in spec.rules] == [wanted]
    assert {backend.name for backend in spec.backends} == {"infra/web:80", "infra/auth:80"}
    assert ("infra", "auth") in plan.services
    grpc = http_route(rule(asked(protocol="GRPC", grpc={}, http=None)))
    spec = plan_route(route_view(grpc, services=(service(), service("auth")))).specs[LOAD_BALANCER]
    assert {backend.name: backend.protocol for backend in spec.backends}["infra/auth:80/http2"] == "HTTP2"


@pytest.mark.req("F-19")
@pytest.mark.parametrize(("text", "fails_open"), [("failOpen", True), ("", False), ("failopen", False)])
def test_requests_pass_without_the_service_only_on_demand(text: str, fails_open: bool) -> None:
    of = annotated(http_route(rule(asked())), {ANNOTATION_EXTERNAL_AUTH: text})
    plan = plan_route(route_view(of, services=(service(), service("auth"))))
    (built,) = plan.specs[LOAD_BALANCER].rules
    assert built.filters.auth is not None
    assert built.filters.auth.fail_open is fails_open
    said = plan.parents[0].judgements[0].message
    assert (ANNOTATION_EXTERNAL_AUTH in said) is (text == "failopen")


@pytest.mark.req("F-19")
def test_a_service_that_cannot_be_resolved_closes_the_rule_and_is_reported() -> None:
    unresolved = ExternalAuth("", path="/check", allowed_response_headers=("x-user",))
    missing = plan_route(route_view(http_route(rule(asked("nowhere"))), services=(service(),)))
    assert reasons(missing.parents[0].judgements)["ResolvedRefs"] == "False/BackendNotFound"
    assert reasons(missing.parents[0].judgements)["Accepted"].startswith("True")
    assert [each.filters.auth for each in missing.specs[LOAD_BALANCER].rules] == [unresolved]
    one_of_two = plan_route(route_view(http_route(rule(asked("nowhere")), rule()), services=(service(),)))
    assert reasons(one_of_two.parents[0].judgements)["PartiallyInvalid"].startswith("True")
    elsewhere = asked(backendRef={"name": "auth", "namespace": "other", "port": 80})
    services = (service(), service("auth", namespace="other"))
    forbidden = plan_route(route_view(http_route(rule(elsewhere)), services=services))
    assert reasons(forbidden.parents[0].judgements)["ResolvedRefs"] == "False/RefNotPermitted"
    grant = msgspec.convert(
        {
            "metadata": {"name": "auth", "namespace": "other"},
            "spec": {
                "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "infra"}],
                "to": [{"group": "", "kind": "Service"}],
            },
        },
        ReferenceGrant,
    )
    granted = plan_route(route_view(http_route(rule(elsewhere)), services=services, grants=(grant,)))
    assert reasons(granted.parents[0].judgements)["ResolvedRefs"].startswith("True")


@pytest.mark.req("F-19")
@pytest.mark.parametrize(
    "filters",
    [
        [asked(), asked()],
        [asked(protocol="LDAP")],
        [asked(http={"path": "check"})],
        [asked(http={"allowedResponseHeaders": ["content-length"]})],
        [asked(protocol="GRPC", grpc={"allowedHeaders": ["x"]}, http=None)],
        [asked(forwardBody={"maxSize": 2**31 - 1})],
    ],
)
def test_what_cannot_be_asked_is_refused_and_answers_500(filters: list[dict[str, Any]]) -> None:
    plan = plan_route(route_view(http_route(rule(*filters)), services=(service(), service("auth"))))
    assert [each.backends for each in plan.specs[LOAD_BALANCER].rules] == [()]
    assert reasons(plan.parents[0].judgements)["Accepted"].startswith("False")


PATH = {"path": "/", "backend": {"service": {"name": "web", "port": {"number": 80}}}}


def ingress(annotation: str | None, **more: str) -> IngressObject:
    return msgspec.convert(
        {
            "metadata": {
                "name": "web",
                "namespace": "shop",
                "annotations": more if annotation is None else {ANNOTATION_EXTERNAL_AUTH: annotation, **more},
            },
            "spec": {
                "rules": [
                    {
                        "host": "a.example.com",
                        "http": {
                            "paths": [{"path": "/", "backend": {"service": {"name": "web", "port": {"number": 80}}}}]
                        },
                    }
                ]
            },
        },
        IngressObject,
    )


SERVICES = {
    name: Service(metadata=ObjectMeta(name=name, namespace="shop"), spec=ServiceSpec(ports=[ServicePort(80)]))
    for name in ("web", "auth")
}


@pytest.mark.req("F-19")
def test_an_ingress_asks_a_service() -> None:
    text = '{"service": "auth", "port": 80, "path": "/check", "failOpen": true}'
    nginx = {"nginx.ingress.kubernetes.io/auth-url": "http://auth.shop/check"}
    of = ingress(text, **nginx)
    assert services_of(of) == {"web", "auth"}
    routes = translate_ingress(IngressView(of, "lb", SERVICES)).routes
    (built,) = routes["a.example.com"].rules
    assert built.filters.auth == ExternalAuth("shop/auth:80", path="/check", fail_open=True)
    assert {backend.name for backend in routes["a.example.com"].backends} == {"shop/web:80", "shop/auth:80"}
    missing = translate_ingress(IngressView(of, "lb", {"web": SERVICES["web"]}))
    (closed,) = missing.routes["a.example.com"].rules
    assert closed.filters.auth is not None
    assert closed.filters.auth.backend == ""
    assert any("auth" in problem for problem in missing.problems)


@pytest.mark.req("F-19")
@pytest.mark.parametrize(
    "text", ["", " ", "x", '{"service": "auth"}', '{"service": "auth", "port": 80, "path": "check"}', "{}"]
)
@pytest.mark.parametrize("nginx", [{}, {"nginx.ingress.kubernetes.io/auth-url": "http://auth.shop/check"}])
def test_an_invalid_annotation_closes_what_no_service_protects_yet(text: str, nginx: dict[str, str]) -> None:
    of = ingress(text, **nginx)
    translated = translate_ingress(IngressView(of, "lb", SERVICES))
    assert translated.refused
    assert ANNOTATION_EXTERNAL_AUTH in translated.problems[0]
    closed = translated.routes["a.example.com"]
    assert is_protected(closed, translated.undecided)
    assert {rule.filters.auth for rule in closed.rules} == {ExternalAuth()}


KEYS = '{"keys": [{"kty": "EC", "crv": "P-256", "x": "1", "y": "2"}]}'
REMOTE: dict[str, Any] = {
    "issuer": "https://idp",
    "remoteJWKS": {"uri": "http://idp/keys", "service": "auth", "port": 80},
}
LOCAL = {"issuer": "https://idp", "localJWKS": {"inline": KEYS}}


def asks(*providers: object) -> dict[str, str]:
    return {ANNOTATION_JWT: json.dumps({"providers": providers})}


@pytest.mark.req("F-20")
def test_a_route_and_an_ingress_ask_for_tokens_of_an_issuer() -> None:
    more = {"audiences": ["shop"], "claimToHeaders": [{"claim": "sub", "header": "x-user"}]}
    wanted = asks({**REMOTE, **more}, LOCAL)
    routed = plan_route(route_view(annotated(http_route(rule()), wanted), services=(service(), service("auth"))))
    of = ingress(None, **wanted)
    assert services_of(of) == {"web", "auth"}
    translated = translate_ingress(IngressView(of, "lb", SERVICES))
    assert translated.problems == ()
    for spec in (routed.specs[LOAD_BALANCER], translated.routes["a.example.com"]):
        for built in spec.rules:
            remote, local = built.jwt
            assert remote.audiences == ("shop",)
            assert remote.claim_to_headers == (ClaimToHeader("sub", "x-user"),)
            assert (remote.uri, remote.cache_seconds) == ("http://idp/keys", 300)
            assert remote.backend in {backend.name for backend in spec.backends}
            assert (local.jwks, local.backend) == (KEYS, "")
            assert not built.is_undecided


@pytest.mark.req("F-20")
@pytest.mark.parametrize(
    ("providers", "part"),
    [
        ([], "providers"),
        ([{"issuer": "https://idp"}], "remoteJWKS or localJWKS"),
        ([{**LOCAL, **REMOTE}], "remoteJWKS or localJWKS"),
        ([{**LOCAL, "isuer": "x"}], "isuer"),
        ([{**LOCAL, "issuer": ""}], "issuer"),
        ([{**LOCAL, "localJWKS": {"inline": "{}"}}], "keys"),
        ([{**LOCAL, "localJWKS": {"inline": '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}'}}], "secret"),
        ([{**LOCAL, "localJWKS": {"inline": '{"keys": [{"kty": "RSA", "d": "x"}]}'}}], "private"),
        ([{**LOCAL, "claimToHeaders": [{"claim": "sub", "header": "Content-Length"}]}], "Content-Length"),
        ([{**LOCAL, "claimToHeaders": [{"claim": "https://x/y", "header": "x-y"}]}], "https://x/y"),
        ([{**LOCAL, "requiredClaims": [{"name": "role", "values": []}]}], "values"),
        ([{**REMOTE, "remoteJWKS": {**REMOTE["remoteJWKS"], "uri": "http://127.0.0.1/keys"}}], "127.0.0.1"),
        ([{**REMOTE, "remoteJWKS": {**REMOTE["remoteJWKS"], "uri": "http://u:p@idp/keys"}}], "u:p@idp"),
        ([{**REMOTE, "remoteJWKS": {**REMOTE["remoteJWKS"], "cacheDuration": "0s"}}], "cacheSeconds"),
    ],
)
def test_invalid_tokens_close_what_asked_for_none(providers: list[Any], part: str) -> None:
    translated = translate_ingress(IngressView(ingress(None, **asks(*providers)), "lb", SERVICES))
    assert translated.refused
    assert all(built.is_undecided for route in translated.routes.values() for built in route.rules)
    assert ANNOTATION_JWT in translated.problems[0]
    assert part in translated.problems[0]
    plan = plan_route(route_view(annotated(http_route(rule()), asks(*providers)), services=(service(),)))
    assert plan.is_refused
    assert plan.undecided
    assert not any(built.backends for built in plan.specs[LOAD_BALANCER].rules), "all requests are answered 500"
    assert part in plan.parents[0].judgements[0].message


@pytest.mark.req("F-20")
def test_keys_over_tls_are_verified_by_the_host_of_their_uri() -> None:
    wanted = asks({**REMOTE, "remoteJWKS": {**REMOTE["remoteJWKS"], "uri": "https://login.example.com/keys"}})
    routed = plan_route(route_view(annotated(http_route(rule()), wanted), services=(service(), service("auth"))))
    translated = translate_ingress(IngressView(ingress(None, **wanted), "lb", SERVICES))
    assert translated.problems == ()
    for spec in (routed.specs[LOAD_BALANCER], translated.routes["a.example.com"]):
        tls = {backend.name: backend.tls for backend in spec.backends}
        for built in spec.rules:
            assert tls[built.jwt[0].backend] == BackendTls("login.example.com", system_ca=True)
            assert [tls[named.backend] for named in built.backends] == [None]


@pytest.mark.req("F-20")
@pytest.mark.parametrize("uri", ["http://idp/keys", "https://192.0.2.1/keys"])
def test_keys_that_cannot_be_read_safely_close_the_rules(uri: str) -> None:
    """The Service does not exist, or no name verifies its certificate."""
    services = (service(), service("auth")) if uri.startswith("https") else (service(),)
    wanted = asks({**REMOTE, "remoteJWKS": {**REMOTE["remoteJWKS"], "uri": uri}})
    plan = plan_route(route_view(annotated(http_route(rule()), wanted), services=services))
    assert all(built.is_undecided for built in plan.specs[LOAD_BALANCER].rules)
    assert reasons(plan.parents[0].judgements)["ResolvedRefs"].startswith("False")
    known = {
        each.metadata.name: each for each in SERVICES.values() if uri.startswith("https") or each.metadata.name == "web"
    }
    translated = translate_ingress(IngressView(ingress(None, **wanted), "lb", known))
    assert all(built.is_undecided for built in translated.routes["a.example.com"].rules)
    assert translated.problems


def inspects(**fields: object) -> dict[str, str]:
    return {ANNOTATION_EXTERNAL_PROCESSOR: json.dumps({"service": "auth", "port": 80, **fields})}


@pytest.mark.req("F-21")
def test_a_route_and_an_ingress_have_a_processor() -> None:
    wanted = inspects(maxSize=65536, timeout="1s", failureMode="open")
    routed = plan_route(route_view(annotated(http_route(rule()), wanted), services=(service(), service("auth"))))
    assert ("infra", "auth") in routed.services
    of = ingress(None, **wanted, **{"nginx.ingress.kubernetes.io/enable-modsecurity": "true"})
    assert services_of(of) == {"web", "auth"}
    translated = translate_ingress(IngressView(of, "lb", SERVICES))
    for spec in (routed.specs[LOAD_BALANCER], translated.routes["a.example.com"]):
        for built in spec.rules:
            assert built.processor is not None
            assert built.processor == ExternalProcessor(built.processor.backend, 65536, 1000, fail_open=True)
            protocols = {backend.name: backend.protocol for backend in spec.backends}
            assert protocols[built.processor.backend] == "HTTP2"
    defaults = plan_route(route_view(annotated(http_route(rule()), inspects()), services=(service(),)))
    (closed,) = defaults.specs[LOAD_BALANCER].rules
    assert closed.processor == ExternalProcessor()
    assert closed.processor.timeout_ms == 50
    assert reasons(defaults.parents[0].judgements)["ResolvedRefs"] == "False/BackendNotFound"
    assert translate_ingress(IngressView(of, "lb", {"web": SERVICES["web"]})).problems


@pytest.mark.req("F-21")
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        ("on", "JSON"),
        ('{"service": "auth"}', "port"),
        (inspects(maxSize=1)[ANNOTATION_EXTERNAL_PROCESSOR], "32768"),
        (inspects(timeout="0s")[ANNOTATION_EXTERNAL_PROCESSOR], "timeout"),
        (inspects(timeout="11s")[ANNOTATION_EXTERNAL_PROCESSOR], "timeout"),
        (inspects(timeout="50")[ANNOTATION_EXTERNAL_PROCESSOR], "duration"),
        (inspects(failureMode="ignore")[ANNOTATION_EXTERNAL_PROCESSOR], "failureMode"),
        (inspects(failOpen=True)[ANNOTATION_EXTERNAL_PROCESSOR], "failOpen"),
    ],
)
def test_an_invalid_processor_closes_what_had_none(text: str, part: str) -> None:
    of = {ANNOTATION_EXTERNAL_PROCESSOR: text}
    translated = translate_ingress(IngressView(ingress(None, **of), "lb", SERVICES))
    assert translated.undecided == {ANNOTATION_EXTERNAL_PROCESSOR}
    assert all(built.is_undecided for route in translated.routes.values() for built in route.rules)
    plan = plan_route(route_view(annotated(http_route(rule()), of), services=(service(),)))
    assert plan.undecided == {ANNOTATION_EXTERNAL_PROCESSOR}
    assert not any(built.backends for built in plan.specs[LOAD_BALANCER].rules), "all requests are answered 500"
    for problem in (translated.problems[0], plan.parents[0].judgements[0].message):
        assert ANNOTATION_EXTERNAL_PROCESSOR in problem
        assert part in problem
    assert plan_gateway(view(annotated(gateway(http("web")), of))).is_refused


@pytest.mark.req("F-21")
def test_an_ingress_names_no_processor_of_another_namespace() -> None:
    translated = translate_ingress(IngressView(ingress(None, **inspects(namespace="other")), "lb", SERVICES))
    assert translated.undecided == {ANNOTATION_EXTERNAL_PROCESSOR}


@pytest.mark.req("F-21")
@pytest.mark.parametrize(
    ("of_gateway", "of_route", "backend"),
    [
        ({}, None, "waf/auth:80"),
        ({}, "off", "waf/auth:80"),
        ({}, inspects()[ANNOTATION_EXTERNAL_PROCESSOR], "waf/auth:80"),
        ({"allowOff": True}, None, "waf/auth:80"),
        ({"allowOff": True}, "off", None),
        ({"allowOff": True}, inspects()[ANNOTATION_EXTERNAL_PROCESSOR], "infra/auth:80"),
    ],
)
def test_only_a_gateway_that_allows_it_leaves_the_choice_to_routes(
    of_gateway: dict[str, Any], of_route: str | None, backend: str | None
) -> None:
    asked = plan_gateway(view(annotated(gateway(http("web")), inspects(namespace="waf", **of_gateway)))).processor
    parent = msgspec.structs.replace(gateway_plan(listener()), processor=asked)
    route = annotated(http_route(rule()), {} if of_route is None else {ANNOTATION_EXTERNAL_PROCESSOR: of_route})
    services = (service(), service("auth"), service("auth", namespace="waf"))
    grant = msgspec.convert(
        {
            "metadata": {"name": "waf", "namespace": "waf"},
            "spec": {
                "from": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra"}],
                "to": [{"group": "", "kind": "Service"}],
            },
        },
        ReferenceGrant,
    )
    plan = plan_route(route_view(route, parent, services=services, grants=(grant,)))
    (built,) = plan.specs[LOAD_BALANCER].rules
    assert (built.processor.backend if built.processor is not None else None) == (
        None if backend is None else f"{backend}/http2"
    )
    accepted = plan.parents[0].judgements[0]
    ignored = of_route is not None and not of_gateway
    assert (ANNOTATION_EXTERNAL_PROCESSOR in accepted.message) is ignored
    resolved = reasons(plan_route(route_view(route, parent, services=services)).parents[0].judgements)["ResolvedRefs"]
    assert resolved.startswith("False" if backend == "waf/auth:80" else "True"), "the grant is for the Gateway"


@pytest.mark.req("F-6")
def test_headers_of_the_proxy_protocol_are_accepted_as_annotated() -> None:
    good, unsafe = {ANNOTATION_ACCEPT_PROXY_PROTOCOL: "required"}, {ANNOTATION_ACCEPT_PROXY_PROTOCOL: "optional"}
    plan = plan_gateway(view(annotated(gateway(http("web")), good)))
    assert plan.spec is not None
    assert plan.spec.accept_proxy_protocol == "required"
    assert plan_gateway(view(annotated(gateway(http("web")), unsafe))).is_refused
    of_class = plan_class(class_view(good)).spec
    assert of_class.accept_proxy_protocol == "required"
    assert plan_class(class_view(unsafe, published=of_class)).spec == of_class
    of = Service(metadata=ObjectMeta(name="db", namespace="shop"), spec=ServiceSpec(ports=[ServicePort(53)]))
    options, refused = read_options(annotated(of, good)), read_options(annotated(of, unsafe))
    assert isinstance(options, ServiceOptions)
    assert options.accept_proxy_protocol == "required"
    assert isinstance(refused, Refused)
    assert "trustedSources" in refused.sentence


@pytest.mark.req("F-21")
@pytest.mark.parametrize(
    ("of_class", "own", "backend"),
    [
        ({}, None, "waf/auth:80"),
        ({}, "off", "waf/auth:80"),
        ({}, "wrong", "waf/auth:80"),
        ({}, inspects()[ANNOTATION_EXTERNAL_PROCESSOR], "waf/auth:80"),
        ({"allowOff": True}, None, "waf/auth:80"),
        ({"allowOff": True}, "off", None),
        ({"allowOff": True}, inspects()[ANNOTATION_EXTERNAL_PROCESSOR], "shop/auth:80"),
    ],
)
def test_only_a_class_that_allows_it_leaves_the_choice_to_ingresses(
    of_class: dict[str, Any], own: str | None, backend: str | None
) -> None:
    processing = plan_class(class_view(inspects(namespace="waf", **of_class))).processing
    of = ingress(None, **({} if own is None else {ANNOTATION_EXTERNAL_PROCESSOR: own}))
    view = IngressView(of, "lb", SERVICES, of_class=processing, inspecting=(service("auth", namespace="waf"), ""))
    translated = translate_ingress(view)
    (built,) = translated.routes["a.example.com"].rules
    processor = built.processor.backend if built.processor is not None else None
    assert processor == (None if backend is None else f"{backend}/http2")
    assert bool(built.processor) is (processor in {each.name for each in translated.routes["a.example.com"].backends})
    ignored = own is not None and not of_class
    assert any(ANNOTATION_EXTERNAL_PROCESSOR in text for text in translated.problems) is ignored
    gone = translate_ingress(msgspec.structs.replace(view, inspecting=(None, "there is no Service auth")))
    if backend == "waf/auth:80":
        assert gone.problems
        assert gone.routes["a.example.com"].rules[0].processor == ExternalProcessor(), "all requests are answered 500"


@pytest.mark.req("F-21")
@pytest.mark.parametrize(("text", "part"), [("on", "JSON"), (inspects()[ANNOTATION_EXTERNAL_PROCESSOR], "namespace")])
def test_an_invalid_processor_of_a_class_closes_its_ingresses(text: str, part: str) -> None:
    processing = plan_class(class_view({ANNOTATION_EXTERNAL_PROCESSOR: text})).processing
    translated = translate_ingress(IngressView(ingress(None), "lb", SERVICES, of_class=processing))
    assert translated.undecided == {ANNOTATION_EXTERNAL_PROCESSOR}
    assert all(built.is_undecided for built in translated.routes["a.example.com"].rules)
    assert "IngressClass fairlead" in translated.problems[0]
    assert part in translated.problems[0]
