"""The placement of load balancers on proxy machines: which machines each has, and the steps of a move.

    machines of a group ─┐
    load balancers ──────┴─choose──► the machines that each should have
    records, answers of machines ──advance──► the next record of each load balancer, one step away

A record is kept where it can be: when a machine leaves, only its share moves. What is free is given in rendezvous order
of address and machine, as long as the loads are even. Load balancers that share an address have the same machines.

    step of a move from a to b     announced by   served by
    joining: b                     a              a, b        until b has acknowledged all of the load balancer
    machines: b, a                 b, a           a, b        until b announces
    machines: b, leaving: a        b              a, b        until clients have noticed; a drained machine stays
    machines: b                    b              b

Pure, and equal on every replica of the hub. At most one machine's worth moves at a time, and nothing moves while half
of a group is silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from ipaddress import ip_address
from itertools import zip_longest
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from fairlead.api.announcing import MachineChoice
from fairlead.api.intent import IntentObject, MachinePlacement
from fairlead.api.names import ANNOTATION_MACHINES, DEFAULT_CLASS
from fairlead.api.proxymachine import ProxyGroup, ProxyMachine
from fairlead.model.in_words import counted, listed
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.announcing import JoinedMachine, is_chosen

#: Loads of machines that differ from the mean by more than this part are made even again.
_UNEVEN = 0.1
#: The L2 owners of addresses are made even again when two machines differ by more than this part of the mean.
_UNEVEN_OWNERS = 0.25


class Member(msgspec.Struct, frozen=True):
    """A machine of a group. ``silent``: neither the hub nor another machine hears it.

    ``room`` is how many listeners its proxy can open; 0: unknown. ``full``: its proxy has almost no open files left, so
    it keeps what it has, and gets nothing new.
    """

    name: str
    zone: str = ""
    drained: bool = False
    silent: bool = False
    room: int = 0
    full: bool = False


class Unit(msgspec.Struct, frozen=True):
    """Load balancers that share an address. ``machines`` are those that it has, or moves to; ``pinned`` by annotation.

    ``name`` is its first address, ``listeners`` how many its load balancers open together.
    """

    name: str
    listeners: int = 1
    machines: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()


class Choice(msgspec.Struct, frozen=True):
    """The machines that a unit should have, in the order in which they own its addresses; ``problem`` in a sentence."""

    machines: tuple[str, ...] = ()
    problem: str = ""


@lru_cache(maxsize=1 << 17)
def score(address: str, machine: str) -> int:
    """Return the rank of a machine for an address; the lowest is the first choice."""
    return int.from_bytes(blake2b(f"{address}\0{machine}".encode(), digest_size=8).digest(), "big")


def choose(
    units: Iterable[Unit], members: Iterable[Member], *, group: str = "default", replicas: int = 0
) -> dict[str, Choice]:
    """Return the machines of each unit by its name. ``replicas``: how many each has; 0: all of the group."""
    return _Board(members, units, group=group, replicas=replicas).choose()


class _Board:
    """The loads of the machines of one group, while machines are given to units."""

    def __init__(self, members: Iterable[Member], units: Iterable[Unit], *, group: str, replicas: int) -> None:
        self._members = {member.name: member for member in sorted(members, key=lambda member: member.name)}
        self._units = sorted(units, key=lambda unit: unit.name)
        self._group = group
        usable = {name: member for name, member in self._members.items() if not member.drained}
        #: Those that get something new.
        self._open = {name: member for name, member in usable.items() if not member.silent}
        silent = len(usable) - len(self._open)
        self._all = not replicas or replicas >= len(usable)
        #: Those that keep what they have: a silent machine may serve, and others do where each serves everything.
        self._keeping = usable if self._all or 2 * silent >= len(usable) else self._open
        self._count = replicas or len(usable)
        self._load = dict.fromkeys(usable, 0)
        self._used = dict.fromkeys(self._members, 0)
        self._given: dict[str, list[str]] = {}
        self._problems: dict[str, str] = {}

    def choose(self) -> dict[str, Choice]:
        """Return the machines of each unit."""
        for unit in self._units:
            self._given[unit.name] = []
            for name in self._pinned(unit) if unit.pinned else self._kept(unit):
                self._give(unit, name)
        free = [unit for unit in self._units if not unit.pinned]
        for unit in free:
            self._fill(unit, self._limit(len(free)))
        if not self._all:
            self._level(free)
        owners = self._owners(free)
        return {
            unit.name: Choice(self._ordered(unit, owners.get(unit.name, "")), self._problems.get(unit.name, ""))
            for unit in self._units
        }

    # --- which machines ---------------------------------------------------------------------------------------

    def _pinned(self, unit: Unit) -> list[str]:
        present = [name for name in unit.pinned if name in self._members and not self._members[name].drained]
        if missing := [name for name in unit.pinned if name not in present]:
            self._problems[unit.name] = (
                f"fairlead.dev/machines: no machine in service is named {listed(missing, 5)}; correct the annotation, "
                "or use the machine again"
            )
        return present or list(unit.machines)

    def _kept(self, unit: Unit) -> list[str]:
        kept = [name for name in unit.machines if name in self._keeping][: self._count]
        if not self._all:
            zones: set[str] = set()
            free = len({self._zone(name) for name in self._open} - {self._zone(name) for name in kept})
            for name in list(kept):
                zone = self._zone(name)
                if zone in zones and free:
                    kept.remove(name)
                    free -= 1
                zones.add(zone)
        return kept

    def _fill(self, unit: Unit, limit: int) -> None:
        given = self._given[unit.name]
        while len(given) < self._count and (name := self._best(unit, limit)):
            self._give(unit, name)
        if self._all:
            # A silent machine may serve; it gets the load balancer with the others when it is back.
            for name in self._keeping:
                if name not in given and self._has_room(unit, name):
                    self._give(unit, name)
        if not given or len(given) < self._count:
            self._problems[unit.name] = self._why_short(unit, len(given))
        if not given:
            given += unit.machines  # what serves stays

    def _best(self, unit: Unit, limit: int) -> str:
        """Return the machine that gets the unit next: in a zone of its own, below ``limit``, in rendezvous order."""
        given = self._given[unit.name]
        zones = {self._zone(name) for name in given}

        def rank(name: str) -> tuple[bool, int, int]:
            load = self._load[name]
            return self._zone(name) in zones, load if load >= limit else 0, score(unit.name, name)

        candidates = [name for name in self._open if name not in given and self._has_room(unit, name)]
        return min(candidates, key=rank, default="")

    def _level(self, units: Sequence[Unit]) -> None:
        """Move units from full machines to those with few when the loads are too uneven."""
        loads = {name: self._load[name] for name in self._open}
        mean = sum(loads.values()) / len(loads) if loads else 0.0
        spread = _UNEVEN * mean + 1
        if not loads or (max(loads.values()) <= mean + spread and min(loads.values()) >= mean - spread):
            return
        while any(self._shift(units, *pair) for pair in _uneven(self._open, self._load)):
            pass

    def _shift(self, units: Sequence[Unit], high: str, low: str, surplus: int) -> int:
        """Move up to ``surplus`` units from one machine to another; return how many were moved."""
        able = [unit for unit in units if self._may_shift(unit, high, low)]
        moved = 0
        for unit in sorted(able, key=lambda unit: score(unit.name, low)):
            if moved == surplus:
                break
            if self._has_room(unit, low):
                self._given[unit.name].remove(high)
                self._load[high] -= 1
                self._used[high] -= unit.listeners
                self._give(unit, low)
                moved += 1
        return moved

    def _may_shift(self, unit: Unit, high: str, low: str) -> bool:
        given = self._given[unit.name]
        zones = {self._zone(name) for name in given if name != high}
        return high in given and low not in given and (self._zone(low) not in zones or self._zone(high) in zones)

    # --- in which order ---------------------------------------------------------------------------------------

    def _owners(self, units: Sequence[Unit]) -> dict[str, str]:
        """Return the first machine of each unit: the one that it has now, while these are even."""
        owned = Counter(dict.fromkeys(self._open, 0))
        owners: dict[str, str] = {}
        for unit in units:
            if unit.machines and unit.machines[0] in self._given[unit.name]:
                owners[unit.name] = unit.machines[0]
                owned[unit.machines[0]] += 1
        for unit in units:
            able = [name for name in self._given[unit.name] if name in self._open]
            if unit.name not in owners and able:
                owner = min(able, key=lambda name: (owned[name], score(unit.name, name)))
                owners[unit.name] = owner
                owned[owner] += 1
        self._level_owners([unit for unit in units if not unit.machines], owners, owned)
        counts = [owned[name] for name in self._open]
        if counts and max(counts) - min(counts) > max(1.0, _UNEVEN_OWNERS * sum(counts) / len(counts)):
            self._level_owners(units, owners, owned)
        return owners

    def _level_owners(self, units: Sequence[Unit], owners: dict[str, str], owned: Counter[str]) -> None:
        def shift(high: str, low: str, surplus: int) -> int:
            able = [unit for unit in units if owners.get(unit.name) == high and low in self._given[unit.name]]
            chosen = sorted(able, key=lambda unit: score(unit.name, low))[:surplus]
            owners.update(dict.fromkeys((unit.name for unit in chosen), low))
            owned.update({low: len(chosen), high: -len(chosen)})
            return len(chosen)

        while any(shift(*pair) for pair in _uneven(self._open, owned)):
            pass

    def _ordered(self, unit: Unit, owner: str) -> tuple[str, ...]:
        """Return the machines of a unit: the owner, those that it has now as they are, and the new ones."""
        given = self._given[unit.name]
        if unit.pinned:
            return tuple(given)
        known = [name for name in unit.machines if name in given]
        new = sorted((name for name in given if name not in known), key=lambda name: score(unit.name, name))
        return tuple(dict.fromkeys([*([owner] if owner else []), *known, *new]))

    # --- loads ------------------------------------------------------------------------------------------------

    def _limit(self, units: int) -> int:
        return -(-units * self._count // max(1, len(self._open)))

    def _zone(self, name: str) -> str:
        # Each machine without a zone is one of its own.
        member = self._members.get(name)
        return member.zone if member is not None and member.zone else f"\0{name}"

    def _give(self, unit: Unit, name: str) -> None:
        self._given[unit.name].append(name)
        if name in self._load:
            self._load[name] += 1
        if name in self._used:
            self._used[name] += unit.listeners

    def _has_room(self, unit: Unit, name: str) -> bool:
        member = self._members[name]
        if member.full and name not in unit.machines:
            return False
        return not member.room or self._used[name] + unit.listeners <= member.room

    def _why_short(self, unit: Unit, count: int) -> str:
        members = list(self._members.values())
        if not members:
            return f"group {self._group} has no machine; add one with the command of: fairlead proxy token"
        if not self._load:
            return f"every machine of group {self._group} is drained; use one again: fairlead proxy undrain"
        full = [name for name in self._load if name in self._open and not self._has_room(unit, name)]
        if full:
            room = ", ".join(
                f"{name}: almost no open files left"
                if self._members[name].full
                else f"{name}: {self._used[name]} of {self._members[name].room}"
                for name in full[:5]
            )
            sentence = f"no room for {counted(unit.listeners, 'port')} on {listed(full, 5)} ({room})"
            return f"{sentence}; add a machine to group {self._group}, or raise the limit of open files there"
        if not self._open:
            return f"the hub hears no machine of group {self._group}; check the machines and their network"
        return f"only {count} of {self._count} machines can be used in group {self._group}"


# --- the steps of moves ---------------------------------------------------------------------------------------------


def _uneven(names: Iterable[str], counts: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """Return each pair of a high and a low machine, with how much of the high one is too much; the widest first."""
    ordered = sorted(names, key=lambda name: (counts[name], name))
    total = sum(counts[name] for name in ordered)
    least, most = total // max(1, len(ordered)), -(-total // max(1, len(ordered)))
    return [
        (high, low, max(1, min(counts[high] - most, least - counts[low])))
        for low in ordered
        for high in reversed(ordered)
        if counts[high] - counts[low] > 1
    ]


class Placed(msgspec.Struct, frozen=True):
    """One load balancer with its record, and what its proxies answered.

    ``acknowledged`` are the machines whose proxies have all of it, ``announcing`` those that announce its addresses.
    ``on_hub``: the hub's own Envoys serve it while it has no machine. ``patience_over``: its present step has lasted so
    long that the move no longer waits for an announcement, or for clients to notice.
    """

    record: MachinePlacement | None
    acknowledged: frozenset[str] = frozenset()
    announcing: frozenset[str] = frozenset()
    on_hub: bool = False
    patience_over: bool = False


def advance(
    placed: Sequence[Placed], choice: Choice, *, members: Mapping[str, Member], reachable: Collection[str]
) -> list[MachinePlacement]:
    """Return the next records of the load balancers of one unit, each at most one step away from what it has.

    ``members`` are all machines that joined; ``reachable`` those whose proxy is connected.
    """
    waits_for = frozenset(choice.machines).intersection(reachable)
    ready = bool(waits_for) and all(waits_for <= member.acknowledged for member in placed)
    taken = all(member.announcing & set(choice.machines) or member.patience_over for member in placed)
    return [_step(member, choice, ready=ready, taken=taken, members=members) for member in placed]


def _step(
    placed: Placed, choice: Choice, *, ready: bool, taken: bool, members: Mapping[str, Member]
) -> MachinePlacement:
    machines, record = choice.machines, placed.record
    if record is None or not (record.machines or record.joining or placed.on_hub):
        # Nothing serves it yet, so nothing can break.
        new = () if placed.on_hub else machines
        return MachinePlacement(machines=new, joining=machines if placed.on_hub else (), message=choice.problem)
    left = [name for name in dict.fromkeys((*record.machines, *record.leaving)) if name not in machines]
    leaving = tuple(name for name in left if name in members)
    joining = tuple(name for name in machines if name not in record.machines)
    present = tuple(name for name in record.machines if name in members)
    extra = tuple(name for name in present if name not in machines)
    if joining and not (ready and set(joining) <= set(record.joining)):
        left = [name for name in left if name in record.machines or name in members]
        return MachinePlacement(record.machines, joining, tuple(left), choice.problem)
    if extra and (joining or not taken):
        return MachinePlacement((*machines, *extra), (), leaving, choice.problem)
    if not (joining or extra) and placed.patience_over:
        # Connections of a drained machine stay there until it is removed.
        leaving = tuple(name for name in leaving if members[name].drained)
    return MachinePlacement(machines, (), leaving, choice.problem)


def machines_of_move(record: MachinePlacement | None) -> frozenset[str]:
    """Return the machines that the announcement of a load balancer moves to or from."""
    if record is None:
        return frozenset()
    return frozenset(record.joining).union(name for name in record.leaving if name in record.machines)


def one_machines_worth(
    units: Iterable[Unit],
    choices: Mapping[str, Choice],
    moving: Mapping[str, frozenset[str]],
    *,
    is_lost: Callable[[str], bool],
) -> dict[str, Choice]:
    """Return what of ``choices`` may begin now: moves that have one machine in common, and every first placement.

    ``moving`` has the machines of each move that is under way, by unit: it continues, or elsewhere when its machine is
    lost. ``is_lost`` says so of a machine that is drained, silent or gone: the share of such a machine moves first.
    """
    allowed: dict[str, Choice] = {}
    pending: list[tuple[Unit, Choice]] = []
    for unit in units:
        choice = choices[unit.name]
        if not unit.machines or unit.pinned or not (changes := _changes(unit, choice)):
            allowed[unit.name] = choice
        elif unit.name in moving:
            lost = {going for going, _ in changes if is_lost(going)}
            allowed[unit.name] = replace(choice, machines=_towards(unit, choice, lost))
        else:
            pending.append((unit, choice))
    counts = Counter(name for unit, choice in pending for change in _changes(unit, choice) for name in change if name)
    for machines in moving.values():
        counts = Counter({name: count for name, count in counts.items() if name in machines})
    pivot = min(counts, key=lambda name: (not is_lost(name), -counts[name], name), default="")
    for unit, choice in pending:
        allowed[unit.name] = replace(choice, machines=_towards(unit, choice, {pivot} - {""}))
    return allowed


def _changes(unit: Unit, choice: Choice) -> list[tuple[str, str]]:
    """Return each machine that goes with the one that comes in its place; empty for none."""
    going = [name for name in unit.machines if name not in choice.machines]
    coming = [name for name in choice.machines if name not in unit.machines]
    if not (going or coming) and unit.machines[:1] != choice.machines[:1]:
        return [(unit.machines[0], choice.machines[0])]
    return list(zip_longest(going, coming, fillvalue=""))


def _towards(unit: Unit, choice: Choice, some: Collection[str]) -> tuple[str, ...]:
    """Return the machines of a unit after the changes that one of these machines is a part of."""
    changes = _changes(unit, choice)
    now = [change for change in changes if any(name in some for name in change)]
    if len(now) == len(changes):
        return choice.machines
    going = {name for name, _ in now}
    return (*(name for name in unit.machines if name not in going), *(name for _, name in now if name))


# --- all load balancers of a hub ------------------------------------------------------------------------------------


class Joined(msgspec.Struct, frozen=True):
    """A machine that joined, as placement sees it."""

    machine: JoinedMachine
    drained: bool = False
    silent: bool = False
    room: int = 0
    full: bool = False


class Placeable(msgspec.Struct, frozen=True):
    """A load balancer on the hub's own proxies or on machines, with what placement depends on."""

    key: LoadBalancerKey
    addresses: tuple[str, ...]
    placed: Placed
    listeners: int = 1
    class_name: str = ""
    pool: str = ""
    pinned: tuple[str, ...] = ()


