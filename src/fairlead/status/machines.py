"""Proxy machines in rows and sentences: how each is, which announces an address, and why none does. Pure.

In: the objects of the hub's API. Out: rows for ``fairlead proxy list``, ``status`` and ``explain``, and the addresses
that only one machine announces. Why an address is not announced is decided as the hub decides it for its plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from ipaddress import ip_address

import msgspec

from fairlead.api.announcing import Advertisement, BGPPeer
from fairlead.api.intent import IntentObject
from fairlead.api.meta import condition_of
from fairlead.api.proxymachine import AddressStatus, ProxyMachine, lease_name
from fairlead.api.tenant import StampedLease, age_s
from fairlead.api.times import parsed_time
from fairlead.hub.machines.plans import announcement_of, machines_by_address, placed_addresses, subnets
from fairlead.model.condition import ConditionReason
from fairlead.model.in_words import listed
from fairlead.status.formatting import age_text
from fairlead.translate.announcing import Announcements, accept

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


class AnnouncedRow(msgspec.Struct, frozen=True, rename="camel"):
    """One address of a load balancer: the machines that announce it, since when, and why none does or it is contested.

    ``macs`` are those that answer for it, ``cause`` is that of the last change.
    """

    address: str
    machines: list[str]
    since: str = ""
    cause: str = ""
    macs: list[str] = msgspec.field(default_factory=list[str])
    problem: str = ""


def machine_rows(
    machines: Iterable[ProxyMachine], leases: Mapping[str, StampedLease], now: datetime
) -> list[MachineRow]:
    """Return the rows by name; ``leases`` are those of machines, by name of the Lease."""
    return [
        _machine_row(machine, leases.get(lease_name(machine.metadata.name)), now)
        for machine in sorted(machines, key=lambda machine: machine.metadata.name)
    ]


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
        if unreachable or (bad and condition.reason not in (ConditionReason.DRAINED, ConditionReason.PENDING)):
            yield condition.reason, condition.message or condition.reason


def announced_rows(
    load_balancers: Sequence[IntentObject], machines: Sequence[ProxyMachine], announcements: Announcements
) -> dict[str, AnnouncedRow]:
    """Return the rows of all addresses that are to be announced, by address; none without machines."""
    if not machines:
        return {}
    members = sorted(machines, key=lambda machine: machine.metadata.name)
    states: dict[str, list[tuple[ProxyMachine, AddressStatus]]] = {}
    for machine in members:
        for state in machine.status.addresses:
            states.setdefault(state.address, []).append((machine, state))
    #: A status lists a limited number: then an address may be announced without being listed.
    all_listed = all(
        machine.status.announced <= sum(state.announced for state in machine.status.addresses) for machine in members
    )
    rows: dict[str, AnnouncedRow] = {}
    drained = {machine.metadata.name for machine in members if machine.spec.drained}
    ours = sorted(load_balancers, key=lambda obj: obj.key)
    for placed in placed_addresses(ours, machines_by_address(ours, drained)):
        here = states.get(placed.address, [])
        if any(state.announced for _, state in here):
            rows[placed.address] = _announced(placed.address, here)
            continue
        planned, why = announcement_of(placed, members, announcements)
        if planned.announcement == "None" and not why:
            continue
        why = why or next((state.problem for _, state in here if state.problem), "")
        why = why or _unreachable(planned.machines, members)
        if why or all_listed:
            rows[placed.address] = AnnouncedRow(placed.address, [], problem=why or "no machine announces it yet")
    return rows


def in_force(peers: Iterable[BGPPeer], advertisements: Iterable[Advertisement]) -> Announcements:
    """Return the announcements in force, without passwords, which are of no importance for people."""
    return accept(peers, advertisements, {})


def announced_text(row: AnnouncedRow, now: datetime) -> str:
    """Return the words about one address: by which machine it is announced, since when and why; or why it is not."""
    if not row.machines:
        return f"not announced: {row.problem}"
    since = parsed_time(row.since)
    parts = [f"since {age_text((now - since).total_seconds())}"] if since is not None else []
    parts += [row.cause] if row.cause else []
    details = f" ({', '.join(parts)})" if parts else ""
    macs = f", at {' and '.join(row.macs)}" if row.macs else ""
    problem = f"; {row.problem}" if row.problem else ""
    return f"announced by {listed(row.machines, 5)}{macs}{details}{problem}"


def only_announced_by(machine: ProxyMachine, machines: Iterable[ProxyMachine]) -> list[str]:
    """Return the addresses that no other machine announces, or can take over, when this one is drained."""
    others = [
        other
        for other in machines
        if other.metadata.name != machine.metadata.name and not other.spec.drained and _serves(other)
    ]
    elsewhere = {state.address for other in others for state in other.status.addresses if state.announced}
    networks = [network for other in others for network in subnets(other.status.links)]
    return [
        state.address
        for state in machine.status.addresses
        if state.announced
        and state.address not in elsewhere
        and not any(ip_address(state.address) in network for network in networks)
    ]


def _serves(machine: ProxyMachine) -> bool:
    ready = condition_of(machine.status.conditions, "Ready")
    return ready is not None and ready.status == "True" and not machine.deleting


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
        drained=machine.spec.drained,
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


def _announced(address: str, states: Sequence[tuple[ProxyMachine, AddressStatus]]) -> AnnouncedRow:
    owners = [(machine, state) for machine, state in states if state.announced]
    newest = max((state for _, state in owners), key=lambda state: state.since)
    macs = dict.fromkeys(mac for _, state in owners for mac in (state.mac, state.other_mac) if mac)
    return AnnouncedRow(
        address,
        [machine.metadata.name for machine, _ in owners],
        newest.since,
        newest.cause,
        list(macs),
        "contested: two machines answer for it" if any(state.other_mac for _, state in owners) else "",
    )


def _unreachable(names: Sequence[str], members: Sequence[ProxyMachine]) -> str:
    silent = [member.metadata.name for member in members if member.metadata.name in names and not _serves(member)]
    if not names or len(silent) < len(names):
        return ""
    return f"none of its machines is ready ({listed(silent, 5)}); see: fairlead proxy list"
