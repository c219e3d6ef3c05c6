"""The layer 2 announcer: addresses on the network interface of their subnet, ARP, and neighbour discovery.

    plan, serving ─► Layer2 ─► one Election for each link ─► addresses on the interface   (netlink)
                      ▲  ▲                                ├─► probes and announcements     (AF_PACKET)
         other machines  the kernel's events              └─► hellos to the other machines (UDP, on that link only)

The kernel answers ARP and neighbour discovery: an address is owned where it is on the interface. It stays there when
this process ends, and the next one adopts it. Where another machine would take it, the address has a lifetime in the
kernel, which this process renews: on a machine whose processes were killed, the kernel soon stops answering.
Needs NET_ADMIN and NET_RAW, and nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import structlog

from fairlead.announce import layer2_packets as packets
from fairlead.announce.layer2_moves import MOVED_S, Moves
from fairlead.announce.layer2_netlink import PERMANENT_S, IPNetwork, Kernel, KernelRoute, Link, NetworkState
from fairlead.announce.layer2_state import HOLD_S, REFRESH_S, Election, Hello, LinkAction, Renewals, Want
from fairlead.errors import Terminal
from fairlead.model.machine import AddressState, AnnouncedAddress, LinkState, MachinePlan, SessionState
from fairlead.runtime.clock import Clock, SystemClock

#: The UDP port of the hellos, open between the machines of a link.
PORT = 9475

_SNAPSHOT_EVERY_S = 60.0
_GATEWAY_EVERY_S, _GATEWAY_LOST_S = 0.5, 2.0
_HELD_EVERY_S = 0.25
_ADD_AGAIN_S = 5.0
_IDLE_S, _ALONE_S = 0.15, 0.5
_BUFFER_BYTES = 4 << 20
_READ_AT_ONCE = 2000
_LOGGED = 10
_ICMP6_FILTER, _SO_BINDTODEVICE, _SO_RCVBUFFORCE = 1, 25, 33
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23

log = structlog.get_logger(__name__)


class Layer2:
    """Announces the addresses of a plan with ``announcement: L2``; an ``Announcer``."""

    def __init__(
        self, *, on_change: Callable[[], None] | None = None, clock: Clock | None = None, refresh_s: float = REFRESH_S
    ) -> None:
        self._on_change = on_change or (lambda: None)
        self._clock = clock or SystemClock()
        self._refresh_s = refresh_s
        self._plan: MachinePlan | None = None
        self._serving: dict[str, bool] = {}
        #: None while unknown.
        self._unhealthy: frozenset[str] | None = None
        self._withdrawn = False
        self._configured = False
        self._wake = asyncio.Event()
        self._kernel: Kernel | None = None
        self._snapshot = NetworkState()
        self._snapshot_at_s = -float("inf")
        self._links: dict[int, _Port] = {}
        self._on: dict[str, int] = {}
        self._keys: tuple[bytes, ...] = ()
        self._reported = -1

    # --- The interface ----------------------------------------------------------------------------------------

    async def apply(
        self, plan: MachinePlan, *, serving: Mapping[str, bool], unhealthy: Collection[str] | None = ()
    ) -> None:
        """Follow a plan; see ``Announcer``."""
        self._plan, self._serving = plan, {_canonical(address): serves for address, serves in serving.items()}
        self._unhealthy = None if unhealthy is None else frozenset(map(_canonical, unhealthy))
        self._withdrawn = False
        key = plan.link_key.encode()
        if key and key not in self._keys[:1]:
            self._keys = (key, *self._keys[:1])  # others may have the former key for a while
        self._configured = False
        self._wake.set()

    def due_back(self) -> bool:
        """Return whether an address is to move here; see ``Announcer``."""
        return any(port.election.due_back for port in self._links.values())

    def addresses(self) -> Sequence[AddressState]:
        """Return the state of each address with ``announcement: L2``, and of those that this machine still has."""
        planned = self._planned()
        names = {_canonical(address.address) for address in planned}
        left = [
            AnnouncedAddress(address=address, announcement="L2", machines=())
            for address in self._on
            if address not in names and self._owns(address)
        ]
        return [self._state(address) for address in (*planned, *left)]

    def sessions(self) -> Sequence[SessionState]:
        """Return nothing: layer 2 has no sessions."""
        return ()

    def links(self) -> Sequence[LinkState]:
        """Return the network interfaces of this machine."""
        return [
            LinkState(
                name=link.name,
                mac=link.mac,
                up=link.up,
                addresses=link.own,
                hears=tuple(sorted(self._links[index].election.hears)) if index in self._links else (),
            )
            for index, link in sorted(self._snapshot.links.items())
        ]

    async def withdraw(self) -> None:
        """Yield all addresses, and return when others own them, or after two seconds."""
        self._withdrawn = True
        self._configured = False
        self._wake.set()
        while self._withdrawn and self._kernel and any(port.election.owned for port in self._links.values()):
            await self._clock.sleep(0.05)

    async def run(self) -> None:
        """Work until cancelled; the addresses stay on the interface, and the other machines are asked to wait."""
        try:
            self._kernel = Kernel()
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
        except OSError as error:
            raise Terminal(
                f"The layer 2 announcer cannot open its sockets: {error.strerror}. "
                "Give the process the capabilities NET_ADMIN and NET_RAW.",
                reason="NoCapability",
            ) from error
        loop = asyncio.get_running_loop()
        loop.add_reader(self._kernel.fileno(), self._wake.set)
        self._configured = False
        try:
            while True:
                due_s = self._work()
                timer = loop.call_later(due_s, self._wake.set)
                await self._wake.wait()
                timer.cancel()
                self._wake.clear()
        finally:
            loop.remove_reader(self._kernel.fileno())
            for port in self._links.values():
                if not self._withdrawn:
                    port.send(port.election.hellos(self._now(), hold_s=HOLD_S), self._keys)
                port.close()
            self._links.clear()
            self._kernel.close()
            self._kernel = None

    # --- One turn ---------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._clock.monotonic()

    def _work(self) -> float:
        """Do all due work, and return the number of seconds until the next work is due."""
        assert self._kernel is not None
        now = self._now()
        if self._kernel.changed(self._owns) or now >= self._snapshot_at_s + _SNAPSHOT_EVERY_S:
            self._read_kernel(now)
        if not self._configured and self._plan is not None:
            self._configure(self._plan, now)
        for port in self._links.values():
            port.read(now, self._keys)
        due_s = self._snapshot_at_s + _SNAPSHOT_EVERY_S
        moved = False
        for port in self._links.values():
            moved |= port.turn(self._kernel, now, self._keys)
            due_s = min(due_s, port.due_s(now))
        if moved:
            self._set_ways_back()
        changes = sum(port.election.changes for port in self._links.values())
        if changes != self._reported:
            self._reported = changes
            self._on_change()
        return max(0.0, due_s - self._now())

    def _owns(self, address: str) -> bool:
        return any(port.election.owns(address) for port in self._links.values())

    def _read_kernel(self, now: float) -> None:
        assert self._kernel is not None
        snapshot = self._kernel.snapshot()
        self._snapshot_at_s = now
        changed = self._bare(snapshot) != self._bare(self._snapshot)
        renewed = {
            index
            for index, link in snapshot.links.items()
            if (before := self._snapshot.links.get(index)) is not None
            and (before.name, before.mac) != (link.name, link.mac)
        }
        self._snapshot = snapshot
        for index in self._links.keys() - snapshot.links.keys():
            self._links.pop(index).close()
        for index in self._links.keys() & renewed:
            self._links[index].reopen(snapshot.links[index])
        for port in self._links.values():
            port.follow(self._kernel, snapshot, now)
        if changed:
            self._configured = False
            self._reported = -1

    def _bare(self, state: NetworkState) -> NetworkState:
        """Return a state without the addresses that come and go by elections: ports follow those."""
        links = {
            index: replace(link, ours=frozenset[str](), first="") if index in self._links else link
            for index, link in state.links.items()
        }
        return replace(state, links=links)

    # --- The plan ---------------------------------------------------------------------------------------------

    def _planned(self) -> list[AnnouncedAddress]:
        return [planned for planned in self._plan.addresses if planned.announcement == "L2"] if self._plan else []

    def _configure(self, plan: MachinePlan, now: float) -> None:
        """Configure the addresses and neighbours of each link; adopt or remove addresses of a former process."""
        assert self._kernel is not None
        self._configured = True
        self._on = {}
        wants: dict[int, dict[str, Want]] = {index: {} for index in self._links}
        for planned in self._planned():
            link = _link_of(planned, self._snapshot)
            if link is None:
                continue
            address = _canonical(planned.address)
            self._on[address] = link.index
            wants.setdefault(link.index, {})[address] = Want(
                machines=planned.machines,
                serve=self._serving.get(address),
                healthy=None if self._unhealthy is None else address not in self._unhealthy,
                fast=planned.fast,
                leaving=plan.drained or self._withdrawn,
            )
        opened = [index for index in wants if index not in self._links]
        for index in opened:
            self._links[index] = _Port(self._snapshot.links[index], plan.machine, self._refresh_s, self._wake.set, now)
        for index, port in self._links.items():
            self._on = {**dict.fromkeys(port.election.owned, index), **self._on}
            neighbours = _neighbours(plan, port.link, wants[index].values())
            port.targets = {name: near[0] if near else "" for name, near in neighbours.items()}
            port.near = neighbours
            port.egress_ports = {
                _canonical(planned.address): planned.egress_ports for planned in self._planned() if planned.egress_ports
            }
            port.election.configure(
                now, wants[index], neighbours=neighbours, epoch=plan.epoch, plan=plan.version, keyed=bool(self._keys)
            )
        for index in opened:
            port = self._links[index]
            for address in sorted(port.link.ours):
                port.election.keep(now, address)
            port.follow(self._kernel, self._snapshot, now)
        for index, link in self._snapshot.links.items():
            if link.ours and index not in self._links:
                self._kernel.remove(index, sorted(link.ours))
            if link.subnets and wants:
                _answer_only_for_own(link.name)
        self._set_ways_back()

    def _set_ways_back(self) -> None:
        """Route replies through the interface and gateway they came in by, where the default route differs."""
        assert self._kernel is not None
        present = self._kernel.rules()
        for index in present | self._links.keys():
            port = self._links.get(index)
            owned = sorted(port.election.owned) if port else []
            v4 = [ipaddress.IPv4Network(address) for address in owned if not packets.is_v6(address)]
            v6 = [ipaddress.IPv6Network(address) for address in owned if packets.is_v6(address)]
            sources: list[IPNetwork] = []
            if (default := self._snapshot.default(4)) is not None and default.link != index:
                sources += ipaddress.collapse_addresses(v4)
            if (default := self._snapshot.default(6)) is not None and default.link != index:
                sources += ipaddress.collapse_addresses(v6)
            if sources or index in present:
                self._kernel.set_way_back(index, sources=sources, routes=_routes_by(self._snapshot, index))

    def _state(self, planned: AnnouncedAddress) -> AddressState:
        address = _canonical(planned.address)
        port = self._links.get(self._on.get(address, -1))
        if port is None:
            reason, problem = ("", "")
            if self._kernel is not None and self._configured:
                reason, problem = "NoInterface", _no_interface(planned)
            return AddressState(address=planned.address, announced=False, reason=reason, problem=problem)
        ownership = port.election.ownership(address)
        problem = port.refused.get(address, "")
        return AddressState(
            address=planned.address,
            announced=ownership.owned and not problem,
            interface=port.link.name,
            mac=port.link.mac,
            other_mac=ownership.other_mac,
            epoch=ownership.claim,
            since=port.since(address, self._clock.now().timestamp() - self._now(), ownership.changed_s),
            cause=ownership.cause,
            trigger=ownership.trigger,
            reason="Refused" if problem else ownership.reason,
            problem=problem or ownership.problem,
        )


class _Port:
    """One link: its election, its sockets, and the addresses on its interface."""

    def __init__(self, link: Link, machine: str, refresh_s: float, wake: Callable[[], None], now: float) -> None:
        self.link = link
        self.targets: dict[str, str] = {}
        #: All addresses of each machine in the subnets of this link.
        self.near: dict[str, tuple[str, ...]] = {}
        self.egress_ports: dict[str, tuple[int, ...]] = {}
        self.moves = Moves(link.index)
        self.refused: dict[str, str] = {}
        #: When each address came or went, by the monotonic clock and in seconds since 1970.
        self._since: dict[str, tuple[float, float]] = {}
        self._add_at_s = float("inf")
        #: The addresses that the kernel has lost, and that are put back if this machine still owns them.
        self._missing: frozenset[str] = frozenset()
        self._renewals = Renewals(now)
        self._mortal = set(link.ours)  # a former process may have given these a lifetime
        self._gateway = ""
        self._gateway_seen_s = self._gateway_asked_s = -float("inf")
        self._gateway_since_s = now
        self._held_at_s = -float("inf")
        self._wake = wake
        instance = secrets.randbits(63) | 1
        self.election = Election(machine, instance=instance, mac=link.mac, now=now, refresh_s=refresh_s)
        self.election.set_link(now, up=link.up)
        self._sockets = ExitStack()
        self._open()

    def _open(self) -> None:
        link = self.link
        self._arp = self._opened(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._arp.bind((link.name, packets.ETH_ARP))
        self._frames = self._opened(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._frames.bind((link.name, packets.ETH_HELLO))
        for opened in (self._arp, self._frames):
            opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        self._udp: dict[bool, socket.socket] = {}
        self._neighbours: socket.socket | None = None
        self._udp[False] = self._opened(socket.AF_INET, socket.SOCK_DGRAM, 0, link.name)
        self._udp[False].bind(("", PORT))
        if Path("/proc/net/if_inet6").exists():
            self._udp[True] = self._opened(socket.AF_INET6, socket.SOCK_DGRAM, 0, link.name)
            self._udp[True].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self._udp[True].bind(("::", PORT))
            self._neighbours = self._opened(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6, link.name)
            passing = {packets.NEIGHBOUR_SOLICITATION, packets.NEIGHBOUR_ADVERTISEMENT}
            dropped = [sum(1 << bit for bit in range(32) if word * 32 + bit not in passing) for word in range(8)]
            self._neighbours.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, struct.pack("=8I", *dropped))
        # Only hellos begin a turn. What neighbours say waits for the next one, so that a busy link costs little.
        loop = asyncio.get_running_loop()
        for opened in (self._frames, *self._udp.values()):
            loop.add_reader(opened.fileno(), self._wake)
            self._sockets.callback(loop.remove_reader, opened.fileno())

    def _opened(self, family: int, kind: int, protocol: int, device: str = "") -> socket.socket:
        opened = self._sockets.enter_context(socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol))
        with suppress(OSError):  # only with NET_ADMIN of the first user namespace; the default serves fewer addresses
            opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        if device:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, device.encode() + b"\0")
        return opened

    def reopen(self, link: Link) -> None:
        """Follow an interface with another name or MAC."""
        self._sockets.close()
        self.link = link
        self.election.mac = link.mac
        self._open()

    def close(self) -> None:
        """Close the sockets; the addresses stay."""
        self._sockets.close()

    # --- The kernel -------------------------------------------------------------------------------------------

    def follow(self, kernel: Kernel, snapshot: NetworkState, now: float) -> None:
        """Follow the interface, and restore missing addresses on it."""
        link = snapshot.links[self.link.index]
        changed_mac = link.mac != self.link.mac
        self.link = link
        self.election.mac = link.mac
        self.election.set_link(now, up=link.up)
        gateway = snapshot.gateway(link.index, 4) or snapshot.gateway(link.index, 6)
        if gateway != self._gateway:
            self._gateway, self._gateway_since_s, self._gateway_seen_s = gateway, now, -float("inf")
        owned = self.election.owned
        self._remove(kernel, sorted(link.ours - owned))
        if link.first in owned and any(":" not in address for address in link.own):
            # The interface lost its own address and has it again: ours must not be the first one.
            moved = sorted(address for address in owned & link.ours if ":" not in address)
            self._remove(kernel, moved)
            self._add(kernel, moved, now)
        self._missing = owned - link.ours
        if changed_mac:
            for address in owned:
                self.election.announce_again(now, address)

    def _add(self, kernel: Kernel, addresses: Sequence[str], now: float) -> None:
        for address in addresses:
            self.refused.pop(address, None)
        errors = kernel.add(self.link.index, self._lifetimes(addresses)) if addresses else {}
        for address, error in errors.items():
            self.refused[address] = (
                f"The kernel refused {address} on {self.link.name}: {error}. The machine tries again every 5 seconds."
            )
            log.warning("address refused", address=address, interface=self.link.name, error=error)
        self._add_at_s = now + _ADD_AGAIN_S if self.refused else float("inf")

    def _put_back(self, kernel: Kernel, now: float) -> None:
        """Restore addresses that the kernel has lost, once this machine knows whether another one owns them."""
        if self._missing and self.election.informed:
            missing, self._missing = sorted(self._missing & self.election.owned), frozenset()
            self._add(kernel, missing, now)
            for address in missing:
                self.election.announce_again(now, address)

    def _renew(self, kernel: Kernel, now: float) -> None:
        """Renew the lifetimes of the addresses that are due."""
        turn = self._renewals.due(now, self.election)
        mortal = self._mortal.intersection(turn)
        lifetimes = self._lifetimes(turn)
        # A permanent address stays as it is.
        if due := {address: s for address, s in lifetimes.items() if s != PERMANENT_S or address in mortal}:
            kernel.add(self.link.index, due)

    def _lifetimes(self, addresses: Iterable[str]) -> dict[str, int]:
        """Return how long addresses live; an address that no other machine would take never expires."""
        lifetimes: dict[str, int] = {}
        for address in addresses:
            mortal = self.election.has_successor(address)
            (self._mortal.add if mortal else self._mortal.discard)(address)
            lifetimes[address] = self._renewals.valid_s if mortal else PERMANENT_S
        return lifetimes

    def _remove(self, kernel: Kernel, addresses: Sequence[str]) -> None:
        self._mortal.difference_update(addresses)
        for address, error in (kernel.remove(self.link.index, addresses) if addresses else {}).items():
            log.warning("address not removed", address=address, interface=self.link.name, error=error)

    def since(self, address: str, offset_s: float, changed_s: float) -> float:
        """Return when an address came or went, the same number for one change; 0 if it never did."""
        if not changed_s:
            return 0.0
        if self._since.get(address, (0.0, 0.0))[0] != changed_s:
            self._since[address] = changed_s, changed_s + offset_s
        return self._since[address][1]

    # --- One turn ---------------------------------------------------------------------------------------------

    def read(self, now: float, keys: Sequence[bytes]) -> None:
        """Read all pending input from the sockets."""
        for frame, _ in self._received(self._arp):
            self._answer(now, packets.read_arp(frame))
        if self._neighbours is not None:
            for message, source in self._received(self._neighbours):
                self._answer(now, packets.read_neighbour(message, str(source).partition("%")[0]))
        hellos = [packets.unseal(packet, keys) for opened in self._udp.values() for packet, _ in self._received(opened)]
        for frame, _ in self._received(self._frames):
            hellos.append(packets.unseal(frame[14:].rstrip(b"\0"), keys) or packets.unseal(frame[14:], keys))
        for hello in filter(None, hellos):
            self.election.heard(now, hello)

    def _received(self, opened: socket.socket) -> Iterable[tuple[bytes, object]]:
        for _ in range(_READ_AT_ONCE):
            try:
                data, source = opened.recvfrom(9000)
            except BlockingIOError:
                return
            except OSError as error:  # the interface is down, or a neighbour refused the last packet
                log.debug("nothing received", interface=self.link.name, error=str(error))
                return
            yield data, source[0] if isinstance(source, tuple) else source

    def _answer(self, now: float, answer: packets.Answer | None) -> None:
        if answer is None or answer.mac == self.link.mac:
            return
        if answer.address == self._gateway:
            self._gateway_seen_s = now
        for name, target in self.targets.items():
            if target == answer.address:
                self.election.answered(now, name)
        self.election.seen(now, answer.address, answer.mac, probe=answer.probe)

    def turn(self, kernel: Kernel, now: float, keys: Sequence[bytes]) -> bool:
        """Carry out the election's actions; return whether addresses came or went."""
        began_s = time.monotonic()
        self._ask_gateway(now)
        if now >= self._add_at_s:
            self._add(kernel, sorted(self.refused.keys() & self.election.owned), now)
        actions = self.election.step(now)
        self._put_back(kernel, now)
        self._renew(kernel, now)
        removed = [action.address for action in actions if action.kind == "remove"]
        added = [action.address for action in actions if action.kind == "add"]
        if moved := sorted(self.election.handed_over.intersection(removed)):
            kernel.keep_on_loopback(moved, MOVED_S)
        self.moves.left(removed)
        self._forward(self.election.taken_from)
        self._remove(kernel, removed)
        self._add(kernel, added, now)
        kernel.remove_from_loopback(added)
        # Others hear of a take-over before the announcements are out, which takes a while with a thousand.
        self.send(self.election.replies(), keys)
        self.send(self.election.hellos(now), keys)
        self._frames_of(actions)
        if self.election.held and now >= self._held_at_s + _HELD_EVERY_S:
            self._held_at_s = now
            for name in self.election.held:
                self._ask(self.targets.get(name, ""))
        for change, addresses in (("added", added), ("removed", removed)):
            if addresses:  # one line, also for a thousand
                log.info(
                    "addresses at layer 2",
                    interface=self.link.name,
                    change=change,
                    addresses=", ".join(addresses[:_LOGGED]) + (", ..." if len(addresses) > _LOGGED else ""),
                    count=len(addresses),
                    cause=self.election.ownership(addresses[0]).cause,
                    took_s=round(time.monotonic() - began_s, 3),
                )
        return bool(removed or added)

    def _forward(self, taken_from: Mapping[str, str]) -> None:
        """Forward segments of connections that are open at other machines to those machines."""
        by_former: dict[str, list[str]] = {}
        for address, machine in taken_from.items():
            version = ipaddress.ip_address(address).version
            for former in self.near.get(machine, ()):
                if ipaddress.ip_address(former).version == version:
                    by_former.setdefault(former, []).append(address)
                    break
        for former, addresses in by_former.items():
            ports = {address: self.egress_ports[address] for address in addresses if address in self.egress_ports}
            self.moves.taken(self.link.name, sorted(addresses), former, ports)

    def due_s(self, now: float) -> float:
        """Return when the next turn is due."""
        return min(self.election.next_s(), self._add_at_s, now + (_IDLE_S if self.targets else _ALONE_S))

    def send(self, hellos: Iterable[tuple[str, Hello]], keys: Sequence[bytes]) -> None:
        """Send hellos, each to its machine's address on this link."""
        for name, hello in hellos:
            packet = packets.seal(hello, keys)
            target = self.targets.get(name, "")
            # A packet that cannot be sent counts as silence, which the other machine handles.
            with suppress(OSError):
                if target:
                    self._udp[packets.is_v6(target)].sendto(packet, (target, PORT))
                else:
                    mac = self.link.mac
                    self._frames.send(packets.ethernet(packets.BROADCAST, mac, packets.ETH_HELLO, packet))

    def _frames_of(self, actions: Iterable[LinkAction]) -> None:
        mac = self.link.mac
        for kind, address in actions:
            if kind == "announce":
                for frame in packets.announcements(mac, address):
                    self._transmit(frame)
            elif kind == "probe":
                self._transmit(packets.probe(mac, address))

    def _transmit(self, frame: bytes) -> None:
        with suppress(OSError):  # the interface is down, or its queue is full; all frames are repeated
            self._arp.send(frame)

    def _ask(self, address: str) -> None:
        if not address:
            return
        wanted = ipaddress.ip_address(address)
        own = [ipaddress.ip_interface(own) for own in self.link.own]
        own = [value for value in own if value.version == wanted.version]
        near = [value for value in own if wanted in value.network] or own
        if near:
            self._transmit(packets.question(self.link.mac, str(near[0].ip), address))

    def _ask_gateway(self, now: float) -> None:
        """Follow whether the gateway answers; only its silence together with that of the machines matters."""
        if not self._gateway or not self.targets:
            self.election.set_gateway(answers=None)
            return
        if now >= self._gateway_asked_s + _GATEWAY_EVERY_S:
            self._gateway_asked_s = now
            self._ask(self._gateway)
        if now - self._gateway_seen_s < _GATEWAY_LOST_S:
            self.election.set_gateway(answers=True)
        elif now - self._gateway_since_s > _GATEWAY_LOST_S:
            self.election.set_gateway(answers=False)


