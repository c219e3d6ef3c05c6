"""How does a hub run as a process? Settings become a cluster, a provider, a Hub, and the pages and reports beside them.

In: ``HubSettings``. Out: ``run_hub`` returns after a clean stop, or raises one error with a sentence.
Never: ends a local Envoy unless told to (``stop_proxy``), and then only after a clean stop.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from fairlead.api.names import DEFAULT_CLASS
from fairlead.errors import BadConfiguration
from fairlead.hub.app import Hub, HubConfig
from fairlead.hub.providers.installed import installed_providers
from fairlead.kube.cluster import Cluster
from fairlead.kube.metrics import KubeMetrics
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.runtime.clock import SystemClock
from fairlead.runtime.supervisor import Supervisor
from fairlead.runtime.telemetry import StatusServer, Telemetry
from fairlead.standalone.first_calls import FIRST_CALLS
from fairlead.standalone.hub_rights import check_hub
from fairlead.standalone.identity import kept_identity, new_identity
from fairlead.standalone.ports import watch_ports
from fairlead.standalone.proxy_report import ProxyReporter, ProxyRow
from fairlead.standalone.replicas import Replicas
from fairlead.translate.allocate import AddressPool

log = structlog.get_logger(__name__)

_STOP_S = 4.0
#: A thousand Services that appear at once are two thousand writes; the API server's own fairness does the rest.
_QPS, _BURST = 1000.0, 2000


class HubSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How ``fairlead hub`` was called. A kubeconfig of None is the default one; ``metrics`` None: no pages.

    The last four count with ``deployment`` only; an empty image is the default one.
    """

    data_dir: Path
    kubeconfig: Path | None = None
    deployment: bool = False
    address_pool: str = ""
    region: str = ""
    metrics: tuple[str, int] | None = None
    stop_proxy: bool = False
    #: Worker threads of the local Envoy; 0 means one for each core, two at the most.
    envoy_concurrency: int = 0
    xds_listen: tuple[str, int] = ("0.0.0.0", 18_000)
    xds_address: tuple[str, int] = ("fairlead-hub.fairlead-system.svc", 18_000)
    proxy_image: str = ""
    proxy_replicas: int = 2

    def pool(self) -> AddressPool | None:
        """Return the address pool; ``BadConfiguration`` says what is wrong with it."""
        if not self.address_pool:
            return None
        pool = AddressPool.parse(self.address_pool)
        if not self.deployment:
            check_bindable(pool)
        return pool


def check_bindable(pool: AddressPool) -> None:
    """Refuse a pool whose first address this machine does not have: its local Envoy could not listen there."""
    import errno
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((pool[0], 0))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                return
            raise BadConfiguration(
                f"--address-pool: {pool} is not on this machine, so its Envoy cannot listen there; use a loopback "
                f"range such as 127.200.0.0/16, or add the addresses first (ip address add {pool[0]}/32 dev ...)"
            ) from None


def is_loopback(server: str) -> bool:
    """Say whether an API server's URL leads to this machine only."""
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def run_hub(
    settings: HubSettings, *, supervisor: Supervisor | None = None, ready: Callable[[], None] | None = None
) -> None:
    """Run a hub until it is told to stop; ``ready`` is called once the data plane has been told everything."""
    registry = CollectorRegistry()
    metrics = KubeMetrics(registry)
    async with Cluster.from_kubeconfig(
        settings.kubeconfig, name="hub", qps=_QPS, burst=_BURST, metrics=metrics
    ) as cluster:
        async with Cluster(cluster.config, name="hub", policy=FIRST_CALLS) as first:
            await check_hub(first, deployment=settings.deployment)
        await _run(settings, cluster, registry, supervisor or Supervisor(stop_deadline_s=_STOP_S), ready)


