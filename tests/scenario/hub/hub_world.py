"""A hub in one process with the embedded API server and a cloud in memory; virtual time, real HTTP.

In: what users, agents and operators do. Out: what is at the API and at the cloud. The server and the cloud outlive
every hub.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from fairlead.api.kubernetes import ENDPOINT_SLICES, LEASES, NAMESPACES
from fairlead.api.meta import AnyResource, KubeObject, Resource, condition_of
from fairlead.api.names import AGENT_LEASE, LABEL_MANAGED_BY, MANAGED_BY, SYSTEM_NAMESPACE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.tenant import TENANTS, Tenant
from fairlead.errors import NotFound, Unreachable
from fairlead.hub.app import Hub, HubConfig
from fairlead.hub.intents import INTENTS
from fairlead.hub.intents.intent import MakeIntent
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.model.contract import AllocationKind, Provider
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock, settle
from fairlead.standalone.api import USER_ANNOTATIONS
from fairlead.testing.builders import ABLE, NAMESPACE, lb_key, slice_body, tcp_body
from fairlead.testing.faults import FaultyProvider
from fairlead.translate.addresses import AddressRanges
from podless import ApiServer
from tests.scenario.installed_kinds import server_with_kinds
from tests.worlds import in_process

TOKEN = "for-these-tests-only"
POOL = "192.0.2.0/29"
#: Drivers answer over sockets, and their timeouts are real: no wait ends before that time.
_REAL_S = 5.0


class Event(KubeObject, frozen=True, gc=False):
    """A core/v1 Event."""

    type: str = ""
    reason: str = ""
    message: str = ""
    involved_object: dict[str, Any] = msgspec.field(default_factory=dict)


EVENT = Resource("", "v1", "Event", "events", True, Event)


class WatchedCluster(Cluster):
    """A cluster that notes what is written through it, and can be made to refuse all of that."""

    refuse_writes = False
    #: The definitions of kinds, the system namespace and the default class, which a hub ensures when it starts.
    refuse_preparing = False
    #: No write about an object of this name goes through.
    refuse_name = ""

    def __init__(self, *args: Any, **text: Any) -> None:
        super().__init__(*args, **text)
        self.written: list[str] = []
        #: Patches of this kind are answered once ``answers`` is set.
        self.slow_kind = ""
        self.answers = asyncio.Event()
        #: The watch of this kind, or what watches show of this namespace, waits until ``caught_up`` is set; the next
        #: event of a kind then comes after those of the namespace.
        self.lagging_kind = ""
        self.lagging_namespace = ""
        self.caught_up = asyncio.Event()

    def _note(self, verb: str, resource: AnyResource, name: str) -> None:
        preparing = resource.kind in {"CustomResourceDefinition", "Namespace", "LoadBalancerClass"}
        if (self.refuse_preparing if preparing else self.refuse_writes) or name == self.refuse_name:
            raise Unreachable("The hub's API answers 503 to every write.")
        if resource.kind not in {"Lease", "Event"} and not (preparing and verb == "create"):
            self.written.append(f"{verb} {resource.kind} {name}")

    @contextlib.asynccontextmanager
    async def watch(self, resource: AnyResource, namespace: str, **text: Any) -> AsyncGenerator[AsyncIterator[bytes]]:
        async with super().watch(resource, namespace, **text) as chunks:

            async def delayed() -> AsyncIterator[bytes]:
                waiting, rest = b"", b""
                async for chunk in chunks:
                    if resource.kind == self.lagging_kind:
                        await self.caught_up.wait()
                    if not self.lagging_namespace:
                        yield chunk
                        continue
                    *lines, rest = (rest + chunk).split(b"\n")
                    name = f'"{self.lagging_namespace}"'.encode()
                    late = [line for line in lines if name in line and not self.caught_up.is_set()]
                    waiting += b"".join(line + b"\n" for line in late)
                    shown, waiting = (waiting, b"") if self.caught_up.is_set() else (b"", waiting)
                    yield shown + b"".join(line + b"\n" for line in lines if line not in late)

            yield delayed()

    async def apply(self, resource: AnyResource, obj: dict[str, Any], **text: Any) -> Any:
        self._note(f"apply{'/' + text['subresource'] if text.get('subresource') else ''}", resource, _name(obj))
        return await super().apply(resource, obj, **text)

    async def create(self, resource: AnyResource, obj: dict[str, Any]) -> Any:
        self._note("create", resource, _name(obj))
        return await super().create(resource, obj)

    async def replace(self, resource: AnyResource, obj: dict[str, Any], **text: Any) -> Any:
        self._note("replace", resource, _name(obj))
        return await super().replace(resource, obj, **text)

    async def merge_patch(self, resource: AnyResource, namespace: str, name: str, patch: Any, **text: Any) -> Any:
        if resource.kind == self.slow_kind:
            await self.answers.wait()
        self._note("patch", resource, name)
        return await super().merge_patch(resource, namespace, name, patch, **text)


def _name(obj: dict[str, Any]) -> str:
    return str(obj["metadata"].get("name", ""))


class RunningHub:
    """One hub replica, its connection, and its provider."""

    def __init__(
        self,
        world: HubWorld,
        *,
        identity: str,
        pool: str,
        refuse_writes: bool,
        refuse_preparing: bool,
        region: str = "",
    ) -> None:
        self.cluster = world.connect("hub")
        self.cluster.refuse_preparing = refuse_preparing
        self.cluster.refuse_writes = refuse_writes
        self.provider = FaultyProvider(
            MemoryProvider(cloud=world.regional_clouds.setdefault(region, MemoryCloud(clock=world.clock))),
            clock=world.clock,
            capabilities=msgspec.structs.replace(ABLE, allocation=AllocationKind.ADDRESS),
        )
        config = HubConfig(
            identity=identity,
            address_pool=AddressRanges.parse(pool) if pool else None,
            region=region,
            workers=2,
            domain=world.domain,
        )
        #: Behind the class of provider ``memory``: not ours to serve, so its ledger are BackendRecords.
        self.durable = MemoryProvider(cloud=world.outside)
        self.hub = Hub(
            cluster=self.cluster,
            providers={"envoy": self.provider},
            config=config,
            clock=world.clock,
            factories={"memory": lambda: self.durable, **world.factories},
            intents=world.intents,
        )
        self.task = asyncio.create_task(self.hub.run(), name=f"hub-{identity}")

    @property
    def written(self) -> list[str]:
        """Return what it wrote about load balancers and tenants, without the definitions of kinds."""
        return [each for each in self.cluster.written if "CustomResourceDefinition" not in each]


class HubWorld:
    """Everything around the hubs."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.clock = VirtualClock()
        self.cloud = MemoryCloud(clock=self.clock)
        #: What the proxies of each region serve; those of the hub without a region are ``cloud``.
        self.regional_clouds = {"": self.cloud}
        self.outside = MemoryCloud(clock=self.clock)
        #: More providers that classes may name; each hub makes its own.
        self.factories: dict[str, Callable[[], Provider]] = {}
        #: The kinds that ask for load balancers; each hub makes its own.
        self.intents: Sequence[MakeIntent] = INTENTS
        #: Where each hub makes names; empty: nowhere.
        self.domain = ""
        self.hubs: list[RunningHub] = []
        self._beats = 0
        #: Where hubs find the API.
        self.hub_url = server.url
        self.user = self.connect("user")

    def connect(self, name: str) -> WatchedCluster:
        url = self.hub_url if name == "hub" else self.server.url
        config = ClusterConfig(server=url, sign_in=bearer(TOKEN))
        return WatchedCluster(config, name=name, clock=self.clock, qps=0)

    # --- hubs ---

    async def start(
        self,
        *,
        identity: str = "hub-0",
        pool: str = POOL,
        region: str = "",
        lead: bool = True,
        refuse_writes: bool = False,
        refuse_preparing: bool = False,
    ) -> RunningHub:
        running_hub = RunningHub(
            self,
            identity=identity,
            pool=pool,
            region=region,
            refuse_writes=refuse_writes,
            refuse_preparing=refuse_preparing,
        )
        self.hubs.append(running_hub)
        await self.until(
            lambda: (
                running_hub.task.done() or (running_hub.provider.published and (not lead or running_hub.hub.leading))
            )
        )
        if running_hub.task.done():
            self.hubs.remove(running_hub)
            await running_hub.cluster.aclose()
            running_hub.task.result()
        await self.quiet()
        return running_hub

    async def stop(self, running_hub: RunningHub) -> None:
        self.hubs.remove(running_hub)
        running_hub.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running_hub.task
        await running_hub.cluster.aclose()

    # --- time ---

    async def until(self, check: Callable[[], Any], *, what: str = "", limit_s: float = 180.0) -> Any:
        real = asyncio.get_running_loop().time
        end_s, real_end_s = self.clock.monotonic() + limit_s, real() + _REAL_S
        while True:
            last = check()
            if isinstance(last, Awaitable):
                last = await last
            if last:
                return last
            if self.clock.monotonic() >= end_s:
                if real() >= real_end_s:
                    raise AssertionError(f"not within {limit_s} virtual seconds: {what or check}; last: {last!r}")
                await asyncio.sleep(0.01)
            await self._breathe()
            await self.clock.advance(0.25)

    async def _breathe(self) -> None:
        if in_process.installed():
            await settle(rounds=1000)
            return
        # Answers over sockets need real time, however short; virtual time must not run away from them.
        for _ in range(4):
            await asyncio.sleep(0.001)

    async def quiet(self, seconds: float = 8.0) -> None:
        """Let virtual time pass, long enough for everything that waits for better news."""
        for _ in range(int(seconds / 0.5)):
            await self._breathe()
            await self.clock.advance(0.5)

    # --- users, agents, operators ---

    async def tenant(self, name: str = "east", **spec: Any) -> Tenant:
        await self.user.apply(TENANTS, {"metadata": {"name": name}, "spec": spec}, manager="kubectl")
        if any(hub.hub.leading for hub in self.hubs):
            await self.until(lambda: self.find(NAMESPACES, "", f"tenant-{name}"), what="the namespace of the tenant")
        return await self.user.get(TENANTS, "", name)

    async def lb(self, name: str = "web", **text: Any) -> None:
        text.setdefault("ports", [{"port": 80}])
        text["spec"] = {"targets": "Pod", **(text.get("spec") or {})}
        await self.user.apply(TCP_LOAD_BALANCERS, tcp_body(name, **text), manager="kubectl")

    async def slice(self, load_balancer: str, *addresses: Any, namespace: str = NAMESPACE) -> None:
        body = slice_body(f"{load_balancer}-1", addresses, load_balancer=load_balancer, namespace=namespace)
        await self.user.apply(ENDPOINT_SLICES, body, manager="kubectl")

    async def nodes(self, *addresses: Any, namespace: str = NAMESPACE) -> None:
        await self.user.apply(
            ENDPOINT_SLICES, slice_body("nodes-1", addresses, nodes=True, namespace=namespace), manager="agent"
        )

    async def heartbeat(self, namespace: str = NAMESPACE, *, ahead_s: float = 0.0) -> None:
        """Beat as an agent would whose clock is ``ahead_s`` ahead of the API server's."""
        # The server's clock is known to the second, and a second may have many beats of the virtual clock.
        self._beats += 1
        now = self.user.server_clock.now() + timedelta(seconds=ahead_s, microseconds=self._beats)
        body = {
            "metadata": {"name": AGENT_LEASE, "namespace": namespace, "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
            "spec": {"renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "holderIdentity": "agent"},
        }
        await self.user.apply(LEASES, body, manager="agent")

    async def delete_lb(self, name: str = "web", namespace: str = NAMESPACE) -> None:
        await self.user.delete(TCP_LOAD_BALANCERS, namespace, name)

    # --- what is there ---

    async def find(self, resource: AnyResource, namespace: str, name: str) -> Any:
        try:
            return await self.user.get(resource, namespace, name)
        except NotFound:
            return None

    async def get(self, name: str = "web", namespace: str = NAMESPACE) -> TCPLoadBalancer | None:
        return await self.find(TCP_LOAD_BALANCERS, namespace, name)

    async def condition(self, kind: str, name: str = "web", namespace: str = NAMESPACE) -> Any:
        load_balancer = await self.get(name, namespace)
        return condition_of(load_balancer.status.conditions, kind) if load_balancer else None

    async def said(self, kind: str, status: str, *, name: str = "web", namespace: str = NAMESPACE) -> Any:
        """Wait until a condition has this status, and return it."""

        async def check() -> Any:
            condition = await self.condition(kind, name, namespace)
            return condition if condition is not None and condition.status == status else None

        return await self.until(check, what=f"{kind}={status} of {name}")

    async def programmed(self, name: str = "web", namespace: str = NAMESPACE) -> str:
        """Wait until a load balancer works, and return its address."""
        await self.said("Programmed", "True", name=name, namespace=namespace)
        load_balancer = await self.get(name, namespace)
        assert load_balancer is not None
        return load_balancer.status.address

    def at_cloud(self, name: str = "web", namespace: str = NAMESPACE) -> set[str]:
        return {str(at) for _, at in self.cloud.members(lb_key(name, namespace=namespace))}

    def address_at_cloud(self, name: str = "web", namespace: str = NAMESPACE) -> str:
        return self.cloud.load_balancers[lb_key(name, namespace=namespace)].spec.address

    async def events(self, name: str = "web", namespace: str = NAMESPACE) -> list[tuple[str, str]]:
        events: list[Event] = await self.user.list(EVENT, namespace)
        return [(event.type, event.reason) for event in events if event.involved_object.get("name") == name]

    async def lease_holder(self) -> str:
        lease = await self.find(LEASES, SYSTEM_NAMESPACE, "fairlead-hub")
        return (lease.spec.holder_identity or "") if lease else ""


def store(world: HubWorld, resource: AnyResource, namespace: str, name: str, change: Callable[[Any], object]) -> None:
    """Change an object where it is stored: as a release without today's checks has left it."""
    objects = world.server._running().store
    bucket = f"{resource.plural}.{resource.group}"
    entry = objects.bucket(bucket).get(namespace, name)
    assert entry is not None
    obj = entry.obj()
    change(obj)
    objects.put(bucket, obj)


@contextlib.asynccontextmanager
async def new_world() -> AsyncGenerator[HubWorld]:
    server = await server_with_kinds(admin_token=TOKEN, user_annotations=USER_ANNOTATIONS)
    await server.start()
    try:
        world = HubWorld(server)
        try:
            yield world
        finally:
            for hub in list(world.hubs):
                await world.stop(hub)
            await world.user.aclose()
    finally:
        await server.stop()
