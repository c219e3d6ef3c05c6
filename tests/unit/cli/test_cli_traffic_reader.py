"""Where ``fairlead top`` reads, and what it says when there is nothing to read."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from fairlead.cli.top import read_traffic
from fairlead.errors import BadConfiguration, Unauthorized, Unreachable
from fairlead.page.board import Board
from fairlead.page.traffic import Figure, Traffic
from fairlead.page.web import AllRights, WebPage
from fairlead.runtime.clock import SystemClock
from fairlead.runtime.telemetry import StatusServer
from fairlead_demo.worlds.loopback import free_port


class Answering(Traffic):
    """Figures without a data plane to wait for."""

    async def answer(self, timeout_s=0.0):
        answer = await super().answer(timeout_s)
        return type(answer)(
            "2030-01-01T00:00:00Z", [Figure("TCPLoadBalancer/tenant-east/web", 3.0), Figure("Other/a/b")]
        )


class TokenGate(AllRights):
    async def rights(self, headers):
        if headers.get("Authorization") != "Bearer good":
            raise Unauthorized("sign in")
        return self


async def none(_key, _only):
    return None


@pytest.fixture
async def hub():
    clock = SystemClock()
    traffic = Answering(list, clock=clock, now=clock.now)
    page = WebPage(Board([], clock=clock), gate=TokenGate(), explain=none, traffic=traffic)
    async with StatusServer("127.0.0.1", 0, CollectorRegistry(), list, extend=page.add_to) as server:
        yield server.url


@pytest.mark.req("OP-11")
async def test_with_a_token_the_figures_of_known_kinds_are_read(hub, tmp_path):
    token = tmp_path / "token"
    token.write_text("good\n")
    answer = await read_traffic(hub, token)
    assert [figure.id for figure in answer.figures] == ["TCPLoadBalancer/tenant-east/web"]
    with pytest.raises(Unauthorized, match="--token-file"):
        await read_traffic(hub)
    with pytest.raises(BadConfiguration, match="cannot be read"):
        await read_traffic(hub, tmp_path / "none")


async def test_no_hub_and_no_page(hub):
    with pytest.raises(Unreachable, match="--metrics"):
        await read_traffic(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(BadConfiguration, match="not serve the traffic figures of a hub"):
        await read_traffic(f"{hub}/other")
