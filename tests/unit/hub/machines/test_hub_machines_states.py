"""The status of a machine: what its report and its silence say, and that silence moves nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.api.meta import ObjectMeta, condition_of
from fairlead.api.proxymachine import MachineCertificate, ProxyMachine, ProxyMachineSpec, ProxyMachineStatus
from fairlead.hub.machines.states import UNREACHABLE_S, Heard, machine_status
from fairlead.model.machine import AddressState, LinkState, MachineReport, ProxyState, SessionState

NOW = datetime(2030, 1, 1, tzinfo=UTC)
UP = ProxyState(alive=True, version="1.38.0", listeners=2, synced=True)
CERTIFICATE = MachineCertificate(serial="1")


def status(
    *,
    silent_s: float = 0.0,
    skew_s: float = 0.0,
    copies: bool = False,
    drained: bool = False,
    knows: bool = True,
    before: ProxyMachineStatus | None = None,
    **report: Any,
) -> ProxyMachineStatus:
    old = before or ProxyMachineStatus(certificate=CERTIFICATE)
    machine = ProxyMachine(ObjectMeta(name="m1", generation=3), ProxyMachineSpec(drained=drained), old)
    report = {"proxy": UP, "drained": drained and knows, **report}
    sent = MachineReport(machine="m1", **report) if report["proxy"] is not None else None
    return machine_status(machine, Heard(report=sent, silent_s=silent_s, skew_s=skew_s, copies=copies), now=NOW)


def said(of: ProxyMachineStatus, kind: str) -> tuple[str, str]:
    condition = condition_of(of.conditions, kind)
    return (condition.status, condition.reason) if condition is not None else ("", "")


def message(of: ProxyMachineStatus, kind: str) -> str:
    condition = condition_of(of.conditions, kind)
    return condition.message if condition is not None else ""


@pytest.mark.req("P-5")
def test_a_machine_that_serves_is_ready_and_on_standby():
    now = status(links=(LinkState(name="eth0", mac="02:00:00:00:00:01", addresses=("192.0.2.1/24",)),))
    assert said(now, "Ready") == ("True", "Ready")
    assert said(now, "Announcing") == ("False", "NothingToAnnounce")
    assert said(status(addresses=(AddressState(address="192.0.2.9", announced=False),)), "Announcing") == (
        "False",
        "Standby",
    )
    assert (now.envoy, now.links[0].addresses, now.certificate) == ("1.38.0", ("192.0.2.1/24",), CERTIFICATE)
    assert now.observed_generation == 3


@pytest.mark.req("P-5")
@pytest.mark.parametrize(
    ("report", "reason"),
    [
        ({"proxy": ProxyState()}, "ProxyDown"),
        ({"proxy": ProxyState(alive=True, refused=("192.0.2.9:80: in use",), synced=True)}, "RejectedByProxy"),
        ({"proxy": ProxyState(alive=True)}, "Pending"),
        ({"problems": ("No NET_RAW: run it as root.",)}, "ReportsProblem"),
        ({"copies": True}, "DuplicateMachine"),
    ],
)
def test_what_keeps_a_machine_from_serving_is_a_reason(report, reason: str):
    assert said(status(**report), "Ready") == ("False", reason)


@pytest.mark.req("P-5")
def test_a_silent_machine_is_unreachable_and_keeps_everything_else():
    before = status(addresses=(AddressState(address="192.0.2.9", announced=True),))
    now = status(proxy=None, silent_s=UNREACHABLE_S, before=before)
    assert said(now, "Ready") == said(now, "Announcing") == ("Unknown", "Unreachable")
    assert (now.addresses, now.announced, now.links) == (before.addresses, 1, before.links)


def test_a_hub_that_has_heard_nothing_yet_changes_nothing():
    before = status(addresses=(AddressState(address="192.0.2.9", announced=True),))
    assert status(proxy=None, silent_s=1.0, before=before) is before


@pytest.mark.req("P-13")
def test_contested_names_both_mac_addresses():
    state = AddressState(address="192.0.2.9", announced=True, mac="02:00:00:00:00:01", other_mac="02:00:00:00:00:02")
    now = status(addresses=(state,))
    assert said(now, "Announcing") == ("False", "Contested")
    assert "02:00:00:00:00:01" in message(now, "Announcing")
    assert "02:00:00:00:00:02" in message(now, "Announcing")


def test_the_first_problem_is_the_message_and_the_others_are_counted():
    bad = [AddressState(address=f"192.0.2.{n}", announced=False, problem=f"problem {n}") for n in range(3)]
    good = AddressState(address="192.0.2.9", announced=True, since=1.9e9, cause="m2 is silent")
    session = SessionState(peer="tor", state="Active", problem="no answer from 192.0.2.254")
    now = status(addresses=(good, *bad), sessions=(session,))
    assert said(now, "Announcing") == ("False", "NotAnnounced")
    assert message(now, "Announcing").startswith("problem 0")
    assert "3 more" in message(now, "Announcing")
    assert [state.problem for state in now.addresses] == ["problem 0", "problem 1", "problem 2", ""]


@pytest.mark.req("P-27")
def test_the_last_failover_is_the_newest_and_is_kept():
    states = [
        AddressState(address=f"192.0.2.{n}", announced=True, since=1.9e9 + n, cause=f"cause {n}") for n in (1, 3, 2)
    ]
    now = status(addresses=tuple(states))
    assert now.last_failover is not None
    assert (now.last_failover.address, now.last_failover.cause) == ("192.0.2.3", "cause 3")
    assert said(now, "Announcing") == ("True", "Announcing")
    assert status(before=now).last_failover == now.last_failover


@pytest.mark.req("P-27")
def test_an_address_keeps_its_last_failover_while_the_machine_is_started_again():
    def sent(trigger: str, cause: str, since: float) -> AddressState:
        return AddressState(address="192.0.2.9", announced=True, since=since, cause=cause, trigger=trigger)

    taken = status(addresses=(sent("OwnerSilent", "m2 is silent", 1.9e9),))
    (state,) = taken.addresses
    assert (state.last_failover, state.failover_cause) == (state.since, "m2 is silent")
    (state,) = status(before=taken, addresses=(sent("Adopted", "adopted after a restart", 1.91e9),)).addresses
    assert state == taken.addresses[0]
    again = status(before=taken, addresses=(sent("Vacant", "no other machine owns the address", 1.92e9),))
    (state,) = again.addresses
    assert (state.cause, state.failover_cause) == ("no other machine owns the address", "m2 is silent")
    assert again.last_failover == taken.last_failover


@pytest.mark.req("P-27")
@pytest.mark.parametrize("trigger", ["Vacant", "Adopted", "SessionUp"])
def test_a_first_announcement_is_not_a_failover(trigger: str):
    state = AddressState(address="192.0.2.9", announced=True, since=1.9e9, cause="cause", trigger=trigger)
    now = status(addresses=(state,))
    assert (now.last_failover, now.addresses[0].last_failover) == (None, "")


@pytest.mark.req("P-6")
def test_a_drained_machine_says_so_once_it_announces_nothing():
    announced = AddressState(address="192.0.2.9", announced=True)
    assert said(status(drained=True, addresses=(announced,)), "Announcing") == ("True", "Announcing")
    now = status(drained=True, connections_per_s=0.5)
    assert said(now, "Announcing") == ("False", "Drained")
    assert "undrain m1" in message(now, "Announcing")
    assert now.new_connections == "None"
    assert status(drained=True, connections_per_s=2.0).new_connections == "Some"
    assert status(connections_per_s=2.0).new_connections == ""
    # Without connections of its own it may not have the plan yet.
    assert status(drained=True, knows=False).new_connections == ""


@pytest.mark.parametrize(("skew_s", "text"), [(3600.0, "1 h ahead"), (-120.0, "2 min behind"), (12.3, "10 s ahead")])
def test_a_clock_that_is_off_is_a_condition_of_its_own(skew_s: float, text: str):
    now = status(skew_s=skew_s)
    assert said(now, "ClockSkewed") == ("True", "ClockSkew")
    assert text in message(now, "ClockSkewed")
    assert said(now, "Ready") == ("True", "Ready")
    assert said(status(skew_s=1.0), "ClockSkewed") == ("", "")
