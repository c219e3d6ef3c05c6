"""The plans of proxy machines: which addresses each may announce, how, and in which order of machines.

    addresses of load balancers, and their machines ─┐
    links that machines report ──────────────────────┼──► one plan for each machine; unannounced addresses
    Advertisements and BGPPeers in force ────────────┘

Without an Advertisement that selects it, an address in the subnet of a link of a machine is announced there by layer 2.
The machines of an address are in the order of its recorded placement, and without one no machine announces it. Pure,
and equal on every replica.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network, ip_address, ip_interface

import msgspec

from fairlead.api.intent import IntentObject, MachinePlacement
from fairlead.api.meta import condition_of
from fairlead.api.names import ANNOTATION_ORIGIN, DEFAULT_CLASS
from fairlead.api.proxymachine import MachineLink, ProxyMachine
from fairlead.model.in_words import listed
from fairlead.model.machine import AnnouncedAddress, EnvoyUpgrade, MachinePlan, Neighbour
from fairlead.translate.announcing import Announcements, JoinedMachine, PlacedAddress
from fairlead.translate.placement import announcing_machines

_Network = IPv4Network | IPv6Network


class PlanInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of plans, apart from the machines.

    ``keepers`` are the machines that keep the route of an address without a healthy target. ``egress_ports`` are the
    source ports of egress addresses.
    """

    addresses: Sequence[PlacedAddress]
    epoch: int
    announcements: Announcements = Announcements()
    keepers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    egress_ports: Mapping[str, tuple[int, int]] = msgspec.field(default_factory=dict[str, tuple[int, int]])
    hubs: Sequence[str] = ()
    link_key: str = ""


class MachinePlans(msgspec.Struct, frozen=True):
    """The plan of each machine by name, and by address the reason why no machine announces it."""

    by_machine: Mapping[str, MachinePlan] = msgspec.field(default_factory=dict[str, MachinePlan])
    problems: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


def build_plans(machines: Iterable[ProxyMachine], given: PlanInput) -> MachinePlans:
    """Return the plans of all machines."""
    members = sorted(machines, key=lambda machine: machine.metadata.name)
    addresses: list[AnnouncedAddress] = []
    problems: dict[str, str] = {}
    for placed in sorted(given.addresses, key=lambda placed: _in_order(placed.address)):
        keeper = given.keepers.get(placed.address, "")
        announced, problem = announcement_of(placed, members, given.announcements, keeper=keeper)
        if ports := given.egress_ports.get(placed.address, ()):
            announced = msgspec.structs.replace(announced, egress_ports=ports)
        addresses.append(announced)
        if problem:
            problems[placed.address] = problem
    busy = {name for announced in addresses for name in announced.machines}
    withdrawn = {member.metadata.name for member in members if member.drained} - busy
    neighbours = [_neighbour(member, drained=member.metadata.name in withdrawn) for member in members]
    plans: dict[str, MachinePlan] = {}
    for member in members:
        name = member.metadata.name
        plan = MachinePlan(
            machine=name,
            version="",
            epoch=given.epoch,
            group=member.spec.group,
            drained=name in withdrawn,
            addresses=tuple(addresses),
            neighbours=tuple(neighbour for neighbour in neighbours if neighbour.name != name),
            bgp_peers=given.announcements.peers_of(_joined(member)),
            hubs=tuple(given.hubs),
            link_key=given.link_key,
            upgrade=upgrade_now(member),
        )
        version = blake2b(msgspec.json.encode(plan), digest_size=10).hexdigest()
        plans[name] = msgspec.structs.replace(plan, version=version)
    return MachinePlans(plans, problems)


