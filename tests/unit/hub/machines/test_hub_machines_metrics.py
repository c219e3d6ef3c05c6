"""The metrics of proxy machines, and the alerts that their text makes fire."""

from __future__ import annotations

import math
import operator
import re
import time
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.proxymachine import MachineCertificate, ProxyMachine, ProxyMachineStatus, RouterSession
from fairlead.hub.machines.states import (
    MOST_ADDRESSES,
    UNREACHABLE_S,
    AddressMoves,
    Heard,
    MachineCollector,
    MachinesNow,
)
from fairlead.model.machine import AddressState, AnnouncedAddress, Announcement, MachineReport
from tests.docs.docs_console import ROOT

A, B = "192.0.2.10", "2001:db8::10"
EXPR = re.compile(
    r"(?P<fold>sum|min|max)(?: by \((?P<by>[^)]*)\) )?\((?P<name>\w+)(?:\{(?P<match>[^}]*)\})?\)"
    r"(?P<age> - time\(\))? (?P<op>[<>]) (?P<limit>[\d *]+)"
)
FOLDS: Mapping[str, Any] = {"sum": sum, "min": min, "max": max}


def owner(address: str = A, *, mac: str = "02:00:00:00:00:01", other_mac: str = "") -> AddressState:
    return AddressState(address=address, announced=True, mac=mac, other_mac=other_mac)


def heard(*states: AddressState, silent_s: float = 0.0) -> Heard:
    return Heard(report=MachineReport(machine="m", addresses=states), silent_s=silent_s)


def member(name: str, *, ready: str = "True", days: float = 60.0, up: bool = True) -> ProxyMachine:
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + days * 86400))
    return ProxyMachine(
        ObjectMeta(name=name),
        status=ProxyMachineStatus(
            certificate=MachineCertificate(serial="1", expires=expires),
            sessions=(RouterSession(peer="tor", up=up, announced=2),),
            conditions=[WireCondition("Ready", ready, "Reason")],
        ),
    )


def planned(*addresses: str, announcement: Announcement = "L2") -> list[AnnouncedAddress]:
    return [AnnouncedAddress(address=address, announcement=announcement) for address in addresses]


def exported(now: MachinesNow | None, moves: AddressMoves | None = None) -> str:
    registry = CollectorRegistry()
    registry.register(MachineCollector(lambda: now, moves or AddressMoves()))
    return generate_latest(registry).decode()


def now_of(
    *members: ProxyMachine,
    addresses: list[AnnouncedAddress] | None = None,
    problems: tuple[str, ...] = (),
    **reports: Heard,
) -> MachinesNow:
    return MachinesNow(members=members, heard=reports, planned=addresses or planned(A), problems=problems)


