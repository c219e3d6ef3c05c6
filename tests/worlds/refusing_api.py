"""A proxy in front of an API server that refuses some requests.

In: the URL of a server, and rules. Out: another URL. A watch that a new rule refuses is cut.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import aiohttp
from aiohttp import web


class Refusal(NamedTuple):
    """An answer instead of the server's; ``body`` is a Status, or text that is not JSON."""

    code: int
    body: object


def status(code: int, reason: str, message: str, **details: str) -> Refusal:
    """Return the Status that a Kubernetes API server answers with."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    return Refusal(code, {**body, "details": details, "code": code})


#: How lists and watches may be refused.
REFUSED_READS = {
    "403": status(403, "Forbidden", 'User "fairlead" cannot list resource'),
    "404": Refusal(404, "404 page not found"),
    "404 status": status(404, "NotFound", "the server could not find the requested resource"),
    "410": status(410, "Expired", "The provided continue parameter is too old"),
    "500": status(500, "InternalError", "etcdserver: no leader"),
    "a sign-in page": Refusal(200, "<html>Sign in</html>"),
}

Rule = Callable[[str, str], Refusal | None]


class RefusingApi:
    """The proxy; a rule gets the method and the path of a request."""

    def __init__(self, url: str) -> None:
        self.url = ""
        self._server_url = url
        self._rule: Rule = lambda _method, _path: None
        self._watches: dict[asyncio.Task[object], tuple[str, str]] = {}
        self.refused: list[str] = []

    def refuse(self, rule: Rule) -> None:
        """Answer what ``rule`` says; cut the watches that it refuses."""
        self._rule = rule
        for task, request in list(self._watches.items()):
            if rule(*request):
                task.cancel()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Forward one request, or refuse it."""
        refusal = self._rule(request.method, request.path)
        if refusal is not None:
            self.refused.append(request.path)
            text = refusal.body if isinstance(refusal.body, str) else json.dumps(refusal.body)
            return web.Response(status=refusal.code, text=text, content_type="application/json")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        task = asyncio.current_task()
        assert task is not None
        self._watches[task] = (request.method, request.path)
        try:
            async with self._session.request(
                request.method,
                f"{self._server_url}{request.raw_path}",
                headers=headers,
                data=await request.read() or None,
            ) as answer:
                reply = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
                for name in ("Date", "Retry-After", "Warning"):
                    if value := answer.headers.get(name):
                        reply.headers[name] = value
                await reply.prepare(request)
                async for chunk in answer.content.iter_any():
                    await reply.write(chunk)
                return reply
        finally:
            del self._watches[task]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[RefusingApi]:
        """Listen on loopback."""
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self._session:
            try:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield self
            finally:
                with suppress(asyncio.CancelledError):
                    await runner.cleanup()


_HOP = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})
