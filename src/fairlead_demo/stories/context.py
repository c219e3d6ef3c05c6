"""The common context of all demos: progress on a terminal, traffic whose failures are counted, and fleets.

In: a fleet of worlds. Out: what a story needs of it: steps and counters shown live or as lines, requests over HTTP and
HTTPS, names that a real DNS server answers. A failed request that a story does not expect makes the demo fail.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import dns.exception
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairlead.api.gateway import GATEWAYS
from fairlead.api.kubernetes import INGRESSES, LEASES
from fairlead.api.meta import Resource
from fairlead.api.names import AGENT_LEASE
from fairlead.runtime.background import watched
from fairlead_demo.worlds.acme_server import AcmeServer
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.https_client import HttpsClient
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.name_servers import Bind
from fairlead_demo.worlds.processes import ExpectationFailed, wait_until
from fairlead_demo.worlds.traffic import Connect, Connection, Traffic
from fairlead_demo.worlds.web import gateway_address, ingress_address
from fairlead_demo.worlds.workload import Workload


class StoryContext(ABC):
    """Output and traffic of one demo; ``traffics`` has the load on each Service by title."""

    #: What is wrong when there are ``failures``.
    broken = "some requests failed"

    def __init__(self, *, console: Console, plain: bool) -> None:
        self.console = console
        self.traffics: dict[str, Traffic] = {}
        self.progress = ProgressOutput(table=self.table, counts=self.counts, plain=plain, console=console)

    def failures(self) -> list[str]:
        """Return one sentence for each address with failed requests."""
        return [
            f"{name}: {traffic.count.failed} requests failed ({'; '.join(traffic.count.failures)})"
            for name, traffic in self.traffics.items()
            if traffic.count.failed
        ]

    def table(self) -> Table | None:
        """Return the table that is shown while the demo runs and at its end; None before there is one."""
        return traffic_table(self.traffics) if self.traffics else None

    def counts(self) -> str:
        """Return the counters as one line; empty before there are any."""
        return "; ".join(f"{name}: {counts_text(traffic)}" for name, traffic in self.traffics.items())

    def summary(self) -> str:
        """Return the counters of the whole demo, for its last line."""
        sent = sum(traffic.count.sent for traffic in self.traffics.values())
        failed = sum(traffic.count.failed for traffic in self.traffics.values())
        return f"{sent} requests sent, {failed} failed"

    def check_traffic(self, when: str) -> None:
        """Raise ``ExpectationFailed`` when a request has failed; ``when`` such as "while pods were rolled"."""
        if failures := self.failures():
            raise ExpectationFailed(f"requests failed {when}: {'; '.join(failures)}")

    @abstractmethod
    def ending(self, *, passed: bool) -> str:
        """Return the suffix of the summary; ``passed``: whether every check has passed."""

    def commands(self) -> list[str]:
        """Return commands that the user can try while everything is kept running."""
        return []

    async def every_pod_answers(self, pods: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """Wait until each of ``pods`` (title of its traffic, name) has answered another request."""
        start = {name: traffic.count.by_pod.copy() for name, traffic in self.traffics.items()}

        async def all_answered() -> bool:
            return all(self.traffics[name].count.by_pod[pod] > start[name][pod] for name, pod in pods())

        await wait_until(all_answered, "every pod answers")

    async def stop_traffic(self) -> None:
        """Stop sending requests, and wait for those in flight."""
        await asyncio.gather(*(traffic.stop() for traffic in self.traffics.values()))

    @abstractmethod
    async def close(self) -> None:
        """Stop traffic, processes and networks."""


def instead_of_low_ports() -> list[str]:
    """Return a note that another port is used when this user may not open port 80; empty otherwise."""
    port = service_port(80)
    if port == 80:
        return []
    return [
        f"this user may not open ports below 1024 (net.ipv4.ip_unprivileged_port_start): {port} takes the place of 80"
    ]


async def refuses(connect: Connect, address: str, port: int) -> bool:
    """Return whether connections to ``address:port`` are refused."""
    try:
        _, writer = await connect(address, port)
    except OSError:
        return True
    writer.close()
    return False


_OUTAGE_S = 4.0


class FleetContext(StoryContext):
    """A fleet with its traffic; ``workloads`` has the pods of each Service, by a name that the demo chooses."""

    def __init__(self, *, fleet: Fleet, apis: EmbeddedApis, console: Console, plain: bool) -> None:
        super().__init__(console=console, plain=plain)
        self.fleet = fleet
        self.apis = apis
        self.workloads: dict[str, Workload] = {}

    @abstractmethod
    def pods(self) -> Iterator[tuple[str, str]]:
        """Yield (title of its traffic, name) of every pod that should answer."""

    def lost(self) -> int:
        """Return the number of requests that were in flight to a pod when it was killed."""
        return sum(traffic.count.lost for traffic in self.traffics.values())

    def cut(self) -> int:
        """Return the number of keep-alive connections that were closed without ``Connection: close``."""
        return sum(traffic.count.cut for traffic in self.traffics.values())

    def sent(self) -> int:
        """Return the number of requests that were sent."""
        return sum(traffic.count.sent for traffic in self.traffics.values())

    def kubectl(self, at_hub: str, in_members: str) -> list[str]:
        """Return kubectl commands that list these kinds at the hub and in the members."""
        hub = self.fleet.kubeconfig
        lines = [f"  fairlead status --kubeconfig {hub}", f"  kubectl --kubeconfig {hub} get {at_hub} -A"]
        return lines + [
            f"  kubectl --kubeconfig {self.apis.kubeconfig(name)} get {in_members}     # {name}"
            for name in self.fleet.members
        ]

    async def roll_pods(self, rolled: str) -> None:
        """Replace every pod, gracefully; ``rolled`` says which, such as "3 pods of each member"."""
        self.progress.step_started("all pods are replaced, one by one: not ready, drained, stopped")
        cut, lost = self.cut(), self.lost()
        await asyncio.gather(*(workload.roll(workload.pods) for workload in self.workloads.values()))
        await self.every_pod_answers(self.pods)
        self.check_traffic("while pods were rolled")
        if (self.cut(), self.lost()) != (cut, lost):
            broken = f"{self.cut() - cut} cut, {self.lost() - lost} lost"
            raise ExpectationFailed(f"rolling pods broke connections: {broken}")
        self.progress.step_done(f"{rolled} were replaced, and no request failed")

    async def survive_control_plane(self, versions: Callable[[], Awaitable[object]], kind: str) -> None:
        """Kill hub and agents with SIGKILL under load and restart them; check that nothing was changed.

        ``versions`` returns the resourceVersions of the users' objects of this ``kind``.

        Raises:
            ExpectationFailed: a request failed, a connection was cut, an object was written or xDS was pushed.
        """
        self.progress.step_started("hub and agents are killed with -9 while traffic flows")
        await self._drained()
        before, cut = await versions(), self.cut()
        agents = [member.agent for member in self.fleet.members.values()]
        await asyncio.gather(*(child.kill() for child in (self.fleet.hub, *agents)))
        sent = self.sent()
        await asyncio.sleep(_OUTAGE_S)
        alone = self.sent() - sent
        self.check_traffic("while hub and agents were dead")
        self.progress.step_started("hub and agents restart, and should change nothing")
        await self.fleet.hub.start_ready()
        await asyncio.gather(*(agent.start() for agent in agents))
        await self._settled()
        changed = await self.fleet.hub.metric("fairlead_xds_changing_pushes_total")
        after = await versions()
        if changed:
            raise ExpectationFailed(f"the restarted hub changed something at Envoy ({changed:g} pushes)")
        if after != before:
            raise ExpectationFailed(f"the restart changed the users' objects: {before} became {after}")
        self.check_traffic("after hub and agents came back")
        if self.cut() != cut:
            raise ExpectationFailed(f"{self.cut() - cut} kept connections were cut by the restart")
        self.progress.step_done(
            "hub and agents were killed with -9, restarted, and changed nothing",
            f"{alone} requests answered meanwhile; 0 changed xDS resources, 0 cut connections, "
            f"0 writes to users' {kind}, the same addresses",
        )

    async def close(self) -> None:
        """End traffic, pods and all processes."""
        await self.stop_traffic()
        await asyncio.gather(*(workload.stop() for workload in self.workloads.values()))
        await self.fleet.close()

    async def _drained(self) -> None:
        """Wait until Envoy has only running pods: a drain in progress would end with the hub."""
        pods = {pod.address for workload in self.workloads.values() for pod in workload.pods}

        async def exactly() -> bool:
            return await self.fleet.hub.envoy_hosts() == pods

        await wait_until(exactly, "the backends of the old pods are gone")

    async def _settled(self) -> None:
        """Wait until both agents have renewed their Leases at the hub, after their initial lists."""
        started = await self._renewals()

        async def renewed() -> bool:
            now = await self._renewals()
            return all(now[name] != started[name] for name in now)

        await wait_until(renewed, "both agents have restarted")

    async def _renewals(self) -> dict[str, str | None]:
        leases = await self.fleet.cluster.list(LEASES, field_selector=f"metadata.name={AGENT_LEASE}")
        return {lease.metadata.namespace: lease.spec.renew_time for lease in leases}


class HTTPSContext(FleetContext):
    """A fleet whose members serve HTTPS by an Ingress or a Gateway ``web``; ``entry``: which of both, by member."""

    def __init__(self, *, fleet: Fleet, apis: EmbeddedApis, console: Console, plain: bool) -> None:
        super().__init__(fleet=fleet, apis=apis, console=console, plain=plain)
        low_ports = service_port(80) == 80
        self.entry: dict[str, Resource[Any]] = {"east": INGRESSES if low_ports else GATEWAYS, "west": GATEWAYS}

    def title(self, member: str) -> str:
        """Return the title of the traffic of a member."""
        return f"{member} {self.entry[member].kind} default/web"

    async def address(self, member: Member) -> str:
        """Return the address of a member's Ingress or Gateway, once it shows one."""
        return await (ingress_address if self.entry[member.name] is INGRESSES else gateway_address)(member, "web")

    def instead_of_ingress(self) -> list[str]:
        """Return a note that a Gateway takes the place of an Ingress; empty otherwise."""
        stands = self.entry["east"] is GATEWAYS
        return ["an Ingress is served at ports 80 and 443 only: a Gateway takes its place"] if stands else []