def samples(text: str, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def fires(text: str, expr: str) -> bool:
    """Evaluate the few forms of expressions that the alerts about machines have."""
    form = EXPR.fullmatch(expr)
    assert form is not None, expr
    wanted = dict(
        part.split("=") for part in (form["match"] or "").replace('"', "").replace(" ", "").split(",") if part
    )
    by = [name.strip() for name in (form["by"] or "").split(",") if name.strip()]
    groups: dict[tuple[str, ...], list[float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == form["name"] and wanted.items() <= sample.labels.items():
                groups.setdefault(tuple(sample.labels[name] for name in by), []).append(sample.value)
    limit = math.prod(float(number) for number in form["limit"].split("*"))
    compare = operator.lt if form["op"] == "<" else operator.gt
    age_s = time.time() if form["age"] else 0.0
    return any(compare(FOLDS[form["fold"]](values) - age_s, limit) for values in groups.values())


def firing(text: str) -> set[str]:
    rules = yaml.safe_load((ROOT / "deploy" / "monitoring" / "alerts.yaml").read_text(encoding="utf-8"))
    return {
        rule["alert"]
        for group in rules["groups"]
        for rule in group["rules"]
        if "fairlead_machine_" in rule["expr"] and fires(text, rule["expr"])
    }


WELL = heard(owner())


@pytest.mark.req("P-29")
def test_nothing_fires_while_all_is_well():
    assert firing(exported(now_of(member("m1"), member("m2"), m1=WELL, m2=heard()))) == set()


@pytest.mark.req("P-29")
@pytest.mark.parametrize(
    ("now", "alert"),
    [
        (now_of(member("m1"), m1=heard()), "FairleadAddressNotAnnounced"),
        (
            now_of(member("m1"), addresses=planned(A, announcement="None"), problems=(A,), m1=heard()),
            "FairleadAddressNotAnnounced",
        ),
        (now_of(member("m1"), addresses=planned(A, announcement="BGP"), m1=heard()), "FairleadAddressNotAnnounced"),
        (now_of(member("m1"), m1=heard(owner(other_mac="02:ff::1"))), "FairleadAddressContested"),
        (
            now_of(member("m1"), member("m2"), m1=heard(owner()), m2=heard(owner(mac="02:00:00:00:00:02"))),
            "FairleadAddressContested",
        ),
        (now_of(member("m1", ready="False"), m1=WELL), "FairleadMachineNotReady"),
        (now_of(member("m1", ready="Unknown"), m1=WELL), "FairleadMachineNotReady"),
        (now_of(member("m1", up=False), m1=WELL), "FairleadMachineSessionDown"),
        (now_of(member("m1", days=13), m1=WELL), "FairleadMachineCertificateEnds"),
    ],
)
def test_a_fault_fires_its_alert_alone(now: MachinesNow, alert: str):
    assert firing(exported(now)) == {alert}


@pytest.mark.req("P-29")
@pytest.mark.parametrize(
    ("now", "owners"),
    [
        # With BGP all machines announce.
        (
            now_of(
                addresses=planned(A, announcement="BGP"), m1=heard(owner(mac="")), m2=heard(owner(mac="")), m3=heard()
            ),
            ("BGP", "2"),
        ),
        # The owner is silent: the hub does not know whether it still serves.
        (now_of(m1=heard(owner(), silent_s=UNREACHABLE_S), m2=heard()), ("L2", "unknown")),
        # Its last word does not count once another machine has the address.
        (now_of(m1=heard(owner(), silent_s=UNREACHABLE_S), m2=heard(owner(mac="02::2"))), ("L2", "1")),
    ],
)
def test_owners_are_those_of_machines_that_are_heard(now: MachinesNow, owners: tuple[str, str]):
    text = exported(now)
    assert samples(text, "fairlead_machine_addresses") == {owners: 1.0}
    assert samples(text, "fairlead_machine_address_owners") == {}
    assert firing(text) == set()


@pytest.mark.req("P-29")
def test_series_of_single_addresses_are_few():
    addresses = planned(*(f"10.0.{n // 250}.{n % 250}" for n in range(5000)))
    text = exported(now_of(member("m1"), addresses=addresses, m1=heard()))
    assert samples(text, "fairlead_machine_addresses") == {("L2", "0"): 5000.0}
    assert len(samples(text, "fairlead_machine_address_owners")) == MOST_ADDRESSES


@pytest.mark.req("P-29")
def test_an_address_that_is_not_to_be_announced_is_not_counted():
    text = exported(now_of(member("m1"), addresses=planned(A, announcement="None"), m1=heard()))
    assert samples(text, "fairlead_machine_addresses") == {}


@pytest.mark.req("P-29")
def test_a_replica_that_does_not_lead_exports_no_values():
    assert "\nfairlead_machine" not in exported(None)


def state(address: str, *, announced: bool, trigger: str) -> AddressState:
    return AddressState(address=address, announced=announced, trigger=trigger)


@pytest.mark.req("P-29")
def test_moves_are_counted_by_machine_and_trigger():
    moves = AddressMoves()
    on, off = state(A, announced=True, trigger="OwnerSilent"), state(A, announced=False, trigger="NotServing")
    moves.count("m1", [], [on])
    moves.count("m1", [on], [on])
    moves.count("m1", [on], [off])
    moves.count("m1", [off], [off])
    moves.count("m1", [], [state(B, announced=True, trigger="Adopted")])
    moves.count("m2", [on], [])
    moves.count("m2", [], [state(B, announced=True, trigger="a word that no release has")])
    text = exported(now_of(member("m1"), m1=WELL), moves)
    assert samples(text, "fairlead_machine_takeovers_total") == {("OwnerSilent", "m1"): 1.0, ("Unknown", "m2"): 1.0}
    assert samples(text, "fairlead_machine_withdrawals_total") == {("NotServing", "m1"): 1.0, ("NotPlanned", "m2"): 1.0}
