"""Read a proxy machine once: its state directory, its processes and kernel, its neighbours, routers and hubs.

In: a state directory. Out: ``ProxyMachineFacts``. Each part is read by itself.
Never: a change of the machine, a packet that changes a neighbour's cache, or a secret of the directory in the result.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import shutil
import socket
import ssl
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import structlog

from fairlead.announce.bird import Bird
from fairlead.announce.frr import Frr
from fairlead.announce.layer2 import who_has
from fairlead.announce.layer2_netlink import Kernel, Link, NetworkState
from fairlead.doctor.facts import AskedAddress, KernelSetting, LinkFacts, ProxyMachineFacts, ReachedHub
from fairlead.errors import FairleadError
from fairlead.machine.app import xds_addresses
from fairlead.machine.checks import missing_capabilities
from fairlead.machine.hub_client import look_at
from fairlead.machine.state import StateDirectory
from fairlead.model.in_words import split_host_port
from fairlead.model.machine import MachinePlan, SessionState
from fairlead.providers.envoy.envoy_process import admin_get

_SYSCTL = Path("/proc/sys")
_DEVICES = Path("/sys/class/net")
_ANSWER_S = 1.0
_CONNECT_S = 3.0
#: Addresses that are asked for, and neighbours whose path is tried.
_MOST = 256
_MOST_PATHS = 16
_ECHO_REQUEST, _ECHO_REPLY = 8, 0
_IP_MTU_DISCOVER, _DO_NOT_FRAGMENT = 10, 2
#: Bytes of an IPv4 and an ICMP header.
_HEADERS = 28

log = structlog.get_logger(__name__)


async def gather_proxy_machine(directory: Path) -> ProxyMachineFacts:
    """Return what was read of the proxy machine whose state directory this is."""
    state = StateDirectory(directory)
    try:
        enrolment = state.load()
        tls, ends = state.tls(), state.certificate_expires()
    except (FairleadError, OSError, ValueError) as error:
        sentence = error.sentence if isinstance(error, FairleadError) else str(error)
        return ProxyMachineFacts(state_dir=str(directory), problem=sentence)
    plan = state.load_plan() or MachinePlan(machine=enrolment.machine, version="")
    pid = state.running_pid()
    network = _network()
    hubs = tuple(dict.fromkeys((*plan.hubs, *enrolment.hubs)))
    status, _ = await admin_get(state.envoy / "admin.sock", "/ready")
    reached, answers, sessions, small = await asyncio.gather(
        asyncio.gather(*(_reach(hub, xds, tls) for hub, xds in zip(hubs, xds_addresses(hubs), strict=True))),
        _answers(plan, network),
        _sessions(state.path / "bgp", plan),
        asyncio.to_thread(_small_paths, plan, network),
    )
    return ProxyMachineFacts(
        state_dir=str(directory),
        directory_problem=_directory_problem(directory),
        free_bytes=shutil.disk_usage(directory).free,
        now=datetime.now(UTC),
        machine=enrolment.machine,
        plan=_without_secrets(plan),
        runs=pid != 0,
        missing_capabilities=tuple(missing_capabilities(Path("/proc", str(pid), "status"))) if pid else (),
        envoy_answers=bool(status),
        certificate_ends=ends,
        renew_at=datetime.fromtimestamp(enrolment.renew_at, UTC),
        hubs=tuple(reached),
        settings=tuple(_settings(network)),
        links=tuple(_links(network, small)),
        ageing_s=dict(_ageing()),
        addresses=answers,
        sessions=sessions,
    )


def _without_secrets(plan: MachinePlan) -> MachinePlan:
    peers = tuple(msgspec.structs.replace(peer, password="") for peer in plan.bgp_peers)
    return msgspec.structs.replace(plan, link_key="", bgp_peers=peers)


def _directory_problem(directory: Path) -> str:
    probe = directory / ".doctor"
    try:
        with probe.open("x", encoding="ascii") as file:
            file.write("x" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    finally:
        with suppress(OSError):
            probe.unlink()
    return ""


def _network() -> NetworkState:
    try:
        kernel = Kernel()
    except OSError as error:
        log.warning("the network of this machine cannot be read", error=str(error))
        return NetworkState()
    with closing(kernel):
        return kernel.snapshot()


async def _reach(hub: str, xds: str, tls: ssl.SSLContext) -> ReachedHub:
    """Ask a hub as the machine does, and connect to its xDS port."""
    problem, ahead_s = await look_at(hub, tls)
    host, port = split_host_port(xds)
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(host, int(port))
    except TimeoutError:
        xds_problem = f"no answer within {_CONNECT_S:g} s"
    except OSError as error:
        xds_problem = os.strerror(error.errno) if error.errno else str(error)
    else:
        writer.close()
        xds_problem = ""
    return ReachedHub(hub, xds, problem, xds_problem, ahead_s)


async def _answers(plan: MachinePlan, network: NetworkState) -> tuple[AskedAddress, ...]:
    """Ask each link who has the addresses that are announced there."""
    wanted: dict[int, list[str]] = {}
    for planned in plan.addresses:
        address = ipaddress.ip_address(planned.address)
        near = (link for link in network.links.values() if any(address in subnet for subnet in link.subnets))
        link = next(near, None)
        if planned.announcement == "L2" and link is not None and link.up:
            wanted.setdefault(link.index, []).append(str(address))
    asked: list[AskedAddress] = []
    for index, addresses in wanted.items():
        link = network.links[index]
        try:
            macs = await who_has(link, addresses[:_MOST], wait_s=_ANSWER_S)
        except OSError as error:
            log.warning("addresses cannot be asked for", interface=link.name, error=str(error))
            continue
        asked += [
            AskedAddress(address, link.name, link.mac, address in link.ours, tuple(sorted(macs[address])))
            for address in addresses[:_MOST]
        ]
    return tuple(asked)


async def _sessions(directory: Path, plan: MachinePlan) -> tuple[SessionState, ...]:
    """Return the sessions as the speaker that runs sees them; none without one."""
    if not plan.bgp_peers:
        return ()
    speaker = Bird(directory) if (directory / "bird.ctl").exists() else Frr(directory)
    try:
        if await speaker.adopted() is None:
            return ()
        return tuple(await speaker.sessions(plan.bgp_peers))
    except FairleadError as error:
        return tuple(SessionState(peer=peer.name, state="Unknown", problem=error.sentence) for peer in plan.bgp_peers)


def _settings(network: NetworkState) -> Iterator[KernelSetting]:
    names = ["net.ipv4.ip_nonlocal_bind", "net.ipv6.ip_nonlocal_bind"]
    for link in network.links.values():
        names += [f"net.ipv4.conf.{link.name}.{setting}" for setting in ("rp_filter", "arp_ignore", "arp_announce")]
    for name in names:
        # A name of an interface may have dots.
        parts = name.split(".", 3)
        parts = [*parts[:3], *parts[3].rsplit(".", 1)] if len(parts) > 3 else parts
        value = _read_number(_SYSCTL.joinpath(*parts))
        if value is not None:
            higher = _read_number(_SYSCTL.joinpath(*parts[:3], "all", parts[-1])) if len(parts) > 3 else None
            yield KernelSetting(name, max(value, higher or 0))


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _links(network: NetworkState, small: Mapping[str, Sequence[str]]) -> Iterator[LinkFacts]:
    for link in network.links.values():
        mtu = _read_number(_DEVICES / link.name / "mtu") or 0
        yield LinkFacts(link.name, link.up, mtu, tuple(map(str, link.subnets)), tuple(small.get(link.name, ())))


def _ageing() -> Iterator[tuple[str, float]]:
    """Yield after how many seconds each bridge of this machine forgets a MAC address."""
    for path in sorted(_DEVICES.glob("*/bridge/ageing_time")):
        if (value := _read_number(path)) is not None:
            yield path.parent.parent.name, value / 100


def _small_paths(plan: MachinePlan, network: NetworkState) -> dict[str, list[str]]:
    """Return the neighbours by interface that answer small packets, and none of the interface's full size."""
    small: dict[str, list[str]] = {}
    for link in network.links.values():
        near = list(_near(plan, network, link))[:_MOST_PATHS]
        mtu = _read_number(_DEVICES / link.name / "mtu") or 1500
        if not near or not link.up:
            continue
        try:
            answer_small, answer_large = (_ping(near, size, link.name) for size in (0, mtu - _HEADERS))
        except OSError as error:
            log.warning("the size of packets cannot be tried", interface=link.name, error=str(error))
            continue
        if lost := sorted(answer_small - answer_large):
            small[link.name] = lost
    return small


