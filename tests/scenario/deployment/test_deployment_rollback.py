"""The hub's chart is upgraded and rolled back by real Helm, under traffic: no request fails, nothing changes at Envoy.

Version 0.1 had no chart. The release begins with the chart, the kinds and the code of an earlier commit; the upgrade
brings the present ones with other values; the rollback brings back all of the first.
"""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from deployment_city import BACKENDS
from deployment_helm import CHARTS, HELM, Release
from deployment_kubelet import Kubelet
from deployment_pod import Pod
from deployment_world import World, until

from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import DEFAULT_CLASS
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.envoy_process import admin_get
from fairlead.testing.builders import slice_body
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.traffic import Traffic
from tests.e2e.e2e_backends import echoes
from tests.e2e.e2e_real_apis import RealApis, assets_directory, own_network, why_not_real
from tests.e2e.e2e_versions import ROOT, environment_of

pytestmark = [
    pytest.mark.real_api,
    pytest.mark.envoy,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(HELM is None, reason="Helm is not installed: make helm builds it, where Go is"),
]

#: The first commit that leaves kinds of a newer version as they are and makes clusters at Envoy as 0.1 did.
PREVIOUS = "e79464b"
#: Versions of what Envoy was sent, and counters of everything that has changed any of it.
STATS = re.compile(
    r"(listener_manager|cluster_manager)\.(lds|cds|listener|cluster)[._]"
    r"(version|added|modified|removed|updated|in_place_updated|updated_via_merge)"
    r"|cluster\..*\.(version|membership_change|membership_total)"
)


def chart_of(commit: str, directory: Path) -> Path:
    """Return the hub's chart of a commit."""
    path = "deploy/charts/fairlead-hub"
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit, path]
    archive = subprocess.run(command, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(directory, filter="data")
    return directory / path


@asynccontextmanager
async def at_a_real_api(directory: Path) -> AsyncGenerator[tuple[Release, World, bytes]]:
    """Run a real API server in a network of its own; yields Helm there, the world, and the authority to trust."""
    if why := why_not_real():
        pytest.skip(why)
    assets = assets_directory()
    assert assets is not None
    with own_network():
        apis = RealApis(directory / "api", ("hub",), assets=assets)
        try:
            await apis.start()
            config = apis.kubeconfig("hub")
            async with Cluster.from_kubeconfig(config, name="admin") as admin:
                cluster = yaml.safe_load(config.read_text())["clusters"][0]["cluster"]
                authority = (config.parent / cluster["certificate-authority"]).read_bytes()
                world = World(admin, admin.config, directory)
                yield Release(config, admin, directory), world, authority
        finally:
            await apis.close()


async def at_envoy(pod: Pod) -> list[str]:
    """Return what Envoy has, by its own account: listeners, versions of what it was sent, and how often it changed."""
    pages = [await admin_get(pod.admin, path) for path in ("/stats", "/listeners")]
    assert [status for status, _ in pages] == [200, 200]
    stats, listeners = (text.splitlines() for _, text in pages)
    return sorted([*listeners, *(line for line in stats if STATS.fullmatch(line.partition(":")[0]))])


@pytest.mark.req("OP-1", "W-10", "I-5", "I-8")
async def test_a_release_upgraded_and_rolled_back_under_traffic_changes_nothing_at_envoy(
    directory: Path, tmp_path: Path
) -> None:
    images = {"previous": environment_of(PREVIOUS, tmp_path), "present": dict[str, str]()}
    before, now = chart_of(PREVIOUS, tmp_path), CHARTS / "fairlead-hub"
    async with at_a_real_api(directory) as (release, world, authority):
        release.does("install", "fairlead-hub", str(before), "--create-namespace", "--set=image.tag=previous")
        kubelet = Kubelet(world, directory, authority=authority, images=images)
        await kubelet.open()
        try:
            await kubelet.roll()
            short = {"spec": {"drain": "1s"}}
            await world.admin.merge_patch(LOAD_BALANCER_CLASSES, "", DEFAULT_CLASS, short, manager="operator")
            namespace = await world.tenant()
            key = await world.load_balancer(namespace)
            await serve(world, namespace, "10.66.0.1")
            await world.assign(key, ip="203.0.113.7")
            async with (
                echoes(*((address, 8080, name) for address, name in BACKENDS.items())),
                world.pod(namespace) as pod,
            ):
                await world.programmed(key)
                port = await world.proxy_port(key)
                traffic = Traffic(host="127.0.0.1", port=port, kept=2)
                await until(traffic.is_answered, what="the load balancer answers")
                traffic.start()
                for step, address in (
                    (
                        ("upgrade", str(now), "--set=image.tag=present", "--set=logLevel=warning",
                         "--set=tenantPorts=500", "--set=replicaCount=3", "--set=clusterProxies.enabled=true"),
                        "10.66.0.2",
                    ),
                    (("rollback", "1"), "10.66.0.3"),
                ):  # fmt: skip
                    there = await at_envoy(pod)
                    release.does(step[0], "fairlead-hub", *step[1:])
                    await kubelet.roll()
                    await connected(kubelet)
                    assert await at_envoy(pod) == there
                    assert await kubelet.metric("fairlead_xds_changing_pushes_total") == 0
                    # And they work: a change gets to Envoy.
                    await serve(world, namespace, address)
                    await wait_until(
                        lambda name=BACKENDS[address]: reached(traffic, name), f"requests get to {address}",
                        timeout_s=120,
                    )  # fmt: skip
                    await wait_until(lambda: drained(pod), "the backend from before has left")
                await traffic.stop()
                assert (traffic.count.failed, traffic.count.cut) == (0, 0), traffic.count.failures
                assert traffic.count.answered > 0
                assert await world.proxy_port(key) == port
                assert len(kubelet.hubs) == 2
        finally:
            await kubelet.close()


async def serve(world: World, namespace: str, address: str) -> None:
    """Make one backend that of the load balancer."""
    ports = [{"port": 8080, "protocol": "TCP", "name": "p80"}]
    body = slice_body("web-1", [address], namespace=namespace, load_balancer="web", ports=ports)
    await world.admin.apply(ENDPOINT_SLICES, body, manager="agent")


async def reached(traffic: Traffic, name: str) -> bool:
    return traffic.count.by_pod[name] > 0


async def drained(pod: Pod) -> bool:
    return all(line.endswith(": 1") for line in await at_envoy(pod) if "membership_total" in line)


async def connected(kubelet: Kubelet) -> None:
    """Wait until Envoy is back at one of the hubs."""

    async def one_has_it() -> bool:
        return await kubelet.metric("fairlead_xds_streams") == 1

    await wait_until(one_has_it, "Envoy is back at a hub")
