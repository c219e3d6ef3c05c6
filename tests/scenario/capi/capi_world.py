"""A management cluster over real HTTP: users and machine controllers are played, hub and controller are real."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from fairlead.api.backendgroup import BACKEND_GROUPS, BACKEND_RECORDS, BackendGroup
from fairlead.api.clusterapi import CLUSTER_API_VERSIONS, CLUSTERS, MACHINES, CapiCluster, TargetObject
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES, SECRETS
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import Resource, WireCondition, condition_of
from fairlead.api.names import LABEL_TENANT
from fairlead.api.tenant import TENANTS
from fairlead.capi.app import Capi, CapiConfig
from fairlead.capi.facts import Resolve, system_resolver
from fairlead.errors import AlreadyExists, Conflict, NotFound
from fairlead.hub.app import Hub, HubConfig
from fairlead.kube.cluster import Cluster as ApiCluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.discovery import install_crds
from fairlead.model.contract import AllocationKind
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.providers.zones.powerdns import provider as powerdns
from fairlead.runtime.clock import SystemClock
from fairlead.testing.builders import ABLE
from fairlead.testing.faults import Fault, FaultyProvider
from fairlead.translate.addresses import AddressRanges
from fairlead_demo.worlds.clusterapi_kinds import cluster_api_crds
from tests.scenario.any_api import until

NAMESPACE = "fleet"
POOL = "192.0.2.0/28"
PRE_DRAIN = "pre-drain.delete.hook.machine.cluster.x-k8s.io/fairlead-"
PRE_TERMINATE = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/fairlead-"
FINALIZER = "loadbalancer.fairlead.dev/"
STATUS = "loadbalancer.cluster.x-k8s.io/status"
NAME = "loadbalancer.cluster.x-k8s.io/name"


class RunningHub:
    """A hub with a data plane in memory behind class ``envoy``, and a cloud in memory behind class ``cloud``."""

    def __init__(self, world: World) -> None:
        self.cluster = ApiCluster(world.api, name="hub", qps=10_000)
        clock = SystemClock()
        self.provider = FaultyProvider(
            MemoryProvider(cloud=world.proxies),
            clock=clock,
            capabilities=msgspec.structs.replace(ABLE, allocation=AllocationKind.ADDRESS),
        )
        #: What happens to each load balancer that is to be made at the cloud.
        self.at_cloud = Fault.NONE
        #: What happens to each change of backends there.
        self.at_cloud_changes = Fault.NONE
        inner = MemoryProvider(cloud=world.cloud)
        self.durable = FaultyProvider(inner, clock=clock, script=lambda call: self._fault(call.method))
        self.hub = Hub(
            cluster=self.cluster,
            providers={"envoy": self.provider},
            config=HubConfig(identity="hub", address_pool=AddressRanges.parse(POOL), reclaim_lease=True),
            clock=clock,
            factories={
                "memory": lambda: self.durable,
                "powerdns": lambda: powerdns.create(cluster=self.cluster, clock=clock),
            },
        )
        self.task = asyncio.create_task(self.hub.run(), name="hub")

    def _fault(self, method: str) -> Fault:
        return {"ensure": self.at_cloud, "apply": self.at_cloud_changes}.get(method, Fault.NONE)

    async def stop(self) -> None:
        await ended(self.task)
        await self.cluster.aclose()


class RunningCapi:
    """The controller, with its own connection."""

    def __init__(self, world: World) -> None:
        self.cluster = ApiCluster(world.capi_api or world.management_api or world.api, name="management", qps=10_000)
        config = CapiConfig(identity="capi", reclaim_lease=True, look_s=0.2, probe_s=0.5)
        apart = world.management_api is not None
        self.hub = ApiCluster(world.api, name="hub", qps=10_000) if apart else None
        self.capi = Capi(cluster=self.cluster, hub=self.hub, config=config, resolve=world.resolve)
        self.task = asyncio.create_task(self.capi.run(), name="capi")

    async def stop(self) -> None:
        await ended(self.task)
        await self.cluster.aclose()
        if self.hub is not None:
            await self.hub.aclose()


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


class World:
    """One management cluster, and who runs there."""

    def __init__(self, api: ClusterConfig, user: ApiCluster, versions: Sequence[str]) -> None:
        self.api = api
        self.user = user
        self.versions = tuple(versions)
        self.clusters = msgspec.structs.replace(CLUSTERS, version=self.versions[0])
        self.machines = msgspec.structs.replace(MACHINES, version=self.versions[0])
        self.proxies = MemoryCloud(clock=SystemClock())
        self.cloud = MemoryCloud(clock=SystemClock())
        #: How names become addresses for the controller's probes.
        self.resolve: Resolve = system_resolver
        #: Where Clusters and Machines are, when that is not the hub.
        self.management_api: ClusterConfig | None = None
        self.management = user
        #: How the controller signs in, where that is not as an administrator.
        self.capi_api: ClusterConfig | None = None
        self.hub: RunningHub | None = None
        self.capi: RunningCapi | None = None

    async def install(self) -> None:
        """Install the kinds of Cluster API."""
        assert not await install_crds(self.management, cluster_api_crds(self.versions), "clusterctl")

    # --- processes ---

    async def start_hub(self) -> RunningHub:
        self.hub = RunningHub(self)
        started = self.hub
        await until(lambda: started.task.done() or started.hub.leading, what="the hub leads")
        return started

    async def start_capi(self) -> RunningCapi:
        self.capi = RunningCapi(self)
        started = self.capi
        await until(lambda: started.task.done() or started.capi.leading, what="the controller leads")
        return started

    async def stop_hub(self) -> None:
        if self.hub is not None:
            hub, self.hub = self.hub, None
            await hub.stop()

    async def stop_capi(self) -> None:
        if self.capi is not None:
            capi, self.capi = self.capi, None
            await capi.stop()

    async def start(self, **of_class: Any) -> None:
        """Start a hub and the controller, with classes that drain for a moment only."""
        await self.start_hub()
        for name, provider in (("edge", "envoy"), ("cloud", "memory")):
            spec = {"provider": provider, "drain": "0s", "healthCheck": {"disabled": True}, **of_class}
            body = {"metadata": {"name": name}, "spec": spec}
            await self.user.apply(LOAD_BALANCER_CLASSES, body, manager="operator")
        await self.start_capi()

    # --- users ---

    async def cluster(self, name: str = "blue", *, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        body = {"metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations or {}}, "spec": spec}
        await self.management.apply(self.clusters, body, manager="user")

    async def lb(self, name: str = "api", *, cluster: str = "blue", **spec: Any) -> None:
        whole = {"className": "edge", "clusterName": cluster, "listeners": [{"port": 6443, "protocol": "TCP"}], **spec}
        body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": whole}
        await self.user.apply(LOAD_BALANCERS, body, manager="user")

    # --- controllers of machines ---

    async def machine(
        self,
        name: str,
        *addresses: str,
        cluster: str = "blue",
        labels: dict[str, str] | None = None,
        behind: Sequence[str] = ("api",),
    ) -> None:
        mine = {"cluster.x-k8s.io/cluster-name": cluster}
        if behind:
            mine[NAME] = behind[0]
        meta = {"name": name, "namespace": NAMESPACE, "labels": {**mine, **(labels or {})}}
        await self.management.apply(self.machines, {"metadata": meta, "spec": {"clusterName": cluster}}, manager="user")
        if addresses:
            await self.addresses(name, *addresses)

    async def addresses(self, name: str, *addresses: str) -> None:
        status = {"addresses": [{"type": "InternalIP", "address": each} for each in addresses]}
        await self.management.merge_patch(self.machines, NAMESPACE, name, {"status": status}, subresource="status")

    async def annotate(self, name: str, **annotations: str | None) -> None:
        await self.annotate_with(name, dict(annotations))

    async def annotate_with(self, name: str, annotations: dict[str, str | None]) -> None:
        await self.management.merge_patch(self.machines, NAMESPACE, name, {"metadata": {"annotations": annotations}})

    async def delete_machine(self, name: str) -> None:
        await self.management.delete(self.machines, NAMESPACE, name)

    # --- what is there ---

    async def get_lb(self, name: str = "api") -> LoadBalancer:
        return await self.user.get(LOAD_BALANCERS, NAMESPACE, name)

    async def get_cluster(self, name: str = "blue") -> CapiCluster:
        return await self.management.get(self.clusters, NAMESPACE, name)

    async def get_machine(self, name: str) -> TargetObject | None:
        try:
            return await self.management.get(self.machines, NAMESPACE, name)
        except NotFound:
            return None

    async def group(self, name: str = "api") -> BackendGroup:
        return await self.user.get(BACKEND_GROUPS, NAMESPACE, name)

    async def forget_secret(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self.management.delete(SECRETS, NAMESPACE, name)

    async def raw_spec(self, resource: Resource[Any], name: str) -> dict[str, Any]:
        return (await self._raw(resource, name)).get("spec", {})

    async def raw_status(self, resource: Resource[Any], name: str) -> dict[str, Any]:
        return (await self._raw(resource, name)).get("status", {})

    async def _raw(self, resource: Resource[Any], name: str) -> dict[str, Any]:
        place = f"/apis/{resource.api_version}/namespaces/{NAMESPACE}/{resource.plural}/{name}"
        return msgspec.json.decode(await self.user.raw("GET", place))

    def at_proxies(self, name: str = "api") -> dict[str, bool]:
        """Return the backends of the data plane, and whether each drains."""
        return self._members(self.proxies, name)

    def at_cloud(self, name: str = "api") -> dict[str, bool]:
        return self._members(self.cloud, name)

    def _members(self, cloud: MemoryCloud, name: str) -> dict[str, bool]:
        members = cloud.members(LoadBalancerKey("LoadBalancer", NAMESPACE, name))
        return {str(key): target.draining for (_, key), target in members.items()}

    async def until_gone(self, name: str = "api") -> None:
        async def gone() -> bool:
            try:
                await self.get_lb(name)
            except NotFound:
                return True
            return False

        await until(gone, what=f"LoadBalancer {name} is gone")

    async def condition(self, kind: str, name: str = "api") -> WireCondition | None:
        return condition_of((await self.get_lb(name)).status.conditions, kind)

    async def until_condition(self, kind: str, status: str, *, name: str = "api", reason: str = "") -> WireCondition:
        async def check() -> WireCondition | None:
            there = await self.condition(kind, name)
            return there if there and there.status == status and reason in ("", there.reason) else None

        return await until(check, what=f"{kind}={status} {reason} of {name}")

    async def until_states(self, name: str = "api", **states: str) -> LoadBalancer:
        """Wait until the members have these states, by the name with _ for -."""
        wanted = {member.replace("_", "-"): state for member, state in states.items()}

        async def check() -> LoadBalancer | None:
            there = await self.get_lb(name)
            return there if {each.name: each.state for each in there.status.members or ()} == wanted else None

        return await until(check, what=f"the members of {name} are {wanted}")

    async def until_served(self, *addresses: str, name: str = "api") -> None:
        wanted = dict.fromkeys(addresses, False)
        await until(lambda: self.at_proxies(name) == wanted, what=f"{wanted} are served")

    async def until_free(self, name: str) -> None:
        """Wait until the object of a machine is gone, or nothing of ours is on it."""

        async def check() -> bool:
            there = await self.get_machine(name)
            return there is None or not ours_on(there)

        await until(check, what=f"nothing of ours is on {name}")


def ours_on(machine: TargetObject) -> list[str]:
    """Return the hooks of Fairlead that hold a machine."""
    annotations = [key for key in machine.metadata.annotations or () if key.startswith((PRE_DRAIN, PRE_TERMINATE))]
    return [*annotations, *(each for each in machine.metadata.finalizers or () if each.startswith(FINALIZER))]


@contextlib.asynccontextmanager
async def new_world(
    api: ClusterConfig,
    *,
    versions: Sequence[str] = CLUSTER_API_VERSIONS,
    install: bool = True,
    management: ClusterConfig | None = None,
) -> AsyncGenerator[World]:
    async with contextlib.AsyncExitStack() as opened:
        user = await opened.enter_async_context(ApiCluster(api, name="user", qps=10_000))
        world = World(api, user, versions)
        if management is not None:
            world.management_api = management
            world.management = await opened.enter_async_context(ApiCluster(management, name="user", qps=10_000))
        assert not await install_crds(user, all_crds(), "tests")
        if install:
            await world.install()
        for each in {user, world.management}:
            with contextlib.suppress(AlreadyExists):
                await each.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        try:
            yield world
        finally:
            await world.stop_capi()
            await world.stop_hub()
            await _sweep(world)


async def _sweep(world: World) -> None:
    """Leave nothing for the next scenario at the same real API server."""
    # A Tenant would take the namespace with it.
    mine = {"metadata": {"labels": {LABEL_TENANT: None}, "ownerReferences": None}}
    await world.user.merge_patch(NAMESPACES, "", NAMESPACE, mine)
    of_hub = (LOAD_BALANCERS, BACKEND_GROUPS, HOSTNAMES, BACKEND_RECORDS, DNS_ZONES, LOAD_BALANCER_CLASSES, TENANTS)
    for resource in (world.machines, *of_hub, world.clusters):
        user = world.management if resource in (world.machines, world.clusters) else world.user
        for obj in await user.list(resource):
            for _ in range(5):
                with contextlib.suppress(NotFound, Conflict):
                    patch = {"metadata": {"finalizers": None}}
                    await user.merge_patch(resource, obj.metadata.namespace, obj.metadata.name, patch)
                    await user.delete(resource, obj.metadata.namespace, obj.metadata.name)
                    break
