"""Rows of proxy machines, which of them announces an address, and why none does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from fairlead.api.announcing import Advertisement, AdvertisementSpec
from fairlead.api.intent import Allocation, MachinePlacement
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.proxymachine import (
    AddressStatus,
    Failover,
    MachineLink,
    ProxyMachine,
    ProxyMachineSpec,
    ProxyMachineStatus,
)
from fairlead.api.tcploadbalancer import TCPLoadBalancer, TCPLoadBalancerSpec, TCPLoadBalancerStatus
from fairlead.status.machines import (
    announced_rows,
    announced_text,
    cells,
    in_force,
    machine_problems,
    machine_rows,
    only_announced_by,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
VIP = "192.0.2.10"
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


@pytest.mark.req("P-27")
@pytest.mark.parametrize(
    ("machines", "why"),
    [
        ([machine("m1", link="10.0.0.1/24")], "no machine has a link in the subnet"),
        ([machine("m1", drained=True), machine("m2", drained=True)], "fairlead proxy undrain"),
        ([machine("m1", AddressStatus(VIP, problem="another host has it"))], "another host has it"),
        ([machine("m1", conditions=())], "none of its machines is ready (m1)"),
        ([machine("m1")], "no machine announces it yet"),
    ],
)
def test_an_address_that_none_announces_has_a_reason(machines: list[ProxyMachine], why: str):
    row = announced(*machines)
    assert row is not None
    assert row.machines == []
    assert why in announced_text(row, NOW)


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
    assert cells(row, NOW) == (
        *("m1", "default", "Ready", "Announcing", VIP, "never"),
        f"{VIP} 60s ago: m2 is silent",
    )


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
    fine = (WireCondition("Ready", "False", "Pending"), WireCondition("Announcing", "False", "Drained"))
    assert list(machine_problems(machine("m1", conditions=fine))) == []
