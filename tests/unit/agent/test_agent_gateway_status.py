"""Statuses of Gateways and ListenerSets: what was planned, and what the hub answers of the present version."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.gateway.listeners import plan_gateway
from fairlead.agent.sources.gateway.plan import GatewayPlan
from fairlead.agent.sources.gateway.status import gateway_status, listener_set_status
from fairlead.api.gateway import GatewayStatus, ListenerSetStatus
from fairlead.api.httploadbalancer import HTTPLoadBalancer, HTTPLoadBalancerStatus, RefusedPartStatus
from fairlead.api.intent import NamesStatus
from fairlead.api.kubernetes import Ingress, LoadBalancerStatus
from fairlead.api.meta import ObjectMeta, WireCondition
from tests.unit.agent.gateway_objects import gateway, http, https, listener_set, view

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
ALL = {"namespaces": {"from": "All"}}
OF = gateway(http(), https(), generation=3, allowedListeners=ALL)
SET = listener_set(http("a", 81), http("b", 82, protocol="INVALID"))
REFUSED = listener_set(http("a", 80), name="refused", created=LATER)
PLAN = plan_gateway(view(OF, SET, REFUSED))


def answer(
    plan: GatewayPlan = PLAN,
    *,
    status: str = "True",
    reason: str = "Programmed",
    kind: str = "Programmed",
    generation: int = 7,
    seen: int = 7,
    refused: tuple[RefusedPartStatus, ...] = (),
    addresses: tuple[Ingress, ...] = (Ingress(ip="192.0.2.1"),),
) -> HTTPLoadBalancer:
    assert plan.spec is not None
    condition = WireCondition(kind, status, reason, "because", observed_generation=seen)
    return HTTPLoadBalancer(
        metadata=ObjectMeta(name=plan.load_balancer, generation=generation),
        spec=plan.spec,
        status=HTTPLoadBalancerStatus(
            observed_generation=seen,
            conditions=[condition],
            refused=refused,
            load_balancer=LoadBalancerStatus(list(addresses)),
        ),
    )


def shown(conditions: list[WireCondition] | None) -> dict[str, str]:
    return {each.type: f"{each.status}/{each.reason}" for each in conditions or ()}


def of_listeners(status: GatewayStatus | ListenerSetStatus) -> dict[str, dict[str, str]]:
    return {each.name: shown(each.conditions) for each in status.listeners or ()}


def of_gateway(hub: HTTPLoadBalancer | None, plan: GatewayPlan = PLAN, **attached: int) -> GatewayStatus:
    return gateway_status(plan, OF, attached=attached, hub=hub, now=NOW)


@pytest.mark.req("G-5", "G-22", "G-23")
def test_a_gateway_that_is_programmed() -> None:
    status = of_gateway(answer(), http=2)
    assert shown(status.conditions) == {"Accepted": "True/Accepted", "Programmed": "True/Programmed"}
    good = {"Accepted": "True/Accepted", "ResolvedRefs": "True/ResolvedRefs", "Programmed": "True/Programmed"}
    assert of_listeners(status) == {"http": good, "https": good}
    assert [each.attached_routes for each in status.listeners or ()] == [2, 0]
    written = msgspec.to_builtins(status)
    assert written["addresses"] == [{"type": "IPAddress", "value": "192.0.2.1"}]
    assert written["attachedListenerSets"] == 1
    assert written["listeners"][1]["attachedRoutes"] == 0
    assert written["listeners"][1]["supportedKinds"][0] == {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}


@pytest.mark.req("G-16", "G-35")
def test_every_condition_has_the_generation_a_time_and_a_message() -> None:
    status = of_gateway(answer())
    listeners = [condition for each in status.listeners or () for condition in each.conditions]
    for condition in (*(status.conditions or ()), *listeners):
        assert condition.observed_generation == 3
        assert condition.last_transition_time == NOW
        assert condition.message


@pytest.mark.req("G-8", "G-16")
def test_a_condition_keeps_its_time_while_its_status_is_the_same() -> None:
    first = of_gateway(answer(status="False", reason="Pending"))
    again = msgspec.structs.replace(OF, status=first)
    second = gateway_status(PLAN, again, attached={}, hub=answer(), now=LATER)
    times = {each.type: each.last_transition_time for each in second.conditions or ()}
    assert times == {"Accepted": NOW, "Programmed": LATER}
    of_first = {each.type: each.last_transition_time for each in (second.listeners or [])[0].conditions}
    assert of_first == {"Accepted": NOW, "ResolvedRefs": NOW, "Programmed": LATER}
    # The same answer again changes nothing.
    third = gateway_status(
        PLAN, msgspec.structs.replace(OF, status=second), attached={}, hub=answer(), now="2026-01-03T00:00:00Z"
    )
    assert third == second


OTHER = plan_gateway(view(gateway(http())))


@pytest.mark.req("G-17", "G-22")
@pytest.mark.parametrize(
    ("hub", "programmed", "listener"),
    [
        (None, "Unknown/Pending", "Unknown/Pending"),
        (answer(OTHER), "Unknown/Pending", "Unknown/Pending"),
        (answer(generation=8), "Unknown/Pending", "Unknown/Pending"),
        (answer(kind="ResolvedRefs"), "Unknown/Pending", "Unknown/Pending"),
        (answer(status="False", reason="Pending"), "False/Pending", "False/Pending"),
        (answer(status="False", reason="AddressNotUsable"), "False/AddressNotUsable", "False/Pending"),
        (answer(status="False", reason="AddressPoolExhausted"), "False/AddressNotAssigned", "False/Pending"),
        (answer(status="False", reason="NoProxyConnected"), "False/NoResources", "False/Pending"),
        (answer(status="False", reason="RejectedByProxy"), "False/Invalid", "False/Invalid"),
        (answer(status="False", reason="RoutesRefused"), "True/Programmed", "True/Programmed"),
        (answer(kind="Accepted", status="False", reason="NoSuchClass"), "False/Invalid", "False/Invalid"),
        (answer(kind="Accepted", status="False", reason="AddressNotUsable"), "False/AddressNotUsable", "False/Pending"),
    ],
)
def test_programmed_is_what_the_hub_says_of_the_present_version(
    hub: HTTPLoadBalancer | None, programmed: str, listener: str
) -> None:
    status = of_gateway(hub)
    assert shown(status.conditions)["Programmed"] == programmed
    assert of_listeners(status)["http"]["Programmed"] == listener


def test_what_the_hub_refused_before_does_not_hide_what_it_refuses_now() -> None:
    conditions = [
        WireCondition("Accepted", "False", "Invalid", "because", observed_generation=7),
        WireCondition("Programmed", "True", "Programmed", observed_generation=7),
    ]
    hub = answer()
    hub = msgspec.structs.replace(hub, status=msgspec.structs.replace(hub.status, conditions=conditions))
    assert shown(of_gateway(hub).conditions)["Programmed"] == "False/Invalid"


def test_a_listener_that_the_proxies_do_not_serve() -> None:
    refused = (
        RefusedPartStatus("listener", "https", "no usable certificate"),
        RefusedPartStatus("route", "http", "of another kind"),
    )
    listeners = of_listeners(of_gateway(answer(refused=refused)))
    assert listeners["https"]["Programmed"] == "False/Invalid"
    assert listeners["http"]["Programmed"] == "True/Programmed"


@pytest.mark.req("X-38")
def test_a_gateway_is_programmed_while_one_of_its_listeners_is() -> None:
    def programmed(plan: GatewayPlan, *refused: str) -> tuple[str, list[str]]:
        parts = tuple(RefusedPartStatus("listener", name, "its port cannot be opened") for name in refused)
        status = of_gateway(answer(plan, refused=parts), plan)
        return shown(status.conditions)["Programmed"], [each["Programmed"] for each in of_listeners(status).values()]

    missing = plan_gateway(view(gateway(https(secret="gone"), generation=3)))
    assert programmed(missing) == ("False/Invalid", ["False/Invalid"])
    both = plan_gateway(view(gateway(http(), https(secret="gone"), generation=3)))
    assert programmed(both) == ("True/Programmed", ["True/Programmed", "False/Invalid"])
    assert programmed(both, "http") == ("False/Invalid", ["False/Invalid", "False/Invalid"])
    assert programmed(OTHER, "http") == ("False/Invalid", ["False/Invalid"])
    with_set = plan_gateway(view(gateway(https(secret="gone"), allowedListeners=ALL), listener_set(http("a", 81))))
    assert programmed(with_set) == ("True/Programmed", ["False/Invalid"]), "the listener of its ListenerSet is"


@pytest.mark.req("X-38")
def test_a_listener_set_is_programmed_while_one_of_its_listeners_is() -> None:
    hub = answer(refused=(RefusedPartStatus("listener", "infra/more/a", "its port cannot be opened"),))
    status = listener_set_status(PLAN, SET, attached={}, hub=hub, now=NOW)
    assert shown(status.conditions)["Programmed"] == "False/Invalid"
    assert shown(of_gateway(hub).conditions)["Programmed"] == "True/Programmed"


@pytest.mark.req("G-33", "G-65")
def test_planned_changes_precede_messages_of_the_hub() -> None:
    several = plan_gateway(view(gateway(http(), addresses=[{"value": "192.0.2.1"}, {"value": "192.0.2.2"}])))
    status = of_gateway(answer(several), several)
    assert shown(status.conditions)["Programmed"] == "False/AddressNotUsable"
    assert of_listeners(status)["http"]["Programmed"] == "True/Programmed"
    refused = plan_gateway(view(gateway(http(protocol="INVALID"))))
    shown_refused = of_gateway(None, refused)
    assert shown(shown_refused.conditions) == {"Accepted": "False/ListenersNotValid", "Programmed": "False/Invalid"}
    assert shown_refused.addresses is None


@pytest.mark.req("G-66")
def test_an_address_may_be_a_host_name() -> None:
    status = of_gateway(answer(addresses=(Ingress(hostname="lb.example"),)))
    assert [(each.type, each.value) for each in status.addresses or ()] == [("Hostname", "lb.example")]


@pytest.mark.req("G-103", "G-104")
def test_listener_sets() -> None:
    attached = {"infra/more/a": 2, "a": 5}
    status = listener_set_status(PLAN, SET, attached=attached, hub=answer(), now=NOW)
    assert shown(status.conditions) == {"Accepted": "True/ListenersNotValid", "Programmed": "True/Programmed"}
    assert [(each.name, each.attached_routes) for each in status.listeners or ()] == [("a", 2), ("b", 0)]
    assert of_listeners(status)["a"]["Programmed"] == "True/Programmed"
    assert of_listeners(status)["b"]["Programmed"] == "False/Invalid"
    pending = listener_set_status(PLAN, SET, attached={}, hub=None, now=NOW)
    assert shown(pending.conditions)["Programmed"] == "Unknown/Pending"
    refused = listener_set_status(PLAN, REFUSED, attached={}, hub=answer(), now=NOW)
    assert shown(refused.conditions) == {"Accepted": "False/ListenersNotValid", "Programmed": "False/ListenersNotValid"}
    assert {condition.observed_generation for condition in refused.conditions or ()} == {1}


@pytest.mark.req("G-102")
def test_a_listener_set_that_is_not_allowed_has_no_listeners() -> None:
    plan = plan_gateway(view(gateway(http()), SET))
    status = listener_set_status(plan, SET, attached={}, hub=answer(plan), now=NOW)
    assert shown(status.conditions) == {"Accepted": "False/NotAllowed", "Programmed": "False/NotAllowed"}
    assert status.listeners == []
    parent: dict[str, Any] = msgspec.to_builtins(gateway_status(plan, OF, attached={}, hub=answer(plan), now=NOW))
    assert parent["attachedListenerSets"] == 0


@pytest.mark.req("G-17")
def test_a_status_of_a_younger_version_stays() -> None:
    younger = gateway_status(
        PLAN, msgspec.structs.replace(OF, metadata=ObjectMeta(generation=4)), attached={}, hub=None, now=NOW
    )
    stale = msgspec.structs.replace(OF, status=younger)
    assert gateway_status(PLAN, stale, attached={}, hub=answer(), now=LATER) is younger
    of_set = listener_set_status(
        PLAN, msgspec.structs.replace(SET, metadata=msgspec.structs.replace(SET.metadata, generation=9)),
        attached={}, hub=None, now=NOW,
    )  # fmt: skip
    stale_set = msgspec.structs.replace(SET, status=of_set)
    assert listener_set_status(PLAN, stale_set, attached={}, hub=answer(), now=LATER) is of_set


@pytest.mark.req("K-49")
def test_the_generated_name_follows_the_addresses() -> None:
    hub = answer()
    named = msgspec.structs.replace(
        hub, status=msgspec.structs.replace(hub.status, names=NamesStatus(hostname="web-shop-gw.east.lb.example.com"))
    )
    addresses = of_gateway(named).addresses or []
    assert [(each.type, each.value) for each in addresses] == [
        ("IPAddress", "192.0.2.1"),
        ("Hostname", "web-shop-gw.east.lb.example.com"),
    ]
    bad = msgspec.structs.replace(hub, status=msgspec.structs.replace(hub.status, names=NamesStatus("no name\n")))
    assert [each.type for each in of_gateway(bad).addresses or []] == ["IPAddress"]


@pytest.mark.req("KI-9")
def test_a_host_of_a_listener_that_is_taken_is_a_condition_of_ours() -> None:
    refused = WireCondition("HostnamesAccepted", "False", "DomainReserved", "it is not yours")
    hub = answer()
    away = WireCondition("HostnamesPublished", "False", "HostnameNotPublished", "no answer")
    names = NamesStatus(conditions=[refused, away])
    status = of_gateway(msgspec.structs.replace(hub, status=msgspec.structs.replace(hub.status, names=names)))
    assert shown(status.conditions)["fairlead.dev/HostnamesAccepted"] == "False/DomainReserved"
    assert shown(status.conditions)["fairlead.dev/HostnamesPublished"] == "False/HostnameNotPublished"
    assert shown(status.conditions)["Programmed"] == "True/Programmed"


@pytest.mark.req("F-9")
def test_the_gateway_says_why_http3_is_not_announced() -> None:
    hub, why = answer(), "HTTP/3 is not announced: Service a/b does not serve UDP/443"
    condition = WireCondition("Programmed", "True", "Programmed", why, observed_generation=7)
    status = of_gateway(
        msgspec.structs.replace(hub, status=msgspec.structs.replace(hub.status, conditions=[condition]))
    )
    assert [each.message for each in status.conditions or () if each.type == "Programmed"] == [why]
    of_http = next(each.conditions for each in status.listeners or () if each.name == "http")
    assert why not in {each.message for each in of_http or ()}, "the listener itself is served"
    refused = of_gateway(answer(status="False", reason="RoutesRefused"))
    assert "because" not in {each.message for each in refused.conditions or ()}, "the route says so"
