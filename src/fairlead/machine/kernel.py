"""Load balancers that the kernel of this machine forwards: kept on disk, checked here, applied by nftables.

    hub ──ForwardingTable──► file ──┐                      ┌──► one transaction of what differs: nft -f -
    plan (who announces what) ──────┼──► elements of maps ─┤
    health checks ──────────────────┘                      └──► connections of targets that are gone: conntrack

The kernel forwards without this process: a restart adopts what is there, and writes the differences. After a boot the
table of the file is applied before any hub answers. Only our tables are changed; when another program
deletes one, as ``flush ruleset`` does, it is made again at once. A target that refuses a connection, or does not answer
two within 0.3 s each, gets no new connections until it answers again.
Never: deletes the table or its chains, since that would cut every connection; touches other tables.

Pods with an egress identity leave with the address of a load balancer; their rules are in a table of their own:

    pod ─► node ─► machine that announces the address ─► source becomes that address, port of its range ─► outside

Each change replaces all rules of the table ``inet fairlead_egress`` in one transaction; connections under way keep
their translation, which is in the kernel's connection tracking. A source port in the range is kept, so the machine that
takes the address over translates open connections alike. Segments of those that it does not know yet are dropped and
not refused: the pod sends again, and the connection continues. Like the other, this table is never deleted.
"""

from __future__ import annotations

import asyncio
import errno
import select
import shutil
import socket
import struct
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import msgspec
import structlog

from fairlead.api.json_text import read_json
from fairlead.errors import BadConfiguration, FairleadError
from fairlead.machine.kernel_maps import (
    TABLE,
    Elements,
    Flow,
    elements_of,
    flows_in,
    flows_of,
    listed_elements,
    skeleton,
    transaction,
)
from fairlead.model.keys import Protocol
from fairlead.model.machine import (
    EGRESS_TABLE,
    ConnectionSyncState,
    EgressIdentity,
    ForwardedLoadBalancer,
    ForwardingState,
    ForwardingTable,
    MachinePlan,
    target_name,
)
from fairlead.runtime.background import watched
from fairlead.runtime.commands import run_network_program
from fairlead.runtime.private_file import write_private

#: A target is checked again after so long, or later, if more than that many checks a second were needed.
_CHECK_S, _CHECKS_PER_S = 0.4, 500
_CONNECT_S, _ATTEMPTS = 0.3, 2
#: How long the first checks of new targets may hold a change back, and how many run at once.
_FIRST_CHECKS_S, _AT_ONCE = 0.7, 200
_RETRY_S = 1.0
#: Connections of a port that was removed continue for so long, as they do at Envoy.
DRAIN_S = 30.0
#: Time between two writes of the file.
_SAVE_S = 1.0
#: Of netlink: NETLINK_NETFILTER, the group NFNLGRP_NFTABLES, and NFT_MSG_DELTABLE of its subsystem.
_NETFILTER, _NFTABLES_GROUP, _TABLE_DELETED = 12, 1 << 6, 10 << 8 | 2
_MESSAGE = struct.Struct("=IHHII")
_FORWARDING = {4: (Path("/proc/sys/net/ipv4/ip_forward"),), 6: (Path("/proc/sys/net/ipv6/conf/all/forwarding"),)}
_ACCEPT_RA = "/proc/sys/net/ipv6/conf"

log = structlog.get_logger(__name__)


