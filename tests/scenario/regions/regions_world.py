"""A cluster with regions over real HTTP, and everything that a scenario does to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import ENDPOINT_SLICES, NAMESPACES, NODES, SERVICES, EndpointSlice, Node, Service
from fairlead.api.meta import JSONObject
from fairlead.api.poolservice import NODE_POOLS, POOL_SERVICES, PoolService
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.errors import Conflict, FairleadError, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.discovery import install_crds
from fairlead.kube.transport import KubeMetrics
from fairlead.regions.app import Regions, RegionsConfig
from tests.scenario.any_api import EVENT, Event, until

NAMESPACE = "shop"
FINALIZER = "fairlead.dev/pool-services"
SELECTOR = "fairlead.dev/nodepool-selector"
OWNED = {"poolservice.openyurt.io/managed-by": "load-balancer-set-controller"}
_READS = {"get", "list", "watch"}
_NOISE = {"leases.coordination.k8s.io", "events", "namespaces", "customresourcedefinitions.apiextensions.k8s.io"}


class Running:
    """Regions as they run, with their own connection, so that what they do can be counted."""

    def __init__(self, api: ClusterConfig, **options: Any) -> None:
        self.metrics = KubeMetrics()
        self.cluster = Cluster(api, name="regions", qps=10_000, metrics=self.metrics)
        config = msgspec.structs.replace(RegionsConfig(identity="one"), **options)
        self.regions = Regions(cluster=self.cluster, config=config)
        self.task = asyncio.create_task(self.regions.run(), name="regions")

    def requests(self, *resources: str) -> int:
        """Return how many writes have been asked for, of these kinds or of all; leases and Events do not count."""
        count = 0
        for sample in next(iter(self.metrics.requests.collect())).samples:
            labels = sample.labels
            if not sample.name.endswith("_total") or labels["verb"] in _READS or labels["resource"] in _NOISE:
                continue
            if not labels["code"].startswith("2"):
                continue
            if not resources or labels["resource"].partition(".")[0].partition("/")[0] in resources:
                count += int(sample.value)
        return count

    def written(self) -> dict[str, int]:
        """Return the writes by verb and kind."""
        result: dict[str, int] = {}
        for sample in next(iter(self.metrics.requests.collect())).samples:
            labels = sample.labels
            if sample.name.endswith("_total") and labels["verb"] not in _READS and labels["resource"] not in _NOISE:
                result[f"{labels['verb']} {labels['resource']}"] = int(sample.value)
        return result

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        await self.cluster.aclose()


class World:
    """One API server, its administrator, and the regions that run."""

    def __init__(self, api: ClusterConfig, user: Cluster) -> None:
        self.api = api
        self.user = user
        self.running: list[Running] = []

    # --- regions ----------------------------------------------------------------------------------------------

    async def start(self, **options: Any) -> Running:
        running = Running(self.api, **options)
        self.running.append(running)
        await until(lambda: running.regions.leading or running.task.done(), what="leading")
        if running.task.done():
            await running.task
        await self.settled()
        return running

    async def stop(self, running: Running) -> None:
        self.running.remove(running)
        await running.stop()

    async def settled(self) -> None:
        """Wait until regions have seen all there is, and have nothing left to do about it."""
        quiet = 0

        async def check() -> bool:
            nonlocal quiet
            idle = all(
                not any(len(queue) or queue.processing or queue._failures for queue in each.regions.queues.values())
                for each in self.running
                if each.regions.leading
            )
            quiet = quiet + 1 if idle and await self._current() else 0
            return quiet >= 2

        await until(check, what="settled")

    async def _current(self) -> bool:
        for item in self.running:
            for cache in item.regions.caches.values():
                there = await self.user.listing(cache.resource, cache.namespace, label_selector=cache._label_selector)
                held = {each.key: each.metadata.resource_version for each in cache.values()}
                if held != {each.key: each.metadata.resource_version for each in there.items}:
                    return False
        return True

    # --- what users and clusters do ---------------------------------------------------------------------------

    async def pool(self, name: str, /, *, nodes: dict[str, str] | None = None, region: str = "", **labels: str) -> None:
        """Create or change a NodePool."""
        spec = {"nodeSelector": {"region": name} if nodes is None else nodes, "region": region}
        await self.user.apply(NODE_POOLS, {"metadata": {"name": name, "labels": labels}, "spec": spec}, manager="user")

    async def delete_pool(self, name: str) -> None:
        await self.user.delete(NODE_POOLS, "", name)

    async def node(self, name: str, region: str = "", *, address: str = "10.1.0.1", ready: str = "True") -> None:
        labels = {"region": region} if region else {}
        status = {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": ready}],
        }
        await self.user.apply(NODES, {"metadata": {"name": name, "labels": labels}}, manager="kubelet")
        await self.user.apply(
            NODES, {"metadata": {"name": name}, "status": status}, manager="kubelet", subresource="status"
        )

    async def service(
        self,
        name: str = "test",
        *,
        namespace: str = NAMESPACE,
        selector: str | None = "app=deploy",
        class_name: str | None = "elb",
        kind: str = "LoadBalancer",
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        finalizers: list[str] | None = None,
        **spec: Any,
    ) -> None:
        """Create a Service as a user would."""
        marks = {**(annotations or {}), **({} if selector is None else {SELECTOR: selector})}
        meta: dict[str, Any] = {"name": name, "namespace": namespace, "annotations": marks, "labels": labels or {}}
        if finalizers:
            meta["finalizers"] = finalizers
        body = {"type": kind, "ports": [{"name": "http", "port": 80, "targetPort": 8080}], **spec}
        if class_name is not None:
            body["loadBalancerClass"] = class_name
        await self.user.create(SERVICES, {"metadata": meta, "spec": body})

    async def change_service(self, patch: dict[str, Any], name: str = "test", namespace: str = NAMESPACE) -> None:
        await self.user.merge_patch(SERVICES, namespace, name, patch, manager="user")

    async def annotate(self, name: str = "test", namespace: str = NAMESPACE, **values: str | None) -> None:
        marks = {key.replace("__", "/"): value for key, value in values.items()}
        await self.change_service({"metadata": {"annotations": marks}}, name, namespace)

    async def delete_service(self, name: str = "test", namespace: str = NAMESPACE) -> None:
        await self.user.delete(SERVICES, namespace, name)

    async def get_service(self, name: str = "test", namespace: str = NAMESPACE) -> Service:
        return await self.user.get(SERVICES, namespace, name)

    async def slice(
        self, *pods: tuple[str, str] | tuple[str, str, bool], name: str = "test-1", service: str = "test",
        namespace: str = NAMESPACE,
    ) -> None:  # fmt: skip
        """Create or change an EndpointSlice; a pod is (address, node) or (address, node, ready)."""
        endpoints = [
            {"addresses": [pod[0]], "nodeName": pod[1], "conditions": {"ready": pod[2] if len(pod) > 2 else True}}
            for pod in pods
        ]
        body = {
            "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        }
        await self.user.apply(ENDPOINT_SLICES, body, manager="endpointslice-controller")

    # --- PoolServices -----------------------------------------------------------------------------------------

    async def pool_service(
        self, service: str, pool: str, *, namespace: str = NAMESPACE, name: str = "", owned: bool = True, **more: Any
    ) -> None:
        """Make a PoolService by hand, as one that was there before."""
        labels = {"openyurt.io/service-name": service, "openyurt.io/pool-name": pool, **(OWNED if owned else {})}
        meta: dict[str, Any] = {"name": name or f"{service}-{pool}", "namespace": namespace, "labels": labels}
        meta |= {key: more[key] for key in ("finalizers", "ownerReferences", "annotations") if key in more}
        if "labels" in more:
            meta["labels"] = more["labels"]
        spec = {"nodepoolName": pool, "loadBalancerClass": more.get("class_name", "elb")}
        await self.user.create(POOL_SERVICES, {"metadata": meta, "spec": spec})

    async def change(self, name: str, patch: dict[str, Any], namespace: str = NAMESPACE) -> None:
        await self.user.merge_patch(POOL_SERVICES, namespace, name, patch, manager="user")

    async def answer(self, name: str, *addresses: str, namespace: str = NAMESPACE, **status: Any) -> None:
        """Write a PoolService's status, as a layer 2 would."""
        ingress = [{"ip": address} if address[0].isdigit() else {"hostname": address} for address in addresses]
        body = {"loadBalancer": {"ingress": ingress}, "address": addresses[0] if addresses else "", **status}
        await self.user.merge_patch(
            POOL_SERVICES, namespace, name, {"status": body}, subresource="status", manager="layer2"
        )

    async def get(self, name: str, namespace: str = NAMESPACE) -> PoolService:
        return await self.user.get(POOL_SERVICES, namespace, name)

    async def find(self, name: str, namespace: str = NAMESPACE) -> PoolService | None:
        try:
            return await self.get(name, namespace)
        except NotFound:
            return None

    async def names(self, namespace: str = NAMESPACE) -> list[str]:
        """Return the names of all PoolServices, once all is settled."""
        await self.settled()
        return sorted(pool_service.metadata.name for pool_service in await self.user.list(POOL_SERVICES, namespace))

    async def until_names(self, *names: str, namespace: str = NAMESPACE) -> None:
        async def check() -> bool:
            return sorted(
                pool_service.metadata.name for pool_service in await self.user.list(POOL_SERVICES, namespace)
            ) == sorted(names)

        await until(check, what=f"PoolServices {names}")

    async def shown(self, name: str = "test", namespace: str = NAMESPACE) -> list[str]:
        service = await self.get_service(name, namespace)
        return [each.address for each in service.status.load_balancer.ingress or ()]

    async def until_shown(self, *addresses: str, name: str = "test", timeout_s: float = 90.0) -> None:
        async def check() -> bool:
            return await self.shown(name) == list(addresses)

        await until(check, what=f"status {addresses}", timeout_s=timeout_s)

    # --- Events and load balancers ----------------------------------------------------------------------------

    async def events(self, name: str, reason: str = "", namespace: str = NAMESPACE) -> list[Event]:
        events = await self.user.list(EVENT, namespace)
        return [e for e in events if e.involved_object.get("name") == name and reason in {"", e.reason}]

    async def event(self, name: str, reason: str, namespace: str = NAMESPACE) -> Event:
        async def check() -> list[Event]:
            return await self.events(name, reason, namespace)

        return (await until(check, what=f"event {reason} on {name}"))[0]

    async def load_balancers(self, namespace: str = NAMESPACE) -> dict[str, TCPLoadBalancer]:
        return {
            tcp_load_balancer.metadata.name: tcp_load_balancer
            for tcp_load_balancer in await self.user.list(TCP_LOAD_BALANCERS, namespace)
        }

    async def slices_of(self, load_balancer: str, namespace: str = NAMESPACE) -> list[EndpointSlice]:
        endpoint_slices = await self.user.list(ENDPOINT_SLICES, namespace, label_selector="fairlead.dev/load-balancer")
        return [
            endpoint_slice
            for endpoint_slice in endpoint_slices
            if endpoint_slice.label("fairlead.dev/load-balancer") == load_balancer
        ]

    async def targets(self, load_balancer: str) -> list[str]:
        return sorted(
            e.addresses[0] for each in await self.slices_of(load_balancer) for e in each.endpoints or () if e.addresses
        )

    async def programmed(self, name: str, address: str, namespace: str = NAMESPACE) -> None:
        """Write a TCPLoadBalancer's status, as a hub would."""
        condition = {
            "type": "Programmed", "status": "True", "reason": "Programmed", "message": "",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }  # fmt: skip
        generation = (await self.user.get(TCP_LOAD_BALANCERS, namespace, name)).metadata.generation
        shown = {"address": address, "targets": "1/1", "loadBalancer": {"ingress": [{"ip": address}]}}
        body: JSONObject = {**shown, "observedGeneration": generation}
        await self.user.merge_patch(
            TCP_LOAD_BALANCERS, namespace, name, {"status": {**body, "conditions": [condition]}}, subresource="status"
        )

    # --- the end ----------------------------------------------------------------------------------------------

    async def clean(self) -> None:
        """Leave nothing behind: a real server outlives the test."""
        for each in list(self.running):
            await self.stop(each)
        for resource in (EVENT, SERVICES, POOL_SERVICES, TCP_LOAD_BALANCERS, ENDPOINT_SLICES, NODE_POOLS, NODES):
            for each in await self.user.list(resource):
                if resource is SERVICES and each.metadata.namespace == "default":
                    continue
                with contextlib.suppress(NotFound, Conflict):
                    if each.metadata.finalizers:
                        await self.user.merge_patch(resource, *each.key, {"metadata": {"finalizers": None}})
                    await self.user.delete(resource, *each.key)


@contextlib.asynccontextmanager
async def new_world(api: ClusterConfig) -> AsyncGenerator[World]:
    async with Cluster(api, name="user", qps=10_000) as user:
        problems = await install_crds(user, all_crds(), "user")
        assert not problems
        for name in (NAMESPACE, "fairlead-system"):
            with contextlib.suppress(FairleadError):
                await user.create(NAMESPACES, {"metadata": {"name": name}})
        world = World(api, user)
        try:
            yield world
        finally:
            await world.clean()


__all__ = ["FINALIZER", "NAMESPACE", "OWNED", "SELECTOR", "Event", "Node", "Running", "World", "new_world", "until"]