def group_of(groups: Iterable[ProxyGroup], class_name: str, pool: str) -> ProxyGroup | None:
    """Return the group that serves a load balancer; the default one while there are none."""
    groups = [group for group in groups if not group.deleting]
    if not groups:
        return DEFAULT_PROXY_GROUP
    able = [
        group
        for group in groups
        if (not group.spec.classes or class_name in group.spec.classes)
        and (not group.spec.pools or pool in group.spec.pools)
    ]
    return min(able, key=lambda group: (not group.spec.pools, not group.spec.classes, group.age_order), default=None)


#: Every machine serves everything.
DEFAULT_PROXY_GROUP = ProxyGroup()


def members_of(group: ProxyGroup, machines: Iterable[Joined]) -> list[Member]:
    """Return the machines of a group."""
    return [
        Member(
            joined.machine.name,
            zone=joined.machine.labels.get(group.spec.zones_key, "") if group.spec.zones_key else "",
            drained=joined.drained,
            silent=joined.silent,
            room=joined.room,
            full=joined.full,
        )
        for joined in machines
        if _belongs(group, joined.machine)
    ]


def _belongs(group: ProxyGroup, machine: JoinedMachine) -> bool:
    if group is DEFAULT_PROXY_GROUP:
        return True
    if group.spec.machines == MachineChoice():
        return machine.group == group.metadata.name
    return is_chosen(group.spec.machines, machine)


