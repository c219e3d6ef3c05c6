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
from fairlead.errors import Retry
from fairlead.hub.certificates.client import AcmeClient
from fairlead.hub.certificates.issuance import challenge_host, facts_of, in_thread, new_key, signing_request
from fairlead.hub.certificates.order import OrderChallenge, RemoteOrder, choose_challenges
from fairlead.model.change import DONE, Action, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import RECORD_PORT, LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.zones.powerdns import provider as powerdns
from fairlead.providers.zones.rfc2136 import provider as rfc2136
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.name_servers import Bind, binary
from fairlead_demo.worlds.processes import wait_until
from tests.contract.acme.acme_pebble import Pebble
from tests.worlds.powerdns import PowerDNS, installed

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


HOST = "www.example.test"


class HubOfAZone:
    """One hub with an account of its own, which proves a name in a zone that it shares."""

    def __init__(self, owner: str, client: AcmeClient, server: Bind | PowerDNS) -> None:
        self.client, self._server = client, server
        self.key = LoadBalancerKey("Hostname", "fairlead-system", "challenge")
        make = powerdns if isinstance(server, PowerDNS) else rfc2136
        self._provider = make.create(secrets=self)
        parameters = {"zone": server.zone, "server": server.server, "ownerId": owner, "peerLeaseSeconds": "60"}
        if isinstance(server, PowerDNS):
            parameters |= {"url": server.url, "credentials": "fairlead"}
        else:
            parameters |= {"keyName": "fairlead", "credentials": "fairlead"}
        self._spec = FrontendSpec(self.key, "", (), parameters={**parameters, "host": challenge_host(HOST)})

    async def entry(self, name: str, entry: str) -> str:
        server = self._server
        return server.api_key if entry == "api-key" and isinstance(server, PowerDNS) else server.secrets[name]

    async def begin(self, *, replaces: bytes = b"") -> None:
        self.order, names = await in_thread(lambda: self.client.new_order((HOST,), replaces=replaces), name="test")
        (self.challenge,) = choose_challenges(
            names, ("HTTP01", "DNS01"), thumbprint=self.client.thumbprint, is_shared=lambda _host: True
        )

    async def publish(self, action: Action = Action.REGISTER) -> None:
        await self._provider.ensure(self._spec)
        target = Target(TargetKey(self.challenge.content, RECORD_PORT), parameters=(("ttl", "30"),))
        change = TargetChange(self.key, backend_key("TXT"), target, action, Reason.OWNER_DELETED)
        while True:
            try:
                if await self._provider.apply([change]) == [DONE]:
                    return
            except Retry:  # as the worker does: PowerDNS on SQLite refuses two updates at once
                continue

    async def receive(self) -> bytes:
        if not self.challenge.offered:  # Pebble may still know that the account has proven the name
            await in_thread(lambda: self.client.offer(self.challenge.host, self.challenge.url), name="test")
        ready = await settled(self.client, self.order, "ready")
        await in_thread(lambda: self.client.finalize(ready, signing_request(new_key(), (HOST,))), name="test")
        valid = await settled(self.client, self.order, "valid")
        return await in_thread(lambda: self.client.certificate(valid.certificate), name="test")

    async def close(self) -> None:
        await self._provider.close()


@pytest.mark.req("MC-23")
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(Bind, marks=pytest.mark.skipif(binary("named") is None, reason="BIND 9 is not installed")),
        pytest.param(PowerDNS, marks=pytest.mark.skipif(not installed(), reason="PowerDNS is not installed")),
    ],
)
async def test_two_hubs_prove_one_name_at_once_in_their_zone(tmp_path: Path, make: type[Bind | PowerDNS]) -> None:
    server = make(tmp_path / "dns")
    await server.start()
    pebble = Pebble(tmp_path, http_port=free_port(), dns_server=server.server)
    hubs: list[HubOfAZone] = []
    try:
        await pebble.start()
        hubs += [HubOfAZone(owner, await opened(pebble), server) for owner in ("east", "west")]
        east, west = hubs
        for hub in hubs:
            await hub.begin()
        assert {hub.challenge.type for hub in hubs} == {"dns-01"}, "a request over HTTP may reach the other hub"
        texts = {hub.challenge.content for hub in hubs}

        async def both_are_answered() -> bool:
            # Again, as a hub does after its readback: PowerDNS replaces whole sets.
            await asyncio.gather(*(hub.publish() for hub in hubs))
            return await server.ask(challenge_host(HOST), "TXT") == texts

        await wait_until(both_are_answered, "the texts of both hubs are answered")
        first = await east.receive()
        await east.publish(Action.DEREGISTER)
        assert await server.ask(challenge_host(HOST), "TXT") == {west.challenge.content}
        second = await west.receive()
        assert facts_of(first).serial != facts_of(second).serial
        assert facts_of(first).hosts == facts_of(second).hosts == (HOST,)
        # The next order of a hub replaces its own certificate.
        await east.begin(replaces=first)
        if not east.challenge.offered:
            await east.publish()
        await east.receive()
        # What is replaced already, or belongs to the account of another hub, is ordered as a new one.
        for hub in hubs:
            await hub.begin(replaces=first)
    finally:
        for hub in hubs:
            await hub.close()
        await pebble.close()
        await server.kill()
