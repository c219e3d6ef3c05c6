"""TCP connections that are open when an address moves from one machine to another as planned.

    client ──► new owner ── a connection that began elsewhere ──► former owner, which has the address on lo ──► client

The former owner keeps the address on ``lo`` for ``MOVED_S``; ARP is not answered there. The new owner remembers each
connection that begins with it, in an nftables set, and sends the other segments of a moved address on to the former
owner. Both entries expire in the kernel, so nothing is left by a process that dies; the next one reads them first.
New connections need none of this: without nftables, open connections end at a move.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import structlog

#: How long connections that were open at a move continue, in seconds.
MOVED_S = 300
#: A connection attempt without an answer is forgotten sooner, so that many of them fill no set.
_ATTEMPT_S = 60
_MOST_CONNECTIONS = 1_048_576
#: Shorter than the silence after which other machines consider this one dead.
_NFT_S = 0.5
_FAMILIES = {4: ("ip", "ipv4_addr"), 6: ("ip6", "ipv6_addr")}
_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_LISTENS = "0A"

log = structlog.get_logger(__name__)


class Moves:
    """The moved addresses on one network interface."""

    def __init__(self, index: int) -> None:
        self._table = f"netdev fairlead_moves_{index}"
        #: The chain that each address leads to; the kernel may have let the entry expire. None until it was read.
        self._taken: dict[str, str] | None = None

    def taken(
        self,
        interface: str,
        addresses: Sequence[str],
        former: str,
        egress_ports: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        """Send what belongs to connections of another machine on to ``former``, its address on this link.

        ``egress_ports`` are the first and last port, by address, of connections that pods begin: these need not stay.
        """
        self.left(addresses)
        own = connections_at(addresses)
        if nft(forwarding(self._table, interface, addresses, former, own, egress_ports)):
            self._entries().update({address: chain_to(former, egress_ports.get(address, ())) for address in addresses})

    def left(self, addresses: Collection[str]) -> None:
        """Forget addresses that are elsewhere again: two machines would send segments to each other."""
        if not addresses:
            return
        entries = self._entries()
        gone = {address: entries.pop(address) for address in sorted(entries.keys() & set(addresses))}
        if gone:
            nft(forgetting(self._table, gone), quiet=True)

    def _entries(self) -> dict[str, str]:
        if self._taken is None:
            listings = [listed_map(self._table, f"former{version}") for version in _FAMILIES]
            read = [text for text in listings if text is not None]
            entries = dict(re.findall(r"([0-9a-f.:]+) timeout \S+ expires \S+ : goto (\w+)", "".join(read)))
            if len(read) < len(listings):
                return entries  # read again at the next move
            self._taken = entries
        return self._taken


class Connection(NamedTuple):
    """A TCP connection of this machine."""

    remote: str
    remote_port: int
    local: str
    local_port: int


def connections_at(addresses: Iterable[str]) -> list[Connection]:
    """Return this machine's connections at some addresses that it may have had before."""
    wanted = set(addresses)
    connections: list[Connection] = []
    for path in _TABLES:
        with suppress(FileNotFoundError), path.open(encoding="ascii") as table:
            next(table, None)
            connections += [
                Connection(*_place(fields[2]), *local)
                for fields in map(str.split, table)
                if fields[3] != _LISTENS and (local := _place(fields[1]))[0] in wanted
            ]
    return connections


def _place(figures: str) -> tuple[str, int]:
    """Read an address and a port of the kernel's tables; every four bytes are in the order of this machine."""
    address, _, port = figures.partition(":")
    parts = (int(address[start : start + 8], 16) for start in range(0, len(address), 8))
    ip = ip_address(b"".join(part.to_bytes(4, sys.byteorder) for part in parts))
    mapped = ip.ipv4_mapped if ip.version == 6 else None
    return str(mapped or ip), int(port, 16)