def next_placements(
    load_balancers: Iterable[Placeable],
    machines: Sequence[Joined],
    groups: Sequence[ProxyGroup],
    *,
    reachable: Collection[str],
) -> dict[LoadBalancerKey, MachinePlacement | None]:
    """Return the next record of each load balancer; None for one that the hub's own proxies serve.

    A load balancer that no group serves keeps its machines, without those that are out of service.
    """
    load_balancers = list(load_balancers)
    if not machines:
        return {load_balancer.key: None for load_balancer in load_balancers}
    members = {member.name: member for member in members_of(DEFAULT_PROXY_GROUP, machines)}
    records = {load_balancer.key: load_balancer.placed.record for load_balancer in load_balancers}
    for group, units in _by_group(load_balancers, groups):
        choices = _begin(group, units, machines, members) if group is not None else _kept(units, members)
        for name, together in units.items():
            if name not in choices:
                continue
            after = advance(
                [load_balancer.placed for load_balancer in together],
                choices[name],
                members=members,
                reachable=reachable,
            )
            records |= {load_balancer.key: record for load_balancer, record in zip(together, after, strict=True)}
    return records


def _by_group(
    load_balancers: Iterable[Placeable], groups: Sequence[ProxyGroup]
) -> Iterable[tuple[ProxyGroup | None, dict[str, list[Placeable]]]]:
    """Return each group that serves any, with its units; None with those that no group serves."""
    by_group: dict[str, tuple[ProxyGroup | None, dict[str, list[Placeable]]]] = {}
    for name, together in _units_of(load_balancers).items():
        group = group_of(groups, together[0].class_name, together[0].pool)
        by_group.setdefault(group.metadata.name if group is not None else "-", (group, {}))[1][name] = together
    return by_group.values()


