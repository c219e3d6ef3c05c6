"""A target that vanishes without a word, as a machine does that loses its power: the real Envoy cuts what is open."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fairlead.model.change import Action, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.health import HealthCheck, HealthRequest
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.envoy.envoy_process import admin_get
from fairlead.providers.envoy.provider import EnvoyProvider, create
from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.certificates import self_signed
from fairlead_demo.worlds.networks import inside, ip

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

KEY = LoadBalancerKey("LoadBalancer", "fleet", "api")
HERE, MACHINE, FRONT, PORT = "10.67.8.1", "10.67.8.2", "127.67.8.1", 6443
#: Envoy's 30 s, and what a busy machine needs.
PATIENCE_S = 180.0


@pytest.fixture
def machine() -> Iterator[str]:
    """Be in a network of our own; yields another one, of a machine that is linked with it."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    mark = f"{os.getpid()}-{secrets.token_hex(3)}"
    here, there = f"fairlead-hub-{mark}", f"fairlead-machine-{mark}"
    with ExitStack() as stack:
        for name in (here, there):
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
        ip("-n", here, "link", "add", "hub0", "type", "veth", "peer", "name", "machine0", "netns", there)
        for name, link, address in ((here, "hub0", HERE), (there, "machine0", MACHINE)):
            ip("-n", name, "addr", "add", f"{address}/30", "dev", link)
            ip("-n", name, "link", "set", link, "up")
            ip("-n", name, "link", "set", "lo", "up")
        stack.enter_context(inside(here))
        yield there


@pytest.fixture
async def envoy(machine: str) -> AsyncIterator[EnvoyProvider]:
    del machine  # it has to be there before
    path = Path(tempfile.mkdtemp(prefix="fl-", dir="/tmp"))
    provider = create(data_dir=path, concurrency=1)
    await provider.start()
    provider.publish()
    async with asyncio.timeout(PATIENCE_S):
        while (await admin_get(path / "admin.sock", "/ready"))[0] != 200:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
    yield provider
    await provider.stop()
    shutil.rmtree(path, ignore_errors=True)


class ApiServer:
    """Answers health checks, and keeps every other connection until the other side ends it: a watch."""

    def __init__(self) -> None:
        self._held: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._held.append(writer)
        if (await reader.readline()).startswith(b"GET /readyz "):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        else:
            writer.write(b"hello\n")
            await reader.read()
        writer.close()

    async def end(self) -> None:
        """Close the connections, since nothing from the other side arrives."""
        for writer in self._held:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._held), return_exceptions=True)


async def change(envoy: EnvoyProvider, action: Action, reason: Reason) -> None:
    target = Target(TargetKey(MACHINE, PORT))
    (outcome,) = await envoy.apply([TargetChange(KEY, Listener(PORT).key, target, action, reason)])
    assert outcome.status is OutcomeStatus.DONE, outcome.message


async def connected(tls: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection through Envoy on which the machine has greeted."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                reader, writer = await asyncio.open_connection(FRONT, PORT, ssl=tls, server_hostname=MACHINE)
                writer.write(b"watch\n")
                if await reader.readline() == b"hello\n":
                    return reader, writer
                writer.close()
            except OSError:
                pass  # the listener is not open yet
            await asyncio.sleep(0.05)


@pytest.mark.req("C-46")
async def test_a_connection_survives_deregistration_until_its_machine_is_gone(
    envoy: EnvoyProvider, machine: str, tmp_path: Path
) -> None:
    api, own = ApiServer(), tmp_path / "own.pem"
    certificate, key = self_signed(MACHINE)
    own.write_bytes(key + certificate)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(own)
    with inside(machine):
        server = await asyncio.start_server(api.serve, MACHINE, PORT, ssl=tls)
    check = HealthCheck(interval_s=1.0, request=HealthRequest(ca_bundle=certificate.decode()))
    await envoy.ensure(FrontendSpec(KEY, "group", (Listener(PORT),), address=FRONT, health_check=check))
    await change(envoy, Action.REGISTER, Reason.NEW)
    reader, writer = await connected(ssl.create_default_context(cadata=certificate.decode()))
    await change(envoy, Action.DRAIN, Reason.TERMINATING)
    await change(envoy, Action.DEREGISTER, Reason.DRAINED)
    # It is not cut by that: it is the machine's until the machine ends it, or is gone.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await reader.read()
    ip("-n", machine, "link", "set", "machine0", "down")
    async with asyncio.timeout(PATIENCE_S):
        assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    await stop_listening(server)
    await api.end()
