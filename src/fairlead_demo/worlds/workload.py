"""The pods behind one Service: real HTTP servers, and the objects that a cluster would have for them.

In: pods to start and to stop. Out: processes, Pods and the Service's EndpointSlice. The Service itself is its user's.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec

from fairlead.api.kubernetes import PODS
from fairlead.api.meta import JSONObject
from fairlead.api.names import CONDITION_SERVING
from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.objects import write_pod, write_readiness, write_slice
from fairlead_demo.worlds.processes import PATIENCE_S, Child, wait_until

POD_PORT = 8080
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
    ready: bool = True
    uid: str = ""

    def endpoint(self) -> JSONObject:
        """Return its part of the EndpointSlice."""
        return {
            "addresses": [self.address],
            "nodeName": self.host.node,
            "targetRef": {"kind": "Pod", "namespace": "default", "name": self.name, "uid": self.uid},
            "conditions": {
                "ready": self.ready and not self.terminating,
                "serving": self.ready,
                "terminating": self.terminating,
            },
        }


class Workload:
    """The pods behind one Service of the namespace ``default``.

    ``pre_stop_s``: how long a pod goes on as before once it is no longer ready, as with a preStop hook that sleeps.
    ``gated``: pods have the readiness gate of Fairlead. ``reached_after_s``: how long after its kubelet a proxy reaches
    a new pod, as in a network that takes its time.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        service: str,
        directory: Path,
        pre_stop_s: float = 0.0,
        gated: bool = False,
        reached_after_s: float = 0.0,
    ) -> None:
        self.service = service
        self.pods: list[Pod] = []
        self._cluster = cluster
        self._pre_stop_s = pre_stop_s
        self._gated = gated
        self._reached_after_s = reached_after_s
        self._log = directory / "pods.log"
        self._started: Counter[str] = Counter()

    async def start_pod(self, host: Host) -> Pod:
        """Start one more pod, and return it once it is ready."""
        self._started[host.prefix] += 1
        number = self._started[host.prefix]
        name = f"{host.prefix}-{number}"
        # Addresses are not reused at once, as in a cluster.
        address = f"{host.network}.{10 + number % 240}"
        command = [sys.executable, "-m", "fairlead_demo.worlds.pod_server", address, str(POD_PORT), name]
        environment = {"REACHED_AFTER_S": str(self._reached_after_s)}
        child = Child(name, host.command(command), log=self._log, environment=environment)
        await child.start(first_line_s=PATIENCE_S)
        pod = Pod(name, address, host, child, ready=not self._gated)
        self.pods.append(pod)
        written = await write_pod(
            self._cluster, name, address, node=host.node, app=self.service, port=POD_PORT, gated=self._gated
        )
        pod.uid = written.metadata.uid
        await self.publish()
        if self._gated:
            await wait_until(partial(self._is_open, pod), f"the readiness gate of {name} opens")
            await write_readiness(self._cluster, name, address, is_open=True)
            pod.ready = True
            await self.publish()
        return pod

    async def _is_open(self, pod: Pod) -> bool:
        return (await self._cluster.get(PODS, "default", pod.name)).is_open(CONDITION_SERVING)

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
