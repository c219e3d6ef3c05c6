"""Certificates of a real ACME server: Pebble, which refuses nonces at random and validates slowly.

It is built with Go on request (`python -m conformance.pebble`); without it these tests are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web

from conformance.pebble import why_not
from fairlead.hub.certificates.client import AcmeClient
from fairlead.hub.certificates.issuance import challenge_host, facts_of, in_thread, new_key, signing_request
from fairlead.hub.certificates.order import OrderChallenge, RemoteOrder, choose_challenges
from fairlead_demo.worlds.loopback import free_port
from tests.contract.acme.acme_pebble import Pebble

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"), pytest.mark.slow]


class Answers:
    """A web server where Pebble looks."""

    def __init__(self) -> None:
        self.port = free_port()
        self.texts: dict[str, str] = {}
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        text = self.texts.get(request.path)
        return web.Response(text=text) if text is not None else web.Response(status=404)


class Authority(NamedTuple):
    """Pebble, and where it looks."""

    pebble: Pebble
    answers: Answers

    async def prove(self, challenge: OrderChallenge) -> None:
        if challenge.type == "http-01":
            self.answers.texts[f"/.well-known/acme-challenge/{challenge.token}"] = challenge.content
            return
        await self.pebble.record("set-txt", host=f"{challenge_host(challenge.host)}.", value=challenge.content)


@pytest.fixture
async def authority(tmp_path: Path) -> AsyncIterator[Authority]:
    answers = Answers()
    await answers.start()
    pebble = Pebble(tmp_path, http_port=answers.port)
    try:
        await pebble.start()
        yield Authority(pebble, answers)
    finally:
        await pebble.close()
        await answers.close()


async def opened(pebble: Pebble) -> AcmeClient:
    key = new_key()
    client = await in_thread(lambda: AcmeClient.open(pebble.url, key, ca_bundle=pebble.bundle), name="test")
    await in_thread(lambda: client.register("operator@example.com", None), name="test")
    return client


async def settled(client: AcmeClient, order: RemoteOrder, *states: str) -> RemoteOrder:
    async with asyncio.timeout(120):
        while True:
            now = await in_thread(lambda: client.order(order.url), name="test")
            assert now is not None
            assert now.status != "invalid", now
            if now.status in states:
                return now
            await asyncio.sleep(now.after_s or 0.2)


@pytest.mark.req("K-53")
@pytest.mark.parametrize(
    ("hosts", "solver"), [(("a.example.com", "b.example.com"), "HTTP01"), (("*.example.org", "example.org"), "DNS01")]
)
async def test_a_real_authority_issues(authority: Authority, hosts: tuple[str, ...], solver) -> None:
    client = await opened(authority.pebble)
    order, names = await in_thread(lambda: client.new_order(hosts), name="test")
    for challenge in choose_challenges(names, (solver,), thumbprint=client.thumbprint):
        if not challenge.offered:
            await authority.prove(challenge)
            await in_thread(lambda each=challenge: client.offer(each.host, each.url), name="test")
    ready = await settled(client, order, "ready")
    key = new_key()
    await in_thread(lambda: client.finalize(ready, signing_request(key, hosts)), name="test")
    valid = await settled(client, order, "valid")
    chain = await in_thread(lambda: client.certificate(valid.certificate), name="test")
    facts = facts_of(chain)
    assert set(facts.hosts) == set(hosts)
    window = await in_thread(lambda: client.renewal_window(chain), name="test")
    assert window is not None
    assert window.start < facts.not_after
