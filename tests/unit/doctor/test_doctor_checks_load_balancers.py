"""Faults of load balancers and proxies, planted one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from doctor_facts import healthy, obj, only, with_condition, with_more, with_object

from fairlead.api.kubernetes import CONFIG_MAPS, DEPLOYMENTS, SERVICES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.doctor.facts import Reach
from fairlead.doctor.table import examine

pytestmark = pytest.mark.req("OP-5")
PATH = "TCPLoadBalancer/tenant-east/default.web"


@pytest.mark.parametrize(
    ("check", "kind", "status", "mend"),
    [
        ("refused", "Accepted", "False", "fairlead explain tcplb/tenant-east/default.web"),
        ("unresolved", "ResolvedRefs", "False", "fairlead explain tcplb/tenant-east/default.web"),
        ("programmed", "Programmed", "False", "fairlead explain tcplb/tenant-east/default.web --history"),
        ("serving", "Serving", "False", "fairlead explain tcplb/tenant-east/default.web"),
        ("held", "Guarded", "True", "fairlead plan tcplb/tenant-east/default.web"),
        ("drift", "Drifted", "True", "fairlead repair tcplb/tenant-east/default.web"),
    ],
)
def test_a_condition_that_is_not_as_it_should_be(check: str, kind: str, status: str, mend: str) -> None:
    finding = only(with_object("hub", TCP_LOAD_BALANCERS, with_condition(kind, status, "the reason why")), check)
    assert (finding.object, finding.fault, finding.mend) == (PATH, "the reason why", mend)


@pytest.mark.parametrize(("reason", "severity"), [("PortConflict", "error"), ("RoutesRefused", "warning")])
def test_refused_routes_are_no_outage(reason: str, severity: str) -> None:
    change = with_condition("Programmed", "False", "the reason why", reason)
    assert only(with_object("hub", TCP_LOAD_BALANCERS, change), "programmed").severity.value == severity


def test_a_load_balancer_that_nothing_was_said_of() -> None:
    finding = only(with_more("hub", LOAD_BALANCERS, obj("new", "default", spec={}, status={})), "programmed")
    assert (finding.severity.value, finding.object) == ("warning", "LoadBalancer/default/new")


def test_the_address_pool_is_exhausted() -> None:
    change = with_condition("Assigned", "False", "none left", "AddressPoolExhausted")
    assert "--address-pool" in only(with_object("hub", TCP_LOAD_BALANCERS, change), "address").mend


def test_targets_that_the_proxies_cannot_reach() -> None:
    targets = [f"192.0.2.{number}:30000" for number in range(1, 6)]

    def change(each: dict[str, Any]) -> None:
        each["status"]["unhealthyTargets"] = targets

    finding = only(with_object("hub", TCP_LOAD_BALANCERS, change), "unhealthy-targets")
    assert finding.fault.endswith("192.0.2.3:30000 and 2 more")
    assert finding.mend.startswith("nc -vz 192.0.2.1 30000")


def test_targets_that_this_machine_cannot_reach_are_named_once() -> None:
    reach = [Reach(f"tcplb/t/{name}", "[2001:db8::1]:30000", "Connection refused") for name in "ab"]
    facts = msgspec.structs.replace(healthy(), reach=(*reach, Reach("tcplb/t/c", "192.0.2.1:30000")))
    finding = only(facts, "reach")
    assert finding.object == "target [2001:db8::1]:30000"
    assert "Connection refused" in finding.fault
    assert finding.fault.endswith("tcplb/t/a and 1 more")
    assert finding.mend.startswith("nc -vz 2001:db8::1 30000")


def test_a_pause() -> None:
    def change(each: dict[str, Any]) -> None:
        each["metadata"]["annotations"] = {"fairlead.dev/paused": "true"}

    assert only(with_object("hub", TCP_LOAD_BALANCERS, change), "held").mend.startswith("fairlead resume tcplb/")


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
