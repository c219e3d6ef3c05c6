"""``fairlead proxy join`` and ``fairlead proxy run``: everything on a proxy machine, supervised.

    hub ──plan──► state directory ──► announcers ◄── serving (checks)      Envoy ◄── relay ◄── hub or snapshot
    hub ◄──report── plan version, Envoy, addresses, sessions, links, problems
    hub ──certificate──► renewed at two thirds of its life; Envoy's streams move to the new one

The last plan and the snapshot are applied before any hub is asked: a machine that boots while the hub is dead serves
and announces what it did before. Envoy outlives this process, and so do its addresses: a restart adopts both.
Never: withdraws an address because a hub does not answer, or because this process ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
import structlog

from fairlead import __version__
from fairlead.announce.announcer import Announcer
from fairlead.announce.bird import Bird
from fairlead.announce.external import DEFAULT_TABLE, external_speaker
from fairlead.announce.frr import Frr
from fairlead.announce.layer2 import Layer2
from fairlead.announce.routes import RouteAnnouncer
from fairlead.errors import BadConfiguration, FairleadError, Forbidden
from fairlead.machine import hub_client
from fairlead.machine.checks import (
    CONNECTIONS,
    HEALTHY_TARGETS,
    Socket,
    allow_nonlocal_bind,
    check_machine,
    healthy_load_balancers,
    listening,
    serving,
    total_connections,
    unhealthy_addresses,
)
from fairlead.machine.hub_client import HubClient
from fairlead.machine.relay import HubLink, Relay
from fairlead.machine.snapshot import XdsSnapshot
from fairlead.machine.state import NewKey, StateDirectory
from fairlead.model.in_words import host_port
from fairlead.model.machine import EnrolAnswer, MachinePlan, MachineReport, ProxyState
from fairlead.providers.envoy.bootstrap import ENVOY_FLAGS, Bootstrap, bootstrap_json
from fairlead.providers.envoy.envoy_process import LocalEnvoy, admin_get, check_socket_path, file_limit
from fairlead.providers.envoy.resources import ResourceType
from fairlead.providers.envoy.schema import packaged_schema
from fairlead.runtime.background import Supervisor
from fairlead.runtime.clock import SystemClock, wait_for
from fairlead.runtime.detached import Running

_STOP_S = 5.0
#: Of the checks, and of questions to Envoy's admin interface.
_CHECK_S, _ADMIN_S = 0.25, 1.0
#: Reading more sockets than that takes milliseconds.
_MANY_SOCKETS = 500
#: Answers that Envoy's admin interface may miss before Envoy counts as dead.
_MISSED = 4
_ANSWER_S = 3.0
_REPORT_S, _REPORT_PAUSE_S = 5.0, 1.0
#: An announcer that has run for so long works again.
_SOLVED_S = 5.0
_RETRY_S, _LAST_RETRY_S = 0.5, 5.0
_RENEW_RETRY_S, _AUTHORITIES_S = 2.0, 3600.0

log = structlog.get_logger(__name__)


class MachineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of both commands. ``envoy_threads`` 0: one for each core.

    ``speaker`` is the program that announces by BGP; ``external`` the place of routes for a daemon that is there.
    """

    envoy_threads: int = 0
    speaker: Literal["bird", "frr"] = "bird"
    external: str = f"table:{DEFAULT_TABLE}"


async def join_machine(state: StateDirectory, *, hub: str, token: str, fingerprint: str, name: str) -> str:
    """Enrol this machine at the hub, and keep its certificate in ``state``; return its name there.

    Raises:
        BadConfiguration: this machine lacks something, has joined before, or the hub is another one.
        FairleadError: the hub cannot be reached, or refuses.
    """
    check_machine()
    state.take()
    if state.has_joined:
        raise BadConfiguration(
            f"this machine has joined before, as {state.load().machine!r}: start it with  fairlead proxy run. "
            f"To join again, delete {state.path / 'machine.json'} first"
        )
    key = NewKey(name)
    answer = await hub_client.join(hub, token=token, fingerprint=fingerprint, name=name, csr=key.csr)
    state.store(answer, key, hubs=(hub,), now=time.time())
    return answer.machine


