"""One machine with everything: ``fairlead standalone`` is a hub, ``fairlead run`` is hub and member of one cluster.

    standalone   hub and regions in this process; the API and Envoy run as processes of their own
                 DIR   the API's state and its kubeconfig        DIR/hub   Envoy's files and the hub's name
    run          run_hub ──published──► tenant ``local``, classes, then the agent ─┬─► restarted when it fails
                                                                                   └─► regions, once there are pools
                 DIR   Envoy's files and the name in leases

In: ``StandaloneSettings`` or ``RunSettings``. Out: the run functions return after a clean stop. Envoy still serves
when they end, except with ``stop_proxy``; the next run takes it over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from fairlead.agent.app import Agent
from fairlead.agent.checks import gateway_needs, ingress_needs, member_needs
from fairlead.agent.config import AgentConfig
from fairlead.agent.sources.service.plan import CloudLoadBalancer, NodeOrPod
from fairlead.api.gateway import GATEWAY_CLASSES, GATEWAYS
from fairlead.api.kubernetes import INGRESS_CLASSES, IngressClass
from fairlead.api.meta import JSONObject
from fairlead.api.names import (
    DEFAULT_POOL,
    GATEWAY_CONTROLLER,
    INGRESS_CONTROLLER,
    SYSTEM_NAMESPACE,
    TENANT_NAMESPACE_PREFIX,
    USUAL_CLASS,
)
from fairlead.api.poolservice import NODE_POOLS, OPENYURT_GROUP
from fairlead.errors import AlreadyExists, Bug, FairleadError, Forbidden, NotServed
from fairlead.kube.cluster import CONTROLLER_QPS, Cluster
from fairlead.kube.discovery import LOOK_S, check_access, served_kinds, served_versions
from fairlead.providers.envoy.envoy_process import find_binary, low_ports_problem
from fairlead.runtime.background import Supervisor
from fairlead.standalone.api import ApiProcess
from fairlead.standalone.controllers import spawn_capi, spawn_regions
from fairlead.standalone.hub_process import run_hub
from fairlead.standalone.hub_settings import HubSettings
from fairlead.standalone.process import kept_identity
from fairlead.standalone.right_cluster import OWN_TENANT, ensure_place
from fairlead.translate.addresses import AddressRanges

_STOP_S = 4.0
#: Interval in which new pools are looked for, in seconds.
_POOLS_S = 15.0

log = structlog.get_logger(__name__)


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``fairlead run``. A kubeconfig of None is the default one; ``metrics`` None: no pages."""

    data_dir: Path
    address_pool: str
    kubeconfig: Path | None = None
    context: str = ""
    target: NodeOrPod = "Pod"
    cloud_load_balancer: CloudLoadBalancer = "absent"
    readiness_gates: bool = False
    egress: bool = False
    domain: str = ""
    metrics: tuple[str, int] | None = None
    machines: tuple[str, int] | None = None
    announce: bool = False
    stop_proxy: bool = False

    def check(self) -> None:
        """Raise ``BadConfiguration`` for what cannot work, before anything is started."""
        self.hub().check()
        self.agent("").check()

    def hub(self) -> HubSettings:
        """Return the settings of the hub in it."""
        return HubSettings(
            kubeconfig=self.kubeconfig,
            context=self.context,
            own_member=True,
            data_dir=self.data_dir / "hub",
            address_pool=self.address_pool,
            domain=self.domain,
            metrics=self.metrics,
            machines=self.machines,
            announce=self.announce,
            stop_proxy=self.stop_proxy,
        )

    def agent(self, identity: str) -> AgentConfig:
        """Return the settings of the agent in it; no other process can have its ``identity``."""
        return AgentConfig(
            tenant=OWN_TENANT,
            hub_namespace=TENANT_NAMESPACE_PREFIX + OWN_TENANT,
            target=self.target,
            cloud_load_balancer=self.cloud_load_balancer,
            readiness_gates=self.readiness_gates,
            egress=self.egress,
            identity=identity,
            reclaim_lease=bool(identity),
            renew_token=False,
        )

    def cluster(self, name: str) -> Cluster:
        """Return a connection of its own to the cluster."""
        return Cluster.from_kubeconfig(self.kubeconfig, context=self.context, name=name, qps=CONTROLLER_QPS)


