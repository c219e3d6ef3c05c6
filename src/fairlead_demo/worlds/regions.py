"""One cluster, and in each of its regions a hub with its Envoy, pods and clients.

                     ┌─ hangzhou: hub, Envoy, pods, clients
    API ◄── regions ─┼─ shanghai: hub, Envoy, pods, clients
                     └─ beijing:  hub, Envoy, pods, clients

In: a directory, networks, maybe API servers. Out: ``RegionsWorld``, whose regions come and go; ``close`` ends them all.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from fairlead.api.kubernetes import SERVICES, Service
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.names import (
    ANNOTATION_ACCESS_POINTS,
    ANNOTATION_NODEPOOL_SELECTOR,
    API_VERSION,
    DEFAULT_CLASS,
    LOAD_BALANCER_CLASS_PREFIX,
)
from fairlead.api.poolservice import NODE_POOLS
from fairlead.errors import NotServed
from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.apis import Apis, EmbeddedApis
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.networks import Networks, RegionNetwork
from fairlead_demo.worlds.objects import write_node
from fairlead_demo.worlds.processes import Child, ExpectationFailed, fairlead, wait_until
from fairlead_demo.worlds.workload import POD_PORT, Host, Pod, Workload

SERVICE = "web"
#: The default of thirty seconds is too long for tests.
DRAIN = "3s"
#: What the Service listens on, and its clients ask.
HTTP = service_port(80)
#: The name of the cluster among API servers.
_CLUSTER = "hub"
REGION_LABEL = "demo.example/region"


class Region:
    """One region: its network, and its hub with an Envoy."""

    def __init__(self, name: str, directory: Path, kubeconfig: Path, network: RegionNetwork) -> None:
        self.name = name
        self.network = network
        data_dir = directory / name
        data_dir.mkdir(parents=True, exist_ok=True)
        command = fairlead(
            "hub",
            "--kubeconfig", str(kubeconfig),
            "--region", name,
            "--address-pool", network.pool,
            "--data-dir", str(data_dir),
            "--log-format", "json",
        )  # fmt: skip
        wrapped = network.command(command)
        self.hub = HubProcess(f"{name} hub", wrapped, envoy_directory=data_dir, log=data_dir / "hub.log")

    def host(self, node: str) -> Host:
        """Return where pods on one of its nodes run."""
        return Host(node, self.network.pods, f"{self.name}-pod", self.network.command)


class RegionsWorld:
    """The cluster and its regions; without ``apis`` its API server is the embedded one."""

    def __init__(self, directory: Path, networks: Networks, apis: Apis | None = None) -> None:
        self.directory = directory
        self.networks = networks
        self.regions: dict[str, Region] = {}
        self.apis = apis or EmbeddedApis(directory, (_CLUSTER,), host=networks.api_host)
        self.kubeconfig = self.apis.kubeconfig(_CLUSTER)
        manager = fairlead("regions", "--kubeconfig", str(self.kubeconfig), "--log-format", "json")
        self.manager = Child("regions", manager, log=directory / "regions.log")
        self._cluster: Cluster | None = None
        self._workload: Workload | None = None

    @property
    def cluster(self) -> Cluster:
        """Return the cluster's API."""
        if self._cluster is None:
            raise ExpectationFailed("the API has not been started")
        return self._cluster

    @property
    def workload(self) -> Workload:
        """Return the pods of all regions."""
        if self._workload is None:
            raise ExpectationFailed("the API has not been started")
        return self._workload

    def pods_of(self, region: str) -> list[Pod]:
        """Return the pods of one region."""
        prefix = self.regions[region].host("").prefix
        return [pod for pod in self.workload.pods if pod.host.prefix == prefix]

    async def start(self) -> None:
        """Start the API and the manager of regions."""
        await self.apis.start()
        self._cluster = Cluster.from_kubeconfig(self.kubeconfig, name="cluster")
        self._workload = Workload(cluster=self._cluster, service=SERVICE, directory=self.directory)
        await self.manager.start()

        async def kinds_are_there() -> bool:
            self.manager.check_running()
            return b"poolservices" in await self._kinds()

        await wait_until(kinds_are_there, "the kinds are installed")

    async def _kinds(self) -> bytes:
        try:
            return await self.cluster.raw("GET", f"/apis/{API_VERSION}")
        except NotServed:
            return b""

    async def add_region(self, name: str, *, nodes: int = 2) -> Region:
        """Make a region: network, hub, nodes with a pod each, and last its NodePool, which announces it."""
        region = self.regions[name] = Region(name, self.directory, self.kubeconfig, self.networks.add(name))
        await region.hub.start()
        body: JSONObject = {"metadata": {"name": DEFAULT_CLASS}, "spec": {"provider": DEFAULT_CLASS, "drain": DRAIN}}
        await self.cluster.apply(LOAD_BALANCER_CLASSES, body, manager="operator")
        for number in range(1, nodes + 1):
            node = f"{name}-{number}"
            await self.put_node(node, region)
            await self.workload.start_pod(region.host(node))
        spec: JSONObject = {"nodeSelector": {REGION_LABEL: name}, "region": name}
        meta: JSONObject = {"name": name, "labels": {"tier": "edge"}}
        await self.cluster.apply(NODE_POOLS, {"metadata": meta, "spec": spec}, manager="operator")
        return region

    async def put_node(self, name: str, region: Region) -> None:
        """Put a node into a region; a node that is in another one moves."""
        labels = {REGION_LABEL: region.name}
        await write_node(self.cluster, name, f"{region.network.pods}.1", labels=labels)

    async def create_service(self) -> None:
        """Create the one Service, as its user would."""
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
                "ports": [{"port": HTTP, "targetPort": POD_PORT}],
            },
        }
        await self.cluster.create(SERVICES, service)

    async def addresses(self) -> dict[str, str]:
        """Return each region's access point as the Service shows it."""
        service: Service = await self.cluster.get(SERVICES, "default", SERVICE)
        shown = {ingress.address for ingress in service.status.load_balancer.ingress or ()}
        text = service.annotation(ANNOTATION_ACCESS_POINTS)
        points = msgspec.json.decode(text, type=dict[str, list[str]]) if text else {}
        return {pool: addresses[0] for pool, addresses in points.items() if addresses and addresses[0] in shown}

    async def close(self) -> None:
        """End everything, the Envoys and the networks included."""
        if self._cluster is not None:
            await self._cluster.aclose()
        if self._workload is not None:
            await self._workload.stop()
        await asyncio.gather(self.manager.terminate(), *(region.hub.close() for region in self.regions.values()))
        await self.apis.close()
        self.networks.close()
