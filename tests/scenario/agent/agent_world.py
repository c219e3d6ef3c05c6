"""A member and a hub in one process, over real HTTP, and everything a scenario does to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

from fairlead.agent.app import Agent
from fairlead.agent.config import AgentConfig
from fairlead.api.kubernetes import ENDPOINT_SLICES, EVENTS, NAMESPACES, NODES, SERVICES, EndpointSlice
from fairlead.api.meta import KubeObject, Resource
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.errors import FairleadError, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import Access, ClusterConfig
from podless import ApiServer
from podless.metrics import WRITE_VERBS
from tests.scenario.any_api import EVENT, until
from tests.scenario.installed_kinds import server_with_kinds

HUB_NAMESPACE = "tenant-east"
USER = "kubectl"
#: Annotations of Services: its targets are pods; it is for Fairlead although it has node ports only.
POD = {"fairlead.dev/target": "Pod"}
KUBELB = {"kubernetes.io/service.class": "kubelb"}
TOKEN = "for-these-tests-only"
_ADMIN = Access(headers={"Authorization": f"Bearer {TOKEN}"})


class World:
    """Two API servers, an administrator at each, and the agents."""

    def __init__(self, member: Cluster, hub: Cluster, member_url: str, hub_url: str) -> None:
        self.member = member
        self.hub = hub
        self.member_url = member_url
        self.hub_url = hub_url
        #: The servers of the member and of the hub, which count requests.
        self.servers: list[ApiServer] = []
        self.agents: list[tuple[Agent, asyncio.Task[None]]] = []

    def written(self) -> Counter[str]:
        """Return the writes at both servers so far by verb and kind, without Events and leases."""
        written: Counter[str] = Counter()
        for server in self.servers:
            for (verb, kind), count in server.requests().items():
                if verb in WRITE_VERBS and kind not in ("events", "leases"):
                    written[f"{verb} {kind}"] += count
        return written

    # --- agents -----------------------------------------------------------------------------------------------

    async def start(self, *, exporting: bool = True, **options: Any) -> Agent:
        member_url = options.pop("member_url", self.member_url)
        hub_url = options.pop("hub_url", self.hub_url)
        defaults: dict[str, Any] = {
            "tenant": "east",
            "hub_namespace": HUB_NAMESPACE,
            "region": "eu-1",
            "heartbeat_s": 3600.0,
            "preflight_retry_s": 0.2,
        }
        config = AgentConfig(**{**defaults, **options})
        agent = Agent(
            member=cluster(member_url, "the member"), hub=cluster(hub_url, "the hub", HUB_NAMESPACE), config=config
        )
        self.agents.append((agent, asyncio.create_task(agent.run(), name="agent")))
        if exporting:
            await until(agent.leadership.may_write, what="leading")
            await self.settled(agent)
        return agent

    async def stop(self, agent: Agent) -> None:
        for each, task in list(self.agents):
            if each is agent:
                self.agents.remove((each, task))
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                await each.member.aclose()
                await each.hub.aclose()

    async def settled(self, agent: Agent) -> None:
        """Wait until the agent has seen all there is, and has nothing left to do about it."""
        quiet = 0

        async def check() -> bool:
            nonlocal quiet
            queues = agent.engine.lanes["services"][:2]
            idle = agent.working and not any(len(queue) or queue.processing for queue in queues)
            quiet = quiet + 1 if idle and await self._current(agent) else 0
            return quiet >= 2

        await until(check, what="settled")

    async def _current(self, agent: Agent) -> bool:
        sources = agent.caches
        for cache, user in (
            *((cache, self.member) for cache in sources.of_member),
            *((cache, self.hub) for cache in sources.of_hub),
        ):
            there = await user.list(
                Resource(
                    cache.resource.group,
                    "v1alpha1" if "fairlead" in cache.resource.group else "v1",
                    cache.resource.kind,
                    cache.resource.plural,
                    cache.resource.namespaced,
                    KubeObject,
                ),
                cache.namespace,
                label_selector=cache._label_selector,
            )
            held = {each.key: each.metadata.resource_version for each in cache.values()}
            if held != {each.key: each.metadata.resource_version for each in there}:
                return False
        return True

    # --- the member -------------------------------------------------------------------------------------------

    async def service(
        self, name: str = "web", *, namespace: str = "shop", kind: str = "LoadBalancer", **more: Any
    ) -> None:
        """Create or change a Service as a user would."""
        ports = more.pop("ports", [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}])
        meta = {
            "name": name,
            "namespace": namespace,
            "annotations": more.pop("annotations", {}),
            "labels": more.pop("labels", {}),
        }
        spec = {"type": kind, "ports": ports, "selector": {"app": name}, **more}
        await self.member.apply(SERVICES, {"metadata": meta, "spec": spec}, manager=USER)

    async def delete_service(self, name: str = "web", namespace: str = "shop") -> None:
        await self.member.delete(SERVICES, namespace, name)

    async def get_service(self, name: str = "web", namespace: str = "shop") -> Any:
        return await self.member.get(SERVICES, namespace, name)

    async def slice(
        self,
        *pods: str,
        name: str = "web-1",
        service: str = "web",
        namespace: str = "shop",
        ready: bool = True,
        node: str = "n1",
        family: str = "IPv4",
    ) -> None:
        """Create or change an EndpointSlice as the member's own controller would."""
        body = {
            "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
            "addressType": family,
            "endpoints": [{"addresses": [pod], "conditions": {"ready": ready}, "nodeName": node} for pod in pods],
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        }
        await self.member.apply(ENDPOINT_SLICES, body, manager="endpointslice-controller")

    async def node(self, name: str, *addresses: str, ready: str = "True", **spec: Any) -> None:
        body = {"metadata": {"name": name}, "spec": spec}
        status = {
            "addresses": [{"type": "InternalIP", "address": address} for address in addresses],
            "conditions": [{"type": "Ready", "status": ready}],
        }
        await self.member.apply(NODES, body, manager="kubelet")
        # Not applied: two addresses of one type have the same key, which only a patch may write.
        await self.member.merge_patch(NODES, "", name, {"status": status}, manager="kubelet", subresource="status")

    async def cloud_status(self, *ingress: dict[str, str], name: str = "web", namespace: str = "shop") -> None:
        """Write a Service's status as the member's cloud would."""
        patch = {"status": {"loadBalancer": {"ingress": list(ingress)}}}
        await self.member.merge_patch(
            SERVICES, namespace, name, patch, subresource="status", manager="cloud-controller-manager"
        )

    async def events(self, name: str = "web", namespace: str = "shop") -> list[tuple[str, str, str]]:
        events = await self.member.list(EVENT, namespace)
        return [(e.type, e.reason, e.message) for e in events if e.involved_object.get("name") == name]

    async def event(self, reason: str, name: str = "web", namespace: str = "shop") -> str:
        """Wait for an Event and return its message."""

        async def check() -> list[str]:
            return [message for _, each, message in await self.events(name, namespace) if each == reason]

        return (await until(check, what=f"event {reason}"))[0]

    # --- the hub ----------------------------------------------------------------------------------------------

    async def load_balancers(self) -> dict[str, TCPLoadBalancer]:
        return {
            tcp_load_balancer.metadata.name: tcp_load_balancer
            for tcp_load_balancer in await self.hub.list(TCP_LOAD_BALANCERS, HUB_NAMESPACE)
        }

    async def load_balancer(self, name: str = "shop.web") -> TCPLoadBalancer:
        """Wait for a TCPLoadBalancer that is not being deleted."""

        async def check() -> Any:
            load_balancer = await self.find(name)
            return load_balancer if load_balancer is not None and not load_balancer.deleting else None

        return await until(check, what=name)

    async def find(self, name: str = "shop.web") -> TCPLoadBalancer | None:
        try:
            return await self.hub.get(TCP_LOAD_BALANCERS, HUB_NAMESPACE, name)
        except NotFound:
            return None

    async def gone(self, name: str = "shop.web") -> None:
        """Wait until a TCPLoadBalancer is being deleted, release it as the hub does, then for its slices to be gone."""

        async def deleting() -> bool:
            load_balancer = await self.find(name)
            return load_balancer is None or load_balancer.deleting

        await until(deleting, what=f"{name} deleted")
        await self.release(name)

        async def no_slices() -> bool:
            return not await self.slices(name)

        await until(no_slices, what=f"slices of {name} deleted")

    async def release(self, name: str = "shop.web") -> None:
        """Take the finalizer away, as the hub does when everything is torn down."""
        with contextlib.suppress(NotFound):
            await self.hub.merge_patch(TCP_LOAD_BALANCERS, HUB_NAMESPACE, name, {"metadata": {"finalizers": None}})

    async def slices(self, load_balancer: str = "shop.web") -> dict[str, EndpointSlice]:
        endpoint_slices = await self.hub.list(
            ENDPOINT_SLICES, HUB_NAMESPACE, label_selector=f"fairlead.dev/load-balancer={load_balancer}"
        )
        return {endpoint_slice.metadata.name: endpoint_slice for endpoint_slice in endpoint_slices}

    async def addresses(self, load_balancer: str = "shop.web") -> list[str]:
        slices = await self.slices(load_balancer)
        return sorted(e.addresses[0] for slice_ in slices.values() for e in slice_.endpoints or ())

    async def nodes(self, label: str = "fairlead.dev/nodes") -> tuple[list[str], str]:
        """Return the ready node addresses at the hub, and why they are stale."""
        endpoint_slices = await self.hub.list(ENDPOINT_SLICES, HUB_NAMESPACE, label_selector=f"{label}=true")
        ready = sorted(
            e.addresses[0]
            for endpoint_slice in endpoint_slices
            for e in endpoint_slice.endpoints or ()
            if e.conditions.ready
        )
        return ready, next((endpoint_slice.annotation("fairlead.dev/stale") for endpoint_slice in endpoint_slices), "")

    async def answer(self, address: str = "192.0.2.1", name: str = "shop.web", **condition: Any) -> None:
        """Write the status of a TCPLoadBalancer as the hub would."""
        load_balancer = await self.load_balancer(name)
        body = {
            "address": address,
            "observedGeneration": load_balancer.metadata.generation,
            "loadBalancer": {"ingress": [{"ip": address}] if address else []},
            "conditions": [
                {
                    "type": "Programmed",
                    "status": "True",
                    "reason": "Programmed",
                    "message": "",
                    "observedGeneration": load_balancer.metadata.generation,
                    "lastTransitionTime": "2030-01-01T00:00:00Z",
                    **condition,
                }
            ],
        }
        await self.hub.merge_patch(
            TCP_LOAD_BALANCERS, HUB_NAMESPACE, name, {"status": body}, subresource="status", manager="fairlead-hub"
        )

    async def shown(self, name: str = "web", namespace: str = "shop") -> list[str]:
        """Return the addresses in a Service's status."""
        service = await self.get_service(name, namespace)
        return [each.address for each in service.status.load_balancer.ingress or ()]

    async def until_shown(self, *addresses: str, name: str = "web", namespace: str = "shop") -> None:
        async def check() -> bool:
            return await self.shown(name, namespace) == list(addresses)

        await until(check, what=f"status {addresses}")


