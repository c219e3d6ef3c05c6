"""The relay of a proxy machine: Envoy's streams to the hub, and the snapshot that takes the hub's place."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import grpc
import msgspec
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from fairlead.machine.checks import CONNECTIONS, TARGETS, load_balancers_with, sum_of
from fairlead.machine.relay import HubLink, Relay
from fairlead.machine.snapshot import XdsSnapshot
from fairlead.model.change import Action
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import TargetKey
from fairlead.model.machine import HUB_NAME
from fairlead.providers.envoy.bootstrap import ENVOY_FLAGS, Bootstrap, bootstrap_json
from fairlead.providers.envoy.certificates import client_certificate, new_authority, server_certificate
from fairlead.providers.envoy.connections import EndpointDrains
from fairlead.providers.envoy.envoy_process import LocalEnvoy
from fairlead.providers.envoy.fleet import ServerCertificate
from fairlead.providers.envoy.kubernetes.fleet import DeploymentFleet
from fairlead.providers.envoy.kubernetes.manifests import DeploymentSettings
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.providers.envoy.resources import ResourceType, packaged_schema
from fairlead.runtime.background import keep_running
from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.processes import wait_until
from tests.unit.providers.envoy.kubernetes.fake_kube import FakeKube
from tests.xds.conftest import first_port
from tests.xds.world import TIMEOUT_S, Addresses, World, ask

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

GROUP = "machine:m1"


class Site:
    """A machine with a real Envoy, and hubs that come and go."""

    def __init__(self, directory: Path, first_port: int) -> None:
        self.directory = directory
        self.port = first_port
        now = datetime.now(UTC)
        self._authority = new_authority(now)
        hub = server_certificate(self._authority, (HUB_NAME,), now)
        for name, content in (("hub.crt", hub.certificate), ("hub.key", hub.key), ("ca.crt", self._authority.trusted)):
            (directory / name).write_bytes(content)
        (directory / "envoy").mkdir()
        bootstrap = Bootstrap(
            node_id="m1",
            group="a lie",
            xds_address=str(directory / "xds.sock"),
            admin_socket=str(directory / "envoy" / "admin.sock"),
        )
        self.envoy = LocalEnvoy(
            directory=directory / "envoy",
            bootstrap=msgspec.json.encode(bootstrap_json(bootstrap)),
            options=("--concurrency", "1", *ENVOY_FLAGS),
        )
        self.endpoint_drains = EndpointDrains(
            packaged_schema(),
            pids=lambda: [self.envoy.running.pid] if self.envoy.running is not None else [],
            resources=lambda: self.snapshot.of(ResourceType.ENDPOINTS),
            changed=lambda: None,
        )
        self.provider: EnvoyProvider | None = None
        self._stop: list[Callable[[], Awaitable[object]]] = []

    async def start_machine(self) -> None:
        """Start the relay with what is on disk, and Envoy if it does not run."""
        self.snapshot = XdsSnapshot(self.directory / "snapshot", on_change=self._note)
        self.snapshot.load()
        self.link = HubLink()
        self.relay = Relay(
            socket=self.directory / "xds.sock", snapshot=self.snapshot, link=self.link, schema=packaged_schema()
        )
        await self.relay.start()
        self._writing = keep_running("snapshot", self.snapshot.run)
        self.envoy.prepare()
        await self.envoy.start()

    def _note(self, kind: ResourceType, name: str) -> None:
        if kind is ResourceType.ENDPOINTS:
            self.endpoint_drains.note(name)

    async def stop_machine(self) -> None:
        """End our process: the relay, not Envoy."""
        self.endpoint_drains.drains.close()
        await self.envoy.close()
        await self.relay.stop()
        await self.link.close()
        self._writing.cancel()
        await asyncio.wait({self._writing})

    async def kill_envoy(self) -> None:
        """End Envoy; it is started again if the machine runs."""
        assert self.envoy.running is not None
        os.kill(self.envoy.running.pid, signal.SIGKILL)

    async def start_hub(self) -> EnvoyProvider:
        """Start a hub that knows nothing yet, and connect the machine to it."""
        certificate = ServerCertificate(
            certificate=self.directory / "hub.crt", key=self.directory / "hub.key", client_ca=self.directory / "ca.crt"
        )
        settings = DeploymentSettings(proxy_ports=(self.port, self.port + 8))
        fleet = DeploymentFleet(kube=FakeKube(), settings=settings)
        self.provider = EnvoyProvider(fleet=fleet, xds_address="127.0.0.1:0", certificate=certificate)
        await self.provider.start()
        await self.connect()
        return self.provider

    async def connect(self, group: str = GROUP) -> None:
        """Connect to the hub, with a new certificate; the first of two hubs does not answer."""
        assert self.provider is not None
        pair = client_certificate(self._authority, group, datetime.now(UTC))
        credentials = grpc.ssl_channel_credentials(self._authority.trusted, pair.key, pair.certificate)
        await self.link.connect(["127.0.0.1:1", f"127.0.0.1:{self.provider.server.port}"], credentials)

    async def stop_hub(self) -> None:
        assert self.provider is not None
        await self.provider.close()
        self.provider = None

    async def ask(self) -> str:
        """Ask the port of the load balancer; empty when nothing answers."""
        try:
            return await ask("127.0.0.1", self.port)
        except OSError:
            return ""

    async def until(self, name: str) -> None:
        async def answers() -> bool:
            return await self.ask() == name

        await wait_until(answers, f"{name} answers")

    async def until_synced(self) -> None:
        async def synced() -> bool:
            return self.provider is not None and [proxy.synced for proxy in self.provider.proxies()] == [True]

        await wait_until(synced, "the hub has a proxy that has acknowledged everything")


@pytest_asyncio.fixture(loop_scope="session")
async def site(short_dir: Path, worker_id: str) -> AsyncIterator[Site]:
    site = Site(short_dir, first_port(7_000, worker_id))
    await site.start_machine()
    yield site
    if site.provider is not None:
        await site.stop_hub()
    await site.stop_machine()
    await site.envoy.stop()


def spec_of(site: Site, world: World) -> FrontendSpec:
    listeners = (Listener(80, proxy_port=site.port),)
    return msgspec.structs.replace(world.spec(), group=GROUP, address="", listeners=listeners)


@pytest.mark.req("P-4")
async def test_envoy_comes_back_from_the_snapshot_without_a_hub(site: Site, addresses: Addresses) -> None:
    provider = await site.start_hub()
    provider.publish()
    world = World(provider, addresses)
    first, second = await world.backend("first"), await world.backend("second")
    spec = spec_of(site, world)
    await world.serve(spec, first.target)
    assert await site.ask() == "first"
    assert site.relay.synced
    # What the machine reads from Envoy's statistics.
    page = (await site.envoy.admin(TARGETS))[1]
    assert load_balancers_with(page, "healthy") == load_balancers_with(page, "total") == {f"test/{spec.key.name}"}
    assert sum_of((await site.envoy.admin(CONNECTIONS))[1], "total") == 1
    assert [proxy.group for proxy in provider.proxies()] == [GROUP]

    # No hub: Envoy serves on, and a new one is served from the snapshot.
    await site.stop_hub()
    assert await site.ask() == "first"
    await site.kill_envoy()
    await site.until("first")

    # The machine boots: our process and Envoy begin with what is on disk.
    await site.stop_machine()
    await site.kill_envoy()
    await site.start_machine()
    await site.until("first")
    assert set(site.snapshot.of(ResourceType.LISTENER)) == {f"{spec.key}/TCP/80"}

    # The next hub finds what it would send.
    heir = await site.start_hub()
    await heir.ensure(spec)
    await World(heir, addresses).change(spec, Action.REGISTER, first.target, wait=False)
    heir.publish()
    await site.until_synced()
    assert sum(heir.counters.changing_pushes.values()) == 0

    # Another certificate: the streams move to a new connection, and nothing is sent either.
    before = list(heir.server.sessions)
    await site.connect()

    async def moved() -> bool:
        return len(heir.server.sessions) == 1 and heir.server.sessions != before

    await wait_until(moved, "the stream has moved")
    await site.until_synced()
    assert sum(heir.counters.changing_pushes.values()) == 0
    await World(heir, addresses).change(spec, Action.REGISTER, second.target, wait=False)
    await World(heir, addresses).change(spec, Action.DEREGISTER, first.target, wait=False)
    await site.until("second")
    await world.close()


@pytest.mark.req("P-4")
async def test_lost_snapshot_is_filled_again_by_the_hub(site: Site, addresses: Addresses) -> None:
    provider = await site.start_hub()
    provider.publish()
    world = World(provider, addresses)
    backend = await world.backend("there")
    spec = spec_of(site, world)
    await world.serve(spec, backend.target)

    await site.stop_machine()
    (site.directory / "snapshot").write_bytes(b"damaged")
    await site.start_machine()
    assert site.snapshot.size == 0
    await site.connect()

    async def filled() -> bool:
        return all(site.snapshot.of(kind) for kind in (ResourceType.CLUSTER, ResourceType.LISTENER))

    await wait_until(filled, "the hub has sent what the snapshot lacked")
    assert await site.ask() == "there"
    await provider.delete(spec.key)

    async def empty() -> bool:
        return site.snapshot.size == 0

    await wait_until(empty, "what was removed has left the snapshot")
    await world.close()


@pytest.mark.req("P-2")
async def test_a_machine_that_the_hub_refuses_keeps_serving(site: Site, addresses: Addresses) -> None:
    provider = await site.start_hub()
    provider.publish()
    world = World(provider, addresses)
    backend = await world.backend("there")
    spec = spec_of(site, world)
    await world.serve(spec, backend.target)

    # A certificate that names no group, as after a revocation.
    with capture_logs() as logs:
        await site.connect("")

        async def refused() -> bool:
            return any("refused a stream" in entry["event"] for entry in logs) and not provider.proxies()

        await wait_until(refused, "the hub refuses the machine")
    assert not site.link.usable
    assert await site.ask() == "there"
    await site.kill_envoy()
    await site.until("there")
    await world.close()


@pytest.mark.req("F-4")
@pytest.mark.skipif(os.geteuid() != 0, reason="closing a connection needs CAP_NET_ADMIN")
async def test_a_machine_closes_connections_after_the_drain_time_without_a_hub(
    site: Site, addresses: Addresses
) -> None:
    provider = await site.start_hub()
    provider.publish()
    world = World(provider, addresses)
    other = await world.backend("other")

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        with contextlib.suppress(ConnectionError):
            await _reader.read(1)
        writer.close()

    address = addresses.take()
    server = await asyncio.start_server(hold, address, 8080)
    target = Target(TargetKey(address, 8080))
    spec = msgspec.structs.replace(spec_of(site, world), drain_s=4.0)
    await world.serve(spec, target)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    assert await reader.readexactly(1) == b"x"
    await world.change(spec, Action.REGISTER, other.target)
    await world.change(spec, Action.REGISTER, msgspec.structs.replace(target, draining=True))
    figures = site.endpoint_drains.drains.figures()
    assert figures.keys() == {spec.key}
    assert figures[spec.key].targets == 1
    await site.stop_hub()
    async with asyncio.timeout(TIMEOUT_S):
        assert await reader.read() == b""
    writer.close()

    async def over() -> bool:
        return not site.endpoint_drains.drains.figures()

    await wait_until(over, "nothing drains any longer")
    await site.until("other")
    await stop_listening(server)
    await world.close()
