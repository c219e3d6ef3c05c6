"""TLS with clients and backends: certificates by server name, rotation, client certificates, misdirected requests."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import grpc
import msgspec
import pytest
from grpc import aio

from fairlead.model.health import HealthCheck
from fairlead.model.http import Backend, BackendTls, Certificate, ClientValidation, L7Config, L7Listener, SubjectAltName
from fairlead.providers.envoy.resources import ResourceType
from fairlead_demo.worlds.processes import wait_until
from tests.xds.grpc_echo import GrpcBackend
from tests.xds.http_world import (
    HTTP,
    Authority,
    HttpWorld,
    config,
    get,
    prefix,
    route,
    server_context,
    to,
    with_config,
    written,
)
from tests.xds.world import TIMEOUT_S, World, ask, connected

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def https(name: str, hostname: str, *certificates: str, **fields: object) -> L7Listener:
    return L7Listener(name, 443, "HTTPS", hostname, certificates=certificates, **fields)  # type: ignore[arg-type]


@pytest.mark.req("G-51", "GI-7")
async def test_the_server_name_chooses_listener_and_certificate(http: HttpWorld, authority: Authority) -> None:
    backends = [await http.echo(name) for name in ("any", "named")]
    certificates = [authority.issue("any", "*.example.org", "other.org"), authority.issue("named", "a.example.com")]
    spec = await http.start(
        config(
            route("any", to("any"), listeners=("any",), hosts=("x.example.org",)),
            route("named", to("named"), listeners=("named",), hosts=("a.example.com",)),
            listeners=(https("any", "", "any"), https("named", "a.example.com", "named")),
            certificates=certificates,
        ),
        *backends,
    )
    tls = authority.client_context()
    assert (await get(spec, port=443, host="x.example.org", tls=tls)).backend == "any"
    assert (await get(spec, port=443, host="a.example.com", tls=tls)).backend == "named"
    assert (await get(spec, port=443, host="other.org", tls=tls)).status == 404


@pytest.mark.req("G-64")
async def test_misdirected_requests(http: HttpWorld, authority: Authority) -> None:
    backends = [await http.echo(name) for name in ("a", "wild", "any")]
    certificate = authority.issue("c", "a.example.com", "*.example.com", "any.org")
    spec = await http.start(
        config(
            route("a", to("a"), listeners=("a",), hosts=("a.example.com",)),
            route("wild", to("wild"), listeners=("wild",), hosts=("*.example.com",)),
            route("any", to("any", matches=(prefix("/in"),)), listeners=("any",)),
            listeners=(https("a", "a.example.com", "c"), https("wild", "*.example.com", "c"), https("any", "", "c")),
            certificates=[certificate],
        ),
        *backends,
    )
    tls = authority.client_context()
    expected = {
        ("a.example.com", "a.example.com"): "a",
        ("a.example.com", "b.example.com"): "421",
        ("a.example.com", "unknown.org"): "421",
        ("b.example.com", "b.example.com"): "wild",
        ("b.example.com", "c.d.example.com:443"): "wild",
        ("b.example.com", "a.example.com"): "421",
        ("any.org", "a.example.com"): "421",
        ("any.org", "unknown.org"): "404",
    }
    got = {(sni, host): (await get(spec, port=443, host=host, sni=sni, tls=tls)).backend for sni, host in expected}
    assert got == expected
    channel = aio.secure_channel(
        f"{spec.address}:443",
        grpc.ssl_channel_credentials(authority.pem.encode()),
        options=[("grpc.ssl_target_name_override", "a.example.com"), ("grpc.default_authority", "b.example.com")],
    )
    async with channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary("/s/m")(b"", timeout=TIMEOUT_S)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN, "what Envoy makes of 421 for gRPC"


@pytest.mark.req("K-41")
async def test_a_certificate_is_rotated_under_load_without_a_cut_connection(
    http: HttpWorld, authority: Authority
) -> None:
    backend = await http.echo("one")
    l7 = config(
        route("r", to("one"), listeners=("https",)),
        listeners=(https("https", "", "c"),),
        certificates=[authority.issue("c", "shop.example.com")],
    )
    spec = await http.start(l7, backend)
    tls, stop, failures = authority.client_context(), asyncio.Event(), []
    counters = http.provider.counters
    listeners = counters.resources[ResourceType.LISTENER]

    async def load() -> int:
        count, connections = 0, 0
        trace = aiohttp.TraceConfig()

        async def connected(*_: object) -> None:
            nonlocal connections
            connections += 1

        trace.on_connection_create_end.append(connected)
        connector = aiohttp.TCPConnector(limit=1, ssl=tls)
        async with aiohttp.ClientSession(
            f"https://{spec.address}:443", connector=connector, trace_configs=[trace]
        ) as session:
            while not stop.is_set():
                async with session.get(
                    "/", headers={"Host": "shop.example.com"}, server_hostname="shop.example.com"
                ) as answer:
                    failures.extend([answer.status] if answer.status != 200 else [])
                    await answer.read()
                count += 1
        assert connections == 1, "one connection carries all requests"
        return count

    running = [asyncio.create_task(load()) for _ in range(3)]
    serial = ""
    for _ in range(5):
        new = authority.issue("c", "shop.example.com")
        serial = new.digest
        await http.provider.ensure(with_config(spec, msgspec.structs.replace(l7, certificates={"c": new})))
        await http.programmed(spec)
    async with asyncio.timeout(TIMEOUT_S):
        while await served_serial(spec.address, tls) != serial:  # noqa: ASYNC110 (a proxy has no event)
            await asyncio.sleep(0.02)
    stop.set()
    assert min(await asyncio.gather(*running)) > 0
    assert failures == []
    assert counters.resources[ResourceType.LISTENER] == listeners


async def served_serial(address: str, tls: ssl.SSLContext) -> str:
    _, writer = await asyncio.open_connection(address, 443, ssl=tls, server_hostname="shop.example.com")
    serial = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    writer.close()
    return f"{int(serial, 16):x}"


@pytest.mark.req("K-41")
async def test_an_unusable_certificate_leaves_the_last_good_one(http: HttpWorld, authority: Authority) -> None:
    backend, good = await http.echo("one"), authority.issue("c", "shop.example.com")
    l7 = config(route("r", to("one"), listeners=("https",)), listeners=(https("https", "", "c"),), certificates=[good])
    spec = await http.start(l7, backend)
    other = authority.issue("c", "shop.example.com")
    mismatched = Certificate("c", "mismatched", good.chain, other.key)
    for certificates in ({"c": mismatched}, {}):
        await http.provider.ensure(with_config(spec, msgspec.structs.replace(l7, certificates=certificates)))
        await http.programmed(spec)
        assert (await get(spec, port=443, tls=authority.client_context())).status == 200
        observed = await http.provider.observe(spec.key)
        assert observed is not None
        assert [part[:2] for part in observed.refused] == [("certificate", "c")]
        assert "last good one" in observed.refused[0].reason


@pytest.mark.req("G-81", "G-82", "G-114")
async def test_client_certificates(http: HttpWorld, authority: Authority, tmp_path: Path) -> None:
    backend, foreign = await http.echo("one"), Authority("foreign")
    server = authority.issue("c", "must.example.com", "may.example.com")
    validation = ClientValidation(authority.pem)
    spec = await http.start(
        config(
            route("r", to("one"), listeners=("must", "may")),
            listeners=(
                https("must", "must.example.com", "c", client_validation=validation),
                https("may", "may.example.com", "c", client_validation=ClientValidation(authority.pem, optional=True)),
            ),
            certificates=[server],
        ),
        backend,
    )
    right = authority.client_context(authority.issue("client"), tmp_path)
    wrong = authority.client_context(foreign.issue("client"), tmp_path)
    none = authority.client_context()
    assert (await get(spec, port=443, host="must.example.com", tls=right)).status == 200
    for context in (wrong, none):
        with pytest.raises(aiohttp.ClientError):
            await get(spec, port=443, host="must.example.com", tls=context)
    for context in (right, wrong, none):
        assert (await get(spec, port=443, host="may.example.com", tls=context)).status == 200


@pytest.mark.req("G-84", "G-86", "G-90", "E-17")
async def test_tls_to_backends(http: HttpWorld, authority: Authority, tmp_path: Path) -> None:
    certificate = authority.issue("server", "backend.example.com", uris=("spiffe://cluster/ns/shop",))
    backend = await http.echo("one", context=server_context(certificate, tmp_path, clients=authority))
    foreign = Authority("foreign")

    def over(name: str, **fields: object) -> Backend:
        given = {"server_name": "backend.example.com", "ca_bundle": authority.pem, **fields}
        return Backend(name, tls=BackendTls(**given))  # type: ignore[arg-type]

    uri, other = SubjectAltName("URI", "spiffe://cluster/ns/shop"), SubjectAltName("Hostname", "other.example.com")
    backends = [
        over("good"),
        over("certificate", client_certificate="client"),
        over("uri", server_name="sni.example.com", subject_alt_names=(other, uri)),
        over("wrong-name", server_name="other.example.com"),
        over("wrong-uri", subject_alt_names=(other,)),
        over("wrong-authority", ca_bundle=foreign.pem),
        over("no-authority", ca_bundle=""),
    ]
    rules = [to(each.name, matches=(prefix(f"/{each.name}"),)) for each in backends]
    spec = http.spec(config(route("r", *rules), backends=backends, certificates=[authority.issue("client")]))
    spec = with_config(spec, msgspec.structs.replace(spec.l7, certificates=spec.l7.certificates))  # type: ignore[union-attr]
    await http.serve(spec, {each.name: [backend.target] for each in backends})
    answers = {each.name: await get(spec, f"/{each.name}") for each in backends}
    assert {name: answer.status for name, answer in answers.items()} == {
        "good": 200, "certificate": 200, "uri": 200, "wrong-name": 503, "wrong-uri": 503, "wrong-authority": 503,
        "no-authority": 500,
    }  # fmt: skip
    assert answers["good"].echo["client_certificate"] is False
    assert answers["certificate"].echo["client_certificate"] is True


@pytest.mark.req("F-10")
async def test_tls_settings_of_a_backend_rotate_without_a_failed_request(
    http: HttpWorld, authority: Authority, tmp_path: Path
) -> None:
    uri = "spiffe://cluster.local/ns/shop/sa/web"
    context = server_context(authority.issue("server", uris=(uri,)), tmp_path, clients=authority)
    backend = await http.echo("web", context=context)

    def tls(bundle: str) -> Backend:
        name = SubjectAltName("URI", uri)
        return Backend(
            "web", tls=BackendTls("web.internal", bundle, subject_alt_names=(name,), client_certificate="client")
        )

    def rotated(certificate: Certificate, bundle: str) -> L7Config:
        return config(route("r", to("web")), backends=[tls(bundle)], certificates=[certificate])

    spec = http.spec(rotated(authority.issue("client"), authority.pem))
    await http.serve(spec, {"web": [backend.target]})
    clusters = http.provider.counters.resources[ResourceType.CLUSTER]
    stop, statuses = asyncio.Event(), []

    async def load() -> None:
        while not stop.is_set():
            statuses.append((await get(spec, "/")).status)

    running = [asyncio.create_task(load()) for _ in range(3)]
    new = Authority("new")
    for bundle in (authority.pem, authority.pem + new.pem):
        last = authority.issue("client")
        await http.provider.ensure(with_config(spec, rotated(last, bundle)))
        await http.programmed(spec)
    # From now on the backend has a certificate of the new authority.
    context.load_cert_chain(*written(new.issue("server", uris=(uri,)), tmp_path))
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            answer = await get(spec, "/", headers={"X-Echo-Set": "Connection:close"})
            if answer.echo["client_serial"] == last.digest:
                break
    stop.set()
    await asyncio.gather(*running)
    assert set(statuses) == {200}
    assert http.provider.counters.resources[ResourceType.CLUSTER] == clusters


SPIFFE = "spiffe://cluster.local/ns/shop/sa/web"


def demanding(authority: Authority, directory: Path) -> ssl.SSLContext:
    """Return the context of a backend that demands a client certificate."""
    context = server_context(authority.issue("server", uris=(SPIFFE,)), directory, clients=authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def verified(bundle: str, *, uri: str = SPIFFE, certificate: str = "client") -> BackendTls:
    name = SubjectAltName("URI", uri)
    return BackendTls("web.internal", bundle, subject_alt_names=(name,), client_certificate=certificate)


@pytest.mark.req("F-10")
async def test_targets_of_a_service_that_demand_a_client_certificate(
    world: World, authority: Authority, tmp_path: Path
) -> None:
    client, other = authority.issue("client"), Authority("other")
    backend = await world.backend("web", context=demanding(authority, tmp_path))
    answers = {}
    for name, tls in {
        "good": verified(authority.pem),
        "wrong-uri": verified(authority.pem, uri=f"{SPIFFE}2"),
        "wrong-authority": verified(other.pem),
        "no-authority": verified(""),
        "no-certificate": verified(authority.pem, certificate=""),
        "missing-certificate": verified(authority.pem, certificate="missing"),
    }.items():
        spec = await world.load_balancer(backend.target, backend_tls=tls, certificates={"client": client})
        answers[name] = await ask(spec.address, 8080)
    assert answers.pop("good") == "web"
    assert set(answers.values()) == {""}
    assert {seen.serial for seen in backend.seen} <= {client.digest}


@pytest.mark.req("F-10")
async def test_a_tcp_route_reaches_targets_that_demand_a_client_certificate(
    http: HttpWorld, authority: Authority, tmp_path: Path
) -> None:
    """A public report (envoyproxy/gateway#8143): a route of TCP had no TLS once a client certificate was set."""
    backend = await http.world.backend("web", context=demanding(authority, tmp_path))
    client = authority.issue("client")
    routed = config(
        route("r", to("web"), listeners=("tcp",), kind="TCP"),
        listeners=(L7Listener("tcp", 8080, "TCP"),),
        backends=[Backend("web", protocol="TCP", tls=verified(authority.pem))],
        certificates=[client],
    )
    spec = http.spec(routed)
    await http.serve(spec, {"web": [backend.target]})
    assert await ask(spec.address, 8080) == "web"
    assert backend.seen[-1].serial == client.digest


@pytest.mark.req("F-10")
async def test_tls_settings_of_a_service_rotate_without_a_cut_connection(
    world: World, authority: Authority, tmp_path: Path
) -> None:
    context, new, client = demanding(authority, tmp_path), Authority("new"), authority.issue("client")
    backend = await world.backend("web", context=context, stay=True)
    spec = await world.load_balancer(
        backend.target, backend_tls=verified(authority.pem), certificates={"client": client}
    )
    clusters = world.provider.counters.resources[ResourceType.CLUSTER]
    async with connected(spec.address, 8080) as (name, reader, writer):
        assert (name, backend.seen[-1].serial) == ("web", client.digest)
        for bundle in (authority.pem + new.pem, new.pem):
            client = authority.issue("client")
            tls = verified(bundle)
            spec = msgspec.structs.replace(spec, backend_tls=tls, certificates={"client": client})
            await world.provider.ensure(spec)
            await world.programmed(spec)
            context.load_cert_chain(*written(new.issue("server", uris=(SPIFFE,)), tmp_path))
            async with asyncio.timeout(TIMEOUT_S):
                while backend.seen[-1].serial != client.digest:
                    async with connected(spec.address, 8080) as (again, _, _):
                        assert again == "web"
            writer.write(b"still\n")
            assert await reader.readline() == b"still\n"
        # A version that cannot be used leaves the last good one.
        spec = msgspec.structs.replace(spec, certificates={})
        await world.provider.ensure(spec)
        await world.programmed(spec)
        observed = await world.provider.observe(spec.key)
        assert observed is not None
        assert [part.kind for part in observed.refused] == ["certificate"]
        async with connected(spec.address, 8080) as (again, _, _):
            assert again == "web"
        writer.write(b"still\n")
        assert await reader.readline() == b"still\n"
    assert world.provider.counters.resources[ResourceType.CLUSTER] == clusters


@pytest.mark.req("F-10", "F-11")
async def test_checks_of_a_service_go_through_the_same_tls_and_survive_rotation(
    world: World, authority: Authority, tmp_path: Path
) -> None:
    """A public report (envoy#43116): a rotated client certificate failed a check, and took the targets out."""
    client = authority.issue("client")
    backend = await world.backend("web", context=demanding(authority, tmp_path))
    check = HealthCheck(interval_s=0.05, timeout_s=5, unhealthy_threshold=1, healthy_threshold=100)
    spec = await world.load_balancer(
        backend.target, backend_tls=verified(authority.pem), certificates={"client": client}, health_check=check
    )

    async def is_checked() -> bool:
        return len(backend.seen) > 2 and backend.seen[-1].serial == client.digest

    await wait_until(is_checked, "connections of checks")
    assert {seen.serial for seen in backend.seen} == {client.digest}
    stop, answers = asyncio.Event(), []

    async def load() -> None:
        while not stop.is_set():
            answers.append(await ask(spec.address, 8080))

    running = [asyncio.create_task(load()) for _ in range(3)]
    for _ in range(5):
        client = authority.issue("client")
        spec = msgspec.structs.replace(spec, certificates={"client": client})
        await world.provider.ensure(spec)
        await world.programmed(spec)
        await wait_until(is_checked, "connections of checks with the new certificate")
    stop.set()
    await asyncio.gather(*running)
    assert set(answers) == {"web"}


@pytest.mark.req("G-79", "G-91", "G-113")
async def test_grpc_and_h2c(http: HttpWorld) -> None:
    backend = await GrpcBackend("one").start(http.world.addresses.take())
    rules = (to("one", matches=(prefix("/pkg.Service"),)), to("", matches=(prefix("/pkg.Unresolved"),)))
    spec = http.spec(
        config(route("r", *rules, kind="GRPC"), listeners=(HTTP,), backends=[Backend("one", protocol="HTTP2")])
    )
    await http.serve(spec, {"one": [backend.target]})
    async with aio.insecure_channel(f"{spec.address}:80") as channel:
        assert await channel.unary_unary("/pkg.Service/Method")(b"hello", timeout=TIMEOUT_S) == b"one: hello"
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary("/pkg.Other/Method")(b"hello", timeout=TIMEOUT_S)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary("/pkg.Unresolved/Method")(b"hello", timeout=TIMEOUT_S)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        stream = channel.stream_stream("/pkg.Service/Stream")(timeout=TIMEOUT_S)
        for number in range(3):
            changed = config(
                route("r", *rules, kind="GRPC"),
                route(f"n{number}", to("one"), kind="HTTP", hosts=(f"{number}.org",)),
                backends=[Backend("one", protocol="HTTP2")],
            )
            await http.provider.ensure(with_config(spec, changed))
            await http.programmed(spec)
            await stream.write(b"%d" % number)
            assert await stream.read() == b"one: %d" % number
        stream.cancel()
    assert (await get(spec, "/pkg.Service/Method")).status == 404, "what is no gRPC is not for a gRPC route"
    await backend.stop()


@pytest.mark.req("G-92", "G-93", "G-97", "G-98")
async def test_tls_routes_pass_through_and_terminate_on_one_port(
    http: HttpWorld, authority: Authority, tmp_path: Path
) -> None:
    own = authority.issue("own", "pass.example.com", "deep.pass.example.com")
    passed = await http.echo("passed", context=server_context(own, tmp_path))
    plain = await http.world.backend("plain")
    listeners = (
        L7Listener("pass", 443, "TLS", "*.example.com", passthrough=True),
        L7Listener("end", 443, "TLS", "end.example.com", certificates=("c",)),
        https("web", "web.example.com", "c"),
    )
    backends = [Backend("passed", protocol="TCP"), Backend("plain", protocol="TCP")]
    spec = http.spec(
        config(
            route("pass", to("passed"), kind="TLS", listeners=("pass",), hosts=("pass.example.com",)),
            route("end", to("plain"), kind="TLS", listeners=("end",), hosts=("end.example.com",)),
            route("gone", to(""), kind="TLS", listeners=("pass",), hosts=("gone.example.com",)),
            listeners=listeners,
            backends=backends,
            certificates=[authority.issue("c", "end.example.com", "web.example.com")],
        )
    )
    await http.serve(spec, {"passed": [passed.target], "plain": [plain.target]})
    tls = authority.client_context()
    assert (await get(spec, port=443, host="pass.example.com", tls=tls)).backend == "passed"
    reader, writer = await asyncio.open_connection(spec.address, 443, ssl=tls, server_hostname="end.example.com")
    assert await reader.readline() == b"plain\n"
    writer.close()
    assert (await get(spec, port=443, host="web.example.com", tls=tls)).status == 404
    for host in ("other.example.com", "gone.example.com", "unknown.org"):
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await asyncio.open_connection(spec.address, 443, ssl=tls, server_hostname=host)


@pytest.mark.req("G-99", "G-100", "G-101", "G-115")
async def test_tcp_and_udp_routes(http: HttpWorld) -> None:
    from fairlead.model.http import BackendRef, Rule
    from tests.xds.world import ask_udp

    heavy, light = await http.world.backend("heavy"), await http.world.backend("light")
    datagrams = [await http.world.udp_backend(name) for name in ("first", "two")]
    listeners = (L7Listener("tcp", 9000, "TCP"), L7Listener("udp", 9000, "UDP"), L7Listener("closed", 9001, "TCP"))
    shares = Rule(backends=(BackendRef("heavy", 70), BackendRef("light", 30)))
    datagram_shares = Rule(backends=(BackendRef("first", 70), BackendRef("two", 30), BackendRef("gone", 0)))
    names = {"heavy": "TCP", "light": "TCP", "first": "UDP", "two": "UDP", "gone": "UDP"}
    spec = http.spec(
        config(
            route("new", to("light"), kind="TCP", listeners=("tcp",), created="2026-02-01T00:00:00Z"),
            route("old", shares, kind="TCP", listeners=("tcp",), created="2026-01-01T00:00:00Z"),
            route("bad", to(""), kind="TCP", listeners=("closed",)),
            route("udp", datagram_shares, kind="UDP", listeners=("udp",)),
            listeners=listeners,
            backends=[Backend(name, protocol=protocol) for name, protocol in names.items()],  # type: ignore[arg-type]
        )
    )
    targets = {each.name: [each.target] for each in (heavy, light, *datagrams)}
    await http.serve(spec, targets)
    answers = [await ask(spec.address, 9000) for _ in range(200)]
    assert set(answers) == {"heavy", "light"}
    assert 110 <= answers.count("heavy") <= 170
    assert await ask(spec.address, 9001) == ""
    datagram_answers = [await ask_udp(spec.address, 9000) for _ in range(200)]
    assert set(datagram_answers) == {"first", "two"}
    assert 110 <= datagram_answers.count("first") <= 170
