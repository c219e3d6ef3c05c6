"""What /debug/keys answers about a load balancer of a running hub."""

from __future__ import annotations

import aiohttp
import msgspec
from prometheus_client import CollectorRegistry

from fairlead.hub.inspect.preview import KeyState
from fairlead.page.board import Board
from fairlead.page.web import AllRights, WebPage
from fairlead.runtime.clock import SystemClock
from fairlead.runtime.telemetry import StatusServer


async def no_detail(_key, _only):
    return None


KEY = "TCPLoadBalancer/tenant-east/web"


async def test_a_key_answers_with_its_providers_and_why_a_backend_was_removed(world, hub):
    await world.lb()
    await world.slice("web", "10.1.0.1", "10.1.0.2")
    await world.programmed()
    await world.slice("web", "10.1.0.1")
    await world.until(lambda: world.at_cloud() == {"10.1.0.1:8080"}, what="the backend is removed")
    page = WebPage(Board([], clock=SystemClock()), gate=AllRights(), explain=no_detail, known=hub.hub.debug_key)
    async with (
        StatusServer("127.0.0.1", 0, CollectorRegistry(), hub.hub.not_ready, page.add_to) as server,
        aiohttp.ClientSession() as session,
    ):
        async with session.get(f"{server.url}/debug/keys/{KEY}") as answer:
            assert answer.content_type == "application/json"
            known = msgspec.json.decode(await answer.read(), type=KeyState)
        assert (known.exists, [(provider.provider, provider.desired) for provider in known.providers]) == (
            True,
            [("envoy", True)],
        )
        texts = [entry.text for entry in known.history]
        assert any("EndpointSlice web-1 changed" in text for text in texts)
        removals = [row for entry in known.history for row in entry.rows if row.action == "Deregister"]
        assert [target.split()[1] for row in removals for target in row.targets] == ["10.1.0.2:8080"]
        async with session.get(f"{server.url}/debug/keys/TCPLoadBalancer/tenant-east/other") as answer:
            assert answer.status == 404
            assert "TCPLoadBalancer/tenant-east/other" in await answer.text()