async def start_everything(context: FleetContext) -> None:
    """Start a hub and its members."""
    number = {2: "two", 3: "three"}[len(context.apis.children) - 1]
    context.progress.step_started(f"starting a hub, Envoy and {number} member clusters")
    await context.fleet.start()
    agents = (member.agent for member in context.fleet.members.values())
    processes = [*agents, context.fleet.hub, *context.apis.children.values()]
    names = ", ".join(f"{process.name} {process.pid}" for process in processes)
    context.progress.step_done(
        f"a hub and {number} members run, each with its own API", f"processes: {names}", *instead_of_low_ports()
    )


ZONE = "example.test"
DOMAIN = f"lb.{ZONE}"
#: The host name that the user of each member requests.
HOSTS = {"east": f"shop.{ZONE}", "west": f"api.{ZONE}"}
#: The name that moves from one address to another.
MOVING = f"moving.{ZONE}"
#: What is in the zone before there is a hub.
_RECORDS = ("mail A 192.0.2.25", "@ MX 10 mail", '@ TXT "v=spf1 -all"')
#: Certificates are valid from one minute before their issuance to two minutes after it, and renewed after one minute:
#: two thirds of the life are over then, and a third of it since issuance.
_BACKDATED, _LIFE = dt.timedelta(seconds=60), dt.timedelta(seconds=120)


