"""A hub and members of a cluster set in one process, over real HTTP: a real hub, and a real agent for each member."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from fairlead.agent.app import Agent
from fairlead.agent.config import AgentConfig
from fairlead.api.kubernetes import CRDS, ENDPOINT_SLICES, NAMESPACES, SERVICES, EndpointSlice
from fairlead.api.meta import JSONObject, KubeObject, Resource, WireCondition, condition_of
from fairlead.api.multicluster import (
    LABEL_MULTICLUSTER_SERVICE,
    LABEL_SOURCE_CLUSTER,
    MULTICLUSTER_VERSIONS,
    SERVICE_EXPORTS,
    SERVICE_IMPORTS,
    ServiceExport,
    ServiceImport,
)
from fairlead.api.tenant import TENANTS
from fairlead.errors import NotFound
from fairlead.hub.app import Hub, HubConfig
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.model.contract import AllocationKind
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import SystemClock
from fairlead.testing.builders import ABLE
from fairlead.testing.faults import FaultyProvider
from fairlead.translate.addresses import AddressRanges
from podless import ApiServer
from tests.scenario.any_api import until
from tests.scenario.installed_kinds import server_with_kinds

TOKEN = "for-these-tests-only"
USER = "kubectl"
HELLO = "hello"
TCP_AND_UDP = ({"name": "tcp", "port": 42, "protocol": "TCP"}, {"name": "udp", "port": 42, "protocol": "UDP"})

_TEXT: JSONObject = {"type": "string"}
_TEXTS: JSONObject = {"type": "object", "additionalProperties": _TEXT}
_CONDITIONS: JSONObject = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status", "reason", "message", "lastTransitionTime"],
        "properties": {
            **dict.fromkeys(("type", "status", "reason", "message"), _TEXT),
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64"},
        },
    },
}
_PORT: JSONObject = {
    "type": "object",
    "required": ["port"],
    "properties": {
        "port": {"type": "integer", "format": "int32"},
        **dict.fromkeys(("name", "protocol", "appProtocol"), _TEXT),
    },
}
_SPECS: dict[str, JSONObject] = {
    "ServiceExport": {"exportedLabels": _TEXTS, "exportedAnnotations": _TEXTS},
    "ServiceImport": {
        "ports": {"type": "array", "x-kubernetes-list-type": "atomic", "items": _PORT},
        "ips": {"type": "array", "maxItems": 2, "items": _TEXT},
        "type": {"type": "string", "enum": ["ClusterSetIP", "Headless"]},
        "sessionAffinity": _TEXT,
        "sessionAffinityConfig": {
            "type": "object",
            "properties": {
                "clientIP": {"type": "object", "properties": {"timeoutSeconds": {"type": "integer", "format": "int32"}}}
            },
        },
        "ipFamilies": {"type": "array", "maxItems": 2, "items": _TEXT},
        "internalTrafficPolicy": _TEXT,
        "trafficDistribution": _TEXT,
    },
}
_COLUMNS: dict[str, list[JSONObject]] = {
    "ServiceExport": [],
    "ServiceImport": [
        {"name": "Type", "type": "string", "jsonPath": ".spec.type"},
        {"name": "IP", "type": "string", "jsonPath": ".spec.ips"},
    ],
}
_AGE: JSONObject = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_CLUSTERS: JSONObject = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["cluster"],
    "items": {"type": "object", "required": ["cluster"], "properties": {"cluster": _TEXT}},
}


def definition(kind: Resource[Any], versions: tuple[str, ...]) -> JSONObject:
    """Return a definition with the fields of the standard; the first version is stored."""
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": _SPECS[kind.kind]},
            "status": {"type": "object", "properties": {"conditions": _CONDITIONS, "clusters": _CLUSTERS}},
        },
    }
    return {
        "metadata": {"name": kind.full_name},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"plural": kind.plural, "singular": kind.kind.lower(), "kind": kind.kind},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[0],
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [*_COLUMNS[kind.kind], _AGE],
                    "schema": {"openAPIV3Schema": schema},
                }
                for version in versions
            ],
        },
    }


def connect(url: str, name: str, namespace: str = "default") -> Cluster:
    return Cluster(ClusterConfig(server=url, namespace=namespace, sign_in=bearer(TOKEN)), name=name, qps=10_000)


class Member:
    """One member: its API server, its user, and its agent."""

    def __init__(self, name: str, user: Cluster, server: ApiServer) -> None:
        self.name = name
        self.server = server
        #: The namespace of Services, where a call names no other.
        self.home = "shop"
        self.user = user
        self.url = server.url
        self.agent: Agent | None = None
        self.task: asyncio.Task[None] | None = None
        self.exports: Resource[ServiceExport] = SERVICE_EXPORTS
        self.imports: Resource[ServiceImport] = SERVICE_IMPORTS

    async def install(self, *versions: str) -> None:
        """Install the kinds of the standard in these versions, both by default."""
        served = versions or MULTICLUSTER_VERSIONS
        self.exports = msgspec.structs.replace(SERVICE_EXPORTS, version=served[0])
        self.imports = msgspec.structs.replace(SERVICE_IMPORTS, version=served[0])
        for kind in (SERVICE_EXPORTS, SERVICE_IMPORTS):
            await self.user.apply(CRDS, definition(kind, served), manager="admin")

    async def namespace(self, name: str) -> None:
        await self.user.apply(NAMESPACES, {"metadata": {"name": name}}, manager=USER)

    # --- what users do ---

    async def service(self, name: str = HELLO, *pods: str, namespace: str = "", **spec: Any) -> None:
        """Create a Service, with a slice of these pods as its controller would write it."""
        spec = {"selector": {"app": name}, "ports": list(TCP_AND_UDP), **spec}
        body = {
            "metadata": {"name": name, "namespace": namespace or self.home, "labels": {"dummy-svc": "dummy"}},
            "spec": spec,
        }
        await self.user.apply(SERVICES, body, manager=USER)
        if pods:
            await self.slice(*pods, service=name, namespace=namespace, ports=spec["ports"])

    async def slice(self, *pods: str, service: str = HELLO, namespace: str = "", ports: Any = TCP_AND_UDP) -> None:
        body = {
            "metadata": {
                "name": f"{service}-1",
                "namespace": namespace or self.home,
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": [pod], "nodeName": "n1", "hostname": f"{service}-{number}"}
                for number, pod in enumerate(pods)
            ],
            "ports": [{name: port[name] for name in ("name", "port", "protocol") if name in port} for port in ports],
        }
        await self.user.apply(ENDPOINT_SLICES, body, manager="endpointslice-controller")

    async def export(self, name: str = HELLO, namespace: str = "", **spec: Any) -> None:
        body = {"metadata": {"name": name, "namespace": namespace or self.home}, "spec": spec}
        await self.user.apply(self.exports, body, manager=USER)

    async def unexport(self, name: str = HELLO, namespace: str = "") -> None:
        await self.user.delete(self.exports, namespace or self.home, name)

    async def export_later(self, name: str = HELLO, **spec: Any) -> None:
        """Export a Service once the clock shows another second, since creation times have whole ones."""
        since = int(time.time())
        await until(lambda: int(time.time()) > since, what="the next second")
        await self.export(name, **spec)

    # --- what users see ---

    async def find_import(self, name: str = HELLO, namespace: str = "") -> ServiceImport | None:
        with contextlib.suppress(NotFound):
            return await self.user.get(self.imports, namespace or self.home, name)
        return None

    async def imported(
        self,
        name: str = HELLO,
        namespace: str = "",
        check: Callable[[ServiceImport], Any] = lambda obj: obj.status.conditions,
    ) -> ServiceImport:
        """Wait until there is a ServiceImport for which ``check`` holds, by default with a status."""

        async def there() -> Any:
            obj = await self.find_import(name, namespace)
            return obj if obj is not None and check(obj) else None

        return await until(there, what=f"ServiceImport {name} in {self.name}")

    async def no_import(self, name: str = HELLO, namespace: str = "") -> None:
        async def gone() -> bool:
            return await self.find_import(name, namespace) is None and not await self.slices(name, namespace)

        await until(gone, what=f"no ServiceImport {name} in {self.name}")

    async def condition(
        self, kind: str, status: str = "True", *, name: str = HELLO, namespace: str = "", reason: str = ""
    ) -> WireCondition:
        """Wait until a condition of a ServiceExport has this status, and this reason if one is given."""

        async def shown() -> Any:
            export = await self.user.get(self.exports, namespace or self.home, name)
            condition = condition_of(export.status.conditions, kind)
            fits = condition is not None and condition.status == status and reason in ("", condition.reason)
            return condition if fits else None

        return await until(shown, what=f"{kind}={status} {reason} of {name} in {self.name}")

    async def slices(self, name: str = HELLO, namespace: str = "") -> list[EndpointSlice]:
        return await self.user.list(
            ENDPOINT_SLICES, namespace or self.home, label_selector=f"{LABEL_MULTICLUSTER_SERVICE}={name}"
        )

    async def endpoints(self, name: str = HELLO, namespace: str = "") -> dict[str, list[str]]:
        """Return the addresses of each source cluster."""
        by_cluster: dict[str, list[str]] = {}
        for endpoint_slice in await self.slices(name, namespace):
            addresses = by_cluster.setdefault(endpoint_slice.label(LABEL_SOURCE_CLUSTER), [])
            addresses += [each for endpoint in endpoint_slice.endpoints or () for each in endpoint.addresses or ()]
        return {cluster: sorted(addresses) for cluster, addresses in by_cluster.items()}

    async def until_endpoints(self, expected: dict[str, list[str]], name: str = HELLO) -> None:
        async def same() -> bool:
            return await self.endpoints(name) == expected

        await until(same, what=f"endpoints {expected} of {name} in {self.name}")


class SetWorld:
    """A hub, and its members by name."""

    async def homes(self, name: str) -> None:
        """Have all members use a namespace of this name."""
        for member in self.members.values():
            member.home = name
            await member.namespace(name)

    def __init__(self, hub_user: Cluster, hub_url: str) -> None:
        self.hub_user = hub_user
        self.hub_url = hub_url
        self.members: dict[str, Member] = {}
        self.hub: Hub | None = None
        self._hub_task: asyncio.Task[None] | None = None
        self.cloud = MemoryCloud(clock=SystemClock())

    async def start_hub(self) -> None:
        clock = SystemClock()
        provider = FaultyProvider(
            MemoryProvider(cloud=self.cloud),
            clock=clock,
            capabilities=msgspec.structs.replace(ABLE, allocation=AllocationKind.ADDRESS),
        )
        self.hub = Hub(
            cluster=connect(self.hub_url, "hub"),
            providers={"envoy": provider},
            config=HubConfig(identity="hub-0", address_pool=AddressRanges.parse("192.0.2.0/24"), reclaim_lease=True),
            clock=clock,
        )
        self._hub_task = asyncio.create_task(self.hub.run(), name="hub")
        await until(lambda: self.hub is not None and self.hub.leading, what="the hub leads")

    async def stop_hub(self) -> None:
        if self.hub is not None and self._hub_task is not None:
            await _end(self._hub_task)
            await self.hub._cluster.aclose()
            self.hub = None

    async def tenant(self, name: str, **spec: Any) -> None:
        await self.hub_user.apply(TENANTS, {"metadata": {"name": name}, "spec": spec}, manager="operator")

        async def made() -> bool:
            with contextlib.suppress(NotFound):
                return bool(await self.hub_user.get(NAMESPACES, "", f"tenant-{name}"))
            return False

        await until(made, what=f"the namespace of {name}")

    async def start_agent(self, member: Member, *, clusters: tuple[Cluster, Cluster] | None = None) -> None:
        """Start the agent of a member; ``clusters``: its connections to the member and to the hub."""
        config = AgentConfig(tenant=member.name, heartbeat_s=3600.0, preflight_retry_s=0.2, target="Pod")
        own, hub = clusters or (
            connect(member.url, f"member {member.name}"),
            connect(self.hub_url, "the hub", f"tenant-{member.name}"),
        )
        member.agent = Agent(member=own, hub=hub, config=config)
        member.task = asyncio.create_task(member.agent.run(), name=f"agent-{member.name}")

    async def stop_agent(self, member: Member) -> None:
        if member.agent is not None and member.task is not None:
            await _end(member.task)
            await member.agent.member.aclose()
            await member.agent.hub.aclose()
            member.agent = None

    async def close(self) -> None:
        for member in self.members.values():
            await self.stop_agent(member)
        await self.stop_hub()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.asynccontextmanager
async def new_set(*names: str, agents: bool = True, **spec: Any) -> AsyncGenerator[SetWorld]:
    """Run a hub and members of set ``prod`` whose pods reach each other; ``spec`` is that of their Tenants."""
    async with contextlib.AsyncExitStack() as stack:

        async def serve(server: ApiServer) -> str:
            url = await server.start()
            stack.push_async_callback(server.stop)
            return url

        hub_url = await serve(await server_with_kinds(admin_token=TOKEN, min_token_s=1))
        world = SetWorld(await stack.enter_async_context(connect(hub_url, "hub")), hub_url)
        try:
            await world.start_hub()
            for name in names:
                server = ApiServer(admin_token=TOKEN, min_token_s=1)
                url = await serve(server)
                member = Member(name, await stack.enter_async_context(connect(url, name)), server)
                world.members[name] = member
                await member.install()
                await member.namespace("kube-system")
                await member.namespace(member.home)
                await world.tenant(name, **{"clusterSet": "prod", "reachability": "Pods", **spec})
                if agents:
                    await world.start_agent(member)
            yield world
        finally:
            await world.close()


__all__ = ["KubeObject", "Member", "SetWorld", "new_set", "until"]
