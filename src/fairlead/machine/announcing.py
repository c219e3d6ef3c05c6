"""A machine that serves and announces: it follows plans, watches its Envoys, and reports.

    plan ──► announcers ◄── serving (checks) ◄── Envoys, kernel ◄── forwarding table
    report ◄── plan version, Envoys, addresses, sessions, links, problems

A machine that joined (``app``) gets its plans over HTTPS and has one Envoy behind a relay. A hub that announces
addresses itself calls its own control of machines, and has the Envoys of its data directory.
Never: withdraws an address because no plan arrives, or because this process ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import structlog
from msgspec.structs import replace

from fairlead import __version__
from fairlead.announce.announcer import Announcer
from fairlead.errors import FairleadError, Forbidden
from fairlead.machine.checks import (
    CONNECTIONS,
    TARGETS,
    Socket,
    listening,
    load_balancers_with,
    serving,
    sum_of,
    unhealthy_addresses,
)
from fairlead.machine.kernel import KernelPath
from fairlead.model.machine import DrainState, ForwardingTable, MachinePlan, MachineReport, ProxyState
from fairlead.providers.envoy.envoy_process import LocalEnvoy, admin_get, file_limit
from fairlead.providers.envoy.traffic import MachineTraffic
from fairlead.runtime.background import Supervisor
from fairlead.runtime.clock import SystemClock, wait_for
from fairlead.runtime.commands import Running

#: Of the checks, and of questions to Envoy's admin interface.
_CHECK_S, _ADMIN_S = 0.25, 1.0
#: Reading more sockets than that takes milliseconds.
_MANY_SOCKETS = 500
#: Answers that Envoy's admin interface may miss before Envoy counts as dead.
_MISSED = 4
_ANSWER_S = 3.0
_REPORT_S, _REPORT_PAUSE_S = 5.0, 1.0
#: An announcer that has run for this long counts as recovered.
_SOLVED_S = 5.0
_RETRY_S, _LAST_RETRY_S = 0.5, 5.0

log = structlog.get_logger(__name__)


class PlanSource(Protocol):
    """The hub of a machine."""

    async def plan(self, after: str) -> MachinePlan | None:
        """Return the plan once its version differs from ``after``; None when nothing has changed for a while."""
        ...

    async def forwarding(self, after: str) -> ForwardingTable | None:
        """Return what the kernel forwards, or what changed since version ``after``; None if nothing has for a while."""
        ...

    async def report(self, report: MachineReport) -> None:
        """Send the state of this machine."""
        ...


class ServingEnvoys(Protocol):
    """The Envoys of a machine, and the configuration that they have from their hub."""

    @property
    def envoys(self) -> Sequence[LocalEnvoy]:
        """Return the Envoys; each address is served by one of them."""
        ...

    @property
    def max_listeners(self) -> int:
        """Return how many listeners they can open."""
        ...

    def listeners(self) -> Collection[str]:
        """Return the names of the listeners that the Envoys have acknowledged."""
        ...

    def refused(self) -> Mapping[str, str]:
        """Return the listeners that an Envoy has rejected, each with its message."""
        ...

    def draining(self) -> tuple[DrainState, ...]:
        """Return the targets that drain for a limited time at Envoys that are configured by a hub elsewhere."""
        ...

    @property
    def synced(self) -> bool:
        """Return whether the Envoys are connected to a hub, and have acknowledged or rejected all resources."""
        ...


class AnnouncingMachine:
    """One machine: its Envoys, its kernel and its announcers, which follow the plans of ``hub``.

    ``plan`` is the one of the last run. ``changed`` is set when the hub is to get a report soon. ``traffic``: what its
    Envoys count, None where the hub reads that itself. ``authorities`` returns the fingerprint of those
    that it trusts. ``answered`` is called after each answer of the hub, with a plan if that is new; ``problem_changed``
    with each sentence about something, and with an empty one when it is solved.
    """

    def __init__(
        self,
        name: str,
        *,
        hub: PlanSource,
        proxies: ServingEnvoys,
        kernel: KernelPath,
        announcers: Mapping[str, Announcer],
        changed: asyncio.Event,
        plan: MachinePlan | None = None,
        traffic: MachineTraffic | None = None,
        authorities: Callable[[], str] = lambda: "",
        answered: Callable[[MachinePlan | None], None] = lambda _plan: None,
        problem_changed: Callable[[str, str], None] = lambda _about, _sentence: None,
    ) -> None:
        self.plan = plan
        self._name = name
        self._hub = hub
        self._proxies = proxies
        self._kernel = kernel
        self._announcers = announcers
        self._changed = changed
        self._traffic = traffic
        self._authorities = authorities
        self._answered = answered
        self._problem_changed = problem_changed
        self._clock = SystemClock()
        #: A hub has reported that this machine was removed.
        self._removed = False
        self._withdrawn = False
        self._proxy = ProxyState()
        #: Of each Envoy, by its directory: whether its admin interface answers, once it was asked.
        self._answers: dict[Path, bool] = {}
        self._connections_per_s = 0.0
        self._open_connections = 0
        #: The load balancers with a healthy target; None while that is unknown, or does not matter.
        self._healthy: frozenset[str] | None = None
        #: Those whose targets are all unhealthy in Envoy, by its last answer while an address is due back; None before.
        self._failing: frozenset[str] | None = None
        self._sockets: frozenset[Socket] = frozenset()
        self._sockets_s = float("-inf")
        self._applied: tuple[MachinePlan, Mapping[str, bool], Collection[str] | None] | None = None
        #: Problems, by their subject.
        self._problems: dict[str, str] = {}

    def follow(self, supervisor: Supervisor) -> None:
        """Start the announcers, and follow plans; the Envoys need not run yet."""
        for name, announcer in self._announcers.items():
            supervisor.spawn(name, self._announce(name, announcer), restart=True)
        supervisor.spawn("kernel", self._kernel.run, restart=True)
        supervisor.spawn("plan", self._follow_plan, restart=True)
        supervisor.spawn("forwarding", self._follow_forwarding, restart=True)

    def watch(self, supervisor: Supervisor) -> None:
        """Watch the Envoys, which must have been started, and report."""
        supervisor.spawn("envoy", self._ask_envoys, restart=True)
        supervisor.spawn("checks", self._check, restart=True)
        supervisor.spawn("report", self._report, restart=True)

    def note_upgrade(self, ended: str, problem: str) -> None:
        """Report the last finished upgrade, and why it failed."""
        self._proxy = replace(self._proxy, upgrade=ended, upgrade_problem=problem)
        self._changed.set()

    async def withdraw(self) -> None:
        """Withdraw all addresses; return when other machines have taken over, or after a moment."""
        self._withdrawn = True
        for announcer in self._announcers.values():
            await announcer.withdraw()

    # --- from the hub -----------------------------------------------------------------------------------------

    async def _follow_plan(self) -> None:
        pause_s = _RETRY_S
        while True:
            try:
                plan = await self._hub.plan(self.plan.version if self.plan is not None else "")
            except FairleadError as error:
                self._removed = self._removed or isinstance(error, Forbidden)
                self.problem("hub", error.sentence)
                await self._clock.sleep(pause_s)
                pause_s = min(_LAST_RETRY_S, pause_s * 2)
                continue
            pause_s, self._removed = _RETRY_S, False
            self.problem("hub", "")
            news = plan if plan != self.plan else None
            if news is not None:
                self.plan = news
                log.info("plan", version=news.version, addresses=len(news.addresses), drained=news.drained)
                await self._apply()
                self._changed.set()
            self._answered(news)

    async def _follow_forwarding(self) -> None:
        pause_s = _RETRY_S
        while True:
            try:
                change = await self._hub.forwarding(self._kernel.version)
            except FairleadError as error:
                # The plan comes from the same hubs, so that reports what is wrong.
                log.debug("no forwarding table", sentence=error.sentence)
                await self._clock.sleep(pause_s)
                pause_s = min(_LAST_RETRY_S, pause_s * 2)
                continue
            pause_s = _RETRY_S
            if change is not None:
                self._kernel.update(change)

    # --- on this machine --------------------------------------------------------------------------------------

    async def _ask_envoys(self) -> None:
        """Query the admin interfaces of the Envoys, and notice a replaced Envoy."""
        asked: Running | None = None
        missed: dict[Path, int] = {}
        counted, counted_s = 0, 0.0
        while True:
            answering: list[LocalEnvoy] = []
            for envoy in self._proxies.envoys:
                status, _ = await admin_get(envoy.admin_socket, "/ready", timeout_s=_ANSWER_S)
                missed[envoy.directory] = 0 if status else missed.get(envoy.directory, 0) + 1
                if status or missed[envoy.directory] >= _MISSED:
                    self._answers[envoy.directory] = bool(status)
                if status:
                    answering.append(envoy)
            if answering and answering[0].running != asked:
                asked = answering[0].running
                self._proxy = replace(self._proxy, version=await _version(answering[0]))
                counted_s = 0.0
            now_s = self._clock.monotonic()
            await self._ask_for_targets(answering)
            if answering and now_s - counted_s >= _REPORT_S:
                pages = [(await envoy.admin(CONNECTIONS))[1] for envoy in answering]
                total = sum(sum_of(page, "total") for page in pages)
                self._open_connections = sum(sum_of(page, "active") for page in pages)
                if counted_s:
                    self._connections_per_s = max(0.0, (total - counted) / (now_s - counted_s))
                counted, counted_s = total, now_s
            notify_systemd("WATCHDOG=1")
            await self._clock.sleep(_ADMIN_S)

    async def _ask_for_targets(self, answering: Sequence[LocalEnvoy]) -> None:
        """Ask for healthy targets where the plan or a due move needs them.

        Without an answer they are unknown, and an address that was not taken is still not taken.
        """
        healthy: frozenset[str] | None = None
        due_back = any(announcer.due_back() for announcer in self._announcers.values())
        failing = self._failing if due_back else None
        if due_back or any(planned.withdraw_when_unhealthy for planned in (self.plan.addresses if self.plan else ())):
            answers = [await envoy.admin(TARGETS) for envoy in answering]
            if answers and all(status == 200 for status, _ in answers):
                healthy = frozenset[str]().union(*(load_balancers_with(text, "healthy") for _, text in answers))
                present = frozenset[str]().union(*(load_balancers_with(text, "total") for _, text in answers))
                failing = present - healthy if due_back else None
        self._healthy, self._failing = healthy, failing

    async def _check(self) -> None:
        while True:
            await self._apply()
            await self._clock.sleep(_CHECK_S)

    def _alive(self) -> bool:
        """Return whether an Envoy serves; the sockets of a dead one are closed."""
        return any(
            envoy.running is not None and envoy.running.alive() and self._answers.get(envoy.directory, False)
            for envoy in self._proxies.envoys
        )

    def _is_known(self) -> bool:
        """Return whether each Envoy was queried or is not running."""
        return all(envoy.running is None or envoy.directory in self._answers for envoy in self._proxies.envoys)

    async def _apply(self) -> None:
        """Pass the plan and what this machine serves to the announcers, when one of the two has changed."""
        listeners = self._proxies.listeners()
        refused = tuple(f"{name}: {message}" for name, message in sorted(self._proxies.refused().items()))
        proxy = replace(
            self._proxy, alive=self._alive(), listeners=len(listeners), refused=refused, synced=self._proxies.synced
        )
        if proxy != self._proxy:
            self._proxy = proxy
            self._changed.set()
        plan = self.plan
        if plan is None or self._withdrawn:
            return
        # What is not known is left as it is. A machine that the hub has removed takes nothing over, either: the others
        # no longer know it.
        up: Mapping[str, bool] = {}
        if not self._removed and self._is_known():
            up = serving(
                plan, alive=proxy.alive, listeners=listeners, sockets=self._open_sockets(), healthy=self._healthy_here()
            )
        self._kernel.follow(plan)
        if not self._removed:
            up = _with_kernel(up, self._kernel.serving(plan))
        unhealthy = self._without_healthy(plan)
        if self._applied == (plan, up, unhealthy):
            return
        failed = False
        for name, announcer in self._announcers.items():
            try:
                await announcer.apply(plan, serving=up, unhealthy=unhealthy)
            except FairleadError as error:
                failed = True
                self.problem(name, error.sentence)
        if not failed:
            self._applied = plan, up, unhealthy
        self._changed.set()

    def _healthy_here(self) -> frozenset[str] | None:
        """Return the load balancers with a healthy target, here in Envoy or in the kernel; None while unknown."""
        return None if self._healthy is None else self._healthy | self._kernel.healthy()

    def _without_healthy(self, plan: MachinePlan) -> Collection[str] | None:
        """Return the addresses of the plan whose targets are all unhealthy here; None unless one is known due back."""
        if self._failing is None:
            return None
        failing = self._failing - self._kernel.healthy()
        return {
            planned.address
            for planned in plan.addresses
            if not failing.isdisjoint(planned.load_balancers) and failing.issuperset(planned.load_balancers)
        }

    def _open_sockets(self) -> frozenset[Socket]:
        """Return the sockets that the kernel listens at; long tables are read less often."""
        now_s = self._clock.monotonic()
        if len(self._sockets) < _MANY_SOCKETS or now_s - self._sockets_s >= _ADMIN_S:
            self._sockets, self._sockets_s = listening(), now_s
        return self._sockets

    def _announce(self, name: str, announcer: Announcer) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            solved = asyncio.get_running_loop().call_later(_SOLVED_S, self.problem, name, "")
            try:
                await announcer.run()
            except FairleadError as error:
                self.problem(name, error.sentence)
                raise
            finally:
                solved.cancel()

        return run

    # --- to the hub -------------------------------------------------------------------------------------------

    async def _report(self) -> None:
        while True:
            await wait_for(self._changed, self._clock, _REPORT_S)
            self._changed.clear()
            try:
                running = [envoy.running.pid for envoy in self._proxies.envoys if envoy.running is not None]
                files = sum(await asyncio.to_thread(_open_files, running))
                processes = await self._count_traffic()
                await self._hub.report(self._state_of_machine(files))
                if self._traffic is not None:
                    self._traffic.taken(processes)
            except FairleadError as error:
                log.debug("not reported", sentence=error.sentence)
            await self._clock.sleep(_REPORT_PAUSE_S)

    async def _count_traffic(self) -> frozenset[str]:
        """Read the traffic counters of the Envoys; return the names of the running processes."""
        envoys = {f"{run.pid}.{run.start_time}": envoy for envoy in self._proxies.envoys if (run := envoy.running)}
        present = frozenset(name for name, envoy in envoys.items() if envoy.running and envoy.running.alive())
        if self._traffic is not None:
            for name in present:
                await self._traffic.read(name, envoys[name].admin)
            self._traffic.ended(present)
        return present

    def _state_of_machine(self, files: int) -> MachineReport:
        announcers: Sequence[Announcer] = tuple(self._announcers.values())
        return MachineReport(
            machine=self._name,
            plan=self.plan.version if self.plan is not None else "",
            drained=self.plan is not None and self.plan.drained,
            sent=time.time(),
            release=__version__,
            proxy=self._proxy,
            links=tuple(link for announcer in announcers for link in announcer.links()),
            addresses=tuple(address for announcer in announcers for address in announcer.addresses()),
            sessions=tuple(session for announcer in announcers for session in announcer.sessions()),
            files=files,
            max_files=file_limit() * len(self._proxies.envoys),
            max_listeners=self._proxies.max_listeners,
            connections_per_s=round(self._connections_per_s, 1),
            open_connections=self._open_connections,
            unhealthy=unhealthy_addresses(self.plan, self._healthy_here()) if self.plan is not None else (),
            forwarding=self._kernel.state,
            draining=self._proxies.draining(),
            traffic=self._traffic.report() if self._traffic is not None else (),
            problems=tuple(filter(None, (*self._problems.values(), self._kernel.state.problem))),
        )

    def problem(self, about: str, sentence: str) -> None:
        """Log and keep a problem once; an empty sentence clears it."""
        if self._problems.get(about, "") == sentence:
            return
        if sentence:
            self._problems[about] = sentence
            log.warning("problem", about=about, sentence=sentence)
        else:
            del self._problems[about]
            log.info("problem solved", about=about)
        self._problem_changed(about, sentence)
        self._changed.set()


def _with_kernel(envoy: Mapping[str, bool], kernel: Mapping[str, bool | None]) -> Mapping[str, bool]:
    """Return whether each address may be announced: one of both serves it. What is unknown of one is left as it is."""
    up = dict(envoy)
    for address, serves in kernel.items():
        if serves or not envoy.get(address):
            up.pop(address, None)
            if serves is not None:
                up[address] = serves
    return up


async def _version(envoy: LocalEnvoy) -> str:
    _, text = await envoy.admin("/server_info")
    # "<commit>/1.36.2/Clean/RELEASE/BoringSSL"
    parts = text.partition('"version": "')[2].partition('"')[0].split("/")
    return parts[1] if len(parts) > 1 else ""


def _open_files(processes: Sequence[int]) -> list[int]:
    """Return how many files each process has open; 0 for a process that has ended."""
    counts: list[int] = []
    for pid in processes:
        try:
            counts.append(sum(1 for _ in Path("/proc", str(pid), "fd").iterdir()))
        except OSError:
            counts.append(0)
    return counts


def notify_systemd(*states: str) -> None:
    """Notify systemd, if it started this process with ``Type=notify``; see sd_notify(3)."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.connect("\0" + place[1:] if place.startswith("@") else place)
            sender.sendall("\n".join(states).encode())
    except OSError as error:
        log.debug("systemd does not listen", error=str(error))
