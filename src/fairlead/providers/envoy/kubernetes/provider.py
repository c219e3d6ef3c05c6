"""The Envoy provider in a cluster: an ``EnvoyProvider`` with all that its Deployments need around it.

    start    certificates (made or read) ─► xDS over mutual TLS ─► caches of our own objects
    lead     write what differs, issue what is missing, delete what no load balancer needs
    close    stop listening; objects and proxies stay

In: a Cluster, options, and whether this replica leads (``lead``). Out: the Provider protocol.
Never: writes anything but its first certificates while another replica leads.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import structlog
from prometheus_client.registry import CollectorRegistry

from fairlead.api.naming import replica_key
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.model.host_port import host_port
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import Observed, Seen
from fairlead.providers.envoy.health_board import See
from fairlead.providers.envoy.kubernetes.authority import SharedAuthority
from fairlead.providers.envoy.kubernetes.client_certificates import ClientCertificates
from fairlead.providers.envoy.kubernetes.deployment_manifests import DeploymentSettings
from fairlead.providers.envoy.kubernetes.fleet import DeploymentFleet
from fairlead.providers.envoy.kubernetes.health_exchange import HealthExchange
from fairlead.providers.envoy.kubernetes.health_report import ReportedProxy
from fairlead.providers.envoy.kubernetes.objects import ClusterObjects
from fairlead.providers.envoy.kubernetes.out_of_touch import OutOfTouch
from fairlead.providers.envoy.kubernetes.peers import Peers
from fairlead.providers.envoy.kubernetes.proxy_traffic import Place, ProxyTraffic
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.providers.envoy.unknown import HOLD_UNKNOWN_S
from fairlead.runtime.background import end, keep_running
from fairlead.runtime.clock import Clock, SystemClock, wait_for

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
            server_name=options.settings.xds_host,
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
        self.traffic = ProxyTraffic(proxies=self._places, group_of=self._group_of, files=self.shared.files)

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
        """Get certificates, listen for proxies, and learn what is in the cluster."""
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
        # Each by itself: what fails is started again, and the others go on.
        self._tasks = [keep_running(f"deployment-fleet-{name}", run) for name, run in parts.items()]
        await self.objects.wait_synced()

    def publish(self) -> None:
        """Allow sending; from now on it is known which objects no load balancer needs."""
        super().publish()
        asyncio.get_running_loop().call_later(self._hold_unknown_s, self._sweep_due.set)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Delete the load balancer; one that this process has never seen may have left its group's proxies behind."""
        known = self._frontends.get(key) is not None
        await super().delete(key)
        if not known:
            self._sweep_due.set()

    def _observe(self, key: LoadBalancerKey) -> Observed | None:
        """Return what all proxies have acknowledged, those of the other replicas included."""
        own = super()._observe(key)
        frontend = self._frontends.get(key)
        if own is None or frontend is None:
            return own
        elsewhere = self._elsewhere(frontend.group)
        if not elsewhere:
            return own
        proxies, synced = len(elsewhere), sum(elsewhere.values())
        settled = not (own.rejected or frontend.serving.searching)
        programmed = settled and own.acknowledged == own.proxies and synced == proxies
        # That no proxy is connected *here* is no problem then; an address that is missing still is.
        where = self.fleet.addresses(key)
        return msgspec.structs.replace(
            own,
            programmed=programmed,
            proxies=own.proxies + proxies,
            acknowledged=own.acknowledged + synced,
            message=where.message,
        )

    def _elsewhere(self, group: str) -> dict[str, bool]:
        """Return the proxies that are connected to other replicas, and whether each has what it should."""
        return self.peers.of(group, here={session.node_id for session in self.server.sessions})

    def _seen_elsewhere(self, group: str) -> list[See]:
        """Return what each of the proxies of the other replicas sees."""
        return [self._sight(group, proxy) for proxy in self.health_exchange.of(group, self._elsewhere(group))]

    def _sight(self, group: str, proxy: ReportedProxy | None) -> See:
        def see(name: str, target: TargetKey) -> Seen:
            return Seen.WAITING if proxy is None else proxy.seen(name, target, self._health.targets(group, name))

        return see

    def _places(self) -> dict[str, Place]:
        """Return where all proxies answer for their statistics, those of the other replicas included."""
        own = {session.node_id: Place(session.group.name, session.statistics) for session in self.server.sessions}
        return self.peers.places | own

    def _group_of(self, key: LoadBalancerKey) -> str | None:
        frontend = self._frontends.get(key)
        return frontend.group if frontend is not None else None

    async def close(self) -> None:
        """Stop listening; the proxies go on serving."""
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
