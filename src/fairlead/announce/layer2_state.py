"""The ownership of addresses on one link: decided by each machine from what it hears, without a hub and without I/O.

    hellos of other machines ─┐                       ┌─► add, remove   the address on the network interface
    plan, serving ────────────┼─► Election.step(now) ─┼─► probe         ask whether another host has the address
    link, gateway, ARP ───────┘                       ├─► announce      gratuitous ARP, unsolicited advertisements
                                                      └─► hellos        for each neighbour, several times a second

For each address the first machine of the plan's order that is alive and can serve it is the owner. The rules:

* A machine takes an address when its owner has been silent for the dead time, or says that it yields. A machine that
  another one still hears is not silent.
* Before that, it probes the address. An address that a foreign host answers for is not taken.
* In a planned move the owner yields, the next one takes the address, and the former owner removes it once it heard so.
* Each owner has a claim, a number that grows with each take-over. Of two owners the one with the lower claim yields.
* A machine that has lost most of its peers and whose gateway does not answer removes its addresses.
* The hub decides nothing here: plans may be old, and its silence moves nothing.

Times are seconds of a monotonic clock that the caller reads. The work of a step grows with what changed, not with the
number of addresses.
"""

from __future__ import annotations

import enum
import heapq
import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from fairlead.model.machine import Trigger

#: Seconds between two hellos, and of the probe, of a link and of one with fast addresses.
INTERVAL_S, FAST_INTERVAL_S = 0.2, 0.1
PROBE_S, FAST_PROBE_S = 0.3, 0.15
#: So many intervals without a hello make a machine silent.
DEAD_INTERVALS = 3.5
#: After its start, a machine listens for so long before it takes an address.
LISTEN_S = 0.8
#: A machine is heard for so long before addresses move to it in a planned move.
SETTLE_S = 5.0
#: Gratuitous ARP after a take-over, then at each refresh.
ANNOUNCE_AT_S = (0.0, 0.2, 1.1, 2.0, 4.0, 8.0)
REFRESH_S = 60.0
#: All addresses of a link together are refreshed so often a second at most. Switches learn one MAC from all of them.
REFRESHES_PER_S = 25
#: How long a machine that restarts asks the others to wait for it.
HOLD_S = 10.0
#: Entries of the table that one hello carries; with IPv6 these fit an Ethernet frame.
ENTRIES = 20

#: Probes before an address is taken, and for how long their answer holds.
_PROBES, _PROBED_S = 3, 2.0
#: A better ranked machine that does not take a vacant address follows another plan, and is waited for no longer.
_PATIENCE_S = 1.5
_REFRESH_STEP_S, _PROBE_EVERY = 0.5, 5
_OFFER_S = 2.0
_OFFER_AGAIN_S = 10.0
_LEAVE_S = 2.0
#: Unknown health of targets delays the return of an address that long: a stuck Envoy counts as dead before.
_HEALTH_S = 20.0
_FOREIGN_S = 3.0
_CONTESTED_S = 5.0
_INCOMPLETE_S = 3.0
#: So long a machine that was silent for others waits for their tables before it announces what it owned.
_INFORMED_S = 0.5
_FORGET_PEER_S = 600.0
_KERNEL_S = 1.0
_OWNERSHIP_SETTLES_S = 3.0
#: Lifetimes are renewed in a round of this time, and last for three of them. More than ``HOLD_S`` is left, except for a
#: moment after thousands of addresses came.
_RENEW_S, _ROUNDS, _LONGER = 7.0, 3, 1.5
#: CPU seconds to renew one address of IPv4, and one of IPv6 for each other one on the interface: the kernel looks at
#: all of them. A round with many addresses is so long that renewals take a fifth of a percent of a core.
_RENEW_V4_S, _RENEW_V6_S, _RENEW_SHARE = 12e-6, 0.35e-6, 0.002
_NEVER = float("inf")
#: Claims of one epoch of the hub: a claim is ``epoch * CLAIMS + n``.
CLAIMS = 1_000_000


class Claiming(enum.IntEnum):
    """What a machine says about itself and one address."""

    NONE = 0
    #: Would take the address if nothing better ranked did; its claim is 1 if by its plan it comes before the owner, and
    #: the address may move to it.
    CANDIDATE = 1
    OWNER = 2
    #: Owns the address, and removes it once another machine owns it.
    YIELDING = 3


class Entry(NamedTuple):
    """One line of the table of a machine."""

    status: Claiming
    claim: int = 0


_NOTHING = Entry(Claiming.NONE)
#: Triggers and causes of a yielding owner.
_LEAVING = (Trigger.NOT_PLANNED, "drained, or no longer planned here")
_NOT_SERVING = (Trigger.NOT_SERVING, "the proxy does not serve the address")
_BETTER = (Trigger.BETTER_RANKED, "a machine that comes first in the plan is back")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """One packet from a machine to one other machine on a link.

    ``instance`` is a random number of each start; ``echo`` is the receiver's, without which a packet only introduces
    its sender. The table is sent in ``pieces``: the entries that changed between ``base`` and ``version``; ``acked``
    is the version of the receiver's table that the sender has.
    """

    name: str
    instance: int
    echo: int
    sequence: int
    mac: str
    plan: str = ""
    epoch: int = 0
    interval_s: float = INTERVAL_S
    hold_s: float = 0.0
    hears: frozenset[str] = frozenset()
    acked: int = 0
    base: int = 0
    version: int = 0
    piece: int = 0
    pieces: int = 1
    entries: Mapping[str, Entry] = field(default_factory=dict[str, Entry])


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """One address of the plan on this link; ``serve`` None: unknown, so nothing changes.

    ``healthy`` False: the proxy of this machine sees only unhealthy targets; after its link was down, it has yet to
    check them. The address then stays at an owner that has it, and is taken only if no machine has. ``healthy`` None:
    unknown; the same, for a limited time.
    """

    machines: tuple[str, ...]
    serve: bool | None = None
    healthy: bool | None = True
    fast: bool = False
    leaving: bool = False


