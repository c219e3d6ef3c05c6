"""One provider with a real Envoy, backends to talk to, and addresses that no other test uses."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from fairlead.model.change import Action, OutcomeStatus, Reason, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.model.observed import Health
from fairlead.providers.envoy.envoy_process import LocalEnvoy
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.runtime.telemetry import stop_listening
from tests.programmed import wait_programmed, wait_proxies

TIMEOUT_S = 120.0
#: Of all worlds of a process: Envoy counts on where a load balancer has the name of one before it.
_NUMBERS = itertools.count(1)


def new_name() -> str:
    """Return a name that no other load balancer of this process has had."""
    return f"lb-{next(_NUMBERS)}"


class Addresses:
    """Loopback addresses of one test worker, above those that ``free_network`` chooses from."""

    def __init__(self, worker: int) -> None:
        self._free = (
            f"127.{200 + worker % 20}.{third}.{fourth}" for third in range(1, 255) for fourth in range(1, 255)
        )

    def take(self) -> str:
        return next(self._free)


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a connection, whatever the other side has done."""
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def local_envoy(provider: EnvoyProvider) -> LocalEnvoy:
    """Return the one Envoy of a provider."""
    assert isinstance(provider.fleet, LocalFleet)
    (envoy,) = provider.fleet.envoys.values()
    return envoy


class Seen(NamedTuple):
    """What a backend saw of a connection."""

    peer: tuple[str, int]
    header: bytes
    #: The serial number of the client certificate.
    serial: str = ""


class Backend:
    """A TCP server that says its name, or echoes lines when asked to stay."""

    def __init__(
        self, name: str, *, header: int = 0, stay: bool = False, context: ssl.SSLContext | None = None
    ) -> None:
        self._context = context
        self.name = name
        self.seen: list[Seen] = []
        self.address = ""
        self.port = 0
        self._header = header
        self._stay = stay
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self, address: str) -> Backend:
        self._server = await asyncio.start_server(self._serve, address, self.port, ssl=self._context)
        self.address, self.port = self._server.sockets[0].getsockname()[:2]
        return self

    @property
    def target(self) -> Target:
        return Target(TargetKey(self.address, self.port))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            header = await reader.readexactly(self._header) if self._header else b""
            certificate = writer.get_extra_info("peercert") or {}
            serial = certificate.get("serialNumber", "").lower().lstrip("0")
            self.seen.append(Seen(writer.get_extra_info("peername")[:2], header, serial))
            writer.write(self.name.encode() + b"\n")
            while self._stay and (line := await reader.readline()):
                writer.write(line)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            await close(writer)

    async def stop(self) -> None:
        if self._server is not None:
            await stop_listening(self._server)
            await asyncio.gather(*self._serving, return_exceptions=True)


class Datagrams(asyncio.DatagramProtocol):
    """A UDP socket that can be closed and seen to be."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)


class UdpBackend(Datagrams):
    """A UDP server that answers its name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.address = ""
        self.port = 0
        self._transport: asyncio.DatagramTransport | None = None

    async def start(self, address: str) -> UdpBackend:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(address, 0))
        self.address, self.port = self._transport.get_extra_info("sockname")[:2]
        return self

    @property
    def target(self) -> Target:
        return Target(TargetKey(self.address, self.port))

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        self._transport.sendto(self.name.encode(), addr)

    async def stop(self) -> None:
        if self._transport is not None:
            self._transport.close()
            await self.closed


class _Answer(Datagrams):
    def __init__(self) -> None:
        super().__init__()
        self.got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not self.got.done():
            self.got.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.got.done():
            self.got.set_exception(exc)


async def ask(address: str, port: int, *, source: str = "") -> str:
    """Connect and read a backend's name; empty when the connection is accepted and closed without a word."""
    async with asyncio.timeout(TIMEOUT_S):
        local = (source, 0) if source else None
        try:
            reader, writer = await asyncio.open_connection(address, port, local_addr=local)
        except ConnectionResetError:
            return ""  # it was queued at a listener that closed meanwhile
        try:
            return (await reader.readline()).decode().strip()
        except ConnectionError:
            return ""
        finally:
            await close(writer)


