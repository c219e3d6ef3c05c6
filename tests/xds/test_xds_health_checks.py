"""Health checks that users set, as a real Envoy makes them: targets accept connections, and say that they are ill."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
import pytest_asyncio
from aiohttp import web
from grpc import aio

from fairlead.model.condition import ConditionReason
from fairlead.model.desired import ProxyProtocol
from fairlead.model.health import HealthCheck, HealthCheckSettings, OutlierDetection, check_with
from fairlead.model.http import Backend, BackendTls
from fairlead_demo.worlds.processes import wait_until
from tests.xds.http_world import Authority, EchoBackend, HttpWorld, config, get, route, server_context, to, with_config
from tests.xds.world import World, ask, health

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

CHECK = HealthCheck(interval_s=0.05, timeout_s=5, unhealthy_threshold=2, healthy_threshold=1)


class HttpHealth:
    """Answers 204 on /healthz while it is well, then 500; it never accepts another path."""

    def __init__(self, context: Any = None) -> None:
        self.well = True
        self.hosts: set[str] = set()
        self._context = context
        self._runner: web.AppRunner | None = None

    async def start(self, address: str, port: int) -> int:
        app = web.Application()
        app.router.add_get("/healthz", self._serve)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, address, port, ssl_context=self._context)
        await site.start()
        return site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]

    async def _serve(self, request: web.Request) -> web.Response:
        self.hosts.add(request.headers["Host"])
        return web.Response(status=204 if self.well else 500)

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


class GrpcHealth(grpc.GenericRpcHandler):
    """grpc.health.v1.Health: SERVING for the service shop.Cart while it is well, then NOT_SERVING."""

    def __init__(self) -> None:
        self.well = True
        self._server: aio.Server | None = None

    async def start(self, address: str, port: int) -> int:
        self._server = aio.server()
        self._server.add_generic_rpc_handlers((self,))
        port = self._server.add_insecure_port(f"{address}:{port}")
        await self._server.start()
        return port

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=0)

    def service(self, handler_call_details: Any) -> Any:
        if handler_call_details.method != "/grpc.health.v1.Health/Check":
            return None
        return grpc.unary_unary_rpc_method_handler(self._check)  # type: ignore[arg-type]

    async def _check(self, message: bytes, context: Any) -> bytes:
        if message != b"\x0a\x09shop.Cart":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return b"\x08\x01" if self.well else b"\x08\x02"


@pytest_asyncio.fixture(loop_scope="session")
async def endpoints(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Any]]:
    """Two health endpoints of the kind that a test names."""
    made: list[Any] = []
    for _ in range(2):
        if request.param == "grpc":
            made.append(GrpcHealth())
        else:
            tls = server_context(Authority().issue("x", "x.example"), tmp_path) if request.param == "https" else None
            made.append(HttpHealth(tls))
    yield made
    for endpoint in made:
        await endpoint.stop()


HTTP = HealthCheckSettings(path="/healthz", host="shop.example")
SETTINGS = {
    "http": HTTP,
    "https": msgspec.structs.replace(HTTP, tls=True),
    "grpc": HealthCheckSettings(service="shop.Cart"),
}


@pytest.mark.req("F-11")
@pytest.mark.parametrize("endpoints", SETTINGS, indirect=True)
@pytest.mark.parametrize("header", [ProxyProtocol.NONE, ProxyProtocol.V2])
async def test_target_that_says_it_is_ill_gets_no_connections(
    world: World, endpoints: list[Any], header: ProxyProtocol, request: pytest.FixtureRequest
) -> None:
    kind = request.node.callspec.params["endpoints"]
    length = 28 if header is ProxyProtocol.V2 else 0
    backends = [await world.backend(name, header=length) for name in ("ill", "well")]
    port = 0
    for endpoint, backend in zip(endpoints, backends, strict=True):
        port = await endpoint.start(backend.address, port)
    check = check_with(CHECK, msgspec.structs.replace(SETTINGS[kind], port=port))
    spec = await world.load_balancer(
        *(backend.target for backend in backends), health_check=check, proxy_protocol=header
    )
    await health(world, spec.key, ConditionReason.SERVING, healthy=2)
    endpoints[0].well = False
    await health(world, spec.key, ConditionReason.SERVING, healthy=1)

    async def avoided() -> bool:
        return {await ask(spec.address, 8080) for _ in range(6)} == {"well"}

    # The cluster of connections has checks of its own.
    await wait_until(avoided, "the target that is well gets all connections")
    endpoints[0].well = True
    await health(world, spec.key, ConditionReason.SERVING, healthy=2)
    if kind != "grpc":
        assert endpoints[0].hosts == {"shop.example"}


class IllBackend(EchoBackend):
    """A backend of requests that has its own /healthz: 503 once it is ill; all else it answers as before."""

    well = True

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/healthz":
            return web.Response(status=200 if self.well else 503)
        return await super()._serve(request)


@pytest.mark.req("F-11")
@pytest.mark.parametrize("tls", [False, True])
async def test_backend_that_says_it_is_ill_gets_no_requests(http: HttpWorld, tmp_path: Path, tls: bool) -> None:
    authority = Authority()
    context = server_context(authority.issue("x", "x.example"), tmp_path) if tls else None
    backends = [await IllBackend(name, context=context).start(http.world.addresses.take()) for name in ("ill", "well")]
    verified = BackendTls(server_name="x.example", ca_bundle=authority.pem) if tls else None
    shop = Backend("shop", tls=verified, health_check=HealthCheckSettings(path="/healthz"))
    spec = http.spec(config(route("r", to("shop")), backends=[shop]), health_check=CHECK)
    await http.serve(spec, {"shop": [backend.target for backend in backends]})
    await health(http.world, spec.key, ConditionReason.SERVING, healthy=2)
    assert isinstance(backends[0], IllBackend)
    backends[0].well = False
    await health(http.world, spec.key, ConditionReason.SERVING, healthy=1)

    async def avoided() -> bool:
        return {(await get(spec)).backend for _ in range(4)} == {"well"}

    await wait_until(avoided, "the backend that is well gets all requests")
    # Without a check of its own it is checked by connecting again.
    plain = msgspec.structs.replace(shop, health_check=None)
    await http.provider.ensure(with_config(spec, config(route("r", to("shop")), backends=[plain])))
    await health(http.world, spec.key, ConditionReason.SERVING, healthy=2)
    for backend in backends:
        await backend.stop()


@pytest.mark.req("F-10", "F-11")
async def test_an_ill_backend_that_demands_a_client_certificate_gets_no_requests(
    http: HttpWorld, tmp_path: Path
) -> None:
    """Reported checks have no client certificate: they show that both accept connections, and not which one is ill."""
    authority = Authority()
    context = server_context(authority.issue("x", "x.example"), tmp_path, clients=authority)
    context.verify_mode = ssl.CERT_REQUIRED
    backends = [await IllBackend(name, context=context).start(http.world.addresses.take()) for name in ("ill", "well")]
    tls = BackendTls(server_name="x.example", ca_bundle=authority.pem, client_certificate="client")
    shop = Backend("shop", tls=tls, health_check=HealthCheckSettings(path="/healthz"))
    routed = config(route("r", to("shop")), backends=[shop], certificates=[authority.issue("client")])
    spec = http.spec(routed, health_check=CHECK)
    await http.serve(spec, {"shop": [backend.target for backend in backends]})
    await health(http.world, spec.key, ConditionReason.SERVING, healthy=2)
    assert isinstance(backends[0], IllBackend)
    backends[0].well = False

    async def avoided() -> bool:
        return {(await get(spec)).backend for _ in range(4)} == {"well"}

    await wait_until(avoided, "the backend that is well gets all requests")
    for backend in backends:
        await backend.stop()


class FailingBackend(EchoBackend):
    """A backend whose every answer is 500: it passes checks of connections."""

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.seen.append({"path": request.path})
        return web.Response(status=500)


@pytest.mark.req("F-13")
async def test_backend_that_answers_500_is_left_out_for_a_time(http: HttpWorld) -> None:
    failing = await FailingBackend("failing").start(http.world.addresses.take())
    well = await http.echo("well")
    outlier = OutlierDetection(consecutive_5xx=3, ejection_time="1h", max_ejection_percent=50)
    shop = Backend("shop", outlier_detection=outlier)
    spec = http.spec(config(route("r", to("shop")), backends=[shop]), health_check=CHECK)
    await http.serve(spec, {"shop": [failing.target, well.target]})
    await health(http.world, spec.key, ConditionReason.SERVING, healthy=2)
    answers = [(await get(spec)).status for _ in range(20)]
    # Envoy's main thread leaves it out, a moment after the third answer.
    assert 3 <= answers.count(500) == len(failing.seen) <= 5, answers
    assert set(answers[-10:]) == {200}
    await failing.stop()
