"""One listener of a Gateway: its kinds, certificates, authorities, namespaces, and the limits of a load balancer."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.agent.sources.gateway import listeners as listener_plans
from fairlead.agent.sources.gateway.listeners import plan_gateway
from fairlead.agent.sources.gateway.plan import ListenerPlan
from fairlead.agent.sources.http import CertificateState
from fairlead.api.gateway import Gateway
from fairlead.model.http import MAX_BUNDLE
from tests.unit.agent.gateway_objects import (
    CA,
    certificate,
    gateway,
    grant,
    http,
    https,
    kinds,
    listener_set,
    reasons,
    served,
    view,
)


def planned(listener: dict[str, Any], **fields: Any) -> ListenerPlan:
    return plan_gateway(view(gateway(listener), **fields)).listeners[0]


@pytest.mark.req("G-24", "G-38", "G-95")
@pytest.mark.parametrize(
    ("protocol", "mode", "asked", "shown", "resolved"),
    [
        ("HTTP", "", None, ["HTTPRoute", "GRPCRoute"], "True/ResolvedRefs"),
        ("HTTP", "", [{"kind": "GRPCRoute"}], ["GRPCRoute"], "True/ResolvedRefs"),
        ("HTTP", "", [{"kind": "InvalidRoute"}], [], "False/InvalidRouteKinds"),
        ("HTTP", "", [{"kind": "InvalidRoute"}, {"kind": "HTTPRoute"}], ["HTTPRoute"], "False/InvalidRouteKinds"),
        ("HTTP", "", [{"kind": "HTTPRoute", "group": "example.com"}], [], "False/InvalidRouteKinds"),
        ("TLS", "Passthrough", [{"kind": "TCPRoute"}, {"kind": "TLSRoute"}], ["TLSRoute"], "False/InvalidRouteKinds"),
        ("TLS", "Passthrough", [{"kind": "HTTPRoute"}], [], "False/InvalidRouteKinds"),
        ("TCP", "", None, ["TCPRoute"], "True/ResolvedRefs"),
        ("UDP", "", None, ["UDPRoute"], "True/ResolvedRefs"),
    ],
)
def test_the_kinds_of_routes(
    protocol: str, mode: str, asked: list[dict[str, str]] | None, shown: list[str], resolved: str
) -> None:
    tls = {"tls": {"mode": mode}} if mode else {}
    allowed = {"allowedRoutes": {"kinds": asked}} if asked is not None else {}
    plan = planned({**http(protocol=protocol), **tls, **allowed})
    assert kinds(plan) == shown
    assert {each.group for each in plan.kinds} <= {"gateway.networking.k8s.io"}
    assert reasons(plan.judgements) == {"Accepted": "True/Accepted", "ResolvedRefs": resolved}
    assert plan.served


@pytest.mark.req("G-97", "G-98")
def test_tls_is_terminated_and_passed_through_on_one_port() -> None:
    passing = http("through", 443, protocol="TLS", hostname="a.example", tls={"mode": "Passthrough"})
    ending = https("ending", protocol="TLS", hostname="b.example")
    plan = plan_gateway(view(gateway(passing, ending)))
    assert {name: (each.passthrough, each.certificates) for name, each in served(plan).items()} == {
        "through": (True, ()),
        "ending": (False, ("tls.infra.cert",)),
    }
    assert [kinds(each) for each in plan.listeners] == [["TLSRoute"], ["TLSRoute"]]


def validated(*references: dict[str, str], port: int = 0) -> Gateway:
    validation = {"validation": {"caCertificateRefs": list(references)}}
    frontend: dict[str, Any] = {"default": validation}
    if port:
        frontend = {"default": {}, "perPort": [{"port": port, "tls": validation}]}
    listeners = (http(), https("first"), https("second", 8443))
    return gateway(*listeners, tls={"frontend": frontend})


@pytest.mark.req("G-81")
@pytest.mark.parametrize(("port", "validates"), [(0, {"first", "second"}), (8443, {"second"})])
def test_clients_are_validated_by_default_or_by_port(port: int, validates: set[str]) -> None:
    plan = plan_gateway(view(validated(CA, port=port), ca_bundles={("infra", "ca"): "PEM"}))
    listeners = served(plan)
    shown = {name: each.client_validation for name, each in listeners.items() if each.client_validation is not None}
    assert {name: each.ca_bundle for name, each in shown.items()} == dict.fromkeys(validates, "PEM\n")
    assert set(listeners) == {"http", "first", "second"}


@pytest.mark.req("G-81")
def test_the_setting_of_a_port_replaces_the_default() -> None:
    validation = {"validation": {"caCertificateRefs": [CA]}}
    frontend = {"default": validation, "perPort": [{"port": 443, "tls": {}}]}
    of = gateway(https("first"), https("second", 8443), tls={"frontend": frontend})
    listeners = served(plan_gateway(view(of, ca_bundles={("infra", "ca"): "PEM"})))
    assert [name for name, each in listeners.items() if each.client_validation is not None] == ["second"]


@pytest.mark.req("G-83")
@pytest.mark.parametrize(
    ("reference", "bundles", "reason"),
    [
        (CA, {}, "InvalidCACertificateRef"),
        (CA, {("infra", "ca"): ""}, "InvalidCACertificateRef"),
        (CA, {("infra", "ca"): "x" * (MAX_BUNDLE + 1)}, "InvalidCACertificateRef"),
        ({"kind": "Secret", "name": "ca"}, {("infra", "ca"): "PEM"}, "InvalidCACertificateKind"),
        ({**CA, "group": "example.com"}, {("infra", "ca"): "PEM"}, "InvalidCACertificateKind"),
        ({**CA, "namespace": "certs"}, {("certs", "ca"): "PEM"}, "RefNotPermitted"),
    ],
)
def test_without_authorities_only_the_listeners_that_need_them_are_refused(
    reference: dict[str, str], bundles: dict[tuple[str, str], str], reason: str
) -> None:
    plan = plan_gateway(view(validated(reference, port=8443), ca_bundles=bundles))
    by_name = {each.name: reasons(each.judgements) for each in plan.listeners}
    assert by_name["second"] == {
        "Accepted": "False/NoValidCACertificate",
        "ResolvedRefs": f"False/{reason}",
        "Programmed": "False/Invalid",
    }
    assert {name for name, each in by_name.items() if each["Accepted"] == "True/Accepted"} == {"http", "first"}
    # Closed, so that no other listener gets its requests: without a certificate no connection is taken.
    listeners = served(plan)
    assert {name: each.certificates for name, each in listeners.items() if each.protocol == "HTTPS"} == {
        "first": ("tls.infra.cert",),
        "second": (),
    }
    assert listeners["second"].client_validation is None


@pytest.mark.req("G-43", "G-83")
def test_a_gateway_keeps_its_address_while_its_only_listener_has_no_authorities() -> None:
    validation = {"validation": {"caCertificateRefs": [CA]}}
    of = gateway(https(), tls={"frontend": {"default": validation}}, allowedListeners={"namespaces": {"from": "All"}})
    plan = plan_gateway(view(of, listener_set(http("other", 81))))
    assert reasons(plan.judgements) == {"Accepted": "False/ListenersNotValid", "Programmed": "False/Invalid"}
    assert {name: each.certificates for name, each in served(plan).items()} == {"https": ()}
    assert [each.served for each in plan.listeners] == [True, False]


@pytest.mark.req("G-83")
def test_valid_authorities_of_several_count() -> None:
    references = ({**CA, "namespace": "certs"}, {"kind": "ConfigMap", "name": "absent"})
    of = validated(*references, port=8443)
    granted = (grant(kind="ConfigMap"),)
    plan = plan_gateway(view(of, ca_bundles={("certs", "ca"): "PEM"}, grants=granted))
    shown = served(plan)["second"].client_validation
    assert shown is not None
    assert shown.ca_bundle == "PEM\n"
    assert reasons(plan.listeners[2].judgements)["ResolvedRefs"] == "False/InvalidCACertificateRef"


@pytest.mark.req("G-25")
@pytest.mark.parametrize(
    ("allowed", "namespaces", "accepted"),
    [
        (None, {"infra"}, "True/Accepted"),
        ({"from": "Same"}, {"infra"}, "True/Accepted"),
        ({"from": "All"}, None, "True/Accepted"),
        ({"from": "None"}, set(), "True/Accepted"),
        ({"from": "Selector", "selector": {"matchLabels": {"team": "shop"}}}, {"shop"}, "True/Accepted"),
        ({"from": "Selector", "selector": {}}, {"infra", "shop", "certs"}, "True/Accepted"),
        ({"from": "Selector"}, set(), "False/UnsupportedValue"),
        ({"from": "Elsewhere"}, set(), "False/UnsupportedValue"),
    ],
)
def test_the_namespaces_of_routes(allowed: dict[str, Any] | None, namespaces: set[str] | None, accepted: str) -> None:
    fields = {} if allowed is None else {"allowedRoutes": {"namespaces": allowed}}
    plan = planned({**http(), **fields})
    assert plan.namespaces == namespaces
    assert reasons(plan.judgements)["Accepted"] == accepted


def test_a_port_may_be_left_to_us_where_the_protocol_has_one() -> None:
    assert planned(http(port=0)).port == 80
    assert planned(https(port=0)).port == 443
    refused = planned(http(port=0, protocol="TCP"))
    assert reasons(refused.judgements)["Accepted"] == "False/UnsupportedValue"
    assert not refused.served


def test_a_mode_that_the_protocol_does_not_have() -> None:
    refused = planned(https(tls={"mode": "Passthrough"}))
    assert reasons(refused.judgements)["Accepted"] == "False/UnsupportedValue"


def test_a_load_balancer_holds_so_many_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_plans, "MAX_LISTENERS", 2)
    plan = plan_gateway(view(gateway(http("a"), http("b", 81), http("c", 82))))
    assert reasons(plan.listeners[2].judgements)["Accepted"] == "False/TooManyListeners"
    assert set(served(plan)) == {"a", "b"}


def test_a_load_balancer_holds_so_many_certificates_and_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_plans, "MAX_CERTIFICATES", 1)
    states = {("infra", "cert"): CertificateState("d1"), ("infra", "more"): CertificateState("d2")}
    certificates = plan_gateway(
        view(gateway(https("a"), https("b", 444, tls=certificate(name="more"))), certificates=states)
    )
    assert reasons(certificates.listeners[1].judgements)["ResolvedRefs"] == "False/InvalidCertificateRef"
    assert served(certificates)["b"].certificates == ()
    monkeypatch.setattr(listener_plans, "MAX_AUTHORITIES_CHARS", 5)
    authorities = plan_gateway(view(validated(CA), ca_bundles={("infra", "ca"): "PEM"}))
    assert [name for name, each in served(authorities).items() if each.client_validation is not None] == ["first"]
    assert served(authorities)["second"].certificates == ()
    assert reasons(authorities.listeners[2].judgements)["Accepted"] == "False/NoValidCACertificate"