def _kept(units: Mapping[str, Sequence[Placeable]], members: Mapping[str, Member]) -> dict[str, Choice]:
    """Return the machines that units have and that are in service, also those that were drained for a while."""
    kept: dict[str, Choice] = {}
    for name, together in units.items():
        record = next(
            (load_balancer.placed.record for load_balancer in together if load_balancer.placed.record is not None), None
        )
        names = dict.fromkeys((*record.target, *record.leaving)) if record is not None else ()
        if in_service := tuple(name for name in names if name in members and not members[name].drained):
            kept[name] = Choice(in_service, record.message if record is not None else "")
    return kept


def _choices(group: ProxyGroup, units: Sequence[Unit], machines: Sequence[Joined]) -> dict[str, Choice]:
    replicas = group.spec.replicas if group.spec.mode == "Replicas" else 0
    return choose(units, members_of(group, machines), group=group.metadata.name or "default", replicas=replicas)


def _begin(
    group: ProxyGroup,
    units: Mapping[str, Sequence[Placeable]],
    machines: Sequence[Joined],
    members: Mapping[str, Member],
) -> dict[str, Choice]:
    some = [_unit(name, together) for name, together in units.items()]
    moving = {
        name: moves
        for name, together in units.items()
        if (
            moves := frozenset[str]().union(
                *(machines_of_move(load_balancer.placed.record) for load_balancer in together)
            )
        )
    }
    choices = _choices(group, some, machines)

    def is_lost(machine: str) -> bool:
        member = members.get(machine)
        return member is None or member.drained or member.silent

    return one_machines_worth(some, choices, moving, is_lost=is_lost)


