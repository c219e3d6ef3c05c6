"""A driver over real HTTP that answers as a test has scripted it, and records its calls."""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

from aiohttp import web

from fairlead.model.change import Action, BackendFacts, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Owner, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.webhook.provider import WebhookProvider

Answer = web.Response | Mapping[str, Any]
Reply = Callable[[dict[str, Any]], Answer | Awaitable[Answer]]
SUCC = {"status": "Succ"}
KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")


class ScriptedDriver:
    """``replies`` of a hook are used up one by one; the last one stays."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[Mapping[str, str]] = []
        self.replies: dict[str, list[Reply]] = defaultdict(list)
        self.at_once = 0
        self.most_at_once = 0
        self.records_at_once: set[str] = set()
        self.overlaps = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, tls: ssl.SSLContext | None = None, *, port: int = 0) -> Self:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=tls)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/prefix"
        return self

    async def stop(self) -> None:
        if self._runner is not None:
            self.gate.set()
            await self._runner.cleanup()

    def on(self, hook: str, *replies: Reply | Mapping[str, Any]) -> None:
        self.replies[hook] = [reply if callable(reply) else _same(reply) for reply in replies]

    def asked(self, hook: str) -> list[dict[str, Any]]:
        return [body for name, body in self.calls if name == hook]

    async def _answer(self, request: web.Request) -> web.Response:
        assert request.method == "POST"
        assert request.path.startswith("/prefix/")
        hook = request.path.removeprefix("/prefix/")
        body = await request.json()
        record = body.get("recordID", "")
        self.overlaps += record in self.records_at_once
        self.calls.append((hook, body))
        self.headers.append(dict(request.headers))
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        self.records_at_once.add(record)
        try:
            await self.gate.wait()
            replies = self.replies[hook] or [_same(SUCC)]
            reply = replies.pop(0) if len(replies) > 1 else replies[0]
            answer = reply(body)
            if asyncio.iscoroutine(answer):
                answer = await answer
            return answer if isinstance(answer, web.Response) else web.json_response(answer)
        finally:
            self.at_once -= 1
            self.records_at_once.discard(record)


def _same(answer: Mapping[str, Any]) -> Reply:
    return lambda _body: answer


def spec(url: str, attributes: Mapping[str, str] | None = None, /, **parameters: str) -> FrontendSpec:
    return FrontendSpec(
        KEY,
        "group",
        (Listener(80),),
        parameters={"url": url, "lbID": "lb-1", **parameters},
        attributes=attributes or {},
        owner=Owner(uid="uid-lb"),
    )


POD = {"podBackend": {"pod": {"metadata": {"name": "web-1"}}, "port": {"portNumber": 8080}}}


def row(
    action: Action = Action.REGISTER,
    *,
    number: int = 1,
    facts: BackendFacts | None = None,
    weight: int = 1,
    draining: bool = False,
) -> TargetChange:
    target = Target(TargetKey(f"10.0.0.{number}", 8080), weight, draining)
    return TargetChange(KEY, Listener(80).key, target, action, Reason.NEW, facts=facts)


async def ready(webhook: WebhookProvider, scripted: ScriptedDriver, **parameters: str) -> None:
    """Have the driver create the load balancer ``KEY`` with the lbInfo ``{"id": "lb-1"}``."""
    scripted.on("createLoadBalancer", SUCC | {"lbInfo": {"id": "lb-1"}})
    await webhook.ensure(spec(scripted.url, {"bandwidth": "10"}, **parameters))


def http_status(code: int, **headers: str) -> Reply:
    """Return a reply with this status and a body that must not be quoted."""
    text = '{"status":"Succ","msg":"geheim"}'
    return lambda _body: web.Response(status=code, headers=headers, text=text)