def forwarding(
    table: str,
    interface: str,
    addresses: Collection[str],
    former: str,
    own: Iterable[Connection] = (),
    egress_ports: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> str:
    """Return the commands of nftables for addresses that came from the machine at ``former``.

    ``own`` are connections of this machine from a time when it had the addresses before. Answers to what pods begin,
    at ``egress_ports``, are for this machine: packets of the pods come here now, too. The range is in the chain of an
    address, so it lasts as long as the address is sent on.
    """
    version = ip_address(former).version
    ip = _FAMILIES[version][0]
    chains = {chain_to(former, ports): ports for ports in (egress_ports.get(address, ()) for address in addresses)}
    key = f"{ip} saddr . tcp sport . {ip} daddr . tcp dport"
    lines = [f"add table {table}"]
    for number, (_, of_family) in _FAMILIES.items():
        flow = f"type {of_family} . inet_service . {of_family} . inet_service"
        lines += [
            f"add map {table} former{number} {{ type {of_family} : verdict; flags timeout; }}",
            f"add set {table} begun{number} {{ {flow}; flags dynamic,timeout; size {_MOST_CONNECTIONS}; }}",
        ]
    for chain, ports in chains.items():
        rule = f"add rule {table} {chain}"
        lines += [
            f"add chain {table} {chain}",
            f"flush chain {table} {chain}",
            *([f"{rule} tcp dport {ports[0]}-{ports[1]} accept"] if ports else []),
            f"{rule} tcp flags & (syn|ack) == syn update @begun{version} {{ {key} timeout {_ATTEMPT_S}s }} accept",
            f"{rule} {key} @begun{version} update @begun{version} {{ {key} timeout {MOVED_S}s }} accept",
            f"{rule} fwd {ip} to {former} device {interface}",
        ]
    lines += [
        f'add chain {table} ingress {{ type filter hook ingress device "{interface}" priority 0; policy accept; }}',
        f"flush chain {table} ingress",
        *(
            f"add rule {table} ingress meta l4proto tcp {name} daddr vmap @former{number}"
            for number, (name, _) in _FAMILIES.items()
        ),
        *(
            f"add element {table} begun{version} {{ {' . '.join(map(str, connection))} timeout {MOVED_S}s }}"
            for connection in own
        ),
        *(
            f"add element {table} former{version} {{ {address} timeout {MOVED_S}s : "
            f"goto {chain_to(former, egress_ports.get(address, ()))} }}"
            for address in addresses
        ),
    ]
    return "\n".join(lines) + "\n"


def forgetting(table: str, chains: Mapping[str, str]) -> str:
    """Return the commands of nftables that forget moved addresses, each with the chain that it leads to.

    Each is added before it is deleted: deleting one that has expired would make the transaction fail for all.
    """
    elements = [(ip_address(address).version, address, chain) for address, chain in chains.items()]
    return "".join(
        f"add element {table} former{version} {{ {address} timeout {MOVED_S}s : goto {chain} }}\n"
        f"delete element {table} former{version} {{ {address} }}\n"
        for version, address, chain in elements
    )


def chain_to(former: str, egress_ports: Sequence[int] = ()) -> str:
    """Return the name of the chain that sends segments on to the machine at ``former``, except at these ports."""
    name = f"to_{former.replace('.', '_').replace(':', '_')}"
    return f"{name}_but_{egress_ports[0]}_{egress_ports[1]}" if egress_ports else name


def nft(commands: str, *, quiet: bool = False) -> bool:
    """Run commands in one transaction; return whether the kernel accepted them."""
    code, _, errors = _run("-f", "-", text=commands)
    if code and not quiet:
        log.warning("open connections end at this move", why=errors.partition("\n")[0])
    return code == 0


def listed_map(table: str, name: str) -> str | None:
    """Return the nft listing of a map: empty if the map does not exist, None if it cannot be read."""
    code, listing, errors = _run("list", "map", *table.split(), name)
    return listing if code == 0 or "No such file or directory" in errors else None


def _run(*arguments: str, text: str = "") -> tuple[int, str, str]:
    try:
        ended = subprocess.run(
            ("nft", *arguments), input=text, capture_output=True, text=True, check=False, timeout=_NFT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, "", str(error)
    return ended.returncode, ended.stdout, ended.stderr