def machines_by_address(
    load_balancers: Iterable[IntentObject], drained: Collection[str], *, otherwise: MachinePlacement | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the machines that announce each address, by its recorded placement; the first one owns it.

    ``otherwise`` is the placement without a record. None for an address whose machines are all drained: nothing takes
    it over, so that was asked for.
    """
    records: dict[str, list[MachinePlacement | None]] = {}
    for obj in load_balancers:
        record = obj.status.placement or otherwise
        if record is not None and {*record.machines, *record.joining} <= set(drained):
            record = None
        for address, _pool in obj.status.allocation.places:
            records.setdefault(address, []).append(record)
    return {address: announcing_machines(of_address) for address, of_address in records.items()}


def placed_addresses(
    load_balancers: Iterable[IntentObject], machines: Mapping[str, tuple[str, ...]]
) -> list[PlacedAddress]:
    """Return the recorded addresses of load balancers, each once; ``machines`` are those that announce each."""
    by_address: dict[str, PlacedAddress] = {}
    for obj in load_balancers:
        origin = obj.annotation(ANNOTATION_ORIGIN)
        for address, pool in obj.status.allocation.places:
            other = by_address.get(address)
            by_address[address] = PlacedAddress(
                address=address,
                machines=machines.get(address, ()),
                load_balancers=(*(other.load_balancers if other else ()), str(obj.key)),
                services=(*(other.services if other else ()), *((origin,) if origin else ())),
                class_name=obj.class_name or DEFAULT_CLASS,
                pool=pool,
            )
    return list(by_address.values())


def announcement_of(
    placed: PlacedAddress, members: Sequence[ProxyMachine], announcements: Announcements, *, keeper: str = ""
) -> tuple[AnnouncedAddress, str]:
    """Return how an address is announced, and the reason if it is not; empty if it is, or should not be."""
    # A drained machine announces an address until another machine has taken it over and the record no longer names it.
    usable = [member for member in members if member.metadata.name in placed.machines]
    in_use = {member.metadata.name for member in usable}
    placed = msgspec.structs.replace(placed, machines=tuple(name for name in placed.machines if name in in_use))
    if not usable:
        return _unannounced(placed), _no_machine(placed.address, members)
    if announcements.selecting(placed) is None:
        near = msgspec.structs.replace(_unannounced(placed), announcement="L2")
        return _on_its_subnet(near, usable, "no Advertisement selects it")
    announced, problem = announcements.announce(placed, map(_joined, usable), keeper=keeper)
    if announced.announcement == "L2" and not problem:
        return _on_its_subnet(announced, usable, "the Advertisement announces by L2 only")
    return announced, problem


def subnets(links: Iterable[MachineLink]) -> list[_Network]:
    """Return the networks on which a machine with these links can announce addresses."""
    networks = [interface.network for link in links if link.name != "lo" for interface in interfaces_of(link.addresses)]
    return [
        network
        for network in networks
        if network.num_addresses > 1 and not (network.is_loopback or network.is_link_local)
    ]


def only_announced_by(machine: ProxyMachine, machines: Iterable[ProxyMachine]) -> list[str]:
    """Return the addresses that no other machine announces or can take over if this one is drained."""
    others = [
        other
        for other in machines
        if other.metadata.name != machine.metadata.name and not other.drained and is_ready(other)
    ]
    elsewhere = {state.address for other in others for state in other.status.addresses if state.announced}
    networks = [network for other in others for network in subnets(other.status.links)]
    return [
        state.address
        for state in machine.status.addresses
        if state.announced
        and state.address not in elsewhere
        and not any(ip_address(state.address) in network for network in networks)
    ]


def is_ready(machine: ProxyMachine) -> bool:
    """Return whether a machine serves, by its status."""
    ready = condition_of(machine.status.conditions, "Ready")
    return ready is not None and ready.status == "True" and not machine.deleting


def upgrade_now(machine: ProxyMachine) -> EnvoyUpgrade | None:
    """Return the Envoy upgrade that a machine should apply now."""
    wanted, state = machine.spec.upgrade, machine.status.upgrade
    if wanted is None or state.phase != "Restarting" or state.requested != wanted.requested:
        return None
    return EnvoyUpgrade(requested=wanted.requested, binary=wanted.binary, version=wanted.version)


def interfaces_of(addresses: Iterable[str]) -> Iterator[IPv4Interface | IPv6Interface]:
    """Yield the valid addresses with prefix length; reports of machines may contain invalid ones."""
    for address in addresses:
        with suppress(ValueError):
            yield ip_interface(address)


def _on_its_subnet(
    announced: AnnouncedAddress, usable: Sequence[ProxyMachine], otherwise: str
) -> tuple[AnnouncedAddress, str]:
    """Keep the machines that have the address in the subnet of a link, or one of the named interfaces."""
    ip = ip_address(announced.address)
    wanted = set(announced.interfaces)

    def reaches(member: ProxyMachine) -> bool:
        links = member.status.links
        if wanted:
            return any(link.name in wanted for link in links)
        return any(ip in network for network in subnets(links))

    near = {member.metadata.name for member in usable if reaches(member)}
    machines = tuple(name for name in announced.machines if name in near)
    if machines:
        return msgspec.structs.replace(announced, machines=machines), ""
    problem = (
        f"no machine has {' or '.join(sorted(wanted))}" if wanted else "no machine has a link in the subnet"
    ) + f" of {announced.address}, and {otherwise}"
    step = "add an address of the subnet to a machine, or create an Advertisement for it"
    return msgspec.structs.replace(announced, announcement="None", machines=()), f"{problem}; {step}"


def _unannounced(placed: PlacedAddress) -> AnnouncedAddress:
    return AnnouncedAddress(
        address=placed.address, machines=placed.machines, load_balancers=tuple(sorted(placed.load_balancers))
    )


def _no_machine(address: str, members: Sequence[ProxyMachine]) -> str:
    if not members:
        return f"no proxy machine has joined, so {address} is not announced; add one with: fairlead proxy token"
    if all(member.drained for member in members):
        names = listed([member.metadata.name for member in members], 5)
        return f"all machines that could announce {address} are drained ({names}); use one with: fairlead proxy undrain"
    return f"no proxy machine serves {address}; add one to its group with: fairlead proxy token"


def _joined(machine: ProxyMachine) -> JoinedMachine:
    return JoinedMachine(machine.metadata.name, machine.spec.group, machine.metadata.labels or {})


def _in_order(address: str) -> tuple[int, int]:
    ip = ip_address(address)
    return ip.version, int(ip)


def _neighbour(machine: ProxyMachine, *, drained: bool) -> Neighbour:
    addresses = [interface.ip for link in machine.status.links for interface in interfaces_of(link.addresses)]
    return Neighbour(
        name=machine.metadata.name,
        addresses=tuple(str(address) for address in addresses if not address.is_loopback),
        drained=drained,
    )
