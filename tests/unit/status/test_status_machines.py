"""Rows of proxy machines, which of them announces an address, and why none does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.api.announcing import Advertisement, AdvertisementSpec, BGPPeer, BGPPeerSpec, MachineChoice
from fairlead.api.intent import Allocation, MachinePlacement
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.names import ANNOTATION_EGRESS_PODS
from fairlead.api.proxymachine import (
    AddressStatus,
    Failover,
    MachineLink,
    ProxyGroup,
    ProxyGroupSpec,
    ProxyMachine,
    ProxyMachineSpec,
    ProxyMachineStatus,
    RouterSession,
)
from fairlead.api.tcploadbalancer import EgressStatus, TCPLoadBalancer, TCPLoadBalancerSpec, TCPLoadBalancerStatus
from fairlead.hub.machines.plans import only_announced_by
from fairlead.status.fleet import announcement_faults, load_balancer_row
from fairlead.status.machines import (
    AnnouncedRow,
    announced_cell,
    announced_lines,
    announced_rows,
    announced_text,
    cells,
    in_force,
    machine_problems,
    machine_rows,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
VIP = "192.0.2.10"
SILENT = (WireCondition("Ready", "Unknown", "Unreachable"),)
READY = (WireCondition("Ready", "True", "Ready"), WireCondition("Announcing", "True", "Announcing"))


def machine(
    name: str,
    *states: AddressStatus,
    link: str = "192.0.2.1/24",
    drained: bool = False,
    conditions: tuple[WireCondition, ...] = READY,
    **status: Any,
) -> ProxyMachine:
    return ProxyMachine(
        ObjectMeta(name=name),
        ProxyMachineSpec(drained=drained),
        ProxyMachineStatus(
            addresses=states,
            announced=sum(state.announced for state in states),
            links=(MachineLink(name="eth0", addresses=(link,)),),
            conditions=list(conditions),
            **status,
        ),
    )


def load_balancer(address: str = VIP) -> TCPLoadBalancer:
    placement = MachinePlacement(machines=("m1", "m2"))
    status = TCPLoadBalancerStatus(allocation=Allocation(address=address), placement=placement)
    meta = ObjectMeta(namespace="east", name="web")
    return TCPLoadBalancer(metadata=meta, spec=TCPLoadBalancerSpec(ports=[]), status=status)


def announced(*machines: ProxyMachine, advertisement: AdvertisementSpec | None = None):
    given = [Advertisement(ObjectMeta(name="a"), advertisement)] if advertisement is not None else []
    return announced_rows([load_balancer()], machines, in_force([], given)).get(VIP)


@pytest.mark.req("P-27")
def test_an_announced_address_names_its_machine_its_time_and_its_cause():
    state = AddressStatus(VIP, announced=True, mac="02::1", since="2029-12-31T23:55:00Z", cause="m2 is silent")
    row = announced(machine("m1", state), machine("m2"))
    assert row is not None
    assert (row.machines, row.macs, row.problem) == (["m1"], ["02::1"], "")
    assert announced_text(row, NOW) == "announced by m1, at 02::1 (since 5m, m2 is silent)"


@pytest.mark.req("P-27")
def test_a_contested_address_has_both_mac_addresses():
    state = AddressStatus(VIP, announced=True, mac="02::1", other_mac="02::2")
    row = announced(machine("m1", state))
    assert row is not None
    assert row.macs == ["02::1", "02::2"]
    assert "contested" in announced_text(row, NOW)


PEER_DOWN = "no session with a router is up: router tor (192.0.2.254) does not answer at 192.0.2.254:179"
FOREIGN_HOST = "02:ff::1 answers for 192.0.2.10, so this machine does not take it."
BGP = AdvertisementSpec(announcement="BGP")
FAR = "10.0.0.1/24"


def tor(**choice: Any) -> BGPPeer:
    spec = BGPPeerSpec(64512, 64513, address="192.0.2.254", machines=MachineChoice(**choice))
    return BGPPeer(ObjectMeta(name="tor"), spec)


def group(name: str, **spec: Any) -> ProxyGroup:
    return ProxyGroup(ObjectMeta(name=name), ProxyGroupSpec(**spec))


def unplaced() -> TCPLoadBalancer:
    obj = load_balancer()
    return msgspec.structs.replace(obj, status=msgspec.structs.replace(obj.status, placement=None))


def why_of(*machines: ProxyMachine, **given: Any) -> str:
    """Return why no machine announces the address, in words; empty when it is announced and all is well."""
    objects = [given.get("load_balancer", load_balancer())]
    advertisement = given.get("advertisement")
    advertisements = [] if advertisement is None else [Advertisement(ObjectMeta(name="a"), advertisement)]
    announcements = in_force(given.get("peers", []), advertisements)
    row = announced_rows(objects, machines, announcements, given.get("groups", ())).get(VIP)
    assert row is not None
    assert row.problem in announced_text(row, NOW)
    assert row.problem in "\n".join(announced_lines(row, NOW))
    return row.problem


@pytest.mark.req("P-27")
@pytest.mark.parametrize(
    ("machines", "given", "parts"),
    [
        ([machine("m1", link=FAR)], {}, ("no machine has a link in the subnet", "no Advertisement selects it")),
        (
            [machine("m1", link=FAR)],
            {"advertisement": AdvertisementSpec(announcement="L2")},
            ("no machine has a link in the subnet", "by L2 only"),
        ),
        (
            [machine("m1")],
            {"advertisement": AdvertisementSpec(announcement="L2", interfaces=["eth7"])},
            ("no machine has eth7",),
        ),
        (
            [machine("m1")],
            {"advertisement": AdvertisementSpec(announcement="L2", machines=MachineChoice(match_labels={"a": "b"}))},
            ("spec.machines of Advertisement a selects none", "m1"),
        ),
        ([machine("m1")], {"advertisement": BGP}, ("no BGPPeer selects m1", "create one")),
        (
            [machine("m1")],
            {"advertisement": BGP, "peers": [tor(match_labels={"rack": "7"})]},
            ("no BGPPeer selects m1", "spec.machines"),
        ),
        (
            [machine("m1", AddressStatus(VIP, problem=PEER_DOWN, cause="no session with a router is up"))],
            {"advertisement": BGP, "peers": [tor()]},
            (PEER_DOWN,),
        ),
        ([machine("m1", drained=True), machine("m2", drained=True)], {}, ("drained (m1, m2)", "proxy undrain")),
        (
            [machine("m1", AddressStatus(VIP, cause="the proxy does not serve the address"))],
            {},
            ("m1: the proxy does not serve the address",),
        ),
        ([machine("m1", AddressStatus(VIP, problem=FOREIGN_HOST, other_mac="02:ff::1"))], {}, ("02:ff::1 answers",)),
        (
            [machine("m1", AddressStatus(VIP, announced=True, mac="02::1", other_mac="02:ff::1"))],
            {},
            ("contested", "MAC address"),
        ),
        (
            [machine("m1")],
            {"load_balancer": unplaced(), "groups": [group("gold")]},
            ("ProxyGroup gold has no machine", "fairlead proxy token --group gold"),
        ),
        (
            [machine("m1")],
            {"load_balancer": unplaced(), "groups": [group("gold", classes=["other"])]},
            ("no ProxyGroup serves LoadBalancerClass envoy", "add the class"),
        ),
        ([machine("m1")], {"load_balancer": unplaced()}, ("no proxy machine serves",)),
        ([machine("m3")], {}, ("no proxy machine serves",)),
        ([machine("m1", conditions=())], {}, ("none of its machines is ready (m1)", "fairlead proxy list")),
        ([machine("m1", conditions=SILENT)], {}, ("none of its machines is ready (m1)",)),
        ([machine("m1", AddressStatus(VIP, announced=True), conditions=SILENT)], {}, ("the hub does not hear m1 now",)),
        ([machine("m1")], {}, ("no machine announces it yet",)),
    ],
)
def test_why_no_machine_announces_an_address(
    machines: list[ProxyMachine], given: dict[str, Any], parts: tuple[str, ...]
):
    why = why_of(*machines, **given)
    assert [part for part in parts if part not in why] == [], why


@pytest.mark.req("P-27")
def test_the_last_word_of_a_silent_machine_ends_with_a_take_over():
    silent = machine("m1", AddressStatus(VIP, announced=True, mac="02::1"), conditions=SILENT)
    taken = AddressStatus(
        VIP, announced=True, mac="02::2", since="2029-12-31T23:55:00Z", cause="m1 is silent",
        last_failover="2029-12-31T23:55:00Z", failover_cause="m1 is silent",
    )  # fmt: skip
    row = announced(silent, machine("m2", taken))
    assert row is not None
    assert (row.machines, row.macs, row.problem, row.stale) == (["m2"], ["02::2"], "", False)
    assert (row.failover_time, row.failover_cause) == (taken.since, "m1 is silent")


@pytest.mark.req("P-27")
def test_the_last_failover_is_shown_after_a_later_change():
    state = AddressStatus(
        VIP, announced=True, since="2029-12-31T23:59:00Z", cause="no other machine owns the address",
        last_failover="2029-12-31T23:50:00Z", failover_cause="m2 is silent",
    )  # fmt: skip
    row = announced(machine("m1", state))
    assert row is not None
    assert "  last failover 10m ago: m2 is silent" in announced_lines(row, NOW)


def routing(name: str, hop: str, *, up: bool) -> ProxyMachine:
    cause, problem = ("sessions with tor", "") if up else ("", PEER_DOWN)
    session = RouterSession("tor", "Established" if up else "Active", up, next_hop=hop, bfd="Up" if up else "Down")
    return machine(name, AddressStatus(VIP, announced=up, cause=cause, problem=problem), sessions=(session,))


@pytest.mark.req("P-27")
def test_a_routed_address_has_next_hops_and_sessions():
    announcements = in_force([tor()], [Advertisement(ObjectMeta(name="a"), BGP)])
    first, second = routing("m1", "192.0.2.1", up=True), routing("m2", "192.0.2.2", up=True)
    row = announced_rows([load_balancer()], [first, second], announcements)[VIP]
    assert (row.machines, row.next_hops, row.problem) == (["m1", "m2"], ["192.0.2.1", "192.0.2.2"], "")
    assert "next hops 192.0.2.1 and 192.0.2.2" in announced_cell(row, wide=True)
    row = announced_rows([load_balancer()], [first, routing("m2", "", up=False)], announcements)[VIP]
    assert (row.machines, row.next_hops) == (["m1"], ["192.0.2.1"])
    lines = announced_lines(row, NOW)
    assert "  session of m2 with tor: Active, BFD Down" in lines
    assert f"  not by m2: {PEER_DOWN}" in lines


def test_without_machines_nothing_is_shown():
    assert announced() is None


def test_an_address_that_is_not_to_be_announced_has_no_row():
    assert announced(machine("m1"), advertisement=AdvertisementSpec(announcement="None")) is None


def test_a_status_that_lists_a_part_proves_nothing():
    many = machine("m1", AddressStatus("192.0.2.99", announced=True))
    status = msgspec.structs.replace(many.status, announced=2000)
    assert announced(msgspec.structs.replace(many, status=status)) is None


@pytest.mark.req("P-6")
def test_the_last_machine_of_an_address_is_known():
    state = AddressStatus(VIP, announced=True)
    owner = machine("m1", state)
    assert only_announced_by(owner, [owner]) == [VIP]
    assert only_announced_by(owner, [owner, machine("m2")]) == []
    assert only_announced_by(owner, [owner, machine("m2", link="10.0.0.2/24")]) == [VIP]
    assert only_announced_by(owner, [owner, machine("m2", state, link="10.0.0.2/24")]) == []
    assert only_announced_by(owner, [owner, machine("m2", drained=True)]) == [VIP]
    silent = (WireCondition("Ready", "Unknown", "Unreachable"),)
    assert only_announced_by(owner, [owner, machine("m2", conditions=silent)]) == [VIP]


@pytest.mark.req("P-27")
def test_a_row_has_the_last_failover_and_its_cause():
    failover = Failover(VIP, "2029-12-31T23:59:00Z", "m2 is silent")
    (row,) = machine_rows([machine("m1", AddressStatus(VIP, announced=True), last_failover=failover)], {}, NOW)
    assert cells(row, NOW) == (*("m1", "default", "Ready", "Announcing", VIP, "never"), f"{VIP} 60s ago: m2 is silent")


def test_problems_are_those_that_need_attention():
    conditions = (
        WireCondition("Ready", "Unknown", "Unreachable", "silent"),
        WireCondition("Announcing", "Unknown", "Unreachable", "silent"),
        WireCondition("ClockSkewed", "True", "ClockSkew", "an hour"),
    )
    assert list(machine_problems(machine("m1", conditions=conditions))) == [
        ("Unreachable", "silent"),
        ("ClockSkew", "an hour"),
    ]
    for reason in ("Drained", "Standby", "NothingToAnnounce"):
        fine = (WireCondition("Ready", "False", "Pending"), WireCondition("Announcing", "False", reason))
        assert list(machine_problems(machine("m1", conditions=fine))) == []


@pytest.mark.req("P-27", "P-35")
def test_an_address_names_the_pods_that_leave_with_it_the_machine_and_the_obstacle():
    def row_of(egress: EgressStatus) -> AnnouncedRow:
        web = load_balancer()
        pods = {ANNOTATION_EGRESS_PODS: "10.0.0.1,10.0.0.2,fd00::1"}
        web = replace(web, metadata=replace(web.metadata, annotations=pods), status=replace(web.status, egress=egress))
        members = (machine("m1", AddressStatus(VIP, announced=True)), machine("m2"))
        return announced_rows([web], members, in_force([], []))[VIP]

    row = row_of(EgressStatus(sources=2, machines=("m1", "m2")))
    assert (row.pods, row.translating) == (["10.0.0.1", "10.0.0.2"], ["m1", "m2"])
    assert announced_lines(row, NOW)[-1] == "  egress of 10.0.0.1, 10.0.0.2: through m1"
    assert "egress of 2 pods" in announced_cell(row, wide=True)
    lacking = row_of(EgressStatus(sources=2, machines=("m2",), message="machine m1 does not translate"))
    assert announced_lines(lacking, NOW)[-1].endswith("not possible; machine m1 does not translate")
    fleet_row = load_balancer_row(load_balancer(), {VIP: lacking})
    (fault,) = announcement_faults([fleet_row])
    assert (fault.reason, fault.name) == ("EgressNotPossible", "web")
    assert "machine m1 does not translate" in fault.text
