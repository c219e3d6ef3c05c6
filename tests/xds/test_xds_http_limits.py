"""Limits of requests and connections, and HTTP/3, at a real Envoy."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import msgspec
import pytest

from fairlead.errors import Terminal
from fairlead.model.change import Action
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.http import Backend, Filters, L7Listener, Redirect, Rule
from fairlead.model.keys import Protocol, TargetKey
from fairlead.providers.envoy.bootstrap import Bootstrap, bootstrap_json
from fairlead.providers.envoy.envoy_process import find_binary
from fairlead.providers.envoy.kubernetes.fleet import DeploymentFleet
from fairlead.providers.envoy.kubernetes.manifests import service_name
from fairlead.providers.envoy.provider import EnvoyProvider
from fairlead.providers.envoy.settings import CONNECTIONS, HTTP3, LIMITS, REQUESTS_PER_SECOND
from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.loopback import free_port
from tests.unit.providers.envoy.kubernetes.fake_kube import FakeKube
from tests.xds.conftest import first_port
from tests.xds.http_world import Authority, HttpWorld, config, get, prefix, route, to
from tests.xds.world import TIMEOUT_S, Addresses, ask_udp

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]

HTTPS = L7Listener("https", 443, "HTTPS", "a.example.com", certificates=("cert",))


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
        async with asyncio.timeout(TIMEOUT_S):
            assert await reader.read() == b""
    except ConnectionResetError:
        pass
    for _, each in (*held, (reader, writer)):
        each.close()


@pytest.mark.req("EDGE-04")
async def test_no_rule_raises_the_limit_of_its_class(http: HttpWorld) -> None:
    backend = await http.echo("one")
    rules = (
        to("one", matches=(prefix("/raised"),), requests_per_second=1_000_000),
        to("one", matches=(prefix("/plain"),)),
        to("one", matches=(prefix("/lowered"),), requests_per_second=1),
    )
    spec = await http.start(config(route("r", *rules)), backend, parameters={REQUESTS_PER_SECOND: "4"})
    for path in ("/raised", "/plain"):
        assert await admitted(spec, 60, path) < 60, path
    lowered = await http.start(config(route("r", *rules)), backend, parameters={REQUESTS_PER_SECOND: "1000000"})
    assert await admitted(lowered, 20, "/lowered") < 20
    assert await admitted(lowered, 20, "/raised") == 20


async def admitted(spec: FrontendSpec, count: int, *paths: str, hosts: Sequence[str] = ("shop.example.com",)) -> int:
    """Return how many of ``count`` requests, to each path and host in turn, were not answered 429."""
    each = [(path, host) for path in paths for host in hosts]
    turns = itertools.islice(itertools.cycle(each), count)
    statuses = [(await get(spec, path, host=host)).status for path, host in turns]
    assert set(statuses) <= {200, 302, 429}
    return sum(status != 429 for status in statuses)


@pytest.mark.req("EDGE-04")
async def test_all_matches_and_hostnames_of_a_rule_share_its_limit(http: HttpWorld) -> None:
    backend = await http.echo("one")
    paths, hosts = [f"/{letter}" for letter in "abcdefgh"], [f"h{number}.example.com" for number in range(8)]
    many = to("one", matches=tuple(map(prefix, paths)), requests_per_second=5)
    redirect = Rule(matches=(prefix("/moved"),), filters=Filters(redirect=Redirect("https")), requests_per_second=5)
    free = to("one", matches=(prefix("/free"),))
    began_s = time.monotonic()
    spec = await http.start(config(route("r", many, redirect, free, hosts=hosts)), backend)
    counts = [await admitted(spec, 80, *paths, hosts=hosts[:1]), await admitted(spec, 80, "/moved", hosts=hosts)]
    # A bucket gets its tokens each second, so a slow machine admits more.
    most = 5 * (2 + time.monotonic() - began_s)
    assert all(5 <= count <= most for count in counts), counts
    assert sum(counts) < 160
    assert await admitted(spec, 40, "/free", hosts=hosts) == 40


async def answered(spec: FrontendSpec, port: int, writers: list[asyncio.StreamWriter]) -> bool:
    """Open a connection that stays open, and return whether a request over it is answered."""
    reader, writer = await asyncio.open_connection(spec.address, port)
    writers.append(writer)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(TIMEOUT_S):
            return (await reader.readline()).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


@pytest.mark.req("EDGE-04")
async def test_the_connections_of_a_class_hold_for_tcp_and_udp_as_well(http: HttpWorld) -> None:
    backend, datagrams = await http.echo("one"), await http.world.udp_backend("udp")
    few = {CONNECTIONS: "2"}
    l7 = config(
        route("r", to("one")),
        route("tcp", to("one"), kind="TCP", listeners=("tcp",)),
        route("udp", to("udp"), kind="UDP", listeners=("udp",)),
        listeners=(L7Listener("http", 80), L7Listener("tcp", 9000, "TCP"), L7Listener("udp", 9000, "UDP")),
        backends=(Backend("udp", protocol="UDP"),),
    )
    spec = http.spec(l7, parameters=few)
    await http.serve(spec, {"one": [backend.target], "udp": [datagrams.target]})
    service = http.world.spec(Listener(8080), Listener(8080, Protocol.UDP), parameters=few)
    await http.provider.ensure(service)
    for listener, target in zip(service.listeners, (backend.target, datagrams.target), strict=True):
        await http.world.change(service, Action.REGISTER, target, listener=listener.key)
    writers: list[asyncio.StreamWriter] = []
    for each, port in ((spec, 80), (spec, 9000), (service, 8080)):
        assert [await answered(each, port, writers) for _ in range(4)] == [True, True, False, False]
    for each, port in ((spec, 9000), (service, 8080)):
        assert [await sent(each.address, port) for _ in range(2)] == ["udp", "udp"]
        assert await sent(each.address, port, timeout_s=1.0) == ""
    for writer in writers:
        writer.close()


async def sent(address: str, port: int, *, timeout_s: float = TIMEOUT_S) -> str:
    """Return the answer to a datagram of a new client; empty when none comes."""
    try:
        return await ask_udp(address, port, timeout_s=timeout_s)
    except TimeoutError:
        return ""


@pytest.mark.req("EDGE-04")
async def test_a_connection_limit_must_be_a_number_for_every_kind(http: HttpWorld) -> None:
    for spec in (http.spec(config(route("r", to("one")))), http.world.spec(Listener(8080))):
        with pytest.raises(Terminal, match="connections is 'few'"):
            await http.provider.ensure(msgspec.structs.replace(spec, parameters={CONNECTIONS: "few"}))


@pytest.mark.req("EDGE-04")
async def test_the_connections_of_a_class_hold_for_http3_as_well(http: HttpWorld, tmp_path: Path) -> None:
    authority = Authority()
    l7 = config(
        route("r", to("one"), listeners=("https",), hosts=("a.example.com",)),
        listeners=(HTTPS,),
        certificates=[authority.issue("cert", "a.example.com")],
    )
    spec = await http.start(l7, await http.echo("one"), parameters={HTTP3: "true", CONNECTIONS: "1"})
    (tmp_path / "second").mkdir()
    async with http3_client(spec, authority, tmp_path) as first:
        assert await until_answered(first)
        async with http3_client(spec, authority, tmp_path / "second") as second:
            # The client itself answers 503 once its connection was refused.
            async with asyncio.timeout(TIMEOUT_S):
                while (status := await status_of(second)) is None:  # noqa: ASYNC110 (it is starting)
                    await asyncio.sleep(0.1)
            assert status == 503
            assert await status_of(first) == 200


async def until_answered(port: int) -> dict[str, object]:
    async with asyncio.timeout(TIMEOUT_S):
        while (answer := await _get(port)) is None:  # noqa: ASYNC110 (the client starts, and Envoy asks again)
            await asyncio.sleep(0.1)
    return answer


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
        answer = await until_answered(port)
    assert answer["name"] == "one"
    assert answer["host"] == "a.example.com"


@pytest.mark.req("F-9")
async def test_proxies_of_a_cluster_announce_http3_while_their_service_has_it(
    short_dir: Path, addresses: Addresses, worker_id: str
) -> None:
    first = first_port(6_000, worker_id)
    kube = FakeKube()
    provider = EnvoyProvider(fleet=DeploymentFleet(kube=kube), xds_address="127.0.0.1:0")
    await provider.start()
    provider.publish()
    http, authority = HttpWorld(provider, addresses), Authority()
    bootstrap = Bootstrap(
        node_id="",
        group="a",
        xds_address="127.0.0.1",
        xds_port=provider.server.port,
        admin_socket=str(short_dir / "admin.sock"),
    )
    (short_dir / "bootstrap.json").write_text(json.dumps(bootstrap_json(bootstrap)))
    with (short_dir / "log").open("w") as log:
        envoy = await asyncio.create_subprocess_exec(
            find_binary(), "-c", f"{short_dir}/bootstrap.json", "--service-node", "pod-1", "--concurrency", "1",
            "--disable-hot-restart", "--log-level", "warning", stderr=log,
        )  # fmt: skip
    try:
        l7 = config(
            route("r", to("one"), listeners=("https",), hosts=("a.example.com",)),
            listeners=(HTTPS,),
            certificates=[authority.issue("cert", "a.example.com")],
        )
        spec = http.spec(l7, parameters={HTTP3: "true"})
        spec = msgspec.structs.replace(
            spec, group="a", address="127.0.0.1", listeners=(Listener(443, proxy_port=first),)
        )
        await http.serve(spec, {"one": [(await http.echo("one")).target]})

        async def announced() -> str | None:
            answer = await get(spec, port=first, host="a.example.com", tls=authority.client_context())
            assert answer.status == 200
            return answer.headers.get("alt-svc")

        assert await announced() is None
        name, rejected = service_name(spec.key), "rejects UDP/443: MixedProtocolNotSupported"
        for udp, header in (({443: ""}, 'h3=":443"; ma=86400'), ({443: rejected}, None), ({443: ""}, ANY)):
            kube.assign(name, "203.0.113.7", udp=udp)
            await http.programmed(spec)
            assert await announced() == header
            observed = await provider.observe(spec.key)
            assert observed is not None
            assert observed.data_path == (f"HTTP/3 is not announced: {rejected}" if header is None else "")
        async with http3_client(spec, authority, short_dir, first) as port:
            assert (await until_answered(port))["name"] == "one"
    finally:
        envoy.terminate()
        await envoy.wait()
        await http.close()
        await provider.stop()


@pytest.mark.req("K-41")
async def test_http3_with_a_udp_listener_on_the_port_is_rejected(http: HttpWorld) -> None:
    l7 = config(route("r", to("one")), listeners=(HTTPS, L7Listener("udp", 443, "UDP")))
    with pytest.raises(Terminal, match="UDP/443 has a listener, so HTTP/3"):
        await http.provider.ensure(http.spec(l7, parameters={HTTP3: "true"}))


@asynccontextmanager
async def http3_client(
    spec: FrontendSpec, authority: Authority, directory: Path, served: int = 443
) -> AsyncGenerator[int]:
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
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _socket(spec.address, served)}}]}],
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
                "upstream_tls_context": {"sni": "a.example.com", "common_tls_context": {"validation_context": trusted}},
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
            find_binary(), *("-c", str(path), "--concurrency", "1", "--disable-hot-restart"), stdout=log, stderr=log
        )
        try:
            yield port
        finally:
            process.kill()
            await process.wait()


def _socket(address: str, port: int) -> dict[str, object]:
    return {"socket_address": {"address": address, "port_value": port}}


async def _exchange(port: int) -> bytes:
    """Return the answer to a request; empty while nothing listens."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /h3 HTTP/1.1\r\nHost: a.example.com\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
    except OSError:
        return b""
    return answer


