"""An embedded API of a test, with its kubeconfig, and a hub with load balancers of two members."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import ANNOTATION_ORIGIN
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.testing.builders import tcp_body
from podless import ApiServer
from tests.scenario.installed_kinds import server_with_kinds

ADMIN = "for-these-tests-only"


@contextlib.asynccontextmanager
async def api(directory: Path, *, kinds: bool = True) -> AsyncGenerator[tuple[Cluster, Path]]:
    """Run an API; with ``kinds``, those of Fairlead are installed already."""
    server = await server_with_kinds(admin_token=ADMIN) if kinds else ApiServer(admin_token=ADMIN)
    await server.start()
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        f'clusters: [{{name: c, cluster: {{server: "{server.url}"}}}}]\n'
        f"users: [{{name: c, user: {{token: {ADMIN}}}}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: c}}]\n"
    )
    try:
        async with Cluster(ClusterConfig(server=server.url, sign_in=bearer(ADMIN)), name="there") as cluster:
            yield cluster, kubeconfig
    finally:
        await server.stop()


EAST, WEST = "TCPLoadBalancer/tenant-east/default.web", "TCPLoadBalancer/tenant-west/default.web"
EDGE, SHARED = "HTTPLoadBalancer/tenant-east/edge", "LoadBalancer/shop/shared"


async def fill(hub: Cluster) -> None:
    """Make two Services of one name, an IngressClass and a LoadBalancer of the hub's own."""
    for name in ("tenant-east", "tenant-west", "shop"):
        await hub.create(NAMESPACES, {"metadata": {"name": name}})
    await hub.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "envoy"}, "spec": {"provider": "envoy"}})
    for member in ("east", "west"):
        body: dict[str, Any] = tcp_body("default.web", namespace=f"tenant-{member}")
        body["spec"]["origin"] = {"kind": "Service", "namespace": "default", "name": "web"}
        body["metadata"] |= {"annotations": {ANNOTATION_ORIGIN: f"{member}/default/web"}, "labels": {"in": member}}
        await hub.create(TCP_LOAD_BALANCERS, body)
    spec = {"listeners": [{"name": "http", "port": 80}], "origin": {"kind": "IngressClass", "name": "fairlead"}}
    metadata = {"name": "edge", "namespace": "tenant-east", "annotations": {ANNOTATION_ORIGIN: "east/fairlead"}}
    await hub.create(HTTP_LOAD_BALANCERS, {"metadata": metadata, "spec": spec})
    spec = {"className": "edge", "listeners": [{"name": "http", "port": 80}]}
    await hub.create(LOAD_BALANCERS, {"metadata": {"name": "shared", "namespace": "shop"}, "spec": spec})