async def _run(
    settings: HubSettings,
    cluster: Cluster,
    registry: CollectorRegistry,
    supervisor: Supervisor,
    ready: Callable[[], None] | None,
) -> None:
    parts = _parts(settings, cluster, registry)
    provider, fleet, identity = parts.provider, parts.fleet, parts.identity
    clock = SystemClock()
    hub = Hub(
        cluster=cluster,
        providers={DEFAULT_CLASS: provider},
        config=HubConfig(
            identity=identity,
            address_pool=settings.pool(),
            region=settings.region,
            loopback_targets=is_loopback(cluster.server),
            reclaim_lease=fleet is not None,
        ),
        clock=clock,
        telemetry=Telemetry(registry),
        factories=installed_providers(clock=clock, registry=registry, without=frozenset({DEFAULT_CLASS})),
        on_lead=parts.on_lead,
    )
    reporter = ProxyReporter(cluster=cluster, identity=identity, proxies=lambda: _rows(provider), clock=clock)
    replicas = Replicas(
        cluster=cluster, identity=identity, leading=lambda: hub.leading, returned=reporter.again, clock=clock
    )
    if settings.metrics is not None:
        pages = StatusServer(*settings.metrics, registry, lambda: [*hub.not_ready(), *parts.problems()])
        supervisor.spawn("pages", pages.run)
    supervisor.spawn("hub", hub.run)
    supervisor.spawn("proxy report", lambda: _report(hub, reporter))
    supervisor.spawn("replicas", lambda: _live(hub, replicas))
    if fleet is not None:
        supervisor.spawn("ports", lambda: watch_ports(provider.refusals, clock=clock))
    supervisor.spawn("ready", lambda: _tell_ready(hub, ready))
    try:
        await supervisor.run_until_stopped()
        if settings.stop_proxy and fleet is not None:
            log.info("ending the local envoy")
            await fleet.stop()
    finally:
        await provider.close()  # when the hub was never reached; else it has been


class _Parts(NamedTuple):
    provider: EnvoyProvider
    identity: str
    fleet: LocalFleet | None = None
    on_lead: Callable[[bool], None] = lambda _leads: None
    problems: Callable[[], list[str]] = list


def _parts(settings: HubSettings, cluster: Cluster, registry: CollectorRegistry) -> _Parts:
    if settings.deployment:
        return _deployment(settings, cluster, registry)
    fleet = LocalFleet(data_dir=settings.data_dir, concurrency=settings.envoy_concurrency)
    # The lock comes first: a second hub must not take the socket, or the name, of the first one.
    fleet.prepare()
    provider = EnvoyProvider(fleet=fleet, xds_address=f"unix:{fleet.xds_socket}", registry=registry)
    return _Parts(provider, kept_identity(settings.data_dir), fleet)


def _deployment(settings: HubSettings, cluster: Cluster, registry: CollectorRegistry) -> _Parts:
    # Imported here: on one machine nobody pays for the cryptography.
    from fairlead.providers.envoy.kubernetes.deployment_manifests import DeploymentSettings
    from fairlead.providers.envoy.kubernetes.provider import DeploymentOptions, DeploymentProvider

    defaults = DeploymentSettings()
    host, port = settings.xds_address
    proxies = DeploymentSettings(
        xds_host=host,
        xds_port=port,
        image=settings.proxy_image or defaults.image,
        replicas=settings.proxy_replicas,
    )
    identity = new_identity()
    options = DeploymentOptions(
        identity=identity, data_dir=settings.data_dir, listen=settings.xds_listen, settings=proxies
    )
    provider = DeploymentProvider(cluster=cluster, options=options, registry=registry)
    return _Parts(provider, identity, on_lead=provider.lead, problems=provider.objects.problems)


def _rows(provider: EnvoyProvider) -> list[ProxyRow]:
    return [ProxyRow(one.node_id, one.group, one.state, one.nacks) for one in provider.proxies()]


async def _report(hub: Hub, reporter: ProxyReporter) -> None:
    # Before that every proxy would be called STALE, for no better reason than that we have not spoken yet.
    await hub.wait_published()
    await reporter.run()


async def _live(hub: Hub, replicas: Replicas) -> None:
    # The namespace is there by then.
    await hub.wait_published()
    await replicas.run()


async def _tell_ready(hub: Hub, ready: Callable[[], None] | None) -> None:
    await hub.wait_published()
    log.info("ready")
    if ready is not None:
        ready()
