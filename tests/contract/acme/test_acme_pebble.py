"""Certificates of a real ACME server: Pebble, which refuses nonces at random and validates slowly.

It is built with Go on request (`python -m conformance.pebble`); without it these tests are left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from conformance.pebble import directory, why_not
from fairlead.hub.certificates.client import AcmeClient
from fairlead.hub.certificates.keys import facts_of, new_key, signing_request
from fairlead.hub.certificates.order import OrderChallenge, RemoteOrder, choose_challenges
from fairlead.hub.certificates.solvers import challenge_host
from fairlead.hub.certificates.threads import in_thread
from fairlead.testing.certificates import self_signed
from fairlead.testing.worlds.loopback import free_port

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"), pytest.mark.slow]

ENVIRONMENT = {"PEBBLE_WFE_NONCEREJECT": "30", "PEBBLE_VA_SLEEPTIME": "1", "PEBBLE_WFE_ORDERS_PER_PAGE": "3"}


class Authority:
    """Pebble, the DNS server that it asks, and a web server where it looks."""

    def __init__(self, tmp_path: Path) -> None:
        self._path = tmp_path
        self._dns, self._management, self._http = free_port(), free_port(), free_port()
        self.port = free_port()
        self.answers: dict[str, str] = {}
        self._children: list[asyncio.subprocess.Process] = []
        self._runner: web.AppRunner | None = None
        chain, key = self_signed("localhost")
        self.bundle = chain.decode()
        (tmp_path / "cert.pem").write_bytes(chain)
        (tmp_path / "key.pem").write_bytes(key)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/dir"

    async def start(self) -> None:
        config = {
            "pebble": {
                "listenAddress": f"127.0.0.1:{self.port}",
                "managementListenAddress": f"127.0.0.1:{free_port()}",
                "certificate": str(self._path / "cert.pem"),
                "privateKey": str(self._path / "key.pem"),
                "httpPort": self._http,
                "tlsPort": free_port(),
                "externalAccountBindingRequired": False,
                "retryAfter": {"authz": 1, "order": 1},
                "keyAlgorithm": "ecdsa",
                "profiles": {"default": {"description": "default", "validityPeriod": 7776000}},
            }
        }
        (self._path / "config.json").write_text(json.dumps(config))
        off = ("-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", "")
        dns = ("-dnsserver", f"127.0.0.1:{self._dns}", "-management", f"127.0.0.1:{self._management}")
        await self._child("pebble-challtestsrv", *off, *dns)
        await self._child("pebble", "-config", str(self._path / "config.json"), "-dnsserver", f"127.0.0.1:{self._dns}")
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._http).start()

    async def close(self) -> None:
        for child in self._children:
            child.terminate()
            await child.wait()
        if self._runner is not None:
            await self._runner.cleanup()

    async def prove(self, challenge: OrderChallenge) -> None:
        if challenge.type == "http-01":
            self.answers[f"/.well-known/acme-challenge/{challenge.token}"] = challenge.content
            return
        body = json.dumps({"host": f"{challenge_host(challenge.host)}.", "value": challenge.content}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._management}/set-txt", data=body)
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=30).close())

    async def _child(self, name: str, *arguments: str) -> None:
        with (self._path / f"{name}.log").open("wb") as log:
            self._children.append(
                await asyncio.create_subprocess_exec(
                    str(directory() / name), *arguments, env={**os.environ, **ENVIRONMENT}, stdout=log, stderr=log
                )
            )

    async def _answer(self, request: web.Request) -> web.Response:
        text = self.answers.get(request.path)
        return web.Response(text=text) if text is not None else web.Response(status=404)


@pytest.fixture
async def authority(tmp_path: Path) -> AsyncIterator[Authority]:
    made = Authority(tmp_path)
    await made.start()
    yield made
    await made.close()


async def opened(authority: Authority) -> AcmeClient:
    key = new_key()
    async with asyncio.timeout(90):
        while True:
            try:
                client = await in_thread(
                    lambda: AcmeClient.open(authority.url, key, ca_bundle=authority.bundle), name="test"
                )
                break
            except Exception as error:
                if "no connection" not in str(error):
                    raise
                await asyncio.sleep(0.1)
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
    ("hosts", "solver"),
    [(("a.example.com", "b.example.com"), "HTTP01"), (("*.example.org", "example.org"), "DNS01")],
)
async def test_a_real_authority_issues(authority: Authority, hosts: tuple[str, ...], solver) -> None:
    client = await opened(authority)
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
