"""Measures how long many members take to be in sync when all come back to one hub: its API was away, or all agents.

While they were away one Service of each member got another backend. A member is in sync when its agent has heard the
hub again on every watch, its Lease at the hub is renewed, and a connection to that Service lands on the new backend.
The hub, its API and its Envoy are processes; the agents are shared out to a few processes, each agent with connections
of its own, and the members' APIs are servers of their own in one process: all on this machine, so what the agents and
members use of it is printed, too.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.figures import Figure
from bench.fleet import Process, until, until_true
from bench.hub_alone import HubAlone, hub_alone
from bench.objects import create_services, endpoint_slice, service
from bench.traffic import PROBE, PROBE_PORT, backend, lands_on
from fairlead.api.kubernetes import ENDPOINT_SLICES, LEASES, SERVICES
from fairlead.api.names import AGENT_LEASE
from fairlead.cli.tenant import cluster_trust, issue_access
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.runtime.file_limit import raise_file_limit
from fairlead.runtime.private_file import write_private

AGENTS = int(os.environ.get("AGENTS", "200"))
#: So many Services has each member besides the one that changes.
SERVICES_EACH = 4
AGENT_PROCESSES = 4
#: Longer than any agent waits between two attempts.
AWAY_S = 60.0
LIMIT_S = 20.0
POOL = "127.144.0.0/16"
_AT_ONCE = 32
_LOOK_S = 0.25


@dataclass
class Members:
    """The members, with the processes that stand for them; ``addresses`` are those of the Services that change."""

    directory: Path
    hub: HubAlone
    apis: Process
    agents: list[Process]
    addresses: list[str] = field(default_factory=list)

    async def each(self, what: Callable[[int, Cluster], Awaitable[None]]) -> None:
        """Do something in each member, as its administrator, some at once."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def in_member(number: int) -> None:
            config = self.directory / f"member-{number}"
            async with slots, Cluster.from_kubeconfig(config, name=f"member {number}") as member:
                await what(number, member)

        await asyncio.gather(*(in_member(number) for number in range(AGENTS)))

    async def change(self, round_: int) -> None:
        """Give one Service of each member another backend."""

        async def in_member(number: int, member: Cluster) -> None:
            body = {"endpoints": [{"addresses": [_address(round_, number)], "conditions": {"ready": True}}]}
            await member.merge_patch(ENDPOINT_SLICES, "default", f"{PROBE}-1", body)

        await self.each(in_member)

    async def heard(self, since_s: float) -> int:
        """Return how many agents have heard the hub since, a time of ``time.monotonic``."""
        answers = await asyncio.gather(*(_ask(self.directory / each.name, since_s) for each in self.agents))
        return sum(answers)

    async def leased(self, since: datetime) -> int:
        """Return how many members have renewed their Lease at the hub since."""
        try:
            leases = await self.hub.cluster.list(LEASES)
        except FairleadError:
            return 0
        times = (each.spec.renew_time for each in leases if each.metadata.name == AGENT_LEASE)
        return sum(datetime.fromisoformat(renewed) > since for renewed in times if renewed)


def _address(round_: int, number: int) -> str:
    """Return the address of a backend: those of one round share a network."""
    return f"127.{90 + round_}.{number >> 7}.{(number & 127) + 1}"


async def _ask(socket: Path, since_s: float) -> int:
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return 0
    writer.write(f"{since_s}\n".encode())
    answer = await reader.read()
    writer.close()
    return int(answer or 0)


