"""Measures how exactly Envoy divides connections and requests among members, and what clients see when one fails.

In: the Envoy provider with one real Envoy, and three servers in this process. Out: figures, for a load balancer of
connections and for a route.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.figures import Figure
from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Locality, Shares, Target
from fairlead.model.health import HealthCheck
from fairlead.model.http import Attachment, Backend, BackendRef, L7Config, L7Listener, Route, Rule
from fairlead.model.keys import LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.envoy.provider import EnvoyProvider, create

WEIGHTS = {"west": 60, "east": 30, "north": 10}
CONNECTIONS = 20_000
SHIFTED = {"west": 50, "east": 40, "north": 10}
IN_FLIGHT = 20
_CHECK = HealthCheck()
ADDRESS, PORT, BACKEND_PORT = "127.99.200.1", 8080, 8081
_KEY = LoadBalancerKey("GlobalService", "bench", "web")
_REQUEST = b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n"


async def measured() -> AsyncIterator[Figure]:
    """Measure 60/30/10, a shift of 10 %, and a member that refuses or is dark, with requests and with connections."""
    for http in (True, False):
        request, what = (_REQUEST, "requests of HTTP") if http else (b"", "connections of TCP")
        async with _shared(http=http) as members:
            servers = members.servers
            name = f"60/30/10 over {CONNECTIONS:,} {what}: largest error of a share"
            yield Figure(name=name, value=await _worst(WEIGHTS, request), unit="%", limit=1.0)
            held = [await asyncio.open_connection(ADDRESS, PORT) for _ in range(IN_FLIGHT if http else 0)]
            await members.weigh(SHIFTED)
            name = f"50/40/10 after a shift of 10 %, {CONNECTIONS:,} {what}: largest error of a share"
            yield Figure(name=name, value=await _worst(SHIFTED, request), unit="%", limit=1.0)
            if held:
                cut = len(held) - sum([bool(await _answer(*connection, request)) for connection in held])
                yield Figure(name="the same: connections of clients that were cut", value=cut, unit="", limit=0)
            servers["west"].close()
            began_s, failed, last_s = time.monotonic(), 0, 0.0
            while time.monotonic() - began_s < 4.0:
                wrong = IN_FLIGHT - sum((await _answers(IN_FLIGHT, request)).values())
                failed += wrong
                last_s = time.monotonic() - began_s if wrong else last_s
            refused = f"a member refuses, {'HTTP' if http else 'TCP'}"
            yield Figure(name=f"{refused}: {what.partition(' ')[0]} that fail", value=failed, unit="", limit=IN_FLIGHT)
            yield Figure(name=f"{refused}: all new ones elsewhere after", value=last_s, unit="s", limit=1.0)
            await asyncio.sleep(2 * _CHECK.interval_s)
            async with _dark(servers["north"]):
                began_s, last_s, wait_s = time.monotonic(), 0.0, _CHECK.interval_s * _CHECK.unhealthy_threshold + 1
                while (now_s := time.monotonic() - began_s) < 2 * wait_s:
                    try:
                        async with asyncio.timeout(0.5):
                            await _answers(IN_FLIGHT, request)
                    except TimeoutError:  # the dark member got one of them
                        last_s = now_s
            name = f"the network of a member is dark, {what.rpartition(' ')[2]}: all new ones elsewhere after"
            yield Figure(name=name, value=last_s, unit="s", limit=wait_s)


class _Members(NamedTuple):
    """A load balancer of three members, each with one backend."""

    provider: EnvoyProvider
    servers: dict[str, asyncio.Server]
    http: bool

    async def weigh(self, weights: Mapping[str, int]) -> None:
        """Have Envoy divide by these weights."""
        shares = Shares(tuple(Locality(name, weights[name]) for name in sorted(weights)))
        spec = FrontendSpec(_KEY, "bench", (Listener(PORT),), ADDRESS, health_check=_CHECK)
        if self.http:
            route = Route("web", "HTTP", (Attachment("http"),), (Rule(backends=(BackendRef("web"),)),))
            l7 = L7Config((L7Listener("http", PORT),), (route,), (Backend("web"),))
            spec = msgspec.structs.replace(spec, l7=l7, backend_shares={"web": shares})
        else:
            spec = msgspec.structs.replace(spec, shares=shares)
        await self.provider.ensure(spec)
        listener = backend_key("web") if self.http else spec.listeners[0].key
        targets = [
            Target(TargetKey(*server.sockets[0].getsockname()[:2]), locality=name)
            for name, server in self.servers.items()
        ]
        changes = [TargetChange(_KEY, listener, target, Action.REGISTER, Reason.NEW) for target in targets]
        await self.provider.apply(changes)
        async with asyncio.timeout(60):
            while True:
                observed = await self.provider.observe(_KEY)
                health = observed.health if observed is not None and observed.programmed else None
                if health is not None and health.healthy == len(self.servers):
                    return
                await asyncio.sleep(0.1)


@asynccontextmanager
async def _shared(*, http: bool) -> AsyncGenerator[_Members]:
    """Run Envoy with the members."""
    servers = {
        name: await asyncio.start_server(_serving(name, http=http), f"127.99.201.{number}", BACKEND_PORT)
        for number, name in enumerate(WEIGHTS, 1)
    }
    with tempfile.TemporaryDirectory(prefix="fl-bench-") as directory:
        provider = create(data_dir=Path(directory), concurrency=1)
        await provider.start()
        provider.publish()
        try:
            members = _Members(provider, servers, http)
            await members.weigh(WEIGHTS)
            yield members
        finally:
            await provider.stop()
            for server in servers.values():
                server.close()


@asynccontextmanager
async def _dark(server: asyncio.Server) -> AsyncGenerator[None]:
    """Have a server's address take no connection and refuse none: the kernel drops what a full backlog cannot take."""
    address = server.sockets[0].getsockname()
    server.close()
    with contextlib.ExitStack() as stack:
        deaf = stack.enter_context(socket.socket())
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        deaf.bind(address)
        deaf.listen(0)
        for _ in range(2):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(address)
        yield


def _serving(name: str, *, http: bool) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            # Envoy keeps connections for further requests.
            while http and await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(name), name.encode()))
            writer.write(name.encode())
            await writer.drain()
        writer.close()

    return serve


async def _answers(count: int, request: bytes) -> Counter[str]:
    """Return how many of ``count`` connections each member answered; those that none answers are not counted."""
    answered: Counter[str] = Counter()
    for _ in range(count // IN_FLIGHT):
        answered.update(filter(None, await asyncio.gather(*(_ask(request) for _ in range(IN_FLIGHT)))))
    return answered


async def _worst(weights: Mapping[str, int], request: bytes) -> float:
    """Return by how many percent the share of a member differs from its weight, the largest of all."""
    answered = await _answers(CONNECTIONS, request)
    return max(abs(100 * answered[name] / CONNECTIONS - weight) for name, weight in weights.items())


async def _ask(request: bytes) -> str:
    try:
        return await _answer(*await asyncio.open_connection(ADDRESS, PORT), request)
    except ConnectionError:
        return ""


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> str:
    try:
        if request:
            writer.write(request)
        answer = await reader.read()
    except ConnectionError:
        return ""
    finally:
        writer.close()
    return answer.rpartition(b"\r\n\r\n")[2].decode()
