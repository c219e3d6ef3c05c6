"""Run a hub as a process: a cluster, a provider, a Hub, with their pages and reports.

In: ``HubSettings``. Out: ``run_hub`` returns after a clean stop, or raises one error with a sentence.
Never ends a local Envoy, except with ``stop_proxy`` after a clean stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from prometheus_client import CollectorRegistry

from fairlead import __version__
from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES
from fairlead.api.httploadbalancer import (
    HTTP_LOAD_BALANCERS,
    LOAD_BALANCER_ROUTES,
    HTTPLoadBalancer,
    LoadBalancerRoute,
    RouteKey,
)
from fairlead.api.intent import IntentObject
from fairlead.api.kubernetes import CONFIG_MAPS, LEASES, Lease
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES
from fairlead.api.names import DEFAULT_CLASS, GROUP, KERNEL_PROVIDER, MANAGER_HUB, SYSTEM_NAMESPACE, fit, replica_key
from fairlead.api.poolservice import POOL_SERVICES, PoolService
from fairlead.api.proxymachine import PROXY_MACHINES, ProxyMachine
from fairlead.api.times import wire_time
from fairlead.errors import FairleadError
from fairlead.hub.app import Hub, HubConfig
from fairlead.hub.inventory import IntentObjects, Inventory
from fairlead.hub.providers.registry import installed_providers
from fairlead.hub.tenants.usage import Usage
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import CONTROLLER_QPS, Cluster
from fairlead.kube.lease import Heartbeat
from fairlead.kube.transport import KubeMetrics
from fairlead.machine.checks import allow_nonlocal_bind
from fairlead.model.in_words import listed
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Counted, CountsTraffic, Reading, ReadsTargets, Totals, TrafficReader
from fairlead.page.board import Board
from fairlead.page.routes import RouteRows
from fairlead.page.tables import (
    Detail,
    LoadBalancers,
    Members,
    Objects,
    Place,
    Plans,
    PoolTable,
    Proxies,
    SetServices,
    ThisHub,
    certificate_item,
    class_item,
    detail_of,
    group_item,
    machine_item,
    name_item,
    region_item,
    target_status_of,
    zone_item,
)
from fairlead.page.timeline import Timeline
from fairlead.page.traffic import Traffic, TrafficMetrics, identity_of
from fairlead.page.web import AllRights, TokenGate, WebPage
from fairlead.providers.envoy.envoy_process import directory_of, find_binary, hub_directory, low_ports_problem
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.providers.envoy.traffic import EnvoyTraffic
from fairlead.providers.kernel import KernelProvider
from fairlead.runtime.background import CoroutineFunction, Supervisor
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.runtime.telemetry import StatusServer, Telemetry
from fairlead.runtime.tls import is_loopback
from fairlead.standalone.hub_settings import HubSettings, check_hub
from fairlead.standalone.process import FIRST_CALLS, kept_identity, new_identity, orphans_problem, wait_for_api
from fairlead.standalone.proxy_report import NAME, ProxyReporter, read_reports
from fairlead.standalone.right_cluster import check_hub_side, check_own_member
from fairlead.status.fleet import ProxyRow
from fairlead.status.machines import AnnouncedRow, announced_rows

if TYPE_CHECKING:
    from fairlead.hub.machines.placement import Placements
    from fairlead.hub.machines.server import MachineEndpoint
    from fairlead.standalone.own_machine import OwnMachine

log = structlog.get_logger(__name__)

_STOP_S = 4.0


async def run_hub(
    settings: HubSettings,
    *,
    supervisor: Supervisor | None = None,
    ready: Callable[[], None] | None = None,
    problems: Callable[[], list[str]] = list,
) -> None:
    """Run a hub until SIGTERM; ``ready`` is called once everything is published to the data plane.

    ``problems``: sentences of what else is in this process, for /readyz.
    """
    registry = CollectorRegistry()
    metrics = KubeMetrics(registry)
    async with Cluster.from_kubeconfig(
        settings.kubeconfig, context=settings.context, name="hub", qps=CONTROLLER_QPS, metrics=metrics
    ) as cluster:
        if not await wait_for_api(lambda: _check(settings, cluster), pages=settings.metrics):
            return
        beside = _SideTask(ready, problems)
        await _run(settings, cluster, registry, supervisor or Supervisor(stop_deadline_s=_STOP_S), beside)


async def _check(settings: HubSettings, cluster: Cluster) -> None:
    async with Cluster(cluster.config, name="hub", policy=FIRST_CALLS) as first:
        if settings.own_member:
            await check_own_member(first)
        else:
            await check_hub_side(first, new_hub=settings.new_hub)
        await check_hub(
            first, deployment=settings.deployment, machines=settings.has_machines, announce=settings.announce
        )


async def _run(
    settings: HubSettings, cluster: Cluster, registry: CollectorRegistry, supervisor: Supervisor, beside: _SideTask
) -> None:
    if settings.announce:
        allow_nonlocal_bind()
    parts = _parts(settings, cluster, registry)
    provider, fleet, identity = parts.provider, parts.fleet, parts.identity
    clock = SystemClock()
    endpoint: MachineEndpoint | None = None
    kernel = KernelProvider(clock=clock)

    def led(leads: bool) -> None:
        parts.on_lead(leads)
        if endpoint is not None:
            endpoint.machines.lead()

    hub = Hub(
        cluster=cluster,
        providers={DEFAULT_CLASS: provider} | ({KERNEL_PROVIDER: kernel} if settings.has_machines else {}),
        config=HubConfig(
            identity=identity,
            address_pool=settings.pool(),
            region=settings.region,
            domain=settings.domain,
            loopback_targets=settings.loopback_targets(),
            tenant_ports=settings.tenant_ports,
            bound_in_tenants=settings.deployment,
            reclaim_lease=fleet is not None,
            machines=settings.has_machines,
        ),
        clock=clock,
        telemetry=Telemetry(registry),
        factories=installed_providers(
            cluster=cluster, clock=clock, registry=registry, without=frozenset({DEFAULT_CLASS})
        ),
        on_lead=led,
    )
    if fleet is not None and hub.inventory.machines is not None:
        endpoint = _machine_endpoint(settings, cluster, hub, parts, hub.inventory.machines, kernel)
        place_on_machines(endpoint.machines.placements, provider, fleet)
        kernel.on_change(endpoint.machines.placements.acknowledged)
        registry.register(endpoint.machines.metrics)
    reporter = ProxyReporter(
        cluster=cluster,
        identity=identity,
        proxies=lambda: _rows(provider),
        address_pool=settings.address_pool,
        clock=clock,
    )
    replicas = Replicas(
        cluster=cluster,
        identity=identity,
        leading=lambda: hub.leading,
        returned=reporter.again,
        gone=endpoint.machines.drop_replica if endpoint is not None else parts.gone,
        clock=clock,
    )

    def published(run: CoroutineFunction) -> CoroutineFunction:
        # By then our kinds and our namespace exist, and no proxy looks STALE only because nothing was sent to it yet.
        async def begin() -> None:
            await hub.publication.wait()
            await run()

        return begin

    usage = Usage(
        cluster=cluster,
        inventory=hub.inventory,
        clock=clock,
        name=_usage_name(settings, identity),
        metering=lambda: fleet is not None or hub.leading,
        leading=lambda: hub.leading,
    )
    # Shifts, drains and drills need figures with and without a page.
    readers = (*parts.readers, provider.machine_traffic)
    traffic = make_traffic(hub, readers, registry, clock=clock, now=cluster.server_clock.now, taken=usage.take)
    supervisor.spawn("usage", published(lambda: usage.run(traffic.refresh)), restart=True)
    supervisor.spawn("traffic", traffic.run, restart=True)
    if settings.metrics is not None:

        def not_ready() -> list[str]:
            return [*hub.not_ready(), *parts.problems(), *beside.problems()]

        regions = WatchCache(cluster, POOL_SERVICES)
        timeline = Timeline(hub.inventory, hub.history, clock=clock, now=cluster.server_clock.now)
        supervisor.spawn(
            "timeline",
            lambda: timeline.run(lambda: _rows(provider), lambda: hub.elector.holder, identity),
            restart=True,
        )
        supervisor.spawn("regions", published(regions.run))
        page = make_page(
            hub,
            cluster,
            identity=identity,
            host=settings.metrics[0],
            deployment=settings.deployment,
            address_pool=settings.address_pool,
            proxies=lambda: _rows(provider),
            unhealthy=provider.unhealthy,
            problems=not_ready,
            traffic=traffic,
            timeline=timeline,
            regions=regions,
            announced=_announced(endpoint),
            clock=clock,
        )
        pages = StatusServer(*settings.metrics, registry, not_ready, page.add_to, traffic.refresh)
        supervisor.spawn("pages", pages.run)
    supervisor.spawn("hub", hub.run)
    # A task that serves no traffic is restarted when it fails: the hub continues.
    supervisor.spawn("proxy report", published(reporter.run), restart=True)
    supervisor.spawn("replicas", published(replicas.run), restart=True)
    if endpoint is not None:
        supervisor.spawn("machines", published(endpoint.run), restart=True)
    if fleet is not None:
        if settings.announce and endpoint is not None:
            machine = _own_machine(settings, hub, endpoint, provider, kernel, fleet, identity)
            supervisor.spawn("own machine", published(lambda: machine.begin(supervisor)))
        _warn_of_local_problems()
        supervisor.spawn("ports", lambda: watch_ports(provider.refusals, clock=clock), restart=True)
    supervisor.spawn("ready", published(lambda: _announce(beside.ready)))
    try:
        await supervisor.run_until_stopped()
        if settings.stop_proxy and fleet is not None:
            log.info("ending the local envoy")
            await _end(settings, fleet)
    finally:
        await provider.close()  # the hub closes it too, if it was reached


def _usage_name(settings: HubSettings, identity: str) -> str:
    """Return the owner of the usage: the Envoys of one machine, or all proxies of a hub in a cluster."""
    name = settings.region or "hub" if settings.deployment else replica_key(identity)
    return fit(re.sub(r"[._]", "-", name.lower()), identity=(name,))


def _warn_of_local_problems() -> None:
    if problem := low_ports_problem(find_binary()):
        log.warning("ports below 1024 may not be opened", sentence=problem)
    if problem := orphans_problem():
        log.warning("an envoy without its data directory", sentence=problem)


async def _end(settings: HubSettings, fleet: LocalFleet) -> None:
    """End the local Envoys, and take their addresses off the network."""
    await fleet.stop()
    if settings.announce:
        from fairlead.standalone.own_machine import withdraw

        await withdraw(settings.data_dir)


class _SideTask(NamedTuple):
    """A task that runs along with the hub once it serves, and its problems for /readyz."""

    ready: Callable[[], None] | None
    problems: Callable[[], list[str]]


class _HubParts(NamedTuple):
    provider: EnvoyProvider
    identity: str
    fleet: LocalFleet | None = None
    on_lead: Callable[[bool], None] = lambda _leads: None
    problems: Callable[[], list[str]] = list
    gone: Callable[[str], Awaitable[None]] | None = None
    readers: Sequence[TrafficReader] = ()


def _parts(settings: HubSettings, cluster: Cluster, registry: CollectorRegistry) -> _HubParts:
    if settings.deployment:
        return _deployment(settings, cluster, registry)
    fleet = LocalFleet(data_dir=settings.data_dir, concurrency=settings.envoy_concurrency, envoys=settings.envoys)
    # The lock comes first: a second hub must not take the socket, or the name, of the first one.
    fleet.prepare()
    xds_address = f"unix:{fleet.xds_socket}"
    provider = EnvoyProvider(fleet=fleet, xds_address=xds_address, registry=registry, cluster=cluster)
    readers = [
        EnvoyTraffic(envoy.admin, name=f"Envoy {group} of this machine") for group, envoy in fleet.envoys.items()
    ]
    return _HubParts(provider, kept_identity(settings.data_dir), fleet, readers=readers)


def _deployment(settings: HubSettings, cluster: Cluster, registry: CollectorRegistry) -> _HubParts:
    # Imported here: a hub on one machine does not load the cryptography.
    from fairlead.providers.envoy.kubernetes.manifests import DeploymentSettings
    from fairlead.providers.envoy.kubernetes.provider import DeploymentOptions, DeploymentProvider

    defaults = DeploymentSettings()
    host, port = settings.xds_address
    proxies = DeploymentSettings(
        xds_host=host, xds_port=port, image=settings.proxy_image or defaults.image, replicas=settings.proxy_replicas
    )
    identity = new_identity()
    options = DeploymentOptions(
        identity=identity, data_dir=settings.data_dir, listen=settings.xds_listen, settings=proxies
    )
    provider = DeploymentProvider(cluster=cluster, options=options, registry=registry)
    return _HubParts(
        provider,
        identity,
        on_lead=provider.lead,
        problems=provider.objects.problems,
        gone=provider.health_exchange.drop,
        readers=(provider.traffic,),
    )


def _machine_endpoint(
    settings: HubSettings,
    cluster: Cluster,
    hub: Hub,
    parts: _HubParts,
    machines: WatchCache[ProxyMachine],
    kernel: KernelProvider,
) -> MachineEndpoint:
    # Imported here: a hub without proxy machines does not load the cryptography.
    from fairlead.hub.machines.server import MachineEndpoint

    return MachineEndpoint(
        cluster=cluster,
        inventory=hub.inventory,
        machines=machines,
        proxies=parts.provider,
        kernel=kernel,
        xds=parts.provider.server,
        identity=parts.identity,
        data_dir=settings.data_dir,
        listen=settings.machines,
        clock=cluster.clock,
        leading=lambda: hub.leading and hub.elector.is_leader,
        epoch=lambda: hub.elector.epoch,
    )


def _own_machine(
    settings: HubSettings,
    hub: Hub,
    endpoint: MachineEndpoint,
    provider: EnvoyProvider,
    kernel: KernelProvider,
    fleet: LocalFleet,
    identity: str,
) -> OwnMachine:
    # Imported here: a hub that announces nothing does not load the announcers.
    from fairlead.standalone.own_machine import LedByThisHub, OwnMachine, own_name

    name = own_name()
    led = LedByThisHub(
        endpoint.machines,
        name=name,
        epoch=lambda: hub.elector.epoch,
        follows=lambda: hub.elector.holder not in ("", identity),
    )
    return OwnMachine(name, hub=led, provider=provider, fleet=fleet, kernel=kernel, data_dir=settings.data_dir)


def place_on_machines(placements: Placements, provider: EnvoyProvider, fleet: LocalFleet) -> None:
    """Have load balancers with recorded machines served there, and new ones wait for machines where there are any."""
    fleet.awaits_machines, fleet.has_machines = placements.awaits_machines, True
    provider.on_change(placements.acknowledged)


def _announced(endpoint: MachineEndpoint | None) -> Callable[[IntentObject], Iterable[AnnouncedRow]]:
    """Return how to ask which proxy machines announce the addresses of a load balancer."""

    def announced(obj: IntentObject) -> Iterable[AnnouncedRow]:
        if endpoint is None or not endpoint.machines.placements.is_ours(obj):
            return ()
        machines = endpoint.machines
        groups = list(machines.placements.groups.values())
        members = list(machines.machines.values())
        return announced_rows([obj], members, machines.announcements.in_force(), groups).values()

    return announced


def _rows(provider: EnvoyProvider) -> list[ProxyRow]:
    return [
        ProxyRow(proxy.node_id, proxy.group, proxy.state, proxy.refused, proxy.statistics)
        for proxy in provider.proxies()
    ]


async def _announce(ready: Callable[[], None] | None) -> None:
    log.info("ready")
    if ready is not None:
        ready()


def make_traffic(
    hub: Hub,
    own: Sequence[TrafficReader],
    registry: CollectorRegistry,
    *,
    clock: Clock,
    now: Callable[[], datetime],
    taken: Callable[[Sequence[Reading]], None] = lambda _readings: None,
) -> Traffic:
    """Build the figures of ``hub``: of its ``own`` proxies, and of the providers that classes name.

    ``taken`` is called with each reading.
    """
    metrics = TrafficMetrics(clock=clock)

    def readers() -> Sequence[TrafficReader]:
        counting = [runner.provider for runner in hub.providers.durable.values()]
        of_classes = [provider.traffic for provider in counting if isinstance(provider, CountsTraffic)]
        return [*of_classes, *own]

    def count(added: Mapping[Counted, Totals]) -> None:
        metrics.add(added)
        hub.watched.add(added)

    def budget(namespace: str) -> int:
        tenant = hub.inventory.tenant_of(namespace)
        return tenant.spec.max_metric_series if tenant is not None else 0

    identity = partial(identity_of, hub.inventory)
    traffic = Traffic(readers, clock=clock, now=now, added=count, taken=taken, identity=identity)
    hub.watched.ask, hub.watched.active, hub.watched.problem = traffic.ask, traffic.active, traffic.problem
    hub.watched.read = lambda: traffic.refresh(0.0)
    for reader in own:
        if isinstance(reader, ReadsTargets):
            reader.targets_of = hub.watched.with_targets
    metrics.active, metrics.budget = traffic.active, budget
    registry.register(metrics)
    return traffic


_TAKEN = "Address already in use"
_POLL_S = 1.0
_NET, _PROC = Path("/proc/self/net"), Path("/proc")


class PortOwner(NamedTuple):
    """A process, and how it was started."""

    pid: int
    command: tuple[str, ...]


def owner_of(place: str) -> PortOwner | None:
    """Return the process that listens at ``address:port``; None if there is none, or it is not visible to us."""
    address, _, port = place.rpartition(":")
    address = address.strip("[]")
    any_address, tables = ("::", ("tcp6", "udp6")) if ":" in address else ("0.0.0.0", ("tcp", "udp"))
    with contextlib.suppress(OSError, ValueError):
        wanted = {f"{_hex(bound)}:{int(port):04X}" for bound in (address, any_address)}
        rows = [row.split() for table in tables for row in (_NET / table).read_text().splitlines()[1:]]
        # 0A is TCP's LISTEN, 07 an open UDP socket.
        sockets = {f"socket:[{row[9]}]" for row in rows if row[1] in wanted and row[3] in {"0A", "07"}}
        for process in _PROC.iterdir():
            if process.name.isdigit() and _has_one_of(process, sockets):
                command = process.joinpath("cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                return PortOwner(int(process.name), tuple(map(os.fsdecode, command)))
    return None


def taken_ports(refusals: Sequence[str], owner: Callable[[str], PortOwner | None] = owner_of) -> str:
    """Return one sentence about ports that another process has; empty when there are none."""
    taken = [text for text in refusals if _TAKEN in text]
    if not taken:
        return ""
    places = [text.partition("cannot bind '")[2].partition("'")[0] or text for text in taken]
    start = f"this hub's Envoy cannot open {listed(places, 1)}"
    step = "stop that process, or remove the address from --address-pool"
    process = owner(places[0])
    if process is None:
        return f"{start}: another process of this machine uses it; {step}"
    directory = directory_of(process.command)
    if directory is None:
        name = Path(process.command[0]).name
        return f"{start}: process {process.pid} ({name}) uses it; {step}"
    return (
        f"{start}: another hub's Envoy has it (process {process.pid}, --data-dir {hub_directory(directory)}). Hubs of "
        "one API on one machine share one --data-dir: start this hub with it when the other has ended. "
        "Or end that Envoy. A hub of another API needs an --address-pool of its own"
    )


async def watch_ports(refusals: Callable[[], Sequence[str]], *, clock: Clock) -> None:
    """Log the sentence whenever it becomes true, until cancelled."""
    logged: list[str] = []
    while True:
        now = [text for text in refusals() if _TAKEN in text]
        if now != logged:
            logged = now
            if sentence := await asyncio.to_thread(taken_ports, now):
                log.error("ports are taken", sentence=sentence)
            else:
                log.info("all ports are open")
        await clock.sleep(_POLL_S)


def _hex(address: str) -> str:
    """Format an address as in the tables: every four bytes in native byte order."""
    packed = ip_address(address).packed
    parts = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(part, sys.byteorder):08X}" for part in parts)


def _has_one_of(process: Path, sockets: set[str]) -> bool:
    with contextlib.suppress(OSError):
        return any(_link(descriptor) in sockets for descriptor in process.joinpath("fd").iterdir())
    return False


def _link(descriptor: Path) -> str:
    with contextlib.suppress(OSError):
        return str(descriptor.readlink())
    return ""


#: A label of its own: with the agents' one, every heartbeat would wake the hub's list of members.
LABEL_REPLICA = f"{GROUP}/hub-replica"
_INTERVAL_S = 30.0


class Replicas:
    """Renews one replica's Lease, and watches those of the others while it leads.

    ``returned`` is called when our own Lease was not renewed for so long that a leader may have dropped our report,
    ``gone`` with the key of a replica whose report is dropped.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        identity: str,
        leading: Callable[[], bool],
        returned: Callable[[], None],
        gone: Callable[[str], Awaitable[None]] | None = None,
        clock: Clock,
        gone_s: float = 300.0,
    ) -> None:
        self._cluster = cluster
        self._key = replica_key(identity)
        self._leading = leading
        self._returned = returned
        self._gone = gone
        self._clock = clock
        self._gone_s = gone_s
        self._lived_s = clock.monotonic()
        self._signs: dict[str, tuple[str, float]] = {}
        self._heartbeat = Heartbeat(
            cluster,
            namespace=SYSTEM_NAMESPACE,
            name=fit(f"fairlead-replica-{self._key.lower().replace('_', '-')}", identity=(self._key,)),
            identity=self._key,
            interval_s=_INTERVAL_S,
            labels={LABEL_REPLICA: "true"},
            manager=MANAGER_HUB,
            clock=clock,
        )

    async def run(self) -> None:
        """Renew the Lease, and check the others, until cancelled."""
        problem = ""
        while True:
            try:
                await self.renew()
                problem = ""
            except FairleadError as error:
                if problem != error.sentence:
                    log.warning("hub replicas", sentence=error.sentence, detail=error.detail)
                problem = error.sentence
            await self._clock.sleep(_INTERVAL_S)

    async def renew(self) -> None:
        """Renew the Lease once; the leader checks those of the others.

        Raises:
            FairleadError: the hub's API cannot be asked, or refuses.
        """
        await self._heartbeat.beat()
        # Half of the time, because the leader counts from its own last check.
        if self._clock.monotonic() - self._lived_s > self._gone_s / 2:
            self._returned()
        self._lived_s = self._clock.monotonic()
        if self._leading():
            present = await self._cluster.list(LEASES, SYSTEM_NAMESPACE, label_selector=LABEL_REPLICA)
            leases = {lease.spec.holder_identity or "": lease for lease in present}
            reports = await read_reports(self._cluster)
            now_s = self._clock.monotonic()
            before, self._signs = self._signs, {}
            for key in sorted({*leases, *reports} - {self._key}):
                sign = leases[key].metadata.resource_version if key in leases else ""
                last_sign, since_s = before.get(key, (sign, now_s))
                self._signs[key] = (sign, since_s if last_sign == sign else now_s)
            dead = [key for key, (_, since_s) in self._signs.items() if now_s - since_s >= self._gone_s]
            for key in dead:
                await self._drop(key, leases.get(key), reported=key in reports)
                del self._signs[key]

    async def _drop(self, key: str, lease: Lease | None, *, reported: bool) -> None:
        # The last of the two that goes is how a later sweep finds the key again when something fails before that.
        if reported and lease is not None:
            # First, and only as we saw it: one that has just come back keeps both.
            await self._delete(lease)
        if self._gone is not None:
            await self._gone(key)
        if reported:
            patch = {"data": {key: None}}
            await self._cluster.merge_patch(CONFIG_MAPS, SYSTEM_NAMESPACE, NAME, patch, manager=MANAGER_HUB)
        elif lease is not None:
            await self._delete(lease)
        log.info("dropped the report of a hub that no longer exists", hub=key, silent_s=self._gone_s)

    async def _delete(self, lease: Lease) -> None:
        version = lease.metadata.resource_version
        await self._cluster.delete(LEASES, SYSTEM_NAMESPACE, lease.metadata.name, resource_version=version)