@asynccontextmanager
async def _members(hub: HubAlone, directory: Path) -> AsyncGenerator[Members]:
    """Run the members' APIs; the agents are not started yet."""
    program = [sys.executable, "-m"]
    share = -(-AGENTS // AGENT_PROCESSES)
    apis = Process("members", "bench.agents_members", str(directory), str(AGENTS), directory=directory, program=program)
    agents: list[Process] = []
    for first in range(0, AGENTS, share):
        given = ("bench.agents_many", str(directory), str(first), str(min(first + share, AGENTS)))
        agents.append(Process(f"agents-{first}", *given, directory=directory, program=program))
    try:
        await apis.start()
        await until((directory / "ready").exists, what="the members' APIs", timeout_s=300)
        yield Members(directory, hub, apis, agents)
    finally:
        for process in (*agents, apis):
            await process.kill()


async def _fill(members: Members) -> None:
    """Make each member's place at the hub, and its Services."""
    config = members.directory / "api" / "kubeconfig"
    trust = cluster_trust(config)

    async def in_member(number: int, member: Cluster) -> None:
        hub = members.hub.cluster
        access = await issue_access(hub, name=f"m-{number}", region="", valid_s=86_400, server="", trust=trust)
        write_private(members.directory / f"hub-{number}", access.kubeconfig)
        await create_services(member, 0, SERVICES_EACH, endpoints=2)
        await member.create(SERVICES, service(PROBE))
        first = endpoint_slice(PROBE, [_address(0, number)], port=PROBE_PORT)
        await member.create(ENDPOINT_SLICES, first)

    await members.each(in_member)


async def all_at_once() -> AsyncIterator[Figure]:
    """Connect all agents for the first time, then after the hub's API was away, then after all agents were killed."""
    raise_file_limit()
    async with hub_alone(pool=POOL, lasting=True) as hub:
        await hub.process.start()
        await until_true(lambda: _ready(hub), what="the hub's /readyz")
        async with _members(hub, hub.data.parent) as members:
            await _fill(members)
            await _backends(0)
            async for figure in _first(members):
                yield figure
            async for figure in _api_away(members):
                yield figure
            async for figure in _agents_away(members):
                yield figure
            for name, process in {"hub": hub.process, "the hub's API": hub.api}.items():
                yield Figure(name=f"memory of {name} with {AGENTS} agents", value=process.rss_mb, unit="MB")


async def _ready(hub: HubAlone) -> bool:
    return bool(await hub.page("/readyz"))


async def _backends(round_: int) -> None:
    """Listen at the backends of a round, for as long as the bench runs."""
    for number in range(AGENTS):
        await backend(_address(round_, number))


async def _first(members: Members) -> AsyncIterator[Figure]:
    began = _Begin(members)
    for process in members.agents:
        await process.start()
    all_ = AGENTS * (SERVICES_EACH + 1)

    async def programmed() -> bool:
        return await members.hub.programmed() == all_

    await until_true(programmed, what=f"{all_} load balancers are programmed", timeout_s=600, every_s=_LOOK_S)

    async def address(_number: int, member: Cluster) -> None:
        async def given() -> bool:
            probe = await member.get(SERVICES, "default", PROBE)
            return bool(probe.status.load_balancer.ingress)

        await until_true(given, what="an address")
        ingress = (await member.get(SERVICES, "default", PROBE)).status.load_balancer.ingress or []
        addresses[_number] = ingress[0].address

    addresses: dict[int, str] = {}
    await members.each(address)
    members.addresses = [addresses[number] for number in range(AGENTS)]
    what = f"{AGENTS} agents start for the first time, {all_:,} Services of theirs"
    async for figure in _in_sync(began, 0, what, limit=None):
        yield figure
    await asyncio.sleep(15)


async def _api_away(members: Members) -> AsyncIterator[Figure]:
    api = members.hub.api
    await _backends(1)
    await api.kill()
    await members.change(1)
    await asyncio.sleep(AWAY_S)
    began = _Begin(members)
    await api.start()
    async for figure in _in_sync(began, 1, f"{AGENTS} agents, the hub's API was away for {AWAY_S:g} s", limit=LIMIT_S):
        yield figure
    await asyncio.sleep(15)


async def _agents_away(members: Members) -> AsyncIterator[Figure]:
    await _backends(2)
    for process in members.agents:
        await process.kill()
    await members.change(2)
    began = _Begin(members)
    for process in members.agents:
        await process.start()
    async for figure in _in_sync(began, 2, f"{AGENTS} agents were killed and start again", limit=LIMIT_S):
        yield figure


class _Begin:
    """When all come back, and what each process had used of the processor by then."""

    def __init__(self, members: Members) -> None:
        self.members = members
        self.monotonic_s = time.monotonic()
        self.when = datetime.now(UTC)
        self._before_s = {process: _used_s(process) for process in self._processes}

    @property
    def _processes(self) -> list[Process]:
        return [self.members.hub.api, self.members.hub.process, self.members.apis, *self.members.agents]

    def passed_s(self) -> float:
        return time.monotonic() - self.monotonic_s

    def used(self) -> str:
        """Return the processor time since then, in words."""
        used = [_used_s(each) - self._before_s[each] for each in self._processes]
        # A process that has been started since began at 0.
        used = [_used_s(each) if value < 0 else value for each, value in zip(self._processes, used, strict=True)]
        api, hub, members, *agents = used
        return f"CPU: API {api:.1f}, hub {hub:.1f}, all agents {sum(agents):.1f}, members' APIs {members:.1f} s"


def _used_s(process: Process) -> float:
    """Return the processor time of a process, 0 while it does not run."""
    running = process.process is not None and process.process.returncode is None
    return process.cpu_s if running else 0.0


async def _in_sync(began: _Begin, round_: int, what: str, *, limit: float | None) -> AsyncIterator[Figure]:
    members = began.members
    heard_s, leased_s, effective_s = await asyncio.gather(
        _reached(began, "heard the hub", lambda: members.heard(began.monotonic_s)),
        _reached(began, "have their Lease", lambda: members.leased(began.when)),
        _reached(began, "serve their change", _Landed(members.addresses, round_)),
    )
    used = began.used()
    yield Figure(name=f"{what}: until each has heard the hub on every watch", value=heard_s, unit="s")
    yield Figure(name="the same: until each has its Lease", value=leased_s, unit="s")
    yield Figure(name="the same: until the change of each is served", value=effective_s, unit="s")
    all_s = max(heard_s, leased_s, effective_s)
    yield Figure(name="the same: until all are in sync", value=all_s, unit="s", limit=limit, compares_with=used)


async def _reached(began: _Begin, what: str, count: Callable[[], Awaitable[int]]) -> float:
    """Return after how many seconds all have it."""
    seen = 0

    async def all_have() -> bool:
        nonlocal seen
        seen = await count()
        return seen == AGENTS

    try:
        await until_true(all_have, what=what, timeout_s=300, every_s=_LOOK_S)
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {seen} of {AGENTS}") from None
    return began.passed_s()


class _Landed:
    """Counts the members whose new connections land on the backend of a round; one that did is not asked again."""

    def __init__(self, addresses: Sequence[str], round_: int) -> None:
        self._left = dict(enumerate(addresses))
        self._round = round_

    async def __call__(self) -> int:
        numbers = list(self._left)
        answers = await asyncio.gather(*(lands_on(self._left[number]) for number in numbers))
        for number, answer in zip(numbers, answers, strict=True):
            if answer == _address(self._round, number):
                del self._left[number]
        return AGENTS - len(self._left)
