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
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
import structlog

from fairlead.announce.announcer import Announcer
from fairlead.announce.bird import Bird
from fairlead.announce.external import DEFAULT_TABLE, external_speaker
from fairlead.announce.frr import Frr
from fairlead.announce.layer2 import Layer2
from fairlead.announce.routes import RouteAnnouncer
from fairlead.api.json_text import read_json
from fairlead.errors import BadConfiguration, FairleadError, Unreachable
from fairlead.machine import hub_client
from fairlead.machine.announcing import AnnouncingMachine, notify_systemd
from fairlead.machine.checks import allow_nonlocal_bind, check_machine
from fairlead.machine.connections import ConnectionSync
from fairlead.machine.hub_client import HubClient
from fairlead.machine.kernel import KernelPath
from fairlead.machine.relay import HubLink, Relay
from fairlead.machine.snapshot import XdsSnapshot
from fairlead.machine.state import NewKey, StateDirectory
from fairlead.machine.upgrade import EnvoyProof, EnvoyUpgrades
from fairlead.model.in_words import host_port
from fairlead.model.machine import FILES_OF_CONNECTION, DrainState, MachinePlan
from fairlead.providers.envoy.bootstrap import ENVOY_FLAGS, Bootstrap, bootstrap_json
from fairlead.providers.envoy.connections import EndpointDrains
from fairlead.providers.envoy.envoy_process import LocalEnvoy, check_socket_path, file_limit
from fairlead.providers.envoy.resources import ResourceType, packaged_schema
from fairlead.providers.envoy.traffic import MachineTraffic
from fairlead.runtime.background import Supervisor
from fairlead.runtime.clock import SystemClock
from fairlead.runtime.commands import prefer

_STOP_S = 5.0
#: Of this process, and of Envoy, which it starts. On a busy machine new connections would wait for other programs,
#: and hellos would be late. It is that of the systemd unit, too.
NICENESS = -5
#: How often the plan is looked at for an upgrade.
_UPGRADE_S = 1.0
#: How long Envoy still serves after a withdrawal, for routers and clients that have not noticed.
_NOTICED_S = 2.0
_RENEW_RETRY_S, _AUTHORITIES_S = 2.0, 3600.0

log = structlog.get_logger(__name__)


class MachineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of both commands. ``envoy_threads`` 0: one for each core.

    ``speaker`` is the program that announces by BGP; ``external`` the place of routes for a daemon that is there.
    ``withdraw``: before the process ends, other machines take over, because Envoy ends with it. ``sync_connections`` is
    the address of the machine that gets the connections of the kernel path, and sends its own.
    """

    envoy_threads: int = 0
    speaker: Literal["bird", "frr"] = "bird"
    external: str = f"table:{DEFAULT_TABLE}"
    withdraw: bool = False
    sync_connections: str = ""


async def join_node(state: StateDirectory, directory: Path, *, name: str) -> str:
    """Enrol this node of the hub's cluster if it has not joined yet; return its name.

    ``directory`` has the token of this Pod, and ``hubs.json``: the data of the ConfigMap with the addresses of hubs.

    Raises:
        BadConfiguration: this machine lacks something, or the directory does.
        FairleadError: no hub can be reached, or they refuse.
    """
    if state.has_joined:
        return name
    token, hubs = _read_node(directory)
    problem: FairleadError = BadConfiguration(
        f"--node: {directory / 'hubs.json'} has the address of no hub. Start the hub of this cluster with --machines, "
        "and write the file again as deploy/kubernetes/proxy-nodes.yaml says"
    )
    for hub in hubs:
        try:
            return await join_machine(state, hub=hub.address, token=token, fingerprint=hub.fingerprint, name=name)
        except Unreachable as error:
            problem = error
    raise problem


class _PublishedHub(msgspec.Struct):
    address: str
    fingerprint: str


def _read_node(directory: Path) -> tuple[str, list[_PublishedHub]]:
    try:
        token = (directory / "token").read_text(encoding="ascii").strip()
        entries = read_json((directory / "hubs.json").read_bytes(), dict[str, str]) or {}
    except OSError as error:
        raise BadConfiguration(
            f"--node: {directory} cannot be read ({error.strerror}); mount the volume of deploy/kubernetes/"
            "proxy-nodes.yaml there"
        ) from error
    read = [read_json(entry.encode(), _PublishedHub) for _, entry in sorted(entries.items())]
    return token, [hub for hub in read if hub is not None]


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
    """Run until SIGTERM; Envoy and the announcements continue after that.

    Raises:
        BadConfiguration: this machine has not joined, lacks something, or its state directory is another machine's.
    """
    check_machine()
    state.take()
    prefer(os.getpid(), NICENESS)
    machine = MachineProcess(settings, state)
    allow_nonlocal_bind()
    supervisor = Supervisor(stop_deadline_s=_STOP_S)
    supervisor.spawn("proxy machine", lambda: machine.run(supervisor))
    try:
        await supervisor.run_until_stopped(machine.withdraw if settings.withdraw else None)
    finally:
        await machine.close()
        state.release()


class MachineProcess:
    """The parts of one machine that joined: its Envoy is behind a relay."""

    def __init__(self, settings: MachineSettings, state: StateDirectory) -> None:
        self._state = state
        self._enrolment = state.load()
        self._name = self._enrolment.machine
        self._clock = SystemClock()
        changed = asyncio.Event()
        self._snapshot = XdsSnapshot(state.snapshot, on_change=self._note_endpoints)
        schema = packaged_schema()
        self._drains = EndpointDrains(
            schema, pids=self._pids, resources=lambda: self._snapshot.of(ResourceType.ENDPOINTS), changed=changed.set
        )
        self._link = HubLink(on_change=changed.set)
        self._relay = Relay(
            socket=check_socket_path(state.socket),
            snapshot=self._snapshot,
            link=self._link,
            schema=schema,
            on_change=changed.set,
        )
        threads = settings.envoy_threads or os.cpu_count() or 1
        #: Each listener has a file for each thread; the other half is for connections.
        self.max_listeners = file_limit() // 2 // threads
        self._envoy = LocalEnvoy(
            directory=state.envoy,
            bootstrap=_bootstrap(self._name, state),
            options=("--concurrency", str(threads), *ENVOY_FLAGS),
        )
        self._sync = ConnectionSync(
            state.path / "connections",
            settings.sync_connections,
            on_problem=lambda sentence: self._machine.problem("connections", sentence),
        )
        self._kernel = KernelPath(state.forwarding, on_change=changed.set, connections=lambda: self._sync.state)
        self._upgrades = EnvoyUpgrades(state.path)
        plan = state.load_plan()
        #: The hub that answered last: it leads.
        self._leader = ""
        #: The plan that has not been saved yet.
        self._unsaved: MachinePlan | None = None
        self._client = HubClient((), state.tls)
        self._client.hubs = self._hubs(plan)
        self._machine = AnnouncingMachine(
            self._name,
            hub=self._client,
            proxies=self,
            kernel=self._kernel,
            announcers=all_announcers(settings, state.path, changed.set),
            changed=changed,
            plan=plan,
            traffic=MachineTraffic(SystemClock()),
            authorities=state.authorities,
            answered=self._answered,
            problem_changed=self._problem_changed,
        )

    async def run(self, supervisor: Supervisor) -> None:
        """Start everything from local state, then follow the hub."""
        self._state.tls()  # a damaged certificate is an error before anything is started
        self._snapshot.load()
        for name in list(self._snapshot.of(ResourceType.ENDPOINTS)):
            self._drains.note(name)
        self._kernel.load()
        self._envoy.prepare(self._upgrades.binary())
        self._machine.note_upgrade(self._upgrades.record.ended, self._upgrades.record.problem)
        self._log_age()
        await self._relay.start()
        await self._link.connect(xds_addresses(self._client.hubs), self._state.channel_credentials())
        self._machine.follow(supervisor)
        supervisor.spawn("snapshot", self._snapshot.run, restart=True)
        supervisor.spawn("certificate", self._renew, restart=True)
        await self._envoy.start()
        self._machine.watch(supervisor)
        supervisor.spawn("connections", self._sync.run, restart=True)
        supervisor.spawn("upgrade", self._follow_upgrades, restart=True)
        log.info("ready", machine=self._name, envoy=self._envoy.running.pid if self._envoy.running else 0)
        notify_systemd("READY=1", "STATUS=Serving")

    async def withdraw(self) -> None:
        """Let other machines take over all addresses, and serve open connections for a moment."""
        await self._machine.withdraw()
        await asyncio.sleep(_NOTICED_S)

    async def close(self) -> None:
        """Close everything; Envoy keeps serving."""
        self._drains.drains.close()
        await self._envoy.close()
        await self._relay.stop()
        await self._link.close()
        await self._client.close()

    # --- its Envoy --------------------------------------------------------------------------------------------

    @property
    def envoys(self) -> Sequence[LocalEnvoy]:
        """Return the one Envoy."""
        return (self._envoy,)

    def listeners(self) -> Collection[str]:
        """Return the names of the listeners that Envoy has acknowledged."""
        return self._snapshot.of(ResourceType.LISTENER)

    def refused(self) -> Mapping[str, str]:
        """Return the listeners that Envoy has rejected, each with its message."""
        return self._relay.refused

    def draining(self) -> tuple[DrainState, ...]:
        """Return the targets that drain for a limited time at Envoy."""
        return tuple(
            DrainState(
                load_balancer=str(key),
                targets=drain.targets,
                connections=drain.connections,
                since=round(drain.since_s, 1),
            )
            for key, drain in self._drains.drains.figures().items()
        )

    def _pids(self) -> list[int]:
        return [self._envoy.running.pid] if self._envoy.running is not None else []

    def _note_endpoints(self, kind: ResourceType, name: str) -> None:
        if kind is ResourceType.ENDPOINTS:
            self._drains.note(name)

    @property
    def synced(self) -> bool:
        """Return whether Envoy is connected to a hub, and has acknowledged or rejected all resources."""
        return self._relay.synced

    async def _follow_upgrades(self) -> None:
        while True:
            if (plan := self._machine.plan) is not None and plan.upgrade is not None:
                try:
                    await self._upgrades.follow(plan.upgrade, self._envoy, EnvoyProof(self, plan).why_unhealthy)
                    self._machine.problem("upgrade", "")
                except OSError as error:
                    self._machine.problem("upgrade", f"Envoy is not upgraded: {error}. Free space or repair the disk")
                self._machine.note_upgrade(self._upgrades.record.ended, self._upgrades.record.problem)
            await self._clock.sleep(_UPGRADE_S)

    # --- from the hub -----------------------------------------------------------------------------------------

    def _answered(self, plan: MachinePlan | None) -> None:
        """Keep a plan, with the time of this answer; a full disk is a problem, and the machine follows the plan."""
        if plan is not None:
            self._unsaved = plan
            self._client.hubs = self._hubs(plan)
            self._link.set_addresses(xds_addresses(self._client.hubs))
        if (leader := self._client.hubs[0]) != self._leader:
            self._leader = leader
            self._link.prefer(xds_addresses((leader,))[0])
        try:
            if self._unsaved is not None:
                self._state.store_plan(self._unsaved)
                self._unsaved = None
            self._state.hub_answered()
        except OSError as error:
            self._machine.problem("disk", f"the plan cannot be kept in {self._state.path} ({error.strerror})")
        else:
            self._machine.problem("disk", self._snapshot.problem)

    def _hubs(self, plan: MachinePlan | None) -> tuple[str, ...]:
        """Return the addresses of hubs: the present one, those of the plan, and the one where this machine joined."""
        planned = plan.hubs if plan is not None else ()
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
                    answer = await self._client.renew(key.csr)
                    self._enrolment = self._state.store(answer, key, hubs=self._enrolment.hubs, now=time.time())
                    log.info("certificate renewed", expires=self._state.certificate_expires().isoformat())
                    await self._reconnect()
                self._machine.problem("certificate", "")
            except FairleadError as error:
                if due:
                    self._machine.problem("certificate", self._expiry(error))
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

    async def _reconnect(self) -> None:
        await self._client.reconnect()
        await self._link.connect(xds_addresses(self._client.hubs), self._state.channel_credentials())

    # --- local state ------------------------------------------------------------------------------------------

    def _problem_changed(self, about: str, sentence: str) -> None:
        if not sentence:
            notify_systemd("STATUS=Serving")
        elif about == "hub":
            self._log_age()

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
            max_connections=max(16, file_limit() // FILES_OF_CONNECTION),
        )
    )
    return msgspec.json.format(msgspec.json.encode(bootstrap), indent=1)


def xds_addresses(hubs: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses of the hubs' xDS servers: each listens at the port after the hub's own."""
    places = (hub.rpartition(":") for hub in hubs)
    return tuple(host_port(host.strip("[]"), int(port) + 1) for host, _, port in places)