async def status_of(port: int) -> int | None:
    answer = await _exchange(port)
    return int(answer.split()[1]) if answer else None


async def _get(port: int) -> dict[str, object] | None:
    """Return what the backend saw, None when there was no such answer."""
    head, _, body = (await _exchange(port)).partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        return None
    seen: dict[str, object] = json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])
    return seen


@pytest.mark.req("F-18")
async def test_limits_of_users_hold_for_all_clients_or_for_each(http: HttpWorld) -> None:
    backend = await http.echo("one")
    client, other = http.world.addresses.take(), http.world.addresses.take()

    async def statuses(spec: FrontendSpec, count: int, **more: Any) -> list[int]:
        return [(await get(spec, **more)).status for _ in range(count)]

    together = await http.start(
        config(route("r", to("one"))), backend, parameters={LIMITS: '{"requestsPerSecond": 1, "burst": 5}'}
    )
    answers = [await get(together) for _ in range(40)]
    assert [answer.status for answer in answers[:5]] == [200] * 5
    refused = next(answer for answer in answers if answer.status == 429)
    assert refused.headers["retry-after"] == "1"

    each = await http.start(
        config(route("r", to("one"))), backend, parameters={LIMITS: '{"requestsPerSecond": 1, "key": "client"}'}
    )
    assert 429 in await statuses(each, 20, source=client)
    assert (await statuses(each, 1, source=other)) == [200]

    by_header = await http.start(
        config(route("r", to("one"))), backend, parameters={LIMITS: '{"requestsPerSecond": 1, "key": "header:X-Key"}'}
    )
    assert 429 in await statuses(by_header, 20, headers={"X-Key": "a"})
    assert (await statuses(by_header, 1, headers={"X-Key": "b"})) == [200]
    assert 429 in await statuses(by_header, 20), "requests without the header count together"

    limited = await http.start(
        config(route("r", to("one", requests_per_second=1))),
        backend,
        parameters={LIMITS: '{"requestsPerSecond": 1000}'},
    )
    assert 429 in await statuses(limited, 20), "a rule has its own limit within that of the load balancer"


