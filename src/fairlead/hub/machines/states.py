"""The status of a proxy machine, from its last report and how long ago that was, and the metrics of all machines.

    silent for 20 s             Ready Unknown, Unreachable: the machine may serve, so nothing moves
    Envoy down, or it refuses   Ready False
    an address has a problem    Announcing False: Contested with both MAC addresses, or NotAnnounced with the reason
    its clock is off            ClockSkewed True

Pure: in: the object, the report, seconds. Out: the whole status; certificate and upgrade, which have other writers,
stay unchanged.

With thousands of addresses, a series for each would cost more than all others together. Addresses are counted by the
number of their owners; only those with a wrong number have their own series, up to a limit. A replica that does not
lead exports no values.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.api.meta import condition_of, wire_conditions
from fairlead.api.proxymachine import (
    ADDRESSES_LISTED,
    AddressStatus,
    Failover,
    MachineLink,
    ProxyMachine,
    ProxyMachineStatus,
    RouterSession,
)
from fairlead.api.times import parsed_time, wire_time
from fairlead.hub.machines.plans import interfaces_of
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.in_words import counted, listed
from fairlead.model.machine import FAILOVERS, AddressState, AnnouncedAddress, MachineReport, Trigger

#: Seconds without a report after which a machine is unreachable from the hub.
UNREACHABLE_S = 20.0
#: The clock skew that is reported as wrong; and the skew with which a machine cannot join.
_NOTICED_SKEW_S, SKEW_S = 10.0, 60.0
#: Links, sessions, and addresses of a link that a status lists; characters of one sentence.
_MOST, _LONGEST = 256, 1024
#: New connections a second, below which a drained machine has none.
FEW_CONNECTIONS = 1.0


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of a machine to this hub replica.

    ``skew_s``: how far the clock of the machine is ahead. ``copies``: another machine reports with the same identity.
    """

    report: MachineReport | None
    silent_s: float
    skew_s: float = 0.0
    copies: bool = False


def machine_status(machine: ProxyMachine, heard: Heard, *, now: datetime) -> ProxyMachineStatus:
    """Return the status of ``machine`` now; unchanged until a report arrives or silence proves a failure."""
    old, report = machine.status, heard.report
    name, generation = machine.metadata.name, machine.metadata.generation
    if heard.silent_s >= UNREACHABLE_S:
        sentence = (
            f"The hub has not heard from machine {name} for {UNREACHABLE_S:g} s. The machine may still serve, so "
            "nothing was moved. Check its network and: systemctl status fairlead-proxy"
        )
        kinds = (ConditionType.READY, ConditionType.ANNOUNCING)
        conditions = [Condition(kind, None, ConditionReason.UNREACHABLE, sentence) for kind in kinds]
        wire = wire_conditions(conditions, old.conditions, generation=generation, now=wire_time(now))
        return msgspec.structs.replace(old, conditions=wire, observed_generation=generation)
    if report is None:
        return old
    before = {state.address: state for state in old.addresses}
    addresses = {
        state.address: _address(state, before.get(state.address, AddressStatus(state.address)))
        for state in report.addresses
    }
    conditions = [ready_condition(name, report, copies=heard.copies), _announcing(machine, report)]
    if abs(heard.skew_s) > _NOTICED_SKEW_S:
        conditions.append(
            Condition(ConditionType.CLOCK_SKEWED, True, ConditionReason.CLOCK_SKEW, skew_text(heard.skew_s))
        )
    return ProxyMachineStatus(
        envoy=report.proxy.version,
        release=report.release,
        certificate=old.certificate,
        upgrade=old.upgrade,
        announced=sum(state.announced for state in report.addresses),
        addresses=tuple(sorted(addresses.values(), key=lambda state: not state.problem)[:ADDRESSES_LISTED]),
        links=_links(report),
        sessions=_sessions(report),
        last_failover=_last_failover(report.addresses) or old.last_failover,
        new_connections=_new_connections(machine, report),
        open_connections=report.open_connections if machine.drained and report.drained else 0,
        problems=tuple(problem[:_LONGEST] for problem in report.problems[:16]),
        observed_generation=generation,
        conditions=wire_conditions(conditions, old.conditions, generation=generation, now=wire_time(now)),
    )


def skew_text(skew_s: float) -> str:
    """Return the message about a clock that is ``skew_s`` ahead of the hub's."""
    ahead = "ahead of" if skew_s > 0 else "behind"
    return (
        f"The clock of the machine is {_span(abs(skew_s))} {ahead} that of the hub. Synchronize both, for example with "
        "chrony"
    )


