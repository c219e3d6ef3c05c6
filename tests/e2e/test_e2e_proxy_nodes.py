"""Proxy machines on nodes of a real cluster: its control plane takes the DaemonSet, and vouches for its Pods."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.api.meta import JSONObject
from fairlead.errors import Unauthorized
from fairlead.hub.machines.tokens import NODE_AUDIENCE, check_node_token
from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.processes import wait_until
from tests.e2e.e2e_real_apis import RealApis
from tests.worlds.node_token import NAMESPACE, pod_token

pytestmark = [
    pytest.mark.real_api,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="the page uses kubectl"),
]
MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "proxy-nodes.yaml"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DAEMON_SET = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/fairlead-proxy"


async def create(cluster: Cluster, path: str, body: JSONObject) -> dict[str, Any]:
    return await cluster.raw_as("POST", path, dict[str, Any], body=msgspec.json.encode(body))


async def node(cluster: Cluster, name: str, labels: JSONObject) -> None:
    meta: JSONObject = {"name": name, "labels": labels}
    await create(cluster, "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta})


@pytest.mark.req("P-1")
async def test_a_control_plane_runs_the_daemon_set_and_names_the_node_of_its_pod(one_real: RealApis) -> None:
    await one_real.start()
    try:
        async with Cluster.from_kubeconfig(one_real.kubeconfig("hub"), name="hub") as cluster:
            await _daemon_set(one_real, cluster)
    finally:
        await one_real.close()


async def _daemon_set(apis: RealApis, cluster: Cluster) -> None:
    await node(cluster, "edge-1", {"fairlead.dev/proxy-machine": "true"})
    await node(cluster, "inside-1", {})
    command = ("kubectl", "--kubeconfig", str(apis.kubeconfig("hub")), "apply", "--server-side", "-f", str(MANIFEST))
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr

    pods: list[dict[str, Any]] = []

    async def made() -> bool:
        pods[:] = (await cluster.raw_as("GET", PODS, dict[str, Any]))["items"]
        daemon_set = await cluster.raw_as("GET", DAEMON_SET, dict[str, Any])
        return bool(pods) and daemon_set["status"]["desiredNumberScheduled"] == 1

    await wait_until(made, "the controller makes a Pod for the node with the label")
    (pod,) = pods
    name = pod["metadata"]["name"]
    target: JSONObject = {"apiVersion": "v1", "kind": "Node", "name": "edge-1"}
    binding: JSONObject = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    await create(cluster, f"{PODS}/{name}/binding", binding)

    # The token that the kubelet of the node would put into the volume.
    spec: JSONObject = {
        "audiences": [NODE_AUDIENCE],
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name},
    }
    request: JSONObject = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/fairlead-proxy/token"
    token = (await create(cluster, account, request))["status"]["token"]
    assert (await check_node_token(cluster, token, "edge-1")).of_node
    with pytest.raises(Unauthorized):
        await check_node_token(cluster, token, "inside-1")
    with pytest.raises(Unauthorized):
        await check_node_token(cluster, await pod_token(cluster, "edge-1", account="default"), "edge-1")

    # The Pod is gone, and with it its token.
    await cluster.raw("DELETE", f"{PODS}/{name}", params={"gracePeriodSeconds": "0"})

    async def refused() -> bool:
        try:
            await check_node_token(cluster, token, "edge-1")
        except Unauthorized:
            return True
        return False

    await wait_until(refused, "the token of a deleted Pod is refused")
