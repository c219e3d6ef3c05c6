"""The TCP connections of processes on this machine to targets: listed and closed through the kernel.

Envoy keeps the connections of a target that drains for as long as both ends like, and has no way to close those of one
target. In: process ids, targets. Out: how many connections there are, or were closed. Envoy ends the client's side as
the target's side ends:

    graceful   shutdown() of a copy of Envoy's socket      the target and the client get a FIN
    reset      disconnect of such a copy                   the target gets an RST, and a client of TCP, too
    destroyed  by the kernel (CAP_NET_ADMIN), if this      the target gets an RST, and the client a FIN
               process gets no copy

A copy needs the right to trace Envoy (same user, unless ``kernel.yama.ptrace_scope`` forbids it), and so does it to see
whose a connection is. Never touches a connection of another process, or of a target that another load balancer of the
same proxies still has: the kernel does not know for which load balancer Envoy made a connection. An option of the
socket, which the kernel shows since Linux 5.10, marks those of load balancers that members share.
Source: https://www.man7.org/linux/man-pages/man7/sock_diag.7.html
Source: https://www.man7.org/linux/man-pages/man2/pidfd_getfd.2.html
Source: https://www.man7.org/linux/man-pages/man2/connect.2.html (AF_UNSPEC)
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import socket
import stat
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import DrainFigures
from fairlead.providers.envoy.clusters import DRAIN_MARK, is_dns_name
from fairlead.providers.envoy.resources import DrainLimit, EncodedResource, Schema, fields_of, load_balancer_of
from fairlead.runtime.background import watched
from fairlead.runtime.queue import doubled_s

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
#: An attribute after an answer: length with this header, kind. The one with the options of a socket; IP_FREEBIND in it.
_ATTRIBUTE = struct.Struct("=HH")
_OPTIONS, _FREEBIND = 22, 0x4
#: All states but LISTEN and those that have ended.
_OPEN_STATES = 0xFFF & ~(1 << 10 | 1 << 7 | 1 << 6)
_BUFFER = 1 << 18
_NET_ADMIN = 12
#: How often connections of draining targets are counted.
_COUNT_S = 1.0
#: How long both ends have to answer the end of a connection before it is aborted.
_ANSWER_S = 5.0
#: The longest time between two attempts to close connections that could not be closed.
_AGAIN_S = 60.0
#: After this many failed attempts, the connections are left to the target and the client.
_MOST_ATTEMPTS = 20
_LIBC = ctypes.CDLL(None, use_errno=True)
_PIDFD_GETFD = 438
#: AF_UNSPEC, as a sockaddr.
_NOWHERE = bytes(16)


@lru_cache(maxsize=1)
def may_destroy_sockets() -> bool:
    """Return whether this process has CAP_NET_ADMIN."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return any(line.startswith("CapEff:") and int(line.split()[1], 16) >> _NET_ADMIN & 1 for line in lines)


def may_borrow_sockets(pid: int) -> bool:
    """Return whether the kernel gives this process copies of the sockets of another one."""
    try:
        return _may_trace(pid)
    except OSError:
        return False  # this time: no file is free, for example


@lru_cache(maxsize=64)
def _may_trace(pid: int) -> bool:
    try:
        copy = _copy_of(pid, 0)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EACCES, errno.ENOSYS}:
            raise
        log.warning("clients get no reset when a drain ends: this process may not trace envoy", error=str(error))
        return False
    if copy >= 0:
        os.close(copy)
    return True


class ConnectionsTo(NamedTuple):
    """The connections to a target: of load balancers that members share, or of all others."""

    target: TargetKey
    shared: bool = False


def count_connections(pids: Collection[int], groups: Collection[ConnectionsTo]) -> Counter[ConnectionsTo]:
    """Return how many connections these processes have of each group.

    Raises:
        OSError: the kernel does not answer.
    """
    return Counter(connection.group for connection in _connections(pids, groups))


def close_connections(
    pids: Collection[int], groups: Collection[ConnectionsTo], *, reset: bool = False
) -> Counter[ConnectionsTo]:
    """Close or reset the connections of these processes of each group; return how many there were.

    Raises:
        PermissionError: this process may not trace the others, and lacks CAP_NET_ADMIN.
        OSError: the kernel does not answer, or was built without INET_DIAG_DESTROY.
    """
    closed = Counter[ConnectionsTo]()
    for group, family, identity, inode, holder in list(_connections(pids, groups)):
        if may_borrow_sockets(holder[0]):
            closed[group] += _end(*holder, inode, reset=reset)
            continue
        body = _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFF) + identity
        for kind, answer in _ask(_SOCK_DESTROY, _REQUEST | _ACK, body):
            code = -struct.unpack_from("=i", answer)[0] if kind == _ERROR else 0
            if code and code not in _GONE:
                raise OSError(code, os.strerror(code))
            closed[group] += not code
    return closed