def _span(seconds: float) -> str:
    unit, size = next(((unit, size) for unit, size in (("h", 3600), ("min", 60)) if seconds >= size), ("s", 1))
    # Coarse, so that a slightly delayed report does not change the message.
    return f"{round(seconds, -1) if size == 1 else seconds / size:.0f} {unit}"


def ready_condition(name: str, report: MachineReport, *, copies: bool = False) -> Condition:
    """Return whether a machine serves, by its report; ``copies``: another machine reports with the same identity."""
    proxy = report.proxy
    kind = ConditionType.READY
    if copies:
        sentence = (
            f"Two machines report as {name}: one is a copy with its state directory. Delete the directory on the copy "
            "and let it join with a token of its own"
        )
        return Condition(kind, False, ConditionReason.DUPLICATE_MACHINE, sentence)
    if not proxy.alive:
        sentence = f"Envoy does not run on machine {name}; see there: journalctl -u fairlead-proxy"
        return Condition(kind, False, ConditionReason.PROXY_DOWN, sentence)
    if proxy.refused:
        sentence = f"Envoy refuses {listed(proxy.refused, 3)}"
        return Condition(kind, False, ConditionReason.REJECTED_BY_PROXY, sentence)
    if report.problems:
        return Condition(kind, False, ConditionReason.REPORTS_PROBLEM, " ".join(report.problems[:3]))
    if not proxy.synced:
        sentence = "Envoy has not acknowledged the newest configuration yet"
        return Condition(kind, False, ConditionReason.PENDING, sentence)
    return Condition(kind, True, ConditionReason.READY, f"Envoy serves {counted(proxy.listeners, 'listener')}")


def _announcing(machine: ProxyMachine, report: MachineReport) -> Condition:
    kind = ConditionType.ANNOUNCING
    contested = [state for state in report.addresses if state.announced and state.other_mac]
    if contested:
        first = contested[0]
        sentence = (
            f"{first.address} is answered by {first.mac or 'this machine'} and by {first.other_mac}. Find the other "
            "machine by its MAC address and remove the address there"
        )
        return Condition(kind, False, ConditionReason.CONTESTED, sentence)
    problems = [*(state.problem for state in report.addresses), *(session.problem for session in report.sessions)]
    if problems := [problem for problem in problems if problem]:
        more = f" {len(problems) - 1} more problems are in the status." if problems[1:] else ""
        return Condition(kind, False, ConditionReason.NOT_ANNOUNCED, f"{problems[0].rstrip('.')}.{more}")
    announced = sum(state.announced for state in report.addresses)
    if announced:
        return Condition(kind, True, ConditionReason.ANNOUNCING, f"Announces {_addresses(announced)}")
    if machine.drained:
        sentence = (
            f"The machine is drained. To use it again: fairlead proxy undrain {machine.metadata.name}"
            if machine.spec.drained
            else "The machine is drained while its Envoy is upgraded; see: fairlead proxy upgrade --status"
        )
        return Condition(kind, False, ConditionReason.DRAINED, sentence)
    if report.addresses:
        sentence = "Other machines announce all addresses; this machine takes over when they fail"
        return Condition(kind, False, ConditionReason.STANDBY, sentence)
    return Condition(kind, False, ConditionReason.NOTHING_TO_ANNOUNCE, "No address is to be announced by this machine")


def _addresses(count: int) -> str:
    return "1 address" if count == 1 else f"{count} addresses"


def _address(state: AddressState, old: AddressStatus) -> AddressStatus:
    """Return the status of an address; ``old`` has the facts that a restarted machine no longer knows."""
    if state.trigger == Trigger.ADOPTED and old.announced and old.since:
        since, cause = old.since, old.cause
    else:
        since, cause = _time(state.since), state.cause[:_LONGEST]
    taken = _is_failover(state)
    return AddressStatus(
        address=state.address,
        announced=state.announced,
        interface=state.interface,
        mac=state.mac,
        other_mac=state.other_mac,
        since=since,
        cause=cause,
        last_failover=since if taken else old.last_failover,
        failover_cause=cause if taken else old.failover_cause,
        problem=state.problem[:_LONGEST],
    )


def _links(report: MachineReport) -> tuple[MachineLink, ...]:
    """Return the links of a report, each once, with the addresses that are valid."""
    links = {
        link.name: MachineLink(
            name=link.name,
            mac=link.mac,
            up=link.up,
            addresses=tuple(dict.fromkeys(map(str, interfaces_of(link.addresses[:_MOST])))),
        )
        for link in report.links[:_MOST]
    }
    return tuple(links.values())