async def who_has(link: Link, addresses: Sequence[str], *, wait_s: float) -> dict[str, set[str]]:
    """Ask a link for addresses; return the MAC addresses of the other hosts that answer for each.

    Raises:
        OSError: the interface is down, or the process lacks NET_RAW.
    """
    answers: dict[str, set[str]] = {address: set() for address in addresses}
    own = {packets.is_v6(address): address.partition("/")[0] for address in reversed(link.own)}
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        arp = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0))
        arp.bind((link.name, packets.ETH_ARP))
        frames = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0))
        frames.bind((link.name, packets.ETH_IPV6))
        for opened in (arp, frames):
            opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)

        def read(opened: socket.socket) -> None:
            with suppress(BlockingIOError):
                while frame := opened.recv(2000):
                    answer = packets.read_arp(frame) if opened is arp else packets.read_neighbour_frame(frame)
                    if answer is not None and not answer.probe and answer.address in answers:
                        answers[answer.address].add(answer.mac)

        for opened in (arp, frames):
            loop.add_reader(opened.fileno(), read, opened)
            stack.callback(loop.remove_reader, opened.fileno())
        for address in addresses:
            asker = own.get(packets.is_v6(address), "")
            arp.send(packets.question(link.mac, asker, address) if asker else packets.probe(link.mac, address))
        await asyncio.sleep(wait_s)
    return {address: macs - {link.mac} for address, macs in answers.items()}


