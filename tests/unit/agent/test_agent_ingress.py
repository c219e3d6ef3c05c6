"""An Ingress as routes: hosts, paths, default backend, TLS listeners, and what cannot be served."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from fairlead.agent.identity import certificate_name
from fairlead.agent.sources.http import CertificateState, is_protected
from fairlead.agent.sources.ingress.plan import IngressRoutes, IngressView, translate_ingress
from fairlead.api.kubernetes import IngressObject, Service
from fairlead.api.names import ANNOTATION_BACKEND_TLS
from fairlead.model.http import (
    Attachment,
    BackendTls,
    ExternalAuth,
    L7Config,
    L7Listener,
    PathMatch,
    Route,
    SubjectAltName,
)
from fairlead.providers.envoy.http.route_lookup import ClientRequest, lookup
from fairlead_demo.worlds.certificates import self_signed


def service(name: str = "web", **port: Any) -> Service:
    ports = [{"name": "http", "port": 80, **port}]
    return msgspec.convert({"metadata": {"name": name, "namespace": "shop"}, "spec": {"ports": ports}}, Service)


def backend(name: str = "web", number: int = 80) -> dict[str, Any]:
    return {"service": {"name": name, "port": {"number": number}}}


def translate(
    spec: dict[str, Any],
    *services: Service,
    tls: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **view: Any,
) -> IngressRoutes:
    meta: dict[str, Any] = {"name": "main", "namespace": "shop", "uid": "u", "annotations": annotations or {}}
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    ingress = msgspec.convert({"metadata": meta, "spec": spec}, IngressObject)
    named = {each.metadata.name: each for each in services}
    return translate_ingress(IngressView(ingress, "ingressclass.fairlead", named, tls or {}, **view))


def paths(*entries: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"path": value, "pathType": kind, "backend": backend()} for value, kind in entries]


@pytest.mark.req("GI-2", "GI-3")
def test_path_types() -> None:
    rules = [{"host": "a.example", "http": {"paths": paths(("/x", "Exact"), ("/y/", "Prefix"), ("", "Other"))}}]
    route = translate({"rules": rules}, service()).routes["a.example"]
    assert [rule.matches[0].path for rule in route.rules] == [
        PathMatch("Exact", "/x"),
        PathMatch("PathPrefix", "/y/"),
        PathMatch("PathPrefix", "/"),
    ]
    assert (route.created, route.origin.name) == ("2026-01-01T00:00:00Z", "main")


@pytest.mark.req("GI-2", "GI-3")
@pytest.mark.parametrize(
    ("host", "path", "expected"),
    [
        ("a.example", "/foo", "exact"),
        ("a.example", "/foo/x", "prefix"),
        ("a.example", "/foobar", "root"),
        ("a.example", "/", "root-exact"),
        ("a.example", "/deep/path", "root"),
        ("b.example", "/deep/path", "any-host"),
        ("b.example", "/a.example/foo", ""),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_the_most_specific_path_of_the_most_specific_host_is_served(
    host: str, path: str, expected: str, *, reverse: bool
) -> None:
    """Whichever order the paths have, and whatever another host has: as the reports of other controllers ask for."""
    names = {
        ("/foo", "Exact"): "exact",
        ("/foo", "Prefix"): "prefix",
        ("/", "Exact"): "root-exact",
        ("/", "Prefix"): "root",
    }
    entries = [{"path": value, "pathType": kind, "backend": backend(name)} for (value, kind), name in names.items()]
    any_host = [{"path": "/deep/path", "pathType": "Prefix", "backend": backend("any-host")}]
    rules = [
        {"host": "a.example", "http": {"paths": entries[::-1] if reverse else entries}},
        {"http": {"paths": any_host}},
    ]
    services = [service(name) for name in (*names.values(), "any-host")]
    translated = translate({"rules": rules[::-1] if reverse else rules}, *services)
    routes = tuple(
        Route(name or "any", "HTTP", spec.attachments, spec.rules, spec.created)
        for name, spec in translated.routes.items()
    )
    decision = lookup(L7Config((L7Listener("http", 80),), routes), ClientRequest(host, path))
    served = decision.rule.backends[0].backend if decision.rule is not None else ""
    assert served == (f"shop/{expected}:80" if expected else "")


@pytest.mark.req("GI-4")
def test_a_star_matches_one_label() -> None:
    rules = [{"host": "*.foo.com", "http": {"paths": paths(("/", "Prefix"))}}]
    (attachment,) = translate({"rules": rules}, service()).routes["*.foo.com"].attachments
    assert attachment == Attachment("http", ("*.foo.com",), one_label=True)


@pytest.mark.req("GI-5", "E-15")
def test_the_default_backend_is_behind_the_paths_of_its_hosts_and_serves_every_host() -> None:
    rules = [{"host": "a.example", "http": {"paths": paths(("/x", "Exact"))}}, {"host": "b.example"}]
    routes = translate({"rules": rules, "defaultBackend": backend()}, service()).routes
    assert {host: len(route.rules) for host, route in routes.items()} == {"": 1, "a.example": 2, "b.example": 1}
    assert routes["a.example"].rules[-1].matches == ()


@pytest.mark.req("GI-7")
def test_a_host_with_a_certificate_is_attached_to_its_listener_too() -> None:
    spec = {
        "rules": [{"host": "a.example", "http": {"paths": paths(("/", "Prefix"))}}],
        "tls": [{"hosts": ["a.example", "only.example"], "secretName": "s"}],
        "defaultBackend": backend(),
    }
    tls = {host: f"https/{host}" for host in ("a.example", "only.example", "other.example")}
    routes = translate(spec, service(), tls=tls).routes
    assert [each.listener for each in routes["a.example"].attachments] == ["http", "https/a.example"]
    # The default backend serves the hosts of its own Ingress over HTTPS, and no others. Where the host has rules, it is
    # the last of them: at a listener of that host, a route for every host would be as specific.
    assert [each.listener for each in routes[""].attachments] == ["http", "https/only.example"]
    assert len(routes["a.example"].rules) == 2


@pytest.mark.req("GI-6", "W-14")
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"resource": {"kind": "Bucket", "name": "b"}}, "Bucket b cannot be a backend: name a Service"),
        ({}, "an empty backend cannot be a backend: name a Service"),
        (backend("gone"), "there is no Service gone in namespace shop"),
        (backend(number=81), "Service web has no TCP port 81; it has 80/TCP (http)"),
    ],
)
def test_unserved_rules_are_reported_and_answer_500(wrong: dict[str, Any], sentence: str) -> None:
    entries = [{"path": "/bad", "pathType": "Prefix", "backend": wrong}, *paths(("/", "Prefix"))]
    made = translate({"rules": [{"host": "a.example", "http": {"paths": entries}}]}, service())
    assert made.problems == (sentence,)
    assert [rule.backends[0].backend for rule in made.routes["a.example"].rules] == ["", "shop/web:80"]


@pytest.mark.req("E-17", "GI-6")
@pytest.mark.parametrize("app", ["https", "kubernetes.io/wss"])
def test_a_backend_that_speaks_tls_is_not_spoken_to_in_plain_text(app: str) -> None:
    rules = [{"host": "a.example", "http": {"paths": paths(("/", "Prefix"))}}]
    made = translate({"rules": rules}, service(appProtocol=app))
    assert made.routes["a.example"].rules[0].backends[0].backend == ""
    (problem,) = made.problems
    assert problem.startswith(f"port http of Service web speaks {app}, which an Ingress cannot verify")
    assert "fairlead.dev/backend-tls" in problem


_BUNDLE = self_signed("backends.internal")[0].decode()
_WEB = [{"host": "a.example", "http": {"paths": paths(("/", "Prefix"))}}]


def over_tls(annotation: str, **view: Any) -> IngressRoutes:
    given: dict[str, Any] = {"certificate": CertificateState("digest"), "authorities": _BUNDLE, **view}
    return translate(
        {"rules": _WEB}, service(appProtocol="https"), annotations={ANNOTATION_BACKEND_TLS: annotation}, **given
    )


@pytest.mark.req("F-10")
def test_backends_are_reached_over_tls_with_a_client_certificate_and_names() -> None:
    names = ["spiffe://cluster.local/ns/shop/sa/web", "other.internal"]
    made = over_tls(json.dumps({"hostname": "web.internal", "secret": "client", "subjectAltNames": names}))
    (backend,) = made.routes["a.example"].backends
    assert backend.name == "shop/web:80/tls/main"
    assert backend.tls == BackendTls(
        "web.internal",
        _BUNDLE,
        subject_alt_names=(SubjectAltName("URI", names[0]), SubjectAltName("Hostname", names[1])),
        client_certificate=certificate_name("shop", "client"),
    )
    assert made.problems == ()
    (backend,) = (
        over_tls('{"hostname": "web.internal", "wellKnownCACertificates": "System"}', authorities="")
        .routes["a.example"]
        .backends
    )
    assert backend.tls == BackendTls("web.internal", system_ca=True)


@pytest.mark.req("F-10")
@pytest.mark.parametrize(
    ("annotation", "view", "parts"),
    [
        ("", {}, ["annotation fairlead.dev/backend-tls"]),
        ('{"secret": "client"}', {}, ["hostname"]),
        ('{"hostname": "web.internal"}', {}, ["secret", "wellKnownCACertificates"]),
        ('{"hostname": "web.internal", "secret": "client", "verify": false}', {}, ["verify"]),
        ('{"hostname": "*.internal", "secret": "client"}', {}, ["$.hostname"]),
        (
            '{"hostname": "web.internal", "secret": "client"}',
            {"certificate": CertificateState(problem="does not exist", missing=True)},
            ["Secret shop/client", "does not exist"],
        ),
        # The copy at the hub has the key alone.
        ('{"hostname": "web.internal", "secret": "client"}', {"authorities": ""}, ["Secret shop/client", "ca.crt"]),
        ('{"hostname": "web.internal", "secret": "client"}', {"authorities": "x"}, ["Secret shop/client", "ca.crt"]),
    ],
)
def test_backends_that_cannot_be_verified_are_not_reached(
    annotation: str, view: dict[str, Any], parts: list[str]
) -> None:
    made = over_tls(annotation, **view)
    route = made.routes["a.example"]
    assert route.rules[0].filters.auth == ExternalAuth(), "every request is answered 500"
    assert all(part in made.problems[0] for part in parts)
    assert not any(backend.tls for backend in route.backends)
    # What is published with TLS stays, and what is published in plain text does not.
    published = over_tls('{"hostname": "web.internal", "secret": "client"}').routes["a.example"]
    assert is_protected(published, made.undecided)
    assert not is_protected(translate({"rules": _WEB}, service()).routes["a.example"], made.undecided)


def test_a_host_without_paths_and_default_backend_is_reported() -> None:
    made = translate({"rules": [{"host": "a.example"}]}, service())
    assert (dict(made.routes), made.problems) == (
        {},
        ("host a.example: there is no path and no default backend, so it answers 404",),
    )


@pytest.mark.req("G-79")
@pytest.mark.parametrize(
    ("app", "protocol"), [("kubernetes.io/h2c", "HTTP2"), ("kubernetes.io/ws", "HTTP1"), (None, "HTTP1")]
)
def test_the_protocol_of_a_port_is_that_of_its_backend(app: str | None, protocol: str) -> None:
    rules = [{"host": "a.example", "http": {"paths": paths(("/", "Prefix"))}}]
    (shown,) = translate({"rules": rules}, service(appProtocol=app)).routes["a.example"].backends
    assert (shown.service, shown.port_name, shown.protocol) == ("shop/web", "http", protocol)


@pytest.mark.req("K-37", "K-39")
def test_a_node_port_of_a_service_is_used_as_it_is() -> None:
    rules = [{"host": "a.example", "http": {"paths": paths(("/", "Prefix"))}}]
    (shown,) = translate({"rules": rules}, service(nodePort=30080)).routes["a.example"].backends
    assert (shown.service, shown.node_port) == ("shop/web", 30080)


def one_host(host: str = "a.example") -> dict[str, Any]:
    return {"rules": [{"host": host, "http": {"paths": paths(("/", "Prefix"))}}]}


def both_protocols(*order: str) -> Service:
    numbers = {"UDP": 30001, "TCP": 30002}
    listed = [{"name": each.lower(), "port": 80, "protocol": each, "nodePort": numbers[each]} for each in order]
    return msgspec.convert({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"ports": listed}}, Service)


@pytest.mark.req("EDGE-12")
@pytest.mark.parametrize("order", [("UDP", "TCP"), ("TCP", "UDP")])
def test_a_port_is_that_of_tcp_whatever_the_order(order: tuple[str, str]) -> None:
    (chosen,) = translate(one_host(), both_protocols(*order)).routes["a.example"].backends
    assert (chosen.port_name, chosen.node_port) == ("tcp", 30002)


@pytest.mark.req("EDGE-12")
@pytest.mark.parametrize("port", [{"number": 80}, {"name": "udp"}])
def test_a_port_with_only_udp_is_not_a_backend(port: dict[str, Any]) -> None:
    spec = one_host()
    spec["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"] = port
    translated = translate(spec, both_protocols("UDP"))
    assert not translated.routes["a.example"].backends
    assert "no TCP port" in translated.problems[0]


@pytest.mark.req("EDGE-12")
@pytest.mark.parametrize(
    ("host", "served", "attached"),
    [
        ("foo.example.com", ["*.example.com"], ["https/*.example.com"]),
        ("foo.example.com", ["*.example.com", "foo.example.com"], ["https/foo.example.com"]),
        ("a.foo.example.com", ["*.example.com"], []),
        ("example.com", ["*.example.com"], []),
        ("*.example.com", ["*.example.com"], ["https/*.example.com"]),
        ("*.example.com", ["b.example.com", "a.example.com", "a.b.example.com"],
         ["https/a.example.com", "https/b.example.com"]),
        ("*.foo.example.com", ["*.example.com"], []),
    ],
)  # fmt: skip
def test_a_star_in_tls_covers_the_hosts_below_and_is_covered_by_a_rule(
    host: str, served: list[str], attached: list[str]
) -> None:
    route = translate(one_host(host), service(), tls={each: f"https/{each}" for each in served}).routes[host]
    assert [each.listener for each in route.attachments] == ["http", *attached]
    assert {each.hostnames for each in route.attachments} == {(host,)}


NGINX = "nginx.ingress.kubernetes.io/"
IGNORED = "fairlead.dev/ignored-annotations"


@pytest.mark.req("L7-12")
@pytest.mark.parametrize(
    ("annotations", "named"),
    [
        ({"auth-url": "https://a"}, "auth-url"),
        ({"auth-type": "basic", "auth-secret": "s"}, "auth-secret,auth-type"),
        ({"whitelist-source-range": "10.0.0.0/8"}, "whitelist-source-range"),
        (
            {"ingress.kubernetes.io/whitelist-source-range": "10.0.0.0/8"},
            "ingress.kubernetes.io/whitelist-source-range",
        ),
        ({"haproxy.org/whitelist": "10.0.0.0/8"}, "haproxy.org/whitelist"),
        ({"haproxy-ingress.github.io/auth-secret": "users"}, "haproxy-ingress.github.io/auth-secret"),
        ({"denylist-source-range": "10.0.0.0/8"}, "denylist-source-range"),
        ({"auth-tls-secret": "shop/ca"}, "auth-tls-secret"),
        ({"enable-modsecurity": "true"}, "enable-modsecurity"),
        ({"configuration-snippet": "allow 10.0.0.0/8; deny all;"}, "configuration-snippet"),
        ({"server-snippet": "if ($x) { return 403; }"}, "server-snippet"),
    ],
)
def test_what_keeps_requests_out_is_not_ignored_unless_acknowledged(annotations: dict[str, str], named: str) -> None:
    written = {key if "/" in key else NGINX + key: value for key, value in annotations.items()}
    refused = translate(one_host(), service(), annotations=written)
    assert refused.routes == {}
    assert f"{IGNORED}={named}" in refused.problems[0]
    assert "kubectl annotate ingress main -n shop" in refused.problems[0]
    acknowledged = translate(one_host(), service(), annotations={**written, IGNORED: named.replace(",", " , ")})
    assert acknowledged.routes.keys() == {"a.example"}
    assert acknowledged.problems == ()
    assert named.partition(",")[0] in acknowledged.ignored
    more = {**written, IGNORED: named, f"{NGINX}auth-signin": "https://b"}
    assert translate(one_host(), service(), annotations=more).routes == {}


@pytest.mark.req("L7-12")
@pytest.mark.parametrize(
    ("annotations", "named"),
    [
        ({"rewrite-target": "/"}, "rewrite-target"),
        ({"enable-modsecurity": "false", "enable-global-auth": "false"}, "enable-global-auth, enable-modsecurity"),
        ({"configuration-snippet": "more_set_headers 'X: y';"}, "configuration-snippet"),
        ({"proxy-buffering": "on"}, ""),
    ],
)
def test_other_annotations_of_nginx_are_named_with_the_command(annotations: dict[str, str], named: str) -> None:
    translated = translate(one_host(), service(), annotations={NGINX + key: each for key, each in annotations.items()})
    assert translated.routes.keys() == {"a.example"}
    assert named in translated.ignored
    assert ("fairlead convert" in translated.ignored) == bool(named)


@pytest.mark.req("F-8")
def test_our_list_takes_the_place_of_that_of_another_controller() -> None:
    written = {f"{NGINX}whitelist-source-range": "10.0.0.0/8", "fairlead.dev/allowed-sources": "10.0.0.0/8"}
    routes = translate(one_host(), service(), annotations=written).routes
    assert [rule.allowed_sources for rule in routes["a.example"].rules] == [("10.0.0.0/8",)]
    denied = {f"{NGINX}denylist-source-range": "10.0.0.0/8", "fairlead.dev/allowed-sources": "10.0.0.0/8"}
    assert translate(one_host(), service(), annotations=denied).routes == {}


@pytest.mark.req("F-8")
def test_an_ingress_with_an_invalid_list_keeps_what_is_published() -> None:
    plan = translate(one_host(), service(), annotations={"fairlead.dev/denied-sources": "10.0.0.1/8"})
    assert plan.refused
    assert plan.routes == {}
    assert "fairlead.dev/denied-sources" in plan.problems[0]
