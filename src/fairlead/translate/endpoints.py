"""The targets of one listener: EndpointSlices, or nodes at a node port, become Target values.

    endpoint                 another endpoint is ready                     none is ready
    -----------------------  --------------------------------------------  ---------------
    ready                    ready target                                  (is one)
    serving and terminating  draining target (keeps its connections)       ready target
    anything else            draining target (positive knowledge, unlike absence)

The rule is that of kube-proxy, and applies to the whole set: all endpoints of one Service port in all slices.
A node port answers in the families of its Service only:

    families       a node with          is reached at
    -------------  -------------------  -----------------------------------------------
    IPv4           IPv4, or both        its IPv4 address
    IPv6           IPv6, or both        its IPv6 address
    IPv4, IPv6     both                 its address of the first: one node, one target
    any            none of them         none: it takes no traffic, and a condition says so

In: slices and node addresses. Out: targets by key, and the addresses that may not be targets. An endpoint that is
listed twice counts once, and its best state wins. Every port has every endpoint, so the work for one load balancer is
limited: a few slices and ports would make millions of targets. Pure.
Sources: https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#conditions
https://kubernetes.io/docs/reference/networking/virtual-ips/#traffic-to-terminating-endpoints
"""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from fairlead.api.hostname import RESOLVABLE_NAME
from fairlead.api.kubernetes import Endpoint, EndpointSlice
from fairlead.api.names import ANNOTATION_STALE, LABEL_ORIGIN_UID
from fairlead.model.condition import Condition, ConditionReason
from fairlead.model.desired import Target
from fairlead.model.keys import IPV4, IPV6, Family, TargetKey, family_of
from fairlead.translate.view import NodeAddresses, first_three, unresolved

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class TargetPolicy(msgspec.Struct, frozen=True):
    """The addresses that may be targets: ``ranges`` if given, otherwise all except local and multicast ones."""

    ranges: tuple[IPNetwork, ...] = ()
    loopback: bool = False
    host_names: bool = False
    ipv6: bool = False


#: Limit for all listeners or backends of one load balancer together.
MAX_TARGETS = 100_000

#: The slices with a port of this name and protocol, and the number that it has in each.
SlicesByPort = Mapping[tuple[str, str], Sequence[tuple[EndpointSlice, int]]]


class EndpointState(IntEnum):
    """The state of one endpoint, from worst to best."""

    #: Not ready, and not terminating.
    UNREADY = 0
    #: Terminating, and no longer serving.
    GONE = 1
    #: Terminating, and still serving: accepts connections while no endpoint of its set is ready.
    SERVING = 2
    READY = 3
    #: Ready although it is terminating, as a Service with publishNotReadyAddresses asks for.
    READY_TERMINATING = 4

    @property
    def is_ready(self) -> bool:
        """Return whether the endpoint always accepts new connections."""
        return self >= EndpointState.READY

    @property
    def is_terminating(self) -> bool:
        """Return whether the endpoint was reported as terminating."""
        return self not in {EndpointState.UNREADY, EndpointState.READY}

    @property
    def is_serving(self) -> bool:
        """Return whether the endpoint serves requests."""
        return self >= EndpointState.SERVING


def state_of(endpoint: Endpoint) -> EndpointState:
    """Return the state of one listed endpoint."""
    if endpoint.ready:
        return EndpointState.READY_TERMINATING if endpoint.terminating else EndpointState.READY
    if not endpoint.terminating:
        return EndpointState.UNREADY
    return EndpointState.SERVING if endpoint.serving else EndpointState.GONE


K = TypeVar("K", bound=Hashable)


def in_service(states: Mapping[K, EndpointState]) -> frozenset[K]:
    """Return the endpoints of a set that accept new connections: the ready ones, otherwise those that still serve."""
    ready = frozenset(key for key, state in states.items() if state.is_ready)
    return ready or frozenset(key for key, state in states.items() if state is EndpointState.SERVING)


class Admission:
    """The admission of targets of one load balancer, by ``policy`` and number.

    ``refused`` are the addresses that must not be targets. ``left`` is the remaining number of endpoints; ``full``:
    endpoints were skipped because there are too many.
    """

    def __init__(self, policy: TargetPolicy, *, limit: int = MAX_TARGETS) -> None:
        self.policy = policy
        self.refused: set[str] = set()
        self.full = False
        self.left = limit

    def has_room(self) -> bool:
        """Count one more endpoint; return whether it is within the limit."""
        if not self.left:
            self.full = True
            return False
        self.left -= 1
        return True

    def admit(self, raw: str) -> str | None:
        """Return the canonical form of an address that may be a target, None when it may not."""
        address = admit(raw, self.policy)
        if address is None:
            self.refused.add(raw)
        return address


