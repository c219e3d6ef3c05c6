"""Upgrades of Envoy: one machine after another, each out of service while it changes, up to the first that fails.

    spec.upgrade ──► Waiting ──► Draining ──► Restarting ──► Returning ──► Done
                                                  └──────────────┴───────► Failed: no other machine begins

All state is in the status of machines, so another leader continues where the last one was. ``next_upgrades`` decides
and is pure: in: machines, what they report, how long each has been in its phase. Out: the phases now. ``Upgrades``
writes what differs, one write at a time: a phase is recorded before plans and placement follow it.
Never: two machines out of service at once, or a machine alone with an address, unless that was asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from fairlead.api.proxymachine import PROXY_MACHINES, MachineUpgrade, ProxyMachine, UpgradePhase, UpgradeStatus
from fairlead.api.times import wire_time
from fairlead.errors import FairleadError, NotFound
from fairlead.hub.machines.plans import only_announced_by
from fairlead.hub.machines.states import FEW_CONNECTIONS, ready_condition
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.writes import apply_status
from fairlead.model.in_words import listed
from fairlead.model.machine import MachineReport
from fairlead.runtime.clock import Clock, wait_for

#: How long a machine may take to restart its Envoy and to report that, and then to be ready, in seconds.
RESTART_S, READY_S = 240.0, 120.0
#: How long a machine must be ready before the next one begins.
SETTLE_S = 5.0
_LOOK_S = 1.0
#: Owns ``status.upgrade`` of ProxyMachines alone.
_MANAGER = "fairlead-hub-machine-upgrade"
_LONGEST = 1024
_UNDER_WAY = frozenset({"Draining", "Restarting", "Returning"})

log = structlog.get_logger(__name__)


class UpgradeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the hub knows besides the objects.

    ``reports``: those of machines that it hears; ``ages``: seconds in the present phase; ``moving``: load balancers are
    moving from one machine to another.
    """

    reports: Mapping[str, MachineReport]
    ages: Mapping[str, float]
    moving: bool = False


def next_upgrades(machines: Sequence[ProxyMachine], facts: UpgradeFacts, *, now: str) -> dict[str, UpgradeStatus]:
    """Return each machine's next upgrade state, at most one step ahead; at most one machine upgrades at a time."""
    members = sorted((each for each in machines if not each.deleting), key=lambda machine: machine.metadata.name)
    after: dict[str, UpgradeStatus] = {}
    for member in members:
        state = member.status.upgrade
        if state.phase in _UNDER_WAY:
            phase, message = _next_phase(member, facts)
            state = _in_phase(state, phase, message, now) if phase else UpgradeStatus()
        elif member.spec.upgrade is None and state.phase == "Waiting":
            state = UpgradeStatus()
        after[member.metadata.name] = state
    busy = next((name for name, state in after.items() if state.phase in _UNDER_WAY), "")
    for member in members:
        name, wanted, state = member.metadata.name, member.spec.upgrade, after[member.metadata.name]
        if wanted is None or state.phase in _UNDER_WAY or member.is_of_hub:
            continue
        if state.requested == wanted.requested and state.phase in ("Done", "Failed"):
            continue
        why_not = _why_not(member, wanted, members, after, facts, busy=busy)
        began = UpgradeStatus(requested=wanted.requested)
        if state.requested == wanted.requested:
            began = state
        after[name] = _in_phase(began, "Waiting" if why_not else "Draining", why_not, now)
        busy = busy or ("" if why_not else name)
    return after


def _in_phase(state: UpgradeStatus, phase: UpgradePhase, message: str, now: str) -> UpgradeStatus:
    since = state.since if state.phase == phase and state.since else now
    return UpgradeStatus(requested=state.requested, phase=phase, since=since, message=message[:_LONGEST])


def _next_phase(machine: ProxyMachine, facts: UpgradeFacts) -> tuple[UpgradePhase, str]:
    name, state, wanted = machine.metadata.name, machine.status.upgrade, machine.spec.upgrade
    report, age_s = facts.reports.get(name), facts.ages.get(name, 0.0)
    if wanted is None or wanted.requested != state.requested:
        return "", ""  # taken back, or replaced by another one: the machine is in service again with what it has
    if state.phase == "Draining":
        if report is None:
            return "Draining", "the machine does not report"
        announced = [state.address for state in report.addresses if state.announced]
        if announced or not report.drained:
            return "Draining", f"still announces {listed(announced, 3)}" if announced else ""
        if age_s >= wanted.drain_seconds:
            return "Restarting", ""
        if report.connections_per_s >= FEW_CONNECTIONS or report.open_connections:
            return "Draining", "connections are still open"
        return "Restarting", ""
    if state.phase == "Restarting":
        if report is not None and report.proxy.upgrade == state.requested:
            problem = report.proxy.upgrade_problem
            return ("Failed", problem) if problem else ("Returning", "")
        if age_s >= RESTART_S:
            return "Failed", f"machine {name} has not reported that its Envoy was restarted; see its journal"
        return "Restarting", ""
    why_not = _why_not_ready(machine, report)
    if not why_not and not facts.moving and age_s >= SETTLE_S:
        return "Done", ""
    if why_not and age_s >= READY_S:
        return "Failed", f"machine {name} runs its new Envoy and is not ready: {why_not}"
    return "Returning", why_not


