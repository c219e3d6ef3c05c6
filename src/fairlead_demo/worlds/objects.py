"""Write what a kubelet and the endpoint controller would, into a cluster that has neither.

In: a client of the cluster. Out: Nodes, Pods and EndpointSlices. Writing the same again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.api.kubernetes import ENDPOINT_SLICES, NODES, PODS, Pod
from fairlead.api.meta import JSONObject
from fairlead.api.names import CONDITION_SERVING, LABEL_READINESS_GATE, READINESS_GATE_ENABLED
from fairlead.kube.cluster import Cluster

_KUBELET = "kubelet"
_LABEL_SERVICE = "kubernetes.io/service-name"
_LABEL_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"


async def write_node(
    cluster: Cluster, name: str, *addresses: str, ready: bool = True, labels: Mapping[str, str] | None = None
) -> None:
    """Write a Node with its InternalIP, of each family one; ``labels`` replaces those that were written before."""
    meta: JSONObject = {"name": name, "labels": dict(labels or {})}
    await cluster.apply(NODES, {"metadata": meta, "spec": {}}, manager=_KUBELET)
    status: JSONObject = {
        "addresses": [{"type": "InternalIP", "address": address} for address in addresses],
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    # A merge patch: two addresses of one type have the same list key, which an apply refuses.
    await cluster.merge_patch(NODES, "", name, {"status": status}, manager=_KUBELET, subresource="status")


async def write_pod(
    cluster: Cluster, name: str, address: str, *, node: str, app: str, port: int, gated: bool = False
) -> Pod:
    """Write a Pod of the namespace ``default`` whose containers are ready, and return it.

    ``app`` is the value of its label of this name. One that is ``gated`` has the readiness gate of Fairlead, so it is
    ready once its condition is True (``write_readiness``).
    """
    meta: JSONObject = {"name": name, "namespace": "default"}
    container: JSONObject = {"name": "web", "image": "demo/web:1", "ports": [{"containerPort": port}]}
    spec: JSONObject = {"nodeName": node, "containers": [container]}
    labels = {"app": app}
    if gated:
        labels[LABEL_READINESS_GATE] = READINESS_GATE_ENABLED
        spec["readinessGates"] = [{"conditionType": CONDITION_SERVING}]
    pod = await cluster.apply(PODS, {"metadata": {**meta, "labels": labels}, "spec": spec}, manager=_KUBELET)
    await write_readiness(cluster, name, address, is_open=not gated)
    return pod


async def write_readiness(cluster: Cluster, name: str, address: str, *, is_open: bool) -> None:
    """Write the status of a Pod whose containers are ready; ``is_open``: all of its readiness gates are open, too."""
    meta: JSONObject = {"name": name, "namespace": "default"}
    running: JSONObject = {"name": "web", "image": "demo/web:1", "imageID": "", "ready": True, "restartCount": 0}
    ready: JSONObject = {"type": "Ready", "status": "True" if is_open else "False"}
    status: JSONObject = {
        "phase": "Running",
        "podIP": address,
        "conditions": [
            {"type": "ContainersReady", "status": "True"},
            ready if is_open else {**ready, "reason": "ReadinessGatesNotReady"},
        ],
        "containerStatuses": [{**running, "state": {"running": {}}}],
    }
    await cluster.apply(PODS, {"metadata": meta, "status": status}, manager=_KUBELET, subresource="status")


def ready_endpoint(address: str) -> JSONObject:
    """Return an endpoint that takes traffic."""
    return {"addresses": [address], "conditions": {"ready": True}}


async def write_slice(
    cluster: Cluster,
    service: str,
    endpoints: Sequence[JSONObject],
    *,
    port: int,
    port_name: str = "",
    protocol: str = "TCP",
    namespace: str = "default",
    part: str = "main",
    family: str = "IPv4",
) -> None:
    """Write one EndpointSlice of a Service; ``part`` names an additional slice."""
    labels = {_LABEL_SERVICE: service, _LABEL_MANAGED_BY: "endpointslice-controller.k8s.io"}
    body: JSONObject = {
        "metadata": {"name": f"{service}-{part}", "namespace": namespace, "labels": labels},
        "addressType": family,
        "endpoints": list(endpoints),
        "ports": [{"name": port_name, "port": port, "protocol": protocol}],
    }
    await cluster.apply(ENDPOINT_SLICES, body, manager=_KUBELET)