class LinkAction(NamedTuple):
    """One thing to do at the network interface, in order."""

    kind: Literal["add", "remove", "probe", "announce"]
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The state of one address here; ``changed_s`` is when ``owned`` last changed, by the caller's clock."""

    owned: bool
    claim: int = 0
    other_mac: str = ""
    changed_s: float = 0.0
    cause: str = ""
    trigger: str = ""
    reason: str = ""
    problem: str = ""


class _Life(enum.Enum):
    FRESH = enum.auto()
    #: Hellos are missing; probes begin.
    LATE = enum.auto()
    #: Not heard here, but by another machine.
    ELSEWHERE = enum.auto()
    GONE = enum.auto()


#: A tuple: an Enum in a set is found by its hash, which takes longer.
_ALIVE = (_Life.FRESH, _Life.LATE)


@dataclass(slots=True)
class _HeardMachine:
    name: str
    instance: int = 0
    former: set[int] = field(default_factory=set[int])
    sequence: int = -1
    mac: str = ""
    life: _Life = _Life.GONE
    heard_s: float = -_NEVER
    steady_s: float = 0.0
    gone_s: float = _NEVER
    interval_s: float = INTERVAL_S
    hears: frozenset[str] = frozenset()
    held_until_s: float = -_NEVER
    kernel_s: float = -_NEVER
    table: dict[str, Entry] = field(default_factory=dict[str, Entry])
    version: int = 0
    complete: bool = False
    incoming: tuple[int, int] = (0, 0)
    pieces: set[int] = field(default_factory=set[int])
    full: dict[str, Entry] = field(default_factory=dict[str, Entry])
    acked: int = 0

    @property
    def dead_s(self) -> float:
        return self.heard_s + DEAD_INTERVALS * self.interval_s


@dataclass(slots=True)
class _AddressRecord:
    name: str
    want: Want | None = None
    mine: Entry = _NOTHING
    highest: int = 0
    #: Probes that were sent, and when the next one or the end of the last one is due.
    probed: int = 0
    probe_at_s: float = -_NEVER
    changed_s: float = 0.0
    taken_s: float = -_NEVER
    cause: str = ""
    trigger: str = ""
    #: The machine that was the last one to say that it owns the address.
    owner: str = ""
    #: Since when this machine comes before the owner by its plan, and could take the address.
    due_back_s: float = _NEVER
    #: Why this machine yields: trigger and cause.
    yields: tuple[str, str] = ("", "")
    leave_at_s: float = _NEVER
    offer_until_s: float = -_NEVER
    offer_after_s: float = -_NEVER
    foreign_mac: str = ""
    foreign_until_s: float = -_NEVER
    defend_at_s: float = -_NEVER
    refreshed: int = 0
    #: Since when no machine owns the address, or its owner yields.
    vacant_s: float = _NEVER
    #: Increases with each burst of announcements, so that those of an earlier one are skipped.
    burst: int = 0

    @property
    def owned(self) -> bool:
        return self.mine.status >= Claiming.OWNER