def by_port(slices: Iterable[EndpointSlice]) -> SlicesByPort:
    """Return ``slices`` by name and protocol of their ports, as kube-proxy matches them; the first of a name counts.

    Kubernetes does not validate the numbers of these ports: one that no connection can have is left out.
    """
    slices_at: dict[tuple[str, str], list[tuple[EndpointSlice, int]]] = {}
    for endpoint_slice in slices:
        numbers: dict[tuple[str, str], int | None] = {}
        for port in endpoint_slice.ports or ():
            numbers.setdefault((port.name or "", port.protocol or "TCP"), port.port)
        for wanted, number in numbers.items():
            if number is not None and 1 <= number <= 65_535:
                slices_at.setdefault(wanted, []).append((endpoint_slice, number))
    return slices_at


def owner_of_endpoints(service: str, uid: str) -> str:
    """Return the identity of the Service that owns endpoints; a recreated Service has another identity.

    Empty if its uid is unknown.
    """
    return f"Service/{service}/{uid}" if uid else ""


def targets_from_slices(
    slices: Iterable[tuple[EndpointSlice, int]], admission: Admission, service: str
) -> dict[TargetKey, Target]:
    """Return the targets in ``slices`` of ``service``, each with the number of the port, owned by its Service."""
    by_uid: dict[str, list[tuple[EndpointSlice, int]]] = {}
    for endpoint_slice, number in slices:
        by_uid.setdefault(endpoint_slice.label(LABEL_ORIGIN_UID), []).append((endpoint_slice, number))
    states: dict[TargetKey, EndpointState] = {}
    owners: dict[TargetKey, str] = {}
    for uid, of_uid in sorted(by_uid.items()):
        for key, state in states_from_slices(of_uid, admission).items():
            states[key] = max(state, states.get(key, state))
            owners[key] = owner_of_endpoints(service, uid)
    return {
        key: replace(target, owners=(owner,)) if (owner := owners[key]) else target
        for key, target in targets_from_states(states).items()
    }


def states_from_slices(
    slices: Iterable[tuple[EndpointSlice, int]], admission: Admission, reached: set[str | None] | None = None
) -> dict[TargetKey, EndpointState]:
    """Return the best state of each endpoint in ``slices``, by its address with the number of the port.

    ``reached``: nodes that have targets of another family, whose endpoints are left out; adds those that have some now.
    """
    states: dict[TargetKey, EndpointState] = {}
    passed = frozenset(reached or ())
    for endpoint_slice, number in slices:
        for endpoint in endpoint_slice.endpoints or ():
            if not admission.has_room():
                return states
            if not endpoint.addresses or endpoint.node_name in passed:
                continue
            address = admission.admit(endpoint.addresses[0])
            if address is None:
                continue
            key, state = TargetKey(address, number), state_of(endpoint)
            states[key] = max(state, states.get(key, state))
            if reached is not None:
                reached.add(endpoint.node_name)
    return states


def targets_from_states(states: Mapping[TargetKey, EndpointState], owner: str = "") -> dict[TargetKey, Target]:
    """Return the targets of one set of endpoints; the ones that accept no new connections are draining."""
    serving, owners = in_service(states), (owner,) if owner else ()
    return {
        key: Target(
            key, draining=key not in serving, owners=owners, terminating=key in serving and state.is_terminating
        )
        for key, state in states.items()
    }


def targets_from_nodes(
    addresses: Mapping[str, EndpointState], node_port: int, admission: Admission
) -> dict[TargetKey, Target]:
    """Return one target for each node address."""
    states: dict[TargetKey, EndpointState] = {}
    for raw, state in addresses.items():
        if not admission.has_room():
            break
        address = admission.admit(raw)
        if address is not None:
            states[TargetKey(address, node_port)] = state
    return targets_from_states(states)


@lru_cache(maxsize=200_000)
def admit(raw: str, policy: TargetPolicy) -> str | None:
    """Return the canonical form of an address that may be a target, None when it may not."""
    address = _parse(raw)
    if address is None:
        return _host_name(raw) if policy.host_names and not policy.ranges else None
    if address.version == 6 and not policy.ipv6:
        return None
    link_local = any(network.is_link_local for network in policy.ranges)
    if _is_local(address, loopback=policy.loopback, link_local=link_local):
        return None  # whatever ranges say: a range that is wide by mistake must not open the hub itself
    if address.version == 6 and any(map(_is_local, _embedded(address))):
        return None
    if policy.ranges and not any(address in network for network in policy.ranges):
        return None
    return str(address)


def _is_local(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, *, loopback: bool = False, link_local: bool = False
) -> bool:
    """Return whether an address is loopback, link-local, unspecified or multicast; the flags permit some of these."""
    return (
        address.is_multicast
        or address in _THIS_NETWORK
        or address in _UNSPECIFIED
        or address == _BROADCAST
        or (address.is_loopback and not loopback)
        or (address.is_link_local and not link_local)
    )


