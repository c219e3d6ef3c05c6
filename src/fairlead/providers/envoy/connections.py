"""The TCP connections of processes on this machine to one target: listed and closed through the kernel.

Envoy keeps the connections of a target that drains for as long as both ends like, and has no way to close those of one
target. The kernel closes them as if the network had: Envoy then closes the client's side. In: process ids, a target.
Out: how many connections there are, or were closed. Needs CAP_NET_ADMIN to close, and root or the same user to see
whose a connection is. Never touches a connection of another process.
Source: https://www.man7.org/linux/man-pages/man7/sock_diag.7.html
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fairlead.model.change import Action, TargetChange
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import DrainFigures
from fairlead.providers.envoy.frontends import EnvoyFrontend
from fairlead.runtime.background import watched

log = structlog.get_logger(__name__)

_SOCK_DIAG_BY_FAMILY, _SOCK_DESTROY = 20, 21
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_NETLINK_SOCK_DIAG = 4
_HEADER = struct.Struct("=IHHII")
#: Family, protocol, extensions, padding, states; then the identity of a socket.
_QUERY = struct.Struct("=BBBBI")
#: Ports and addresses of both ends (big-endian), interface, cookie.
_IDENTITY = struct.Struct("!HH16s16s4s8s")
#: Family, state, timer, retransmissions; identity; expires, rqueue, wqueue, uid, inode.
_ANSWER = struct.Struct("=BBBB48sIIIII")
#: All states but LISTEN and those that have ended.
_OPEN_STATES = 0xFFF & ~(1 << 10 | 1 << 7 | 1 << 6)
_BUFFER = 1 << 18
_NET_ADMIN = 12
#: How often connections of draining targets are counted.
_COUNT_S = 1.0


@lru_cache(maxsize=1)
def may_close_connections() -> bool:
    """Return whether this process has CAP_NET_ADMIN."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return any(line.startswith("CapEff:") and int(line.split()[1], 16) >> _NET_ADMIN & 1 for line in lines)


def count_connections(pids: Collection[int], target: TargetKey) -> int:
    """Return how many connections these processes have to a target.

    Raises:
        OSError: the kernel does not answer.
    """
    return sum(1 for _ in _connections(pids, target))


def close_connections(pids: Collection[int], target: TargetKey) -> int:
    """Close the connections of these processes to a target; return how many there were.

    Raises:
        PermissionError: this process lacks CAP_NET_ADMIN.
        OSError: the kernel does not answer, or was built without INET_DIAG_DESTROY.
    """
    closed = 0
    for family, identity in list(_connections(pids, target)):
        body = _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFF) + identity
        for kind, answer in _ask(_SOCK_DESTROY, _REQUEST | _ACK, body):
            code = -struct.unpack_from("=i", answer)[0] if kind == _ERROR else 0
            if code and code not in _GONE:
                raise OSError(code, os.strerror(code))
            closed += not code
    return closed


#: The connection ended meanwhile.
_GONE = frozenset({2, 111, 3})


def _connections(pids: Collection[int], target: TargetKey) -> Iterator[tuple[int, bytes]]:
    """Yield family and identity of each connection of these processes to a target."""
    address = ip_address(target.address)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    inodes = set[int]().union(*map(_inodes, pids))
    query = _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0, _OPEN_STATES) + bytes(_IDENTITY.size)
    for kind, answer in _ask(_SOCK_DIAG_BY_FAMILY, _REQUEST | _DUMP, query):
        if kind != _SOCK_DIAG_BY_FAMILY:
            continue
        _family, _state, _timer, _retries, identity, *_counts, inode = _ANSWER.unpack_from(answer)
        _source_port, port, _source, destination, _interface, _cookie = _IDENTITY.unpack(identity)
        if inode in inodes and port == target.port and destination[: len(address.packed)] == address.packed:
            yield family, identity


def _inodes(pid: int) -> set[int]:
    """Return the inodes of the sockets that a process has open; none when it has ended."""
    inodes = set[int]()
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            try:
                link = str(Path(entry.path).readlink())
            except FileNotFoundError:
                continue  # closed meanwhile
            if link.startswith("socket:["):
                inodes.add(int(link[8:-1]))
    except FileNotFoundError:
        return set()
    return inodes