class NamedClient:
    """Clients of one name: each connection resolves it at the zone's server, and verifies the certificate."""

    def __init__(self, host: str, bind: Bind, root: bytes) -> None:
        self.host = host
        self.https = HttpsClient(host, root)
        self._bind = bind

    async def addresses(self) -> set[str]:
        """Return the A records of the name at the zone's server; ``OSError`` when it does not answer."""
        try:
            return await self._bind.ask(self.host, "A")
        except dns.exception.DNSException as error:
            raise OSError(f"{self.host}: {type(error).__name__}") from error

    async def connect(self, host: str, port: int) -> Connection:
        """Return a new TLS connection to the resolved address; ``OSError`` when the name does not resolve."""
        return await self.https.connect(await self._address(host), port)

    async def connect_plainly(self, host: str, port: int) -> Connection:
        """Return a new connection without TLS to the resolved address."""
        return await asyncio.open_connection(await self._address(host), port)

    async def _address(self, host: str) -> str:
        addresses = sorted(await self.addresses())
        if not addresses:
            raise OSError(f"{host} does not resolve")
        return random.choice(addresses)  # noqa: S311 (as a resolver turns the answers)


class NamesContext(HTTPSContext):
    """``others``: the records of other owners in the zone."""

    def __init__(self, *, fleet: Fleet, apis: EmbeddedApis, console: Console, plain: bool) -> None:
        super().__init__(fleet=fleet, apis=apis, console=console, plain=plain)
        self.bind = Bind(fleet.directory / "bind", ZONE, records=_RECORDS)
        self.authority = AcmeServer(where=lambda _: ("127.0.0.1", 80), texts=self._texts, life=_LIFE)
        self.authority.backdated = _BACKDATED
        self.clients: dict[str, NamedClient] = {}
        self.others: dict[str, set[str]] = {}
        #: The Services between which the name moves.
        self.services: list[tuple[str, str]] = []

    def generated(self, member: str) -> str:
        """Return the host name that the hub generates for the Ingress or Gateway of a member."""
        kind = "" if self.entry[member] is INGRESSES else "-gw"
        return f"web-default{kind}.{member}.{DOMAIN}"

    def pods(self) -> Iterator[tuple[str, str]]:
        """Yield (title of its traffic, name) of every pod that should answer."""
        return ((self.title(name), pod.name) for name, workload in self.workloads.items() for pod in workload.pods)

    def ending(self, *, passed: bool) -> str:
        """Return the suffix of the summary: what was checked in addition to failed requests."""
        return f", {self.cut()} connections cut, every record of others still there" if passed else ""

    def commands(self) -> list[str]:
        """Return commands that the user can try while everything is kept running."""
        dig = f"  dig +short @127.0.0.1 -p {self.bind.port}"
        return [
            *self.kubectl("hostnames,dnszones,managedcertificates", "ingresses,gateways"),
            f"  fairlead names --kubeconfig {self.fleet.kubeconfig}",
            *(f"{dig} {client.host}     # {name}" for name, client in self.clients.items()),
        ]

    async def close(self) -> None:
        """End traffic, pods and all processes."""
        await super().close()
        await self.authority.close()
        await self.bind.kill()

    async def _texts(self, name: str) -> list[str]:
        """Return the TXT records of a name at the zone's server, unquoted."""
        return [text.strip('"') for text in await self.bind.ask(name, "TXT")]


