"""HTTPS to the hub: who is believed, what an answer means, and which hub is asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from fairlead.errors import AlreadyExists, BadConfiguration, FairleadError, Forbidden, Unauthorized, Unreachable
from fairlead.machine.hub_client import HubClient, join, look_at
from fairlead.model.machine import HUB_NAME, EnrolAnswer, HubProblem, MachinePlan, MachineReport, fingerprint_of
from fairlead.runtime.tls import client_context
from fairlead_demo.worlds.processes import wait_until
from tests.unit.machine.machine_authority import Authority

ANSWER = EnrolAnswer(machine="m1", certificate="PEM", ca="PEM", xds="hub:2")
PLAN = MachinePlan(machine="m1", version="2")


class FakeHub:
    """An HTTPS server whose answers a test sets. ``requests`` are the paths that were asked for."""

    def __init__(
        self, authority: Authority, directory: Path, *, name: str = HUB_NAME, begins: timedelta = -timedelta(hours=1)
    ) -> None:
        self.authority = authority
        self.answers: dict[str, tuple[int, object]] = {"/v1/ca": (200, {"ca": authority.ca})}
        self.headers: dict[str, str] = {}
        self.requests: list[str] = []
        self.address = ""
        file = directory / f"{id(self)}.pem"
        file.write_text(authority.hub(name, begins=begins))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(file)

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.address = f"{host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.requests.append(request.path_qs)
        await request.read()
        status, body = self.answers[request.path]
        return web.Response(
            status=status, body=None if body is None else msgspec.json.encode(body), headers=self.headers
        )


@pytest.fixture
async def hubs(tmp_path: Path) -> AsyncIterator[list[FakeHub]]:
    authority = Authority()
    hubs = [FakeHub(authority, tmp_path) for _ in range(2)]
    for hub in hubs:
        await hub.start()
    yield hubs
    for hub in hubs:
        await hub.stop()


def client_of(*hubs: FakeHub) -> HubClient:
    return HubClient(tuple(hub.address for hub in hubs), lambda: client_context(hubs[-1].authority.ca.encode()))


async def enrol(hub: FakeHub, fingerprint: str = "") -> EnrolAnswer:
    fingerprint = fingerprint or fingerprint_of(hub.authority.ca)
    return await join(hub.address, token="id.secret", fingerprint=fingerprint, name="m1", csr="CSR")


@pytest.mark.req("P-1")
async def test_the_hub_of_the_fingerprint_is_joined(hubs: list[FakeHub]) -> None:
    hubs[0].answers["/v1/enrol"] = (200, ANSWER)
    assert await enrol(hubs[0]) == ANSWER


@pytest.mark.req("P-1")
async def test_another_fingerprint_sends_no_token(hubs: list[FakeHub]) -> None:
    with pytest.raises(BadConfiguration, match="--ca-fingerprint"):
        await enrol(hubs[0], "sha256:" + "0" * 64)
    assert hubs[0].requests == ["/v1/ca"]


@pytest.mark.req("P-1")
async def test_a_server_without_a_certificate_of_that_authority_gets_no_token(tmp_path: Path) -> None:
    impostor = FakeHub(Authority(), tmp_path)
    trusted = Authority()
    impostor.answers["/v1/ca"] = (200, {"ca": trusted.ca})
    await impostor.start()
    try:
        with pytest.raises(Unreachable, match="authority"):
            await enrol(impostor, fingerprint_of(trusted.ca))
        assert impostor.requests == ["/v1/ca"]
    finally:
        await impostor.stop()


@pytest.mark.req("P-1")
async def test_a_wrong_clock_is_found_before_the_token_is_used(hubs: list[FakeHub]) -> None:
    hubs[0].headers["Date"] = "Tue, 01 Jan 2030 00:00:00 GMT"
    with pytest.raises(BadConfiguration, match="clock"):
        await enrol(hubs[0])
    assert hubs[0].requests == ["/v1/ca"]


@pytest.mark.req("P-5")
async def test_a_certificate_that_is_not_valid_yet_is_about_the_clock(tmp_path: Path) -> None:
    hub = FakeHub(Authority(), tmp_path, begins=timedelta(hours=1))
    await hub.start()
    client = client_of(hub)
    try:
        with pytest.raises(Unreachable, match="clock"):
            await client.plan("")
    finally:
        await client.close()
        await hub.stop()


@pytest.mark.req("P-28")
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((200, MachinePlan(machine="m1", version="1")), ""),
        ((503, HubProblem(message="This hub does not lead")), ""),
        ((403, HubProblem(message="Machine m1 was removed")), "Machine m1 was removed"),
    ],
)
async def test_a_look_at_a_hub_says_why_it_does_not_answer_and_compares_clocks(
    hubs: list[FakeHub], answer: tuple[int, object], problem: str
) -> None:
    hubs[0].answers["/v1/plan"] = answer
    hubs[0].headers["Date"] = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    tls = client_context(hubs[0].authority.ca.encode())
    sentence, ahead_s = await look_at(hubs[0].address, tls)
    assert sentence == problem
    assert ahead_s is not None
    assert 3500 < ahead_s < 3700


@pytest.mark.req("P-28")
async def test_a_look_at_a_hub_that_is_gone_has_no_clock(hubs: list[FakeHub]) -> None:
    await hubs[0].stop()
    problem, ahead_s = await look_at(hubs[0].address, client_context(hubs[0].authority.ca.encode()))
    assert "does not answer" in problem
    assert ahead_s is None


@pytest.mark.req("P-1")
@pytest.mark.parametrize(
    ("status", "error"), [(401, Unauthorized), (403, Forbidden), (409, AlreadyExists), (500, Unreachable)]
)
async def test_the_sentence_of_a_refusal_is_the_hubs(
    hubs: list[FakeHub], status: int, error: type[FairleadError]
) -> None:
    hubs[0].answers["/v1/enrol"] = (status, HubProblem(message="The token was used before"))
    with pytest.raises(error, match="The token was used before"):
        await enrol(hubs[0])


@pytest.mark.req("P-1")
async def test_joining_waits_for_a_hub_that_will_lead(hubs: list[FakeHub]) -> None:
    hubs[0].answers["/v1/enrol"] = (503, HubProblem(message="This hub does not lead"))
    joining = asyncio.create_task(enrol(hubs[0]))

    async def asked() -> bool:
        return "/v1/enrol" in hubs[0].requests

    await wait_until(asked, "the hub is asked")
    hubs[0].answers["/v1/enrol"] = (200, ANSWER)
    assert await joining == ANSWER


async def test_a_plan_is_waited_for_until_it_has_changed(hubs: list[FakeHub]) -> None:
    client = client_of(hubs[0])
    hubs[0].answers["/v1/plan"] = (200, PLAN)
    assert await client.plan("1 2") == PLAN
    hubs[0].answers["/v1/plan"] = (204, None)
    assert await client.plan("2") is None
    assert hubs[0].requests == ["/v1/plan?after=1+2", "/v1/plan?after=2"]
    await client.close()


async def test_a_hub_that_does_not_lead_is_passed_over(hubs: list[FakeHub]) -> None:
    first, second = hubs
    first.answers["/v1/report"] = (503, HubProblem(message="This hub does not lead"))
    second.answers["/v1/report"] = (204, None)
    client = client_of(first, second)
    for _ in range(2):
        await client.report(MachineReport(machine="m1"))
    assert (first.requests, second.requests) == (["/v1/report"], ["/v1/report"] * 2)
    second.answers["/v1/report"] = first.answers["/v1/report"]
    with pytest.raises(Unreachable, match="does not lead"):
        await client.report(MachineReport(machine="m1"))
    await client.close()


async def test_a_dead_hub_is_named(hubs: list[FakeHub]) -> None:
    client = HubClient(("127.0.0.1:1",), lambda: client_context(hubs[0].authority.ca.encode()))
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 does not answer: Connection refused"):
        await client.plan("")
    await client.close()


async def test_an_answer_that_is_not_a_plan_is_an_error(hubs: list[FakeHub]) -> None:
    client = client_of(hubs[0])
    hubs[0].answers["/v1/plan"] = (200, ["nonsense"])
    with pytest.raises(Unreachable, match="Fairlead"):
        await client.plan("")
    await client.close()
