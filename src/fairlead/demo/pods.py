"""Who plays kubelet and endpoint controller in a member without machines?

In: ``start`` and ``stop`` of pods of one Service. Out: real HTTP servers on loopback addresses, and the Pods, Nodes and
EndpointSlices that a cluster would have for them. The Service itself is the user's: created once, and never touched.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from fairlead.api.kubernetes import ENDPOINT_SLICES, NODES, SERVICES, Service
from fairlead.api.meta import JSONObject, KubeObject, Resource
from fairlead.demo.process import Child
from fairlead.errors import AlreadyExists
from fairlead.kube.cluster import Cluster

PODS = Resource("", "v1", "Pod", "pods", True, KubeObject)
POD_PORT = 8080
_KUBELET = "demo-kubelet"


class Pod(msgspec.Struct):
    """One backend: its address, its process, and what the endpoint controller says of it."""

    name: str
    address: str
    child: Child
    ready: bool = True
    terminating: bool = False


class Workload:
    """The pods behind one Service of one member. ``network`` is the first three parts of their addresses."""

    def __init__(
        self, *, cluster: Cluster, member: str, name: str, network: str, directory: Path, port: int = 80
    ) -> None:
        self.member = member
        self.name = name
        self.pods: list[Pod] = []
        self._cluster = cluster
        self._network = network
        self._directory = directory
        self._port = port
        self._made = 0

    @property
    def node(self) -> str:
        """Return the name of the one node of the member."""
        return f"{self.member}-node-1"

    async def create(self, replicas: int) -> None:
        """Write the node and the user's Service, and start the first pods."""
        await self._write_node()
        for _ in range(replicas):
            await self.start_pod(publish=False)
        await self.publish()
        service: JSONObject = {
            "metadata": {"name": self.name, "namespace": "default"},
            "spec": {
                "type": "LoadBalancer",
                "selector": {"app": self.name},
                "ports": [{"name": "http", "port": self._port, "targetPort": POD_PORT}],
            },
        }
        with suppress(AlreadyExists):
            await self._cluster.create(SERVICES, service)

    async def service(self) -> Service:
        """Return the user's Service as it is now."""
        found: Service = await self._cluster.get(SERVICES, "default", self.name)
        return found

    async def address(self) -> str:
        """Return the address that the Service shows, empty while it has none."""
        ingress = (await self.service()).status.load_balancer.ingress or ()
        return ingress[0].address if ingress else ""

    async def delete_service(self) -> None:
        """Delete the user's Service, as its author would."""
        await self._cluster.delete(SERVICES, "default", self.name)

    # --- pods -------------------------------------------------------------------------------------------------

    async def start_pod(self, *, publish: bool = True) -> Pod:
        """Start one more pod; it is an endpoint once it listens."""
        self._made += 1
        name = f"{self.name}-{self.member}-{self._made}"
        # Addresses are not used again at once, just as in a cluster.
        address = f"{self._network}.{10 + self._made % 240}"
        command = [sys.executable, "-m", "fairlead.demo.backend", address, str(POD_PORT), name]
        child = Child(name, command, log=self._directory / "pods.log")
        await child.start(first_line_s=20.0)
        pod = Pod(name, address, child)
        self.pods.append(pod)
        await self._write_pod(pod)
        if publish:
            await self.publish()
        return pod

    async def retire_pod(self, pod: Pod) -> None:
        """End a pod gracefully: not ready any more, drained, stopped, gone."""
        pod.terminating, pod.ready = True, False
        await self.publish()
        await pod.child.terminate(patience_s=15.0)
        await self.forget(pod)

    async def forget(self, pod: Pod) -> None:
        """Remove a pod that has ended from what the cluster shows."""
        self.pods.remove(pod)
        await self.publish()
        await self._cluster.delete(PODS, "default", pod.name)

    async def roll(self) -> None:
        """Replace every pod: one more, then one less, again and again."""
        for old in list(self.pods):
            await self.start_pod()
            await self.retire_pod(old)

    async def stop(self) -> None:
        """End all pods at once."""
        await asyncio.gather(*(pod.child.kill() for pod in self.pods))

    # --- what a cluster would show ----------------------------------------------------------------------------

    async def publish(self) -> None:
        """Write the EndpointSlice."""
        endpoints = [
            {
                "addresses": [pod.address],
                "nodeName": self.node,
                "targetRef": {"kind": "Pod", "namespace": "default", "name": pod.name},
                "conditions": {
                    "ready": pod.ready and not pod.terminating,
                    "serving": True,
                    "terminating": pod.terminating,
                },
            }
            for pod in self.pods
        ]
        labels = {
            "kubernetes.io/service-name": self.name,
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }
        obj: JSONObject = {
            "metadata": {"name": f"{self.name}-demo", "namespace": "default", "labels": labels},
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": [{"name": "http", "port": POD_PORT, "protocol": "TCP"}],
        }
        await self._cluster.apply(ENDPOINT_SLICES, obj, manager=_KUBELET)

    async def _write_pod(self, pod: Pod) -> None:
        meta: JSONObject = {"name": pod.name, "namespace": "default", "labels": {"app": self.name}}
        container = {"name": "web", "image": "demo/web:1", "ports": [{"containerPort": POD_PORT}]}
        spec: JSONObject = {"nodeName": self.node, "containers": [container]}
        await self._cluster.apply(PODS, {"metadata": meta, "spec": spec}, manager=_KUBELET)
        conditions: Sequence[JSONObject] = [{"type": "Ready", "status": "True"}]
        running: JSONObject = {"name": "web", "image": "demo/web:1", "imageID": "", "ready": True, "restartCount": 0}
        status: JSONObject = {
            "phase": "Running",
            "podIP": pod.address,
            "conditions": conditions,
            "containerStatuses": [{**running, "state": {"running": {}}}],
        }
        obj: JSONObject = {"metadata": {"name": pod.name, "namespace": "default"}, "status": status}
        await self._cluster.apply(PODS, obj, manager=_KUBELET, subresource="status")

    async def _write_node(self) -> None:
        meta: JSONObject = {"name": self.node}
        await self._cluster.apply(NODES, {"metadata": meta, "spec": {}}, manager=_KUBELET)
        status: JSONObject = {
            "addresses": [{"type": "InternalIP", "address": f"{self._network}.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self._cluster.apply(NODES, {"metadata": meta, "status": status}, manager=_KUBELET, subresource="status")
