"""Plans of machines: announcements follow subnets and Advertisements, and versions follow content."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.api.announcing import Advertisement, AdvertisementSpec, BGPPeer, BGPPeerSpec
from fairlead.api.meta import ObjectMeta
from fairlead.api.proxymachine import MachineLink, ProxyMachine, ProxyMachineSpec, ProxyMachineStatus
from fairlead.hub.machines.plans import MachinePlans, PlanInput, build_plans, subnets
from fairlead.translate.announcing import Announcements, PlacedAddress, accept

VIP = "192.0.2.10"


def machine(
    name: str, *addresses: str, group: str = "default", drained: bool = False, link: str = "eth0"
) -> ProxyMachine:
    status = ProxyMachineStatus(links=(MachineLink(name=link, addresses=addresses),))
    return ProxyMachine(ObjectMeta(name=name), ProxyMachineSpec(group=group, drained=drained), status)


def placed(address: str = VIP, *machines: str) -> PlacedAddress:
    return PlacedAddress(address=address, machines=machines, load_balancers=("east/web",), class_name="envoy")


def plans(
    *machines: ProxyMachine, addresses: tuple[PlacedAddress, ...] = (), epoch: int = 1, **fields: Any
) -> MachinePlans:
    usual = placed(VIP, *(machine.metadata.name for machine in machines if not machine.spec.drained))
    return build_plans(machines, PlanInput(addresses=addresses or (usual,), epoch=epoch, **fields))


def announcements(*, peers: tuple[str, ...] = (), **spec: Any) -> Announcements:
    advertisement = Advertisement(ObjectMeta(name="adv"), AdvertisementSpec(**spec))
    routers = [
        BGPPeer(ObjectMeta(name=name), BGPPeerSpec(asn=1, local_asn=2, address="10.0.0.1", password_secret="s"))
        for name in peers
    ]
    return accept(routers, [advertisement], {"s": {"password": b"hidden-password"}})


@pytest.mark.req("P-11")
def test_an_address_is_announced_by_the_machines_on_its_subnet():
    machines = (machine("m1", "192.0.2.1/24"), machine("m2", "192.0.2.2/24"), machine("m3", "198.51.100.3/24"))
    made = plans(*machines).by_machine
    (address,) = made["m3"].addresses
    assert (address.announcement, set(address.machines)) == ("L2", {"m1", "m2"})
    assert address.load_balancers == ("east/web",)
    assert made["m1"].addresses == made["m2"].addresses == made["m3"].addresses


def test_the_order_of_the_placement_counts():
    machines = [machine(f"m{number}", f"192.0.2.{number}/24") for number in (1, 2, 3)]
    made = plans(*machines, addresses=(placed(VIP, "m3", "m1"),))
    assert made.by_machine["m1"].addresses[0].machines == ("m3", "m1")


@pytest.mark.req("P-27")
@pytest.mark.parametrize(
    ("machines", "why"),
    [
        ((machine("m1", "198.51.100.1/24"),), "no machine has a link in the subnet"),
        ((machine("m1", "192.0.2.1/24", drained=True),), "fairlead proxy undrain"),
        ((machine("m1", "not an address", "192.0.2.1/99"),), "no machine has a link in the subnet"),
    ],
)
def test_an_address_that_no_machine_announces_has_a_reason(machines: tuple[ProxyMachine, ...], why: str):
    made = plans(*machines)
    assert made.by_machine["m1"].addresses[0].announcement == "None"
    assert why in made.problems[VIP]
    assert VIP in made.problems[VIP]


@pytest.mark.parametrize("link", ["127.0.0.1/8", "192.0.2.10/32", "fe80::1/64", "::1/128"])
def test_links_that_reach_no_neighbour_announce_nothing(link: str):
    assert subnets([MachineLink(name="eth0", addresses=(link,))]) == []


def test_families_are_apart():
    machines = (machine("m1", "192.0.2.1/24"), machine("m2", "2001:db8::2/64"))
    made = plans(*machines, addresses=(placed("2001:db8::10", "m1", "m2"), placed(VIP, "m1", "m2")))
    planned = [(address.address, address.machines) for address in made.by_machine["m1"].addresses]
    assert planned == [(VIP, ("m1",)), ("2001:db8::10", ("m2",))]


@pytest.mark.req("P-9")
def test_a_drained_machine_announces_until_another_one_has_the_address():
    machines = (machine("m1", "192.0.2.1/24", drained=True), machine("m2", "192.0.2.2/24"))
    made = plans(*machines, addresses=(placed(VIP, "m2", "m1"),)).by_machine
    assert made["m1"].addresses[0].machines == ("m2", "m1")
    assert not made["m1"].drained
    assert not made["m2"].neighbours[0].drained


@pytest.mark.req("P-8")
def test_an_address_without_recorded_machines_is_not_announced():
    made = plans(machine("m1", "192.0.2.1/24"), addresses=(placed(),))
    assert (made.by_machine["m1"].addresses[0].announcement, made.by_machine["m1"].addresses[0].machines) == (
        "None",
        (),
    )
    assert "no proxy machine serves" in made.problems[VIP]


@pytest.mark.req("P-6")
def test_a_drained_machine_announces_nothing_and_its_neighbours_know():
    made = plans(machine("m1", "192.0.2.1/24", drained=True), machine("m2", "192.0.2.2/24")).by_machine
    assert made["m1"].drained
    assert made["m2"].addresses[0].machines == ("m2",)
    neighbours = [(other.name, other.drained, other.addresses) for other in made["m2"].neighbours]
    assert neighbours == [("m1", True, ("192.0.2.1",))]


def test_machines_of_several_groups_know_each_other():
    made = plans(machine("m1", "192.0.2.1/24", group="a"), machine("m2", "192.0.2.2/24", group="b"), link_key="k")
    assert [plan.neighbours[0].name for plan in made.by_machine.values()] == ["m2", "m1"]
    assert {plan.link_key for plan in made.by_machine.values()} == {"k"}


@pytest.mark.req("P-18")
def test_an_advertisement_decides_how_an_address_is_announced():
    router = announcements(peers=("tor",), announcement="BGP", communities=["65000:1"], withdraw_when_unhealthy=True)
    machines = (machine("m1", "10.0.0.2/24"), machine("m2", "10.0.0.3/24"))
    made = plans(*machines, announcements=router, keepers={VIP: "m2"})
    (address,) = made.by_machine["m1"].addresses
    assert (address.announcement, set(address.machines), address.keeper) == ("BGP", {"m1", "m2"}, "m2")
    assert address.bgp is not None
    assert address.bgp.communities == ("65000:1",)
    assert made.problems == {}
    (peer,) = made.by_machine["m1"].bgp_peers
    assert (peer.name, peer.password) == ("tor", "hidden-password")
    assert "hidden" not in repr(made.by_machine["m1"])


@pytest.mark.req("P-27")
def test_an_advertisement_without_a_router_is_a_reason():
    made = plans(machine("m1", "10.0.0.2/24"), announcements=announcements(announcement="BGP"))
    assert "no BGPPeer" in made.problems[VIP]


@pytest.mark.req("P-16")
def test_an_advertisement_may_name_interfaces():
    chosen = announcements(announcement="L2", interfaces=["eth1"], fast=True)
    machines = (machine("m1", "10.0.0.2/24", link="eth1"), machine("m2", "192.0.2.2/24"))
    made = plans(*machines, announcements=chosen)
    (address,) = made.by_machine["m1"].addresses
    assert (address.machines, address.interfaces, address.fast) == (("m1",), ("eth1",), True)
    assert "no machine has eth1" in plans(machines[1], announcements=chosen).problems[VIP]


def test_an_address_that_is_not_to_be_announced_is_not_a_problem():
    made = plans(machine("m1", "192.0.2.1/24"), announcements=announcements(announcement="None"))
    assert made.by_machine["m1"].addresses[0].announcement == "None"
    assert made.problems == {}


def test_the_version_differs_when_anything_else_does():
    alone = machine("m1", "192.0.2.1/24")
    base = plans(alone).by_machine["m1"]
    assert plans(alone).by_machine["m1"] == base
    others = [
        plans(alone, epoch=2),
        plans(alone, addresses=(placed(VIP, "m1"), placed("192.0.2.11", "m1"))),
        plans(alone, machine("m2", "192.0.2.2/24")),
        plans(alone, hubs=("hub:1",)),
        plans(alone, link_key="other"),
        plans(machine("m1", "192.0.2.1/24", drained=True)),
        plans(alone, announcements=announcements(peers=("tor",), announcement="L2")),
    ]
    assert base.version not in {made.by_machine["m1"].version for made in others}


def test_keys_are_not_in_the_text_of_a_plan():
    plan = plans(machine("m1", "192.0.2.1/24"), link_key="hidden").by_machine["m1"]
    assert "hidden" not in repr(plan)
    assert b"hidden" in msgspec.json.encode(plan)
