"""Limits of requests and connections, and HTTP/3, at a real Envoy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead.errors import Terminal
from fairlead.model.desired import FrontendSpec
from fairlead.model.http import L7Listener
from fairlead.providers.envoy.envoy_process import find_binary
from fairlead.providers.envoy.http.settings import CONNECTIONS, HTTP3, REQUESTS_PER_SECOND
from fairlead.testing.worlds.loopback import free_port
from tests.xds.http_world import Authority, HttpWorld, config, get, prefix, route, to

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

HTTPS = L7Listener("https", 443, "HTTPS", "a.example.com", certificates=("cert",))
_PATIENCE_S = 60


@pytest.mark.req("K-41")
async def test_requests_above_a_rules_limit_are_answered_429_and_other_rules_are_free(http: HttpWorld) -> None:
    backend = await http.echo("one")
    rules = (to("one", matches=(prefix("/few"),), requests_per_second=2), to("one", matches=(prefix("/"),)))
    spec = await http.start(config(route("r", *rules)), backend)
    few = [(await get(spec, "/few")).status for _ in range(60)]
    assert few[:2] == [200, 200]
    assert 429 in few
    assert {(await get(spec, "/many")).status for _ in range(20)} == {200}


@pytest.mark.req("K-41")
async def test_a_class_limits_the_requests_and_connections_of_a_listener(http: HttpWorld) -> None:
    backend = await http.echo("one")
    limited = await http.start(config(route("r", to("one"))), backend, parameters={REQUESTS_PER_SECOND: "1"})
    assert 429 in [(await get(limited)).status for _ in range(40)]
    narrow = await http.start(config(route("r", to("one"))), backend, parameters={CONNECTIONS: "2"})
    held = [await asyncio.open_connection(narrow.address, 80) for _ in range(2)]
    for reader, writer in held:
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"200"
    reader, writer = await asyncio.open_connection(narrow.address, 80)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            assert await reader.read() == b""
    except ConnectionResetError:
        pass
    for _, each in (*held, (reader, writer)):
        each.close()


@pytest.mark.req("K-41")
async def test_https_listeners_are_served_over_http3_as_well(http: HttpWorld, tmp_path: Path) -> None:
    authority = Authority()
    certificate = authority.issue("cert", "a.example.com")
    backend = await http.echo("one")
    l7 = config(
        route("r", to("one"), listeners=("https",), hosts=("a.example.com",)),
        listeners=(HTTPS,),
        certificates=[certificate],
    )
    spec = await http.start(l7, backend, parameters={HTTP3: "true"})
    over_tcp = await get(spec, port=443, host="a.example.com", tls=authority.client_context())
    assert over_tcp.headers["alt-svc"] == 'h3=":443"; ma=86400'
    async with http3_client(spec, authority, tmp_path) as port:
        async with asyncio.timeout(_PATIENCE_S):
            while (answer := await _get(port)) is None:  # noqa: ASYNC110 (the client starts, and Envoy asks again)
                await asyncio.sleep(0.1)
    assert answer["name"] == "one"
    assert answer["host"] == "a.example.com"


@pytest.mark.req("K-41")
async def test_http3_beside_a_listener_of_udp_is_refused_with_a_sentence(http: HttpWorld) -> None:
    l7 = config(route("r", to("one")), listeners=(HTTPS, L7Listener("udp", 443, "UDP")))
    with pytest.raises(Terminal, match="UDP/443 has a listener, so HTTP/3"):
        await http.provider.ensure(http.spec(l7, parameters={HTTP3: "true"}))


@asynccontextmanager
async def http3_client(spec: FrontendSpec, authority: Authority, directory: Path) -> AsyncGenerator[int]:
    """Run an Envoy that passes on what it gets at the yielded port, over HTTP/3 and nothing else."""
    port = free_port()
    types = "type.googleapis.com/envoy.extensions"
    manager = {
        "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {
            "virtual_hosts": [
                {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "h3"}}]}
            ]
        },
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{types}.filters.http.router.v3.Router"}}
        ],
    }
    trusted = {"trusted_ca": {"inline_string": authority.pem}}
    cluster = {
        "name": "h3",
        "load_assignment": {
            "cluster_name": "h3",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _socket(spec.address, 443)}}]}],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{types}.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http3_protocol_options": {}},
            }
        },
        "transport_socket": {
            "name": "envoy.transport_sockets.quic",
            "typed_config": {
                "@type": f"{types}.transport_sockets.quic.v3.QuicUpstreamTransport",
                "upstream_tls_context": {
                    "sni": "a.example.com",
                    "common_tls_context": {"validation_context": trusted},
                },
            },
        },
    }
    listener = {
        "name": "in",
        "address": _socket("127.0.0.1", port),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    path = directory / "client.json"
    path.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}))
    with (directory / "client.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            find_binary(),
            *("-c", str(path), "--concurrency", "1", "--disable-hot-restart"),
            stdout=log,
            stderr=log,
        )
        try:
            yield port
        finally:
            process.kill()
            await process.wait()


def _socket(address: str, port: int) -> dict[str, object]:
    return {"socket_address": {"address": address, "port_value": port}}


async def _get(port: int) -> dict[str, object] | None:
    """Return what the backend saw, None when there was no such answer."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /h3 HTTP/1.1\r\nHost: a.example.com\r\nConnection: close\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    except OSError:
        return None
    if b" 200 " not in head.split(b"\r\n")[0]:
        return None
    seen: dict[str, object] = json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])
    return seen