def _end(pid: int, descriptor: int, inode: int, *, reset: bool) -> bool:
    """End a connection of another process; return False when it has ended meanwhile.

    Raises:
        OSError: this process gets no copy of its socket.
    """
    number = _copy_of(pid, descriptor)
    if number < 0:
        return False
    try:
        status = os.fstat(number)
        if not stat.S_ISSOCK(status.st_mode) or status.st_ino != inode:
            return False
        if reset:
            return not _LIBC.connect(number, _NOWHERE, len(_NOWHERE))
        return not _LIBC.shutdown(number, socket.SHUT_RDWR)
    finally:
        os.close(number)


def _copy_of(pid: int, descriptor: int) -> int:
    """Return a copy of a file that another process has open, -1 if it is no longer open there.

    Raises:
        OSError: this process may not trace the other one, or Linux is older than 5.6.
    """
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return -1
    try:
        number = _LIBC.syscall(_PIDFD_GETFD, process, descriptor, 0)
        code = ctypes.get_errno()
    finally:
        os.close(process)
    if number < 0 and code not in {errno.EBADF, errno.ESRCH}:
        raise OSError(code, os.strerror(code))
    return number


#: The connection has ended in the meantime.
_GONE = frozenset({errno.ENOENT, errno.ESRCH, errno.ECONNREFUSED})


class _OpenConnection(NamedTuple):
    """A connection: its identity in the kernel, its inode, and the process and file descriptor that have it."""

    group: ConnectionsTo
    family: int
    identity: bytes
    inode: int
    holder: tuple[int, int]


def _connections(pids: Collection[int], groups: Iterable[ConnectionsTo]) -> Iterator[_OpenConnection]:
    """Yield the connections of these processes that are in one of the groups."""
    holders = {inode: (pid, descriptor) for pid in pids for inode, descriptor in _inodes(pid)}
    wanted: dict[int, dict[tuple[bytes, int, bool], ConnectionsTo]] = {}
    for group in groups:
        address = ip_address(group.target.address)
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        place = (address.packed.ljust(16, b"\0"), group.target.port, group.shared)
        wanted.setdefault(family, {})[place] = group
    for family, by_place in wanted.items() if holders else ():
        query = _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0, _OPEN_STATES) + bytes(_IDENTITY.size)
        for kind, answer in _ask(_SOCK_DIAG_BY_FAMILY, _REQUEST | _DUMP, query):
            if kind != _SOCK_DIAG_BY_FAMILY:
                continue
            _family, _state, _timer, _retries, identity, *_counts, inode = _ANSWER.unpack_from(answer)
            _source_port, port, _source, destination, _interface, _cookie = _IDENTITY.unpack(identity)
            if inode not in holders:
                continue
            shared = _is_freebind(answer[_ANSWER.size :])
            if (group := by_place.get((destination, port, shared))) is not None:
                yield _OpenConnection(group, family, identity, inode, holders[inode])


def _is_freebind(attributes: bytes) -> bool:
    """Return whether a socket has the option IP_FREEBIND, which Envoy sets where members share a load balancer."""
    offset = 0
    while offset + _ATTRIBUTE.size < len(attributes):
        length, kind = _ATTRIBUTE.unpack_from(attributes, offset)
        if kind == _OPTIONS:
            return bool(attributes[offset + _ATTRIBUTE.size] & _FREEBIND)
        offset += (length + 3) & ~3
    return False


def _inodes(pid: int) -> list[tuple[int, int]]:
    """Return inode and file descriptor of the sockets that a process has open; none if it has ended."""
    inodes: list[tuple[int, int]] = []
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            try:
                link = str(Path(entry.path).readlink())
            except FileNotFoundError:
                continue  # closed meanwhile
            if link.startswith("socket:["):
                inodes.append((int(link[8:-1]), int(entry.name)))
    except FileNotFoundError:
        return []
    return inodes


