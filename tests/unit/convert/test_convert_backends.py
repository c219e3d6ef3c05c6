"""Which backends and policies Ingresses get."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from convert_builders import convert, ingress, of_kind, path, remarks, routes, rules, service

from fairlead.api.kubernetes import Service


@pytest.mark.req("E-35", "GI-4")
def test_a_named_port_needs_its_service() -> None:
    hosts = {"a.example.com": [path(port="http"), path("/b", service="other")]}
    (rule, _) = rules(convert(ingress(hosts=hosts), services=[service("web", http=8080)]))
    assert [each.port for each in rule.backend_refs or ()] == [8080]
    assert "give the Service too" in remarks(convert(ingress(hosts=hosts)))[0]
    assert "has no TCP port http" in remarks(convert(ingress(hosts=hosts), services=[service("web", https=1)]))[0]


def test_other_kinds_than_services_are_omitted() -> None:
    bucket = {"path": "/", "pathType": "Prefix", "backend": {"resource": {"kind": "Bucket", "name": "b"}}}
    conversion = convert(ingress(hosts={"a.example.com": [bucket, {**bucket, "path": "/x", "backend": {}}]}))
    assert [each.partition(";")[0] for each in remarks(conversion)] == [
        "backend: Bucket b is not a Service",
        "backend: an empty backend is not a Service",
    ]
    assert not routes(conversion)


@pytest.mark.parametrize(
    ("annotations", "hostname", "lost", "noted"),
    [
        ({"backend_protocol": "HTTPS"}, "web.default.svc", 1, 0),
        ({"backend_protocol": "HTTPS", "proxy_ssl_verify": "on", "proxy_ssl_name": "in"}, "in", 0, 0),
        ({"backend_protocol": "grpcs", "proxy_ssl_verify": "on"}, "web.default.svc", 0, 1),
        ({"backend_protocol": "GRPC"}, "", 0, 1),
        ({"backend_protocol": "FCGI"}, "", 1, 0),
        ({}, "", 0, 0),
    ],
)
def test_protocols(annotations: dict[str, Any], hostname: str, lost: int, noted: int) -> None:
    conversion = convert(ingress(default="web", **annotations))
    policies = of_kind(conversion, "BackendTLSPolicy")
    assert [each.spec.validation.hostname for each in policies] == ([hostname] if hostname else [])
    assert (len(remarks(conversion)), len(remarks(conversion, lost=False))) == (lost, noted)


def test_an_authority_is_read_from_a_config_map() -> None:
    conversion = convert(ingress(backend_protocol="HTTPS", proxy_ssl_verify="on", proxy_ssl_secret="default/authority"))
    (policy,) = of_kind(conversion, "BackendTLSPolicy")
    (reference,) = policy.spec.validation.ca_certificate_refs
    assert (reference.kind, reference.name) == ("ConfigMap", "authority")
    assert "put ca.crt of Secret default/authority into a ConfigMap" in remarks(conversion, lost=False)[0]


@pytest.mark.req("EDGE-12")
def test_a_named_port_is_one_of_tcp() -> None:
    body = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"ports": [
        {"name": "quic", "port": 443, "protocol": "UDP"}, {"name": "web", "port": 443}]}}  # fmt: skip
    named = msgspec.convert(body, Service)
    made = convert(ingress(hosts={"a.b": [path("/", port="web"), path("/q", port="quic")]}), services=[named])
    assert [ref.port for rule in rules(made) for ref in rule.backend_refs or ()] == [443]
    assert "no TCP port quic" in remarks(made)[0]


def test_an_external_name_is_lost() -> None:
    named = service("web")
    named = msgspec.structs.replace(named, spec=msgspec.structs.replace(named.spec, type="ExternalName"))
    conversion = convert(ingress(), services=[named])
    assert not of_kind(conversion, "HTTPRoute")
    assert "ExternalName" in remarks(conversion)[0]
