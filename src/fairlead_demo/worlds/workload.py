"""The pods behind one Service: real HTTP servers, and the objects that a cluster would have for them.

In: pods to start and to stop. Out: processes, Pods and the Service's EndpointSlice. The Service itself is its user's.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from fairlead.api.kubernetes import PODS
from fairlead.api.meta import JSONObject
from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.objects import write_pod, write_slice
from fairlead_demo.worlds.processes import Child

POD_PORT = 8080
_START_S = 60.0
_DRAIN_S = 30.0


class Host(msgspec.Struct, frozen=True):
    """Where pods run: their node, the first three parts of their addresses, and what their names begin with."""

    node: str
    network: str
    prefix: str
    #: Returns the command that runs a command in the host's network.
    command: Callable[[list[str]], list[str]] = list[str]


class Pod(msgspec.Struct):
    """One backend: its address, its process, and what the endpoint controller says of it."""

    name: str
    address: str
    host: Host
    child: Child
    terminating: bool = False

    def endpoint(self) -> JSONObject:
        """Return its part of the EndpointSlice."""
        return {
            "addresses": [self.address],
            "nodeName": self.host.node,
            "targetRef": {"kind": "Pod", "namespace": "default", "name": self.name},
            "conditions": {"ready": not self.terminating, "serving": True, "terminating": self.terminating},
        }


class Workload:
    """The pods behind one Service of the namespace ``default``.

    ``pre_stop_s``: how long a pod goes on as before once it is no longer ready, as with a preStop hook that sleeps.
    """

    def __init__(self, *, cluster: Cluster, service: str, directory: Path, pre_stop_s: float = 0.0) -> None:
        self.service = service
        self.pods: list[Pod] = []
        self._cluster = cluster
        self._pre_stop_s = pre_stop_s
        self._log = directory / "pods.log"
        self._started: Counter[str] = Counter()

    async def start_pod(self, host: Host) -> Pod:
        """Start one more pod; it is an endpoint once it listens."""
        self._started[host.prefix] += 1
        number = self._started[host.prefix]
        name = f"{host.prefix}-{number}"
        # Addresses are not reused at once, as in a cluster.
        address = f"{host.network}.{10 + number % 240}"
        command = [sys.executable, "-m", "fairlead_demo.worlds.pod_server", address, str(POD_PORT), name]
        child = Child(name, host.command(command), log=self._log)
        await child.start(first_line_s=_START_S)
        pod = Pod(name, address, host, child)
        self.pods.append(pod)
        await write_pod(self._cluster, name, address, node=host.node, app=self.service, port=POD_PORT)
        await self.publish()
        return pod

    async def retire_pod(self, pod: Pod) -> None:
        """End a pod gracefully: not ready, drained, stopped, gone."""
        pod.terminating = True
        await self.publish()
        await asyncio.sleep(self._pre_stop_s)
        await pod.child.terminate(patience_s=_DRAIN_S)
        await self.forget(pod)

    async def forget(self, pod: Pod) -> None:
        """Remove a pod that has ended from what the cluster shows."""
        self.pods.remove(pod)
        await self.publish()
        await self._cluster.delete(PODS, "default", pod.name)

    async def roll(self, pods: Iterable[Pod]) -> None:
        """Replace each of ``pods`` on its host: start a new one, then retire the old one."""
        for old in list(pods):
            await self.start_pod(old.host)
            await self.retire_pod(old)

    async def stop(self) -> None:
        """End all pods at once."""
        await asyncio.gather(*(pod.child.kill() for pod in self.pods))

    async def publish(self) -> None:
        """Write the EndpointSlice."""
        endpoints = [pod.endpoint() for pod in self.pods]
        await write_slice(self._cluster, self.service, endpoints, port=POD_PORT)
