"""Measures how exactly Envoy divides connections among members, and what clients see when a member refuses them.

In: the Envoy provider with one real Envoy, and three servers in this process. Out: figures. Each connection carries one
HTTP request, or only the name that its server writes first: for the load balancer both are connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bench.figures import Figure
from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, HealthCheck, Listener, Locality, Shares, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.envoy.provider import EnvoyProvider, create

WEIGHTS = {"west": 60, "east": 30, "north": 10}
CONNECTIONS = 20_000
IN_FLIGHT = 20
ADDRESS, PORT, BACKEND_PORT = "127.99.200.1", 8080, 8081
_KEY = LoadBalancerKey("GlobalService", "bench", "web")
_REQUEST = b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n"


async def measured() -> AsyncIterator[Figure]:
    """Measure 60/30/10 with HTTP and with raw TCP, then a member that refuses connections."""
    for http in (True, False):
        async with _shared(http=http) as servers:
            answered = await _answers(CONNECTIONS, _REQUEST if http else b"")
            worst = max(abs(100 * answered[name] / CONNECTIONS - weight) for name, weight in WEIGHTS.items())
            protocol = "HTTP" if http else "TCP"
            yield Figure(
                name=f"60/30/10 over {CONNECTIONS:,} connections of {protocol}: largest error of a share",
                value=worst,
                unit="%",
                limit=1.0,
            )
            if http:
                continue
            servers["west"].close()
            began_s, failed, last_s = time.monotonic(), 0, 0.0
            while time.monotonic() - began_s < 4.0:
                wrong = IN_FLIGHT - sum((await _answers(IN_FLIGHT, b"")).values())
                failed += wrong
                last_s = time.monotonic() - began_s if wrong else last_s
            yield Figure(name="a member refuses: connections that fail", value=failed, unit="", limit=IN_FLIGHT)
            yield Figure(
                name="a member refuses: all new connections elsewhere after", value=last_s, unit="s", limit=1.0
            )


@asynccontextmanager
async def _shared(*, http: bool) -> AsyncGenerator[dict[str, asyncio.Server]]:
    """Run Envoy with a load balancer of three members, each with one backend."""
    servers = {
        name: await asyncio.start_server(_serving(name, http=http), f"127.99.201.{number}", BACKEND_PORT)
        for number, name in enumerate(WEIGHTS, 1)
    }
    with tempfile.TemporaryDirectory(prefix="fl-bench-") as directory:
        provider = create(data_dir=Path(directory), concurrency=1)
        await provider.start()
        provider.publish()
        try:
            await _serve(provider, servers)
            yield servers
        finally:
            await provider.stop()
            for server in servers.values():
                server.close()


async def _serve(provider: EnvoyProvider, servers: dict[str, asyncio.Server]) -> None:
    shares = Shares(tuple(Locality(name, WEIGHTS[name]) for name in sorted(WEIGHTS)))
    spec = FrontendSpec(_KEY, "bench", (Listener(PORT),), ADDRESS, health_check=HealthCheck(), shares=shares)
    await provider.ensure(spec)
    listener = spec.listeners[0].key
    await provider.apply(
        [
            TargetChange(
                _KEY,
                listener,
                Target(TargetKey(*server.sockets[0].getsockname()[:2]), locality=name),
                Action.REGISTER,
                Reason.NEW,
            )
            for name, server in servers.items()
        ]
    )
    async with asyncio.timeout(60):
        while True:
            observed = await provider.observe(_KEY)
            if observed is not None and observed.programmed and observed.health is not None and observed.health.serving:
                return
            await asyncio.sleep(0.1)


def _serving(name: str, *, http: bool) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            if http:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(name))
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


async def _ask(request: bytes) -> str:
    try:
        reader, writer = await asyncio.open_connection(ADDRESS, PORT)
        if request:
            writer.write(request)
        answer = await reader.read()
        writer.close()
    except ConnectionError:
        return ""
    return answer.rpartition(b"\r\n\r\n")[2].decode()
