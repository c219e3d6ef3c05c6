"""Both families through the real Envoy: TCP, UDP and HTTP, at one address of each, with backends of either."""

from __future__ import annotations

import aiohttp
import pytest

from fairlead.model.change import Action
from fairlead.model.desired import Listener
from fairlead.model.http import L7Listener
from fairlead_demo.worlds.loopback import free_port
from tests.xds.http_world import HttpWorld, config, route, to
from tests.xds.world import TCP, UDP, Backend, World, ask, ask_udp

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session"), pytest.mark.req("K-4", "K-58")]
V6 = "::1"


async def test_tcp_and_udp_at_both_addresses(world: World) -> None:
    tcp, udp = await world.backend("a"), await world.udp_backend("b")
    at, beside = free_port(V6), free_port(V6)
    ports = (Listener(at, TCP), Listener(beside, UDP))
    spec = world.spec(*sorted(ports, key=lambda each: each.port), second_address=V6)
    await world.provider.ensure(spec)
    await world.change(spec, Action.REGISTER, tcp.target, listener=ports[0].key, wait=False)
    await world.change(spec, Action.REGISTER, udp.target, listener=ports[1].key)
    assert [await ask(address, at) for address in (spec.address, V6)] == ["a", "a"]
    assert [await ask_udp(address, beside) for address in (spec.address, V6)] == ["b", "b"]
    observed = await world.provider.observe(spec.key)
    assert observed is not None
    assert observed.addresses == (spec.address, V6)


async def test_an_ipv4_client_reaches_an_ipv6_backend_and_the_other_way_round(world: World) -> None:
    four = await world.backend("four")
    six = Backend("six")
    await six.start(V6)
    try:
        spec = await world.load_balancer(six.target)
        assert await ask(spec.address, 8080) == "six"
        at = free_port(V6)
        other = world.spec(Listener(at), address=V6)
        await world.serve(other, four.target)
        assert await ask(V6, at) == "four"
    finally:
        await six.stop()


async def test_requests_at_both_addresses(http: HttpWorld) -> None:
    backend, at = await http.echo("shop"), free_port(V6)
    listener = L7Listener("http", at)
    spec = await http.start(config(route("r", to("shop")), listeners=(listener,)), backend, second_address=V6)
    async with aiohttp.ClientSession() as session:
        for address in (spec.address, f"[{V6}]"):
            async with session.get(f"http://{address}:{at}/x") as answer:
                assert (answer.status, (await answer.json())["name"]) == (200, "shop")
