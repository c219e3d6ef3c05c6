"""Run a hub as a process: a cluster, a provider, a Hub, and the pages and reports beside them.

In: ``HubSettings``. Out: ``run_hub`` returns after a clean stop, or raises one error with a sentence.
Never ends a local Envoy, except with ``stop_proxy`` after a clean stop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import structlog
from prometheus_client import CollectorRegistry

from fairlead.api.names import DEFAULT_CLASS
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.hub.app import Hub
from fairlead.hub.config import HubConfig
from fairlead.hub.providers.installed import installed_providers
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import CONTROLLER_QPS, Cluster
from fairlead.kube.metrics import KubeMetrics
from fairlead.model.traffic import TrafficReader
from fairlead.providers.envoy.envoy_process import find_binary
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.low_ports import low_ports_problem
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.providers.envoy.traffic import EnvoyTraffic
from fairlead.runtime.background import CoroutineFunction
from fairlead.runtime.clock import SystemClock
from fairlead.runtime.supervisor import Supervisor
from fairlead.runtime.telemetry import StatusServer, Telemetry
from fairlead.standalone.first_calls import FIRST_CALLS, wait_for_api
from fairlead.standalone.hub_page import make_page
from fairlead.standalone.hub_rights import check_hub
from fairlead.standalone.hub_settings import HubSettings
from fairlead.standalone.hub_traffic import make_traffic
from fairlead.standalone.identity import kept_identity, new_identity
from fairlead.standalone.ports import watch_ports
from fairlead.standalone.proxy_report import ProxyReporter
from fairlead.standalone.replicas import Replicas
from fairlead.standalone.right_cluster import check_hub_side, check_own_member
from fairlead.standalone.stop import orphans_problem
from fairlead.status.proxies import ProxyRow

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
        await check_hub(first, deployment=settings.deployment)


async def _run(
    settings: HubSettings,
    cluster: Cluster,
    registry: CollectorRegistry,
    supervisor: Supervisor,
    beside: _SideTask,
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
            domain=settings.domain,
            loopback_targets=settings.loopback_targets(),
            tenant_ports=settings.tenant_ports,
            bound_in_tenants=settings.deployment,
            reclaim_lease=fleet is not None,
        ),
        clock=clock,
        telemetry=Telemetry(registry),
        factories=installed_providers(
            cluster=cluster, clock=clock, registry=registry, without=frozenset({DEFAULT_CLASS})
        ),
        on_lead=parts.on_lead,
    )
    reporter = ProxyReporter(cluster=cluster, identity=identity, proxies=lambda: _rows(provider), clock=clock)
    replicas = Replicas(
        cluster=cluster,
        identity=identity,
        leading=lambda: hub.leading,
        returned=reporter.again,
        gone=parts.gone,
        clock=clock,
    )

    def published(run: CoroutineFunction) -> CoroutineFunction:
        # By then our kinds and our namespace exist, and no proxy looks STALE only because nothing was sent to it yet.
        async def begin() -> None:
            await hub.publication.wait()
            await run()

        return begin

    if settings.metrics is not None:

        def not_ready() -> list[str]:
            return [*hub.not_ready(), *parts.problems(), *beside.problems()]

        traffic = make_traffic(hub, parts.readers, registry, clock=clock, now=cluster.server_clock.now)
        regions = WatchCache(cluster, POOL_SERVICES)
        supervisor.spawn("traffic", traffic.run, restart=True)
        supervisor.spawn("regions", published(regions.run))
        page = make_page(
            hub,
            cluster,
            identity=identity,
            host=settings.metrics[0],
            deployment=settings.deployment,
            proxies=lambda: _rows(provider),
            unhealthy=provider.unhealthy,
            problems=not_ready,
            traffic=traffic,
            regions=regions,
            clock=clock,
        )
        pages = StatusServer(*settings.metrics, registry, not_ready, page.add_to, traffic.refresh)
        supervisor.spawn("pages", pages.run)
    supervisor.spawn("hub", hub.run)
    # What serves nothing itself starts again when it fails: the hub goes on.
    supervisor.spawn("proxy report", published(reporter.run), restart=True)
    supervisor.spawn("replicas", published(replicas.run), restart=True)
    if fleet is not None:
        if problem := low_ports_problem(find_binary()):
            log.warning("ports below 1024 may not be opened", sentence=problem)
        if problem := orphans_problem():
            log.warning("an envoy without its data directory", sentence=problem)
        supervisor.spawn("ports", lambda: watch_ports(provider.refusals, clock=clock), restart=True)
    supervisor.spawn("ready", published(lambda: _announce(beside.ready)))
    try:
        await supervisor.run_until_stopped()
        if settings.stop_proxy and fleet is not None:
            log.info("ending the local envoy")
            await fleet.stop()
    finally:
        await provider.close()  # the hub closes it too, if it was reached


class _SideTask(NamedTuple):
    """A task that runs beside the hub once it serves, and its problems for /readyz."""

    ready: Callable[[], None] | None
    problems: Callable[[], list[str]]


class _Parts(NamedTuple):
    provider: EnvoyProvider
    identity: str
    fleet: LocalFleet | None = None
    on_lead: Callable[[bool], None] = lambda _leads: None
    problems: Callable[[], list[str]] = list
    gone: Callable[[str], Awaitable[None]] | None = None
    readers: Sequence[TrafficReader] = ()


def _parts(settings: HubSettings, cluster: Cluster, registry: CollectorRegistry) -> _Parts:
    if settings.deployment:
        return _deployment(settings, cluster, registry)
    fleet = LocalFleet(data_dir=settings.data_dir, concurrency=settings.envoy_concurrency, envoys=settings.envoys)
    # The lock comes first: a second hub must not take the socket, or the name, of the first one.
    fleet.prepare()
    provider = EnvoyProvider(fleet=fleet, xds_address=f"unix:{fleet.xds_socket}", registry=registry)
    readers = [
        EnvoyTraffic(envoy.admin, name=f"Envoy {group} of this machine") for group, envoy in fleet.envoys.items()
    ]
    return _Parts(provider, kept_identity(settings.data_dir), fleet, readers=readers)


def _deployment(settings: HubSettings, cluster: Cluster, registry: CollectorRegistry) -> _Parts:
    # Imported here: a hub on one machine does not load the cryptography.
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
    return _Parts(
        provider,
        identity,
        on_lead=provider.lead,
        problems=provider.objects.problems,
        gone=provider.health_exchange.drop,
        readers=(provider.traffic,),
    )


def _rows(provider: EnvoyProvider) -> list[ProxyRow]:
    return [
        ProxyRow(proxy.node_id, proxy.group, proxy.state, proxy.refused, proxy.statistics)
        for proxy in provider.proxies()
    ]


async def _announce(ready: Callable[[], None] | None) -> None:
    log.info("ready")
    if ready is not None:
        ready()