class KernelPath:
    """The load balancers in the kernel of this machine. ``on_change`` is called when ``state`` returns another one.

    ``connections`` returns how far another machine has the connections.
    """

    def __init__(
        self,
        file: Path,
        *,
        on_change: Callable[[], None],
        connections: Callable[[], ConnectionSyncState | None] = lambda: None,
    ) -> None:
        self._connections = connections
        self._file = file
        self._on_change = on_change
        self._version = ""
        self._entries: dict[str, ForwardedLoadBalancer] = {}
        #: What the kernel has by load balancer, "" for what was there before; None while that is unknown.
        self._elements: dict[str, Elements] | None = None
        self._flows: dict[str, set[Flow]] = {}
        self._events: socket.socket | None = None
        #: The identities that the hub wants, and those of the kernel; None while that is unknown.
        self.wanted_egress: tuple[EgressIdentity, ...] = ()
        self._programmed_egress: tuple[EgressIdentity, ...] | None = None
        #: Another program deleted the table, and it could not be created again yet.
        self._lost = self._missing = False
        self._changed: set[str] = set()
        self._dirty = asyncio.Event()
        self._unsaved = asyncio.Event()
        self._shared: frozenset[str] = frozenset()
        self._applied_version = ""
        self._problem = self._disk_problem = ""
        self._targets: dict[str, _CheckedTarget] = {}
        #: The checked targets of each load balancer.
        self._names: dict[str, list[str]] = {}
        #: Every target once, with the time of its next check.
        self._checks: deque[tuple[float, _CheckedTarget]] = deque()
        self._new_checks = asyncio.Event()
        self._down: set[str] = set()
        #: Load balancers with a target that was seen healthy, or is not checked.
        self._proven: set[str] = set()

    # --- for the process of the machine -------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """Return the version of the table on this machine; the hub answers with what has changed since."""
        return self._version

    def load(self) -> None:
        """Read the table that an earlier process kept."""
        with suppress(OSError):
            if (table := read_json(self._file.read_bytes(), ForwardingTable)) is not None:
                self._take(table)

    def update(self, change: ForwardingTable) -> None:
        """Store a forwarding table or its changes from the hub."""
        self._take(change)
        self._unsaved.set()

    def follow(self, plan: MachinePlan) -> None:
        """Store which addresses several machines announce at once."""
        shared = frozenset(
            planned.address
            for planned in plan.addresses
            if planned.announcement in ("BGP", "External") and len(planned.machines) > 1
        )
        if moved := shared ^ self._shared:
            self._shared = shared
            self._mark(key for key, entry in self._entries.items() if moved.intersection(entry.addresses))

    def serving(self, plan: MachinePlan) -> dict[str, bool | None]:
        """Return whether each address with a load balancer in the kernel may be announced here; None if unknown."""
        by_name: dict[str, list[str]] = {}
        for key, entry in self._entries.items():
            by_name.setdefault(entry.name, []).append(key)
        answer: dict[str, bool | None] = {}
        for planned in plan.addresses:
            keys = [key for name in planned.load_balancers for key in by_name.get(name, ())]
            if not keys:
                continue
            programmed = self._elements or {}
            if not any(key in programmed for key in keys):
                answer[planned.address] = False if self._missing else None
                continue
            listening = any(key in self._proven for key in keys)
            healthy = any(_serves(programmed.get(key, {}), planned.address) for key in keys)
            answer[planned.address] = planned.may_announce(plan.machine, listening=listening, healthy=healthy)
        return answer

    def healthy(self) -> frozenset[str]:
        """Return ``namespace/name`` of each load balancer that has a target in service."""
        programmed = self._elements or {}
        return frozenset(entry.name for key, entry in self._entries.items() if _serves(programmed.get(key, {})))

    @property
    def state(self) -> ForwardingState:
        """Return what the kernel follows, for the hub."""
        return ForwardingState(
            version=self._applied_version,
            unhealthy=tuple(sorted(self._down)),
            egress=tuple(sorted(identity.address for identity in self._programmed_egress or ())),
            problem=self._problem or self._disk_problem,
            connections=self._connections(),
        )

    async def run(self) -> None:
        """Work until cancelled; the kernel continues."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._work())
                tasks.create_task(self._check_all())
                tasks.create_task(self._save())
        finally:
            self._elements = self._programmed_egress = None
            if self._events is not None:
                asyncio.get_running_loop().remove_reader(self._events)
                self._events.close()
                self._events = None

    # --- desired state ------------------------------------------------------------------------------------------

    def _take(self, change: ForwardingTable) -> None:
        before, entries = self._entries, change.applied_to(self._entries)
        keys = (
            entries.keys() | before.keys()
            if change.whole
            else {*change.removed, *(e.key for e in change.load_balancers)}
        )
        self._version, self._entries = change.version, entries
        self.wanted_egress = change.egress_after(self.wanted_egress)
        changed = {key for key in keys if entries.get(key) != before.get(key)}
        self._plan_checks(changed)
        self._mark(changed)
        # Also without a difference: the hub waits for the version.
        self._dirty.set()

    def _mark(self, keys: Iterable[str]) -> None:
        self._changed.update(keys)
        if self._changed:
            self._dirty.set()

    async def _save(self) -> None:
        """Write the table when it has changed, at once but not all the time; and when this process ends."""
        try:
            while True:
                await self._unsaved.wait()
                self._unsaved.clear()
                writing = watched("forwarding table", asyncio.to_thread(self._write), expected=OSError)
                try:
                    # The thread continues when this is cancelled, and the last write must not begin before it ends.
                    await asyncio.shield(writing)
                    self._disk_problem = ""
                except asyncio.CancelledError:
                    await asyncio.wait({writing})
                    raise
                except OSError as error:
                    text = f"{self._file} cannot be written ({error.strerror}); a boot would restore older state"
                    self._disk_problem = text
                    self._unsaved.set()
                self._on_change()
                await asyncio.sleep(_SAVE_S)
        finally:
            if self._unsaved.is_set():
                with suppress(OSError):
                    self._write()

    def _write(self) -> None:
        entries = tuple(self._entries.values())
        table = ForwardingTable(version=self._version, load_balancers=entries, egress=self.wanted_egress)
        write_private(self._file, msgspec.json.encode(table))

    # --- the kernel ---------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        self._dirty.set()
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if not self._version:
                continue  # nothing is known yet, so what the kernel has stays
            if self._lost:
                self._lost, self._elements, self._programmed_egress = False, None, None
            problems: list[str] = []
            # What the kernel has is unknown after an error. Neither part waits for the other one.
            try:
                await self._apply()
            except FairleadError as error:
                self._elements = None
                problems.append(error.sentence)
            try:
                await self._apply_egress()
            except FairleadError as error:
                self._programmed_egress = None
                problems.append(error.sentence)
            problem = "; ".join(dict.fromkeys(problems))
            if problem != self._problem:
                self._problem = problem
                log.warning("kernel data path", sentence=problem or "works again")
                self._on_change()
            if problems:
                await asyncio.sleep(_RETRY_S)
                self._dirty.set()

    async def _apply(self) -> None:
        await self._check_new()
        if self._elements is None:
            if not self._entries and not (shutil.which("nft") and await _has_table(TABLE)):
                self._acknowledge(self._version)
                return
            await self._read_table()
        elements = self._elements or {}
        version, entries = self._version, self._entries
        changed, self._changed = self._changed, set()
        before: dict[tuple[str, str], str] = {}
        after: dict[tuple[str, str], str] = {}
        new: dict[str, Elements] = {}
        for key in changed:
            before |= elements.get(key, {})
            if (entry := entries.get(key)) is not None:
                new[key] = elements_of(entry, down=self._down, shared=self._shared)
                after |= new[key]
        if script := transaction(before, after):
            self._allow_forwarding({6 if ":" in address else 4 for key in new for address in entries[key].addresses})
            try:
                await _nft(script)
            except FairleadError:
                self._changed |= changed
                raise
        for key in changed:
            if key in new:
                elements[key] = new[key]
            else:
                elements.pop(key, None)
        self._elements = elements
        self._missing = False
        self._note_proven(new)
        self._end_flows(changed)
        self._acknowledge(version)

    async def _apply_egress(self) -> None:
        """Have the kernel translate the sources of all identities; without identities, create no table."""
        wanted = self.wanted_egress
        if wanted == self._programmed_egress:
            return
        if wanted or (shutil.which("nft") and await _has_table(EGRESS_TABLE)):
            self._watch_tables()
            self._allow_forwarding({6 if ":" in identity.address else 4 for identity in wanted})
            await _nft(egress_rules(wanted))
            log.info(
                "egress identities", addresses=len(wanted), sources=sum(len(identity.sources) for identity in wanted)
            )
        self._programmed_egress = wanted
        self._on_change()

    def _watch_tables(self) -> None:
        if self._events is None:
            self._events = _open_netlink()
            asyncio.get_running_loop().add_reader(self._events, self._read_events, self._events)

    async def _read_table(self) -> None:
        """Read the kernel's table; create it if it is missing."""
        self._watch_tables()
        there = await _has_table(TABLE)
        present: Elements | None = {}
        if there:
            listing = await run_network_program("nft", "-j", "list", "table", *TABLE.split())
            present = listed_elements(listing)
            if present is None:
                raise BadConfiguration(
                    f"the nftables table {TABLE} of this machine was not made by this release. Connections of the "
                    f"kernel data path end when you delete it: nft delete table {TABLE}"
                )
        else:
            self._missing = True
            await _nft(skeleton())
        self._elements = {"": present}
        self._flows = {"": flows_in(present)}
        self._changed = {"", *self._entries}
        log.info("kernel data path", read_back=bool(there), elements=len(present))

    def _note_proven(self, new: Mapping[str, Elements]) -> None:
        for key, elements in new.items():
            if not _serves(elements):
                continue
            names = self._names.get(key, ())
            unchecked = not names
            if unchecked or any(self._targets[name].healthy for name in names if name in self._targets):
                self._proven.add(key)
        self._proven &= self._entries.keys()

    def _acknowledge(self, version: str) -> None:
        self._applied_version = version
        self._on_change()

    def _read_events(self, events: socket.socket) -> None:
        """Notice that a table was deleted, or that events were lost."""
        deleted = False
        try:
            while True:
                deleted |= has_deleted_table(events.recv(65_536))
        except BlockingIOError:
            pass
        except OSError as error:
            deleted = True
            if error.errno != errno.ENOBUFS:
                log.warning("events of nftables cannot be read", error=error.strerror)
        if deleted and (self._elements is not None or self._programmed_egress):
            watched("kernel table", self._look_for_table(), expected=FairleadError)

    async def _look_for_table(self) -> None:
        ours = [*([TABLE] if self._elements is not None else []), *([EGRESS_TABLE] if self._programmed_egress else [])]
        for table in [table for table in ours if not await _has_table(table)]:
            log.warning("another program deleted the table", table=table)
            self._lost = True
            self._dirty.set()

    @staticmethod
    def _allow_forwarding(versions: Collection[int]) -> None:
        for version in versions:
            for path in _FORWARDING[version]:
                try:
                    if path.read_text(encoding="ascii").strip() != "0":
                        continue
                    if version == 6:
                        _keep_router_advertisements()
                    path.write_text("1\n", encoding="ascii")
                except OSError as error:
                    name = ".".join(path.parts[3:])
                    raise BadConfiguration(
                        f"{name} cannot be set ({error.strerror}), and without it the kernel forwards nothing; set it: "
                        f"sysctl -w {name}=1"
                    ) from error

    # --- connections that end -----------------------------------------------------------------------------------

    def _end_flows(self, changed: Iterable[str]) -> None:
        """Delete the connections of removed targets at once, and those of removed ports after a while."""
        gone: set[Flow] = set()
        wanted: set[Flow] = set()
        for key in changed:
            gone |= self._flows.pop(key, set())
            if (entry := self._entries.get(key)) is not None:
                self._flows[key] = flows_of(entry)
                wanted |= self._flows[key]
        ports = {flow[:3] for flow in wanted}
        gone -= wanted
        if now := [flow for flow in gone if flow[:3] in ports]:
            watched("connections", self._delete(now), expected=FairleadError)
        if later := [flow for flow in gone if flow[:3] not in ports]:
            asyncio.get_running_loop().call_later(DRAIN_S, self._delete_unwanted, later)

    def _delete_unwanted(self, flows: Iterable[Flow]) -> None:
        wanted = set[Flow]().union(*self._flows.values())
        watched("connections", self._delete([flow for flow in flows if flow not in wanted]), expected=FairleadError)

    @staticmethod
    async def _delete(flows: Sequence[Flow]) -> None:
        if flows:
            await run_network_program("conntrack", "-R", "-", text="".join(map(_conntrack_line, flows)))

    # --- health -------------------------------------------------------------------------------------------------

    def _plan_checks(self, changed: Iterable[str]) -> None:
        """Check the targets of these load balancers: new ones first, and no others."""
        for key in changed:
            entry = self._entries.get(key)
            before, names = self._names.pop(key, []), _checked_names(entry) if entry is not None else []
            for name in names:
                if name not in self._targets:
                    self._targets[name] = _CheckedTarget(name)
                    self._checks.appendleft((0.0, self._targets[name]))
                self._targets[name].load_balancers.add(key)
            for name in set(before).difference(names):
                self._targets[name].load_balancers.discard(key)
                if not self._targets[name].load_balancers:
                    del self._targets[name]
                    self._down.discard(name)
            if names:
                self._names[key] = names
        self._new_checks.set()

    async def _check_new(self) -> None:
        """Check targets for the first time without delaying a change for long."""
        names = [name for name, target in self._targets.items() if target.healthy is None]
        free = asyncio.Semaphore(_AT_ONCE)

        async def check(name: str) -> None:
            async with free:
                await self._check(name)

        if names:
            tasks = [watched("first check", check(name)) for name in names]
            _, late = await asyncio.wait(tasks, timeout=_FIRST_CHECKS_S)
            for task in late:
                task.cancel()

    async def _check_all(self) -> None:
        """Check every target repeatedly."""
        loop = asyncio.get_running_loop()
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                if not self._checks:
                    self._new_checks.clear()
                    await self._new_checks.wait()
                    continue
                due_s, target = self._checks[0]
                if (wait_s := due_s - loop.time()) > 0:
                    await asyncio.sleep(min(wait_s, _CHECK_S))
                    continue
                self._checks.popleft()
                if self._targets.get(target.name) is not target:
                    continue  # removed; one of the same name has its own turn
                task = watched("check", self._check(target.name))
                running.add(task)
                task.add_done_callback(running.discard)
                pause_s = max(_CHECK_S, len(self._targets) / _CHECKS_PER_S)
                self._checks.append((loop.time() + pause_s, target))
                # The others of this process have their turn, also when many are due.
                await asyncio.sleep(1 / _CHECKS_PER_S if len(running) > _AT_ONCE else 0)
        finally:
            for task in tuple(running):
                task.cancel()

    async def _check(self, name: str) -> None:
        _, address, port = name.split(" ")
        healthy = await answers(address, int(port))
        target = self._targets.get(name)
        if target is None or target.healthy is healthy:
            return
        target.healthy = healthy
        (self._down.discard if healthy else self._down.add)(name)
        self._mark(target.load_balancers)


