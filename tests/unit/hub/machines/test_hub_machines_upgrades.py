"""Upgrades of Envoy: one machine after another, up to the first that fails, whatever hub goes on with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.proxymachine import (
    AddressStatus,
    MachineLink,
    MachineUpgrade,
    ProxyMachine,
    ProxyMachineSpec,
    ProxyMachineStatus,
    UpgradeStatus,
)
from fairlead.hub.machines.plans import upgrade_now
from fairlead.hub.machines.upgrades import READY_S, RESTART_S, SETTLE_S, UpgradeFacts, next_upgrades
from fairlead.model.machine import AddressState, MachineReport, ProxyState

VIP = "192.0.2.100"
NAMES: tuple[str, ...] = ("m1", "m2", "m3")
SERVES = ProxyState(alive=True, version="1.0.0", listeners=1, synced=True)
READY = [WireCondition(type="Ready", status="True", reason="Ready")]


class Site:
    """Machines that follow what the hub decides, on a clock of steps."""

    def __init__(self, *names: str, link: str = "192.0.2.1/24", **wanted: Any) -> None:
        self.at = 0.0
        self.moving = False
        self.silent: set[str] = set()
        self.broken: dict[str, str] = {}
        self.open = dict.fromkeys(names, 0)
        self.since = dict.fromkeys(names, 0.0)
        self.machines = {
            name: ProxyMachine(
                ObjectMeta(name=name, uid=name),
                ProxyMachineSpec(upgrade=MachineUpgrade(requested="first", **wanted)),
                ProxyMachineStatus(
                    links=(MachineLink("eth0", addresses=(link,)),),
                    conditions=READY,
                    addresses=(AddressStatus(VIP, announced=name == names[0]),),
                ),
            )
            for name in names
        }
        self.reports = {name: MachineReport(machine=name, proxy=SERVES) for name in names}
        self.story: list[tuple[str, str]] = []

    def state(self, name: str) -> UpgradeStatus:
        return self.machines[name].status.upgrade

    def decide(self) -> None:
        ages = {name: self.at - since for name, since in self.since.items()}
        heard = {name: report for name, report in self.reports.items() if name not in self.silent}
        facts = UpgradeFacts(reports=heard, ages=ages, moving=self.moving)
        after = next_upgrades(list(self.machines.values()), facts, now=f"{self.at:g}")
        for name, state in after.items():
            machine = self.machines[name]
            if state.phase != machine.status.upgrade.phase:
                self.since[name] = self.at
                self.story.append((name, state.phase))
            status = msgspec.structs.replace(machine.status, upgrade=state)
            self.machines[name] = msgspec.structs.replace(machine, status=status)
        assert sum(machine.drained for machine in self.machines.values()) <= 1, self.story

    def act(self) -> None:
        """Do what the machines do: they follow their plan, and announce where the first one in service is."""
        first = next((name for name, machine in self.machines.items() if not machine.drained), "")
        for name, machine in self.machines.items():
            report = self.reports[name]
            if (upgrade := upgrade_now(machine)) is not None and report.proxy.upgrade != upgrade.requested:
                problem = self.broken.get(name, "")
                proxy = msgspec.structs.replace(report.proxy, upgrade=upgrade.requested, upgrade_problem=problem)
                report = msgspec.structs.replace(report, proxy=proxy)
            here = AddressState(address=VIP, announced=name == first)
            self.reports[name] = msgspec.structs.replace(
                report, drained=machine.drained, addresses=(here,), open_connections=self.open[name]
            )
            status = msgspec.structs.replace(machine.status, addresses=(AddressStatus(VIP, announced=name == first),))
            self.machines[name] = msgspec.structs.replace(machine, status=status)

    def run(self, until: Callable[[], bool] = lambda: False, *, steps: int = 100) -> None:
        for _ in range(steps):
            self.at += 1.0
            self.decide()
            self.act()
            if until():
                return

    def phases(self) -> dict[str, str]:
        return {name: machine.status.upgrade.phase for name, machine in self.machines.items()}

    def request(self, requested: str, *names: str) -> None:
        for name in names:
            machine = self.machines[name]
            upgrade = MachineUpgrade(requested=requested) if requested else None
            spec = msgspec.structs.replace(machine.spec, upgrade=upgrade)
            self.machines[name] = msgspec.structs.replace(machine, spec=spec)


@pytest.fixture
def site() -> Site:
    return Site(*NAMES)


@pytest.mark.req("P-3")
def test_machines_are_upgraded_one_after_another(site: Site):
    site.run()
    assert set(site.phases().values()) == {"Done"}
    steps = [name for name, phase in site.story if phase not in ("Waiting", "Done")]
    assert steps == [name for name in NAMES for _ in range(3)]


@pytest.mark.req("P-3")
def test_the_first_machine_that_fails_ends_the_upgrade(site: Site):
    site.broken["m2"] = "it ended"
    site.run()
    assert site.phases() == {"m1": "Done", "m2": "Failed", "m3": "Waiting"}
    assert site.state("m2").message == "it ended"
    assert "m2" in site.state("m3").message
    assert not any(machine.drained for machine in site.machines.values())
    # Asked again, it goes on where it stopped.
    site.broken.clear()
    site.request("second", "m2", "m3")
    site.run()
    assert set(site.phases().values()) == {"Done"}
    assert site.state("m1").requested == "first"


@pytest.mark.req("P-3")
def test_a_machine_that_is_not_ready_after_its_upgrade_ends_it(site: Site):
    site.run(lambda: site.phases()["m1"] == "Returning")
    site.reports["m1"] = msgspec.structs.replace(
        site.reports["m1"], proxy=msgspec.structs.replace(site.reports["m1"].proxy, refused=("web: in use",))
    )
    site.run(steps=int(READY_S) + 2)
    assert site.phases() == {"m1": "Failed", "m2": "Waiting", "m3": "Waiting"}
    assert "in use" in site.state("m1").message


@pytest.mark.req("P-3")
def test_no_machine_begins_while_an_upgraded_one_is_no_longer_ready(site: Site):
    site.run(lambda: site.phases()["m1"] == "Done")
    site.silent.add("m1")
    # The second one has begun already, in the step in which the first one was done.
    site.run(lambda: site.phases()["m2"] == "Done")
    site.run(steps=20)
    assert site.phases()["m3"] == "Waiting"
    assert "m1" in site.state("m3").message
    site.silent.clear()
    site.run()
    assert site.phases()["m3"] == "Done"


@pytest.mark.req("P-3")
@pytest.mark.req("P-6")
def test_open_connections_have_the_time_of_the_drain():
    site = Site(*NAMES, drain_seconds=30)
    site.open["m1"] = 3
    site.run(lambda: site.phases()["m1"] == "Restarting")
    began, restarted = (index for index, step in enumerate(site.story) if step[0] == "m1" and step[1] != "Waiting")
    assert (began, restarted) == (0, len(site.story) - 1)
    assert site.at == 31.0
    site = Site(*NAMES, drain_seconds=30)
    site.run(lambda: site.phases()["m1"] == "Restarting")
    assert site.at < 5.0


@pytest.mark.req("P-3")
def test_the_only_machine_of_an_address_waits_unless_forced():
    site = Site("m1")
    site.run()
    assert site.phases() == {"m1": "Waiting"}
    assert VIP in site.state("m1").message
    site = Site("m1", force=True)
    site.run()
    assert site.phases() == {"m1": "Done"}


@pytest.mark.req("P-3")
def test_a_silent_machine_and_moving_load_balancers_are_waited_for(site: Site):
    site.moving = True
    site.run(steps=10)
    assert site.phases()["m1"] == "Waiting"
    site.moving, site.silent = False, {"m1"}
    site.run(steps=10)
    # Another one may be upgraded meanwhile.
    assert (site.phases()["m1"], site.phases()["m2"]) == ("Waiting", "Done")
    site.silent.clear()
    site.run()
    assert set(site.phases().values()) == {"Done"}


@pytest.mark.req("P-3")
def test_a_machine_that_never_reports_its_restart_has_failed(site: Site):
    site.run(lambda: site.phases()["m1"] == "Restarting")
    site.silent.add("m1")
    site.run(steps=int(RESTART_S) + 1)
    assert site.phases() == {"m1": "Failed", "m2": "Waiting", "m3": "Waiting"}


@pytest.mark.req("P-3")
@pytest.mark.parametrize("phase", ["Draining", "Restarting", "Returning"])
def test_another_leader_goes_on_where_the_last_one_was(site: Site, phase: str):
    site.run(lambda: site.phases()["m2"] == phase)
    site.at += 3600.0
    site.since = dict.fromkeys(NAMES, site.at)  # what only the last one knew
    site.silent = set(NAMES)
    site.run(steps=5)
    site.silent = set()
    site.run()
    assert set(site.phases().values()) == {"Done"}
    assert [name for name, step in site.story if step == "Restarting"] == list(NAMES)


def test_an_upgrade_that_is_taken_back_ends_with_the_machine_in_service(site: Site):
    site.run(lambda: site.phases()["m1"] == "Draining")
    site.request("", *NAMES)
    site.run()
    assert site.phases() == dict.fromkeys(NAMES, "")
    site.request("second", *NAMES)
    site.run()
    assert {site.state(name).requested for name in NAMES} == {"second"}
    assert set(site.phases().values()) == {"Done"}


def test_a_machine_is_ready_for_a_while_before_the_next_one_begins(site: Site):
    site.run(lambda: site.phases()["m1"] == "Returning")
    returned = site.at
    site.run(lambda: site.phases()["m1"] == "Done")
    assert site.at - returned >= SETTLE_S
