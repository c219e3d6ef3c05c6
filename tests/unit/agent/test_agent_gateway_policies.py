"""BackendTLSPolicies: which one counts for a port, how backends are verified, and what is wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.gateway.plan import BackendPolicy
from fairlead.agent.sources.gateway.policies import PolicyPlan, PolicyView, config_maps_named, plan_policies, targets_of
from fairlead.api.gateway import BackendTLSPolicy
from fairlead.api.kubernetes import Service
from fairlead.api.meta import ObjectKey
from fairlead.model.http import MAX_BUNDLE, BackendTls, SubjectAltName
from tests.unit.agent.gateway_builders import service

CA = {"group": "", "kind": "ConfigMap", "name": "ca"}
PEM = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"


def policy(
    name: str = "p",
    *,
    created: str = "2026-01-01T00:00:00Z",
    targets: list[dict[str, Any]] | None = None,
    **validation: Any,
) -> BackendTLSPolicy:
    refs = [{"group": "", "kind": "Service", **each} for each in targets or [{"name": "web"}]]
    checks = {"hostname": "web.example", **(validation or {"caCertificateRefs": [CA]})}
    meta = {"name": name, "namespace": "infra", "creationTimestamp": created}
    return msgspec.convert({"metadata": meta, "spec": {"targetRefs": refs, "validation": checks}}, BackendTLSPolicy)


def planned(
    *policies: BackendTLSPolicy, services: tuple[Service, ...] = (service(),), bundles: dict[str, str] | None = None
) -> PolicyPlan:
    texts = {("infra", name): text for name, text in ({"ca": PEM} if bundles is None else bundles).items()}
    named = {(each.metadata.namespace, each.metadata.name): each for each in services}
    return plan_policies(PolicyView(policies, named, texts))


def reasons(plan: PolicyPlan, name: str = "p") -> list[tuple[str, str]]:
    return [(each.status, each.reason) for each in plan.judgements[ObjectKey("infra", name)]]


GOOD = [("True", "Accepted"), ("True", "ResolvedRefs")]


@pytest.mark.req("G-86")
def test_authorities_of_a_config_map() -> None:
    plan = planned(policy())
    assert plan.backends == {
        ("infra", "web", ""): BackendPolicy(BackendTls(server_name="web.example", ca_bundle=PEM.rstrip()))
    }
    assert reasons(plan) == GOOD


@pytest.mark.req("G-86")
def test_authorities_of_the_system() -> None:
    plan = planned(policy(wellKnownCACertificates="System"))
    tls = plan.backends["infra", "web", ""].tls
    assert tls == BackendTls(server_name="web.example", system_ca=True)
    assert reasons(plan) == GOOD


@pytest.mark.req("G-90")
def test_alternative_names() -> None:
    names = [{"type": "Hostname", "hostname": "a.com"}, {"type": "URI", "uri": "spiffe://a"}]
    tls = planned(policy(wellKnownCACertificates="System", subjectAltNames=names)).backends["infra", "web", ""].tls
    assert tls is not None
    assert tls.subject_alt_names == (SubjectAltName("Hostname", "a.com"), SubjectAltName("URI", "spiffe://a"))


@pytest.mark.req("G-87")
@pytest.mark.parametrize(
    ("refs", "bundles", "reason"),
    [
        ([CA], {}, "InvalidCACertificateRef"),
        ([CA], {"ca": ""}, "InvalidCACertificateRef"),
        ([CA], {"ca": "x" * (MAX_BUNDLE + 1)}, "InvalidCACertificateRef"),
        ([{**CA, "kind": "Secret"}], {"ca": PEM}, "InvalidKind"),
    ],
)
def test_without_authorities_the_backend_is_not_reached(
    refs: list[dict[str, str]], bundles: dict[str, str], reason: str
) -> None:
    plan = planned(policy(caCertificateRefs=refs), bundles=bundles)
    counts = plan.backends["infra", "web", ""]
    assert counts.tls is None
    assert counts.broken
    assert reasons(plan) == [("False", "NoValidCACertificate"), ("False", reason)]


def test_readable_authorities_of_several_are_used() -> None:
    plan = planned(policy(caCertificateRefs=[CA, {**CA, "name": "none"}]))
    tls = plan.backends["infra", "web", ""].tls
    assert tls is not None
    assert tls.ca_bundle == PEM.rstrip()
    assert reasons(plan) == [("True", "Accepted"), ("False", "InvalidCACertificateRef")]
    both = planned(policy(caCertificateRefs=[CA, {**CA, "name": "b"}]), bundles={"ca": "A\n", "b": "B"})
    assert both.backends["infra", "web", ""].tls == BackendTls(server_name="web.example", ca_bundle="A\nB")


@pytest.mark.parametrize(
    ("validation", "sentence"),
    [
        ({"wellKnownCACertificates": "Later"}, "wellKnownCACertificates Later is not supported"),
        ({"caCertificateRefs": []}, "neither caCertificateRefs nor wellKnownCACertificates is there"),
        (
            {"wellKnownCACertificates": "System", "subjectAltNames": [{"type": "Later"}]},
            "type Later is not supported; use Hostname or URI",
        ),
    ],
)
def test_unsupported_tls_never_becomes_plain_text(validation: dict[str, Any], sentence: str) -> None:
    counts = planned(policy(**validation)).backends["infra", "web", ""]
    assert counts.tls is None
    assert sentence in counts.broken


@pytest.mark.req("G-88")
def test_the_oldest_counts_then_the_first_by_name() -> None:
    younger = policy("a", created="2026-01-02T00:00:00Z", wellKnownCACertificates="System")
    plan = planned(policy("c"), policy("b"), younger)
    assert [reasons(plan, name)[0] for name in ("a", "b", "c")] == [
        ("False", "Conflicted"),
        ("True", "Accepted"),
        ("False", "Conflicted"),
    ]
    tls = plan.backends["infra", "web", ""].tls
    assert tls is not None
    assert not tls.system_ca
    conflicted = plan.judgements[ObjectKey("infra", "c")][0]
    assert conflicted.message == "BackendTLSPolicy infra/b counts for Service web: it is older"


@pytest.mark.req("G-88")
def test_a_policy_of_a_port_and_one_of_its_service() -> None:
    of_port = policy("port", targets=[{"name": "web", "sectionName": "http"}])
    plan = planned(policy(), of_port)
    assert set(plan.backends) == {("infra", "web", ""), ("infra", "web", "http")}
    assert reasons(plan) == reasons(plan, "port") == GOOD
    assert reasons(planned(of_port, policy("z", targets=[{"name": "web", "sectionName": "http"}])), "z")[0] == (
        "False",
        "Conflicted",
    )


def test_a_policy_that_has_one_target_left_is_accepted() -> None:
    two = policy("two", created="2026-02-01T00:00:00Z", targets=[{"name": "web"}, {"name": "api"}])
    plan = planned(policy(), two, services=(service(), service("api")))
    assert reasons(plan, "two") == GOOD


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        ([{"name": "none"}], "there is no Service none in namespace infra"),
        ([{"name": "web", "sectionName": "grpc"}], "Service infra/web has no port of name grpc; it has 80/TCP (http)"),
        ([{"name": "web", "kind": "Pod"}], "Pod web cannot be a target: use Services"),
    ],
)
def test_targets_that_are_not_there(targets: list[dict[str, Any]], sentence: str) -> None:
    plan = planned(policy(targets=targets))
    assert reasons(plan)[0] == ("False", "TargetNotFound")
    assert plan.judgements[ObjectKey("infra", "p")][0].message == sentence


def test_what_a_policy_names() -> None:
    targets = [{"name": "web"}, {"name": "web", "sectionName": "http"}, {"name": "x", "kind": "Pod"}, {"name": "web"}]
    named = policy(targets=targets, caCertificateRefs=[CA, CA, {**CA, "kind": "Secret"}])
    assert targets_of(named) == [("infra", "web", ""), ("infra", "web", "http")]
    assert config_maps_named(named) == [("infra", "ca")]
