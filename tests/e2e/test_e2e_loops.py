"""A member whose load balancers name each other as endpoints, against the Envoy that all members share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.kube.cluster import Cluster
from fairlead.testing.builders import slice_body, tcp_body
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.processes import wait_until
from tests.e2e.conftest import working_directory
from tests.e2e.e2e_backends import ask, ask_udp, echoes, http, ready

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

NAMESPACE = "tenant-west"
PORTS = [{"name": "tcp", "port": 8080, "protocol": "TCP"}, {"name": "udp", "port": 8080, "protocol": "UDP"}]


@pytest.fixture
async def shared() -> AsyncIterator[Fleet]:
    with working_directory() as directory:
        apis = EmbeddedApis(directory / "api", ("hub", "east", "west"))
        fleet = Fleet(apis=apis, directory=directory, members={"east": "Pod", "west": "Pod"}, drain="1s")
        try:
            await fleet.start()
            yield fleet
        finally:
            await fleet.close()


async def write(member: Cluster, name: str, address: str, endpoint: str) -> None:
    """Write a load balancer with one endpoint, with nothing but what a member may do at the hub."""
    body = tcp_body(name, namespace=NAMESPACE, ports=PORTS, spec={"targets": "Pod", "address": address})
    await member.apply(TCP_LOAD_BALANCERS, body, manager="member")
    body = slice_body(name, [endpoint], namespace=NAMESPACE, load_balancer=name, ports=PORTS)
    await member.apply(ENDPOINT_SLICES, body, manager="member")


async def status(member: Cluster, name: str) -> dict[str, tuple[str, str]]:
    """Return status and message of each condition."""
    obj: TCPLoadBalancer = await member.get(TCP_LOAD_BALANCERS, NAMESPACE, name)
    return {each.type: (each.status, each.message) for each in obj.status.conditions or ()}


@pytest.mark.req("S-6")
async def test_load_balancers_that_name_each_other_take_nothing_from_another_member(shared: Fleet) -> None:
    east = shared.members["east"]
    pod, pool = east.new_address(), shared.pool.removesuffix(".0/24")
    first, second = f"{pool}.250", f"{pool}.251"
    async with echoes((pod, 8080, "here")), contextlib.AsyncExitStack() as stack:
        await east.endpoints("web", 8080, pod)
        await east.service("web", http())
        address = await ready(east, "web", 80)

        west = Cluster.from_kubeconfig(shared.directory / "west-at-hub.kubeconfig", name="west at the hub")
        stack.push_async_callback(west.aclose)
        await write(west, "one", first, second)

        async def is_programmed(name: str) -> bool:
            return (await status(west, name)).get("Programmed", ("", ""))[0] == "True"

        await wait_until(lambda: is_programmed("one"), "the first one serves what may be a machine")
        await write(west, "two", second, first)
        await wait_until(lambda: is_programmed("two"), "the second one has its address")

        _, writer = await asyncio.open_connection(first, 8080)
        stack.callback(writer.close)
        with contextlib.suppress(TimeoutError, OSError):
            await ask_udp(first, 8080, b"?", timeout_s=1.0)
        for _ in range(40):
            assert await ask(address, 80) == "here"
            await asyncio.sleep(0.1)

        for name, other in (("one", second), ("two", first)):

            async def says(name: str = name, other: str = other) -> bool:
                state, message = (await status(west, name))["ResolvedRefs"]
                return state == "False" and f"load balancers themselves are left out ({other}:8080)" in message

            await wait_until(says, f"{name} says that {other} is a load balancer")
        assert await shared.hub.metric("fairlead_xds_streams") == 1
