"""Hub replicas at one API, and the tenants, the cloud and the kubelet there."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deployment_pod import Pod

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import CONFIG_MAPS, ENDPOINT_SLICES, NAMESPACES, SECRETS, SERVICES, Service
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import KubeObject, Resource, condition_of
from fairlead.api.names import DEFAULT_CLASS, HUB_LEASE, LABEL_MANAGED_BY, LABEL_TENANT, MANAGED_BY, SYSTEM_NAMESPACE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.tenant import TENANTS
from fairlead.errors import AlreadyExists, FairleadError, NotFound
from fairlead.hub.app import Hub, HubConfig
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.discovery import install_crds
from fairlead.kube.lease import LeaderElector
from fairlead.kube.writes import PATIENCE_S
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.kubernetes.manifests import GROUP_LABEL, DeploymentSettings, group_name, service_name
from fairlead.providers.envoy.kubernetes.objects import WRITTEN
from fairlead.providers.envoy.kubernetes.provider import DeploymentOptions, DeploymentProvider
from fairlead.providers.envoy.resources import ResourceType
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.standalone.proxy_report import ProxyReporter, ProxyRow
from fairlead.testing.builders import slice_body, tcp_body
from fairlead.translate.tenant import CLUSTER_ROLES, READER_ROLE
from tests.scenario.any_api import until
from tests.xds.world import Backend

_NUMBERS = itertools.count(1)
_OURS = f"{LABEL_MANAGED_BY}={MANAGED_BY},{GROUP_LABEL}"


class Replica:
    """One hub."""

    def __init__(
        self,
        config: ClusterConfig,
        name: str,
        directory: Path,
        settings: DeploymentSettings,
        clock: Clock,
        *,
        lease_s: float,
    ) -> None:
        self.name = name
        self.cluster = Cluster(config, name=f"hub-{name}")
        self.provider = DeploymentProvider(
            cluster=self.cluster,
            options=DeploymentOptions(
                identity=name, data_dir=directory / name, listen=("127.0.0.1", 0), settings=settings
            ),
            clock=clock,
            hold_unknown_s=0.0,
        )
        self.hub = Hub(
            cluster=self.cluster,
            providers={DEFAULT_CLASS: self.provider},
            config=HubConfig(identity=name, loopback_targets=True),
            on_lead=self.provider.lead,
        )
        self.hub.elector = LeaderElector(
            self.cluster,
            namespace=SYSTEM_NAMESPACE,
            name=HUB_LEASE,
            identity=name,
            lease_s=lease_s,
            renew_s=lease_s * 2 / 3,
            retry_s=0.1,
        )
        self.reporter = ProxyReporter(
            cluster=self.cluster, identity=name, proxies=self._rows, clock=self.cluster.clock, settle_s=0.0
        )
        self.tasks = [asyncio.create_task(self.hub.run(), name=f"hub-{name}")]

    def report(self) -> None:
        """Report the proxies, as the process does."""
        self.tasks.append(asyncio.create_task(self.reporter.run()))

    def _rows(self) -> list[ProxyRow]:
        return [
            ProxyRow(proxy.node_id, proxy.group, proxy.state, proxy.refused, proxy.statistics)
            for proxy in self.provider.proxies()
        ]

    async def published(self) -> None:
        waiter = asyncio.ensure_future(self.hub.publication.wait())
        await asyncio.wait({waiter, self.tasks[0]}, timeout=180, return_when=asyncio.FIRST_COMPLETED)
        if self.tasks[0].done():
            await self.tasks[0]
        assert waiter.done(), (self.name, self.hub.not_ready())

    def resources(self, group: str) -> dict[tuple[ResourceType, str], bytes]:
        """Return every resource that this replica serves to a group, byte by byte."""
        resources = self.provider.store.group(group)
        return {
            (kind, name): resources.wanted(kind, name).field for kind in ResourceType for name in resources.names(kind)
        }

    @property
    def idle(self) -> bool:
        engines = self.hub.providers.values()
        return not self.provider.objects.busy and not any(engine.tracker.dirty for engine in engines)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.cluster.aclose()

    async def kill(self) -> None:
        """Vanish: nothing is released, because the API cannot be reached."""

        async def refuse(*_args: object, **_options: object) -> bytes:
            raise FairleadError("this process is dead")

        self.cluster._transport.call = refuse  # type: ignore[method-assign]
        await self.stop()


class World:
    """What a test works with."""

    def __init__(self, admin: Cluster, config: ClusterConfig, directory: Path) -> None:
        self.admin = admin
        self.config = config
        self.directory = directory
        self.settings = DeploymentSettings(xds_host="localhost")
        self.clock: Clock = SystemClock()
        self.replicas: list[Replica] = []
        self.backends: list[Backend] = []
        self.prefix = f"t{os.getpid()}-{next(_NUMBERS)}"

    # --- hubs -------------------------------------------------------------------------------------------------

    async def hub(self, name: str = "one", *, leading: bool = True, lease_s: float = 1.5) -> Replica:
        """Start a hub; a longer lease outlasts a stall of a busy machine."""
        replica = Replica(
            self.config, f"{self.prefix}-{name}", self.directory, self.settings, self.clock, lease_s=lease_s
        )
        self.replicas.append(replica)
        await replica.published()
        if leading:
            await until(lambda: replica.hub.leading, what="leading")
        return replica

    async def quiet(self, *replicas: Replica) -> None:
        """Wait until nothing has been written for longer than a status is held back, leases apart."""
        clock = asyncio.get_running_loop().time
        last: object = None
        since_s = clock()

        async def check() -> bool:
            nonlocal last, since_s
            now = (await self.versions(), [replica.idle for replica in replicas])
            if now != last or not all(now[1]):
                since_s = clock()
            last = now
            return clock() - since_s > PATIENCE_S + 0.5

        await until(check, what="quiet")

    async def versions(self) -> dict[str, str]:
        """Return the version of every object of this world that a hub may write, leases and events apart.

        One real API server serves many tests: what their controllers still do in namespaces of others is not counted,
        nor is the authority that the controller manager writes into every namespace.
        """
        versions: dict[str, str] = {}
        for resource in (*WRITTEN, SECRETS, TENANTS, TCP_LOAD_BALANCERS, NAMESPACES, CONFIG_MAPS):
            bare = Resource(
                resource.group, resource.version, resource.kind, resource.plural, resource.namespaced, KubeObject
            )
            for obj in await self.admin.list(bare):
                ours = f"{self.prefix}-" in f"{obj.metadata.namespace}/{obj.metadata.name}"
                if not (ours or obj.metadata.namespace == SYSTEM_NAMESPACE) or obj.metadata.name == "kube-root-ca.crt":
                    continue
                versions[f"{resource.plural}/{'/'.join(obj.key)}"] = obj.metadata.resource_version
        return versions

    # --- tenants ----------------------------------------------------------------------------------------------

    async def tenant(self, name: str = "east") -> str:
        """Make a tenant; return its namespace."""
        name = f"{self.prefix}-{name}"
        namespace = f"tenant-{name}"
        labels = {LABEL_TENANT: name}
        await self.admin.create(NAMESPACES, {"metadata": {"name": namespace, "labels": labels}})
        await self.admin.create(TENANTS, {"metadata": {"name": name}, "spec": {}})
        return namespace

    async def load_balancer(
        self,
        namespace: str,
        name: str = "web",
        *,
        backend: Backend | None = None,
        ports: tuple[int, ...] = (80,),
        **spec: Any,
    ) -> LoadBalancerKey:
        asked = [{"port": port, "name": f"p{port}"} for port in ports]
        body = tcp_body(name, namespace=namespace, ports=asked, spec={"targets": "Pod", **spec})
        await self.admin.create(TCP_LOAD_BALANCERS, body)
        if backend is not None:
            await self.endpoints(namespace, name, backend, ports=ports)
        return LoadBalancerKey(TCP_LOAD_BALANCERS.kind, namespace, name)

    async def endpoints(self, namespace: str, name: str, backend: Backend, *, ports: tuple[int, ...] = (80,)) -> None:
        slice_ports = [{"port": backend.port, "protocol": "TCP", "name": f"p{port}"} for port in ports]
        body = slice_body(f"{name}-1", [backend.address], namespace=namespace, load_balancer=name, ports=slice_ports)
        await self.admin.apply(ENDPOINT_SLICES, body, manager="agent")

    async def backend(self, name: str, **options: Any) -> Backend:
        number = next(_NUMBERS)
        backend = await Backend(name, **options).start(
            f"127.{os.getpid() % 20 + 230}.{number // 250}.{number % 250 + 1}"
        )
        self.backends.append(backend)
        return backend

    async def lb(self, key: LoadBalancerKey) -> TCPLoadBalancer:
        return await self.admin.get(TCP_LOAD_BALANCERS, key.namespace, key.name)

    async def proxy_port(self, key: LoadBalancerKey) -> int:
        allocated = await until(lambda: self._allocated(key), what=f"ports of {key}")
        return int(allocated[0].proxy_port)

    async def _allocated(self, key: LoadBalancerKey) -> list[Any]:
        return list((await self.lb(key)).status.allocation.ports)

    async def condition(self, key: LoadBalancerKey, kind: str = "Programmed") -> tuple[str, str, str]:
        there = condition_of((await self.lb(key)).status.conditions, kind)
        return (there.status, there.reason, there.message) if there else ("", "", "")

    async def programmed(self, key: LoadBalancerKey) -> TCPLoadBalancer:
        async def check() -> bool:
            return (await self.condition(key))[0] == "True"

        try:
            await until(check, what=f"{key} programmed")
        except AssertionError:
            raise AssertionError(f"{key}: {await self.condition(key)}") from None
        return await self.lb(key)

    # --- the cloud and the kubelet ----------------------------------------------------------------------------

    async def service(self, key: LoadBalancerKey) -> Service:
        return await until(lambda: self.admin.get(SERVICES, key.namespace, service_name(key)), what=f"{key}'s Service")

    async def assign(self, key: LoadBalancerKey, *ips: str, **address: str) -> None:
        """Give a Service its address, or several IP addresses, as a cloud does."""
        service = await self.service(key)
        ingress = [{"ip": ip} for ip in ips] or [address]
        patch = {"status": {"loadBalancer": {"ingress": ingress}}}
        await self.admin.merge_patch(SERVICES, *service.key, patch, subresource="status")

    async def kinds(self, namespace: str) -> list[str]:
        """Return the kinds of all our objects in a namespace, and whether the group's Secret is there."""
        kinds = [
            resource.kind
            for resource in WRITTEN
            for _ in await self.admin.list(resource, namespace, label_selector=_OURS)
        ]
        with contextlib.suppress(NotFound):
            await self.admin.get(SECRETS, namespace, group_name(namespace))
            kinds.append("Secret")
        return sorted(kinds)

    async def raw(self, path: str) -> Any:
        return json.loads(await self.admin.raw("GET", path))

    async def deployment(self, namespace: str, group: str = "") -> Any:
        return await self.raw(f"/apis/apps/v1/namespaces/{namespace}/deployments/{group_name(group or namespace)}")

    async def secret(self, namespace: str, name: str) -> dict[str, bytes]:
        secret = await self.raw(f"/api/v1/namespaces/{namespace}/secrets/{name}")
        return {key: base64.b64decode(value) for key, value in secret["data"].items()}

    @asynccontextmanager
    async def pod(self, namespace: str, name: str = "pod-1", *, group: str = "") -> AsyncGenerator[Pod]:
        """Run one pod of a group's Deployment on this machine: its bootstrap, its Secret, its arguments."""
        await until(lambda: self._certified(namespace, group), what="Deployment and Secret")
        pod = Pod(self, namespace, self.directory / f"{namespace[-20:]}-{name}", name, group=group)
        await pod.start()
        try:
            yield pod
        finally:
            await pod.stop()

    async def _certified(self, namespace: str, group: str) -> bool:
        name = group_name(group or namespace)
        return bool(await self.deployment(namespace, group) and await self.secret(namespace, name))

    async def clean(self) -> None:
        """Leave nothing of ours to the next test on the same server."""
        for kind in (TCP_LOAD_BALANCERS, LOAD_BALANCERS):
            for load_balancer in await self.admin.list(kind):
                with contextlib.suppress(NotFound):
                    await self.admin.merge_patch(kind, *load_balancer.key, {"metadata": {"finalizers": None}})
                    await self.admin.delete(kind, *load_balancer.key)
        for resource in WRITTEN:
            for obj in await self.admin.list(resource, label_selector=_OURS):
                await self.admin.delete(resource, *obj.key)
        for tenant in await self.admin.list(TENANTS):
            await self.admin.delete(TENANTS, *tenant.key)
        # Shared by all tenants, and made with the first one.
        await self.admin.delete(CLUSTER_ROLES, "", READER_ROLE)
        for name in ("fairlead-xds-ca", "fairlead-xds-server"):
            await self.admin.delete(SECRETS, SYSTEM_NAMESPACE, name)


@asynccontextmanager
async def new_world(config: ClusterConfig, directory: Path) -> AsyncGenerator[World]:
    async with Cluster(config, name="admin") as admin:
        problems = await install_crds(admin, all_crds(), "admin")
        assert not problems, problems
        with contextlib.suppress(AlreadyExists):
            await admin.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
        world = World(admin, config, directory)
        await world.clean()
        try:
            yield world
        finally:
            for replica in world.replicas:
                await replica.stop()
            for backend in world.backends:
                await backend.stop()
            await world.clean()