async def run_machine(settings: MachineSettings, state: StateDirectory) -> None:
    """Run until SIGTERM; Envoy and the announcements go on after that.

    Raises:
        BadConfiguration: this machine has not joined, lacks something, or its state directory is another machine's.
    """
    check_machine()
    state.take()
    machine = MachineProcess(settings, state)
    allow_nonlocal_bind()
    supervisor = Supervisor(stop_deadline_s=_STOP_S)
    supervisor.spawn("proxy machine", lambda: machine.run(supervisor))
    try:
        await supervisor.run_until_stopped()
    finally:
        await machine.close()
        state.release()


class MachineProcess:
    """The parts of one machine. ``announcers`` makes its announcers, by name: ``all_announcers`` unless given."""

    def __init__(
        self,
        settings: MachineSettings,
        state: StateDirectory,
        announcers: Callable[[Path, Callable[[], None]], Mapping[str, Announcer]] | None = None,
    ) -> None:
        self._state = state
        self._enrolment = state.load()
        self._name = self._enrolment.machine
        self._clock = SystemClock()
        self._changed = asyncio.Event()
        self._snapshot = XdsSnapshot(state.snapshot)
        self._link = HubLink(on_change=self._changed.set)
        self._relay = Relay(
            socket=check_socket_path(state.socket),
            snapshot=self._snapshot,
            link=self._link,
            schema=packaged_schema(),
            on_change=self._changed.set,
        )
        self._threads = settings.envoy_threads or os.cpu_count() or 1
        self._envoy = LocalEnvoy(
            directory=state.envoy,
            bootstrap=_bootstrap(self._name, state),
            options=("--concurrency", str(self._threads), *ENVOY_FLAGS),
        )
        self._plan = state.load_plan()
        #: A hub has answered that this machine was removed.
        self._removed = False
        #: The plan is not on disk yet.
        self._unsaved = False
        self._client = HubClient((), state.tls)
        self._client.hubs = self._hubs()
        self._announcers = (
            announcers(state.path, self._changed.set)
            if announcers is not None
            else all_announcers(settings, state.path, self._changed.set)
        )
        self._proxy = ProxyState()
        #: Whether Envoy's admin interface answers; None before it was asked.
        self._answers: bool | None = None
        self._connections_per_s = 0.0
        #: The load balancers with a healthy target; None while that is unknown, or does not matter.
        self._healthy: frozenset[str] | None = None
        self._sockets: frozenset[Socket] = frozenset()
        self._sockets_s = float("-inf")
        self._applied: tuple[MachinePlan, Mapping[str, bool]] | None = None
        #: Sentences by what they are about.
        self._problems: dict[str, str] = {}

    async def run(self, supervisor: Supervisor) -> None:
        """Bring everything up from local state, then follow the hub."""
        self._state.tls()  # a damaged certificate is an error before anything is started
        self._snapshot.load()
        self._envoy.prepare()
        self._log_age()
        await self._relay.start()
        await self._link.connect(xds_addresses(self._client.hubs), self._state.channel_credentials())
        for name, announcer in self._announcers.items():
            supervisor.spawn(name, self._announce(name, announcer), restart=True)
        supervisor.spawn("snapshot", self._snapshot.run, restart=True)
        supervisor.spawn("plan", self._follow_plan, restart=True)
        supervisor.spawn("certificate", self._renew, restart=True)
        await self._envoy.start()
        supervisor.spawn("envoy", self._ask_envoy, restart=True)
        supervisor.spawn("checks", self._check, restart=True)
        supervisor.spawn("report", self._report, restart=True)
        log.info("ready", machine=self._name, envoy=self._envoy.running.pid if self._envoy.running else 0)
        notify_systemd("READY=1", "STATUS=Serving")

    async def close(self) -> None:
        """Close everything; Envoy goes on serving."""
        await self._envoy.close()
        await self._relay.stop()
        await self._link.close()
        await self._client.close()

    # --- from the hub -----------------------------------------------------------------------------------------

    async def _follow_plan(self) -> None:
        pause_s = _RETRY_S
        while True:
            try:
                plan = await self._client.plan(self._plan.version if self._plan is not None else "")
            except FairleadError as error:
                self._removed = self._removed or isinstance(error, Forbidden)
                self._problem("hub", error.sentence)
                await self._clock.sleep(pause_s)
                pause_s = min(_LAST_RETRY_S, pause_s * 2)
                continue
            pause_s, self._removed = _RETRY_S, False
            self._problem("hub", "")
            if plan is not None and plan != self._plan:
                self._plan, self._unsaved = plan, True
                log.info("plan", version=plan.version, addresses=len(plan.addresses), drained=plan.drained)
                self._client.hubs = self._hubs()
                self._link.set_addresses(xds_addresses(self._client.hubs))
                await self._apply()
                self._changed.set()
            self._save_plan()

    def _save_plan(self) -> None:
        """Keep the plan, with the time of this answer; a full disk is a problem, and the machine follows the plan."""
        try:
            if self._unsaved and self._plan is not None:
                self._state.store_plan(self._plan)
                self._unsaved = False
            self._state.hub_answered()
        except OSError as error:
            self._problem("disk", f"the plan cannot be kept in {self._state.path} ({error.strerror})")
        else:
            self._problem("disk", self._snapshot.problem)

    def _hubs(self) -> tuple[str, ...]:
        """Return where hubs answer: that which is asked now, those of the plan, and that where this machine joined."""
        planned = self._plan.hubs if self._plan is not None else ()
        hubs = dict.fromkeys((*planned, *self._enrolment.hubs))
        now = [hub for hub in self._client.hubs[:1] if hub in hubs]
        return tuple(dict.fromkeys((*now, *hubs)))

    async def _renew(self) -> None:
        """Renew the certificate when it is due, and look for new authorities before that."""
        looked_s = float("-inf")
        while True:
            due = time.time() >= self._enrolment.renew_at
            try:
                if self._clock.monotonic() - looked_s >= _AUTHORITIES_S:
                    if self._state.store_authorities(await self._client.authorities()):
                        await self._reconnect()
                    looked_s = self._clock.monotonic()
                if due:
                    key = NewKey(self._name)
                    await self._take_certificate(await self._client.renew(key.csr), key)
                self._problem("certificate", "")
            except FairleadError as error:
                if due:
                    self._problem("certificate", self._expiry(error))
                await self._clock.sleep(_RENEW_RETRY_S)
                continue
            left_s = self._enrolment.renew_at - time.time()
            await self._clock.sleep(min(max(left_s, 0.0), _AUTHORITIES_S))

    def _expiry(self, error: FairleadError) -> str:
        expires = self._state.certificate_expires()
        if expires <= datetime.now(UTC):
            return (
                f"the certificate of this machine expired at {expires:%Y-%m-%d %H:%M} UTC, so no hub answers. It "
                f"serves what it has. To join again, at the hub: fairlead proxy remove {self._name}, then fairlead "
                f"proxy token. Here: delete {self._state.path / 'machine.json'}, then run the command of the token"
            )
        return f"the certificate of this machine expires at {expires:%Y-%m-%d %H:%M} UTC: {error.sentence}"

    async def _take_certificate(self, answer: EnrolAnswer, key: NewKey) -> None:
        self._enrolment = self._state.store(answer, key, hubs=self._enrolment.hubs, now=time.time())
        log.info("certificate renewed", expires=self._state.certificate_expires().isoformat())
        await self._reconnect()

    async def _reconnect(self) -> None:
        await self._client.reconnect()
        await self._link.connect(xds_addresses(self._client.hubs), self._state.channel_credentials())

    # --- on this machine --------------------------------------------------------------------------------------

    async def _ask_envoy(self) -> None:
        """Ask Envoy's admin interface, and notice another Envoy."""
        asked: Running | None = None
        missed, counted, counted_s = 0, 0, 0.0
        while True:
            status, _ = await admin_get(self._envoy.admin_socket, "/ready", timeout_s=_ANSWER_S)
            missed = 0 if status else missed + 1
            if status or missed >= _MISSED:
                self._answers = bool(status)
            if status and self._envoy.running != asked:
                asked = self._envoy.running
                self._proxy = msgspec.structs.replace(self._proxy, version=await self._version())
                counted_s = 0.0
            now_s = self._clock.monotonic()
            await self._look_at_health(alive=bool(status))
            if status and now_s - counted_s >= _REPORT_S:
                total = await self._connections()
                if counted_s:
                    self._connections_per_s = max(0.0, (total - counted) / (now_s - counted_s))
                counted, counted_s = total, now_s
            notify_systemd("WATCHDOG=1")
            await self._clock.sleep(_ADMIN_S)

    async def _look_at_health(self, *, alive: bool) -> None:
        """Ask for healthy targets where the plan needs them; without an answer they are unknown."""
        needed = self._plan is not None and any(planned.withdraw_when_unhealthy for planned in self._plan.addresses)
        status, text = await self._envoy.admin(HEALTHY_TARGETS) if needed and alive else (0, "")
        self._healthy = healthy_load_balancers(text) if status == 200 else None

    async def _version(self) -> str:
        _, text = await self._envoy.admin("/server_info")
        # "<commit>/1.36.2/Clean/RELEASE/BoringSSL"
        parts = text.partition('"version": "')[2].partition('"')[0].split("/")
        return parts[1] if len(parts) > 1 else ""

    async def _connections(self) -> int:
        _, text = await self._envoy.admin(CONNECTIONS)
        return total_connections(text)

    async def _check(self) -> None:
        while True:
            await self._apply()
            await self._clock.sleep(_CHECK_S)

    @property
    def _alive(self) -> bool:
        running = self._envoy.running
        return running is not None and running.alive() and self._answers is True

    async def _apply(self) -> None:
        """Pass the plan and what this machine serves to the announcers, when one of the two has changed."""
        listeners = self._snapshot.of(ResourceType.LISTENER)
        refused = tuple(f"{name}: {message}" for name, message in sorted(self._relay.refused.items()))
        proxy = msgspec.structs.replace(
            self._proxy, alive=self._alive, listeners=len(listeners), refused=refused, synced=self._relay.synced
        )
        if proxy != self._proxy:
            self._proxy = proxy
            self._changed.set()
        plan = self._plan
        if plan is None:
            return
        # What is not known is left as it is. A machine that the hub has removed takes nothing over, either: the others
        # no longer know it.
        known: Mapping[str, bool] = {}
        if not self._removed and (self._answers is not None or self._envoy.running is None):
            known = serving(
                plan, alive=proxy.alive, listeners=listeners, sockets=self._open_sockets(), healthy=self._healthy
            )
        if self._applied == (plan, known):
            return
        failed = False
        for name, announcer in self._announcers.items():
            try:
                await announcer.apply(plan, serving=known)
            except FairleadError as error:
                failed = True
                self._problem(name, error.sentence)
        if not failed:
            self._applied = plan, known
        self._changed.set()

    def _open_sockets(self) -> frozenset[Socket]:
        """Return what the kernel listens at; read again after a while only where that is much to read."""
        now_s = self._clock.monotonic()
        if len(self._sockets) < _MANY_SOCKETS or now_s - self._sockets_s >= _ADMIN_S:
            self._sockets, self._sockets_s = listening(), now_s
        return self._sockets

    def _announce(self, name: str, announcer: Announcer) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            solved = asyncio.get_running_loop().call_later(_SOLVED_S, self._problem, name, "")
            try:
                await announcer.run()
            except FairleadError as error:
                self._problem(name, error.sentence)
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
                running = self._envoy.running
                files = await asyncio.to_thread(_open_files, running.pid) if running is not None else 0
                await self._client.report(self._state_of_machine(files))
            except FairleadError as error:
                log.debug("not reported", sentence=error.sentence)
            await self._clock.sleep(_REPORT_PAUSE_S)

    def _state_of_machine(self, files: int) -> MachineReport:
        announcers: Sequence[Announcer] = tuple(self._announcers.values())
        return MachineReport(
            machine=self._name,
            plan=self._plan.version if self._plan is not None else "",
            drained=self._plan is not None and self._plan.drained,
            sent=time.time(),
            release=__version__,
            proxy=self._proxy,
            links=tuple(link for announcer in announcers for link in announcer.links()),
            addresses=tuple(address for announcer in announcers for address in announcer.addresses()),
            sessions=tuple(session for announcer in announcers for session in announcer.sessions()),
            files=files,
            max_files=file_limit(),
            # Each listener has a file for each thread; the other half is for connections.
            max_listeners=file_limit() // 2 // self._threads,
            connections_per_s=round(self._connections_per_s, 1),
            unhealthy=unhealthy_addresses(self._plan, self._healthy) if self._plan is not None else (),
            problems=tuple(self._problems.values()),
        )

    def _problem(self, about: str, sentence: str) -> None:
        """Log and keep a sentence once; an empty one ends it."""
        if self._problems.get(about, "") == sentence:
            return
        if sentence:
            self._problems[about] = sentence
            log.warning("problem", about=about, sentence=sentence)
            if about == "hub":
                self._log_age()
        else:
            del self._problems[about]
            log.info("problem solved", about=about)
            notify_systemd("STATUS=Serving")
        self._changed.set()

    def _log_age(self) -> None:
        last = self._state.last_answer()
        if last is None:
            return
        age_s = max(0.0, (datetime.now(UTC) - last).total_seconds())
        log.info(
            "local state", of=last.isoformat(timespec="seconds"), age_s=round(age_s), resources=self._snapshot.size
        )
        notify_systemd(f"STATUS=Serving from local state of {last:%Y-%m-%d %H:%M:%S} UTC")