def _canonical(address: str) -> str:
    return str(ipaddress.ip_address(address))


def _link_of(planned: AnnouncedAddress, snapshot: NetworkState) -> Link | None:
    """Return the interface for an address: that of its subnet, or the first one of those that the plan names."""
    address = ipaddress.ip_address(planned.address)
    results: list[tuple[bool, int, bool, int, int]] = []
    for link in snapshot.links.values():
        if planned.interfaces and link.name not in planned.interfaces:
            continue
        lengths = [network.prefixlen for network in link.subnets if address in network]
        if not lengths and not planned.interfaces:
            continue
        order = planned.interfaces.index(link.name) if planned.interfaces else 0
        results.append((not lengths, -max(lengths, default=0), not link.up, order, link.index))
    return snapshot.links[min(results)[-1]] if results else None


def _no_interface(planned: AnnouncedAddress) -> str:
    if planned.interfaces:
        return f"This machine has no network interface {' or '.join(planned.interfaces)} for {planned.address}."
    return (
        f"No network interface of this machine has a subnet with {planned.address}. "
        "Use an address of a subnet, name interfaces, or announce the address by BGP."
    )


def _neighbours(plan: MachinePlan, link: Link, wants: Iterable[Want]) -> dict[str, tuple[str, ...]]:
    """Return the machines on a link with their addresses on it.

    Hellos to a machine whose address is unknown are broadcast: an interface may have no address, and the hub may not
    have the first report of a new machine yet.
    """
    subnets = link.subnets
    placed = {machine for want in wants for machine in want.machines}
    results: dict[str, tuple[str, ...]] = {}
    for neighbour in plan.neighbours:
        if neighbour.name == plan.machine:
            continue
        addresses = [ipaddress.ip_address(address) for address in neighbour.addresses]
        near = [address for address in addresses if any(address in subnet for subnet in subnets)]
        if near:
            results[neighbour.name] = tuple(map(str, near))
        elif neighbour.name in placed:
            results[neighbour.name] = ()
    return results