@pytest.mark.req("F-18")
async def test_users_set_fewer_connections_than_their_class_and_no_more(http: HttpWorld) -> None:
    backend = await http.echo("one")
    for of_class, own in (("2", '{"connections": 100}'), ("100", '{"connections": 2}')):
        parameters = {CONNECTIONS: of_class, LIMITS: own}
        spec = await http.start(config(route("r", to("one"))), backend, parameters=parameters)
        held = [await asyncio.open_connection(spec.address, 80) for _ in range(2)]
        for reader, writer in held:
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"200"
        reader, writer = await asyncio.open_connection(spec.address, 80)
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(TIMEOUT_S):
                assert await reader.read() == b""
        for _, each in (*held, (reader, writer)):
            each.close()


@pytest.mark.req("F-18")
async def test_bandwidth_is_limited_for_requests_and_responses(http: HttpWorld) -> None:
    """384 KiB take two seconds at 128 KiB a second: the tokens of the first second are there."""
    size = 384 * 1024

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # a health check sends nothing
            head = await reader.readuntil(b"\r\n\r\n")
            body = b"y" * size if head.startswith(b"GET") else b""
            if not body:
                await reader.readexactly(size)
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, http.world.addresses.take(), 0)
    target = Target(TargetKey(*server.sockets[0].getsockname()[:2]))
    spec = http.spec(config(route("r", to("one"))), parameters={LIMITS: '{"bandwidth": "128Ki"}'})
    await http.serve(spec, {"one": [target]})
    for method in ("GET", "POST"):
        started = time.monotonic()
        answered = await get(spec, method=method, data=b"x" * size if method == "POST" else None)
        assert answered.status == 200
        assert time.monotonic() - started > 1.5, method
    await stop_listening(server)
