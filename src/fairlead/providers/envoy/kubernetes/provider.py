"""The Envoy provider in a cluster: an ``EnvoyProvider`` with all that its Deployments need around it.

    start    certificates (made or read) ─► xDS over mutual TLS ─► caches of our own objects
    lead     write what differs, issue what is missing, delete what no load balancer needs
    close    stop listening; objects and proxies stay

In: a Cluster, options, and whether this replica leads (``lead``). Out: the Provider protocol.
Never: writes anything but its first certificates while another replica leads.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
import structlog
from msgspec.structs import replace
from prometheus_client.registry import CollectorRegistry

from fairlead.api.json_text import decode
from fairlead.api.kubernetes import CONFIG_MAPS_WITH_DATA, ConfigMap
from fairlead.api.names import SYSTEM_NAMESPACE, replica_key
from fairlead.errors import BadConfiguration, FairleadError
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.model.in_words import host_port
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import Counted, Observed, Reading, Seen, Totals
from fairlead.providers.envoy.certificates import ClientCertificates, SharedAuthority, proxy_name
from fairlead.providers.envoy.fleet import ServerCertificate
from fairlead.providers.envoy.health_board import See
from fairlead.providers.envoy.kubernetes.fleet import DeploymentFleet
from fairlead.providers.envoy.kubernetes.health_exchange import HealthExchange, ReportedProxy
from fairlead.providers.envoy.kubernetes.manifests import DeploymentSettings
from fairlead.providers.envoy.kubernetes.objects import ClusterObjects
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.providers.envoy.store import HOLD_UNKNOWN_S
from fairlead.providers.envoy.traffic import EnvoyTraffic
from fairlead.runtime.background import end, keep_running
from fairlead.runtime.clock import Clock, SystemClock, wait_for
from fairlead.runtime.tls import client_context

_SWEEP_S = 300.0

log = structlog.get_logger(__name__)


class DeploymentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of proxies in the hub's cluster. ``identity`` is this replica's; ``data_dir`` holds its key files."""

    identity: str
    data_dir: Path
    listen: tuple[str, int] = ("0.0.0.0", 18_000)
    settings: DeploymentSettings = DeploymentSettings()