def _sessions(report: MachineReport) -> tuple[RouterSession, ...]:
    """Return the sessions of a report, each once."""
    sessions = {
        session.peer: RouterSession(
            peer=session.peer,
            state=session.state,
            up=session.up,
            since=_time(session.since),
            announced=session.announced,
            bfd=session.bfd,
            next_hop=session.next_hop,
            problem=session.problem[:_LONGEST],
        )
        for session in report.sessions[:_MOST]
    }
    return tuple(sessions.values())


def _last_failover(states: Sequence[AddressState]) -> Failover | None:
    taken = [state for state in states if _is_failover(state)]
    last = max(taken, key=lambda state: state.since, default=None)
    return Failover(address=last.address, time=_time(last.since), cause=last.cause) if last is not None else None


def _is_failover(state: AddressState) -> bool:
    """Return whether a machine took the address over; machines of an older release send no trigger."""
    return state.announced and bool(state.cause) and state.trigger in ("", *FAILOVERS)


def _new_connections(machine: ProxyMachine, report: MachineReport) -> Literal["", "None", "Some"]:
    if not (machine.drained and report.drained):  # it has to know that it is drained
        return ""
    return "None" if report.connections_per_s < FEW_CONNECTIONS else "Some"


def _time(seconds: float) -> str:
    return wire_time(datetime.fromtimestamp(seconds, UTC)) if 0 < seconds < 4e9 else ""


#: Addresses with a wrong number of owners that have a series of their own.
MOST_ADDRESSES = 100
_TRIGGERS = frozenset(Trigger)