def _routes_by(snapshot: NetworkState, index: int) -> list[KernelRoute]:
    """Return the routes of one interface, with a default route by its gateway also where the machine has none."""
    results = [
        route
        for route in snapshot.routes
        if route.link == index and 0 < route.target.prefixlen < route.target.max_prefixlen
    ]
    for version, everything in ((4, "0.0.0.0/0"), (6, "::/0")):
        if gateway := snapshot.gateway(index, version):
            results.append(KernelRoute(ipaddress.ip_network(everything), gateway, index, 0))
    return results


def _answer_only_for_own(interface: str) -> None:
    """Let an interface answer ARP only for addresses that are on it.

    Otherwise a second interface on the same link would answer with another MAC, and so would all nodes with kube-proxy
    in IPVS mode, which has the addresses of all Services on an interface of its own.
    """
    # A former owner keeps an address on lo for a while, and must not name it in its own questions.
    for name, wanted in (("arp_ignore", 1), ("arp_announce", 2)):
        setting = Path(f"/proc/sys/net/ipv4/conf/{interface}/{name}")
        try:
            if int(setting.read_text(encoding="ascii")) < wanted:
                setting.write_text(f"{wanted}\n", encoding="ascii")
        except OSError as error:
            log.warning("setting not written", interface=interface, name=name, error=str(error))