def make_page(
    hub: Hub,
    cluster: Cluster,
    *,
    identity: str,
    host: str,
    deployment: bool,
    address_pool: str,
    proxies: Callable[[], Sequence[ProxyRow]],
    unhealthy: Callable[[LoadBalancerKey], Mapping[Place, float | None]],
    problems: Callable[[], list[str]],
    traffic: Traffic,
    timeline: Timeline,
    regions: WatchCache[PoolService],
    announced: Callable[[IntentObject], Iterable[AnnouncedRow]],
    clock: Clock,
) -> WebPage:
    """Build the page of ``hub``, served at the address ``host``.

    ``unhealthy`` returns the targets that the hub's own proxies see so, and for how many seconds, as far as that is
    known. ``problems`` are why it is not ready, ``regions`` the cache of what the hub itself has no use for.
    ``announced`` returns which proxy machines announce the addresses of a load balancer.
    """
    now, inventory = cluster.server_clock.now, hub.inventory
    board = Board(
        [
            LoadBalancers(inventory),
            *_routes(inventory),
            Members(inventory, now),
            SetServices(inventory),
            # Certificates expire without a change of their object.
            Objects(
                "certificate",
                inventory.managed,
                MANAGED_CERTIFICATES,
                lambda obj: certificate_item(obj, now()),
                every_s=300.0,
            ),
            Objects("name", inventory.hostnames, HOSTNAMES, name_item),
            *_of_intents(inventory),
            Objects("class", inventory.classes, LOAD_BALANCER_CLASSES, class_item),
            PoolTable(inventory, address_pool),
            Objects("region", regions, POOL_SERVICES, region_item),
            *([Objects("machine", inventory.machines, PROXY_MACHINES, machine_item)] if inventory.machines else []),
            Plans(inventory, hub.providers, clock),
            Proxies(proxies),
            traffic,
            timeline,
            ThisHub(
                identity=identity,
                version=__version__,
                started=wire_time(clock.now()),
                leading=lambda: hub.leading,
                leader=lambda: hub.elector.holder,
                problems=problems,
            ),
        ],
        clock=clock,
    )

    def ago(seconds: float | None) -> str:
        return wire_time(clock.now() - timedelta(seconds=seconds)) if seconds is not None else ""

    async def explain(key: LoadBalancerKey, only: RouteKey | None) -> Detail | None:
        # The hub's own proxies report on their own: no other machine is asked.
        failing = unhealthy(key)
        registered = {
            (listener, address): target_status_of(
                target,
                lambda since_s: ago(clock.monotonic() - since_s),
                unhealthy=name == DEFAULT_CLASS and (listener, address) in failing,
                unhealthy_since=ago(failing.get((listener, address))),
            )
            for name, runner in hub.providers.items()
            if (state := runner.tracker.state(key)) is not None
            for listener, targets in state.recorded.items()
            for address, target in targets.items()
        }
        return detail_of(key, hub.debug_key(key), inventory, registered, announced, only)

    closed, tokens = deployment or not is_loopback(host), TokenGate(cluster.config, clock=clock)
    gate = tokens if closed else AllRights()
    return WebPage(
        board,
        gate=gate,
        explain=explain,
        known=hub.debug_key,
        revisions=hub.history.revisions,
        traffic=traffic,
        actors=tokens,
        any_host=closed,
    )


def _routes(inventory: Inventory) -> Iterator[RouteRows]:
    """Yield the table of Ingresses and routes, where the hub serves HTTP."""
    routes: WatchCache[LoadBalancerRoute] | None = inventory.caches.get(LOAD_BALANCER_ROUTES.plural)
    objects: IntentObjects[HTTPLoadBalancer] | None = inventory.intents.get(HTTP_LOAD_BALANCERS.kind)
    if routes is not None and objects is not None:
        yield RouteRows(inventory, routes, objects.cache)


def _of_intents(inventory: Inventory) -> Iterator[Objects[Any]]:
    """Yield the tables of zones and groups, where the hub has an intent that reads them."""
    items = (("zone", DNS_ZONES, zone_item), ("group", BACKEND_GROUPS, group_item))
    for table, resource, item in items:
        cache = inventory.caches.get(resource.plural)
        if cache is not None:
            yield Objects(table, cache, resource, item)