def _ask(kind: int, flags: int, body: bytes) -> Iterator[tuple[int, bytes]]:
    """Send a request; yield kind and body of each answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(5.0)
        link.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body)
        while True:
            data, offset = link.recv(_BUFFER), 0
            while offset < len(data):
                length, answered, _flags, _sequence, _port = _HEADER.unpack_from(data, offset)
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
                offset += (length + 3) & ~3


class _Drain(msgspec.Struct):
    """One target that drains: since when (by the clock), until when (monotonic), and its connections."""

    groups: tuple[str, ...]
    since_s: float
    ends_s: float
    #: Its connections are aborted then; else they are closed, and aborted ``_ANSWER_S`` later.
    reset: bool
    closed_once: bool = False
    connections: int = 0
    #: Why they could not be counted or closed; ``connections`` is then the number that was counted last.
    problem: str = ""
    #: How often closing them has failed.
    failures: int = 0


#: The name of a cluster, and its connections to one of its targets.
Place = tuple[str, ConnectionsTo]
#: Targets, groups of proxies -> each place of such a target at these proxies, and whether it drains there.
PlacesOf = Callable[[Collection[TargetKey], Collection[str]], Iterable[tuple[Place, bool]]]


class Drains(Collector):
    """The targets that drain for a limited time; their connections are counted, and closed at its end.

    ``pids`` returns the processes of groups of proxies; ``changed`` is called with load balancers whose figures differ.
    A target that drains for another load balancer of the same proxies keeps its connections until that is over, too;
    one that serves there keeps them. After a restart of the hub the time of a target begins again.
    """

    def __init__(
        self,
        *,
        pids: Callable[[Sequence[str]], list[int]],
        places_of: PlacesOf,
        changed: Callable[[Iterable[LoadBalancerKey]], None],
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._pids = pids
        self._places_of = places_of
        self._changed = changed
        self._drains: dict[Place, _Drain] = {}
        #: Targets whose time is over, and that are still listed.
        self._ended: set[Place] = set()
        self._task: asyncio.Task[None] | None = None
        if registry is not None:
            registry.register(self)

    def note(
        self, place: Place, groups: tuple[str, ...], limit: DrainLimit | None, *, drains: bool, listed: bool = True
    ) -> None:
        """Note that a target drains, for a limited time or without a limit, or serves.

        ``listed``: the proxies still have it.
        """
        ended = place in self._ended
        if not (drains and listed):
            self._ended.discard(place)
        if not drains:
            self._drains.pop(place, None)
        elif not (ended or place in self._drains or limit is None or is_dns_name(place[1].target.address)):
            self._drains[place] = _Drain(groups, time.time(), time.monotonic() + limit.seconds, limit.reset)
            if self._task is None:
                self._task = watched("drains", self._run())

    def figures(self) -> dict[LoadBalancerKey, DrainFigures]:
        """Return the figures of each load balancer with a target that drains."""
        figures: dict[LoadBalancerKey, DrainFigures] = {}
        counted = set[tuple[LoadBalancerKey, ConnectionsTo, tuple[str, ...]]]()
        for (name, group), drain in self._drains.items():
            if (key := load_balancer_of(name)) is not None:
                # Ports with one target share its connections, which the kernel counts by target.
                again = (key, group, drain.groups) in counted
                counted.add((key, group, drain.groups))
                added = DrainFigures(0 if again else 1, 0 if again else drain.connections, drain.since_s)
                figures[key] = figures[key].plus(added) if key in figures else added
        return figures

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget the targets of a load balancer that is gone; those that drain keep their time."""
        self._ended = {place for place in self._ended if load_balancer_of(place[0]) != key}

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of one scrape."""
        counts = {(group, drain.groups): drain.connections for (_, group), drain in self._drains.items()}
        targets, connections = len(counts), sum(counts.values())
        yield GaugeMetricFamily("fairlead_draining_targets", "Targets that drain for a limited time.", value=targets)
        yield GaugeMetricFamily("fairlead_draining_connections", "Connections of draining targets.", value=connections)

    def close(self) -> None:
        """Stop closing connections."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        try:
            while self._drains:
                now_s = time.monotonic()
                # One whose time is over may wait for another one.
                next_s = min(
                    (drain.ends_s - now_s for drain in self._drains.values() if drain.ends_s > now_s), default=1
                )
                await asyncio.sleep(max(0.05, min(_COUNT_S, next_s)))
                await self._look()
        finally:
            self._task = None

    async def _look(self) -> None:
        """Count the connections of all targets that drain, and close those whose time is over."""
        changed = set[LoadBalancerKey]()
        for groups in {drain.groups for drain in self._drains.values()}:
            changed |= await self._look_at(groups)
        self._changed(changed)

    async def _look_at(self, groups: tuple[str, ...]) -> set[LoadBalancerKey]:
        """Look at the targets of these groups; return the load balancers whose figures differ."""
        drains = {place: drain for place, drain in self._drains.items() if drain.groups == groups}
        over = self._over(groups, drains)
        closing = {place[1] for place, closes in over.items() if closes}
        resetting = {place[1] for place in over if drains[place].reset or drains[place].closed_once} & closing
        pids, counts, problems = self._pids(groups), dict[ConnectionsTo, int](), dict[ConnectionsTo, str]()
        again = set[ConnectionsTo]()
        for call, asked in (
            (partial(close_connections, reset=True), resetting),
            (close_connections, closing - resetting),
            (count_connections, {place[1] for place in drains} - closing),
        ):
            try:
                counts |= dict.fromkeys(asked, 0) | (await asyncio.to_thread(call, pids, asked) if asked else {})
            except PermissionError as error:
                # Another attempt would fail, too; the message of Programmed says that connections are kept.
                problems |= dict.fromkeys(asked, str(error))
            except OSError as error:
                problems |= dict.fromkeys(asked, str(error))
                again |= asked
        changed = set[LoadBalancerKey]()
        for place, drain in drains.items():
            # What is not known now is as it was counted last.
            target, number = str(place[1].target), counts.get(place[1], drain.connections)
            problem = problems.get(place[1], "")
            if problem and problem != drain.problem:
                log.warning(
                    "connections of a draining target cannot be counted or closed", target=target, error=problem
                )
            drain.problem = problem
            if place[1] in closing and number and not problem:
                log.info("closed connections after the drain time", target=target, connections=number)
            failed = place in over and place[1] in again and drain.failures < _MOST_ATTEMPTS
            ended = place in over and not failed and (drain.reset or drain.closed_once or not over[place])
            ended = ended or (not problem and not number and (place in over or drain.closed_once))
            if failed:
                drain.failures += 1
                drain.ends_s = time.monotonic() + doubled_s(drain.failures, base_s=_COUNT_S, limit_s=_AGAIN_S)
            elif place in over and not ended:
                drain.ends_s, drain.closed_once = time.monotonic() + _ANSWER_S, True
            elif ended and self._drains.get(place) is drain:
                del self._drains[place]
                self._ended.add(place)
            if ended or number != drain.connections:
                drain.connections = number
                changed |= {key for key in (load_balancer_of(place[0]),) if key is not None}
        return changed

    def _over(self, groups: tuple[str, ...], drains: Mapping[Place, _Drain]) -> dict[Place, bool]:
        """Return the places whose time is over, each with whether to close the connections of its target."""
        now_s = time.monotonic()
        over = {place for place, drain in drains.items() if now_s >= drain.ends_s}
        ended = self._ended | {place for place, drain in self._drains.items() if now_s >= drain.ends_s}
        # Whether it drains at all other places.
        elsewhere: dict[ConnectionsTo, bool] = {}
        if over:
            for place, is_draining in self._places_of({place[1].target for place in over}, groups):
                if place not in ended:
                    elsewhere[place[1]] = elsewhere.get(place[1], True) and is_draining
        return {place: place[1] not in elsewhere for place in over if not elsewhere.get(place[1])}


