"""The network interfaces, addresses, routes and rules of this machine, read and changed through netlink.

In: nothing to configure. Out: ``NetworkState``, a descriptor that is readable when an interface or address has changed,
and changes in batches. Addresses, routes and rules of Fairlead carry its protocol number, so that a later process knows
them. Never: a change of anything that does not carry it.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.errors import Terminal

#: The protocol number of our addresses, routes and rules, as in ``ip rule show protocol 179``.
PROTOCOL = 179

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_HEADER = struct.Struct("=IHHII")
_ADDRESS = struct.Struct("=BBBBI")
_LINK = struct.Struct("=BxHiII")
_ROUTE = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_CACHE = struct.Struct("=IIII")

_ERROR, _DONE = 2, 3
_NEW_LINK, _DEL_LINK, _GET_LINK = 16, 17, 18
_NEW_ADDRESS, _DEL_ADDRESS, _GET_ADDRESS = 20, 21, 22
_NEW_ROUTE, _DEL_ROUTE, _GET_ROUTE = 24, 25, 26
_NEW_RULE, _DEL_RULE, _GET_RULE = 32, 33, 34
_REQUEST, _ACK, _DUMP, _CREATE, _REPLACE = 0x1, 0x4, 0x300, 0x400, 0x100
_GROUPS = 0x1 | 0x10 | 0x100  # links, addresses of IPv4, addresses of IPv6
_NETLINK_GET_STRICT_CHK, _SOL_NETLINK = 12, 270
_MAIN_TABLE, _UNIVERSE, _UNICAST = 254, 0, 1
_UP, _LOOPBACK, _NO_ARP, _RUNNING, _LOWER_UP = 0x1, 0x8, 0x80, 0x40, 0x10000
_NO_DAD = 0x2
#: The lifetime of an address that never expires.
PERMANENT_S = 0xFFFFFFFF
_RULE_PRIORITY, _TABLE_BASE = 30_179, 179_000
_BATCH = 64
_SEQUENCE_MASK = 0x7FFFFFFF
_LOOPBACK_INDEX = 1
_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class Link:
    """One network interface; ``own`` are its own addresses with prefix length, ``ours`` those that were announced.

    ``first`` has the first address of IPv4 in the kernel's order.
    """

    index: int
    name: str
    mac: str
    up: bool
    own: tuple[str, ...] = ()
    ours: frozenset[str] = frozenset()
    first: str = ""

    @property
    def subnets(self) -> list[IPNetwork]:
        """Return the subnets that are on this link."""
        networks = [ipaddress.ip_network(address, strict=False) for address in self.own]
        return [
            network
            for network in networks
            if network.prefixlen < network.max_prefixlen and not (network.version == 6 and network.is_link_local)
        ]


class KernelRoute(NamedTuple):
    """A route of the main table: its target (``default`` has prefix length 0), gateway and interface."""

    target: IPNetwork
    gateway: str
    link: int
    metric: int


@dataclass(frozen=True, slots=True)
class NetworkState:
    """The interfaces by index, without loopback, and the routes."""

    links: dict[int, Link] = field(default_factory=dict[int, Link])
    routes: tuple[KernelRoute, ...] = ()

    def default(self, version: int) -> KernelRoute | None:
        """Return the default route that the kernel uses."""
        defaults = [route for route in self.routes if route.target.prefixlen == 0 and route.target.version == version]
        return min(defaults, key=lambda route: route.metric, default=None)

    def gateway(self, index: int, version: int) -> str:
        """Return the gateway of an interface: that of its default route, or the only one of its other routes."""
        routes = [
            route for route in self.routes if route.link == index and route.gateway and route.target.version == version
        ]
        defaults = sorted((route for route in routes if route.target.prefixlen == 0), key=lambda route: route.metric)
        gateways = {route.gateway for route in routes}
        return defaults[0].gateway if defaults else gateways.pop() if len(gateways) == 1 else ""


class Kernel:
    """The kernel's side: one socket for questions and changes, one for events."""

    def __init__(self) -> None:
        self._socket = _open(0)
        self._events = _open(_GROUPS)
        self._events.setblocking(False)
        self._sequence = 0

    def close(self) -> None:
        """Close the sockets; applied changes stay."""
        self._socket.close()
        self._events.close()

    def fileno(self) -> int:
        """Return the descriptor that is readable when something may have changed."""
        return self._events.fileno()

    def changed(self, owns: Callable[[str], bool]) -> bool:
        """Return whether there were events other than the echo of our own changes; ``owns`` knows our addresses."""
        changed = False
        while True:
            try:
                data = self._events.recv(_BUFFER)
            except BlockingIOError:
                return changed
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                changed = True  # some were lost
                continue
            for kind, body in _messages(data, but_from=self._socket.getsockname()[0]):
                if kind not in (_NEW_ADDRESS, _DEL_ADDRESS):
                    changed = True
                    continue
                index, address, ours = _address(body)
                if index == _LOOPBACK_INDEX:
                    continue  # such as one with a lifetime, renewed all the time for BGP
                changed |= not ours or owns(address.partition("/")[0]) != (kind == _NEW_ADDRESS)

    def snapshot(self) -> NetworkState:
        """Read interfaces, addresses and routes."""
        addresses: dict[int, list[tuple[str, bool]]] = {}
        for _, body in self._dump(_GET_ADDRESS, _ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0)):
            index, address, ours = _address(body)
            addresses.setdefault(index, []).append((address, ours))
        links: dict[int, Link] = {}
        for _, body in self._dump(_GET_LINK, _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)):
            _, kind, index, flags, _ = _LINK.unpack_from(body)
            attributes = _attributes(body[_LINK.size :])
            mac = attributes.get(1, b"")
            if kind != 1 or flags & (_LOOPBACK | _NO_ARP) or len(mac) != 6:
                continue
            of_interface = addresses.get(index, [])
            links[index] = Link(
                index=index,
                name=attributes[3].rstrip(b"\0").decode(),
                mac=mac.hex(":"),
                up=flags & (_UP | _RUNNING | _LOWER_UP) == _UP | _RUNNING | _LOWER_UP,
                own=tuple(address for address, ours in of_interface if not ours),
                ours=frozenset(address.split("/")[0] for address, ours in of_interface if ours),
                first=next((address.split("/")[0] for address, _ in of_interface if ":" not in address), ""),
            )
        return NetworkState(links, tuple(self._routes()))

    def add(self, index: int, lifetimes: Mapping[str, int]) -> dict[str, str]:
        """Put addresses on an interface, each with its lifetime in seconds; return the errors by address.

        Addresses that are there get the new lifetime. When it ends, the kernel removes the address.
        """
        bodies = [_address_message(index, address, valid_s=valid_s) for address, valid_s in lifetimes.items()]
        return self._change_addresses(_NEW_ADDRESS, _CREATE | _REPLACE, list(lifetimes), bodies, (errno.EEXIST,))

    def remove(self, index: int, addresses: Sequence[str]) -> dict[str, str]:
        """Remove addresses from an interface; return the errors by address."""
        gone = (errno.EADDRNOTAVAIL, errno.ENODEV)
        bodies = [_address_message(index, address) for address in addresses]
        return self._change_addresses(_DEL_ADDRESS, 0, addresses, bodies, gone)

    def keep_on_loopback(self, addresses: Sequence[str], seconds: int) -> None:
        """Keep addresses on ``lo`` for a while: their connections continue, and neighbours get no answer."""
        bodies = [_address_message(_LOOPBACK_INDEX, address, valid_s=seconds) for address in addresses]
        self._requests(_NEW_ADDRESS, _CREATE | _REPLACE, bodies)

    def remove_from_loopback(self, addresses: Sequence[str]) -> None:
        """Remove addresses from ``lo`` if they are there."""
        self._requests(_DEL_ADDRESS, 0, [_address_message(_LOOPBACK_INDEX, address) for address in addresses])

    def set_way_back(self, index: int, *, sources: Sequence[IPNetwork], routes: Sequence[KernelRoute]) -> None:
        """Let replies from ``sources`` leave by ``routes`` of one interface; without sources remove all of that."""
        table = _TABLE_BASE + index
        wanted = {str(source) for source in sources}
        for family in (socket.AF_INET, socket.AF_INET6):
            present: set[str] = set()
            for _, body in self._dump(_GET_RULE, _ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)):
                attributes = _attributes(body[_ROUTE.size :])
                if body[0] != family or attributes.get(21, b"\0")[0] != PROTOCOL or _number(attributes, 15) != table:
                    continue
                present.add(f"{_text(attributes[2])}/{body[2]}")
            version = 4 if family == socket.AF_INET else 6
            mine = [route for route in routes if route.target.version == version]
            # The routes come first, and go last: a rule without them would send replies the other way.
            self._all(_NEW_ROUTE, _CREATE | _REPLACE, [_route(route, table) for route in mine] if wanted else [])
            here = {source for source in wanted if (":" in source) == (family == socket.AF_INET6)}
            self._all(_NEW_RULE, _CREATE, [_rule(source, table) for source in sorted(here - present)])
            self._all(_DEL_RULE, 0, [_rule(source, table) for source in sorted(present - here)])

    def rules(self) -> set[int]:
        """Return the interfaces that have rules for replies."""
        results: set[int] = set()
        for _, body in self._dump(_GET_RULE, _ROUTE.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0, 0, 0, 0)):
            attributes = _attributes(body[_ROUTE.size :])
            if attributes.get(21, b"\0")[0] == PROTOCOL:
                results.add(_number(attributes, 15) - _TABLE_BASE)
        return results

    def _routes(self) -> Iterator[KernelRoute]:
        for family in (socket.AF_INET, socket.AF_INET6):
            for _, body in self._dump(_GET_ROUTE, _ROUTE.pack(family, 0, 0, 0, _MAIN_TABLE, 0, 0, 0, 0)):
                length, table, kind = body[1], body[4], body[7]
                attributes = _attributes(body[_ROUTE.size :])
                if body[0] != family or table != _MAIN_TABLE or kind != _UNICAST or 4 not in attributes:
                    continue
                target = attributes.get(1, bytes(4 if family == socket.AF_INET else 16))
                gateway = _text(attributes[5]) if 5 in attributes else ""
                network = ipaddress.ip_network(f"{_text(target)}/{length}")
                yield KernelRoute(network, gateway, _number(attributes, 4), _number(attributes, 6))

    def _change_addresses(
        self, kind: int, flags: int, addresses: Sequence[str], bodies: Sequence[bytes], harmless: tuple[int, ...]
    ) -> dict[str, str]:
        errors: dict[str, str] = {}
        numbers = self._requests(kind, flags, bodies)
        for address, number in zip(addresses, numbers, strict=True):
            if number and number not in harmless:
                errors[address] = os.strerror(number)
        return errors

    def _all(self, kind: int, flags: int, bodies: Sequence[bytes]) -> None:
        for number in self._requests(kind, flags, bodies):
            if number not in (0, errno.EEXIST, errno.ENOENT):
                raise Terminal(
                    f"The kernel refused a route or rule for replies: {os.strerror(number)}. "
                    "Give the process the capability NET_ADMIN."
                )

    def _requests(self, kind: int, flags: int, bodies: Sequence[bytes]) -> list[int]:
        """Return the error number of each request, in their order; 0 is success."""
        numbers: list[int] = []
        for start in range(0, len(bodies), _BATCH):
            batch = bodies[start : start + _BATCH]
            first = self._sequence + 1
            # The kernel reports each error, and works in order: when the last request is acknowledged, all are done.
            messages = [self._message(kind, flags | _REQUEST, body) for body in batch[:-1]]
            messages.append(self._message(kind, flags | _REQUEST | _ACK, batch[-1]))
            self._socket.send(b"".join(messages))
            answers: dict[int, int] = {}
            while len(batch) - 1 not in answers:
                data = self._socket.recv(_BUFFER)
                at = 0
                while at + _HEADER.size <= len(data):
                    length, answer, _, sequence, _ = _HEADER.unpack_from(data, at)
                    nth = (sequence - first) & _SEQUENCE_MASK
                    if answer == _ERROR and nth < len(batch):
                        answers[nth] = -struct.unpack_from("=i", data, at + _HEADER.size)[0]
                    at += max(_HEADER.size, (length + 3) & ~3)
            numbers += [answers.get(nth, 0) for nth in range(len(batch))]
        return numbers

    def _message(self, kind: int, flags: int, body: bytes) -> bytes:
        self._sequence = (self._sequence + 1) & _SEQUENCE_MASK
        return _HEADER.pack(_HEADER.size + len(body), kind, flags, self._sequence, 0) + _padded(body)

    def _dump(self, kind: int, body: bytes) -> Iterator[tuple[int, bytes]]:
        self._socket.send(self._message(kind, _REQUEST | _DUMP, body))
        while True:
            for answer, part in _messages(self._socket.recv(_BUFFER)):
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    number = -struct.unpack_from("=i", part)[0]
                    raise Terminal(f"The kernel does not show its network interfaces: {os.strerror(number)}.")
                yield answer, part


