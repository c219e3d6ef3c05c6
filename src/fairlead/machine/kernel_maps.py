"""The nftables maps of load balancers that the kernel forwards: load balancer + targets in service -> elements.

    services   address . protocol . port          : goto random-3    how the target is chosen, and of how many slots
    targets    address . protocol . port . slot   : target . port    one entry for each slot
    sources    address . protocol . port          : goto own-address whose address the target sees, unless the client's
    ports      address . protocol . port                             refused while no target is in service

The table ``inet fairlead`` and its chains never change; load balancers are elements of maps, twice: of IPv4 and IPv6.
So a change is one transaction of as many elements as differ, and connections of others are not touched.
A small set of equal targets has one slot each. Weights have slots in proportion. With affinity the slot is a hash of
the client's address, and slots are filled by rendezvous hashing: a target that leaves moves its own clients and few
others, and every machine fills them alike. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from ipaddress import ip_address
from math import gcd
from random import Random
from typing import Any, NamedTuple

import msgspec

from fairlead.api.json_text import decode
from fairlead.model.machine import ForwardedLoadBalancer, ForwardedPort, ForwardedTarget, target_name

TABLE = "inet fairlead"
#: A chain without rules, by which a later process knows that the chains and maps are those of this module.
LAYOUT = "layout-1"
#: Up to here each slot number that weights need has a chain of its own; above there are these.
_EXACT, _SIZES = 16, (64, 256, 1024)
#: Slots for each target with affinity, at least.
_SLOTS_EACH = 8
_KINDS = ("services", "targets", "sources", "ports")
_FAMILIES = {4: ("ip", "ipv4_addr"), 6: ("ip6", "ipv6_addr")}

#: Elements by (map, key); the value is empty in a set.
Elements = Mapping[tuple[str, str], str]


class Flow(NamedTuple):
    """All connections of one port of a load balancer, at one address, with one target."""

    protocol: str
    address: str
    port: int
    target: str
    target_port: int


def skeleton() -> str:
    """Return the commands that make the table with its chains and empty maps; only for a table that is missing."""
    return "\n".join(_skeleton()) + "\n"


def _skeleton() -> Iterator[str]:
    yield f"table {TABLE} {{"
    yield f" chain {LAYOUT} {{ }}"
    for version, (payload, kind) in _FAMILIES.items():
        key = f"{kind} . inet_proto . inet_service"
        slot = f"{payload} daddr . meta l4proto . th dport . numgen random mod 65536"
        yield f" map services{version} {{ type {key} : verdict; }}"
        yield f" map targets{version} {{ typeof {slot} : {payload} daddr . th dport; }}"
        yield f" map sources{version} {{ type {key} : verdict; }}"
        yield f" set ports{version} {{ type {key}; }}"
    chains = {"random": (*range(1, _EXACT + 1), *_SIZES), "hash": _SIZES}
    for name in ("forward-in", "forward-out", "refuse", "keep-address", "own-address"):
        yield f" chain {name} {{ }}"
    for name, sizes in chains.items():
        for size in sizes:
            yield f" chain {name}-{size} {{ }}"
    for name, hook in (("arriving", "prerouting"), ("local", "output")):
        # As dstnat - 5, a name that nftables does not know for the hook output.
        yield f" chain {name} {{ type nat hook {hook} priority -105; policy accept; }}"
    yield " chain leaving { type nat hook postrouting priority srcnat - 5; policy accept; }"
    yield " chain refusing { type filter hook input priority filter - 5; policy accept; }"
    yield "}"
    for name in ("arriving", "local"):
        yield f"add rule {TABLE} {name} meta l4proto {{ tcp, udp }} goto forward-in"
    yield f"add rule {TABLE} leaving ct status dnat goto forward-out"
    yield f"add rule {TABLE} refusing ct state new meta l4proto {{ tcp, udp }} goto refuse"
    yield f"add rule {TABLE} own-address masquerade"
    for version, (payload, _kind) in _FAMILIES.items():
        port = f"{payload} daddr . meta l4proto . th dport"
        original = f"ct original {payload} daddr . meta l4proto . ct original proto-dst"
        refused = "icmp port-unreachable" if version == 4 else "icmpv6 port-unreachable"
        yield f"add rule {TABLE} forward-in {port} vmap @services{version}"
        which = f"meta nfproto ipv{version} meta l4proto {{ tcp, udp }}"
        yield f"add rule {TABLE} forward-out {which} {original} vmap @sources{version}"
        yield f"add rule {TABLE} keep-address snat {payload} to ct original {payload} daddr"
        yield f"add rule {TABLE} refuse {port} @ports{version} meta l4proto tcp reject with tcp reset"
        yield f"add rule {TABLE} refuse {port} @ports{version} reject with {refused}"
        for name, sizes in chains.items():
            for size in sizes:
                slot = f"numgen random mod {size}" if name == "random" else f"jhash {payload} saddr mod {size}"
                yield f"add rule {TABLE} {name}-{size} dnat {payload} to {port} . {slot} map @targets{version}"


def elements_of(
    load_balancer: ForwardedLoadBalancer, *, down: Collection[str] = (), shared: Collection[str] = ()
) -> dict[tuple[str, str], str]:
    """Return the elements of a load balancer without the targets that are ``down``, by ``target_name``.

    ``shared`` are its addresses at which several machines take connections at once. Replies to such an address may
    reach another machine, so there the target sees an address of this machine and not that of the load balancer.
    """
    elements: dict[tuple[str, str], str] = {}
    for address, port, targets in _ports(load_balancer):
        version = ip_address(address).version
        key = f"{address} . {port.protocol.lower()} . {port.port}"
        elements[f"ports{version}", key] = ""
        if not load_balancer.keep_client:
            elements[f"sources{version}", key] = f"goto {'own-address' if address in shared else 'keep-address'}"
        in_service = [
            target
            for target in targets
            if target.weight
            and not target.draining
            and target_name(port.protocol, target.address, target.port) not in down
        ]
        if not in_service:
            continue
        slots, chain = _slots(in_service, affinity=load_balancer.affinity)
        elements[f"services{version}", key] = f"goto {chain}-{len(slots)}"
        for number, target in enumerate(slots):
            elements[f"targets{version}", f"{key} . {number}"] = f"{target.address} . {target.port}"
    return elements


def flows_of(load_balancer: ForwardedLoadBalancer) -> set[Flow]:
    """Return the flows that a load balancer may have, draining ones, too."""
    return {
        Flow(port.protocol.lower(), address, port.port, target.address, target.port)
        for address, port, targets in _ports(load_balancer)
        for target in targets
    }


def flows_in(elements: Elements) -> set[Flow]:
    """Return the flows that these elements may have begun."""
    flows: set[Flow] = set()
    for (name, key), value in elements.items():
        if name.startswith("targets"):
            address, protocol, port, _slot = key.split(" . ")
            target, target_port = value.split(" . ")
            flows.add(Flow(protocol, address, int(port), target, int(target_port)))
    return flows


def _ports(load_balancer: ForwardedLoadBalancer) -> Iterator[tuple[str, ForwardedPort, list[ForwardedTarget]]]:
    """Yield each address with each port, and the targets of its family."""
    for address in load_balancer.addresses:
        version = ip_address(address).version
        for port in load_balancer.ports:
            yield address, port, [target for target in port.targets if ip_address(target.address).version == version]


def _slots(targets: Sequence[ForwardedTarget], *, affinity: bool) -> tuple[list[ForwardedTarget], str]:
    """Return the target of each slot, and the chain that chooses a slot."""
    ordered = sorted(targets, key=lambda target: (target.address, target.port))
    divisor = reduce(gcd, (target.weight for target in ordered))
    shares = [target.weight // divisor for target in ordered]
    total = sum(shares)
    if len(ordered) == 1:
        return ordered, "random"
    if not affinity and total <= _EXACT:
        return [target for target, share in zip(ordered, shares, strict=True) for _ in range(share)], "random"
    needed = _SLOTS_EACH * len(ordered)
    size = next((size for size in _SIZES if size >= needed), _SIZES[-1])
    return _filled(ordered, _counts(shares, size), size), "hash" if affinity else "random"


def _counts(shares: Sequence[int], size: int) -> list[int]:
    """Return how many of ``size`` slots each has: in proportion, the remainder to the largest fractions."""
    total = sum(shares)
    counts = [size * share // total for share in shares]
    fractions = sorted(range(len(shares)), key=lambda index: (-(size * shares[index] % total), index))
    for index in fractions[: size - sum(counts)]:
        counts[index] += 1
    return counts


def _filled(targets: Sequence[ForwardedTarget], counts: Sequence[int], size: int) -> list[ForwardedTarget]:
    """Return the target of each slot: the one that draws the highest number there and has not all of its slots yet."""
    draws = [Random(f"{target.address} {target.port}") for target in targets]  # noqa: S311 - equal on every machine
    left = list(counts)
    slots: list[ForwardedTarget] = []
    for _ in range(size):
        numbers = [draw.random() for draw in draws]
        best = max((index for index, count in enumerate(left) if count), key=numbers.__getitem__)
        left[best] -= 1
        slots.append(targets[best])
    return slots


def transaction(before: Elements, after: Elements) -> str:
    """Return the commands that change ``before`` to ``after``; empty when they are equal."""
    gone = [(at, value) for at, value in before.items() if after.get(at) != value]
    new = [(at, value) for at, value in after.items() if before.get(at) != value]
    return "".join((*_commands("delete", gone), *_commands("add", new)))


def _commands(verb: str, elements: Iterable[tuple[tuple[str, str], str]]) -> Iterator[str]:
    by_map: dict[str, list[str]] = {}
    for (name, key), value in elements:
        by_map.setdefault(name, []).append(f"{key} : {value}" if value and verb == "add" else key)
    for name in sorted(by_map):
        yield f"{verb} element {TABLE} {name} {{ {', '.join(by_map[name])} }}\n"


def listed_elements(listing: bytes) -> dict[tuple[str, str], str] | None:
    """Return the elements in the answer of ``nft -j list table inet fairlead``; None for a table of another layout."""
    elements: dict[tuple[str, str], str] = {}
    entries = decode(listing, _Listing).nftables
    if not any(entry.chain is not None and entry.chain.name == LAYOUT for entry in entries):
        return None
    for entry in entries:
        for name, members in ((holder.name, holder.elem) for holder in (entry.map, entry.set) if holder is not None):
            if name[:-1] not in _KINDS:
                continue
            for element in members:
                # Of a map, key and value; of a set, the key alone.
                key, value = (element[0], _text(element[1])) if name[:-1] != "ports" else (element, "")
                elements[name, _text(key)] = value
    return elements


class _ListedSet(msgspec.Struct):
    name: str
    elem: list[Any] = msgspec.field(default_factory=list[Any])


class _ListedEntry(msgspec.Struct):
    map: _ListedSet | None = None
    set: _ListedSet | None = None
    chain: _ListedSet | None = None


class _Listing(msgspec.Struct):
    nftables: list[_ListedEntry]


def _text(value: Any) -> str:
    if "concat" in value:
        return " . ".join(str(part) for part in value["concat"])
    return f"goto {value['goto']['target']}"
