"""Faults of load balancers and proxies, planted one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from doctor_facts import good, healthy, obj, only, with_condition, with_more, with_object

from fairlead.api.kubernetes import CONFIG_MAPS, DEPLOYMENTS, ENDPOINT_SLICES, SERVICES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.doctor.checks import examine
from fairlead.doctor.facts import ConnectionResult, Facts

pytestmark = pytest.mark.req("OP-5")
PATH = "TCPLoadBalancer/tenant-east/default.web"


@pytest.mark.parametrize(
    ("check", "kind", "status", "fix"),
    [
        ("refused", "Accepted", "False", "fairlead explain tcplb/tenant-east/default.web"),
        ("unresolved", "ResolvedRefs", "False", "fairlead explain tcplb/tenant-east/default.web"),
        ("programmed", "Programmed", "False", "fairlead explain tcplb/tenant-east/default.web --history"),
        ("serving", "Serving", "False", "fairlead explain tcplb/tenant-east/default.web"),
        ("held", "Guarded", "True", "fairlead plan tcplb/tenant-east/default.web"),
        ("drift", "Drifted", "True", "fairlead repair tcplb/tenant-east/default.web"),
    ],
)
def test_a_condition_that_is_not_as_it_should_be(check: str, kind: str, status: str, fix: str) -> None:
    finding = only(with_object("hub", TCP_LOAD_BALANCERS, with_condition(kind, status, "the reason why")), check)
    assert (finding.object, finding.fault, finding.fix) == (PATH, "the reason why", fix)


@pytest.mark.parametrize(("reason", "severity"), [("PortConflict", "error"), ("RoutesRefused", "warning")])
def test_rejected_routes_are_not_an_outage(reason: str, severity: str) -> None:
    change = with_condition("Programmed", "False", "the reason why", reason)
    assert only(with_object("hub", TCP_LOAD_BALANCERS, change), "programmed").severity.value == severity


def test_a_load_balancer_without_any_report() -> None:
    finding = only(with_more("hub", LOAD_BALANCERS, obj("new", "default", spec={}, status={})), "programmed")
    assert (finding.severity.value, finding.object) == ("warning", "LoadBalancer/default/new")


EXHAUSTED = with_condition("Programmed", "False", "none left", "AddressPoolExhausted")


def pools(facts: Facts, *names: str) -> Facts:
    """Return the same with AddressPools."""
    hub = facts.hub
    assert hub is not None
    status = {"size": 9, "freeIPv4": 1, **good("Accepted")}
    hub.objects["addresspools.fairlead.dev"] = [
        obj(name, spec={"addresses": ["192.0.2.0/28"]}, status=status) for name in names
    ]
    return facts


@pytest.mark.parametrize(
    ("names", "tenants", "fix"),
    [
        ((), (), "fairlead hub --address-pool CIDR,CIDR   # with a larger range (or fairlead standalone; with Helm:"),
        (
            (),
            ("local",),
            "fairlead run --address-pool CIDR,CIDR   # with a larger range; or kubectl apply an AddressPool",
        ),
        (("edge",), ("local",), "kubectl edit addresspool edge   # add ranges to spec.addresses"),
        (("b", "a"), (), "kubectl get addresspools   # then add ranges to one that serves it: a, b"),
    ],
)
def test_a_missing_address_is_one_fault_with_the_right_fix(
    names: tuple[str, ...], tenants: tuple[str, ...], fix: str
) -> None:
    facts = pools(with_object("hub", TCP_LOAD_BALANCERS, EXHAUSTED), *names)
    hub = facts.hub
    assert hub is not None
    hub.objects[TENANTS.full_name] += [obj(name, spec={"namespace": "tenant-east"}) for name in tenants]
    finding = only(facts, "address")
    assert finding.fault == "no address: none left"
    assert finding.fix.startswith(fix)


def test_an_address_that_may_not_be_had_is_asked_for_otherwise() -> None:
    taken = with_condition("Programmed", "False", "192.0.2.1 is taken", "AddressNotUsable")
    finding = only(with_object("hub", TCP_LOAD_BALANCERS, taken), "address")
    assert finding.fix == "fairlead explain tcplb/tenant-east/default.web   # then request another address, or none"


def test_rejections_are_reported_once() -> None:
    def change(each: dict[str, Any]) -> None:
        for kind in ("Accepted", "Programmed", "Serving"):
            with_condition(kind, "False", "spec.ports: no")(each)

    assert only(with_object("hub", TCP_LOAD_BALANCERS, change), "refused").fault == "spec.ports: no"


def test_a_fault_at_both_sides_is_reported_at_its_cause() -> None:
    facts = with_object("hub", TCP_LOAD_BALANCERS, EXHAUSTED)
    hub, member = facts.hub, facts.member
    assert hub is not None
    assert member is not None
    hub.objects[TCP_LOAD_BALANCERS.full_name][0]["spec"]["origin"] = {"namespace": "default", "name": "web"}
    member.objects[SERVICES.full_name][0]["status"] = {}
    assert only(facts, "address").object == PATH


def test_no_ready_pod_is_an_error_when_the_load_balancer_does_not_serve_for_that() -> None:
    facts = with_object("hub", TCP_LOAD_BALANCERS, with_condition("Serving", "False", "no target", "NoTargets"))
    hub, member = facts.hub, facts.member
    assert hub is not None
    assert member is not None
    hub.objects[TCP_LOAD_BALANCERS.full_name][0]["spec"]["origin"] = {"namespace": "default", "name": "web"}
    member.objects[ENDPOINT_SLICES.full_name].clear()
    finding = only(facts, "service-pods")
    assert (finding.severity.value, finding.object) == ("error", "Service/default/web")


def test_targets_that_the_proxies_cannot_reach() -> None:
    targets = [f"192.0.2.{number}:30000 (TCP/80)" for number in range(1, 6)]

    def change(each: dict[str, Any]) -> None:
        each["status"]["unhealthyTargets"] = targets

    finding = only(with_object("hub", TCP_LOAD_BALANCERS, change), "unhealthy-targets")
    assert finding.fault.endswith("192.0.2.3:30000 (TCP/80) and 2 more")
    assert finding.fix.startswith("nc -vz 192.0.2.1 30000")


@pytest.mark.req("EDGE-11")
@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("2001:db8::1", "nc -vz 2001:db8::1 PORT "),
        ("[2001:db8::1]", "nc -vz 2001:db8::1 PORT "),
        ("[2001:db8::1]:80", "nc -vz 2001:db8::1 80 "),
        ("192.0.2.1", "nc -vz 192.0.2.1 PORT "),
        ("backend.example:80", "nc -vz backend.example 80 "),
    ],
)
def test_a_target_is_named_as_nc_takes_it(target: str, command: str) -> None:
    def change(each: dict[str, Any]) -> None:
        each["status"]["unhealthyTargets"] = [target]

    assert only(with_object("hub", TCP_LOAD_BALANCERS, change), "unhealthy-targets").fix.startswith(command)


def test_targets_that_this_machine_cannot_reach_are_named_once() -> None:
    reach = [ConnectionResult(f"tcplb/t/{name}", "[2001:db8::1]:30000", "Connection refused") for name in "ab"]
    facts = msgspec.structs.replace(healthy(), reach=(*reach, ConnectionResult("tcplb/t/c", "192.0.2.1:30000")))
    finding = only(facts, "reach")
    assert finding.object == "target [2001:db8::1]:30000"
    assert "Connection refused" in finding.fault
    assert finding.fault.endswith("tcplb/t/a and 1 more")
    assert finding.fix.startswith("nc -vz 2001:db8::1 30000")


def test_a_pause() -> None:
    def change(each: dict[str, Any]) -> None:
        each["metadata"]["annotations"] = {"fairlead.dev/paused": "true"}

    assert only(with_object("hub", TCP_LOAD_BALANCERS, change), "held").fix.startswith("fairlead resume tcplb/")


def test_proxies_are_missing() -> None:
    finding = only(with_object("hub", DEPLOYMENTS, lambda each: each.update(status={})), "proxies")
    assert (finding.object, finding.fault) == ("Deployment/tenant-east/envoy", "0 of 2 proxies are available")


def test_a_proxy_is_stale() -> None:
    def change(each: dict[str, Any]) -> None:
        each["data"] = {"old": "{}", "hub-1": each["data"]["hub-1"].replace("SYNCED", "STALE")}

    assert only(with_object("hub", CONFIG_MAPS, change), "proxies-stale").object == "proxy p1"


def test_a_proxys_service_has_no_address() -> None:
    assert (
        "no address" in only(with_object("hub", SERVICES, lambda each: each.update(status={})), "proxies-address").fault
    )


def test_lists_that_are_null_are_empty() -> None:
    facts = with_object("hub", TCP_LOAD_BALANCERS, lambda each: each["status"].update(unhealthyTargets=None))
    assert examine(facts) == []
