"""What does the demo of regions consist of? One cluster, and in each region a hub with its Envoy, pods and clients.

                     ┌─ hangzhou: hub, Envoy, pods, clients
    API ◄── regions ─┼─ shanghai: hub, Envoy, pods, clients
                     └─ beijing:  hub, Envoy, pods, clients

In: a directory and networks. Out: ``RegionsWorld``, whose regions come and go; ``close`` ends them all.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import msgspec

from fairlead.api.kubernetes import ENDPOINT_SLICES, NODES, SERVICES, Service
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.names import (
    ANNOTATION_ACCESS_POINTS,
    ANNOTATION_NODEPOOL_SELECTOR,
    API_VERSION,
    DEFAULT_CLASS,
    LOAD_BALANCER_CLASS_PREFIX,
)
from fairlead.api.nodepool import NODE_POOLS
from fairlead.demo.process import Child, StepFailed, fairlead, wait_until
from fairlead.demo.regions_net import Networks, RegionNetwork
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.fleet_local import LocalFleet

SERVICE = "web"
POD_PORT = 8080
DRAIN = "3s"
REGION_LABEL = "demo.example/region"
_KUBELET = "demo-kubelet"
_START_S = 40.0


class RegionPod(msgspec.Struct):
    """One backend: on which node, and in which region's network it runs."""

    name: str
    address: str
    node: str
    child: Child
    ready: bool = True
    terminating: bool = False


class Region:
    """One region: its network, its hub with an Envoy, its nodes."""

    def __init__(self, name: str, directory: Path, kubeconfig: Path, network: RegionNetwork) -> None:
        self.name = name
        self.network = network
        self.directory = directory / name
        self.directory.mkdir(parents=True, exist_ok=True)
        command = fairlead(
            "hub",
            "--kubeconfig", str(kubeconfig),
            "--region", name,
            "--address-pool", network.pool,
            "--data-dir", str(self.directory),
            "--log-format", "json",
        )  # fmt: skip
        self.hub = Child(f"{name} hub", network.command(command), log=self.directory / "hub.log")
        self.made = 0


