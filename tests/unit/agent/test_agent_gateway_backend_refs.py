"""Which backend a reference means, and why none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.gateway.http_rules import BackendRefs
from fairlead.agent.sources.gateway.plan import BackendPolicy
from fairlead.api.gateway import ReferenceGrant, RouteBackendRef
from fairlead.api.kubernetes import Service
from fairlead.model.http import BackendTls
from tests.unit.agent.gateway_builders import grant, ref, service

H2C = {"name": "h2c", "port": 81, "appProtocol": "kubernetes.io/h2c"}
TLS = BackendTls(server_name="web.example", ca_bundle="pem")
Policies = dict[tuple[str, str, str], BackendPolicy]


def refs(*services: Service, kind: str = "HTTPRoute", policies: Policies | None = None, **more: Any) -> BackendRefs:
    by_name = {(each.metadata.namespace, each.metadata.name): each for each in services}
    more = {"grants": (), **more}
    return BackendRefs(kind=kind, namespace="infra", services=by_name, policies=policies or {}, **more)


def resolve(resolver: BackendRefs, **reference: Any) -> str:
    return resolver.resolve(msgspec.convert(reference, RouteBackendRef))


def reason(resolver: BackendRefs, **reference: Any) -> str:
    assert resolve(resolver, **reference) == ""
    judgement = resolver.judgement()
    assert (judgement.type, judgement.status) == ("ResolvedRefs", "False")
    return judgement.reason


@pytest.mark.req("G-60", "G-79")
def test_a_backend_is_a_port_of_a_service() -> None:
    resolver = refs(service("web", {"name": "http", "port": 80}, H2C))
    assert resolve(resolver, **ref(port=81)) == "infra/web:81"
    assert resolve(resolver, **ref()) == "infra/web:80"
    assert [resolver.backends[name].protocol for name in ("infra/web:80", "infra/web:81")] == ["HTTP1", "HTTP2"]
    assert resolver.backends["infra/web:81"].port_name == "h2c"
    assert resolver.judgement().reason == "ResolvedRefs"


@pytest.mark.req("G-91", "G-99", "G-101")
@pytest.mark.parametrize(
    ("kind", "name", "protocol"),
    [
        ("GRPCRoute", "infra/web:80/http2", "HTTP2"),
        ("TLSRoute", "infra/web:80/tcp", "TCP"),
        ("TCPRoute", "infra/web:80/tcp", "TCP"),
        ("UDPRoute", "infra/web:80/udp", "UDP"),
    ],
)
def test_another_protocol_is_another_backend(kind: str, name: str, protocol: str) -> None:
    ports = ({"name": "http", "port": 80}, {"name": "dns", "port": 80, "protocol": "UDP"})
    resolver = refs(service("web", *ports), kind=kind)
    assert resolve(resolver, **ref()) == name
    assert resolver.backends[name].protocol == protocol
    assert resolver.backends[name].port_name == ("dns" if kind == "UDPRoute" else "http")


@pytest.mark.req("G-21", "G-54")
def test_reasons() -> None:
    assert reason(refs(), **ref(kind="Bucket", group="example.com")) == "InvalidKind"
    assert reason(refs(), **ref("none")) == "BackendNotFound"
    assert reason(refs(service()), **ref(port=81)) == "BackendNotFound"
    assert reason(refs(service()), name="web") == "BackendNotFound"
    assert reason(refs(service(type="ExternalName")), **ref()) == "BackendNotFound"
    udp = service("web", {"name": "dns", "port": 80, "protocol": "UDP"})
    assert reason(refs(udp), **ref()) == "UnsupportedProtocol"
    assert reason(refs(service(), kind="UDPRoute"), **ref()) == "UnsupportedProtocol"
    secure = service("web", {"name": "https", "port": 80, "appProtocol": "https"})
    assert reason(refs(secure), **ref()) == "UnsupportedProtocol"


@pytest.mark.req("G-54", "G-57", "G-101")
def test_another_namespace_needs_a_grant_whether_or_not_the_service_exists() -> None:
    other = service("web", namespace="other")
    assert reason(refs(), **ref(namespace="other")) == "RefNotPermitted"
    assert reason(refs(other, grants=(grant("GRPCRoute"),)), **ref(namespace="other")) == "RefNotPermitted"
    assert reason(refs(other, grants=(grant(name="api"),)), **ref(namespace="other")) == "RefNotPermitted"
    assert reason(refs(grants=(grant(),)), **ref(namespace="other")) == "BackendNotFound"
    assert resolve(refs(other, grants=(grant(name="web"),)), **ref(namespace="other")) == "other/web:80"


def test_each_problem_is_reported_once_and_the_first_gives_the_reason() -> None:
    resolver = refs()
    for name in ("a", "a", "b"):
        resolve(resolver, **ref(name))
    resolve(resolver, **ref(kind="Bucket"))
    judgement = resolver.judgement()
    assert judgement.reason == "BackendNotFound"
    assert judgement.message == (
        "there is no Service a in namespace infra; there is no Service b in namespace infra; "
        "Bucket web cannot be a backend: use Services or ServiceImports"
    )


IMPORT: dict[str, Any] = {"group": "multicluster.x-k8s.io", "kind": "ServiceImport"}


def imported(name: str = "web", namespace: str = "infra", unused: str = "", **spec: Any) -> Service:
    port = {"name": "http", "port": 80}
    meta = {
        "name": f"clusterset-{name}",
        "namespace": namespace,
        "labels": {"fairlead.dev/import": name},
        "annotations": {"fairlead.dev/unused-since": unused},
    }
    return msgspec.convert({"metadata": meta, "spec": {"ports": [port], **spec}}, Service)


@pytest.mark.req("MC-7")
def test_a_service_import_is_the_service_with_its_address() -> None:
    assert resolve(refs(imported()), **ref(**IMPORT)) == "infra/clusterset-web:80"
    assert resolve(refs(imported(), kind="TCPRoute"), **ref(**IMPORT)) == "infra/clusterset-web:80/tcp"


@pytest.mark.req("MC-7")
@pytest.mark.parametrize(
    "present",
    [(), (service(),), (imported(unused="2030-01-01T00:00:00Z"),), (service("clusterset-web"),)],
    ids=["none", "headless or only a Service", "no longer exported", "a Service that was not made for it"],
)
def test_a_service_import_without_an_address_is_not_found(present: tuple[Service, ...]) -> None:
    resolver = refs(*present)
    assert reason(resolver, **ref(**IMPORT)) == "BackendNotFound"
    assert "ServiceImport web" in resolver.judgement().message


@pytest.mark.req("MC-7")
def test_a_service_import_of_another_namespace_needs_a_grant_for_its_kind() -> None:
    there = imported(namespace="other")
    assert reason(refs(there, grants=(grant(),)), **ref(namespace="other", **IMPORT)) == "RefNotPermitted"
    for_import = msgspec.to_builtins(grant())
    for_import["spec"]["to"] = [IMPORT]
    permitted = msgspec.convert(for_import, ReferenceGrant)
    resolver = refs(there, grants=(permitted,))
    assert resolve(resolver, **ref(namespace="other", **IMPORT)) == "other/clusterset-web:80"
    assert reason(refs(service(namespace="other"), grants=(permitted,)), **ref(namespace="other")) == "RefNotPermitted"


@pytest.mark.req("G-86", "G-88")
def test_the_policy_of_a_port_goes_before_that_of_its_service() -> None:
    of_service, of_port = BackendPolicy(TLS), BackendPolicy(BackendTls(server_name="port.example", system_ca=True))
    policies = {("infra", "web", ""): of_service, ("infra", "web", "h2c"): of_port}
    resolver = refs(service("web", {"name": "http", "port": 80}, H2C), policies=policies)
    assert resolve(resolver, **ref()) == "infra/web:80/tls"
    assert resolve(resolver, **ref(port=81)) == "infra/web:81/tls"
    assert resolver.backends["infra/web:80/tls"].tls == TLS
    assert resolver.backends["infra/web:81/tls"].tls == of_port.tls


@pytest.mark.req("G-87")
def test_a_policy_that_cannot_be_fulfilled_leaves_no_backend() -> None:
    resolver = refs(service(), policies={("infra", "web", ""): BackendPolicy(broken="no authority")})
    assert resolve(resolver, **ref()) == ""
    assert resolver.backends == {}
    # The reference itself is right: the policy has the condition.
    assert resolver.judgement().status == "True"


@pytest.mark.req("G-92", "G-97")
def test_policies_play_no_part_where_the_client_speaks_tls_with_the_backend() -> None:
    policies = {("infra", "web", ""): BackendPolicy(TLS)}
    passed = refs(service(), kind="TLSRoute", policies=policies, passthrough=True, terminated=False)
    assert resolve(passed, **ref()) == "infra/web:80/tcp"
    terminated = refs(service(), kind="TLSRoute", policies=policies)
    assert resolve(terminated, **ref()) == "infra/web:80/tcp/tls"
    both = refs(service(), kind="TLSRoute", policies=policies, passthrough=True)
    assert reason(both, **ref()) == "UnsupportedProtocol"
    datagrams = refs(service("web", {"port": 80, "protocol": "UDP"}), kind="UDPRoute", policies=policies)
    assert resolve(datagrams, **ref()) == "infra/web:80/udp"
