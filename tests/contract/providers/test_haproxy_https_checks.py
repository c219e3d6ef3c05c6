"""A real HAProxy checks members over HTTPS, as Envoy does: /readyz, a name, and the authority of their own cluster."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.errors import Retry
from fairlead.model.change import Action, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.health import HealthCheck, HealthRequest
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.haproxy.commands import authority_name
from fairlead.providers.haproxy.provider import HAProxyProvider
from fairlead.providers.haproxy.snapshot import server_name
from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.certificates import self_signed
from tests.contract.providers.provider_processes import HAProxy, free_port
from tests.scenario.any_api import until

HOST = "kubernetes"
KEY = LoadBalancerKey("LoadBalancer", "fleet", "api")
API = Listener(6443)


class Member:
    """An API server that says at /readyz whether it is ready; ``pem`` is its certificate and its authority's."""

    def __init__(self, directory: Path, *, host: str = HOST) -> None:
        self.ready = True
        self.asked: list[str] = []
        certificate, key = self_signed(host)
        self.pem = certificate.decode()
        pair = directory / f"{free_port()}.pem"
        pair.write_bytes(certificate + key)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(pair)

    async def start(self) -> Member:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.key = TargetKey("127.0.0.1", self.server.sockets[0].getsockname()[1])
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        self.asked.append(line.decode().split(" ")[1] if line.count(b" ") else "")
        status = b"200 OK" if self.ready else b"500 Internal Server Error"
        writer.write(b"HTTP/1.0 %s\r\nContent-Length: 0\r\n\r\n" % status)
        writer.close()


class Plane:
    """One HAProxy with a backend whose configuration asks for /readyz, and members of one control plane."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        extra = "backend plane\n  mode tcp\n  option httpchk GET /readyz\n  http-check expect status 200\n"
        self.haproxy = HAProxy(directory, backends=1, extra=extra)
        self.provider = HAProxyProvider(look_every_s=0.05)
        self.members: list[Member] = []

    async def member(self, *, host: str = HOST) -> Member:
        member = await Member(self.directory, host=host).start()
        self.members.append(member)
        return member

    async def ensure(self, ca_bundle: str, host: str = HOST) -> None:
        request = HealthRequest(host=host, ca_bundle=ca_bundle)
        check = HealthCheck(interval_s=0.2, unhealthy_threshold=1, request=request)
        parameters = {"socket": str(self.haproxy.socket), "backend": "plane"}
        await self.provider.ensure(FrontendSpec(KEY, "group", (API,), parameters=parameters, health_check=check))

    async def register(self, *members: Member) -> None:
        changes = [TargetChange(KEY, API.key, Target(each.key), Action.REGISTER, Reason.NEW) for each in members]
        for outcome in await self.provider.apply(changes):
            assert outcome.status is OutcomeStatus.DONE, outcome.message

    def status(self, member: Member) -> str:
        name = server_name("", KEY, API.key, member.key)
        return f"{self.haproxy.stat('plane', name, 'status')} {self.haproxy.stat('plane', name, 'check_status')}"

    async def until(self, member: Member, status: str) -> None:
        await until(lambda: self.status(member) == status, what=f"a member is {status}; it is {self.status(member)}")


@pytest.fixture
async def plane(session_dir: Path, request: pytest.FixtureRequest) -> AsyncIterator[Plane]:
    directory = session_dir / f"https-{abs(hash(request.node.name)) % 10**6}"
    directory.mkdir()
    running = Plane(directory)
    yield running
    await running.provider.close()
    for member in running.members:
        await stop_listening(member.server)
    running.haproxy.stop()


@pytest.mark.req("C-65")
async def test_only_a_ready_member_with_a_certificate_of_its_authority_gets_traffic(plane: Plane) -> None:
    good, other, named = await plane.member(), await plane.member(), await plane.member(host="other.example")
    await plane.ensure(good.pem + named.pem)
    await plane.register(good, other, named)
    await plane.until(good, "UP L7OK")
    await plane.until(other, "DOWN L6RSP")
    await plane.until(named, "DOWN L6RSP")
    assert set(good.asked) == {"/readyz"}
    good.ready = False
    await plane.until(good, "DOWN L7STS")
    good.ready = True
    await plane.until(good, "UP L7OK")


@pytest.mark.req("C-65")
async def test_an_authority_that_changes_holds_for_members_that_come_from_then_on(plane: Plane) -> None:
    before, after = await plane.member(), await plane.member()
    await plane.ensure(before.pem)
    await plane.register(before)
    await plane.until(before, "UP L7OK")
    await plane.ensure(after.pem)
    await plane.register(before, after)
    await plane.until(after, "UP L7OK")
    # HAProxy cannot change the check of a server, whose certificate is of the authority before.
    await plane.until(before, "UP L7OK")


@pytest.mark.req("C-65")
async def test_a_reload_loses_the_authority_and_it_is_there_again_before_the_first_member(plane: Plane) -> None:
    good, other = await plane.member(), await plane.member()
    await plane.ensure(good.pem)
    await plane.register(good, other)
    await plane.until(good, "UP L7OK")
    plane.haproxy.reload()
    assert authority_name("", KEY, good.pem) not in plane.haproxy.ask("show ssl ca-file")
    await plane.register(good, other)
    await plane.until(good, "UP L7OK")
    await plane.until(other, "DOWN L6RSP")


@pytest.mark.req("C-65")
async def test_an_invalid_bundle_is_rejected_and_none_is_allowed(plane: Plane) -> None:
    member = await plane.member(host="other.example")
    await plane.ensure("")
    await plane.register(member)
    await plane.until(member, "UP L7OK")
    with pytest.raises(Retry, match=r"spec\.healthCheck\.caBundle"):
        await plane.ensure("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


@pytest.mark.req("C-65")
async def test_a_load_balancer_that_goes_leaves_no_authority_behind(plane: Plane) -> None:
    member = await plane.member()
    await plane.ensure(member.pem)
    await plane.register(member)
    await plane.until(member, "UP L7OK")
    assert authority_name("", KEY, member.pem) in plane.haproxy.ask("show ssl ca-file")
    await until(lambda: deleted(plane), what="it is deleted")
    assert authority_name("", KEY, member.pem) not in plane.haproxy.ask("show ssl ca-file")


async def deleted(plane: Plane) -> bool:
    try:
        await plane.provider.delete(KEY)
    except Retry:
        return False
    return True