async def run_hub_and_member(settings: RunSettings, *, ready: Callable[[list[str]], None]) -> None:
    """Run everything until SIGTERM; ``ready`` gets the lines of the report once load balancers are served."""
    supervisor = Supervisor(stop_deadline_s=_STOP_S)
    member = _OwnMember(settings, supervisor, ready)

    def begin() -> None:
        supervisor.spawn("member", member.run, restart=True)
        supervisor.spawn("pools", member.run_regions, restart=True)
        supervisor.spawn("gateway-class", member.make_gateway_class, restart=True)

    await run_hub(settings.hub(), supervisor=supervisor, ready=begin, problems=member.problems)


class _OwnMember:
    """The member's half of the process."""

    def __init__(self, settings: RunSettings, supervisor: Supervisor, ready: Callable[[list[str]], None]) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._ready = ready
        self._reported = False
        self._agent: Agent | None = None

    def problems(self) -> list[str]:
        """Return why the member is not served yet, one sentence each."""
        return ["the agent has not been started yet"] if self._agent is None else self._agent.readiness()

    async def run(self) -> None:
        """Make what the member needs, then run its agent until cancelled."""
        settings = self._settings
        async with settings.cluster("this cluster") as hub, settings.cluster("this cluster") as member:
            await ensure_place(hub, OWN_TENANT)
            not_served = await ensure_ingress_class(member)
            self._agent = Agent(member=member, hub=hub, config=settings.agent(kept_identity(settings.data_dir / "hub")))
            if not self._reported:
                self._ready(report(await self._facts(member, not_served)))
                self._reported = True
            await self._agent.run()

    async def make_gateway_class(self) -> None:
        """Make the GatewayClass as soon as the cluster has Gateway API; then this is done."""
        async with self._settings.cluster("this cluster") as cluster:
            await make_gateway_class(cluster)

    async def run_regions(self) -> None:
        """Start regions as soon as the cluster has pools, its own or OpenYurt's; then this is done."""
        settings = self._settings
        async with settings.cluster("this cluster") as cluster:
            while not await _has_pools(cluster):
                await cluster.clock.sleep(_POOLS_S)
        identity = kept_identity(settings.data_dir / "hub")
        spawn_regions(self._supervisor, settings.kubeconfig, context=settings.context, identity=identity)

    async def _facts(self, member: Cluster, not_served: list[str]) -> RunFacts:
        pool = self._settings.hub().pool()
        if pool is None:
            raise Bug("run without an address pool")
        needs = [*member_needs(system_namespace=SYSTEM_NAMESPACE), *ingress_needs(), *gateway_needs()]
        missing = [*await check_access(member, needs), *not_served]
        if problem := low_ports_problem(find_binary()):
            missing.append(problem)
        return RunFacts(
            server=member.server,
            pool=pool,
            chosen_pool=self._settings.address_pool != DEFAULT_POOL,
            data_dir=self._settings.data_dir,
            ingresses=not not_served,
            gateways=bool(await served_kinds(member, GATEWAYS.group, GATEWAYS.version)),
            announce=self._settings.announce,
            stop_proxy=self._settings.stop_proxy,
            missing=missing,
        )


async def _has_pools(cluster: Cluster) -> bool:
    if await served_versions(cluster, OPENYURT_GROUP):
        return True
    try:
        return bool(await cluster.list(NODE_POOLS))
    except NotServed:
        return False