def all_announcers(
    settings: MachineSettings, directory: Path, on_change: Callable[[], None]
) -> Mapping[str, Announcer]:
    """Return the announcers of a machine by name; each ignores the addresses of the others.

    Raises:
        BadConfiguration: the place of external routes is none.
    """
    bgp, external = directory / "bgp", directory / "external"
    speaker = Frr(bgp) if settings.speaker == "frr" else Bird(bgp)
    return {
        "layer 2": Layer2(on_change=on_change),
        "BGP": RouteAnnouncer("BGP", speaker, bgp, on_change=on_change),
        "external": RouteAnnouncer("External", external_speaker(settings.external), external, on_change=on_change),
    }


def _bootstrap(name: str, state: StateDirectory) -> bytes:
    bootstrap = bootstrap_json(
        Bootstrap(
            node_id=f"machine:{name}/{os.uname().nodename}",
            group=f"machine:{name}",
            xds_address=str(state.socket),
            admin_socket=str(state.envoy / "admin.sock"),
            # Two files for each connection, and half of the files are for listeners.
            max_connections=max(16, file_limit() // 4),
        )
    )
    return msgspec.json.format(msgspec.json.encode(bootstrap), indent=1)


def xds_addresses(hubs: Sequence[str]) -> tuple[str, ...]:
    """Return where the xDS servers of hubs listen: at the next port of each."""
    places = (hub.rpartition(":") for hub in hubs)
    return tuple(host_port(host.strip("[]"), int(port) + 1) for host, _, port in places)


def _open_files(pid: int) -> int:
    try:
        return sum(1 for _ in Path("/proc", str(pid), "fd").iterdir())
    except OSError:
        return 0


def notify_systemd(*states: str) -> None:
    """Notify systemd, if it has started this process with ``Type=notify``; see sd_notify(3)."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.connect("\0" + place[1:] if place.startswith("@") else place)
            sender.sendall("\n".join(states).encode())
    except OSError as error:
        log.debug("systemd does not listen", error=str(error))