class DeploymentProvider(EnvoyProvider):
    """Load balancers on Envoys that run as Deployments."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        options: DeploymentOptions,
        registry: CollectorRegistry | None = None,
        clock: Clock | None = None,
        hold_unknown_s: float = HOLD_UNKNOWN_S,
    ) -> None:
        clock = clock or SystemClock()
        self._hold_unknown_s = hold_unknown_s
        self._leads = False
        self._sweep_clock = clock
        self._sweep_due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.shared = SharedAuthority(
            cluster=cluster,
            data_dir=options.data_dir,
            server_names=(options.settings.xds_host,),
            clock=clock,
            leading=self.leading,
        )
        self.certificates = ClientCertificates(cluster=cluster, shared=self.shared, clock=clock, leading=self.leading)
        self.objects = ClusterObjects(
            cluster=cluster, certificates=self.certificates, clock=clock, leading=self.leading
        )
        super().__init__(
            fleet=DeploymentFleet(kube=self.objects, settings=options.settings),
            xds_address=host_port(*options.listen),
            certificate=self.shared.files,
            registry=registry,
            hold_unknown_s=hold_unknown_s,
            cluster=cluster,
        )
        self.peers = Peers(cluster=cluster, identity=options.identity, changed=self._proxies_changed)
        self.health_exchange = HealthExchange(
            cluster=cluster,
            replica=replica_key(options.identity),
            streams=lambda: self._health.streams,
            changed=self._hint,
            clock=clock,
        )
        self._health.elsewhere = self._seen_elsewhere
        self._out_of_touch = OutOfTouch(
            silent_s=lambda: cluster.silent_s, disconnect=self.server.disconnect, clock=clock
        )
        self.traffic = ProxyTraffic(proxies=self._places, groups_of=self._groups_of, files=self.shared.files)

    def leading(self) -> bool:
        """Return whether this replica may write."""
        return self._leads

    def lead(self, leads: bool) -> None:
        """Store whether this replica leads; a new leader checks every object."""
        self._leads = leads
        if leads:
            self.objects.reconcile_all()
            self.certificates.reconcile_all()
            self._sweep_due.set()

    async def start(self) -> None:
        """Get certificates, listen for proxies, and read the objects in the cluster."""
        await self.shared.start()
        await super().start()
        parts = {
            "objects": self.objects.run,
            "certificates": self.certificates.run,
            "tls": self.shared.run,
            "peers": self.peers.run,
            "health": self.health_exchange.run,
            "sweeps": self._sweeps,
            "out-of-touch": self._out_of_touch.run,
        }
        # Independent tasks: a failed one is restarted, and the others continue.
        self._tasks = [keep_running(f"deployment-fleet-{name}", run) for name, run in parts.items()]
        await self.objects.wait_synced()

    def publish(self) -> None:
        """Allow sending; from now on it is known which objects no load balancer needs."""
        super().publish()
        asyncio.get_running_loop().call_later(self._hold_unknown_s, self._sweep_due.set)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Delete the load balancer; one that this process has never seen may have left its group's proxies behind."""
        exists = self._frontends.get(key) is not None
        await super().delete(key)
        if not exists:
            self._sweep_due.set()

    def _observe(self, key: LoadBalancerKey) -> Observed | None:
        """Return what all proxies have acknowledged, those of the other replicas included."""
        own = super()._observe(key)
        frontend = self._frontends.get(key)
        if own is None or frontend is None:
            return own
        elsewhere = {node: synced for group in frontend.groups for node, synced in self._elsewhere(group).items()}
        if not elsewhere:
            return own
        proxies, synced = len(elsewhere), sum(elsewhere.values())
        settled = not (own.rejected or frontend.serving.searching)
        programmed = settled and own.acknowledged == own.proxies and synced == proxies
        # A missing connection *here* is not a problem then; a missing address still is.
        where = self.fleet.addresses(key)
        return replace(
            own,
            programmed=programmed,
            proxies=own.proxies + proxies,
            acknowledged=own.acknowledged + synced,
            message=where.message,
        )

    def _elsewhere(self, group: str) -> dict[str, bool]:
        """Return the proxies that are connected to other replicas, and whether each is in sync."""
        return self.peers.of(group, here={session.node_id for session in self.server.sessions})

    def _seen_elsewhere(self, group: str) -> list[See]:
        """Return what each of the proxies of the other replicas sees."""

        def see(proxy: ReportedProxy | None, name: str, target: TargetKey) -> Seen:
            return Seen.WAITING if proxy is None else proxy.seen(name, target, self._health.targets(group, name))

        return [partial(see, proxy) for proxy in self.health_exchange.of(group, self._elsewhere(group))]

    def _places(self) -> dict[str, StatisticsPlace]:
        """Return where all proxies answer for their statistics, those of the other replicas included."""
        own = {
            session.node_id: StatisticsPlace(session.group.name, session.statistics) for session in self.server.sessions
        }
        return self.peers.places | own

    def _groups_of(self, key: LoadBalancerKey) -> tuple[str, ...]:
        frontend = self._frontends.get(key)
        return frontend.groups if frontend is not None else ()

    async def close(self) -> None:
        """Stop listening; the proxies keep serving."""
        self._leads = False
        await end(*self._tasks)
        await super().close()

    async def _sweeps(self) -> None:
        """Sweep when there is a reason to, and every few minutes in case one was missed."""
        while True:
            await wait_for(self._sweep_due, self._sweep_clock, _SWEEP_S)
            self._sweep_due.clear()
            if not self._leads:
                continue
            try:
                await self.sweep()
            except FairleadError as error:
                log.warning("not swept", sentence=error.sentence)


#: A hub asks for its lease every two seconds: after so long another one may lead.
SILENT_S = 20.0
_LOOK_S, _LONGEST_S = 5.0, 600.0


class OutOfTouch:
    """``silent_s`` answers for how many seconds the API has not answered."""

    def __init__(
        self, *, silent_s: Callable[[], float], disconnect: Callable[[], Awaitable[None]], clock: Clock
    ) -> None:
        self._silent_s = silent_s
        self._disconnect = disconnect
        self._clock = clock

    async def _until_disconnected(self) -> None:
        while True:
            try:
                return await self._disconnect()
            except BadConfiguration as error:
                # Another process has the port for a moment: without it no proxy finds this hub at all.
                log.warning("listening for proxies is tried again", sentence=error.sentence, detail=error.detail)
                await self._clock.sleep(1.0)

    async def run(self) -> None:
        """Check until cancelled."""
        due_s, pause_s = 0.0, SILENT_S
        while True:
            await self._clock.sleep(_LOOK_S)
            silent_s = self._silent_s()
            if silent_s < SILENT_S:
                due_s, pause_s = 0.0, SILENT_S
            elif self._clock.monotonic() >= due_s:
                log.warning("the API does not answer; proxies may find another hub", silent_s=round(silent_s))
                await self._until_disconnected()
                due_s, pause_s = self._clock.monotonic() + pause_s, min(2 * pause_s, _LONGEST_S)


REPORTS = "fairlead-proxies"
_IN_SYNC = "SYNCED"


class _Proxy(msgspec.Struct, frozen=True):
    node: str = ""
    group: str = ""
    state: str = ""
    statistics: str = ""


class _Report(msgspec.Struct, frozen=True):
    proxies: list[_Proxy] = []