def cluster(url: str, name: str, namespace: str = "default") -> Cluster:
    config = ClusterConfig(server=url, namespace=namespace, sign_in=_sign_in)
    return Cluster(config, name=name, qps=10_000)


async def _sign_in(_refused: Access | None) -> Access:
    return _ADMIN


def writes(agent: Agent, side: str = "hub") -> int:
    """Return how many writes of load balancers, slices and Services an agent has made; leases do not count."""
    wanted = f"fairlead_agent_{side}_writes_total"
    return int(
        sum(sample.value for metric in agent.registry.collect() for sample in metric.samples if sample.name == wanted)
    )


def metric(agent: Agent, name: str, **labels: str) -> float:
    return agent.registry.get_sample_value(f"fairlead_agent_{name}", labels) or 0.0


async def ensure_namespaces(user: Cluster, *names: str) -> None:
    for name in names:
        try:
            await user.get(NAMESPACES, "", name)
        except NotFound:
            await user.create(NAMESPACES, {"metadata": {"name": name}})


@contextlib.asynccontextmanager
async def new_world(*, same_cluster: bool = False) -> AsyncGenerator[World]:
    async with contextlib.AsyncExitStack() as stack:
        servers = [await server_with_kinds(admin_token=TOKEN, min_token_s=1)]
        if not same_cluster:
            servers.insert(0, ApiServer(admin_token=TOKEN, min_token_s=1))
        urls: list[str] = []
        for server in servers:
            urls.append(await server.start())
            stack.push_async_callback(server.stop)
        member = await stack.enter_async_context(cluster(urls[0], "member"))
        hub = await stack.enter_async_context(cluster(urls[-1], "hub"))
        await ensure_namespaces(member, "kube-system", "shop")
        await ensure_namespaces(hub, "kube-system", HUB_NAMESPACE)
        world = World(member, hub, urls[0], urls[-1])
        world.servers = servers
        try:
            yield world
        finally:
            for agent, _ in list(world.agents):
                await world.stop(agent)


__all__ = ["EVENTS", "FairleadError", "World", "metric", "new_world", "until", "writes"]
