"""Plans of machines: announcements follow subnets, versions follow content, and a leaving machine moves its share."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.meta import ObjectMeta
from fairlead.api.proxymachine import MachineLink, ProxyMachine, ProxyMachineSpec, ProxyMachineStatus
from fairlead.hub.machines.plans import PlanInput, build_plans, rendezvous, subnets

VIP = "192.0.2.10"


def machine(name: str, *addresses: str, group: str = "default", drained: bool = False, link: str = "eth0"):
    status = ProxyMachineStatus(links=(MachineLink(name=link, addresses=addresses),))
    return ProxyMachine(ObjectMeta(name=name), ProxyMachineSpec(group=group, drained=drained), status)


def plans(*machines: ProxyMachine, addresses: tuple[str, ...] = (VIP,), epoch: int = 1, **fields):
    return build_plans(machines, PlanInput(addresses={vip: ["east/web"] for vip in addresses}, epoch=epoch, **fields))


@pytest.mark.req("P-11")
def test_an_address_is_announced_by_the_machines_on_its_subnet():
    made = plans(machine("m1", "192.0.2.1/24"), machine("m2", "192.0.2.2/24"), machine("m3", "198.51.100.3/24"))
    (address,) = made["m3"].addresses
    assert (address.announcement, set(address.machines)) == ("L2", {"m1", "m2"})
    assert address.load_balancers == ("east/web",)
    assert made["m1"].addresses == made["m2"].addresses == made["m3"].addresses


def test_an_address_outside_every_subnet_is_not_announced():
    (address,) = plans(machine("m1", "198.51.100.1/24"))["m1"].addresses
    assert (address.announcement, address.machines) == ("None", ())


@pytest.mark.parametrize("link", ["127.0.0.1/8", "192.0.2.10/32", "fe80::1/64", "::1/128"])
def test_links_that_reach_no_neighbour_announce_nothing(link: str):
    assert subnets([MachineLink(name="eth0", addresses=(link,))]) == []


def test_families_are_apart():
    made = plans(machine("m1", "192.0.2.1/24"), machine("m2", "2001:db8::2/64"), addresses=(VIP, "2001:db8::10"))
    by_address = {address.address: address.machines for address in made["m1"].addresses}
    assert by_address == {VIP: ("m1",), "2001:db8::10": ("m2",)}


@pytest.mark.req("P-6")
def test_a_drained_machine_announces_nothing_and_its_neighbours_know():
    made = plans(machine("m1", "192.0.2.1/24", drained=True), machine("m2", "192.0.2.2/24"))
    assert made["m1"].drained
    assert made["m2"].addresses[0].machines == ("m2",)
    assert [(other.name, other.drained, other.addresses) for other in made["m2"].neighbours] == [
        ("m1", True, ("192.0.2.1",))
    ]


def test_groups_are_apart():
    made = plans(
        machine("m1", "192.0.2.1/24", group="a"),
        machine("m2", "192.0.2.2/24", group="b"),
        link_key=lambda group: f"key-{group}",
    )
    assert made["m1"].neighbours == made["m2"].neighbours == ()
    assert {made["m1"].link_key, made["m2"].link_key} == {"key-a", "key-b"}


def test_the_version_differs_when_anything_else_does():
    alone = machine("m1", "192.0.2.1/24")
    base = plans(alone)["m1"]
    assert plans(alone)["m1"] == base
    others = [
        plans(alone, epoch=2),
        plans(alone, addresses=(VIP, "192.0.2.11")),
        plans(alone, machine("m2", "192.0.2.2/24")),
        plans(alone, hubs=("hub:1",)),
        plans(alone, link_key=lambda _group: "other"),
        plans(machine("m1", "192.0.2.1/24", drained=True)),
    ]
    assert base.version not in {made["m1"].version for made in others}


def test_keys_are_not_in_the_text_of_a_plan():
    (plan,) = plans(machine("m1", "192.0.2.1/24"), link_key=lambda _group: "hidden").values()
    assert "hidden" not in repr(plan)
    assert b"hidden" in msgspec.json.encode(plan)


@given(st.sets(st.sampled_from([f"m{number}" for number in range(9)]), min_size=2), st.data())
def test_a_machine_that_leaves_changes_no_other_order(names: set[str], data: st.DataObject):
    gone = data.draw(st.sampled_from(sorted(names)))
    before = rendezvous(VIP, names)
    assert rendezvous(VIP, names - {gone}) == tuple(name for name in before if name != gone)


@pytest.mark.req("P-11")
def test_addresses_are_spread_evenly():
    names = [f"m{number}" for number in range(5)]
    first = Counter(rendezvous(f"192.0.{number // 256}.{number % 256}", names)[0] for number in range(1000))
    assert all(170 <= first[name] <= 230 for name in names), first
