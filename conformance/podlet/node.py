"""The node object, its lease and its pods.

In: every Pod of the cluster. Out: pods without a node are bound to this one, and run here.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from conformance.podlet.objects import PLAIN_NODES, RUNNABLE_PODS, RunnablePod
from conformance.podlet.pod import PodRun, delete_now, now
from fairlead.api.kubernetes import LEASES
from fairlead.api.meta import JSONObject
from fairlead.errors import AlreadyExists, Conflict, FairleadError, NotFound
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster

_LEASES_OF_NODES = "kube-node-lease"
_RENEW_S, _LEASE_S = 10.0, 40
#: Addresses at the beginning of the network are left out.
_FIRST = 10
_INFO = (
    "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
    "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip

log = logging.getLogger("podlet")


class PodNode:
    """One node with the addresses of ``network``, the last one is its own; pods have one of a second range, too."""

    def __init__(self, cluster: Cluster, *, name: str, network: str, kubelet_port: int, directory: Path) -> None:
        self.name = name
        first, _, second = network.partition(",")
        self.network = ipaddress.ip_network(first)
        self._second = ipaddress.ip_network(second) if second else None
        self.ip = str(self.network[-2])
        self.pods: dict[str, PodRun] = {}
        self._cluster = cluster
        self._port = kubelet_port
        self._directory = directory
        self._cache: WatchCache[RunnablePod] = WatchCache(cluster, RUNNABLE_PODS)
        self._cache.on_change(self._changed)
        self._used: set[str] = set()
        self._next = _FIRST
        self._tasks: set[asyncio.Task[None]] = set()

    async def register(self) -> None:
        """Write the node object, Ready."""
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux"}
        try:
            await self._cluster.create(PLAIN_NODES, {"metadata": {"name": self.name, "labels": labels}})
        except AlreadyExists:
            log.info("node %s is there already", self.name)
        room = {"cpu": "64", "memory": "64Gi", "pods": "1000"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()}
        status: JSONObject = {
            "capacity": room,
            "allocatable": room,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": self.ip}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "nodeInfo": dict.fromkeys(_INFO, "podlet"),
        }
        await self._cluster.merge_patch(PLAIN_NODES, "", self.name, {"status": status}, subresource="status")

    async def run(self) -> None:
        """Run pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cache.run())
            group.create_task(self._renew())

    async def _renew(self) -> None:
        """Keep the node's lease fresh: the node lifecycle controller would evict every pod."""
        while True:
            at = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            spec = {"holderIdentity": self.name, "leaseDurationSeconds": _LEASE_S, "renewTime": at}
            meta = {"name": self.name, "namespace": _LEASES_OF_NODES}
            try:
                await self._cluster.apply(LEASES, {"metadata": meta, "spec": spec}, manager="podlet")
            except FairleadError as error:
                log.warning("lease: %s", error)
            await asyncio.sleep(_RENEW_S)

    def _changed(self, old: RunnablePod | None, new: RunnablePod | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._drop(old.metadata.uid)
        if new is None:
            return
        uid, node = new.metadata.uid, new.spec.node_name
        if new.deleting:
            if uid in self.pods:
                self._drop(uid)
            elif node in ("", self.name):
                self._spawn(delete_now(self._cluster, new))
        elif not node:
            if not new.spec.scheduling_gates:
                self._spawn(self._bind(new))
        elif node == self.name and uid not in self.pods and new.status.phase not in ("Succeeded", "Failed"):
            directory = self._directory / uid
            ips = self._take()
            self.pods[uid] = PodRun(self._cluster, new, ips=ips, node_ip=self.ip, directory=directory)

    def _drop(self, uid: str) -> None:
        run = self.pods.pop(uid, None)
        if run is not None:
            self._used.discard(run.ip)
            self._spawn(run.stop())

    def _take(self) -> tuple[str, ...]:
        """Return a free address of each range; none is used again soon: a late packet must not reach another pod."""
        while True:
            self._next = _FIRST if self._next + _FIRST >= self.network.num_addresses else self._next + 1
            ip = str(self.network[self._next])
            if ip not in self._used:
                self._used.add(ip)
                return (ip, str(self._second[self._next])) if self._second is not None else (ip,)

    async def _bind(self, pod: RunnablePod) -> None:
        meta = pod.metadata
        target = {"apiVersion": "v1", "kind": "Node", "name": self.name}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta.name}, "target": target}
        path = RUNNABLE_PODS.path(meta.namespace, meta.name, "binding")
        try:
            await self._cluster.raw("POST", path, body=msgspec.json.encode(binding))
        except (NotFound, Conflict, AlreadyExists):
            return
        except FairleadError as error:
            log.warning("%s is not bound: %s", pod.key, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