_REFRESH_PER_S = 4
_PLAIN_EVERY_S = 10.0


class ProgressOutput:
    """The output of a demo while it runs: its steps, and below them on a terminal ``table``, else ``counts``."""

    def __init__(
        self, *, table: Callable[[], Table | None], counts: Callable[[], str], plain: bool, console: Console
    ) -> None:
        self._console = console
        self._table = table
        self._counts = counts
        self._doing = ""
        self._started_s = time.monotonic()
        self._live = None if plain or not self._console.is_terminal else self._make_live()
        self._ticker: asyncio.Task[None] | None = None

    @property
    def is_live(self) -> bool:
        """Return whether the table is shown."""
        return self._live is not None

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the demo started."""
        return time.monotonic() - self._started_s

    def _make_live(self) -> Live:
        return Live(
            console=self._console, get_renderable=self._render, refresh_per_second=_REFRESH_PER_S, transient=False
        )

    async def __aenter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        else:
            self._ticker = watched("ticker", self._tick())
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._doing = ""
        if self._ticker is not None:
            self._ticker.cancel()
        if self._live is not None:
            self._live.stop()

    def step_started(self, step: str) -> None:
        """Print the step that is running now."""
        self._doing = step

    def step_done(self, step: str, *facts: str) -> None:
        """Print a step that has passed, with the observed facts."""
        self._doing = ""
        self._print(Text(f"✓ {step}", style="green"), facts)

    def failed(self, step: str, *facts: str) -> None:
        """Print a check that has failed, with the observed facts."""
        self._doing = ""
        self._print(Text(f"✗ {step}", style="bold red"), facts)

    def _print(self, headline: Text, facts: tuple[str, ...]) -> None:
        lines = [Text(f"{self.elapsed_s:5.1f} s  ", style="dim") + headline]
        lines += [Text(f"           {fact}", style="dim") for fact in facts]
        for line in lines:
            self._console.print(line, soft_wrap=True)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_PLAIN_EVERY_S)
            if counts := self._counts():
                self._console.print(Text(f"{self.elapsed_s:5.1f} s    {counts}", style="dim"), soft_wrap=True)

    def _render(self) -> Group:
        parts: list[Text | Table] = []
        if self._doing:
            parts.append(Text(f"{self.elapsed_s:5.1f} s  … {self._doing}", style="yellow"))
        if table := self._table():
            parts += [Text(), table]
        return Group(*parts)


def counts_text(traffic: Traffic) -> str:
    """Return the counters of one address as one line of text."""
    count = traffic.count
    lost = f", {count.lost} lost with a killed pod" if count.lost else ""
    return f"{count.sent} sent, {count.answered} answered, {count.failed} failed{lost}"


def traffic_table(traffics: Mapping[str, Traffic]) -> Table:
    """Return the table of the counters of all addresses."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for title in ("SERVICE", "ADDRESS", "SENT", "ANSWERED", "FAILED", "LOST WITH POD", "ANSWERS BY POD"):
        table.add_column(title)
    for name, traffic in traffics.items():
        count = traffic.count
        failed = Text(str(count.failed), style="bold red" if count.failed else "green")
        table.add_row(
            name,
            f"{traffic.host}:{traffic.port}",
            str(count.sent),
            str(count.answered),
            failed,
            str(count.lost),
            answers_by_pod(count.by_pod),
        )
    return table


def answers_by_pod(answers: Mapping[str, int]) -> str:
    """Return the answers by pod, in the order of their start: ``web-1..3: 5 7 6``."""
    by_head: dict[str, dict[int, int]] = {}
    parts: list[str] = []
    for pod, count in sorted(answers.items()):
        head, _, number = pod.rpartition("-")
        if number.isdigit():
            by_head.setdefault(head, {})[int(number)] = count
        else:
            parts.append(f"{pod}: {count}")
    for head, counts in sorted(by_head.items()):
        numbers = sorted(counts)
        gapless = len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1
        which = f"{numbers[0]}..{numbers[-1]}" if gapless else ",".join(map(str, numbers))
        parts.append(f"{head}-{which}: {' '.join(str(counts[number]) for number in numbers)}")
    return "  ".join(parts)
