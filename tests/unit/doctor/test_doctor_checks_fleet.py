"""Faults of leases, tenants and classes, planted one by one."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from doctor_facts import healthy, only, stamp, with_condition, with_object, without

from fairlead.api.kubernetes import LEASES, NAMESPACES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.doctor.checks import examine
from fairlead.doctor.facts import Facts

pytestmark = pytest.mark.req("OP-5")


def with_lease(index: int, **changes: Any) -> Facts:
    facts = healthy()
    assert facts.hub is not None
    lease = facts.hub.list(LEASES)[index]
    lease["metadata"] |= changes.pop("metadata", {})
    lease["spec"] |= changes
    return facts


def test_no_hub_has_ever_led() -> None:
    facts = healthy()
    assert facts.hub is not None
    del facts.hub.list(LEASES)[0]
    assert "no hub leads" in only(facts, "leader").fault
    assert "no hub leads" in only(with_lease(0, holderIdentity=""), "leader").fault


def test_the_hub_is_silent() -> None:
    finding = only(with_lease(0, metadata={"managedFields": [{"time": stamp(90)}]}, renewTime=stamp(90)), "leader")
    assert (finding.object, finding.severity.value) == ("Lease/fairlead-system/fairlead-hub", "error")
    assert "90s ago" in finding.fault


@pytest.mark.req("CORE-09")
def test_the_hub_of_a_region_is_silent() -> None:
    facts = healthy()
    assert facts.hub is not None
    leases = facts.hub.list(LEASES)
    regional = copy.deepcopy(leases[0])
    regional["metadata"] |= {"name": "fairlead-hub-eu"}
    leases.append(regional)
    assert examine(facts) == []
    regional["spec"]["holderIdentity"] = ""
    finding = only(facts, "leader")
    assert finding.object == "Lease/fairlead-system/fairlead-hub-eu"
    assert "delete lease fairlead-hub-eu" in finding.fix
    del leases[0]
    assert only(facts, "leader") == finding, "a hub of a region leads alone"


def test_an_agent_was_never_heard() -> None:
    facts = healthy()
    assert facts.hub is not None
    del facts.hub.list(LEASES)[1]
    finding = only(facts, "agents")
    assert (finding.object, finding.fault) == ("Tenant/east", "the agent has never reported")
    assert finding.fix.startswith("fairlead tenant add east")


def test_an_agent_is_lost() -> None:
    facts = with_lease(1, metadata={"managedFields": [{"time": stamp(900)}]}, renewTime=stamp(900))
    assert "15m ago" in only(facts, "agents").fault


def test_an_agents_clock_is_wrong() -> None:
    assert "300 s ahead of" in only(with_lease(1, renewTime=stamp(-297)), "agents-clocks").fault


def test_a_tenant_without_its_namespace() -> None:
    facts = healthy()
    assert facts.hub is not None
    facts.hub.objects[NAMESPACES.full_name] = facts.hub.list(NAMESPACES)[:1]
    assert "tenant-east does not exist" in only(facts, "namespaces").fault


def test_records_of_long_deleted_objects_remain() -> None:
    gone = {"deletionTimestamp": stamp(3600), "finalizers": ["fairlead.dev/load-balancer"]}
    finding = only(with_object("hub", TCP_LOAD_BALANCERS, lambda each: each["metadata"].update(gone)), "stuck")
    assert "60 minutes ago, and held by fairlead.dev/load-balancer" in finding.fault
    just_now = {"deletionTimestamp": stamp(60)}
    assert examine(with_object("hub", TCP_LOAD_BALANCERS, lambda each: each["metadata"].update(just_now))) == []


def test_the_default_class_is_missing() -> None:
    assert only(without("hub", LOAD_BALANCER_CLASSES), "default-class").object == "LoadBalancerClass/envoy"


def test_a_class_that_cannot_be_used() -> None:
    facts = with_object("hub", LOAD_BALANCER_CLASSES, with_condition("Accepted", "False", "there is no provider x"))
    finding = only(facts, "classes")
    assert (finding.fault, finding.fix) == ("there is no provider x", "kubectl edit loadbalancerclass envoy")


def test_a_class_that_takes_nothing_new() -> None:
    def drain(each: dict[str, Any]) -> None:
        each["spec"]["draining"] = True

    assert "draining" in only(with_object("hub", LOAD_BALANCER_CLASSES, drain), "classes").fault
    deleted = {"deletionTimestamp": stamp(60)}
    facts = with_object("hub", LOAD_BALANCER_CLASSES, lambda each: each["metadata"].update(deleted))
    assert "being deleted" in only(facts, "classes").fault


def test_a_load_balancer_of_a_class_that_does_not_exist() -> None:
    def change(each: dict[str, Any]) -> None:
        each["spec"]["className"] = "gold"

    finding = only(with_object("hub", TCP_LOAD_BALANCERS, change), "unknown-classes")
    assert finding.object == "TCPLoadBalancer/tenant-east/default.web"
    assert "class gold does not exist; existing classes: envoy" in finding.fault


def test_a_hub_without_tenants_is_not_a_fault() -> None:
    facts = without("hub", TENANTS)
    assert examine(facts) == []


@pytest.mark.req("X-42")
def test_objects_that_an_agent_refuses_are_named_at_the_hub() -> None:
    def change(each: dict[str, Any]) -> None:
        if each["metadata"]["name"] == "fairlead-agent":
            refused = {"Gateway/shop/web": "there is no GatewayClass fairlaed"}
            each["metadata"]["annotations"]["fairlead.dev/refused"] = json.dumps(refused)

    finding = only(with_object("hub", LEASES, change, every=True), "refused-objects")
    assert (finding.severity.value, finding.object) == ("warning", "Gateway/shop/web")
    assert "fairlaed" in finding.fault
