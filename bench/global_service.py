"""Measures how exactly Envoy divides connections and requests among members, and what clients see when one refuses.

In: the Envoy provider with one real Envoy, and three servers in this process. Out: figures, for a load balancer of
connections and for a route.
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
IN_FLIGHT = 20
ADDRESS, PORT, BACKEND_PORT = "127.99.200.1", 8080, 8081
_KEY = LoadBalancerKey("GlobalService", "bench", "web")
_REQUEST = b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n"


async def measured() -> AsyncIterator[Figure]:
    """Measure 60/30/10, then a member that refuses connections, with requests of a route and with connections."""
    for http in (True, False):
        async with _shared(http=http) as servers:
            request = _REQUEST if http else b""
            answered = await _answers(CONNECTIONS, request)
            worst = max(abs(100 * answered[name] / CONNECTIONS - weight) for name, weight in WEIGHTS.items())
            what = "requests of HTTP" if http else "connections of TCP"
            name = f"60/30/10 over {CONNECTIONS:,} {what}: largest error of a share"
            yield Figure(name=name, value=worst, unit="%", limit=1.0)
            servers["west"].close()
            began_s, failed, last_s = time.monotonic(), 0, 0.0
            while time.monotonic() - began_s < 4.0:
                wrong = IN_FLIGHT - sum((await _answers(IN_FLIGHT, request)).values())
                failed += wrong
                last_s = time.monotonic() - began_s if wrong else last_s
            refused = f"a member refuses, {'HTTP' if http else 'TCP'}"
            yield Figure(name=f"{refused}: {what.partition(' ')[0]} that fail", value=failed, unit="", limit=IN_FLIGHT)
            yield Figure(name=f"{refused}: all new ones elsewhere after", value=last_s, unit="s", limit=1.0)


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
            await _serve(provider, servers, http=http)
            yield servers
        finally:
            await provider.stop()
            for server in servers.values():
                server.close()


async def _serve(provider: EnvoyProvider, servers: dict[str, asyncio.Server], *, http: bool) -> None:
    shares = Shares(tuple(Locality(name, WEIGHTS[name]) for name in sorted(WEIGHTS)))
    spec = FrontendSpec(_KEY, "bench", (Listener(PORT),), ADDRESS, health_check=HealthCheck())
    if http:
        route = Route("web", "HTTP", (Attachment("http"),), (Rule(backends=(BackendRef("web"),)),))
        l7 = L7Config((L7Listener("http", PORT),), (route,), (Backend("web"),))
        spec = msgspec.structs.replace(spec, l7=l7, backend_shares={"web": shares})
    else:
        spec = msgspec.structs.replace(spec, shares=shares)
    await provider.ensure(spec)
    listener = backend_key("web") if http else spec.listeners[0].key
    targets = [
        Target(TargetKey(*server.sockets[0].getsockname()[:2]), locality=name) for name, server in servers.items()
    ]
    changes = [TargetChange(_KEY, listener, target, Action.REGISTER, Reason.NEW) for target in targets]
    await provider.apply(changes)
    async with asyncio.timeout(60):
        while True:
            observed = await provider.observe(_KEY)
            if observed is not None and observed.programmed and observed.health is not None and observed.health.serving:
                return
            await asyncio.sleep(0.1)


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