def _ask(kind: int, flags: int, body: bytes) -> Iterator[tuple[int, bytes]]:
    """Send a request; yield kind and body of each answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(5.0)
        link.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body)
        while True:
            data, offset = link.recv(_BUFFER), 0
            while offset < len(data):
                length, answered, answer_flags, _sequence, _port = _HEADER.unpack_from(data, offset)
                answer = data[offset + _HEADER.size : offset + length]
                if answered == _DONE:
                    return
                if answered == _ERROR:
                    if flags & _DUMP == _DUMP:
                        code = -struct.unpack_from("=i", answer)[0]
                        raise OSError(code, os.strerror(code))
                    yield answered, answer
                    return
                yield answered, answer
                if not answer_flags & 2 and not flags & _ACK and flags & _DUMP != _DUMP:
                    return
                offset += (length + 3) & ~3


class _Drain(msgspec.Struct):
    """One target that drains: since when (monotonic, and by the clock), until when, and its connections."""

    groups: tuple[str, ...]
    started_s: float
    since_s: float
    ends_s: float
    connections: int = 0
    #: Why they could not be counted or closed.
    problem: str = ""


Place = tuple[LoadBalancerKey, ListenerKey, TargetKey]


class Drains(Collector):
    """The targets that drain for a limited time; their connections are counted, and closed at its end.

    ``pids`` returns the processes of groups of proxies; ``changed`` is called with load balancers whose figures differ.
    After a restart of the hub the time of a target begins again.
    """

    def __init__(
        self,
        *,
        pids: Callable[[Sequence[str]], list[int]],
        changed: Callable[[Iterable[LoadBalancerKey]], None],
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._pids = pids
        self._changed = changed
        self._drains: dict[Place, _Drain] = {}
        #: Targets whose time is over, and that are still listed.
        self._ended: set[Place] = set()
        self._task: asyncio.Task[None] | None = None
        if registry is not None:
            registry.register(self)

    def note(self, frontend: EnvoyFrontend, change: TargetChange) -> None:
        """Note that a target drains, or serves again."""
        place = (change.load_balancer, change.listener, change.key)
        drains = change.action in (Action.DRAIN, Action.DEREGISTER) or change.target.draining
        ended = place in self._ended
        if change.action is Action.DEREGISTER or not drains:
            self._ended.discard(place)
        if not drains:
            self._drains.pop(place, None)
        elif ended or place in self._drains or frontend.spec.l7 is not None:
            return
        elif frontend.spec.drain_s is not None:
            now_s = time.monotonic()
            self._drains[place] = _Drain(frontend.groups, now_s, time.time(), now_s + frontend.spec.drain_s)
            if self._task is None:
                self._task = watched("drains", self._run())

    def figures(self, key: LoadBalancerKey) -> DrainFigures | None:
        """Return the figures of a load balancer; None when no target of it drains."""
        drains = [drain for place, drain in self._drains.items() if place[0] == key]
        if not drains:
            return None
        connections = sum(drain.connections for drain in drains)
        return DrainFigures(len(drains), connections, min(drain.since_s for drain in drains))

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget the targets of a load balancer that is gone; those that drain keep their time."""
        self._ended = {place for place in self._ended if place[0] != key}

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of one scrape."""
        targets, connections = len(self._drains), sum(drain.connections for drain in self._drains.values())
        yield GaugeMetricFamily("fairlead_draining_targets", "Targets that drain for a limited time.", value=targets)
        yield GaugeMetricFamily("fairlead_draining_connections", "Connections of draining targets.", value=connections)

    def close(self) -> None:
        """Close nothing any longer."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        try:
            while self._drains:
                next_s = min(drain.ends_s for drain in self._drains.values()) - time.monotonic()
                await asyncio.sleep(max(0.05, min(_COUNT_S, next_s)))
                await self._look()
        finally:
            self._task = None

    async def _look(self) -> None:
        """Count the connections of all targets that drain, and close those whose time is over."""
        changed = set[LoadBalancerKey]()
        for place, drain in list(self._drains.items()):
            over = time.monotonic() >= drain.ends_s
            work = close_connections if over else count_connections
            try:
                connections = await asyncio.to_thread(work, self._pids(drain.groups), place[2])
            except OSError as error:
                if str(error) != drain.problem:
                    log.warning("connections of a draining target", target=str(place[2]), error=str(error))
                drain.problem, connections = str(error), 0
            if over:
                if connections:
                    log.info("closed connections after the drain time", target=str(place[2]), connections=connections)
                self._drains.pop(place, None)
                self._ended.add(place)
            if over or connections != drain.connections:
                drain.connections = connections
                changed.add(place[0])
        self._changed(changed)