async def ensure_ingress_class(cluster: Cluster) -> list[str]:
    """Make the IngressClass when it is absent; return why its Ingresses are not served, if so.

    Raises:
        Retry: the cluster does not answer, or takes no writes now.
    """
    wanted: JSONObject = {"metadata": {"name": USUAL_CLASS}, "spec": {"controller": INGRESS_CONTROLLER}}
    try:
        with suppress(AlreadyExists):
            await cluster.create(INGRESS_CLASSES, wanted)
        existing: IngressClass = await cluster.get(INGRESS_CLASSES, "", USUAL_CLASS)
    except Forbidden as error:
        return [f"IngressClass {USUAL_CLASS} could not be created: {error.sentence}"]
    except NotServed:
        return ["this cluster does not serve the kinds of networking.k8s.io/v1, so it has no Ingresses"]
    if not existing.is_ours:
        return [
            f"IngressClass {USUAL_CLASS} belongs to another controller ({existing.spec.controller}), so its Ingresses "
            f"are not served here; create one with another name and controller {INGRESS_CONTROLLER}"
        ]
    return []


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a cluster and its machine; ``missing`` are sentences, most urgent first.

    ``chosen_pool``: the user gave the addresses.
    """

    server: str
    pool: AddressRanges
    chosen_pool: bool = False
    data_dir: Path
    ingresses: bool
    gateways: bool
    announce: bool = False
    stop_proxy: bool = False
    missing: Sequence[str] = ()


def report(facts: RunFacts) -> list[str]:
    """Return the lines."""
    kinds = ["Services of type LoadBalancer"]
    if facts.ingresses:
        kinds.append(f"Ingresses of class {USUAL_CLASS}")
    if facts.gateways:
        kinds.append(f"Gateways of class {USUAL_CLASS}")
    where = _addresses(facts.pool, chosen=facts.chosen_pool, announce=facts.announce)
    lines = [f"Serving on this machine, for {facts.server}: {_listed(kinds)}.", where]
    end = (
        "Envoy ends with this command (--stop-proxy); to end it should this command be killed"
        if facts.stop_proxy
        else "Envoy still serves when this command ends; to stop it too"
    )
    lines.append(f"State is kept in {facts.data_dir}. {end}:  fairlead standalone --stop --data-dir {facts.data_dir}")
    missing = list(facts.missing)
    if not facts.gateways:
        missing.append(
            "Gateways are not served: this cluster does not have the kinds of Gateway API. They are served as soon as "
            "it has them"
        )
    lines += [f"Missing: {sentence}" for sentence in missing]
    return lines


def _addresses(pool: AddressRanges, *, chosen: bool, announce: bool) -> str:
    text = f"Each gets an address from {pool} ({pool.size} addresses)"
    if pool.loopback:
        text = f"{text}, which only this machine reaches"
        return f"{text}." if chosen else f"{text}; for others give it addresses of its own with --address-pool."
    if announce:
        return f"{text}, which this machine announces. To see how: fairlead proxy list"
    return f"{text}; your network has to route them to this machine, or start this with --announce."


def _listed(kinds: Sequence[str]) -> str:
    return kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} and {kinds[-1]}"


class StandaloneSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``fairlead standalone``."""

    data_dir: Path
    host: str
    port: int
    address_pool: str
    domain: str = ""
    metrics: tuple[str, int] | None = None
    machines: tuple[str, int] | None = None
    announce: bool = False
    stop_proxy: bool = False
    #: Whether the controller for Cluster API runs in it, too.
    capi: bool = False
    #: More of the command line of the API server, which logs as we do.
    api_options: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise ``BadConfiguration`` for what cannot work, before anything is started."""
        self.hub(self.data_dir / "kubeconfig").check()

    def hub(self, kubeconfig: Path) -> HubSettings:
        """Return the settings of the hub in it."""
        return HubSettings(
            kubeconfig=kubeconfig,
            data_dir=self.data_dir / "hub",
            address_pool=self.address_pool,
            domain=self.domain,
            metrics=self.metrics,
            machines=self.machines,
            announce=self.announce,
            stop_proxy=self.stop_proxy,
        )


async def run_standalone(settings: StandaloneSettings, *, ready: Callable[[Path], None]) -> None:
    """Run everything until SIGTERM; ``ready`` gets the kubeconfig once load balancers are served."""
    api = ApiProcess(settings.data_dir, settings.host, settings.port, options=settings.api_options)
    async with api:
        supervisor = Supervisor(stop_deadline_s=4.0)
        supervisor.spawn("api", api.run)
        spawn_regions(supervisor, api.kubeconfig, identity=kept_identity(settings.data_dir))
        if settings.capi:
            spawn_capi(supervisor, api.kubeconfig, identity=kept_identity(settings.data_dir))
        await run_hub(settings.hub(api.kubeconfig), supervisor=supervisor, ready=lambda: ready(api.kubeconfig))


GATEWAY_CLASS_NAME = "fairlead"


async def make_gateway_class(cluster: Cluster, *, name: str = GATEWAY_CLASS_NAME, look_s: float = LOOK_S) -> None:
    """Create a GatewayClass of this name once Gateway API is installed; one that is there is not changed."""
    wanted: JSONObject = {"metadata": {"name": name}, "spec": {"controllerName": GATEWAY_CONTROLLER}}
    problem = ""
    while True:
        try:
            await cluster.create(GATEWAY_CLASSES, wanted)
        except AlreadyExists:
            return
        except NotServed:
            pass  # Gateway API is not installed (yet)
        except FairleadError as error:
            if error.sentence != problem:
                problem = error.sentence
                log.warning("the GatewayClass is not created yet", sentence=error.sentence, detail=error.detail)
        else:
            log.info("made", kind=GATEWAY_CLASSES.full_name, name=name)
            return
        await cluster.clock.sleep(look_s)
