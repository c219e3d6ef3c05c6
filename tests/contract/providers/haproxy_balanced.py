"""A real HAProxy before web servers, with our provider on its backend."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.haproxy.provider import HAProxyProvider
from fairlead.providers.haproxy.snapshot import server_name, untagged
from fairlead.runtime.telemetry import stop_listening
from tests.contract.providers.provider_processes import HAProxy

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")


HTTP = Listener(80).key


PATIENCE_S = 180.0


class Web:
    """An HTTP server that says its name; ``/hang`` is answered when the test says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hanging = asyncio.Event()
        self.hung = asyncio.Event()
        self.answered = 0
        self.heads: list[bytes] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.key = TargetKey("127.0.0.1", 0)

    async def start(self) -> Web:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.key = TargetKey("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                if b"/hang" in head:
                    self.hung.set()
                    await self.hanging.wait()
                body = self.name.encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
                self.answered += 1
        self._writers.discard(writer)
        writer.close()

    async def stop(self) -> None:
        assert self._server is not None
        await stop_listening(self._server)
        for writer in list(self._writers):
            writer.close()


class Balanced:
    """A HAProxy with one frontend, our provider on its backend, and the core's part in the fewest words."""

    def __init__(self, haproxy: HAProxy, port: int) -> None:
        self.haproxy = haproxy
        self.port = port
        self.provider = HAProxyProvider(look_every_s=0.05)
        parameters = {"socket": str(haproxy.socket), "backend": "front", "drainTimeout": "1h"}
        self.spec = FrontendSpec(KEY, "group", (Listener(80),), parameters=parameters)
        self.noticed = asyncio.Event()
        self.webs: list[Web] = []

    async def start(self) -> None:
        self.provider.on_change(lambda _key: self.noticed.set())
        await self.provider.ensure(self.spec)
        await self.provider.start()

    async def close(self) -> None:
        await self.provider.close()
        for web in self.webs:
            await web.stop()

    async def web(self, name: str) -> Web:
        web = await Web(name).start()
        self.webs.append(web)
        return web

    async def apply(self, action: Action, *webs: Web, reason: Reason = Reason.NEW, weight: int = 1) -> list[Outcome]:
        draining = action in (Action.DRAIN, Action.DEREGISTER)
        return list(
            await self.provider.apply(
                [TargetChange(KEY, HTTP, Target(web.key, weight, draining), action, reason) for web in webs]
            )
        )

    async def must(self, action: Action, *webs: Web) -> None:
        for outcome in await self.apply(action, *webs):
            assert outcome.status is OutcomeStatus.DONE, outcome.message

    async def get(self, path: str = "/") -> str:
        """Return the body of one request on a connection of its own; empty when it failed."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = (await asyncio.wait_for(reader.read(), PATIENCE_S)).decode()
            writer.close()
        except OSError:
            return ""
        head, _, body = answer.partition("\r\n\r\n")
        return body if head.startswith("HTTP/1.1 200") else ""

    async def until(self, condition: Callable[[], bool]) -> None:
        """Poll until it is so: HAProxy does not notify of its counters."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.005)

    async def removed(self, web: Web, reason: Reason) -> None:
        """Deregister as the worker would: again as long as it is RUNNING."""
        async with asyncio.timeout(PATIENCE_S):
            while (outcome := (await self.apply(Action.DEREGISTER, web, reason=reason))[0]) != DONE:
                assert outcome.status is OutcomeStatus.RUNNING, outcome.message
                await asyncio.sleep(min(0.01, outcome.retry_after_s))

    def name(self, web: Web) -> str:
        first = server_name("", KEY, HTTP, web.key)
        return next((name for name in self.haproxy.servers("front") if untagged(name) == first), first)

    def theirs(self) -> dict[str, list[str]]:
        return {name: at for name, at in self.haproxy.servers("front").items() if not name.startswith("fl-")}
