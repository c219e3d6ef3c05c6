"""Faults of AddressPools, DNSZones and names, planted one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from doctor_facts import good, obj, only, with_more, with_object, without

from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES
from fairlead.api.kubernetes import CONFIG_MAPS, ENDPOINT_SLICES
from fairlead.api.meta import JSONObject
from fairlead.api.multicluster import EXPORTED_SERVICES
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.doctor.checks import examine
from fairlead.standalone.proxy_report import NAME as PROXY_REPORTS
from fairlead.status.fleet import ReplicaReport

pytestmark = pytest.mark.req("OP-5")

ZONE = {"zone": "example.test", "provider": "rfc2136"}


def bad(kind: str, reason: str, message: str, **status: Any) -> JSONObject:
    return {"conditions": [{"type": kind, "status": "False", "reason": reason, "message": message}], **status}


@pytest.mark.parametrize("message", ["spec.addresses: 'x' is not a range", "spec.addresses: 192.0.2.0/24 overlaps ..."])
def test_a_pool_that_is_invalid_or_overlaps(message: str) -> None:
    pool = obj("edge", spec={"addresses": ["192.0.2.0/28"]}, status=bad("Accepted", "Invalid", message, freeIPv4=0))
    finding = only(with_more("hub", ADDRESS_POOLS, pool), "pools")
    assert (finding.object, finding.fault) == ("AddressPool/edge", message)
    assert finding.fix == "kubectl edit addresspool edge"


def test_a_pool_without_a_free_address() -> None:
    counts = {"size": 6, "used": 4, "reserved": 2, "freeIPv4": 0, "freeIPv6": 9}
    pool = obj("edge", spec={"addresses": ["192.0.2.0/28"]}, status={**good("Accepted"), **counts})
    finding = only(with_more("hub", ADDRESS_POOLS, pool), "pools-exhausted")
    assert finding.fault == "no free IPv4 address: 4 of 6 addresses are used and 2 reserved"
    assert finding.fix.startswith("kubectl edit addresspool edge   # add ranges")


@pytest.mark.req("X-46")
@pytest.mark.parametrize(("used", "fault"), [(7, ""), (8, "few addresses are free"), (10, "no free IPv4 address")])
def test_a_pool_with_few_free_addresses(used: int, fault: str) -> None:
    counts = {"size": 10, "used": used, "freeIPv4": 10 - used}
    facts = with_more(
        "hub", ADDRESS_POOLS, obj("edge", spec={"addresses": ["192.0.2.0/28"]}, status={**good("Accepted"), **counts})
    )
    assert [fault for finding in examine(facts) if fault in finding.fault] == [fault][: bool(fault)]
    assert len(examine(facts)) == bool(fault)


@pytest.mark.req("X-46")
@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["192.0.2.1"], ""),
        ([f"192.0.2.{number}" for number in range(1, 6)], "few addresses are free: 5 of 6 addresses are used"),
        ([f"192.0.2.{number}" for number in range(1, 7)], "no address is free: 6 of 6 addresses are used"),
        ([f"198.51.100.{number}" for number in range(1, 7)], ""),
    ],
)
def test_the_pool_of_the_flag_is_looked_at(given: list[str], fault: str) -> None:
    report = msgspec.json.encode(ReplicaReport("", [], "192.0.2.0/29")).decode()
    facts = without("hub", CONFIG_MAPS)
    assert facts.hub is not None
    facts.hub.objects[CONFIG_MAPS.full_name] = [obj(PROXY_REPORTS, SYSTEM_NAMESPACE, data={"hub-0": report})]
    facts.hub.objects[TCP_LOAD_BALANCERS.full_name] = [
        obj(
            f"web-{ip}",
            "tenant-east",
            spec={"ports": [{"port": 80}]},
            status={"loadBalancer": {"ingress": [{"ip": ip}]}},
        )
        for ip in given
    ]
    own = [finding for finding in examine(facts) if finding.object.startswith("--address-pool")]
    assert [finding.fault for finding in own] == [fault][: bool(fault)]
    assert [finding.object for finding in own] == ["--address-pool 192.0.2.0/29"][: bool(fault)]
    assert all("--address-pool CIDR,CIDR" in finding.fix for finding in own)


@pytest.mark.parametrize("label", ["fairlead.dev/nodes", "fairlead.dev/nodes-ipv6"])
def test_a_pool_with_the_address_of_a_node_until_it_is_avoided(label: str) -> None:
    endpoints = [{"addresses": [address]} for address in ("192.0.2.9", "::ffff:192.0.2.10", "10.0.0.1")]
    nodes = obj("nodes", "tenant-east", metadata={"labels": {label: "true"}}, endpoints=endpoints)
    spec = {"addresses": ["192.0.2.0/28"], "avoid": ["192.0.2.9"]}
    facts = with_more("hub", ENDPOINT_SLICES, nodes)
    assert facts.hub is not None
    facts.hub.objects[ADDRESS_POOLS.full_name] = [obj("edge", spec=spec, status=good("Accepted"))]
    finding = only(facts, "pools-nodes")
    assert (finding.severity.value, finding.object) == ("warning", "AddressPool/edge")
    assert finding.fault.startswith("192.0.2.10 belongs to a node of the member in namespace tenant-east")
    assert finding.fix == "kubectl edit addresspool edge   # add it to spec.avoid"
    spec["avoid"].append("192.0.2.10")
    assert not examine(facts)


def test_a_zone_that_cannot_be_used() -> None:
    zone = obj("example", spec=ZONE, status=bad("Accepted", "NoSuchProvider", "no provider"))
    finding = only(with_more("hub", DNS_ZONES, zone), "zones")
    assert (finding.severity.value, finding.fault) == ("error", "no provider")
    assert finding.fix == "kubectl edit dnszone example"


def test_a_zone_without_a_server_cannot_be_checked() -> None:
    finding = only(with_more("hub", DNS_ZONES, obj("example", spec=ZONE, status=good("Accepted"))), "zones")
    assert finding.severity.value == "warning"
    assert "spec.parameters.server" in finding.fix


def test_the_server_of_a_zone_is_one_fault_for_all_of_its_names() -> None:
    names = [
        obj(
            f"n{number}",
            "s",
            spec={"host": f"n{number}.x"},
            status=bad("Programmed", "ProviderFailed", "refused", zone="x"),
        )
        for number in range(5)
    ]
    finding = only(with_more("hub", HOSTNAMES, *names), "zones-server")
    assert finding.object == "DNSZone/x"
    assert finding.fault == "the server does not accept the records of n0.x, n1.x, n2.x and 2 more: refused"
    assert finding.fix.startswith("kubectl describe dnszone x")


def test_a_name_that_is_refused() -> None:
    name = obj(
        "shop", "fairlead-system", spec={"host": "shop.x"}, status=bad("Accepted", "Invalid", "too long", zone="x")
    )
    finding = only(with_more("hub", HOSTNAMES, name), "names")
    assert finding.object == "Hostname/fairlead-system/shop"
    assert finding.fault == "shop.x is not published: too long"
    assert finding.fix == "fairlead explain hostname/fairlead-system/shop"


def test_a_name_that_no_zone_holds_may_be_kept_by_hand() -> None:
    name = obj("shop", "s", spec={"host": "shop.x"}, status=bad("Accepted", "NoSuchZone", "no DNSZone holds it"))
    assert examine(with_more("hub", HOSTNAMES, name)) == []


def test_a_name_that_another_object_has() -> None:
    def change(lb: JSONObject) -> None:
        lb["status"]["names"] = bad("HostnamesAccepted", "HostnameTaken", "host shop.x: the name has another owner")

    finding = only(with_object("hub", TCP_LOAD_BALANCERS, change), "names-refused")
    assert (finding.severity.value, finding.object) == ("warning", "TCPLoadBalancer/tenant-east/default.web")
    assert finding.fix.startswith("fairlead names")


@pytest.mark.req("MC-1")
def test_an_export_that_no_member_imports() -> None:
    status = bad("Ready", "Failed", "Tenant east at the hub is not in a cluster set.")
    export = obj("shop.web", "tenant-east", spec={"namespace": "shop", "name": "web"}, status=status)
    finding = only(with_more("hub", EXPORTED_SERVICES, export), "exports")
    assert (finding.severity.value, finding.object) == ("warning", "ExportedService/tenant-east/shop.web")
    assert finding.fault.endswith("by member east: Tenant east at the hub is not in a cluster set.")
