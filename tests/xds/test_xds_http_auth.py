"""External services that decide about requests, at a real Envoy."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from aiohttp import web
from grpc import aio

from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.http import Backend, ExternalAuth, Filters
from fairlead.model.keys import TargetKey
from fairlead.providers.envoy.resources import delimited, number, text
from tests.xds.http_world import HttpWorld, config, get, prefix, route, to
from tests.xds.world import TIMEOUT_S

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]


class AuthService:
    """An HTTP service: ``/denied`` in a path is answered 401, ``/login`` with a redirect, ``/hangs`` not at all."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.answer: dict[str, str] = {"x-user": "ann"}
        self._runner: web.AppRunner | None = None

    async def start(self, address: str) -> Target:
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{tail:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, address, 0)
        await site.start()
        return Target(TargetKey(*site._server.sockets[0].getsockname()[:2]))  # type: ignore[union-attr]

    async def _serve(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append({"path": request.raw_path, "method": request.method, "headers": headers, "body": len(body)})
        if "/denied" in request.path:
            return web.Response(status=401, text="who are you?", headers={"www-authenticate": "Basic"})
        if "/login" in request.path:
            return web.Response(status=302, headers={"location": "https://login.example.com/"})
        if "/hangs" in request.path:
            await asyncio.Event().wait()
        if "/broken" in request.path:
            return web.Response(status=500)
        if "/accepted" in request.path:
            return web.Response(status=202)
        return web.Response(headers=self.answer)

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


@pytest_asyncio.fixture(loop_scope="session")
async def auth() -> AsyncIterator[AuthService]:
    service = AuthService()
    yield service
    await service.stop()


async def serve(http: HttpWorld, asked: ExternalAuth, *targets: Target, backend: Backend | None = None) -> FrontendSpec:
    """Serve a route whose paths but those below /open ask the backend auth, which has these targets."""
    echo = await http.echo("one")
    rules = (to("one", matches=(prefix("/open"),)), to("one", filters=Filters(auth=asked)))
    spec = http.spec(config(route("r", *rules), backends=[backend or Backend("auth")]))
    return await http.serve(spec, {"one": [echo.target], "auth": targets})


@pytest.mark.req("F-19")
async def test_requests_pass_or_get_the_answer_of_the_service(http: HttpWorld, auth: AuthService) -> None:
    asked = ExternalAuth("auth", path="/check", allowed_headers=("X-Team",), allowed_response_headers=("x-user",))
    spec = await serve(http, asked, await auth.start(http.world.addresses.take()))
    # Services that let some paths pass believe the two last ones, when they are shown.
    others = {"X-Other": "1", "X-Forwarded-Uri": "/open", "X-Original-URL": "/open"}
    forged = {"X-User": "root", "X-Team": "blue", "Authorization": "token", **others}
    passed = await get(spec, "/page?q=1", headers=forged)
    assert passed.status == 200
    assert passed.echo["headers"]["x-user"] == "ann"
    assert passed.echo["headers"]["authorization"] == "token"
    (question,) = auth.seen
    assert (question["path"], question["method"]) == ("/check/page?q=1", "GET")
    assert question["headers"]["x-team"] == "blue"
    assert question["headers"]["authorization"] == "token"
    assert question["headers"]["host"] == "shop.example.com"
    assert not {"x-user", "x-other", "x-forwarded-uri", "x-original-url"} & question["headers"].keys()
    denied = await get(spec, "/denied")
    assert (denied.status, denied.body, denied.headers["www-authenticate"]) == (401, "who are you?", "Basic")
    redirect = await get(spec, "/login")
    assert (redirect.status, redirect.headers["location"]) == (302, "https://login.example.com/")
    auth.answer = {}
    assert "x-user" not in (await get(spec, "/page", headers=forged)).echo["headers"], "a client cannot write it"
    asked_before = len(auth.seen)
    assert (await get(spec, "/open/page")).status == 200
    assert len(auth.seen) == asked_before


@pytest.mark.req("F-19")
async def test_all_headers_of_the_answer_pass_but_those_about_the_answer(http: HttpWorld, auth: AuthService) -> None:
    auth.answer = {"x-user": "ann", "remote-groups": "admins", "content-type": "text/strange"}
    spec = await serve(http, ExternalAuth("auth"), await auth.start(http.world.addresses.take()))
    headers = (await get(spec, "/page", method="POST", data=b"body")).echo["headers"]
    assert (headers["x-user"], headers["remote-groups"]) == ("ann", "admins")
    assert (headers["content-length"], headers["content-type"]) == ("4", "application/octet-stream")
    assert (auth.seen[0]["body"], auth.seen[0]["headers"].get("content-length", "0")) == (0, "0")


async def send(spec: FrontendSpec, *lines: str) -> bytes:
    """Return the answer to a request of these lines, which close the connection."""
    reader, writer = await asyncio.open_connection(spec.address, 80)
    writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
    answer = await asyncio.wait_for(reader.read(), TIMEOUT_S)
    writer.close()
    return answer


@pytest.mark.req("F-19")
async def test_the_backend_gets_no_header_that_the_service_was_not_shown(http: HttpWorld, auth: AuthService) -> None:
    asked = ExternalAuth("auth", allowed_headers=("X-Team", "Host"), allowed_response_headers=("x-user",))
    spec = await serve(http, asked, await auth.start(http.world.addresses.take()))
    lines = ("Host: shop.example.com", "X-Team: blue", "x-team: root", "X_User: root", "x-user: a", "X-USER: b")
    auth.answer = {}
    answer = await send(spec, "GET /page HTTP/1.1", *lines, "Connection: close")
    assert answer.startswith(b"HTTP/1.1 200")
    assert auth.seen[0]["headers"]["x-team"] == "blue"
    assert auth.seen[0]["headers"]["host"] == "shop.example.com"
    assert b'"x-team": "blue"' in answer
    assert b"root" not in answer
    assert b"x-user" not in answer


@pytest.mark.req("F-19")
@pytest.mark.parametrize(
    "lines",
    [
        ("GET /denied HTTP/1.0", "Host: shop.example.com"),
        ("GET /open/../denied HTTP/1.1", "Host: shop.example.com", "Connection: close"),
        ("GET /open/%2e%2e/denied HTTP/1.1", "Host: shop.example.com", "Connection: close"),
        ("GET //denied HTTP/1.1", "Host: shop.example.com", "Connection: close"),
        ("GET http://shop.example.com/denied HTTP/1.1", "Host: other", "Connection: close"),
        ("OPTIONS /denied HTTP/1.1", "Host: shop.example.com", "Origin: http://a", "Connection: close"),
        ("GET /denied HTTP/1.1", "Host: shop.example.com", "Connection: close, authorization", "Authorization: a"),
    ],
)
async def test_no_form_of_a_request_passes_by_the_service(
    http: HttpWorld, auth: AuthService, lines: tuple[str, ...]
) -> None:
    spec = await serve(http, ExternalAuth("auth"), await auth.start(http.world.addresses.take()))
    assert b" 401 " in (await send(spec, *lines)).partition(b"\r\n")[0]


@pytest.mark.req("F-19")
async def test_a_body_is_shown_up_to_a_size_and_larger_ones_are_refused(http: HttpWorld, auth: AuthService) -> None:
    mebibyte = 1024 * 1024
    spec = await serve(http, ExternalAuth("auth", max_size=mebibyte), await auth.start(http.world.addresses.take()))
    assert (await get(spec, "/page", method="POST", data=io.BytesIO(b"x" * mebibyte))).status == 200
    assert auth.seen[0]["body"] == mebibyte
    assert (await get(spec, "/page", method="POST", data=io.BytesIO(b"x" * (mebibyte + 1)))).status == 413
    assert (await get(spec, "/page")).status == 200


@pytest.mark.req("F-19")
async def test_a_service_that_is_down_closes_unless_fail_open(http: HttpWorld) -> None:
    dead = Target(TargetKey(http.world.addresses.take(), 9))
    closed = await serve(http, ExternalAuth("auth"), dead)
    assert (await get(closed, "/page")).status == 503
    assert (await get(closed, "/open/page")).status == 200
    opened = await serve(http, ExternalAuth("auth", fail_open=True), dead)
    passed = await get(opened, "/page")
    assert passed.status == 200
    assert not [name for name in passed.echo["headers"] if "auth" in name], "the backend is not shown how it failed"
    without_targets = await serve(http, ExternalAuth("auth"))
    assert (await get(without_targets, "/page")).status == 503
    unresolved = await serve(http, ExternalAuth("", fail_open=True))
    assert (await get(unresolved, "/page")).status == 500


@pytest.mark.req("F-19")
@pytest.mark.parametrize("path", ["/hangs", "/broken", "/accepted"])
async def test_a_service_without_a_decision_closes(http: HttpWorld, auth: AuthService, path: str) -> None:
    spec = await serve(http, ExternalAuth("auth"), await auth.start(http.world.addresses.take()))
    assert (await get(spec, path)).status == (202 if path == "/accepted" else 503)


async def _check(request: bytes, _context: object) -> bytes:
    """Answer an authorization request of Envoy: 403 below /denied, else with a header for the backend."""
    if b"/denied" in request:
        # CheckResponse: status (google.rpc.Status) 1, denied_response 2 {status 1 {code 1}, body 3}
        denied = delimited(1, number(1, 403)) + text(3, "no")
        return delimited(1, number(1, 7)) + delimited(2, denied)
    # ok_response 3 {headers 2 (HeaderValueOption) {header 1 {key 1, value 2}}}
    header = delimited(1, text(1, "x-user") + text(2, "bob"))
    return delimited(1, b"") + delimited(3, delimited(2, header))


@pytest.mark.req("F-19")
async def test_a_grpc_service_decides(http: HttpWorld) -> None:
    server = aio.server()
    handler = grpc.unary_unary_rpc_method_handler(_check)  # type: ignore[arg-type]
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("envoy.service.auth.v3.Authorization", {"Check": handler}),)
    )
    address = http.world.addresses.take()
    port = server.add_insecure_port(f"{address}:0")
    await server.start()
    asked, backend = ExternalAuth("auth", protocol="GRPC"), Backend("auth", protocol="HTTP2")
    spec = await serve(http, asked, Target(TargetKey(address, port)), backend=backend)
    passed = await get(spec, "/page", headers={"X-User": "root"})
    assert (passed.status, passed.echo["headers"]["x-user"]) == (200, "bob")
    denied = await get(spec, "/denied")
    assert (denied.status, denied.body) == (403, "no")
    await server.stop(grace=0)
    assert (await get(spec, "/page")).status == 503