def _embedded(address: ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    """Yield the IPv4 addresses embedded in an IPv6 address: by translation, 6to4, Teredo, or IPv4-compatible."""
    if any(address in network for network in _TRANSLATED) or (address in _COMPATIBLE and int(address) > 1):
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.sixtofour is not None:
        yield address.sixtofour
    yield from address.teredo or ()


_THIS_NETWORK, _UNSPECIFIED = ipaddress.ip_network("0.0.0.0/8"), ipaddress.ip_network("::/128")
_BROADCAST = ipaddress.ip_address("255.255.255.255")
#: RFC 6052, RFC 8215 and RFC 2765. Of the second one only prefixes of 96 bits, which is how translators use it.
_TRANSLATED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96")))
_COMPATIBLE = ipaddress.ip_network("::/96")

#: First labels of names that common /etc/hosts files assign to loopback, with or without a domain.
_LOOPBACK_LABELS = frozenset(("localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback", "loopback"))


def is_host_name(raw: str) -> bool:
    """Return whether an address is a host name that could be a target."""
    return _host_name(raw) is not None


def _host_name(raw: str) -> str | None:
    name = raw.lower().removesuffix(".")
    labels = name.split(".")
    local = labels[0] in _LOOPBACK_LABELS or labels[-1] == "localhost"
    return name if RESOLVABLE_NAME.fullmatch(name) and not local else None


def _parse(raw: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the parsed address, IPv4-mapped IPv6 as IPv4; None if the text is not an address."""
    try:
        address = ipaddress.ip_address(raw)
    except ValueError:
        return None
    if address.version == 4:
        return address
    # A zone names an interface of one machine, which has no meaning on another.
    return None if address.scope_id is not None else address.ipv4_mapped or address


def nodes_from_slices(slices: Iterable[EndpointSlice]) -> NodeAddresses:
    """Return the ready and the terminating nodes in each family."""
    ready: dict[Family, dict[str, str]] = {IPV4: {}, IPV6: {}}
    leaving: dict[Family, dict[str, tuple[str, bool]]] = {IPV4: {}, IPV6: {}}
    stale: dict[Family, str] = {}
    for endpoint_slice in slices:
        if why := endpoint_slice.annotation(ANNOTATION_STALE):
            stale.setdefault(IPV6 if endpoint_slice.address_type == IPV6 else IPV4, why)
        for endpoint in endpoint_slice.endpoints or ():
            if not endpoint.addresses:
                continue
            # An invalid address is rejected where the others are admitted, and named there.
            address = endpoint.addresses[0]
            family, name = family_of(address) or IPV4, endpoint.node_name or address
            if endpoint.ready:
                ready[family][name] = address
            elif endpoint.terminating:
                leaving[family][name] = (address, endpoint.serving)
    return NodeAddresses(ready, stale, leaving)


def node_families(families: Sequence[Family], *, ipv6: bool) -> tuple[Family, ...]:
    """Return the families in which nodes are reached; ``ipv6``: the provider supports it. The default is IPv4."""
    return tuple(family for family in tuple(families) or (IPV4,) if ipv6 or family == IPV4)


def addresses_in(nodes: NodeAddresses, families: Sequence[Family]) -> dict[str, EndpointState]:
    """Return one address of each node, from the first of ``families`` in which the node has one."""
    chosen: dict[str, tuple[str, EndpointState]] = {}
    for family in reversed(families):
        for name, (address, serves) in nodes.leaving.get(family, {}).items():
            chosen[name] = (address, EndpointState.SERVING if serves else EndpointState.GONE)
    for family in reversed(families):
        for name, address in nodes.ready.get(family, {}).items():
            chosen[name] = (address, EndpointState.READY)
    return dict(chosen.values())


def local_addresses(
    slices: Iterable[EndpointSlice], nodes: NodeAddresses, families: Sequence[Family]
) -> dict[str, EndpointState]:
    """Return one address of each node with a local endpoint, and the state of its endpoints there.

    With externalTrafficPolicy Local, a node serves only its own endpoints, so it has the state of the best one. Only
    Ready nodes count.
    """
    local: dict[str, EndpointState] = {}
    for endpoint_slice in slices:
        for endpoint in endpoint_slice.endpoints or ():
            if endpoint.addresses:
                state = state_of(endpoint)
                local[endpoint.addresses[0]] = max(state, local.get(endpoint.addresses[0], state))
    chosen: dict[str, str] = {}
    for family in reversed(families):
        for name, address in nodes.ready.get(family, {}).items():
            if address in local and (name not in chosen or local[address] >= local[chosen[name]]):
                chosen[name] = address
    return {address: local[address] for address in chosen.values()}


def without_family(nodes: NodeAddresses, families: Sequence[Family]) -> Condition | None:
    """Return condition ResolvedRefs if ready nodes have no address in ``families``; None if all have one.

    The message names three nodes and no number, so that another node does not cause a status write for each load
    balancer.
    """
    there = {name for by_name in nodes.ready.values() for name in by_name}
    missing = there - {name for family in families for name in nodes.ready.get(family, {})}
    if not missing or not families:
        return None
    family = " or ".join(families)
    if missing == there:
        message = (
            f"no node of the member has an {family} address ({first_three(missing)} have none). Add one to their "
            "status.addresses, set spec.ipFamilies to a family that they have, or spec.targets to Pod"
        )
    else:
        message = (
            f"nodes without an {family} address take no traffic ({first_three(missing)}): add one to their "
            "status.addresses; all other nodes are served"
        )
    return unresolved(ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, message)
