"""The page of a real hub over real traffic: its figures as ``fairlead top`` prints them, and one load balancer."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.api.kubernetes import ENDPOINT_SLICES, NAMESPACES
from fairlead.api.meta import is_true
from fairlead.api.names import ANNOTATION_PAUSED
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.kube.cluster import Cluster
from fairlead.testing.builders import endpoint, slice_body, tcp_body
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.loopback import free_network, free_port
from fairlead_demo.worlds.processes import fairlead, run_fairlead, wait_until
from tests.e2e.e2e_backends import ask, echoes

pytestmark = [pytest.mark.envoy, pytest.mark.slow]
PLACE = "tenant-page"


@pytest.mark.req("OP-10")
@pytest.mark.req("OP-11")
async def test_the_page_and_the_figures_of_a_hub_with_traffic():
    backend, port = f"{free_network()}.1", free_port()
    with tempfile.TemporaryDirectory(prefix="fairlead-") as name:
        directory = Path(name) / "hub"
        command = fairlead("standalone", "--data-dir", str(directory), "--listen", "127.0.0.1:0")
        hub = HubProcess("standalone", command, envoy_directory=directory / "hub", log=Path(name) / "log")
        try:
            await hub.start_ready()
            async with (
                Cluster.from_kubeconfig(directory / "kubeconfig", name="hub") as cluster,
                echoes((backend, port, "page")),
            ):
                address = await served(cluster, backend, port)
                await traffic_is_shown(hub, address)
                await detail_is_shown(hub, backend, port)
                await what_fails_and_what_drains_is_shown(hub, cluster, backend, port)
                await plan_and_regions_are_shown(hub, cluster, port)
        finally:
            await hub.close()


async def served(cluster: Cluster, backend: str, port: int) -> str:
    """Make a load balancer for one backend; return its address once it serves."""
    await cluster.create(NAMESPACES, {"metadata": {"name": PLACE}})
    await cluster.create(TENANTS, {"metadata": {"name": "page"}, "spec": {"targetRanges": ["127.0.0.0/8"]}})
    await cluster.create(TCP_LOAD_BALANCERS, tcp_body("web", namespace=PLACE, spec={"targets": "Pod"}))
    ports = [{"port": port, "protocol": "TCP", "name": ""}]
    await cluster.create(
        ENDPOINT_SLICES, slice_body("web", [backend], namespace=PLACE, load_balancer="web", ports=ports)
    )

    async def serves() -> bool:
        lb = await cluster.get(TCP_LOAD_BALANCERS, PLACE, "web")
        return is_true(lb.status.conditions, "Serving")

    await wait_until(serves, "the load balancer serves")
    return (await cluster.get(TCP_LOAD_BALANCERS, PLACE, "web")).status.address


async def traffic_is_shown(hub: HubProcess, address: str) -> None:
    """Use the load balancer until ``fairlead top`` lists it."""

    async def listed() -> bool:
        for _ in range(5):
            await ask(address, 80)
        code, out, error = await run_fairlead("top", "--once", "-o", "json", "--hub-url", f"http://{hub.pages}")
        assert code == 0, error
        rows = [each for each in json.loads(out)["loadBalancers"] if each["id"] == f"TCPLoadBalancer/{PLACE}/web"]
        return any(each["bytesOut"] > 0 and each["connections"] > 0 for each in rows)

    await wait_until(listed, "fairlead top lists the load balancer")


async def detail_is_shown(hub: HubProcess, backend: str, port: int) -> None:
    """Read the page's answers about the load balancer."""
    url = f"http://{hub.pages}/page/load-balancers/TCPLoadBalancer/{PLACE}/web"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        detail = await answer.json()
    assert [(each["address"], each["state"]) for each in detail["backends"]] == [(f"{backend}:{port}", "Served")]
    assert all(each["since"] for each in detail["backends"])
    assert {"Programmed", "Serving"} <= {each["type"] for each in detail["conditions"]}
    assert detail["history"]


async def what_fails_and_what_drains_is_shown(hub: HubProcess, cluster: Cluster, backend: str, port: int) -> None:
    """Add a backend that no process answers at, and let the other one go: the page says since when, and why."""
    ports = [{"port": port, "protocol": "TCP", "name": ""}]
    both = [endpoint("127.0.0.98"), endpoint(backend)]
    body = slice_body("web", both, namespace=PLACE, load_balancer="web", ports=ports)
    await cluster.apply(ENDPOINT_SLICES, body, manager="tests", force=True)
    url = f"http://{hub.pages}/page/load-balancers/TCPLoadBalancer/{PLACE}/web"

    async def backends() -> dict[str, dict[str, str]]:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            detail = await answer.json()
        return {each["address"]: each for each in detail["backends"]}

    async def fails() -> bool:
        return (await backends()).get(f"127.0.0.98:{port}", {}).get("state") == "Unhealthy"

    await wait_until(fails, "the page shows which backend fails its checks")
    failing = (await backends())[f"127.0.0.98:{port}"]
    assert failing["since"].endswith("Z")
    assert failing["why"]
    going = [endpoint("127.0.0.98"), endpoint(backend, ready=False, serving=True, terminating=True)]
    body = slice_body("web", going, namespace=PLACE, load_balancer="web", ports=ports)
    await cluster.apply(ENDPOINT_SLICES, body, manager="tests", force=True)

    async def drains() -> bool:
        return (await backends()).get(f"{backend}:{port}", {}).get("state") == "Draining"

    await wait_until(drains, "the page shows what drains")
    leaving = (await backends())[f"{backend}:{port}"]
    assert leaving["since"].endswith("Z")
    assert leaving["why"].startswith("Terminating: ")


async def plan_and_regions_are_shown(hub: HubProcess, cluster: Cluster, port: int) -> None:
    """Pause the load balancer, take its backend away, and give it a region: the page has both."""
    await cluster.merge_patch(
        TCP_LOAD_BALANCERS, PLACE, "web", {"metadata": {"annotations": {ANNOTATION_PAUSED: "true"}}}
    )
    ports = [{"port": port, "protocol": "TCP", "name": ""}]
    body = slice_body("web", ["127.0.0.99"], namespace=PLACE, load_balancer="web", ports=ports)
    await cluster.apply(ENDPOINT_SLICES, body, manager="tests", force=True)
    region = {"metadata": {"name": "web-north", "namespace": PLACE}, "spec": {"nodepoolName": "north"}}
    await cluster.create(POOL_SERVICES, region)

    async def shown() -> bool:
        tables = await first_event(f"http://{hub.pages}/page/events")
        held = [row["heldBy"] for item in tables.get("plan", []) for row in item["rows"]]
        return set(held) == {"Paused"} and [each["region"] for each in tables.get("region", [])] == ["north"]

    await wait_until(shown, "the page shows what the pause holds, and the region")


async def first_event(url: str) -> dict[str, Any]:
    """Return the tables with which the stream of the page begins."""
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = b""
        while b"\n\n" not in text:
            text += await answer.content.readany()
    return json.loads(text.partition(b"data: ")[2].partition(b"\n")[0])["set"]
