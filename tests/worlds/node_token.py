"""The token of a Pod on a node, as a kubelet gives it to the Pods of ``deploy/kubernetes/proxy-nodes.yaml``."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from fairlead.errors import AlreadyExists
from fairlead.kube.cluster import Cluster

NAMESPACE = "fairlead-proxy-nodes"


async def pod_token(cluster: Cluster, node: str, *, account: str = "fairlead-proxy") -> str:
    """Make the Pod if it is missing, and return a token for it."""
    name = f"{account}-{node}"
    container = {"name": "fairlead", "image": "fairlead"}
    pod = {"spec": {"nodeName": node, "serviceAccountName": account, "containers": [container]}}
    home = f"/api/v1/namespaces/{NAMESPACE}"
    for path, kind, of_kind, rest in (
        ("/api/v1/namespaces", "Namespace", NAMESPACE, {}),
        (f"{home}/serviceaccounts", "ServiceAccount", account, {}),
        (f"{home}/pods", "Pod", name, pod),
    ):
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": of_kind}, **rest}
        with contextlib.suppress(AlreadyExists):
            await cluster.raw_as("POST", path, dict[str, Any], body=msgspec.json.encode(body))
    spec = {
        "audiences": ["fairlead-proxy-machines"],
        "expirationSeconds": 3600,
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name},
    }
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"{home}/serviceaccounts/{account}/token"
    answer = await cluster.raw_as("POST", path, dict[str, Any], body=msgspec.json.encode(body))
    return answer["status"]["token"]