class _CheckedTarget:
    def __init__(self, name: str) -> None:
        self.name = name
        #: None before the first check has ended.
        self.healthy: bool | None = None
        self.load_balancers: set[str] = set()


def _checked_names(load_balancer: ForwardedLoadBalancer) -> list[str]:
    """Return the targets of a load balancer that are checked."""
    return [
        target_name(port.protocol, target.address, target.port)
        for port in load_balancer.ports
        if load_balancer.checked and port.protocol is Protocol.TCP
        for target in port.targets
        if not target.draining
    ]


def _serves(elements: Elements, address: str = "") -> bool:
    """Return whether these elements lead to a target, at ``address`` if one is passed."""
    return any(name.startswith("services") and (not address or key.startswith(f"{address} ")) for name, key in elements)


async def answers(address: str, port: int) -> bool:
    """Return whether a TCP connection is accepted; a refused one is not retried."""
    for _ in range(_ATTEMPTS):
        accepted = await _connect(address, port)
        if accepted is not None:
            return accepted
    return False


async def _connect(address: str, port: int) -> bool | None:
    """Return whether a connection was accepted or refused; None without an answer."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as probe:
        # Closed by a reset: thousands of checks leave no TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            async with asyncio.timeout(_CONNECT_S):
                await asyncio.get_running_loop().sock_connect(probe, (address, port))
        except TimeoutError:
            # The delay may be this process's, not the target's.
            poll = select.poll()  # select() has a limit of files
            poll.register(probe, select.POLLOUT)
            return True if poll.poll(0) and not probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) else None
        except OSError:
            return False
    return True


# --- programs -------------------------------------------------------------------------------------------------------


def _keep_router_advertisements() -> None:
    """Keep interfaces that have their route from router advertisements: a router ignores these otherwise."""
    for path in Path(_ACCEPT_RA).glob("*/accept_ra"):
        if path.read_text(encoding="ascii").strip() == "1":
            path.write_text("2\n", encoding="ascii")


def _open_netlink() -> socket.socket:
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    events = socket.socket(socket.AF_NETLINK, kind, _NETFILTER)
    try:
        events.bind((0, _NFTABLES_GROUP))
    except OSError as error:
        events.close()
        raise BadConfiguration(
            f"events of nftables cannot be read ({error.strerror}); the machine's process needs CAP_NET_ADMIN"
        ) from error
    return events


def has_deleted_table(data: bytes) -> bool:
    """Return whether one of these nftables events reports a deleted table."""
    at = 0
    while at + _MESSAGE.size <= len(data):
        length, kind, *_ = _MESSAGE.unpack_from(data, at)
        if kind == _TABLE_DELETED:
            return True
        at += max(_MESSAGE.size, (length + 3) & ~3)
    return False


async def _has_table(table: str) -> bool:
    """Return whether one of our tables exists."""
    return f"table {table}" in (await run_network_program("nft", "list", "tables")).decode().splitlines()


async def _nft(script: str) -> None:
    await run_network_program("nft", "-f", "-", text=script)


def _conntrack_line(flow: Flow) -> str:
    at = f"--orig-dst {flow.address} --orig-port-dst {flow.port}"
    target = f"--reply-src {flow.target} --reply-port-src {flow.target_port}"
    family = " -f ipv6" if ":" in flow.address else ""
    return f"-D{family} -p {flow.protocol} {at} {target}\n"


def egress_rules(identities: Sequence[EgressIdentity]) -> str:
    """Return the commands that make exactly these identities the ones of the kernel."""
    return "\n".join(_egress_rules(identities)) + "\n"


def _egress_rules(identities: Sequence[EgressIdentity]) -> Iterator[str]:
    yield f"table {EGRESS_TABLE} {{"
    yield " chain leaving { type nat hook postrouting priority srcnat - 10; policy accept; }"
    yield " chain arriving { type filter hook input priority filter - 10; policy accept; }"
    yield "}"
    yield f"flush chain {EGRESS_TABLE} leaving"
    yield f"flush chain {EGRESS_TABLE} arriving"
    for version, payload in ((4, "ip"), (6, "ip6")):
        of_family = [identity for identity in identities if ip_address(identity.address).version == version]
        if not of_family:
            continue
        leaving = f"add rule {EGRESS_TABLE} leaving"
        for first, last in sorted({(identity.first_port, identity.last_port) for identity in of_family}):
            at_ports = [entry for entry in of_family if (entry.first_port, entry.last_port) == (first, last)]
            to = f"{payload} to {payload} saddr map {{ {_by_source(at_ports)} }}"
            yield f"{leaving} meta l4proto {{ tcp, udp }} snat {to} : {first}-{last}"
        # Others, such as ICMP, have no ports to keep apart.
        yield f"{leaving} snat {payload} to {payload} saddr map {{ {_by_source(of_family)} }}"
        ranges = ", ".join(f"{identity.address} . {identity.first_port}-{identity.last_port}" for identity in of_family)
        at_range = f"{payload} daddr . th dport {{ {ranges} }}"
        yield f"add rule {EGRESS_TABLE} arriving ct state new,invalid meta l4proto {{ tcp, udp }} {at_range} drop"


def _by_source(identities: Sequence[EgressIdentity]) -> str:
    return ", ".join(f"{source} : {entry.address}" for entry in identities for source in entry.sources)