def _unit(name: str, together: Sequence[Placeable]) -> Unit:
    recorded = next(
        (load_balancer.placed.record for load_balancer in together if load_balancer.placed.record is not None), None
    )
    return Unit(
        name,
        listeners=sum(load_balancer.listeners for load_balancer in together),
        machines=recorded.target if recorded is not None else (),
        pinned=next((load_balancer.pinned for load_balancer in together if load_balancer.pinned), ()),
    )


def _units_of(load_balancers: Iterable[Placeable]) -> dict[str, list[Placeable]]:
    """Return the load balancers that share addresses, by the first address of all, each in the order of keys."""
    units: dict[str, list[Placeable]] = {}
    unit_at: dict[str, str] = {}
    for load_balancer in sorted(load_balancers, key=attrgetter("key")):
        together = [load_balancer]
        names = {unit_at[address] for address in load_balancer.addresses if address in unit_at}
        for name in sorted(names):
            together = [*units.pop(name), *together]
        together.sort(key=attrgetter("key"))
        addresses = [address for member in together for address in member.addresses]
        first = min(addresses, key=_in_order)
        units[first] = together
        unit_at.update(dict.fromkeys(addresses, first))
    return units


def _in_order(address: str) -> tuple[int, int]:
    ip = ip_address(address)
    return ip.version, int(ip)


