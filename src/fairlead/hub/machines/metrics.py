"""The metrics of proxy machines, as the hub's leader knows them from plans and reports.

    plans, reports ──at a scrape──► how many machines announce each address, sessions, certificates, clocks
    two reports of one machine ──► take-overs and withdrawals, counted by their trigger

With thousands of addresses a series for each would cost more than all others together: they are counted by the number
of their owners, and only those with a wrong number have a series, up to a limit. A replica that does not lead exports
no values.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.api.meta import condition_of
from fairlead.api.proxymachine import AddressStatus, ProxyMachine
from fairlead.api.times import parsed_time
from fairlead.hub.machines.states import UNREACHABLE_S, Heard
from fairlead.model.condition import ConditionType
from fairlead.model.machine import AddressState, AnnouncedAddress, Trigger

#: Addresses with a wrong number of owners that have a series of their own.
MOST_ADDRESSES = 100
_TRIGGERS = frozenset(Trigger)


class MachinesNow(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that metrics are counted from: machines, their last reports, and the addresses of the plans.

    ``problems`` has the addresses that no machine may announce although one should.
    """

    members: Sequence[ProxyMachine]
    heard: Mapping[str, Heard]
    planned: Sequence[AnnouncedAddress]
    problems: Collection[str]


class AddressMoves:
    """Counts which addresses machines began and ceased to announce, by machine and trigger."""

    def __init__(self) -> None:
        self.taken: Counter[tuple[str, str]] = Counter()
        self.withdrawn: Counter[tuple[str, str]] = Counter()

    def count(self, machine: str, before: Iterable[AddressState | AddressStatus], now: Iterable[AddressState]) -> None:
        """Count the changes between two reports of a machine; one that was started again has changed nothing."""
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
    """How many machines announce one address; None: only machines that the hub does not hear announced it last."""

    planned: AnnouncedAddress
    owners: int | None

    @property
    def wrong(self) -> bool:
        """Return whether no machine announces the address, or two do where only one may."""
        return self.owners == 0 or (self.planned.announcement == "L2" and (self.owners or 0) > 1)


def owners_of(now: MachinesNow) -> list[OwnerCount]:
    """Return the owners of each address that is to be announced, also hosts that are none of the machines."""
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
        """Count everything now."""
        now = self._now() or MachinesNow(members=(), heard={}, planned=(), problems=())
        yield from _addresses(owners_of(now))
        yield from _machines(now)
        yield from _sessions(now)
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


def _addresses(owners: Sequence[OwnerCount]) -> Iterable[Metric]:
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
    for member in now.members:
        name, heard = member.metadata.name, now.heard.get(member.metadata.name)
        condition = condition_of(member.status.conditions, ConditionType.READY)
        ready.add_metric([name], float(condition is not None and condition.status == "True"))
        announced.add_metric([name], member.status.announced)
        if heard is not None:
            ages.add_metric([name], heard.silent_s)
            skews.add_metric([name], heard.skew_s)
        if (expires := parsed_time(member.status.certificate.expires)) is not None:
            ends.add_metric([name], expires.timestamp())
    yield from (ready, announced, ages, skews, ends)


def _sessions(now: MachinesNow) -> Iterable[Metric]:
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
