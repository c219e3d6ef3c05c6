"""An ACME server is spoken to over the real protocol: signed, with nonces that fail, and with accounts that go."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web
from cryptography import x509

from fairlead.hub.certificates import client as client_module
from fairlead.hub.certificates.client import AcmeClient, ExternalKey, seconds_of
from fairlead.hub.certificates.issuance import facts_of, in_thread, is_account_key, new_key, signing_request
from fairlead.hub.certificates.order import AcmeRefused, RemoteOrder, choose_challenges, one_line
from fairlead_demo.worlds.acme_server import AcmeServer

HOSTS = ("a.example", "b.example")
EXTERNAL = {"kid-1": base64.urlsafe_b64encode(b"a key of an account").decode().rstrip("=")}


class Answering:
    """A web server that answers challenges, as a load balancer would."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.port = 0

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        return runner

    async def _answer(self, request: web.Request) -> web.Response:
        text = self.texts.get(request.path)
        return web.Response(text=text) if text is not None else web.Response(status=404)


@pytest.fixture
async def answering() -> AsyncIterator[Answering]:
    made = Answering()
    runner = await made.start()
    yield made
    await runner.cleanup()


@pytest.fixture
async def server(answering: Answering) -> AsyncIterator[AcmeServer]:
    async with AcmeServer(where=lambda _host: ("127.0.0.1", answering.port)) as made:
        yield made


async def opened(server: AcmeServer, key: bytes | None = None, external: ExternalKey | None = None) -> AcmeClient:
    def make() -> AcmeClient:
        client = AcmeClient.open(server.directory, key or new_key())
        client.register("", external)
        return client

    return await in_thread(make, name="test")


async def settled(client: AcmeClient, order: RemoteOrder) -> RemoteOrder:
    async with asyncio.timeout(180):
        while True:
            now = await in_thread(lambda: client.order(order.url), name="test")
            assert now is not None
            if now.status not in {"pending", "processing"}:
                return now
            await asyncio.sleep(0.02)


async def test_a_certificate_is_ordered_proven_and_fetched_with_nonces_that_fail(
    server: AcmeServer, answering: Answering
) -> None:
    client = await opened(server)
    server.faults.bad_nonces = 12
    order, names = await in_thread(lambda: client.new_order(HOSTS), name="test")
    assert server.counts["badNonce"] >= 12
    for challenge in choose_challenges(names, ("HTTP01",), thumbprint=client.thumbprint):
        answering.texts[f"/.well-known/acme-challenge/{challenge.token}"] = challenge.content
        await in_thread(lambda each=challenge: client.offer(each.host, each.url), name="test")
    ready = await settled(client, order)
    assert ready.status == "ready"
    key = new_key()
    valid = await in_thread(lambda: client.finalize(ready, signing_request(key, HOSTS)), name="test")
    chain = await in_thread(lambda: client.certificate(valid.certificate), name="test")
    facts = facts_of(chain)
    assert set(facts.hosts) == set(HOSTS)
    assert facts.not_after > datetime.now(UTC) + timedelta(days=80)
    assert chain.endswith(server.root)
    assert await in_thread(lambda: client.renewal_window(chain), name="test") is None
    # The second order cannot replace what the first one replaces, and is a new one.
    orders = [await in_thread(lambda: client.new_order(HOSTS, replaces=chain), name="test") for _ in range(2)]
    assert len({order.url for order, _ in orders}) == 2
    assert len(server.replaced) == 1
    server.faults.rate_limited = 2
    with pytest.raises(AcmeRefused, match="rate limit"):
        await in_thread(lambda: client.new_order(HOSTS, replaces=chain), name="test")
    assert server.faults.rate_limited == 1, "a limit is kept"


async def test_a_name_that_answers_something_else_fails_with_its_problem(
    server: AcmeServer, answering: Answering
) -> None:
    client = await opened(server)
    order, names = await in_thread(lambda: client.new_order(HOSTS[:1]), name="test")
    (challenge,) = choose_challenges(names, ("HTTP01",), thumbprint=client.thumbprint)
    answering.texts[f"/.well-known/acme-challenge/{challenge.token}"] = "something else"
    await in_thread(lambda: client.offer(challenge.host, challenge.url), name="test")
    assert (await settled(client, order)).status == "invalid"
    (after,) = await in_thread(lambda: client.authorizations(order.authorizations), name="test")
    problems = [each.problem for each in after.challenges if each.problem]
    assert problems[0][0].endswith("incorrectResponse")


async def test_the_same_key_has_the_same_account(server: AcmeServer) -> None:
    key = new_key()
    first, second = await opened(server, key), await opened(server, key)
    assert first.account == second.account
    assert server.counts["account"] == 1


async def test_limits_come_with_the_time_to_wait(server: AcmeServer) -> None:
    client = await opened(server)
    server.faults.rate_limited, server.faults.retry_after_s = 1, 1234
    with pytest.raises(AcmeRefused) as refused:
        await in_thread(lambda: client.new_order(HOSTS), name="test")
    assert refused.value.rate_limited
    assert refused.value.after_s == 1234


async def test_an_account_that_is_deactivated_says_what_to_do(server: AcmeServer) -> None:
    key = new_key()
    client = await opened(server, key)
    server.deactivate_accounts()
    with pytest.raises(AcmeRefused, match="deactivated"):
        await in_thread(lambda: client.new_order(HOSTS), name="test")
    with pytest.raises(AcmeRefused) as refused:
        await opened(server, key)
    assert refused.value.of_account
    assert "delete the Secret" in refused.value.sentence