def placement_on_hub(machines: Iterable[ProxyMachine]) -> MachinePlacement | None:
    """Return the placement of a load balancer without a record: the machine of the hub, if that announces."""
    names = tuple(machine.metadata.name for machine in machines if machine.is_of_hub and not machine.deleting)
    return MachinePlacement(machines=names) if names else None


def joined_machine(machine: ProxyMachine, *, silent: bool = False, room: int = 0, full: bool = False) -> Joined:
    """Return a machine as placement sees it."""
    facts = JoinedMachine(machine.metadata.name, machine.spec.group, machine.metadata.labels or {})
    return Joined(facts, drained=machine.drained, silent=silent, room=room, full=full)


def placeable(key: LoadBalancerKey, obj: IntentObject, placed: Placed, *, ports: int = 1) -> Placeable:
    """Return a load balancer as placement sees it; it has so many ``ports``."""
    allocation = obj.status.allocation
    addresses = tuple(address for address, _ in allocation.places)
    names = (name.strip() for name in obj.annotation(ANNOTATION_MACHINES).split(","))
    return Placeable(
        key,
        addresses,
        placed,
        listeners=max(1, ports) * len(addresses),
        class_name=obj.class_name or DEFAULT_CLASS,
        pool=allocation.pool,
        pinned=tuple(dict.fromkeys(filter(None, names))),
    )


def final_choices(
    load_balancers: Iterable[Placeable], machines: Sequence[Joined], groups: Sequence[ProxyGroup]
) -> dict[LoadBalancerKey, Choice]:
    """Return the machines that each load balancer has once everything has moved; only of those that a group serves."""
    choices: dict[LoadBalancerKey, Choice] = {}
    for group, units in _by_group(load_balancers, groups):
        if group is None:
            continue
        chosen = _choices(group, [_unit(name, together) for name, together in units.items()], machines)
        choices |= {member.key: chosen[name] for name, together in units.items() for member in together}
    return choices


def announcing_machines(records: Iterable[MachinePlacement | None]) -> tuple[str, ...]:
    """Return the machines that announce an address of load balancers with these records, in their order.

    Those that each of them has: where one is missing, its clients would find no listener.
    """
    placed = [record.machines for record in records if record is not None]
    return tuple(name for name in placed[0] if all(name in machines for machines in placed)) if placed else ()