class RegionsWorld:
    """The cluster and its regions."""

    def __init__(self, directory: Path, networks: Networks) -> None:
        self.directory = directory
        self.networks = networks
        self.regions: dict[str, Region] = {}
        self.pods: list[RegionPod] = []
        api_directory = directory / "api"
        api_directory.mkdir(parents=True, exist_ok=True)
        self.kubeconfig = api_directory / "kubeconfig"
        listen = ("--listen", f"{networks.api_host}:0")
        api = fairlead("apiserver", "--data-dir", str(api_directory), *listen, "--log-format", "json")
        self.api = Child("API", api, log=api_directory / "apiserver.log")
        manager = fairlead("regions", "--kubeconfig", str(self.kubeconfig), "--log-format", "json")
        self.manager = Child("regions", manager, log=directory / "regions.log")
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """Return the cluster's API."""
        if self._cluster is None:
            raise StepFailed("the API has not been started")
        return self._cluster

    async def start(self) -> None:
        """Start the API and the manager of regions."""
        await self.api.start(first_line_s=_START_S)
        self._cluster = Cluster.from_kubeconfig(self.kubeconfig, name="cluster")
        await self.manager.start()

        async def kinds_are_there() -> bool:
            if not self.manager.running:
                raise StepFailed(f"regions have ended: {self.manager.last_words()}", detail=f"see {self.manager.log}")
            return b"poolservices" in await self._kinds()

        await wait_until(kinds_are_there, "the kinds are installed", timeout_s=_START_S)

    async def _kinds(self) -> bytes:
        try:
            return await self.cluster.raw("GET", f"/apis/{API_VERSION}")
        except NotFound:
            return b""

    async def add_region(self, name: str, *, nodes: int = 2) -> Region:
        """Make a region: network, hub, nodes with a pod each, and last its NodePool, which announces it."""
        region = self.regions[name] = Region(name, self.directory, self.kubeconfig, self.networks.add(name))
        await region.hub.start()
        await self.soft_drain()
        for number in range(1, nodes + 1):
            node = f"{name}-{number}"
            await self.write_node(node, region)
            await self.start_pod(region, node)
        spec: JSONObject = {"nodeSelector": {REGION_LABEL: name}, "region": name}
        meta: JSONObject = {"name": name, "labels": {"tier": "edge"}}
        await self.cluster.apply(NODE_POOLS, {"metadata": meta, "spec": spec}, manager=_KUBELET)
        return region

    async def soft_drain(self) -> None:
        """Shorten how long connections are drained: thirty seconds are right for people, too long for a demo."""
        body: JSONObject = {"metadata": {"name": DEFAULT_CLASS}, "spec": {"provider": DEFAULT_CLASS, "drain": DRAIN}}
        await self.cluster.apply(LOAD_BALANCER_CLASSES, body, manager="demo-operator")

    async def create_service(self) -> None:
        """Create the one Service, as its author would."""
        service: JSONObject = {
            "metadata": {
                "name": SERVICE,
                "namespace": "default",
                "annotations": {ANNOTATION_NODEPOOL_SELECTOR: "tier=edge"},
            },
            "spec": {
                "type": "LoadBalancer",
                "loadBalancerClass": LOAD_BALANCER_CLASS_PREFIX + DEFAULT_CLASS,
                "selector": {"app": SERVICE},
                "ports": [{"name": "http", "port": 80, "targetPort": POD_PORT}],
            },
        }
        await self.cluster.create(SERVICES, service)

    async def addresses(self) -> dict[str, str]:
        """Return each region's access point as the Service shows it."""
        service: Service = await self.cluster.get(SERVICES, "default", SERVICE)
        shown = {one.address for one in service.status.load_balancer.ingress or ()}
        text = service.annotation(ANNOTATION_ACCESS_POINTS)
        points = msgspec.json.decode(text, type=dict[str, list[str]]) if text else {}
        return {pool: found[0] for pool, found in points.items() if found and found[0] in shown}

    # --- nodes and pods ---------------------------------------------------------------------------------------

    async def write_node(self, name: str, region: Region) -> None:
        """Put a node into a region; a node that is in another one moves."""
        meta: JSONObject = {"name": name, "labels": {REGION_LABEL: region.name}}
        await self.cluster.apply(NODES, {"metadata": meta}, manager=_KUBELET)
        status: JSONObject = {
            "addresses": [{"type": "InternalIP", "address": f"{region.network.pods}.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        body: JSONObject = {"metadata": {"name": name}, "status": status}
        await self.cluster.apply(NODES, body, manager=_KUBELET, subresource="status")

    async def start_pod(self, region: Region, node: str) -> RegionPod:
        """Start a pod on a node, in its region's network."""
        region.made += 1
        name = f"{region.name}-pod-{region.made}"
        address = f"{region.network.pods}.{10 + region.made}"
        command = [sys.executable, "-m", "fairlead.demo.backend", address, str(POD_PORT), name]
        child = Child(name, region.network.command(command), log=region.directory / "pods.log")
        await child.start(first_line_s=20.0)
        pod = RegionPod(name, address, node, child)
        self.pods.append(pod)
        await self.publish()
        return pod

    async def retire_pod(self, pod: RegionPod) -> None:
        """End a pod gracefully: not ready any more, drained, stopped, gone."""
        pod.terminating, pod.ready = True, False
        await self.publish()
        await pod.child.terminate(patience_s=15.0)
        self.pods.remove(pod)
        await self.publish()

    async def publish(self) -> None:
        """Write the Service's EndpointSlice, with the pods of all regions."""
        endpoints = [
            {
                "addresses": [pod.address],
                "nodeName": pod.node,
                "conditions": {"ready": pod.ready, "serving": True, "terminating": pod.terminating},
            }
            for pod in self.pods
        ]
        obj: JSONObject = {
            "metadata": {
                "name": f"{SERVICE}-demo",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": SERVICE},
            },
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": [{"name": "http", "port": POD_PORT, "protocol": "TCP"}],
        }
        await self.cluster.apply(ENDPOINT_SLICES, obj, manager=_KUBELET)

    # --- the end ----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End everything, the Envoys and the networks included."""
        if self._cluster is not None:
            await self._cluster.aclose()
        hubs = [region.hub for region in self.regions.values()]
        children = [child for child in (self.manager, *hubs, self.api) if child.running]
        await asyncio.gather(*(child.terminate(patience_s=5.0) for child in children))
        await asyncio.gather(*(pod.child.kill() for pod in self.pods))
        for region in self.regions.values():
            with contextlib.suppress(OSError):
                await LocalFleet(data_dir=region.directory).stop()
        self.networks.close()