async def test_an_order_that_is_no_longer_known_is_absent(server: AcmeServer) -> None:
    client = await opened(server)
    order, _ = await in_thread(lambda: client.new_order(HOSTS), name="test")
    server.forget_orders()
    assert await in_thread(lambda: client.order(order.url), name="test") is None


async def test_an_account_is_bound_to_one_at_the_authority() -> None:
    async with AcmeServer(where=lambda _host: ("127.0.0.1", 1), external=EXTERNAL) as server:
        client = await opened(server, external=ExternalKey(("kid-1", EXTERNAL["kid-1"])))
        assert client.account
        with pytest.raises(AcmeRefused, match=r"spec\.externalAccount"):
            await opened(server)
        with pytest.raises(AcmeRefused) as refused:
            await opened(server, external=ExternalKey(("kid-1", "d3Jvbmc")))
        assert refused.value.kind == "unauthorized"


async def test_a_server_that_is_down_or_none_is_a_sentence(server: AcmeServer) -> None:
    server.faults.down = True
    with pytest.raises(AcmeRefused, match="cannot be used now"):
        await opened(server)
    server.faults.down = False
    client = await opened(server)
    server.faults.down = True
    with pytest.raises(AcmeRefused) as refused:
        await in_thread(lambda: client.new_order(HOSTS), name="test")
    assert refused.value.kind == ""
    with pytest.raises(AcmeRefused, match="no connection"):
        await in_thread(lambda: AcmeClient.open("http://127.0.0.1:1/", new_key()), name="test")


@pytest.mark.req("S-11")
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("long", "more than 1048576 bytes"),
        ("bomb", "ClientError"),
        ("slow", "within 0.5 s"),
        ("elsewhere", "redirects to http://127.0.0.1:1/metadata"),
        ("long-elsewhere", "redirects are not followed"),
    ],
)
async def test_an_answer_of_any_length_costs_no_more_than_a_limit(
    path: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of gzip became a gigabyte in the hub."""
    if path == "slow":
        monkeypatch.setattr(client_module, "_ANSWER_S", 0.5)
    bomb = gzip.compress(bytes(100 << 20), 1)

    async def answer(request: web.Request) -> web.StreamResponse:
        if path == "elsewhere":
            return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/metadata"})
        headers = {"Content-Encoding": "gzip"} if path == "bomb" else {}
        response = web.StreamResponse(headers=headers)
        if path == "long-elsewhere":
            response.set_status(302)
            response.headers["Location"] = "http://127.0.0.1:1/metadata"
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for _ in range(1_600 if path == "long-elsewhere" else 0):
                await response.write(bytes(1 << 16))
            if path == "bomb":
                await response.write(bomb)
            for _ in range(2_000 if path in {"long", "slow"} else 0):
                await response.write(b" " * (1 if path == "slow" else 4096))
                await asyncio.sleep(0.05 if path == "slow" else 0)
        return response

    app = web.Application()
    app.router.add_get("/directory", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/directory"
        tracemalloc.start()
        with pytest.raises(AcmeRefused, match=why):
            await in_thread(lambda: AcmeClient.open(url, new_key()), name="test")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
        await runner.cleanup()


async def test_a_problem_with_fields_of_other_types_is_a_refusal() -> None:
    async def answer(request: web.Request) -> web.Response:
        base = f"http://{request.host}"
        if request.path == "/directory":
            return web.json_response({name: f"{base}/{name}" for name in ("newNonce", "newAccount", "newOrder")})
        headers = {"Replay-Nonce": "bm9uY2U"}
        if request.path == "/newNonce":
            return web.Response(headers=headers)
        body = json.dumps({"type": 5, "detail": ["x"]})
        return web.Response(status=403, text=body, content_type="application/problem+json", headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/directory"
        client = await in_thread(lambda: AcmeClient.open(url, new_key()), name="test")
        with pytest.raises(AcmeRefused, match="'x'"):
            await in_thread(lambda: client.register("", None), name="test")
    finally:
        await runner.cleanup()


def test_retry_after_is_seconds_or_a_date():
    assert seconds_of("30") == 30
    assert seconds_of("") is None
    assert seconds_of("soon") is None
    later = seconds_of(format_datetime(datetime.now(UTC) + timedelta(hours=1)))
    assert later is not None
    assert 3000 < later <= 3600
    assert seconds_of(format_datetime(datetime.now(UTC) - timedelta(hours=1))) == 0


@pytest.mark.parametrize("ahead_h", [-30, 0, 30])
def test_a_date_to_retry_after_counts_from_the_clock_of_the_server(ahead_h: int):
    server = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=ahead_h)
    until = format_datetime(server + timedelta(hours=1), usegmt=True)
    assert seconds_of(until, date=format_datetime(server, usegmt=True)) == 3600


def test_keys_are_p_256_and_requests_have_the_names():
    key = new_key()
    assert is_account_key(key)
    assert not is_account_key(b"no key")
    request = signing_request(key, HOSTS)
    names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == list(HOSTS)


def test_a_request_for_names_too_long_for_a_subject_names_them_as_alternatives():
    """A common name has at most 64 characters, and authorities reject requests with a longer one."""
    hosts = ("x" * 63 + ".very-long-name.example", "*." + "y" * 63 + ".example")
    request = signing_request(new_key(), hosts)
    assert list(request.subject) == []
    names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == list(hosts)


def test_what_a_server_says_fits_on_one_line():
    assert one_line('a\n"b"\x1b c') == "a 'b' c"
    assert len(one_line("x" * 1000)) == 300


async def test_a_mistake_in_a_thread_comes_back() -> None:
    def wrong() -> None:
        raise AcmeRefused("on purpose")

    with pytest.raises(AcmeRefused, match="on purpose"):
        await in_thread(wrong, name="test")
