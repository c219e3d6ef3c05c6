"""What placement knows of machines and load balancers, and the status of a group."""

from __future__ import annotations

import pytest

from fairlead.api.meta import ObjectMeta, condition_of
from fairlead.api.names import ANNOTATION_MACHINES
from fairlead.api.proxymachine import ProxyGroup, ProxyMachine, ProxyMachineSpec
from fairlead.hub.machines.placement import MachineFacts, group_status, joined_machine, pinned_machines
from fairlead.model.machine import MachineReport
from fairlead.testing.builders import tcp

NOW = "2026-11-26T08:00:00Z"


@pytest.mark.req("P-5")
@pytest.mark.parametrize(
    ("facts", "connected", "silent"),
    [
        (None, False, False),
        (MachineFacts(silent=True), False, True),
        (MachineFacts(silent=True), True, False),
        (MachineFacts(silent=False), False, False),
    ],
)
def test_a_machine_is_silent_when_nothing_hears_it(facts: MachineFacts | None, *, connected: bool, silent: bool):
    machine = ProxyMachine(ObjectMeta(name="a", labels={"rack": "1"}), ProxyMachineSpec(group="edge", drained=True))
    joined = joined_machine(machine, facts, connected=connected)
    assert (joined.machine.name, joined.machine.group, joined.machine.labels) == ("a", "edge", {"rack": "1"})
    assert (joined.drained, joined.silent) == (True, silent)


@pytest.mark.req("P-10")
def test_the_room_of_a_machine_is_what_it_reports():
    facts = MachineFacts(MachineReport(machine="a", max_listeners=100))
    assert joined_machine(ProxyMachine(ObjectMeta(name="a")), facts, connected=True).room == 100


@pytest.mark.req("P-8")
@pytest.mark.parametrize(("text", "names"), [("", ()), ("a", ("a",)), (" b, a ,,b", ("b", "a"))])
def test_pins_are_names_after_commas(text: str, names: tuple[str, ...]):
    assert pinned_machines(tcp(annotations={ANNOTATION_MACHINES: text})) == names


@pytest.mark.req("P-7")
@pytest.mark.parametrize(("members", "status", "reason"), [(2, "True", "Ready"), (0, "False", "NoMachines")])
def test_a_group_without_machines_is_not_ready(members: int, status: str, reason: str):
    group = ProxyGroup(ObjectMeta(name="edge", generation=3))
    made = group_status(group, members, 7, now=NOW)
    condition = condition_of(made.conditions, "Ready")
    assert condition is not None
    assert (condition.status, condition.reason, condition.observed_generation) == (status, reason, 3)
    assert (made.machines, made.load_balancers) == (members, 7)
    assert ("--group edge" in condition.message) is (members == 0)
