"""Authorities that are slow, silent or wrong: none delays another, and errors name the authority."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import certificates_world
import pytest
from aiohttp import web
from certificates_world import HOST, NAME, NAMESPACE, World
from cryptography import x509

from fairlead.api.kubernetes import SECRETS
from fairlead.errors import NotFound, Retry
from fairlead.hub.certificates import control, issuance
from fairlead.hub.certificates.client import AcmeClient
from fairlead.hub.certificates.issuance import in_thread, new_key, signing_request
from fairlead.hub.certificates.order import AcmeRefused
from fairlead.runtime.telemetry import stop_listening

world = certificates_world.world


@asynccontextmanager
async def silent_server() -> AsyncGenerator[str]:
    """Return the URL of a server that takes connections and answers nothing."""
    writers: list[asyncio.StreamWriter] = []

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/directory"
    finally:
        await stop_listening(server)
        for writer in writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def test_a_term_that_ends_while_the_authority_answers_writes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.issuer()
    await world.ask(HOST)
    fetch = AcmeClient.certificate

    def late(self: AcmeClient, url: str) -> bytes:
        chain = fetch(self, url)
        world.leads = False
        return chain

    monkeypatch.setattr(AcmeClient, "certificate", late)
    with pytest.raises(Retry, match="no longer leads"):
        await world.settle("Issued")
    assert not world.leads
    with pytest.raises(NotFound):
        await world.cluster.get(SECRETS, NAMESPACE, NAME)
    assert (await world.read()).status.state == "Ordering"


async def test_a_failure_that_comes_after_the_term_is_not_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.issuer()
    await world.ask(HOST)

    def late(self: AcmeClient, hosts: object, *, replaces: bytes) -> object:
        world.leads = False
        raise AcmeRefused("refused on purpose")

    monkeypatch.setattr(AcmeClient, "new_order", late)
    with pytest.raises(Retry, match="no longer leads"):
        await world.step()
    assert (await world.read()).status.conditions is None


async def test_an_authority_that_does_not_answer_takes_no_place_of_another(world: World) -> None:
    async with silent_server() as url:
        await world.issuer()
        await world.issuer(name="silent", server=url)
        names = [f"silent-{number}" for number in range(2 * control._WORKERS)]
        for name in names:
            await world.ask(f"{name}.example.com", name=name, issuer="silent")
        await world.ask(HOST)
        await world.refresh()
        tasks = [asyncio.create_task(world.control.reconcile((NAMESPACE, name))) for name in names]
        pending = set(tasks)
        # All but those that wait for the authority stay in a queue of their issuer, and hold no worker.
        while len(pending) > control._OF_ONE_ISSUER:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        assert len(pending) == control._OF_ONE_ISSUER
        assert (await world.settle("Issued")).status.digest
    await asyncio.wait(pending)
    queue = next(each.queue for each in world.control.controllers() if each.name == "managedcertificate")
    assert len(queue) == control._OF_ONE_ISSUER, "each that is done has its turn taken by one that waits"
    obj = await world.cluster.get(certificates_world.MANAGED_CERTIFICATES, NAMESPACE, names[0])
    assert obj.status.state == "Failing"


async def test_a_slow_call_is_reported_as_the_authoritys(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(call: Any, *, name: str) -> Any:
        return await in_thread(lambda: time.sleep(0.5), name=name, limit_s=0.01)

    await world.issuer()
    await world.ask(HOST)
    monkeypatch.setattr(issuance, "in_thread", slow)
    assert (await world.step() or 0) >= 60
    status, reason, message = await world.condition("Ready")
    assert (status, reason) == ("False", "AuthorityUnreachable")
    assert "no answer in time" in message
    monkeypatch.undo()
    world.clock.jump(1000)
    await world.settle("Issued")


class Wrong:
    """A server that speaks ACME up to what is asked of it, and then something else."""

    def __init__(self, body: str, *, location: bool) -> None:
        self._body = body
        self._location = location
        self.directory = ""

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.directory = f"http://127.0.0.1:{runner.addresses[0][1]}/directory"
        return runner

    async def _answer(self, request: web.Request) -> web.Response:
        base = self.directory.removesuffix("/directory")
        headers = {"Replay-Nonce": "bm9uY2U"}
        match request.path:
            case "/directory":
                kinds = ("newNonce", "newAccount", "newOrder")
                return web.json_response({each: f"{base}/{each}" for each in kinds})
            case "/newAccount":
                return web.json_response({"status": "valid"}, headers=headers | {"Location": f"{base}/account"})
            case "/newOrder" if self._location:
                headers["Location"] = f"{base}/order"
            case _:
                pass
        return web.Response(text=self._body, content_type="application/json", headers=headers)


@pytest.mark.parametrize(
    ("body", "location"),
    [
        ("[]", True),
        ("null", True),
        ("not json", True),
        ('{"authorizations": 5}', True),
        ('{"error": "text"}', True),
        ('{"status": "pending"}', False),
    ],
)
async def test_an_answer_that_is_not_acme_is_a_failure_of_the_authority(body: str, *, location: bool) -> None:
    server = Wrong(body, location=location)
    runner = await server.start()
    try:

        def ask() -> object:
            client = AcmeClient.open(server.directory, new_key())
            client.register("", None)
            return client.new_order(("a.example",))

        with pytest.raises(AcmeRefused) as refused:
            await in_thread(ask, name="test")
    finally:
        await runner.cleanup()
    assert "invalid ACME answer" in refused.value.sentence
    assert server.directory in refused.value.sentence
    assert (refused.value.kind, refused.value.reason) == ("", "AuthorityUnreachable")


async def test_an_invalid_certificate_is_not_stored(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.authority._authority, "issue", lambda *_: b"no certificate")
    await world.issuer()
    await world.ask(HOST)
    await world.settle("Failing")
    assert "invalid ACME answer about the certificate" in (await world.condition("Ready"))[2]
    with pytest.raises(NotFound):
        await world.cluster.get(SECRETS, NAMESPACE, NAME)


@pytest.mark.parametrize(
    ("names", "problem"),
    [((HOST,), "is not the key"), (("other.example.com",), "not valid for shop.example.com")],
    ids=["another key", "other names"],
)
async def test_a_certificate_that_was_not_ordered_replaces_none(
    world: World, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], problem: str
) -> None:
    await world.issuer()
    await world.ask(HOST)
    await world.settle("Issued")
    before = (await world.cluster.get(SECRETS, NAMESPACE, NAME)).data
    authority = world.authority._authority
    issue, own = authority.issue, new_key()

    def other(_request: x509.CertificateSigningRequest, _hosts: tuple[str, ...], *rest: Any) -> bytes:
        key = own if "key" in problem else world.control._issuance._keys[NAMESPACE, NAME][1]
        return issue(signing_request(key, names), names, *rest)

    monkeypatch.setattr(authority, "issue", other)
    world.clock.jump(70 * 24 * 3600)
    await world.settle("Failing")
    status, _, message = await world.condition("Stale")
    assert (status, problem in message) == ("True", True), message
    assert (await world.cluster.get(SECRETS, NAMESPACE, NAME)).data == before
    count = world.authority.counts["newOrder"]
    for _ in range(3):
        assert (await world.step() or 0) >= 60
    assert world.authority.counts["newOrder"] == count
    monkeypatch.undo()
    world.clock.jump(1000)
    await world.settle("Issued")


async def test_an_order_that_stays_undecided_fails_after_a_day(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    undecided = True
    order_body = world.authority._order_body

    def processing(number: str) -> dict[str, Any]:
        body = order_body(number)
        return body | {"status": "processing"} if undecided and body["status"] == "valid" else body

    monkeypatch.setattr(world.authority, "_order_body", processing)
    await world.issuer()
    await world.ask(HOST)
    while (order := (await world.settle("Ordering")).status.order) is None or not world.control._issuance._keys:
        await world.step()
    world.clock.jump(23 * 3600)
    await world.step()
    assert (await world.read()).status.order == order
    world.clock.jump(2 * 3600)
    await world.settle("Failing")
    assert "has been processing since" in (await world.condition("Ready"))[2]
    undecided = False
    world.clock.jump(1000)
    await world.settle("Issued")
