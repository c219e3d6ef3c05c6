"""The plans of proxy machines: which addresses each may announce, how, and in which order of machines.

    addresses of load balancers ─┐
    links that machines report ──┼──► one plan for each machine, with a version that differs when anything else does
    drained machines ────────────┘

An address in the subnet of a link of at least one machine is announced there by layer 2; the machines on that subnet
are in rendezvous order, so that addresses spread evenly and only those of a machine that leaves move. Drained machines
announce nothing. Pure, and the same for the same input on every hub replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_interface

import msgspec

from fairlead.api.proxymachine import MachineLink, ProxyMachine
from fairlead.model.machine import AnnouncedAddress, MachinePlan, Neighbour

_Network = IPv4Network | IPv6Network


class PlanInput(msgspec.Struct, frozen=True, kw_only=True):
    """What plans depend on besides the machines: ``addresses`` of load balancers, with the names of these."""

    addresses: Mapping[str, Sequence[str]]
    epoch: int
    hubs: Sequence[str] = ()
    #: Returns the key of a group.
    link_key: Callable[[str], str] = lambda _group: ""


def build_plans(machines: Iterable[ProxyMachine], given: PlanInput) -> dict[str, MachinePlan]:
    """Return the plan of each machine by its name."""
    by_group: dict[str, list[ProxyMachine]] = {}
    for machine in sorted(machines, key=lambda machine: machine.metadata.name):
        by_group.setdefault(machine.spec.group, []).append(machine)
    plans: dict[str, MachinePlan] = {}
    for group, members in by_group.items():
        addresses = _addresses(members, given.addresses)
        neighbours = [_neighbour(member) for member in members]
        for member in members:
            name = member.metadata.name
            plan = MachinePlan(
                machine=name,
                version="",
                epoch=given.epoch,
                group=group,
                drained=member.spec.drained,
                addresses=addresses,
                neighbours=tuple(neighbour for neighbour in neighbours if neighbour.name != name),
                hubs=tuple(given.hubs),
                link_key=given.link_key(group),
            )
            version = blake2b(msgspec.json.encode(plan), digest_size=10).hexdigest()
            plans[name] = msgspec.structs.replace(plan, version=version)
    return plans


def rendezvous(address: str, machines: Iterable[str]) -> tuple[str, ...]:
    """Return ``machines`` in their order for ``address``; that of the others stays when one leaves."""
    return tuple(sorted(machines, key=lambda name: blake2b(f"{address}\0{name}".encode(), digest_size=8).digest()))


def subnets(links: Iterable[MachineLink]) -> list[_Network]:
    """Return the networks on which a machine with these links can announce addresses."""
    interfaces = [ip_interface(address) for link in links if link.name != "lo" for address in link.addresses]
    networks = [interface.network for interface in interfaces]
    return [
        network
        for network in networks
        if network.num_addresses > 1 and not (network.is_loopback or network.is_link_local)
    ]


def _addresses(
    members: Sequence[ProxyMachine], load_balancers: Mapping[str, Sequence[str]]
) -> tuple[AnnouncedAddress, ...]:
    networks = {member.metadata.name: subnets(member.status.links) for member in members if not member.spec.drained}
    return tuple(
        _announced(address, load_balancers[address], networks) for address in sorted(load_balancers, key=_in_order)
    )


def _announced(
    address: str, load_balancers: Sequence[str], networks: Mapping[str, Sequence[_Network]]
) -> AnnouncedAddress:
    ip = ip_address(address)
    near = [name for name, mine in networks.items() if any(ip in network for network in mine)]
    return AnnouncedAddress(
        address=address,
        announcement="L2" if near else "None",
        machines=rendezvous(address, near),
        load_balancers=tuple(sorted(load_balancers)),
    )


def _in_order(address: str) -> tuple[int, int]:
    ip = ip_address(address)
    return ip.version, int(ip)


def _neighbour(machine: ProxyMachine) -> Neighbour:
    addresses = [str(ip_interface(address).ip) for link in machine.status.links for address in link.addresses]
    return Neighbour(
        name=machine.metadata.name,
        addresses=tuple(address for address in addresses if not ip_address(address).is_loopback),
        drained=machine.spec.drained,
    )
