"""An IngressClass as a load balancer: which class counts, and whose certificate serves a host."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.http import CertificateState
from fairlead.agent.sources.ingress.plan import MOST_TLS_HOSTS, ClassPlan, ClassView, class_of, plan_class
from fairlead.api.kubernetes import ANNOTATION_DEFAULT_CLASS, ANNOTATION_LEGACY_CLASS, IngressClass, IngressObject
from fairlead.api.meta import ObjectKey
from fairlead.api.names import INGRESS_CONTROLLER


def ingress_class(name: str = "fairlead", *, ours: bool = True, default: bool = False, made: str = "") -> IngressClass:
    meta = {
        "name": name,
        "annotations": {ANNOTATION_DEFAULT_CLASS: "true"} if default else {},
        "creationTimestamp": made,
    }
    spec = {"controller": INGRESS_CONTROLLER if ours else "example.com/other"}
    return msgspec.convert({"metadata": meta, "spec": spec}, IngressClass)


def ingress(
    name: str = "main", *, made: str = "2026-01-01T00:00:00Z", space: str = "shop", **spec: Any
) -> IngressObject:
    annotations = spec.pop("annotations", {})
    meta = {"name": name, "namespace": space, "creationTimestamp": made, "annotations": annotations}
    return msgspec.convert({"metadata": meta, "spec": spec}, IngressObject)


def tls(host: str, secret: str = "cert") -> list[dict[str, Any]]:
    return [{"hosts": [host], "secretName": secret}]


def plan(*ingresses: IngressObject, **states: CertificateState) -> ClassPlan:
    certificates = {("shop", name): state for name, state in states.items()}
    return plan_class(ClassView(ingress_class(), ingresses, certificates))


@pytest.mark.req("GI-1")
@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        (ingress(ingressClassName="fairlead"), "fairlead"),
        (ingress(ingressClassName="other"), None),
        (ingress(ingressClassName="unknown"), None),
        (ingress(annotations={ANNOTATION_LEGACY_CLASS: "fairlead"}), "fairlead"),
        (ingress(ingressClassName="other", annotations={ANNOTATION_LEGACY_CLASS: "fairlead"}), None),
        (ingress(), "newest"),
    ],
)
def test_which_class_an_ingress_is_of(asks: IngressObject, expected: str | None) -> None:
    classes = [
        ingress_class(),
        ingress_class("other", ours=False, default=True, made="2025-01-01T00:00:00Z"),
        ingress_class("newest", default=True, made="2026-01-01T00:00:00Z"),
    ]
    shown = class_of(asks, classes)
    assert (shown.metadata.name if shown else None) == expected


@pytest.mark.req("GI-1")
def test_the_newest_default_class_may_be_foreign() -> None:
    classes = [ingress_class(default=True, made="1"), ingress_class("other", ours=False, default=True, made="2")]
    assert class_of(ingress(), classes) is None
    assert class_of(ingress(), []) is None


@pytest.mark.req("GI-7")
def test_each_tls_host_has_a_listener_with_its_certificate() -> None:
    made = plan(ingress(tls=tls("a.example")), cert=CertificateState("d1"))
    assert [(each.name, each.port, each.hostname, each.certificates) for each in made.spec.listeners] == [
        ("http", 80, "", ()),
        ("https/a.example", 443, "a.example", ("tls.shop.cert",)),
    ]
    assert [(each.name, each.digest) for each in made.spec.certificates] == [("tls.shop.cert", "d1")]
    assert made.problems == {}


@pytest.mark.req("GI-9")
def test_the_certificate_of_the_oldest_ingress_counts() -> None:
    younger = ingress("younger", made="2026-02-01T00:00:00Z", tls=tls("a.example", "second"))
    older = ingress("older", tls=tls("a.example", "first"))
    made = plan(younger, older, first=CertificateState("d1"), second=CertificateState("d2"))
    assert [each.certificates for each in made.spec.listeners if each.hostname] == [("tls.shop.first",)]
    assert "older Ingress" in made.problems[ObjectKey("shop", "younger")][0]
    # The same certificate on both is not a conflict.
    same = ingress("younger", made="2026-02-01T00:00:00Z", tls=tls("a.example", "first"))
    assert plan(same, older, first=CertificateState("d1")).problems == {}


@pytest.mark.req("G-43")
@pytest.mark.parametrize(
    ("state", "serves", "sentence"),
    [
        (CertificateState("", "it is not there"), False, "a.example gets the fallback certificate"),
        (CertificateState("d0", "tls.crt has no certificate in PEM"), True, "the previous version is still served"),
    ],
)
def test_a_certificate_that_is_missing_or_broken(state: CertificateState, serves: bool, sentence: str) -> None:
    made = plan(ingress(tls=tls("a.example")), cert=state)
    assert ("a.example" in made.tls_listeners) is serves
    assert sentence in made.problems[ObjectKey("shop", "main")][0]


def test_tls_without_hosts_uses_those_of_the_rules() -> None:
    rules = [{"host": "a.example"}, {"host": "b.example"}]
    made = plan(ingress(rules=rules, tls=[{"secretName": "cert"}]), cert=CertificateState("d1"))
    assert set(made.tls_listeners) == {"a.example", "b.example"}
    assert "secretName" in plan(ingress(tls=[{"hosts": ["a.example"]}])).problems[ObjectKey("shop", "main")][0]
    assert "no host" in plan(ingress(tls=[{"secretName": "cert"}])).problems[ObjectKey("shop", "main")][0]


@pytest.mark.req("GI-9")
def test_other_names_and_hosts_without_a_secret_get_the_fallback_certificate() -> None:
    ingresses = (ingress(tls=tls("a.example")), ingress("broken", tls=tls("b.example", "missing")))
    view = ClassView(ingress_class(), ingresses, {("shop", "cert"): CertificateState("d1")}, fallback="f1")
    made = plan_class(view)
    assert made.has_tls
    assert [(each.name, each.hostname, each.certificates) for each in made.spec.listeners if each.port == 443] == [
        ("https", "", ("fallback.fairlead",)),
        ("https/a.example", "a.example", ("tls.shop.cert",)),
    ]
    assert made.tls_listeners == {"a.example": "https/a.example", "b.example": "https"}
    assert ("fallback.fairlead", "f1") in [(each.name, each.digest) for each in made.spec.certificates]
    # Without TLS no port is opened for it.
    plain = plan_class(ClassView(ingress_class(), (ingress(),), {}, fallback="f1"))
    assert not plain.has_tls
    assert [each.port for each in plain.spec.listeners] == [80]


@pytest.mark.req("GI-7", "GI-9")
def test_a_younger_ingress_with_a_certificate_serves_the_host() -> None:
    younger = ingress("younger", made="2026-02-01T00:00:00Z", tls=tls("a.example", "good"))
    older = ingress("older", tls=tls("a.example", "missing"))
    view = ClassView(ingress_class(), (younger, older), {("shop", "good"): CertificateState("d1")}, fallback="f1")
    assert plan_class(view).tls_listeners == {"a.example": "https/a.example"}


@pytest.mark.req("GI-7")
def test_above_the_most_listeners_only_the_hosts_of_the_youngest_are_left_out() -> None:
    hosts = [f"h{number}.example" for number in range(MOST_TLS_HOSTS)]
    older = ingress("older", tls=[{"hosts": hosts, "secretName": "cert"}])
    younger = ingress("younger", made="2026-02-01T00:00:00Z", tls=tls("late.example"))
    view = ClassView(ingress_class(), (younger, older), {("shop", "cert"): CertificateState("d1")}, fallback="f1")
    made = plan_class(view)
    assert len(made.spec.listeners) == 1024
    assert set(made.tls_listeners) == set(hosts)
    assert "late.example is not served over HTTPS" in made.problems[ObjectKey("shop", "younger")][0]
    assert "another IngressClass" in made.problems[ObjectKey("shop", "younger")][0]
    assert ObjectKey("shop", "older") not in made.problems


@pytest.mark.req("K-60")
def test_a_class_for_internal_networks_has_a_load_balancer_of_its_own() -> None:
    """The parameters of the IngressClass name a LoadBalancerClass with provider and addresses of that network."""
    named = {"apiGroup": "fairlead.dev", "kind": "LoadBalancerClass", "name": "internal"}
    body = {"metadata": {"name": "inside"}, "spec": {"controller": INGRESS_CONTROLLER, "parameters": named}}
    inside = msgspec.convert(body, IngressClass)
    classes = [inside, ingress_class()]
    asks = ingress(ingressClassName="inside")
    assert class_of(asks, classes) is inside
    internal = plan_class(ClassView(inside, (asks,), {})).spec
    public = plan().spec
    assert (internal.class_name, internal.origin.name) == ("internal", "inside")
    assert (public.class_name, public.origin.name) == ("envoy", "fairlead")