def _why_not(
    machine: ProxyMachine,
    wanted: MachineUpgrade,
    machines: Sequence[ProxyMachine],
    states: Mapping[str, UpgradeStatus],
    facts: UpgradeFacts,
    *,
    busy: str,
) -> str:
    """Return the reason why a machine may not begin, empty if it may. ``busy`` is the machine that is upgrading."""
    name = machine.metadata.name
    together = [each for each in machines if states[each.metadata.name].requested == wanted.requested]
    for other in together:
        if states[other.metadata.name].phase == "Failed":
            return f"the upgrade stopped at machine {other.metadata.name}"
    if busy:
        return f"waits for machine {busy}"
    for other in together:
        why = _why_not_ready(other, facts.reports.get(other.metadata.name))
        if states[other.metadata.name].phase == "Done" and why:
            return f"machine {other.metadata.name} has been upgraded and is not ready: {why}"
    if name not in facts.reports:
        return "the machine does not report"
    if facts.moving:
        return "waits until load balancers have moved"
    alone = only_announced_by(machine, machines)
    if alone and not wanted.force:
        return f"no other machine can announce {listed(alone, 3)}"
    return ""


def _why_not_ready(machine: ProxyMachine, report: MachineReport | None) -> str:
    if report is None:
        return "the machine does not report"
    if report.drained and not machine.drained:
        return "the machine does not know yet that it is in service again"
    ready = ready_condition(machine.metadata.name, report)
    return "" if ready.status else ready.message


class Upgrades:
    """The upgrades of the machines of one hub.

    ``reports`` are those of machines that it hears; ``written`` is called with each new object and its old version.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        machines: Callable[[], Sequence[ProxyMachine]],
        written: Callable[[ProxyMachine, ProxyMachine], object],
        reports: Callable[[], Mapping[str, MachineReport]],
        moving: Callable[[], bool],
        leading: Callable[[], bool],
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._machines = machines
        self._written = written
        self._reports = reports
        self._moving = moving
        self._leading = leading
        self._events = events
        self._clock = clock
        self._dirty = asyncio.Event()
        #: The phase of each machine, and since when this process knows it.
        self._since: dict[str, tuple[UpgradePhase, float]] = {}

    def changed(self) -> None:
        """Decide again."""
        self._dirty.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._dirty.clear()
            if self._leading():
                await self._step(self._machines())
            await wait_for(self._dirty, self._clock, _LOOK_S)

    async def _step(self, machines: Sequence[ProxyMachine]) -> None:
        if not any(machine.spec.upgrade or machine.status.upgrade.phase for machine in machines):
            return
        now_s = self._clock.monotonic()
        before, self._since = self._since, {}
        for machine in machines:
            name, phase = machine.metadata.name, machine.status.upgrade.phase
            known = before.get(name)
            self._since[name] = known if known is not None and known[0] == phase else (phase, now_s)
        facts = UpgradeFacts(
            reports=self._reports(),
            ages={name: now_s - since_s for name, (_, since_s) in self._since.items()},
            moving=self._moving(),
        )
        after = next_upgrades(machines, facts, now=wire_time(self._clock.now()))
        for machine in machines:
            state = after.get(machine.metadata.name, machine.status.upgrade)
            if state != machine.status.upgrade:
                await self._write(machine, state)

    async def _write(self, machine: ProxyMachine, state: UpgradeStatus) -> None:
        body = {"upgrade": msgspec.to_builtins(state)}
        try:
            written = await apply_status(self._cluster, PROXY_MACHINES, machine, body, manager=_MANAGER)
        except NotFound:
            return
        except FairleadError as error:
            log.warning("upgrade not recorded", machine=machine.metadata.name, sentence=error.sentence)
            return
        self._written(written, machine)
        if state.phase != machine.status.upgrade.phase:
            log.info("upgrade", machine=machine.metadata.name, phase=state.phase, message=state.message)
            if state.phase in ("Done", "Failed"):
                self._events.emit_about(
                    PROXY_MACHINES,
                    machine,
                    warning=state.phase == "Failed",
                    reason=f"Upgrade{state.phase}",
                    message=state.message or "The machine runs its new Envoy",
                )