async def until_closed(address: str, port: int) -> None:
    """Wait until nothing listens there; Envoy acknowledges that a listener is removed before its socket is closed."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                _, writer = await asyncio.open_connection(address, port)
            except ConnectionRefusedError:
                return
            except ConnectionResetError:
                continue  # it was queued at a listener that closed meanwhile
            await close(writer)
            await asyncio.sleep(0.02)


async def ask_udp(address: str, port: int, *, source: str = "", timeout_s: float = TIMEOUT_S) -> str:
    """Send one datagram and read the answer; TimeoutError when there is none."""
    loop = asyncio.get_running_loop()
    local = (source, 0) if source else None
    transport, answer = await loop.create_datagram_endpoint(_Answer, remote_addr=(address, port), local_addr=local)
    try:
        transport.sendto(b"who?")
        async with asyncio.timeout(timeout_s):
            return (await answer.got).decode()
    finally:
        transport.close()
        await answer.closed


@asynccontextmanager
async def connected(address: str, port: int) -> AsyncGenerator[tuple[str, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Hold a connection to a backend that stays; gives its name too."""
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(address, port)
        name = (await reader.readline()).decode().strip()
    try:
        yield name, reader, writer
    finally:
        await close(writer)


async def settled(provider: EnvoyProvider) -> None:
    """Wait until the connected proxy has nothing left to acknowledge."""
    await wait_proxies(lambda: provider.proxies() and all(proxy.synced for proxy in provider.proxies()))


class World:
    """What a test works with."""

    def __init__(self, provider: EnvoyProvider, addresses: Addresses) -> None:
        self.provider = provider
        self.addresses = addresses
        self._stop: list[Backend | UdpBackend] = []
        self._keys: list[LoadBalancerKey] = []

    async def backend(self, name: str, **options: Any) -> Backend:
        backend = await Backend(name, **options).start(self.addresses.take())
        self._stop.append(backend)
        return backend

    async def udp_backend(self, name: str) -> UdpBackend:
        backend = await UdpBackend(name).start(self.addresses.take())
        self._stop.append(backend)
        return backend

    def spec(self, *listeners: Listener, **fields: object) -> FrontendSpec:
        key = LoadBalancerKey("TCPLoadBalancer", "test", new_name())
        self._keys.append(key)
        merged = {"key": key, "group": "test", "address": self.addresses.take(), "health_check": None, **fields}
        merged = {"limits_connections": True, **merged}
        return FrontendSpec(listeners=listeners or (Listener(8080),), **merged)  # pyright: ignore[reportArgumentType]

    async def load_balancer(self, *targets: Target, **fields: object) -> FrontendSpec:
        """Serve targets on TCP 8080 and wait until that is acknowledged."""
        spec = self.spec(**fields)
        await self.serve(spec, *targets)
        return spec

    async def serve(self, spec: FrontendSpec, *targets: Target) -> None:
        await self.provider.ensure(spec)
        for listener in spec.listeners:
            await self.change(spec, Action.REGISTER, *targets, listener=listener.key, wait=False)
        await self.programmed(spec)

    async def change(
        self,
        spec: FrontendSpec,
        action: Action,
        *targets: Target,
        listener: ListenerKey | None = None,
        wait: bool = True,
    ) -> None:
        listener = listener or spec.listeners[0].key
        rows = [TargetChange(spec.key, listener, target, action, Reason.CHANGED) for target in targets]
        outcomes = await self.provider.apply(rows)
        assert {outcome.status for outcome in outcomes} <= {OutcomeStatus.DONE}, outcomes
        if wait:
            await self.programmed(spec)

    async def programmed(self, spec: FrontendSpec) -> None:
        await wait_programmed(self.provider, spec.key)

    async def close(self) -> None:
        for backend in self._stop:
            await backend.stop()
        for key in self._keys:
            await self.provider.delete(key)


async def health(world: World, key: LoadBalancerKey, reason: ConditionReason, *, healthy: int) -> Health:
    """Wait until this is seen; returns it."""
    seen = None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                observed = await world.provider.observe(key)
                seen = observed.health if observed is not None else None
                if seen is not None and (seen.reason, seen.healthy) == (reason, healthy):
                    return seen
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not {reason} with {healthy} healthy, but {seen}") from None


TCP = Protocol.TCP
UDP = Protocol.UDP
