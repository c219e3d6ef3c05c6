"""Proxy machines in rows and sentences: how each is, which announces an address, and why none does. Pure.

In: the objects of the hub's API. Out: rows for ``fairlead proxy list``, ``proxy upgrade``, ``status`` and ``explain``.
Why an address is not announced is decided as the hub decides it for its plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from fairlead.api.announcing import Advertisement, BGPPeer
from fairlead.api.intent import IntentObject
from fairlead.api.meta import condition_of
from fairlead.api.names import ANNOTATION_EGRESS_PODS, DEFAULT_CLASS
from fairlead.api.proxymachine import EXPECTED, AddressStatus, ProxyGroup, ProxyMachine, lease_name
from fairlead.api.tcploadbalancer import EgressStatus, TCPLoadBalancer
from fairlead.api.tenant import StampedLease, age_s
from fairlead.api.times import parsed_time
from fairlead.hub.machines.plans import announcement_of, is_ready, machines_by_address, placed_addresses
from fairlead.model.condition import ConditionReason
from fairlead.model.in_words import counted, listed
from fairlead.model.machine import AnnouncedAddress
from fairlead.status.formatting import age_text
from fairlead.translate.announcing import Announcements, accept
from fairlead.translate.placement import group_of, joined_machine, members_of, placement_on_hub

_LISTED = 3
HEADER = ("MACHINE", "GROUP", "STATE", "ANNOUNCING", "ADDRESSES", "LAST REPORT", "LAST FAILOVER")


class MachineRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One machine.

    ``state`` and ``announcing`` are the reasons of its conditions, ``addresses`` those that it announces, as far as its
    status lists them. ``last_report_age_s`` is measured by the clock of the API server.
    """

    name: str
    group: str
    state: str
    announcing: str
    drained: bool
    announced: int
    addresses: list[str]
    last_report_age_s: float | None
    failover_address: str = ""
    failover_time: str = ""
    failover_cause: str = ""
    envoy: str = ""
    release: str = ""
    certificate_expires: str = ""
    problems: list[str]


class SessionRow(msgspec.Struct, frozen=True, rename="camel"):
    """The session of a machine with a router."""

    machine: str
    peer: str
    state: str
    up: bool
    since: str = ""
    bfd: str = ""
    problem: str = ""


class UpgradeRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The upgrade of one machine.

    ``upgrade`` is its phase, ``envoy`` the version that runs, ``version`` and ``binary`` are wanted.
    """

    name: str
    group: str
    upgrade: str
    envoy: str
    version: str = ""
    binary: str = ""
    since: str = ""
    message: str = ""


class AnnouncedRow(msgspec.Struct, frozen=True, rename="camel"):
    """One address of a load balancer: the machines that announce it, since when, and why none does or it is contested.

    ``macs`` are those that answer for it, ``next_hops`` the addresses to which routers send packets; ``cause`` is that
    of the last change, ``failover_cause`` that of the last take-over. ``stale``: the hub does not hear ``machines``
    now. ``lacking`` are sentences about other machines that should announce it, too. ``pods`` are the addresses of pods
    that are to leave with it, ``translating`` the machines that can do that, ``egress_problem`` why some pods do not.
    """

    address: str
    machines: list[str]
    since: str = ""
    cause: str = ""
    macs: list[str] = msgspec.field(default_factory=list[str])
    problem: str = ""
    announcement: str = ""
    next_hops: list[str] = msgspec.field(default_factory=list[str])
    sessions: list[SessionRow] = msgspec.field(default_factory=list[SessionRow])
    failover_time: str = ""
    failover_cause: str = ""
    stale: bool = False
    lacking: list[str] = msgspec.field(default_factory=list[str])
    pods: list[str] = msgspec.field(default_factory=list[str])
    translating: list[str] = msgspec.field(default_factory=list[str])
    egress_problem: str = ""


def machine_rows(
    machines: Iterable[ProxyMachine], leases: Mapping[str, StampedLease], now: datetime
) -> list[MachineRow]:
    """Return the rows by name; ``leases`` are those of machines, by name of the Lease."""
    return [
        _machine_row(machine, leases.get(lease_name(machine.metadata.name)), now)
        for machine in sorted(machines, key=lambda machine: machine.metadata.name)
    ]


def upgrade_rows(machines: Iterable[ProxyMachine]) -> list[UpgradeRow]:
    """Return the rows of machines with or without an upgrade, in their order."""
    rows: list[UpgradeRow] = []
    for machine in machines:
        wanted, state = machine.spec.upgrade, machine.status.upgrade
        known = wanted is None or wanted.requested == state.requested
        rows.append(
            UpgradeRow(
                name=machine.metadata.name,
                group=machine.spec.group,
                upgrade=state.phase if known else "Waiting",
                envoy=machine.status.envoy,
                version=wanted.version if wanted is not None else "",
                binary=wanted.binary if wanted is not None else "",
                since=state.since if known else "",
                message=state.message if known else "",
            )
        )
    return rows


def cells(row: MachineRow, now: datetime, *, wide: bool = False) -> tuple[str, ...]:
    """Return the cells of a row under ``HEADER``; ``wide``: with Envoy and the end of the certificate."""
    addresses = listed(row.addresses, len(row.addresses) if wide else _LISTED) or "-"
    more = row.announced - len(row.addresses)
    return (
        row.name,
        row.group,
        "Drained" if row.drained and row.state == ConditionReason.READY else row.state,
        row.announcing,
        f"{addresses} and {more} more" if more > 0 else addresses,
        age_text(row.last_report_age_s),
        _failover(row, now),
        *((row.envoy or "-", row.certificate_expires or "-") if wide else ()),
    )


def machine_problems(machine: ProxyMachine) -> Iterator[tuple[str, str]]:
    """Yield reason and sentence of each condition of a machine that needs attention."""
    for condition in machine.status.conditions or ():
        bad = condition.status == "False" if condition.type in ("Ready", "Announcing") else condition.status == "True"
        unreachable = condition.reason == ConditionReason.UNREACHABLE and condition.type == "Ready"
        if unreachable or (bad and condition.reason not in EXPECTED):
            yield condition.reason, condition.message or condition.reason


def announced_rows(
    load_balancers: Sequence[IntentObject],
    machines: Sequence[ProxyMachine],
    announcements: Announcements,
    groups: Sequence[ProxyGroup] = (),
) -> dict[str, AnnouncedRow]:
    """Return the rows of all addresses that are to be announced, by address; none without machines."""
    if not machines:
        return {}
    members = sorted(machines, key=lambda machine: machine.metadata.name)
    states: dict[str, list[_ReportedAddress]] = {}
    for machine in members:
        for state in machine.status.addresses:
            states.setdefault(state.address, []).append(_ReportedAddress(machine, state))
    #: A status lists a limited number: then an address may be announced without being listed.
    all_listed = all(
        machine.status.announced <= sum(state.announced for state in machine.status.addresses) for machine in members
    )
    rows: dict[str, AnnouncedRow] = {}
    drained = {machine.metadata.name for machine in members if machine.drained}
    ours = sorted(load_balancers, key=lambda obj: obj.key)
    by_address = {address: obj for obj in reversed(ours) for address, _ in obj.status.allocation.places}
    on_hub = placement_on_hub(members)
    for placed in placed_addresses(ours, machines_by_address(ours, drained, otherwise=on_hub)):
        reported = states.get(placed.address, [])
        planned, why = announcement_of(placed, members, announcements)
        if any(state.announced for _, state in reported):
            rows[placed.address] = _announced(planned, reported)
            continue
        if planned.announcement == "None" and not why:
            continue
        if not placed.machines and drained != {member.metadata.name for member in members}:
            why = _not_placed(by_address[placed.address], members, groups) or why
        why = why or next((state.problem for _, state in reported if state.problem), "")
        why = why or _unreachable(planned.machines, members)
        why = why or "; ".join(f"{machine.metadata.name}: {state.cause}" for machine, state in reported if state.cause)
        if why or all_listed:
            failover = max((state for _, state in reported), key=lambda state: state.last_failover, default=None)
            rows[placed.address] = AnnouncedRow(
                placed.address,
                [],
                problem=why or "no machine announces it yet",
                announcement=planned.announcement,
                sessions=list(_session_rows(planned, members)),
                failover_time=failover.last_failover if failover is not None else "",
                failover_cause=failover.failover_cause if failover is not None else "",
            )
    for obj in ours:
        egress = obj.status.egress if isinstance(obj, TCPLoadBalancer) else None
        for address in {address for address, _ in obj.status.allocation.places} & rows.keys():
            if egress is not None:
                rows[address] = _with_egress(rows[address], obj.annotation(ANNOTATION_EGRESS_PODS), egress)
    return rows


def _with_egress(row: AnnouncedRow, pods: str, egress: EgressStatus) -> AnnouncedRow:
    of_family = {pod for pod in pods.split(",") if pod and (":" in pod) == (":" in row.address)}
    problems = filter(None, (row.egress_problem, egress.message))
    return replace(
        row,
        pods=sorted({*row.pods, *of_family}),
        translating=sorted({*row.translating, *egress.machines}),
        egress_problem="; ".join(dict.fromkeys(problems)),
    )


def in_force(peers: Iterable[BGPPeer], advertisements: Iterable[Advertisement]) -> Announcements:
    """Return the announcements in force, without passwords, which are of no importance for people."""
    return accept(peers, advertisements, {})


def announced_text(row: AnnouncedRow, now: datetime) -> str:
    """Return the words about one address: by which machine it is announced, since when and why; or why it is not."""
    if not row.machines:
        return f"not announced: {row.problem}"
    parts = [f"since {_age(row.since, now)}"] if _age(row.since, now) else []
    parts += [row.cause] if row.cause else []
    details = f" ({', '.join(parts)})" if parts else ""
    problem = f"; {row.problem}" if row.problem else ""
    return f"announced by {listed(row.machines, 5)}{_where(row)}{details}{problem}"


def announced_lines(row: AnnouncedRow, now: datetime) -> list[str]:
    """Return the same, then the last failover, the sessions, and what keeps other machines from announcing it."""
    lines = [f"Address {row.address}: {announced_text(row, now)}"]
    if row.failover_time and (row.failover_time, row.failover_cause) != (row.since, row.cause):
        lines.append(f"  last failover {_age(row.failover_time, now)} ago: {row.failover_cause}")
    for session in row.sessions:
        since = f" for {_age(session.since, now)}" if _age(session.since, now) else ""
        bfd = f", BFD {session.bfd}" if session.bfd else ""
        why = f": {session.problem}" if session.problem else ""
        lines.append(f"  session of {session.machine} with {session.peer}: {session.state}{since}{bfd}{why}")
    lines += [f"  not by {sentence}" for sentence in row.lacking]
    if row.pods:
        through = [name for name in row.machines if name in row.translating]
        way = f"through {listed(through, 5)}" if through else "not possible"
        lines.append(
            f"  egress of {listed(row.pods, 3)}: {way}" + (f"; {row.egress_problem}" * bool(row.egress_problem))
        )
    return lines


def announced_cell(row: AnnouncedRow, *, wide: bool = False) -> str:
    """Return the machines that announce an address, for a table; ``wide``: with MAC addresses or next hops."""
    names = ",".join(row.machines) or "none"
    egress = f", egress of {counted(len(row.pods), 'pod')}" if wide and row.pods else ""
    return f"{names}{_where(row)}{egress}" if wide and row.machines else names


def _where(row: AnnouncedRow) -> str:
    """Return where packets go: the MAC addresses, or the next hops."""
    hops = f", next hop{'s' * (len(row.next_hops) > 1)} {' and '.join(row.next_hops)}" if row.next_hops else ""
    return f", at {' and '.join(row.macs)}" if row.macs else hops


def _age(time: str, now: datetime) -> str:
    when = parsed_time(time)
    return age_text(max(0.0, (now - when).total_seconds())) if when is not None else ""


def _machine_row(machine: ProxyMachine, lease: StampedLease | None, now: datetime) -> MachineRow:
    status = machine.status
    ready, announcing = (condition_of(status.conditions, kind) for kind in ("Ready", "Announcing"))
    silent_s = age_s(lease, now) if lease is not None else None
    failover = status.last_failover
    return MachineRow(
        name=machine.metadata.name,
        group=machine.spec.group,
        state=ready.reason if ready is not None else "Joining",
        announcing=announcing.reason if announcing is not None else "-",
        drained=machine.drained,
        announced=status.announced,
        addresses=[state.address for state in status.addresses if state.announced],
        last_report_age_s=None if silent_s is None else round(silent_s, 1),
        failover_address=failover.address if failover is not None else "",
        failover_time=failover.time if failover is not None else "",
        failover_cause=failover.cause if failover is not None else "",
        envoy=status.envoy,
        release=status.release,
        certificate_expires=status.certificate.expires,
        problems=[sentence for _, sentence in machine_problems(machine)],
    )


def _failover(row: MachineRow, now: datetime) -> str:
    when = parsed_time(row.failover_time)
    if when is None:
        return "-"
    return f"{row.failover_address} {age_text(max(0.0, (now - when).total_seconds()))} ago: {row.failover_cause}"


class _ReportedAddress(NamedTuple):
    """What a machine reported last about one address."""

    machine: ProxyMachine
    state: AddressStatus

    @property
    def is_news(self) -> bool:
        """Return whether the hub hears the machine."""
        ready = condition_of(self.machine.status.conditions, "Ready")
        return ready is None or ready.reason != ConditionReason.UNREACHABLE


def _announced(planned: AnnouncedAddress, reported: Sequence[_ReportedAddress]) -> AnnouncedRow:
    owners = [entry for entry in reported if entry.state.announced]
    # The last word of a machine that is silent counts only while no other machine has the address.
    heard = [entry for entry in owners if entry.is_news]
    owners = heard or owners
    newest = max((entry.state for entry in owners), key=lambda state: state.since)
    failover = max((entry.state for entry in reported), key=lambda state: state.last_failover)
    names = [entry.machine.metadata.name for entry in owners]
    contested = any(entry.state.other_mac for entry in owners)
    macs = dict.fromkeys(mac for _, state in owners for mac in (state.mac, state.other_mac) if mac)
    routed = planned.announcement in ("BGP", "External")
    sessions = list(_session_rows(planned, [entry.machine for entry in reported])) if routed else []
    hops = [
        session.next_hop
        for entry in owners
        for session in entry.machine.status.sessions
        if session.up and session.next_hop and _carries(planned, session.peer)
    ]
    problem = ""
    if contested:
        problem = "contested: two hosts answer for it; find the other one by its MAC address, and remove it there"
    elif not heard:
        problem = f"the hub does not hear {listed(names, 5)} now, which may still announce it"
    return AnnouncedRow(
        planned.address,
        names,
        newest.since,
        newest.cause,
        list(macs) if not routed or contested else [],
        problem,
        announcement=planned.announcement,
        next_hops=list(dict.fromkeys(hops)) if routed else [],
        sessions=sessions,
        failover_time=failover.last_failover,
        failover_cause=failover.failover_cause,
        stale=not heard,
        lacking=[
            f"{machine.metadata.name}: {state.problem or state.cause}"
            for machine, state in reported
            if routed and not state.announced and (state.problem or state.cause)
        ],
    )


def _session_rows(planned: AnnouncedAddress, members: Iterable[ProxyMachine]) -> Iterator[SessionRow]:
    if planned.announcement != "BGP":
        return
    for member in members:
        for session in member.status.sessions:
            if member.metadata.name in planned.machines and _carries(planned, session.peer):
                yield SessionRow(
                    member.metadata.name,
                    session.peer,
                    session.state,
                    session.up,
                    session.since,
                    session.bfd,
                    session.problem,
                )


def _carries(planned: AnnouncedAddress, peer: str) -> bool:
    """Return whether the route of an address goes to a router."""
    return planned.bgp is None or not planned.bgp.peers or peer in planned.bgp.peers


def _not_placed(obj: IntentObject, members: Sequence[ProxyMachine], groups: Sequence[ProxyGroup]) -> str:
    """Return why a load balancer has no machines."""
    record = obj.status.placement
    if record is not None and record.message:
        return record.message
    class_name, pool = obj.class_name or DEFAULT_CLASS, obj.status.allocation.pool
    group = group_of(groups, class_name, pool)
    if group is None:
        return (
            f"no ProxyGroup serves LoadBalancerClass {class_name}{f' and AddressPool {pool}' if pool else ''}, so the "
            "hub's own proxies do; add the class to a ProxyGroup, or route the address to the hub"
        )
    name = group.metadata.name
    if name and not members_of(group, map(joined_machine, members)):
        return (
            f"ProxyGroup {name} has no machine; let one join with the command of: fairlead proxy token --group {name}"
        )
    return ""


def _unreachable(names: Sequence[str], members: Sequence[ProxyMachine]) -> str:
    silent = [member.metadata.name for member in members if member.metadata.name in names and not is_ready(member)]
    if not names or len(silent) < len(names):
        return ""
    return f"none of its machines is ready ({listed(silent, 5)}); see: fairlead proxy list"
