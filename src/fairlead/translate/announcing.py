"""The announcements of addresses: from BGPPeers, Advertisements and placed load balancers to the plans of machines.

    BGPPeer + its Secret ─┐
    Advertisement ────────┴─accept──► Announcements ──announce──► AnnouncedAddress, the same for all machines
                                           │      └──peers_of──► BgpPeerPlan of one machine
                                           └ conditions, and the specs that are in force

An invalid object keeps its last accepted spec from its status, so that a typo withdraws no route. If a password cannot
be read, the machine continues with the one that it has. All machines announce an address with the same attributes,
because a router uses only one next hop if the attributes differ.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from fairlead.api.announcing import Advertisement, AdvertisementSpec, BGPPeer, BGPPeerSpec, MachineChoice
from fairlead.errors import BadConfiguration
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.in_words import listed
from fairlead.model.machine import AnnouncedAddress, BgpAttributes, BgpPeerPlan

S = TypeVar("S", bound=msgspec.Struct)

#: Entry of a Secret that holds the password of a session.
PASSWORD = "password"  # noqa: S105 - the name of an entry
#: The kernel signs TCP packets with keys of this length at most.
_LONGEST_PASSWORD = 80
_WELL_KNOWN = {
    "graceful-shutdown": "65535:0",
    "blackhole": "65535:666",
    "no-export": "65535:65281",
    "no-advertise": "65535:65282",
}


class JoinedMachine(msgspec.Struct, frozen=True):
    """A proxy machine, with the properties by which machines are selected."""

    name: str
    group: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


class PlacedAddress(msgspec.Struct, frozen=True):
    """An address of load balancers, and the machines that serve it, in the order of the recorded placement.

    ``load_balancers`` are ``namespace/name`` at the hub; ``services`` the other names by which an Advertisement may
    select the address, such as ``member/namespace/name``.
    """

    address: str
    machines: tuple[str, ...]
    load_balancers: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    class_name: str = ""
    pool: str = ""


class _Peer(NamedTuple):
    name: str
    spec: BGPPeerSpec
    #: None while it cannot be read.
    password: str | None


class Announcements(msgspec.Struct, frozen=True):
    """The announcements in effect, and the conditions of each object by name."""

    peers: tuple[_Peer, ...] = ()
    #: By precedence.
    advertisements: tuple[tuple[str, AdvertisementSpec], ...] = ()
    peer_conditions: Mapping[str, Sequence[Condition]] = msgspec.field(default_factory=dict[str, Sequence[Condition]])
    conditions: Mapping[str, Condition] = msgspec.field(default_factory=dict[str, Condition])

    def accepted_peer(self, name: str) -> BGPPeerSpec | None:
        """Return the spec of a BGPPeer in effect, for its status; None if it never had a valid one."""
        return next((peer.spec for peer in self.peers if peer.name == name), None)

    def accepted(self, name: str) -> AdvertisementSpec | None:
        """Return the spec of an Advertisement in effect, for its status; None if it never had a valid one."""
        return next((spec for other, spec in self.advertisements if other == name), None)

    def selecting(self, placed: PlacedAddress) -> tuple[str, AdvertisementSpec] | None:
        """Return the name of the Advertisement that selects an address; None if none does."""
        return next((entry for entry in self.advertisements if _selects(entry[1], placed)), None)

    def peers_of(self, machine: JoinedMachine) -> tuple[BgpPeerPlan, ...]:
        """Return the routers that a machine has sessions with, by name."""
        return tuple(_peer_plan(peer) for peer in self.peers if is_chosen(peer.spec.machines, machine))

    def announce(
        self, placed: PlacedAddress, machines: Iterable[JoinedMachine], *, keeper: str = ""
    ) -> tuple[AnnouncedAddress, str]:
        """Return how an address is announced, and a sentence that says why it is not; empty if it is.

        ``machines`` are all joined machines; ``keeper`` is the result of ``choose_keeper``.
        """
        selected = self.selecting(placed)
        if selected is None:
            return _not_announced(placed), _not_selected(placed, bool(self.advertisements))
        name, spec = selected
        if spec.announcement == "None":
            return _not_announced(placed), ""
        joined = [machine for machine in machines if machine.name in placed.machines]
        chosen = {machine.name for machine in joined if is_chosen(spec.machines, machine)}
        if not chosen:
            return _not_announced(placed), (
                f"spec.machines of Advertisement {name} selects none of the machines that serve {placed.address} "
                f"({listed(placed.machines, 5) or 'no machine'}); add one, or move the load balancer"
            )
        announced = AnnouncedAddress(
            address=placed.address,
            announcement=spec.announcement,
            machines=tuple(machine for machine in placed.machines if machine in chosen),
            load_balancers=placed.load_balancers,
            interfaces=tuple(spec.interfaces or ()),
            fast=spec.fast,
            bgp=None if spec.announcement == "L2" else _attributes(spec, placed.address),
            withdraw_when_unhealthy=spec.withdraw_when_unhealthy,
            anycast=spec.anycast,
            keeper=keeper if keeper in chosen else "",
        )
        return announced, self._without_peer(name, spec, joined) if spec.announcement == "BGP" else ""

    def _without_peer(self, name: str, spec: AdvertisementSpec, joined: Sequence[JoinedMachine]) -> str:
        wanted = set(spec.peers or ())
        lacking = [
            machine.name
            for machine in joined
            if is_chosen(spec.machines, machine)
            and not any(
                is_chosen(peer.spec.machines, machine) and (not wanted or peer.name in wanted) for peer in self.peers
            )
        ]
        if not lacking:
            return ""
        which = f" of spec.peers in Advertisement {name}" if wanted else ""
        return f"no BGPPeer{which} selects {listed(lacking, 5)}; create one, or correct its spec.machines"


def accept(
    peers: Iterable[BGPPeer], advertisements: Iterable[Advertisement], secrets: Mapping[str, Mapping[str, bytes] | None]
) -> Announcements:
    """Return the announcements in effect.

    ``secrets`` has the entries of each Secret in the hub's namespace that a BGPPeer names; None if it is missing.
    """
    in_force: list[_Peer] = []
    peer_conditions: dict[str, Sequence[Condition]] = {}
    for peer in sorted(peers, key=lambda obj: obj.metadata.name):
        name = peer.metadata.name
        spec, condition = _accepted(peer.spec, peer.status.accepted, _peer_problem(peer.spec))
        resolved = Condition(ConditionType.RESOLVED_REFS, True, ConditionReason.RESOLVED_REFS)
        password: str | None = ""
        if spec is not None and spec.password_secret:
            try:
                password = _password(spec.password_secret, secrets.get(spec.password_secret))
            except BadConfiguration as error:
                resolved = replace(resolved, status=False, reason=ConditionReason.INVALID, message=error.sentence)
                password = None
        peer_conditions[name] = (condition, resolved)
        if spec is not None and not peer.deleting:
            in_force.append(_Peer(name, spec, password))
    ours: list[tuple[str, AdvertisementSpec]] = []
    conditions: dict[str, Condition] = {}
    names = frozenset(peer.name for peer in in_force)
    for advertisement in sorted(advertisements, key=attrgetter("age_order")):
        name = advertisement.metadata.name
        problem = _advertisement_problem(advertisement.spec, names)
        spec, conditions[name] = _accepted(advertisement.spec, advertisement.status.accepted, problem)
        if spec is not None and not advertisement.deleting:
            ours.append((name, spec))
    # Stable: the older first of equally precise ones.
    ours.sort(key=lambda entry: (not entry[1].services, not entry[1].pools, not entry[1].classes))
    return Announcements(tuple(in_force), tuple(ours), peer_conditions, conditions)


def choose_keeper(machines: Sequence[str], former: str, healthy: Mapping[str, bool]) -> str:
    """Return the machine that keeps its route when no machine sees a healthy target.

    ``machines`` serve the address. ``healthy`` has the machines that can announce it now (reachable, not drained, proxy
    alive), and whether each sees a healthy target. The present keeper stays while it can, so the choice rarely changes.
    """
    able = [machine for machine in machines if machine in healthy]
    if former in able and (healthy[former] or not any(healthy[machine] for machine in able)):
        return former
    best = next((machine for machine in able if healthy[machine]), "") or next(iter(able), "")
    return best or (former if former in machines else "")


def _accepted(spec: S, last: S | None, problem: str) -> tuple[S | None, Condition]:
    """Return the spec in effect, and the condition Accepted."""
    if not problem:
        return spec, Condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED)
    kept = "" if last is None else "; the last accepted spec is still in force"
    return last, Condition(ConditionType.ACCEPTED, False, ConditionReason.INVALID, f"{problem}{kept}")


def _peer_problem(spec: BGPPeerSpec) -> str:
    if not spec.address:
        return "" if spec.interface else "spec: address or interface is required"
    try:
        address = ipaddress.ip_address(spec.address)
    except ValueError:
        return f"spec.address: {spec.address!r} is not an IP address; write it without port, name and zone"
    if address.is_link_local and address.version == 6 and not spec.interface:
        return f"spec.interface is required: {address} is a link-local address"
    if spec.interface and not (address.is_link_local and address.version == 6):
        return f"spec.interface: {address} is not a link-local address; remove the interface"
    if address.is_unspecified or address.is_multicast or address.is_loopback:
        return f"spec.address: {address} is not the address of a router"
    if spec.hops > 1 and spec.interface:
        return "spec.hops: a link-local address is one hop away; set 1, or remove spec.interface"
    return ""


def _password(secret: str, entries: Mapping[str, bytes] | None) -> str:
    """Return the password of a session.

    Raises:
        BadConfiguration: the password cannot be used; the sentence does not contain it.
    """
    field = f"spec.passwordSecret: Secret {secret}"
    if entries is None:
        raise BadConfiguration(f"{field} is not in the hub's namespace; create it with an entry {PASSWORD}")
    if PASSWORD not in entries:
        raise BadConfiguration(f"{field} has no entry {PASSWORD}; add it")
    text = entries[PASSWORD].decode("ascii", "replace").rstrip("\r\n")
    if not text or len(text) > _LONGEST_PASSWORD or not all("!" <= sign <= "~" and sign != '"' for sign in text):
        raise BadConfiguration(
            f"{field}: entry {PASSWORD} must have 1 to {_LONGEST_PASSWORD} printable ASCII characters, no "
            "spaces and no quotation marks"
        )
    return text


def _advertisement_problem(spec: AdvertisementSpec, peers: Collection[str]) -> str:
    if missing := [name for name in spec.peers or () if name not in peers]:
        return f"spec.peers: no usable BGPPeer {listed(missing, 5)}; create it, or remove the name"
    for index, community in enumerate(spec.communities or ()):
        parts = [int(part) for part in community.split(":")] if community not in _WELL_KNOWN else []
        highest = 65_535 if len(parts) == 2 else 4_294_967_295
        if any(part > highest for part in parts):
            return f"spec.communities[{index}]: each number of {community} must be at most {highest}"
    return ""


def _peer_plan(peer: _Peer) -> BgpPeerPlan:
    spec = peer.spec
    return BgpPeerPlan(
        name=peer.name,
        asn=spec.asn,
        local_asn=spec.local_asn,
        address=str(ipaddress.ip_address(spec.address)) if spec.address else "",
        interface=spec.interface,
        port=spec.port,
        password=peer.password or "",
        keep_password=peer.password is None,
        hold_s=spec.hold_time_seconds,
        bfd=spec.bfd,
        bfd_interval_ms=spec.bfd_interval_ms,
        hops=spec.hops,
        ttl_security=spec.ttl_security,
        graceful_restart=spec.graceful_restart,
    )


def _attributes(spec: AdvertisementSpec, address: str) -> BgpAttributes:
    of_family = ipaddress.ip_address(address)
    length = spec.aggregation.ipv4_length if of_family.version == 4 else spec.aggregation.ipv6_length
    aggregate = ipaddress.ip_network((of_family, length), strict=False) if length else None
    return BgpAttributes(
        communities=tuple(sorted({_WELL_KNOWN.get(text, _plain(text)) for text in spec.communities or ()})),
        local_preference=spec.local_preference,
        med=spec.med,
        prepend=spec.prepend,
        aggregate=str(aggregate) if aggregate is not None and length < of_family.max_prefixlen else "",
        peers=tuple(sorted(spec.peers or ())),
    )


def _plain(community: str) -> str:
    """Return a community without leading zeros; well-known names are unchanged."""
    return community if community in _WELL_KNOWN else ":".join(str(int(part)) for part in community.split(":"))


def is_chosen(choice: MachineChoice, machine: JoinedMachine) -> bool:
    """Return whether a selection of machines includes this one."""
    labels = choice.match_labels or {}
    if not choice.names and not choice.groups and not labels:
        return True
    by_labels = bool(labels) and all(machine.labels.get(key) == value for key, value in labels.items())
    return machine.name in (choice.names or ()) or machine.group in (choice.groups or ()) or by_labels


def _selects(spec: AdvertisementSpec, placed: PlacedAddress) -> bool:
    names = {*placed.load_balancers, *placed.services}
    return (
        (not spec.pools or placed.pool in spec.pools)
        and (not spec.classes or placed.class_name in spec.classes)
        and (not spec.services or not names.isdisjoint(spec.services))
    )


def _not_announced(placed: PlacedAddress) -> AnnouncedAddress:
    return AnnouncedAddress(address=placed.address, machines=placed.machines, load_balancers=placed.load_balancers)


def _not_selected(placed: PlacedAddress, any_exist: bool) -> str:
    pool = f"AddressPool {placed.pool}" if placed.pool else "no AddressPool"
    where = f"{placed.address} ({pool}, LoadBalancerClass {placed.class_name or 'default'})"
    if not any_exist:
        return f"there is no usable Advertisement, so {where} is not announced; create one"
    return f"no Advertisement selects {where}; add its pool or class to one, or create another Advertisement"
