"""Builders for the agent's pure tests: objects as a member would send them, in the fewest words."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.agent.transforms import compact_load_balancer, compact_node, compact_slice
from fairlead.agent.wire import object_from_load_balancer, object_from_slice
from fairlead.api.kubernetes import EndpointSlice, Node, Service
from fairlead.api.tcploadbalancer import TCPLoadBalancer

TENANT = "east"
HUB_NAMESPACE = "tenant-east"


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
    return compact_slice(msgspec.convert(body, type=EndpointSlice))


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


def stored_load_balancer(wanted: TCPLoadBalancer, **status: Any) -> TCPLoadBalancer:
    """Return what a cache would hold after ``wanted`` was applied to a real server, which adds things."""
    body = object_from_load_balancer(wanted)
    body["metadata"] |= {"uid": "hub-uid", "resourceVersion": "7", "generation": 1}
    body["metadata"]["labels"] = {**body["metadata"]["labels"], "added-by": "an-operator"}
    body["metadata"]["annotations"] = {**body["metadata"].get("annotations", {}), "note": "kept"}
    body["status"] = status
    return compact_load_balancer(_decoded(body, TCPLoadBalancer))


def stored_slice(wanted: EndpointSlice) -> EndpointSlice:
    """Return what a cache would hold after ``wanted`` was applied to a real server, which adds things."""
    body = object_from_slice(wanted)
    body["metadata"] |= {"uid": f"uid-{wanted.metadata.name}", "resourceVersion": "7", "generation": 1}
    # A real API server answers null for empty lists.
    body["endpoints"] = body["endpoints"] or None
    body["ports"] = body["ports"] or None
    return compact_slice(_decoded(body, EndpointSlice))


def _decoded(body: dict[str, Any], kind: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)