class EndpointDrains:
    """The drains of a proxy whose endpoints come from a hub elsewhere: how long each target drains is in them.

    ``resources`` returns all endpoints that the proxy has. A target that is gone keeps the time that it had.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        pids: Callable[[], list[int]],
        resources: Callable[[], Mapping[str, EncodedResource]],
        changed: Callable[[], None],
    ) -> None:
        self._schema = schema
        self._resources = resources
        self._limited: dict[str, frozenset[ConnectionsTo]] = {}
        self.drains = Drains(
            pids=lambda _groups: pids(),
            places_of=self._places_of,
            changed=lambda keys: changed() if any(True for _ in keys) else None,
        )

    def note(self, name: str) -> None:
        """Note that the endpoints of a cluster may have changed."""
        resource = self._resources().get(name)
        before = self._limited.pop(name, frozenset[ConnectionsTo]())
        if not before and (resource is None or DRAIN_MARK not in resource.field):
            return
        endpoints = self._endpoints(resource) if resource is not None else {}
        limited = {group: limit for group, (drains, limit) in endpoints.items() if drains and limit is not None}
        for group in before - limited.keys():
            gone = group not in endpoints
            self.drains.note((name, group), (), None, drains=gone, listed=not gone)
        for group, limit in limited.items():
            self.drains.note((name, group), (), limit, drains=True)
        if limited:
            self._limited[name] = frozenset(limited)

    def _places_of(self, targets: Collection[TargetKey], _groups: Collection[str]) -> Iterator[tuple[Place, bool]]:
        addresses = [target.address.encode() for target in targets]
        for name, resource in self._resources().items():
            if any(address in resource.field for address in addresses):
                for group, (drains, _) in self._endpoints(resource).items():
                    if group.target in targets:
                        yield (name, group), drains

    def _endpoints(self, resource: EncodedResource) -> Mapping[ConnectionsTo, tuple[bool, DrainLimit | None]]:
        """Return whether each target of a cluster drains, and for how long; None for no limit."""
        endpoints, shared = self._schema.read_assignment(_content(resource))
        return {ConnectionsTo(target, shared): drains for target, drains in endpoints.items()}


def _content(resource: EncodedResource) -> bytes:
    """Return the message inside the field of a response."""
    content = resource.field
    for _ in ("resources", "resource", "value"):
        content = next(fields_of(content, 2))
    return content
