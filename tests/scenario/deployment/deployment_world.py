"""Hub replicas at one API, and the tenants, the cloud and the kubelet there."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import CONFIG_MAPS, ENDPOINT_SLICES, NAMESPACES, SECRETS, SERVICES, Service
from fairlead.api.meta import KubeObject, Resource
from fairlead.api.names import (
    DEFAULT_CLASS,
    HUB_LEASE,
    LABEL_MANAGED_BY,
    LABEL_TENANT,
    MANAGED_BY,
    SYSTEM_NAMESPACE,
)
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.tenant import TENANTS
from fairlead.errors import AlreadyExists, FairleadError, NotFound
from fairlead.hub.app import Hub
from fairlead.hub.config import HubConfig
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.lease import LeaderElector
from fairlead.kube.preflight import install_crds
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.envoy_process import find_binary
from fairlead.providers.envoy.identity import ServerCertificate
from fairlead.providers.envoy.kubernetes.deployment_manifests import DeploymentSettings
from fairlead.providers.envoy.kubernetes.manifests import GROUP_LABEL, group_name
from fairlead.providers.envoy.kubernetes.objects import WRITTEN
from fairlead.providers.envoy.kubernetes.provider import DeploymentOptions, DeploymentProvider
from fairlead.providers.envoy.kubernetes.service_manifests import service_name
from fairlead.providers.envoy.resources import ResourceType
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.standalone.proxy_report import ProxyReporter, ProxyRow
from fairlead.testing.builders import slice_body, tcp_body
from fairlead.testing.worlds.loopback import free_port
from fairlead.translate.tenant import CLUSTER_ROLES, READER_ROLE
from tests.scenario.any_api import until
from tests.xds.world import Backend

_NUMBERS = itertools.count(1)
_OURS = f"{LABEL_MANAGED_BY}={MANAGED_BY},{GROUP_LABEL}"


class Replica:
    """One hub."""

    def __init__(
        self, config: ClusterConfig, name: str, directory: Path, settings: DeploymentSettings, clock: Clock
    ) -> None:
        self.name = name
        self.cluster = Cluster(config, name=f"hub-{name}")
        self.provider = DeploymentProvider(
            cluster=self.cluster,
            options=DeploymentOptions(
                identity=name, data_dir=directory / name, listen=("127.0.0.1", 0), settings=settings
            ),
            clock=clock,
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
            lease_s=1.5,
            renew_s=1.0,
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
        return [ProxyRow(proxy.node_id, proxy.group, proxy.state, proxy.nacks) for proxy in self.provider.proxies()]

    async def published(self) -> None:
        waiter = asyncio.ensure_future(self.hub.wait_published())
        await asyncio.wait({waiter, self.tasks[0]}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
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
        """Vanish: nothing is handed back, because nothing reaches the API any more."""

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

    async def hub(self, name: str = "one", *, leading: bool = True) -> Replica:
        replica = Replica(self.config, f"{self.prefix}-{name}", self.directory, self.settings, self.clock)
        self.replicas.append(replica)
        await replica.published()
        if leading:
            await until(lambda: replica.hub.leading, what="leading")
        return replica

    async def quiet(self, *replicas: Replica) -> None:
        """Wait until nothing has been written for a while, leases apart."""
        last: object = None
        same = 0

        async def check() -> bool:
            nonlocal last, same
            now = (await self.versions(), [replica.idle for replica in replicas])
            same = same + 1 if now == last and all(now[1]) else 0
            last = now
            return same >= 15

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
            f"127.{os.getpid() % 90 + 120}.{number // 250}.{number % 250 + 1}"
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
        matching = [condition for condition in (await self.lb(key)).status.conditions or () if condition.type == kind]
        return (matching[0].status, matching[0].reason, matching[0].message) if matching else ("", "", "")

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

    async def assign(self, key: LoadBalancerKey, **address: str) -> None:
        """Give a Service its address, as a cloud does."""
        service = await self.service(key)
        patch = {"status": {"loadBalancer": {"ingress": [address]}}}
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

    async def deployment(self, namespace: str) -> Any:
        return await self.raw(f"/apis/apps/v1/namespaces/{namespace}/deployments/{group_name(namespace)}")

    async def secret(self, namespace: str, name: str) -> dict[str, bytes]:
        secret = await self.raw(f"/api/v1/namespaces/{namespace}/secrets/{name}")
        return {key: base64.b64decode(value) for key, value in secret["data"].items()}

    @asynccontextmanager
    async def pod(self, namespace: str, name: str = "pod-1") -> AsyncIterator[Pod]:
        """Run one pod of a group's Deployment on this machine: its bootstrap, its Secret, its arguments."""
        await until(lambda: self._certified(namespace), what="Deployment and Secret")
        pod = Pod(self, namespace, self.directory / f"{namespace[-20:]}-{name}", name)
        await pod.start()
        try:
            yield pod
        finally:
            await pod.stop()

    async def _certified(self, namespace: str) -> bool:
        return bool(await self.deployment(namespace) and await self.secret(namespace, group_name(namespace)))

    async def clean(self) -> None:
        """Leave nothing of ours to the next test on the same server."""
        for load_balancer in await self.admin.list(TCP_LOAD_BALANCERS):
            with contextlib.suppress(NotFound):
                await self.admin.merge_patch(TCP_LOAD_BALANCERS, *load_balancer.key, {"metadata": {"finalizers": None}})
                await self.admin.delete(TCP_LOAD_BALANCERS, *load_balancer.key)
        for resource in WRITTEN:
            for obj in await self.admin.list(resource, label_selector=_OURS):
                await self.admin.delete(resource, *obj.key)
        for tenant in await self.admin.list(TENANTS):
            await self.admin.delete(TENANTS, *tenant.key)
        # Shared by all tenants, and made with the first one.
        await self.admin.delete(CLUSTER_ROLES, "", READER_ROLE)
        for name in ("fairlead-xds-ca", "fairlead-xds-server"):
            await self.admin.delete(SECRETS, SYSTEM_NAMESPACE, name)


