"""Builders for the agent's pure tests: objects as a member would send them, in the fewest words."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.agent.engine import Engine
from fairlead.agent.identity import Key
from fairlead.agent.slices import compact_node
from fairlead.agent.sources.caches import ServiceCaches
from fairlead.api.kubernetes import EndpointSlice, Node, Service
from fairlead.api.names import MANAGER_AGENT
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.events import EventRecorder
from fairlead.publish.objects import canonical_slice
from fairlead.publish.publisher import Publisher

TENANT = "east"
HUB_NAMESPACE = "tenant-east"


def clusters() -> dict[str, Cluster]:
    """Return a member and a hub that no server answers for."""
    return {name: Cluster(ClusterConfig(server="http://127.0.0.1:1"), name=name) for name in ("member", "hub")}


def engine_of(caches: ServiceCaches, *, member: Cluster, hub: Cluster) -> Engine:
    """Return an engine that may write, without sources."""
    publisher = Publisher(
        hub=hub,
        load_balancers=caches.load_balancers,
        slices=caches.hub_slices,
        manager=MANAGER_AGENT,
        may_write=lambda: True,
    )
    recorder = EventRecorder(member, component="fairlead-agent")
    return Engine(member=member, publisher=publisher, recorder=recorder, may_write=lambda: True)


async def enqueued(engine: Engine, lane: str) -> set[Key]:
    """Return the keys that wait to be published, and empty the queue."""
    queue, keys = engine.lanes[lane].publications, set[Key]()
    while len(queue):
        keys.add(key := await queue.get())
        queue.done(key)
    return keys


def service(
    name: str = "web",
    *,
    namespace: str = "shop",
    kind: str = "LoadBalancer",
    ports: list[dict[str, Any]] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    uid: str = "uid-1",
    deleting: bool = False,
    ingress: list[dict[str, Any]] | None = None,
    **spec: Any,
) -> Service:
    ports = [{"name": "http", "port": 80, "nodePort": 30080, "targetPort": 8080}] if ports is None else ports
    meta: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid}
    meta |= {"annotations": annotations, "labels": labels}
    if deleting:
        meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    body = {
        "metadata": meta,
        "spec": {"type": kind, "ports": ports, "clusterIP": "10.96.0.1", **spec},
        "status": {"loadBalancer": {"ingress": ingress}},
    }
    return msgspec.convert(body, type=Service)


def endpoint(
    address: str,
    *,
    node: str = "",
    ready: bool | None = True,
    serving: bool | None = None,
    terminating: bool | None = None,
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "addresses": [address],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
    }
    return body | ({"nodeName": node} if node else {})


def slice_of(
    *endpoints: dict[str, Any],
    name: str = "web-abc",
    service_name: str = "web",
    namespace: str = "shop",
    address_type: str = "IPv4",
    ports: list[dict[str, Any]] | None = None,
) -> EndpointSlice:
    body = {
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": service_name}},
        "addressType": address_type,
        "endpoints": list(endpoints),
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}] if ports is None else ports,
    }
    return canonical_slice(msgspec.convert(body, type=EndpointSlice))


def node(
    name: str,
    *,
    internal: str = "",
    external: str = "",
    ready: str = "True",
    labels: dict[str, str] | None = None,
    taints: list[str] | None = None,
    unschedulable: bool = False,
) -> Node:
    addresses = [{"type": "Hostname", "address": name}]
    addresses += [{"type": "InternalIP", "address": internal}] if internal else []
    addresses += [{"type": "ExternalIP", "address": external}] if external else []
    body = {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "unschedulable": unschedulable,
            "taints": [{"key": key, "effect": "NoSchedule"} for key in taints or []],
        },
        "status": {
            "addresses": addresses,
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
        },
    }
    return compact_node(msgspec.convert(body, type=Node))