class MachinesNow(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the metrics: machines, their last reports, and the addresses of the plans.

    ``problems`` has the addresses that no machine may announce although one should.
    """

    members: Sequence[ProxyMachine]
    heard: Mapping[str, Heard]
    planned: Sequence[AnnouncedAddress]
    problems: Collection[str]


class AddressMoves:
    """Counts the addresses that machines started and stopped announcing, by machine and trigger."""

    def __init__(self) -> None:
        self.taken: Counter[tuple[str, str]] = Counter()
        self.withdrawn: Counter[tuple[str, str]] = Counter()

    def count(self, machine: str, before: Iterable[AddressState | AddressStatus], now: Iterable[AddressState]) -> None:
        """Count the changes between two reports of a machine; a restart alone is not a change."""
        announced = {state.address for state in before if state.announced}
        for state in now:
            trigger = state.trigger if state.trigger in _TRIGGERS else Trigger.UNKNOWN.value
            if state.announced and state.address not in announced and trigger != Trigger.ADOPTED:
                self.taken[machine, trigger] += 1
            elif not state.announced and state.address in announced:
                self.withdrawn[machine, trigger] += 1
            announced.discard(state.address)
        if announced:
            self.withdrawn[machine, Trigger.NOT_PLANNED.value] += len(announced)


class OwnerCount(NamedTuple):
    """How many machines announce one address; None: its last announcers are all silent."""

    planned: AnnouncedAddress
    owners: int | None

    @property
    def wrong(self) -> bool:
        """Return whether no machine announces the address, or two do where only one may."""
        return self.owners == 0 or (self.planned.announcement == "L2" and (self.owners or 0) > 1)


def owners_of(now: MachinesNow) -> list[OwnerCount]:
    """Return the owners of each address that should be announced, including hosts that are not machines."""
    fresh: defaultdict[str, set[str]] = defaultdict(set)
    stale: set[str] = set()
    for name, heard in now.heard.items():
        for state in heard.report.addresses if heard.report is not None else ():
            if not state.announced:
                continue
            if heard.silent_s >= UNREACHABLE_S:
                stale.add(state.address)
                continue
            # With BGP all machines have the address on their own loopback interface, without a MAC.
            fresh[state.address].add(state.mac or name)
            if state.other_mac:
                fresh[state.address].add(state.other_mac)
    return [
        OwnerCount(
            planned, None if not fresh[planned.address] and planned.address in stale else len(fresh[planned.address])
        )
        for planned in now.planned
        if planned.announcement != "None" or planned.address in now.problems
    ]


class MachineCollector(Collector):
    """The metrics; ``now`` returns None where this replica does not lead."""

    def __init__(self, now: Callable[[], MachinesNow | None], moves: AddressMoves) -> None:
        self._now = now
        self._moves = moves

    def collect(self) -> Iterable[Metric]:
        """Collect the present values."""
        now = self._now() or MachinesNow(members=(), heard={}, planned=(), problems=())
        yield from _address_metrics(owners_of(now))
        yield from _machines(now)
        yield from _session_metrics(now)
        moves = (
            ("takeovers", "Addresses that a machine began to announce, by what triggered it.", self._moves.taken),
            (
                "withdrawals",
                "Addresses that a machine ceased to announce, by what triggered it.",
                self._moves.withdrawn,
            ),
        )
        for name, text, counts in moves:
            family = CounterMetricFamily(f"fairlead_machine_{name}", text, labels=["machine", "cause"])
            for labels, count in sorted(counts.items()):
                family.add_metric(labels, count)
            yield family


def _address_metrics(owners: Sequence[OwnerCount]) -> Iterable[Metric]:
    counts = GaugeMetricFamily(
        "fairlead_machine_addresses",
        "Addresses to be announced, by the number of their owners: 0, 1, 2 or more, or unknown.",
        labels=["announcement", "owners"],
    )
    single = GaugeMetricFamily(
        "fairlead_machine_address_owners",
        f"Owners of an address that has none, or two where one is allowed; the first {MOST_ADDRESSES} of them.",
        labels=["address", "announcement"],
    )
    numbers = Counter(
        (entry.planned.announcement, "unknown" if entry.owners is None else str(min(2, entry.owners)))
        for entry in owners
    )
    for labels, count in sorted(numbers.items()):
        counts.add_metric(labels, count)
    for entry in [entry for entry in owners if entry.wrong][:MOST_ADDRESSES]:
        single.add_metric([entry.planned.address, entry.planned.announcement], entry.owners or 0)
    yield from (counts, single)


def _machines(now: MachinesNow) -> Iterable[Metric]:
    ready = GaugeMetricFamily("fairlead_machine_ready", "1 when the machine is Ready.", labels=["machine"])
    announced = GaugeMetricFamily(
        "fairlead_machine_announced_addresses", "Addresses that the machine announces.", labels=["machine"]
    )
    ages = GaugeMetricFamily(
        "fairlead_machine_last_report_age_seconds", "Seconds since the machine reported.", labels=["machine"]
    )
    skews = GaugeMetricFamily(
        "fairlead_machine_clock_skew_seconds",
        "By how much the clock of the machine is ahead of the hub's.",
        labels=["machine"],
    )
    ends = GaugeMetricFamily(
        "fairlead_machine_certificate_expiry_timestamp_seconds",
        "Expiry of the machine's certificate, as a Unix time.",
        labels=["machine"],
    )
    synced = {
        "connections": "Open connections that the machine sends to another one.",
        "waiting_messages": "Changes of connections that the other machine has not confirmed.",
        "lost_messages": "Changes of connections that had to be sent again.",
    }
    sync = [
        GaugeMetricFamily(f"fairlead_machine_sync_{name}", text, labels=["machine"]) for name, text in synced.items()
    ]
    for member in now.members:
        name, heard = member.metadata.name, now.heard.get(member.metadata.name)
        forwarding = heard.report.forwarding if heard is not None and heard.report is not None else None
        if forwarding is not None and (state := forwarding.connections) is not None:
            for family, value in zip(sync, (state.connections, state.waiting, state.lost), strict=True):
                family.add_metric([name], value)
        condition = condition_of(member.status.conditions, ConditionType.READY)
        ready.add_metric([name], float(condition is not None and condition.status == "True"))
        announced.add_metric([name], member.status.announced)
        if heard is not None:
            ages.add_metric([name], heard.silent_s)
            skews.add_metric([name], heard.skew_s)
        if (expires := parsed_time(member.status.certificate.expires)) is not None:
            ends.add_metric([name], expires.timestamp())
    yield from (ready, announced, ages, skews, ends, *sync)


def _session_metrics(now: MachinesNow) -> Iterable[Metric]:
    labels = ["machine", "peer"]
    up = GaugeMetricFamily("fairlead_machine_session_up", "1 when the session with the router is up.", labels=labels)
    prefixes = GaugeMetricFamily(
        "fairlead_machine_session_prefixes", "Prefixes that the machine announces to the router.", labels=labels
    )
    for member in now.members:
        for session in member.status.sessions:
            up.add_metric([member.metadata.name, session.peer], float(session.up))
            prefixes.add_metric([member.metadata.name, session.peer], session.announced)
    yield from (up, prefixes)
