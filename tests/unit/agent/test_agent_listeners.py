"""A Gateway with its ListenerSets as a load balancer: what is served, what is refused and why."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.agent.sources.gateway.listeners import plan_gateway
from fairlead.agent.sources.gateway.plan import GatewayPlan, ParentKey
from fairlead.agent.sources.http import CertificateState
from tests.unit.agent.gateway_objects import certificate, gateway, grant, http, https, listener_set, reasons, view

GOOD = {"Accepted": "True/Accepted", "ResolvedRefs": "True/ResolvedRefs"}
ALL = {"namespaces": {"from": "All"}}


def of_listeners(plan: GatewayPlan) -> dict[str, dict[str, str]]:
    return {each.key: reasons(each.judgements) for each in plan.listeners}


def of_sets(plan: GatewayPlan) -> dict[str, dict[str, str]]:
    return {key.name: reasons(judgements) for key, judgements in plan.listener_sets.items()}


@pytest.mark.req("G-22", "G-33")
def test_a_gateway_that_is_as_it_should_be() -> None:
    plan = plan_gateway(view(gateway(http(), https(hostname="A.example")), load_balancer_class="edge", targets="Node"))
    assert plan.gateway == ParentKey("Gateway", "infra", "main")
    assert plan.load_balancer == "gateway.infra.main"
    assert reasons(plan.judgements) == {"Accepted": "True/Accepted"}
    assert of_listeners(plan) == {"http": GOOD, "https": GOOD}
    assert plan.spec is not None
    assert [(each.name, each.port, each.hostname, each.certificates) for each in plan.spec.listeners] == [
        ("http", 80, "", ()),
        ("https", 443, "a.example", ("tls.infra.cert",)),
    ]
    assert [(each.name, each.digest) for each in plan.spec.certificates] == [("tls.infra.cert", "d1")]
    assert (plan.spec.class_name, plan.spec.targets, plan.spec.address) == ("edge", "Node", "")
    assert (plan.spec.origin.kind, plan.spec.origin.namespace, plan.spec.origin.name) == ("Gateway", "infra", "main")


@pytest.mark.req("G-33", "G-39")
def test_a_protocol_that_is_not_served() -> None:
    unknown = http("other", 81, protocol="INVALID")
    plan = plan_gateway(view(gateway(http(), unknown)))
    assert reasons(plan.judgements) == {"Accepted": "True/ListenersNotValid"}
    assert of_listeners(plan)["other"]["Accepted"] == "False/UnsupportedProtocol"
    assert plan.listeners[1].kinds == ()
    assert plan.spec is not None
    assert [each.name for each in plan.spec.listeners] == ["http"]
    alone = plan_gateway(view(gateway(unknown)))
    assert reasons(alone.judgements) == {"Accepted": "False/ListenersNotValid", "Programmed": "False/Invalid"}
    assert alone.spec is None


@pytest.mark.req("G-32")
def test_listeners_that_exclude_each_other_have_no_winner() -> None:
    plan = plan_gateway(view(gateway(http("a"), https("b", 80), http("c", 81))))
    conflict = {"Accepted": "False/ProtocolConflict", "Conflicted": "True/ProtocolConflict"}
    for key in ("a", "b"):
        assert {kind: of_listeners(plan)[key][kind] for kind in conflict} == conflict
    assert plan.spec is not None
    assert [each.name for each in plan.spec.listeners] == ["c"]
    assert reasons(plan.judgements)["Accepted"] == "True/ListenersNotValid"


@pytest.mark.req("G-37")
def test_unknown_parameters_refuse_the_gateway() -> None:
    parameters = {"group": "example.com", "kind": "Other", "name": "x"}
    plan = plan_gateway(view(gateway(http(), infrastructure={"parametersRef": parameters}), listener_set(http())))
    assert reasons(plan.judgements) == {"Accepted": "False/InvalidParameters", "Programmed": "False/Invalid"}
    assert plan.spec is None
    assert not any(each.served for each in plan.listeners)
    assert of_listeners(plan)["http"] == {**GOOD, "Programmed": "False/Invalid"}


@pytest.mark.req("G-65")
@pytest.mark.parametrize(
    ("addresses", "accepted", "programmed", "asked"),
    [
        ([{"type": "example.com/other", "value": "x"}, {"value": "192.0.2.1"}], "UnsupportedAddress", "Invalid", None),
        ([{"type": "Hostname", "value": "a.example"}], "UnsupportedAddress", "Invalid", None),
        ([{"value": "192.0.2.1"}, {"value": "192.0.2.2"}], "Accepted", "AddressNotUsable", "192.0.2.1"),
        ([{"type": "IPAddress", "value": "192.0.2.1"}], "Accepted", None, "192.0.2.1"),
    ],
)
def test_addresses(addresses: list[dict[str, str]], accepted: str, programmed: str | None, asked: str | None) -> None:
    plan = plan_gateway(view(gateway(http(), addresses=addresses)))
    shown = {kind: text.split("/")[1] for kind, text in reasons(plan.judgements).items()}
    assert shown == {"Accepted": accepted, **({"Programmed": programmed} if programmed else {})}
    assert (plan.spec.address if plan.spec is not None else None) == asked


@pytest.mark.req("G-66")
def test_an_address_without_a_value_is_chosen_by_the_hub() -> None:
    plan = plan_gateway(view(gateway(http(), addresses=[{"type": "IPAddress"}])))
    assert plan.spec is not None
    assert plan.spec.address == ""
    assert reasons(plan.judgements) == {"Accepted": "True/Accepted"}


@pytest.mark.req("G-84", "G-85")
@pytest.mark.parametrize(
    ("reference", "state", "reason", "name"),
    [
        ({"name": "cert"}, None, "True/ResolvedRefs", "tls.infra.cert"),
        ({"name": "absent"}, None, "False/InvalidClientCertificateRef", ""),
        ({"name": "cert", "kind": "ConfigMap"}, None, "False/InvalidClientCertificateRef", ""),
        ({"name": "cert", "group": "example.com"}, None, "False/InvalidClientCertificateRef", ""),
        ({"name": "cert"}, CertificateState("", "no PEM"), "False/InvalidClientCertificateRef", ""),
        ({"name": "cert"}, CertificateState("d0", "no PEM"), "False/InvalidClientCertificateRef", "tls.infra.cert"),
        ({"name": "cert", "namespace": "certs"}, None, "False/RefNotPermitted", ""),
    ],
)
def test_the_certificate_for_backends(
    reference: dict[str, str], state: CertificateState | None, reason: str, name: str
) -> None:
    of = gateway(http(), tls={"backend": {"clientCertificateRef": reference}})
    fields: dict[str, Any] = {} if state is None else {"certificates": {("infra", "cert"): state}}
    plan = plan_gateway(view(of, **fields))
    assert reasons(plan.judgements) == {"Accepted": "True/Accepted", "ResolvedRefs": reason}
    assert plan.client_certificate == name
    assert plan.spec is not None
    assert [each.name for each in plan.spec.certificates] == ([name] if name else [])


@pytest.mark.req("G-82")
def test_fallback_is_shown_as_insecure() -> None:
    validation = {"caCertificateRefs": [{"kind": "ConfigMap", "name": "ca"}], "mode": "AllowInsecureFallback"}
    of = gateway(https(), tls={"frontend": {"default": {"validation": validation}}})
    plan = plan_gateway(view(of, ca_bundles={("infra", "ca"): "PEM"}))
    assert reasons(plan.judgements)["InsecureFrontendValidationMode"] == "True/ConfigurationChanged"
    assert plan.spec is not None
    validated = plan.spec.listeners[0].client_validation
    assert validated is not None
    assert validated.optional


@pytest.mark.req("G-102")
@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        (None, []),
        ({"from": "None"}, []),
        ({"from": "Same"}, ["own"]),
        ({"from": "All"}, ["own", "foreign"]),
        ({"from": "Selector", "selector": {"matchLabels": {"team": "shop"}}}, ["foreign"]),
        ({"from": "Selector", "selector": {"matchExpressions": [{"key": "x", "operator": "Nope"}]}}, []),
        ({"from": "Selector"}, []),
    ],
)
def test_which_listener_sets_are_allowed(allowed: dict[str, Any] | None, names: list[str]) -> None:
    sets = (listener_set(http("a", 81), name="own"), listener_set(http("b", 82), name="foreign", namespace="shop"))
    rules = None if allowed is None else {"namespaces": allowed}
    plan = plan_gateway(view(gateway(http(), allowedListeners=rules), *sets))
    refused = {"Accepted": "False/NotAllowed", "Programmed": "False/NotAllowed"}
    assert of_sets(plan) == {
        name: {"Accepted": "True/Accepted"} if name in names else refused for name in ("own", "foreign")
    }
    assert {each.parent.name for each in plan.listeners} == {"main", *names}


@pytest.mark.req("G-103")
def test_between_listener_sets_the_first_one_wins() -> None:
    older = listener_set(http("same"), http("a", 81, hostname="a.example"), name="older")
    twin = listener_set({"name": "tcp", "port": 80, "protocol": "TCP"}, name="twin")
    # Of those of one second the name decides.
    tied = listener_set(http("a", 81, hostname="A.example"), http("b", 81, hostname="b.example"), name="tied")
    plan = plan_gateway(view(gateway(http(), allowedListeners=ALL), tied, twin, older))
    shown = of_listeners(plan)
    assert list(shown) == [
        "http",
        "infra/older/same",
        "infra/older/a",
        "infra/tied/a",
        "infra/tied/b",
        "infra/twin/tcp",
    ]
    hostname = {
        "Accepted": "False/HostnameConflict",
        "ResolvedRefs": "True/ResolvedRefs",
        "Conflicted": "True/HostnameConflict",
        "Programmed": "False/HostnameConflict",
    }
    assert shown["infra/older/same"] == hostname
    assert shown["infra/tied/a"] == hostname
    assert shown["infra/twin/tcp"]["Programmed"] == "False/ProtocolConflict"
    assert of_sets(plan) == {
        "older": {"Accepted": "True/ListenersNotValid"},
        "tied": {"Accepted": "True/ListenersNotValid"},
        "twin": {"Accepted": "False/ListenersNotValid", "Programmed": "False/ListenersNotValid"},
    }
    assert reasons(plan.judgements) == {"Accepted": "True/Accepted"}


@pytest.mark.req("G-105")
def test_the_certificate_of_a_listener_set_needs_a_grant_for_listener_sets() -> None:
    of_set = listener_set(https("a", 8443, tls=certificate(name="cert", namespace="certs")))
    of = gateway(http(), allowedListeners=ALL)
    refused = plan_gateway(view(of, of_set, grants=(grant(),)))
    assert of_listeners(refused)["infra/more/a"]["ResolvedRefs"] == "False/RefNotPermitted"
    assert of_sets(refused)["more"] == {"Accepted": "False/ListenersNotValid", "Programmed": "False/ListenersNotValid"}
    assert of_sets(plan_gateway(view(of, of_set, grants=(grant(source="ListenerSet"),)))) == {
        "more": {"Accepted": "True/Accepted"}
    }


@pytest.mark.req("G-103")
def test_a_listener_set_of_a_refused_gateway() -> None:
    of = gateway(http(protocol="INVALID"), allowedListeners=ALL)
    plan = plan_gateway(view(of, listener_set(http("a", 81))))
    assert of_sets(plan)["more"]["Accepted"] == "False/ParentNotAccepted"
    assert plan.spec is None
    assert not any(each.served for each in plan.listeners)


def test_a_gateway_without_listeners_of_its_own_serves_those_of_its_listener_sets() -> None:
    alone = plan_gateway(view(gateway(allowedListeners=ALL)))
    assert reasons(alone.judgements) == {"Accepted": "True/Accepted", "Programmed": "False/Invalid"}
    both = plan_gateway(view(gateway(allowedListeners=ALL), listener_set(http())))
    assert both.spec is not None
    assert reasons(both.judgements) == {"Accepted": "True/Accepted"}