class Pod:
    """One Envoy, run as its Deployment says, with the paths of its volumes on this machine."""

    def __init__(self, world: World, namespace: str, home: Path, name: str) -> None:
        self._world = world
        self._namespace = namespace
        self.home = home
        self.name = name
        self.admin = home / "run" / "admin.sock"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        deployment = await self._world.deployment(self._namespace)
        spec = deployment["spec"]["template"]["spec"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        container = spec["containers"][0]
        paths = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        name = volumes["bootstrap"]["configMap"]["name"]
        config_map = await self._world.raw(f"/api/v1/namespaces/{self._namespace}/configmaps/{name}")
        readiness = container["ports"][0]["containerPort"]
        here = free_port()
        (self.home / "run").mkdir(parents=True)
        (self.home / "bootstrap").mkdir()
        instead = {path: str(self.home / volume) for volume, path in paths.items()}
        instead[f'"port_value":{readiness}'] = f'"port_value":{here}'
        for file, content in config_map["data"].items():
            for old, new in instead.items():
                content = content.replace(old, new)  # noqa: PLW2901
            (self.home / "bootstrap" / file).write_text(content)
        await self.mount(volumes["tls"]["secret"]["secretName"])
        arguments = [
            argument.replace("/etc/envoy", str(self.home / "bootstrap")).replace("$(POD_NAME)", self.name)
            for argument in container["args"]
        ]
        with (self.home / "log").open("w") as log:
            self._process = await asyncio.create_subprocess_exec(find_binary(), *arguments, stderr=log)

    async def mount(self, secret: str) -> None:
        """Bring a Secret's files, all at once, as a kubelet does."""
        files = await self._world.secret(self._namespace, secret)
        tls = self.home / "tls"
        tls.mkdir(exist_ok=True)
        there = tls / f"..{next(_NUMBERS)}"
        there.mkdir()
        for name, content in files.items():
            (there / name).write_bytes(content)
            if not (tls / name).is_symlink():
                (tls / name).symlink_to(f"..data/{name}")
        (tls / "..new").symlink_to(there.name)
        (tls / "..new").replace(tls / "..data")

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
        shutil.rmtree(self.home, ignore_errors=True)


class Relay:
    """The hub's Service, as kube-proxy would make it: one port that leads to one of several replicas."""

    def __init__(self) -> None:
        self.port = 0
        self.target = 0
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> Relay:
        # Both families of "localhost", as far as this machine has them.
        self.port = free_port()
        self._servers = [await asyncio.start_server(self._serve, "127.0.0.1", self.port)]
        with contextlib.suppress(OSError):
            self._servers.append(await asyncio.start_server(self._serve, "::1", self.port))
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, forth}
        await asyncio.gather(self._pump(reader, forth), self._pump(back, writer))
        self._writers -= {writer, forth}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        """Break every connection."""
        for writer in list(self._writers):
            writer.close()

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        self.cut()


class Checkpoint:
    """A TLS server with the hub's certificate that only notes which client certificates it is shown (DER)."""

    def __init__(self, files: ServerCertificate) -> None:
        self.shown: set[bytes] = set()
        self.port = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files.certificate, files.key)
        self._context.load_verify_locations(files.client_ca)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.set_alpn_protocols(["h2"])
        self._server: asyncio.Server | None = None

    async def start(self) -> Checkpoint:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tls = writer.get_extra_info("ssl_object")
        self.shown.add(tls.getpeercert(binary_form=True) or b"")
        writer.close()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()


@asynccontextmanager
async def new_world(config: ClusterConfig, directory: Path) -> AsyncIterator[World]:
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