class Peers:
    """The proxies of the other replicas; ``changed`` is called with each group whose proxies have changed."""

    def __init__(self, *, cluster: Cluster, identity: str, changed: Callable[[str], None]) -> None:
        self._own = replica_key(identity)
        self._changed = changed
        self._proxies: dict[str, dict[str, bool]] = {}
        #: Where the proxies of the other replicas answer for their statistics, by node.
        self.places: dict[str, StatisticsPlace] = {}
        self._cache: WatchCache[ConfigMap] = WatchCache(
            cluster, CONFIG_MAPS_WITH_DATA, namespace=SYSTEM_NAMESPACE, field_selector=f"metadata.name={REPORTS}"
        )
        self._cache.on_change(self._read)
        self.run = self._cache.run

    def of(self, group: str, *, here: Collection[str]) -> dict[str, bool]:
        """Return the proxies of ``group`` that are elsewhere and not ``here``, and whether each of them is in sync."""
        return {node: synced for node, synced in self._proxies.get(group, {}).items() if node not in here}

    def _read(self, _old: ConfigMap | None, new: ConfigMap | None) -> None:
        proxies: dict[str, dict[str, bool]] = {}
        self.places = {}
        for identity, text in sorted((new.data or {}).items() if new is not None else ()):
            if identity == self._own:
                continue
            try:
                report = decode(text, _Report)
            except msgspec.DecodeError:
                continue  # of a hub of another version
            for proxy in report.proxies:
                proxies.setdefault(proxy.group, {})[proxy.node] = proxy.state == _IN_SYNC
                self.places[proxy.node] = StatisticsPlace(proxy.group, proxy.statistics)
        changed = [group for group in {*proxies, *self._proxies} if proxies.get(group) != self._proxies.get(group)]
        self._proxies = proxies
        for group in changed:
            self._changed(group)


_ANSWER_S = 3.0
#: The number of concurrent requests.
_AT_ONCE = 16
_UNKNOWN = "does not say where its statistics are: it was started by an older version"


class StatisticsPlace(NamedTuple):
    """Where the statistics of a proxy are, ``address:port``; empty when it does not say. ``group``: whom it serves."""

    group: str
    address: str = ""


class ProxyTraffic:
    """Reads the counts of all proxies.

    ``proxies`` returns their places by node id, ``groups_of`` the groups that serve a load balancer.
    ``files`` are the hub's own certificate, and the authority of both.
    """

    def __init__(
        self,
        *,
        proxies: Callable[[], Mapping[str, StatisticsPlace]],
        groups_of: Callable[[LoadBalancerKey], Sequence[str]],
        files: ServerCertificate,
    ) -> None:
        self._proxies = proxies
        self._groups_of = groups_of
        self._files = files
        #: The load balancers whose targets are read one by one.
        self.targets_of: Callable[[], Iterable[LoadBalancerKey]] = tuple
        self._readers: dict[tuple[str, StatisticsPlace], EnvoyTraffic] = {}
        self._context: tuple[tuple[bytes, ...], ssl.SSLContext] | None = None
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def read(self) -> Sequence[Reading]:
        """Return the load balancers whose counts have changed, by proxy."""
        proxies = self._proxies()
        for gone in self._readers.keys() - proxies.items():
            del self._readers[gone]
        return await asyncio.gather(*(self._read(node, place) for node, place in proxies.items()))

    async def _read(self, node: str, place: StatisticsPlace) -> Reading:
        name = f"proxy {node} of group {place.group}"
        if not place.address:
            return Reading(name, problem=f"{name} {_UNKNOWN}; restart its Deployment")

        async def get(path: str) -> tuple[int, str]:
            return await self._get(place, path)

        reader = self._readers.setdefault((node, place), EnvoyTraffic(get, name=name))
        reader.targets_of = self.targets_of
        async with self._free:
            (reading,) = await reader.read()
        if reading.problem:
            return replace(reading, problem=f"{reading.problem} at {place.address}")

        def of_group(counts: Mapping[Counted, Totals]) -> dict[Counted, Totals]:
            return {
                counted: totals
                for counted, totals in counts.items()
                if place.group in self._groups_of(counted.load_balancer)
            }

        grown = of_group(reading.grown) if reading.grown is not None else None
        return Reading(name, of_group(reading.totals), gone=reading.gone, grown=grown, uptime_s=reading.uptime_s)

    async def _get(self, place: StatisticsPlace, path: str) -> tuple[int, str]:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        try:
            context = self._tls()
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(
                    f"https://{place.address}{path}", ssl=context, server_hostname=proxy_name(place.group)
                ) as answer,
            ):
                return answer.status, await answer.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return 0, str(error)

    def _tls(self) -> ssl.SSLContext:
        """Return the hub's credentials, reloaded after its certificate is renewed."""
        files = (self._files.certificate, self._files.key, self._files.client_ca)
        content = tuple(file.read_bytes() for file in files)
        if self._context is None or self._context[0] != content:
            context = client_context(content[2])
            context.load_cert_chain(self._files.certificate, self._files.key)
            self._context = content, context
        return self._context[1]