def _near(plan: MachinePlan, network: NetworkState, link: Link) -> Iterator[str]:
    """Yield the gateway and the machines on a link, by their addresses of IPv4."""
    if gateway := network.gateway(link.index, 4):
        yield gateway
    for neighbour in plan.neighbours:
        for text in neighbour.addresses:
            address = ipaddress.ip_address(text)
            if address.version == 4 and any(address in subnet for subnet in link.subnets):
                yield text


def _ping(addresses: Iterable[str], size: int, interface: str) -> set[str]:
    """Return the addresses that answer an echo request with so many bytes, which must not be fragmented."""
    number, answered = os.getpid() & 0xFFFF, set[str]()
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as opened:
        opened.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _DO_NOT_FRAGMENT)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
        opened.settimeout(_ANSWER_S)
        wanted = set(addresses)
        for address in wanted:
            with suppress(OSError):  # larger than the path: the kernel says so itself
                opened.sendto(_echo_request(number, size), (address, 0))
        with suppress(TimeoutError):
            while answered < wanted:
                packet, (source, _) = opened.recvfrom(65_536)
                offset = (packet[0] & 0xF) * 4
                kind, _, _, identifier = struct.unpack("!BBHH", packet[offset : offset + 6])
                if kind == _ECHO_REPLY and identifier == number and len(packet) >= offset + 8 + size:
                    answered.add(source)
    return answered & wanted


def _echo_request(number: int, size: int) -> bytes:
    body = struct.pack("!BBHHH", _ECHO_REQUEST, 0, 0, number, 1) + bytes(size)
    total = sum(struct.unpack(f"!{len(body + bytes(size % 2)) // 2}H", body + bytes(size % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return body[:2] + struct.pack("!H", ~total & 0xFFFF) + body[4:]
