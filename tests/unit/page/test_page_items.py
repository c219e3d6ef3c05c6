"""What the page says of each object: the words of ``fairlead status``, and nothing that changes by itself."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from fairlead.api.addresspool import AddressPool, AddressPoolSpec, AddressPoolStatus
from fairlead.api.backendgroup import BackendGroup, BackendGroupSpec, BackendGroupStatus
from fairlead.api.hostname import DNSZone, DNSZoneSpec, DNSZoneStatus, Hostname, HostnameSpec, HostnameStatus
from fairlead.api.loadbalancerclass import LoadBalancerClass, LoadBalancerClassSpec, LoadBalancerClassStatus
from fairlead.api.managedcertificate import ManagedCertificate, ManagedCertificateSpec, ManagedCertificateStatus
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.names import LABEL_POOL_SERVICE_SERVICE
from fairlead.api.poolservice import PoolService, PoolServiceSpec, PoolServiceStatus
from fairlead.api.proxymachine import AddressStatus, ProxyMachine, ProxyMachineStatus
from fairlead.api.tcploadbalancer import Origin
from fairlead.page.tables import (
    certificate_item,
    class_item,
    group_item,
    load_balancer_item,
    machine_item,
    member_item,
    name_item,
    pool_item,
    region_item,
    zone_item,
)
from tests.fleet_objects import EAST, GOOD, NOW, condition, fleet_of, http_load_balancer, lease, load_balancer, status


def at(when: str, *args: str) -> WireCondition:
    return msgspec.structs.replace(condition(*args), last_transition_time=when)


@pytest.mark.req("OP-10")
def test_a_load_balancer_says_what_status_says() -> None:
    lb = load_balancer(*GOOD, at("2029-12-31T01:00:00Z", "Serving", "False", "NoHealthyTargets", "none is healthy"))
    item = load_balancer_item(lb, EAST)
    assert (item.state, item.reason, item.since) == ("NotServing", "NoHealthyTargets", "2029-12-31T01:00:00Z")
    assert (item.member, item.region, item.title) == ("east", "eu", "east/default/web")
    assert list(item.problems) == status(lb=lb).problems
    assert item.command == "fairlead explain tcplb/tenant-east/default.web"


def test_what_serves_does_so_since_it_was_seen_to() -> None:
    lb = load_balancer(*GOOD, at("2029-12-30T00:00:00Z", "Serving", "True", "TargetsHealthy", ""))
    item = load_balancer_item(lb, None)
    assert (item.state, item.problems, item.since, item.member) == ("Serving", (), "2029-12-30T00:00:00Z", "")
    assert load_balancer_item(http_load_balancer(*GOOD, routes=4), EAST).routes == 4


@pytest.mark.parametrize(("age_s", "connection", "heard"), [(3, "Engaged", ""), (100, "Stale", "2029-12-31T23:58:20Z")])
def test_a_member_is_heard_or_was_last(age_s: float, connection: str, heard: str) -> None:
    item = member_item(EAST, lease(age_s), NOW)
    assert (item.connection, item.heard) == (connection, heard)
    assert bool(item.problems) == (connection != "Engaged")


def test_while_a_member_is_heard_its_item_stays_the_same() -> None:
    assert member_item(EAST, lease(1), NOW) == member_item(EAST, lease(30), NOW)
    assert member_item(EAST, None, NOW).connection == "Pending"


def test_certificates_have_their_end_and_names_their_zone() -> None:
    ends = (NOW + timedelta(days=3)).isoformat()
    managed = ManagedCertificate(
        metadata=ObjectMeta(name="c", namespace="tenant-east"),
        spec=ManagedCertificateSpec(hosts=("shop.example",), issuer="le"),
        status=ManagedCertificateStatus(state="Issued", digest="1", not_after=ends),
    )
    item = certificate_item(managed, NOW)
    assert (item.ends, item.issuer, item.state) == (ends, "le", "NeedsAttention")
    assert "shop.example: expires at" in item.problems[0]
    bad = condition("Ready", "False", "Refused", "its server refuses it")
    host = Hostname(
        metadata=ObjectMeta(name="h", namespace="fairlead-system"),
        spec=HostnameSpec(host="shop.example"),
        status=HostnameStatus(zone="z", conditions=[bad]),
    )
    assert "its server refuses it" in name_item(host).problems[0]


@pytest.mark.parametrize(
    ("zone", "conditions", "state", "published"),
    [
        ("z", GOOD, "Serving", True),
        ("z", (GOOD[0], condition("Programmed", "Unknown", "Pending")), "Idle", False),
        ("", (condition("Accepted", "Unknown", "NoSuchZone"),), "Idle", False),
        ("z", (condition("Accepted", "False", "Invalid"),), "NeedsAttention", False),
    ],
)
def test_a_name_is_published_once_its_zone_has_it(zone, conditions, state, published) -> None:
    host = Hostname(
        metadata=ObjectMeta(name="h", namespace="fairlead-system"),
        spec=HostnameSpec(host="shop.example", addresses=["192.0.2.7"]),
        status=HostnameStatus(zone=zone, conditions=list(conditions)),
    )
    item = name_item(host)
    assert (item.state, item.published, item.points_to) == (state, published, ("192.0.2.7",))


@pytest.mark.req("OP-10")
def test_two_load_balancers_of_one_title_have_what_status_calls_each() -> None:
    service, gateway = load_balancer(*GOOD), http_load_balancer(*GOOD)
    origin = Origin(kind="Gateway", namespace="default", name="web")
    gateway = msgspec.structs.replace(
        gateway,
        metadata=msgspec.structs.replace(gateway.metadata, annotations={"fairlead.dev/origin": "east/default/web"}),
        spec=msgspec.structs.replace(gateway.spec, origin=origin),
    )
    items = [load_balancer_item(lb, EAST) for lb in (service, gateway)]
    assert {item.title for item in items} == {"east/default/web"}
    titles = {row.title for row in fleet_of(load_balancers=[service, gateway]).load_balancers}
    assert {item.full_title for item in items} == titles == {"svc/east/default/web", "gateway/east/default/web"}


def test_programmed_objects_without_an_address_do_not_wait() -> None:
    def address(*conditions: WireCondition) -> str:
        lb = load_balancer(*conditions)
        return load_balancer_item(
            msgspec.structs.replace(lb, status=msgspec.structs.replace(lb.status, address="")), EAST
        ).address

    assert (address(*GOOD), address(GOOD[0])) == ("-", "")


@pytest.mark.req("X-34")
def test_a_service_rejected_by_an_agent_is_not_a_fault_of_its_member() -> None:
    heard = lease(3)
    refused = {"fairlead.dev/refused": '{"shop/web": "port 0 is none"}'}
    heard = msgspec.structs.replace(heard, metadata=msgspec.structs.replace(heard.metadata, annotations=refused))
    item = member_item(EAST, heard, NOW)
    assert (item.state, item.problems, item.connection) == ("Serving", (), "Engaged")
    assert item.refused == ("Service east/shop/web: rejected by the agent: port 0 is none",)


@pytest.mark.req("OP-10")
def test_classes_and_groups_say_what_status_says() -> None:
    cls = LoadBalancerClass(
        metadata=ObjectMeta(name="edge", annotations={"fairlead.dev/paused": "true"}),
        spec=LoadBalancerClassSpec(provider="haproxy"),
        status=LoadBalancerClassStatus(load_balancers=4),
    )
    group = BackendGroup(
        metadata=ObjectMeta(name="g", namespace="shop"),
        spec=BackendGroupSpec(load_balancers=["a", "lab/b"]),
        status=BackendGroupStatus(
            backends=3, registered_backends=1, conditions=[condition("Programmed", "False", "Pending", "1 of 3")]
        ),
    )
    said = fleet_of(classes=[cls], groups=[group]).problems
    items = class_item(cls), group_item(group)
    assert [problem for item in items for problem in item.problems] == said
    assert [item.state for item in items] == ["NeedsAttention", "NeedsAttention"]
    assert (items[0].provider, items[0].load_balancers) == ("haproxy", 4)
    assert (items[1].load_balancers, items[1].registered, items[1].backends) == (("a", "lab/b"), 1, 3)


@pytest.mark.req("OP-10")
def test_the_share_of_a_region_says_what_status_says() -> None:
    obj = PoolService(
        metadata=ObjectMeta(namespace="default", name="web-north", labels={LABEL_POOL_SERVICE_SERVICE: "web"}),
        spec=PoolServiceSpec(nodepool_name="north", load_balancer_class="fairlead.dev/envoy"),
        status=PoolServiceStatus(targets="0/2", conditions=[condition("Accepted", "False", "Invalid", "no port fits")]),
    )
    item = region_item(obj)
    assert (item.id, item.service, item.region, item.state, item.reason) == (
        "default/web-north", "web", "north", "NotServing", "Invalid",
    )  # fmt: skip
    assert list(item.problems) == fleet_of(pool_services=[obj]).problems


def test_the_load_balancer_of_a_region_is_of_that_region() -> None:
    lb = load_balancer(*GOOD)
    lb = msgspec.structs.replace(lb, spec=msgspec.structs.replace(lb.spec, region="north"))
    assert load_balancer_item(lb, None).region == "north"


@pytest.mark.req("OP-10")
def test_a_zone_says_where_its_server_is_and_no_password() -> None:
    def item(**parameters: str):
        spec = DNSZoneSpec(zone="example.com", provider="powerdns", parameters=parameters)
        return zone_item(DNSZone(metadata=ObjectMeta(name="z"), spec=spec, status=DNSZoneStatus(names=4)))

    secrets = {"credentials": "secret-name", "txtPrefix": "p"}
    assert item(server="192.0.2.53:53", **secrets).server == "192.0.2.53:53"
    assert item(url="https://user:word@dns.example:8081/api", **secrets).server == "dns.example:8081"
    assert item(**secrets).server == ""
    assert "word" not in str(item(url="https://user:word@dns.example/", **secrets))
    refused = DNSZone(
        metadata=ObjectMeta(name="z"),
        spec=DNSZoneSpec(zone="example.com", provider="rfc2136"),
        status=DNSZoneStatus(conditions=[condition("Accepted", "False", "Invalid", "the server refuses the key")]),
    )
    assert (zone_item(refused).state, zone_item(refused).problems) == (
        "NeedsAttention",
        ("zone z: the server refuses the key",),
    )


@pytest.mark.req("OP-10")
@pytest.mark.parametrize(
    ("status_of", "state", "problems"),
    [
        (AddressPoolStatus(size=14, used=3, reserved=2, free=9), "Serving", ()),
        (AddressPoolStatus(), "Serving", ()),
        (AddressPoolStatus(size=14, used=12, reserved=2), "Serving", ()),
        (
            AddressPoolStatus(conditions=[condition("Accepted", "False", "Invalid", "spec.addresses: 1.2 is none")]),
            "NeedsAttention",
            ("pool edge: spec.addresses: 1.2 is none",),
        ),
    ],
)
def test_a_pool_says_how_much_is_used_and_that_nothing_is_left(status_of, state, problems) -> None:
    spec = AddressPoolSpec(addresses=["192.0.2.0/28"])
    item = pool_item(AddressPool(metadata=ObjectMeta(name="edge"), spec=spec, status=status_of))
    assert (item.state, item.problems) == (state, problems)
    assert (item.addresses, item.used, item.size) == (("192.0.2.0/28",), status_of.used, status_of.size)
    assert item.note == ("Full" if status_of.used == 12 else "")


@pytest.mark.req("OP-10", "P-27")
def test_a_machine_has_its_state_since_when_and_its_first_addresses() -> None:
    ready = at("2029-12-31T00:00:00Z", "Ready", "True", "Ready")
    states = tuple(AddressStatus(f"192.0.2.{number}", announced=True) for number in range(12))
    now = ProxyMachineStatus(envoy="1.38.0", announced=12, addresses=states, conditions=[ready])
    item = machine_item(ProxyMachine(ObjectMeta(name="edge-1"), status=now))
    assert (item.id, item.ready, item.since, item.envoy) == ("edge-1", "Ready", "2029-12-31T00:00:00Z", "1.38.0")
    assert (item.announced, len(item.addresses), item.state, item.problems) == (12, 10, "Serving", ())
    down = [condition("Ready", "False", "ProxyDown", "Envoy does not run")]
    item = machine_item(ProxyMachine(ObjectMeta(name="edge-1"), status=ProxyMachineStatus(conditions=down)))
    assert (item.ready, item.state, item.problems) == (
        *("ProxyDown", "NeedsAttention"),
        ("machine edge-1: Envoy does not run",),
    )
    assert machine_item(ProxyMachine(ObjectMeta(name="new"))).ready == "Joining"