def _open(groups: int) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * _BUFFER)
    opened.setsockopt(_SOL_NETLINK, _NETLINK_GET_STRICT_CHK, 1)
    opened.bind((0, groups))
    return opened


def _messages(data: bytes, *, but_from: int = -1) -> Iterator[tuple[int, bytes]]:
    """Yield kind and body of each message, except changes made by the socket with port ``but_from``."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, _, _, port = _HEADER.unpack_from(data, at)
        if port != but_from:
            yield kind, data[at + _HEADER.size : at + length]
        at += max(_HEADER.size, (length + 3) & ~3)


def _attributes(data: bytes) -> dict[int, bytes]:
    results: dict[int, bytes] = {}
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        results[kind & 0x3FFF] = data[at + _ATTRIBUTE.size : at + length]
        at += max(_ATTRIBUTE.size, (length + 3) & ~3)
    return results


def _padded(body: bytes) -> bytes:
    return body + bytes(-len(body) % 4)


def _attribute(kind: int, value: bytes) -> bytes:
    return _padded(_ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value)


def _number(attributes: dict[int, bytes], kind: int) -> int:
    return struct.unpack("=I", attributes[kind])[0] if kind in attributes else 0


def _text(packed: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def _packed(address: str) -> tuple[int, bytes]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return family, socket.inet_pton(family, address)


def _address(body: bytes) -> tuple[int, str, bool]:
    """Return the interface, the address with prefix length, and whether it is ours."""
    _, length, _, _, index = _ADDRESS.unpack_from(body)
    attributes = _attributes(body[_ADDRESS.size :])
    packed = attributes.get(2) or attributes.get(1, bytes(4))  # of a point-to-point link the first is the own one
    return index, f"{_text(packed)}/{length}", attributes.get(11, b"\0")[0] == PROTOCOL


def _address_message(index: int, address: str, *, valid_s: int = PERMANENT_S) -> bytes:
    family, packed = _packed(address)
    flags = _NO_DAD if family == socket.AF_INET6 else 0
    # Deprecated, so that it is never chosen as the source of a connection from here.
    return b"".join(
        (
            _ADDRESS.pack(family, len(packed) * 8, flags, _UNIVERSE, index),
            _attribute(1, packed) + _attribute(2, packed),
            _attribute(6, _CACHE.pack(0, valid_s, 0, 0)),
            _attribute(11, bytes([PROTOCOL])),
        )
    )


def _route(route: KernelRoute, table: int) -> bytes:
    family, packed = _packed(str(route.target.network_address))
    scope = _UNIVERSE if route.gateway or family == socket.AF_INET6 else 253
    body = _ROUTE.pack(family, route.target.prefixlen, 0, 0, 0, PROTOCOL, scope, _UNICAST, 0)
    body += _attribute(15, struct.pack("=I", table)) + _attribute(4, struct.pack("=I", route.link))
    body += _attribute(1, packed) if route.target.prefixlen else b""
    return body + (_attribute(5, _packed(route.gateway)[1]) if route.gateway else b"")


def _rule(source: str, table: int) -> bytes:
    network, _, length = source.partition("/")
    family, packed = _packed(network)
    body = _ROUTE.pack(family, 0, int(length), 0, 0, 0, 0, _UNICAST, 0) + _attribute(2, packed)
    body += _attribute(6, struct.pack("=I", _RULE_PRIORITY)) + _attribute(15, struct.pack("=I", table))
    return body + _attribute(21, bytes([PROTOCOL]))