class Election:
    """The machine ``name`` on one link: the addresses that it owns, and the hellos it sends."""

    def __init__(self, name: str, *, instance: int, mac: str, now: float, refresh_s: float = REFRESH_S) -> None:
        self.name = name
        self.mac = mac
        self._instance = instance
        self._refresh_s = refresh_s
        self._plan = ""
        self._epoch = 0
        self._keyed = False
        self._neighbours: frozenset[str] = frozenset()
        self._peers: dict[str, _HeardMachine] = {}
        self._addresses: dict[str, _AddressRecord] = {}
        self._fast = False
        self._up = True
        self._down_s = -_NEVER
        self._gateway: bool | None = None
        self._isolated = False
        #: The peers that count when most are lost.
        self._known: frozenset[str] = frozenset()
        self._informed_at_s = -_NEVER
        self._introduced: list[tuple[str, int]] = []
        self._listen_until_s = -_NEVER
        self._sequence = 0
        self._version = 0
        self._changed: dict[str, int] = {}
        #: Lines of removed addresses up to this version are forgotten; who has an older one gets the whole table.
        self._forgotten = 0
        self._hears: frozenset[str] = frozenset()
        self._hello_at_s = now
        self._stepped_s = now
        self._dirty: set[str] = set()
        self._timers: list[tuple[float, str]] = []
        self._announcements: list[tuple[float, int, str, int, int]] = []
        self._order = itertools.count()
        self._announcing: list[str] = []
        #: Addresses of planned moves since the last step: those that another machine yielded, by that machine, and
        #: those that another machine took from this one.
        self.taken_from: dict[str, str] = {}
        self.handed_over: set[str] = set()
        self.changes = 0
        self._listen(now)

    # --- Inputs -----------------------------------------------------------------------------------------------

    def configure(
        self, now: float, wants: Mapping[str, Want], *, neighbours: Iterable[str], epoch: int, plan: str, keyed: bool
    ) -> None:
        """Follow a plan: ``wants`` has every address of this link, ``neighbours`` the machines that are on it.

        ``keyed``: hellos can be signed. Without that nothing is taken where there are neighbours.
        """
        others = frozenset(neighbours) - {self.name}
        if not self._neighbours and others and not any(address.owned for address in self._addresses.values()):
            self._listen(now)
        self._neighbours, self._plan, self._keyed = others, plan, keyed
        for name in sorted(self._peers.keys() - others):
            self._end(self._peers.pop(name))
        for name in sorted(others - self._peers.keys()):
            self._peers[name] = _HeardMachine(name)
        raised = epoch > self._epoch
        self._epoch = max(self._epoch, epoch)
        self._fast = any(want.fast for want in wants.values())
        for name in sorted(wants.keys() - self._addresses.keys()):
            record = self._addresses[name] = _AddressRecord(name)
            owners = [peer.name for peer in self._peers.values() if self._entry(peer, record).status >= Claiming.OWNER]
            record.owner = owners[0] if owners else ""
        for name, address in self._addresses.items():
            want = wants.get(name)
            if want is None and (last := address.want) is not None and address.owned:
                want = Want(machines=last.machines, serve=last.serve, fast=last.fast, leaving=True)
            if want != address.want:
                if want is None or not want.leaving:
                    address.leave_at_s = _NEVER
                elif address.leave_at_s == _NEVER:
                    address.leave_at_s = now + _LEAVE_S
                    self._wake(address.leave_at_s, name)
                address.want = want
                self._dirty.add(name)
            if raised and address.owned:
                self._say(address, Entry(address.mine.status, max(address.mine.claim, self._epoch * CLAIMS)))
        for name in [name for name, address in self._addresses.items() if address.want is None and not address.owned]:
            self._say(self._addresses[name], _NOTHING)
            del self._addresses[name]
        self._forget_lines()

    def keep(self, now: float, address: str) -> None:
        """Own an address that a former process of this machine has put on the interface; announce nothing."""
        record = self._addresses.get(address)
        if record is None or record.owned:
            return
        record.changed_s = now
        record.trigger, record.cause = Trigger.ADOPTED, "adopted after a restart"
        self._say(record, Entry(Claiming.OWNER, self._epoch * CLAIMS))
        self._schedule_refresh(now, record)
        self._dirty.add(address)
        self.changes += 1

    def set_link(self, now: float, *, up: bool) -> None:
        """Follow the carrier of the link."""
        if up == self._up:
            return
        self._up = up
        if up:
            held = [address for address in self._addresses.values() if address.owned]
            for address in held:
                self._burst(now, address)
            if not held:
                self._listen(now)
            for peer in self._peers.values():  # what was sent meanwhile could not be heard
                peer.heard_s = max(peer.heard_s, min(now, peer.heard_s + now - self._down_s))
        else:
            self._down_s = now
            for name in self._addresses:
                self._wake(now + self._dead_s, name)
        self._dirty.update(self._addresses)
        self.changes += 1

    def set_gateway(self, *, answers: bool | None) -> None:
        """Follow the gateway of the link; None: there is none, or it was not asked yet."""
        self._gateway = answers

    def heard(self, now: float, hello: Hello) -> None:
        """Process a hello with a valid signature."""
        peer = self._peers.get(hello.name)
        if peer is None or hello.instance in peer.former:
            return
        if hello.echo != self._instance:
            # The hello may be a recording: only a hello that was made for this instance is evidence of life.
            self._introduced.append((peer.name, hello.instance))
            return
        if hello.instance != peer.instance:
            if peer.instance:
                peer.former.add(peer.instance)
            self._end(peer)
            peer.instance, peer.sequence = hello.instance, -1
            self._hello_at_s = now
        if hello.sequence <= peer.sequence:
            return
        peer.sequence = hello.sequence
        if peer.mac != hello.mac:
            peer.mac = hello.mac
            for record in self._addresses.values():
                if record.foreign_mac == hello.mac:
                    record.foreign_mac, record.foreign_until_s = "", -_NEVER
                    self._dirty.add(record.name)
        if peer.life not in _ALIVE:
            peer.steady_s = now
        peer.heard_s = now
        peer.interval_s = min(1.0, max(0.02, hello.interval_s))
        peer.held_until_s = now + hello.hold_s if hello.hold_s else -_NEVER
        peer.kernel_s = now
        peer.hears = hello.hears
        peer.acked = hello.acked
        self._set_life(now, peer, _Life.FRESH)
        self._take_pieces(now, peer, hello)

    def seen(self, now: float, address: str, mac: str, *, probe: bool = False) -> None:
        """Record that ``mac`` sent ARP or neighbour discovery as the owner of ``address``, or probed it."""
        record = self._addresses.get(address)
        if record is None or mac == self.mac:
            return
        machine = next((peer for peer in self._peers.values() if peer.mac == mac), None)
        if machine is not None:
            status = machine.table.get(address, _NOTHING).status
            settling = now - record.taken_s < _OWNERSHIP_SETTLES_S or status >= Claiming.OWNER
            if probe or not record.owned or (machine.life in _ALIVE and settling):
                return
        elif probe and not record.probed:
            return
        fresh = now >= record.foreign_until_s or record.foreign_mac != mac
        record.foreign_mac = mac
        record.foreign_until_s = now + (_CONTESTED_S if record.owned else _FOREIGN_S)
        self._wake(record.foreign_until_s, address)
        self._dirty.add(address)
        self.changes += fresh

    def announce_again(self, now: float, address: str) -> None:
        """Announce an address that had to be put on the interface again."""
        if (record := self._addresses.get(address)) and record.owned:
            self._burst(now, record)

    def answered(self, now: float, machine: str) -> None:
        """Record that the kernel of a restarting machine still answers."""
        if peer := self._peers.get(machine):
            peer.kernel_s = now

    # --- Outputs ----------------------------------------------------------------------------------------------

    def step(self, now: float) -> list[LinkAction]:
        """Return the actions to perform now; the caller must first read all input that waits in sockets."""
        late = now - self._stepped_s - self._interval_s * 2
        if late > 0:  # this process did not run: the silence of others is not theirs
            for peer in self._peers.values():
                peer.heard_s = min(now, peer.heard_s + late)
            if self._listen_until_s > self._stepped_s:
                self._listen_until_s = min(now + LISTEN_S, self._listen_until_s + late)
        self._stepped_s = now
        self._watch(now)
        while self._timers and self._timers[0][0] <= now:
            self._dirty.add(heapq.heappop(self._timers)[1])
        actions: list[LinkAction] = []
        self.taken_from, self.handed_over = {}, set()
        while self._dirty:
            dirty, self._dirty = self._dirty, set()
            for name in sorted(dirty):  # in an order, so that a schedule can be repeated
                if record := self._addresses.get(name):
                    actions += self._owner_step(now, record) if record.owned else self._other_step(now, record)
        actions += self._announce_due(now)
        return actions

    def hellos(self, now: float, *, hold_s: float = 0.0) -> list[tuple[str, Hello]]:
        """Return the hellos that are due now, each with its receiver; ``hold_s``: the last ones, before a restart."""
        if not self._keyed or (now < self._hello_at_s and not hold_s):
            return []
        self._hello_at_s = now + self._interval_s
        return [(peer.name, hello) for peer in self._peers.values() for hello in self._hellos_to(peer, hold_s)]

    def replies(self) -> list[tuple[str, Hello]]:
        """Return a hello for each machine that introduced itself since the last call."""
        introduced, self._introduced = self._introduced, []
        return [
            (name, self._hello(self._peers[name], at, base=self._version))
            for name, at in introduced
            if name in self._peers
        ]

    def next_s(self) -> float:
        """Return when ``step`` and ``hellos`` have work next."""
        due = [self._hello_at_s] if self._keyed and self._peers else []
        due += [self._timers[0][0]] if self._timers else []
        if self._announcements:
            at_s = self._announcements[0][0]
            due.append(at_s if self.informed else max(at_s, self._informed_at_s))
        for peer in self._peers.values():
            if not self._up or peer.life not in _ALIVE:
                continue
            if self._stepped_s < peer.held_until_s:
                due.append(min(peer.held_until_s, peer.kernel_s + _KERNEL_S))
            else:
                due.append(peer.dead_s if peer.life is _Life.LATE else peer.dead_s - self._probe_s)
        return min(due, default=_NEVER)

    @property
    def owned(self) -> frozenset[str]:
        """Return the addresses that belong on the interface."""
        return frozenset(name for name, address in self._addresses.items() if address.owned)

    def owns(self, address: str) -> bool:
        """Return whether an address belongs on the interface."""
        record = self._addresses.get(address)
        return record is not None and record.owned

    @property
    def informed(self) -> bool:
        """Return whether no machine has news that are on their way here, after this process did not run."""
        waits = self._stepped_s < self._informed_at_s
        return not waits or all(peer.complete for peer in self._peers.values() if peer.life in _ALIVE)

    @property
    def hears(self) -> frozenset[str]:
        """Return the machines that are heard on this link."""
        return self._hears

    def has_successor(self, address: str) -> bool:
        """Return whether another machine is heard that would take the address, or is giving it up."""
        record = self._addresses.get(address)
        return record is not None and any(
            peer.life is _Life.FRESH
            and self._stepped_s >= peer.held_until_s
            and self._entry(peer, record).status is not Claiming.NONE
            for peer in self._peers.values()
        )

    @property
    def due_back(self) -> bool:
        """Return whether an address is to move here from a machine that comes after this one."""
        return any(record.due_back_s < _NEVER for record in self._addresses.values())

    @property
    def held(self) -> frozenset[str]:
        """Return the machines that restart: whether their kernel still answers is to be asked."""
        return frozenset(peer.name for peer in self._peers.values() if peer.held_until_s > self._stepped_s)

    def ownership(self, address: str) -> Ownership:
        """Return the state of one address."""
        record = self._addresses.get(address)
        if record is None:
            return Ownership(owned=False)
        foreign = self._stepped_s < record.foreign_until_s
        reason, problem = self._problem(record, foreign=foreign)
        trigger, cause = record.trigger, record.cause
        if not record.owned and not problem and record.want is not None and record.want.serve is False:
            trigger, cause = _NOT_SERVING
        return Ownership(
            owned=record.owned,
            claim=record.mine.claim if record.owned else 0,
            other_mac=record.foreign_mac if foreign else "",
            changed_s=record.changed_s,
            cause=cause,
            trigger=trigger,
            reason=reason,
            problem=problem,
        )

    def _problem(self, record: _AddressRecord, *, foreign: bool) -> tuple[str, str]:
        if foreign and record.owned:
            return "Contested", (
                f"{record.foreign_mac} answers for {record.name}, too. "
                f"Remove {record.name} from that host, or give the load balancer another address."
            )
        if foreign:
            return "AddressInUse", (
                f"{record.foreign_mac} answers for {record.name}, so this machine does not take it. "
                f"Remove {record.name} from that host, or give the load balancer another address."
            )
        if not self._up:
            return "LinkDown", f"The network interface of {record.name} is down. Check its cable and switch port."
        if self._isolated:
            return "Isolated", (
                f"This machine hears too few of its peers, and its gateway does not answer: {record.name} was removed. "
                "Check the link."
            )
        if not self._keyed and self._peers:
            return "NoLinkKey", "The plan has no key for the packets between machines. Update the hub."
        return "", ""

    # --- The peers --------------------------------------------------------------------------------------------

    @property
    def _interval_s(self) -> float:
        return FAST_INTERVAL_S if self._fast else INTERVAL_S

    @property
    def _probe_s(self) -> float:
        return FAST_PROBE_S if self._fast else PROBE_S

    @property
    def _dead_s(self) -> float:
        return DEAD_INTERVALS * self._interval_s

    def _listen(self, now: float) -> None:
        """Take nothing for the dead time: an owner that is there is heard in it."""
        self._listen_until_s = now + LISTEN_S
        self._dirty.update(self._addresses)

    def _watch(self, now: float) -> None:
        """Follow the lives of the peers, and whether this machine is cut off."""
        for peer in self._peers.values():
            self._set_life(now, peer, self._life(now, peer))
        hears = frozenset(peer.name for peer in self._peers.values() if peer.life in _ALIVE)
        if hears != self._hears:
            self._hears = hears
            self._hello_at_s = now
            self.changes += 1
        if self._gateway is False and not self._isolated:
            self._known = frozenset(peer.name for peer in self._peers.values() if now - peer.heard_s < _FORGET_PEER_S)
        isolated = self._gateway is False and len(self._known & hears) * 2 < len(self._known)
        if isolated != self._isolated:
            self._isolated = isolated
            self._dirty.update(self._addresses)
            self.changes += 1
            if not isolated:
                self._listen(now)

    def _life(self, now: float, peer: _HeardMachine) -> _Life:
        if not self._up:
            return peer.life
        if now < peer.held_until_s and now - peer.kernel_s < _KERNEL_S:
            return _Life.FRESH
        if now < peer.dead_s - self._probe_s:
            return _Life.FRESH
        if now < peer.dead_s:
            return _Life.LATE
        if peer.life is _Life.GONE:
            return _Life.GONE
        # What another machine says counts only while it is news: it may be about to notice the same silence.
        for other in self._peers.values():
            if other is not peer and peer.name in other.hears and now - other.heard_s < 2 * other.interval_s:
                return _Life.ELSEWHERE
        return _Life.GONE

    def _set_life(self, now: float, peer: _HeardMachine, life: _Life) -> None:
        if life is peer.life:
            return
        before, peer.life = peer.life, life
        if life is _Life.GONE:
            peer.gone_s = now
            self._end(peer)
        elif before in _ALIVE and life in _ALIVE:
            self._dirty.update(name for name, entry in peer.table.items() if entry.status is Claiming.OWNER)
        else:
            self._dirty.update(self._addresses)
        if before is _Life.GONE:
            for record in self._addresses.values():
                # The machine that is back may have announced this address to the same neighbours meanwhile.
                if record.owned and record.taken_s >= peer.gone_s:
                    self._burst(now, record)

    def _end(self, peer: _HeardMachine) -> None:
        peer.table, peer.version, peer.complete, peer.acked = {}, 0, False, 0
        peer.pieces, peer.full = set(), {}
        self._dirty.update(self._addresses)

    def _take_pieces(self, now: float, peer: _HeardMachine, hello: Hello) -> None:
        if hello.base > peer.version:
            # This machine was silent for the other one, which may have taken addresses meanwhile. The next hello begins
            # at the version that this machine reports.
            if peer.complete:
                peer.complete, self._informed_at_s = False, now + _INFORMED_S
            return
        for name, entry in hello.entries.items():
            self._take_entry(now, peer, name, entry)
        if (hello.base, hello.version) != peer.incoming:
            peer.incoming, peer.pieces, peer.full = (hello.base, hello.version), set(), {}
        peer.pieces.add(hello.piece)
        if hello.base == 0:
            peer.full.update(hello.entries)
        if len(peer.pieces) < hello.pieces:
            return
        if hello.base == 0 and hello.version:
            for name in peer.table.keys() - peer.full.keys():
                self._take_entry(now, peer, name, _NOTHING)
        if hello.version > peer.version:
            peer.version = hello.version
            self._hello_at_s = now  # acknowledge at once, or all of it is sent again
        if not peer.complete:
            peer.complete = True
            self._dirty.update(self._addresses)

    def _take_entry(self, now: float, peer: _HeardMachine, name: str, entry: Entry) -> None:
        before = peer.table.get(name, _NOTHING)
        if entry.status is Claiming.NONE:
            peer.table.pop(name, None)
        else:
            peer.table[name] = entry
        if (record := self._addresses.get(name)) and before != entry:
            record.highest = max(record.highest, entry.claim if entry.status >= Claiming.OWNER else 0)
            if entry.status >= Claiming.OWNER:
                record.owner = peer.name
            elif record.owner == peer.name:
                record.owner = ""
            self._dirty.add(name)
            if record.owned and Claiming.OWNER in (before.status, entry.status):
                # Neighbours may have learned the other owner: they learn this one again.
                self._burst(now, record)

    # --- One address ------------------------------------------------------------------------------------------

    def _owner_step(self, now: float, record: _AddressRecord) -> Iterator[LinkAction]:
        want = record.want
        if (why := self._why_release(now, record)) is not None:
            yield from self._release(now, record, *why)
            return
        assert want is not None
        status = Claiming.OWNER
        if want.leaving or self.name not in want.machines:
            status, record.yields = Claiming.YIELDING, _LEAVING
        elif want.serve is False:
            status, record.yields = Claiming.YIELDING, _NOT_SERVING
        elif self._better(now, record, want, settled=True):
            if record.mine.status is Claiming.OWNER and now >= record.offer_after_s:
                record.offer_until_s, record.offer_after_s = now + _OFFER_S, now + _OFFER_AGAIN_S
            record.yields = _BETTER
            status = Claiming.YIELDING if now < record.offer_until_s else Claiming.OWNER
            self._wake(record.offer_until_s if status is Claiming.YIELDING else record.offer_after_s, record.name)
        if status is not record.mine.status:
            self._say(record, Entry(status, record.mine.claim))
        if now < record.foreign_until_s:
            if now >= record.defend_at_s:
                self._announcing.append(record.name)
            yield from self._probe_foreign(now, record)
        elif record.foreign_mac:
            record.foreign_mac = ""
            self.changes += 1

    def _probe_foreign(self, now: float, record: _AddressRecord) -> Iterator[LinkAction]:
        if now >= record.defend_at_s:
            record.defend_at_s = now + 1.0
            yield LinkAction("probe", record.name)
        self._wake(record.defend_at_s, record.name)

    def _why_release(self, now: float, record: _AddressRecord) -> tuple[str, str] | None:
        """Return why this machine must not have an address that it owns; None when it may."""
        want, rival = record.want, self._rival(record)
        if rival is not None and (rival[0], rival[1]) > (record.mine.claim, self.name):
            if record.mine.status is not Claiming.YIELDING:
                return Trigger.LATER_CLAIM, f"{rival[1]} owns the address with a later claim"
            self.handed_over.add(record.name)
            return record.yields[0], f"{record.yields[1]}; {rival[1]} took over"
        if self._isolated:
            return Trigger.ISOLATED, "cut off from most machines and from the gateway"
        others = want is not None and any(machine in self._peers for machine in want.machines)
        if not self._up and others and now >= self._down_s + self._dead_s:
            return Trigger.LINK_DOWN, "the network interface is down"
        return _LEAVING if want is None or now >= record.leave_at_s else None

    def _other_step(self, now: float, record: _AddressRecord) -> Iterator[LinkAction]:
        want = record.want
        if want is None:
            record.due_back_s = _NEVER
            self._say(record, _NOTHING)
            return
        # Also while this machine could not take it: a former vacancy must not count once it can.
        states = [self._entry(peer, record).status for peer in self._peers.values()]
        record.vacant_s = _NEVER if Claiming.OWNER in states else min(record.vacant_s, now)
        foreign = now < record.foreign_until_s
        fit = (
            (want.serve is True and not want.leaving and self.name in want.machines)
            and (self._up and not self._isolated)
            and (self._keyed or not self._peers)
        )
        able = fit and not foreign
        if fit and foreign:
            # The address is not taken while a foreign host answers; after the last answer, it soon is.
            yield from self._probe_foreign(now, record)
        record.due_back_s = min(record.due_back_s, now) if able and self._before_owner(record, want) else _NEVER
        self._say(record, Entry(Claiming.CANDIDATE, int(self._offers(now, record, want))) if able else _NOTHING)
        free_s = self._free_s(now, record, want) if able else _NEVER
        if free_s - now > self._probe_s:
            record.probed = 0
            if free_s < _NEVER:
                self._wake(free_s - self._probe_s, record.name)
            return
        if record.probed and now < record.probe_at_s:
            self._wake(record.probe_at_s, record.name)
        elif record.probed < _PROBES:
            record.probed += 1
            record.probe_at_s = now + self._probe_s / _PROBES
            self._wake(record.probe_at_s, record.name)
            yield LinkAction("probe", record.name)
        elif now < free_s:
            if now > record.probe_at_s + _PROBED_S:
                record.probed = 0
            self._wake(free_s, record.name)
        else:
            yield from self._take(now, record)

    def _take(self, now: float, record: _AddressRecord) -> Iterator[LinkAction]:
        former = [peer.name for peer in self._peers.values() if self._entry(peer, record).status is Claiming.YIELDING]
        if former:
            self.taken_from[record.name] = former[0]
        owner = self._peers.get(record.owner)
        record.trigger, record.cause = Trigger.VACANT, "no other machine owns the address"
        if former:
            record.trigger, record.cause = Trigger.OWNER_YIELDED, f"{former[0]} yielded"
        elif owner is not None and owner.life is not _Life.FRESH:
            record.trigger, record.cause = Trigger.OWNER_SILENT, f"{owner.name} is silent"
        claim = max(record.highest, self._epoch * CLAIMS) + 1
        record.highest = claim
        record.changed_s = record.taken_s = now
        record.vacant_s = _NEVER
        record.due_back_s = _NEVER
        record.probed = 0
        # With three different plans, each pair of machines may agree, and the address would go around.
        record.offer_until_s, record.offer_after_s = -_NEVER, now + _OFFER_AGAIN_S if former else -_NEVER
        record.foreign_mac = ""
        self._say(record, Entry(Claiming.OWNER, claim))
        self._burst(now, record)
        self.changes += 1
        yield LinkAction("add", record.name)

    def _release(self, now: float, record: _AddressRecord, trigger: str, cause: str) -> Iterator[LinkAction]:
        record.trigger, record.cause, record.changed_s = trigger, cause, now
        record.burst += 1
        record.foreign_mac, record.foreign_until_s = "", -_NEVER
        record.highest = max(record.highest, record.mine.claim)
        self._say(record, _NOTHING)
        self.changes += 1
        self._dirty.add(record.name)
        yield LinkAction("remove", record.name)

    def _entry(self, peer: _HeardMachine, record: _AddressRecord) -> Entry:
        return peer.table.get(record.name, _NOTHING)

    def _rival(self, record: _AddressRecord) -> tuple[int, str] | None:
        """Return the highest claim of another machine that is alive, and its name."""
        claims = [
            (entry.claim, peer.name)
            for peer in self._peers.values()
            if peer.life in _ALIVE and (entry := self._entry(peer, record)).status >= Claiming.OWNER
        ]
        return max(claims, default=None)

    def _free_s(self, now: float, record: _AddressRecord, want: Want) -> float:
        """Return when this machine may take the address, as far as it knows now."""
        free_s = now
        if self._better(now, record, want, settled=False):
            # One after the other: machines with different plans would all lose patience in the same moment.
            before = sum(
                peer.name < self.name and peer.life in _ALIVE and self._entry(peer, record).status is Claiming.CANDIDATE
                for peer in self._peers.values()
            )
            free_s = record.vacant_s + _PATIENCE_S + before * self._probe_s
        free_s = max(free_s, now, self._listen_until_s if self._peers else now)
        for peer in self._peers.values():
            status = self._entry(peer, record).status
            if peer.life in _ALIVE and not peer.complete:
                free_s = max(free_s, peer.steady_s + _INCOMPLETE_S)
            elif status is Claiming.OWNER and peer.life is _Life.LATE:
                free_s = max(free_s, peer.dead_s)
            elif status is Claiming.OWNER and peer.life is _Life.ELSEWHERE:
                free_s = max(free_s, now + self._interval_s / 2)  # the other machine may be about to lose it, too
            elif status is Claiming.OWNER and peer.life is _Life.FRESH:
                return _NEVER
        return free_s

    def _before_owner(self, record: _AddressRecord, want: Want) -> bool:
        """Return whether by the plan of this machine it comes before the machine that owns the address."""
        order = want.machines
        for peer in self._peers.values():
            if peer.life in _ALIVE and self._entry(peer, record).status >= Claiming.OWNER:
                return peer.name not in order or order.index(self.name) < order.index(peer.name)
        return False

    def _offers(self, now: float, record: _AddressRecord, want: Want) -> bool:
        """Return whether the owner may give this machine the address that is due back: the targets are healthy."""
        if want.healthy is not None or record.due_back_s == _NEVER:
            return bool(want.healthy) and record.due_back_s < _NEVER
        if now < (end_s := record.due_back_s + _HEALTH_S):
            self._wake(end_s, record.name)
        return now >= end_s

    def _better(self, now: float, record: _AddressRecord, want: Want, *, settled: bool) -> bool:
        """Return whether a better ranked machine would take the address; ``settled``: one that is not new here."""
        for name in itertools.takewhile(lambda machine: machine != self.name, want.machines):
            peer = self._peers.get(name)
            if peer is None or peer.life not in _ALIVE or now < peer.held_until_s:
                continue  # one that restarts keeps what it owns, and takes nothing
            entry = self._entry(peer, record)
            if entry.status is not Claiming.CANDIDATE or (settled and not entry.claim):
                continue  # machines with different plans would give an address to each other again and again
            if not settled:
                return True
            if peer.life is _Life.FRESH and now >= peer.steady_s + SETTLE_S:
                return True
            self._wake(max(now + INTERVAL_S, peer.steady_s + SETTLE_S), record.name)
        return False

    # --- The table, and the announcements ---------------------------------------------------------------------

    def _say(self, record: _AddressRecord, entry: Entry) -> None:
        """Set the line of the table, and send it to the others at once."""
        if record.mine == entry:
            return
        record.mine = entry
        self._version += 1
        self._changed[record.name] = self._version
        self._hello_at_s = -_NEVER

    def _hellos_to(self, peer: _HeardMachine, hold_s: float) -> Iterator[Hello]:
        """Yield one hello, or as many as the table needs that the other machine does not have yet."""
        base = self._version
        entries: list[tuple[str, Entry]] = []
        if peer.instance and peer.life in _ALIVE:
            base = peer.acked if self._forgotten <= peer.acked <= self._version else 0
            changed = self._changed.items() if base < self._version else ()
            entries = [(name, self._mine(name)) for name, version in changed if version > base]
        pieces = max(1, -(-len(entries) // ENTRIES))
        for piece in range(pieces):
            part = dict(entries[piece * ENTRIES : (piece + 1) * ENTRIES])
            yield self._hello(peer, peer.instance, base=base, place=(piece, pieces), entries=part, hold_s=hold_s)

    def _hello(
        self,
        peer: _HeardMachine,
        echo: int,
        *,
        base: int,
        place: tuple[int, int] = (0, 1),
        entries: Mapping[str, Entry] | None = None,
        hold_s: float = 0.0,
    ) -> Hello:
        self._sequence += 1
        return Hello(
            name=self.name,
            instance=self._instance,
            echo=echo,
            sequence=self._sequence,
            mac=self.mac,
            plan=self._plan,
            epoch=self._epoch,
            interval_s=self._interval_s,
            hold_s=hold_s,
            hears=self._hears,
            acked=peer.version,
            base=base,
            version=self._version,
            piece=place[0],
            pieces=place[1],
            entries=entries or {},
        )

    def _forget_lines(self) -> None:
        """Forget lines of removed addresses once there are many of them."""
        removed = [name for name in self._changed if name not in self._addresses]
        if len(removed) > len(self._addresses) + 1000:
            self._forgotten = max(self._changed.pop(name) for name in removed)

    def _mine(self, name: str) -> Entry:
        record = self._addresses.get(name)
        return record.mine if record else _NOTHING

    def _wake(self, at_s: float, name: str) -> None:
        heapq.heappush(self._timers, (at_s, name))

    def _burst(self, now: float, record: _AddressRecord) -> None:
        """Announce the address now, and again as often as a take-over asks for."""
        record.burst += 1
        for nth, offset_s in enumerate(ANNOUNCE_AT_S):
            self._schedule(now + offset_s, record, nth)

    def _schedule_refresh(self, now: float, record: _AddressRecord) -> None:
        # Spread: all addresses of a take-over would be announced in the same millisecond.
        part = (zlib.crc32(record.name.encode()) % 1000) / 1000
        # One announcement of each owned address is scheduled.
        refresh_s = max(self._refresh_s, len(self._announcements) / REFRESHES_PER_S)
        at_s = now + refresh_s * (0.75 + part / 4)
        # Rounded: thousands of addresses share a turn twice a second.
        self._schedule(at_s - at_s % _REFRESH_STEP_S, record, len(ANNOUNCE_AT_S))

    def _schedule(self, at_s: float, record: _AddressRecord, nth: int) -> None:
        heapq.heappush(self._announcements, (at_s, next(self._order), record.name, record.burst, nth))

    def _announce_due(self, now: float) -> Iterator[LinkAction]:
        if not self.informed:
            return
        for name in filter(self.owns, self._announcing):
            yield LinkAction("announce", name)
        self._announcing = []
        while self._announcements and self._announcements[0][0] <= now:
            _, _, name, burst, nth = heapq.heappop(self._announcements)
            record = self._addresses.get(name)
            if record is None or not record.owned or record.burst != burst:
                continue
            if nth >= len(ANNOUNCE_AT_S) - 1:
                self._schedule_refresh(now, record)
            if self._up:
                yield LinkAction("announce", name)
                record.refreshed += nth >= len(ANNOUNCE_AT_S)
                if nth in (1, 3) or record.refreshed % _PROBE_EVERY == 1:
                    yield LinkAction("probe", name)  # another host that answers, too, does not announce that


class Renewals:
    """When the lifetimes of addresses in the kernel are renewed: once a second some of them, in rounds.

    ``valid_s`` is the lifetime of an address that is added or renewed now. Each round is at most half longer than the
    one before, so that none ends before the next turn of its address. The first ones are short: what a former process
    left may end soon.
    """

    def __init__(self, now: float) -> None:
        self.valid_s = int(_RENEW_S * _ROUNDS)
        self._round_s = 1.0
        self._left: list[str] = []
        self._at_once = 1
        self._next_s = now

    def due(self, now: float, election: Election) -> list[str]:
        """Return the addresses to renew now."""
        if now < self._next_s:
            return []
        self._next_s = max(self._next_s + 1.0, now)
        if not self._left:
            self._left = sorted(election.owned)
            count, v6 = len(self._left), sum(":" in address for address in self._left)
            cost_s = (count - v6) * _RENEW_V4_S + v6 * v6 * _RENEW_V6_S
            self._round_s = min(max(_RENEW_S, cost_s / _RENEW_SHARE), self._round_s * _LONGER)
            self._at_once = -int(-count // self._round_s)
            self.valid_s = int(max(_RENEW_S, self._round_s) * _ROUNDS)
            if not self._left:
                # A machine without addresses does not look at thousands of others each second.
                self._next_s = now + _RENEW_S
        turn, self._left = self._left[: self._at_once], self._left[self._at_once :]
        return [address for address in turn if election.owns(address)]
