"""A Service of both families at a load balancer behind a driver: it says which addresses there are, and both answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from aiohttp import web

from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead_demo.worlds.apis import Apis
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import wait_until
from tests.e2e.e2e_backends import answers, echoes, http, refused
from tests.e2e.e2e_one_cluster import running

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.req("K-4", "OP-12")]

V4, V6 = "127.0.0.1", "::1"
CLASS, POD = "two-families", "a pod"


class Cloud:
    """A load balancer and its driver: it forwards connections at an address of each family that is asked for."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[tuple[str, list[str], str]] = []
        self._backends: dict[str, None] = {}
        self._listeners: dict[str, asyncio.Server] = {}
        self._turn = itertools.count()

    async def answer(self, request: web.Request) -> web.Response:
        call: dict[str, Any] = await request.json()
        if call.get("dryRun"):
            return web.json_response({"status": "Succ", "succ": True})
        hook = request.match_info["hook"]
        result: dict[str, object] = {}
        if hook in ("createLoadBalancer", "ensureLoadBalancer"):
            self.asked.append((hook, call["ipFamilies"], call["ipFamilyPolicy"]))
            addresses = [{"IPv4": V4, "IPv6": V6}[family] for family in call["ipFamilies"]]
            await self.listen(addresses)
            result = {"addresses": addresses, "lbInfo": {"name": "only"}}
        elif hook == "deleteLoadBalancer":
            await self.listen([])
        elif hook == "ensureBackend":
            self._backends[call["backendAddr"]] = None
        elif hook == "deregisterBackend":
            self._backends.pop(call["backendAddr"], None)
        return web.json_response({"status": "Succ", "succ": True} | result)

    async def listen(self, addresses: list[str]) -> None:
        for address in self._listeners.keys() - set(addresses):
            self._listeners.pop(address).close()
        for address in set(addresses) - self._listeners.keys():
            self._listeners[address] = await asyncio.start_server(self._forward, address, self.port)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that gives up, or a backend that is not there, is a connection without an answer.
        with contextlib.suppress(OSError, EOFError):
            if backends := list(self._backends):
                host, _, port = backends[next(self._turn) % len(backends)].rpartition(":")
                there, out = await asyncio.open_connection(host.strip("[]"), int(port))
                out.write(await reader.readuntil(b"\r\n\r\n"))
                writer.write(await there.read())
                out.close()
        writer.close()


@contextlib.asynccontextmanager
async def driver(cloud: Cloud) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_post("/{hook}", cloud.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
        await cloud.listen([])


async def shows(member: Member, *addresses: str) -> None:
    async def shown() -> bool:
        there = (await member.get("web")).status.load_balancer.ingress or ()
        return tuple(each.ip for each in there) == addresses

    await wait_until(shown, f"web shows {addresses}")


async def test_a_driver_gives_an_address_of_each_family_and_both_answer(one_cluster: Apis) -> None:
    cloud = Cloud(free_port(V6))
    async with driver(cloud) as url, running(one_cluster) as cluster:
        member, pod, port = cluster.member, cluster.member.new_address(), free_port()
        parameters = {"url": url, "ipFamilies": "true", "name": "web"}
        spec = {"provider": "webhook", "targets": "Pod", "drain": "0s", "parameters": parameters}
        await member.cluster.apply(
            LOAD_BALANCER_CLASSES, {"metadata": {"name": CLASS}, "spec": spec}, manager="operator"
        )

        async def web_of(policy: str, *families: str) -> None:
            await member.service(
                "web",
                http(cloud.port),
                loadBalancerClass=f"fairlead.dev/{CLASS}",
                ipFamilyPolicy=policy,
                ipFamilies=list(families),
            )

        async with echoes((pod, port, POD)):
            await member.endpoints("web", port, pod)
            await web_of("RequireDualStack", "IPv6", "IPv4")
            await shows(member, V6, V4)
            for address in (V6, V4):
                await answers(address, cloud.port, POD)
            assert cloud.asked[0] == ("createLoadBalancer", ["IPv6", "IPv4"], "RequireDualStack")

            await web_of("SingleStack", "IPv6")
            await shows(member, V6)
            assert cloud.asked[-1] == ("ensureLoadBalancer", ["IPv6"], "SingleStack")
            assert await refused(V4, cloud.port)
            await answers(V6, cloud.port, POD)

            await web_of("PreferDualStack", "IPv6", "IPv4")
            await shows(member, V6, V4)
            await answers(V4, cloud.port, POD)
            assert cloud.asked[-1] == ("ensureLoadBalancer", ["IPv6", "IPv4"], "PreferDualStack")
