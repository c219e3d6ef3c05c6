"""What users see: traffic through the real Envoy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from typing import cast

import msgspec
import pytest

from fairlead.model.change import Action
from fairlead.model.desired import Affinity, FrontendSpec, Listener, ProxyProtocol, Target
from fairlead.model.health import HealthCheck
from fairlead.model.keys import TargetKey
from fairlead.providers.envoy import connection_frontend as listeners
from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.processes import wait_until
from tests.xds.world import TIMEOUT_S, UDP, World, ask, ask_udp, connected, local_envoy, settled, until_closed

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.req("K-30")
async def test_tcp_reaches_every_target(world: World) -> None:
    first, two = await world.backend("one"), await world.backend("two")
    spec = await world.load_balancer(first.target, two.target)
    answers = Counter([await ask(spec.address, 8080) for _ in range(10)])
    assert answers == {"one": 5, "two": 5}


@pytest.mark.req("E-8")
async def test_udp_reaches_its_target(world: World) -> None:
    backend = await world.udp_backend("udp")
    spec = world.spec(Listener(9999, UDP))
    await world.serve(spec, backend.target)
    assert await ask_udp(spec.address, 9999) == "udp"


async def test_one_port_number_for_both_protocols(world: World) -> None:
    tcp, udp = await world.backend("tcp"), await world.udp_backend("udp")
    spec = world.spec(Listener(5353), Listener(5353, UDP))
    await world.provider.ensure(spec)
    await world.change(spec, Action.REGISTER, tcp.target, listener=spec.listeners[0].key)
    await world.change(spec, Action.REGISTER, udp.target, listener=spec.listeners[1].key)
    assert (await ask(spec.address, 5353), await ask_udp(spec.address, 5353)) == ("tcp", "udp")


class Sizes(asyncio.DatagramProtocol):
    """Answers with as many bytes as it got."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.transport.sendto(data, addr)


async def echoed(address: str, port: int, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        client.connect((address, port))
        await loop.sock_sendall(client, b"x" * size)
        async with asyncio.timeout(TIMEOUT_S):
            return await loop.sock_recv(client, 65_536)


@pytest.mark.req("EDGE-06")
async def test_udp_datagrams_of_every_size_pass_in_both_directions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Sizes, local_addr=(world.addresses.take(), 0))
    spec = world.spec(Listener(9999, UDP))
    # As an earlier version had it: the listener is replaced at the upgrade.
    with monkeypatch.context() as earlier:
        earlier.setattr(listeners, "UDP_SOCKET", {})
        await world.serve(spec, Target(TargetKey(*transport.get_extra_info("sockname"))))
        assert len(await echoed(spec.address, 9999, 1_500)) == 1_500
    await world.provider.ensure(msgspec.structs.replace(spec, source_ranges=("127.0.0.0/8",)))
    await world.programmed(spec)
    for size in (1, 1_500, 1_501, 4_096, 9_000, 65_000):
        assert len(await echoed(spec.address, 9999, size)) == size
    transport.close()


@pytest.mark.req("E-9")
async def test_udp_only_refuses_tcp(world: World) -> None:
    backend = await world.udp_backend("udp")
    spec = world.spec(Listener(9999, UDP))
    await world.serve(spec, backend.target)
    for _ in range(5):
        with pytest.raises(ConnectionRefusedError):
            await ask(spec.address, 9999)


@pytest.mark.req("K-31")
async def test_changed_targets_need_no_restart_and_cut_nothing(world: World) -> None:
    old, new = await world.backend("old", stay=True), await world.backend("new")
    spec = await world.load_balancer(old.target)
    pid = local_envoy(world.provider).running
    async with connected(spec.address, 8080) as (name, reader, writer):
        await world.change(spec, Action.REGISTER, new.target)
        await world.change(spec, Action.DEREGISTER, old.target)
        assert [await ask(spec.address, 8080) for _ in range(4)] == ["new"] * 4
        writer.write(b"still there?\n")
        assert (name, await reader.readline()) == ("old", b"still there?\n")
    assert local_envoy(world.provider).running == pid


async def test_draining_target_keeps_its_connections_and_gets_no_new_ones(world: World) -> None:
    going, staying = await world.backend("going", stay=True), await world.backend("staying")
    spec = await world.load_balancer(going.target)
    async with connected(spec.address, 8080) as (_, reader, writer):
        await world.change(spec, Action.REGISTER, staying.target)
        await world.change(spec, Action.DRAIN, going.target)
        assert [await ask(spec.address, 8080) for _ in range(6)] == ["staying"] * 6
        writer.write(b"mine\n")
        assert await reader.readline() == b"mine\n"


async def test_all_draining_means_no_traffic_rather_than_wrong_traffic(world: World) -> None:
    going = await world.backend("going")
    spec = await world.load_balancer(going.target)
    await world.change(spec, Action.DRAIN, going.target)
    assert await ask(spec.address, 8080) == ""


@pytest.mark.req("K-33")
async def test_removed_target_that_still_answers_health_checks_gets_nothing(world: World) -> None:
    check = HealthCheck(interval_s=0.2, timeout_s=5)
    first, two = await world.backend("one"), await world.backend("two")
    spec = await world.load_balancer(first.target, two.target, health_check=check)
    await world.change(spec, Action.DEREGISTER, first.target)
    assert [await ask(spec.address, 8080) for _ in range(6)] == ["two"] * 6


async def test_health_checked_target_serves_the_first_connection(world: World) -> None:
    backend = await world.backend("checked")
    spec = await world.load_balancer(backend.target, health_check=HealthCheck(interval_s=0.2, timeout_s=5))
    assert await ask(spec.address, 8080) == "checked"


async def test_a_dead_target_costs_no_connection(world: World) -> None:
    alive, dead = await world.backend("alive"), await world.backend("dead")
    await dead.stop()
    spec = await world.load_balancer(alive.target, dead.target)
    assert [await ask(spec.address, 8080) for _ in range(20)] == ["alive"] * 20


async def test_weights(world: World) -> None:
    heavy, light = await world.backend("heavy"), await world.backend("light")
    spec = await world.load_balancer(Target(heavy.target.key, weight=3), light.target)
    assert Counter([await ask(spec.address, 8080) for _ in range(40)]) == {"heavy": 30, "light": 10}


@pytest.mark.req("E-11")
async def test_affinity_by_client_address(world: World) -> None:
    targets = [(await world.backend(f"backend-{number}")).target for number in range(4)]
    spec = await world.load_balancer(*targets, affinity=Affinity.CLIENT_IP)
    chosen: set[str] = set()
    for _ in range(6):
        client = world.addresses.take()
        answers = {await ask(spec.address, 8080, source=client) for _ in range(20)}
        assert len(answers) == 1
        chosen |= answers
    assert len(chosen) > 1, "different clients may go to different targets"


async def test_affinity_over_udp(world: World) -> None:
    targets = [(await world.udp_backend(f"backend-{number}")).target for number in range(4)]
    spec = world.spec(Listener(9999, UDP), affinity=Affinity.CLIENT_IP)
    await world.serve(spec, *targets)
    client = world.addresses.take()
    assert len({await ask_udp(spec.address, 9999, source=client) for _ in range(20)}) == 1


async def test_source_ranges_over_tcp(world: World) -> None:
    insider, outsider = world.addresses.take(), world.addresses.take()
    backend = await world.backend("secret")
    spec = await world.load_balancer(backend.target, source_ranges=(f"{insider}/32",))
    assert await ask(spec.address, 8080, source=insider) == "secret"
    assert await ask(spec.address, 8080, source=outsider) == ""
    assert len(backend.seen) == 1, "an outsider never reaches a target"


async def test_source_ranges_over_udp(world: World) -> None:
    insider, outsider = world.addresses.take(), world.addresses.take()
    backend = await world.udp_backend("secret")
    spec = world.spec(Listener(9999, UDP), source_ranges=(f"{insider}/32",))
    await world.serve(spec, backend.target)
    assert await ask_udp(spec.address, 9999, source=insider) == "secret"
    with pytest.raises(TimeoutError):
        await ask_udp(spec.address, 9999, source=outsider, timeout_s=0.3)


@pytest.mark.req("E-10")
@pytest.mark.req("K-34")
async def test_proxy_protocol_v2_names_the_client(world: World) -> None:
    client = world.addresses.take()
    backend = await world.backend("v2", header=28)
    spec = await world.load_balancer(backend.target, proxy_protocol=ProxyProtocol.V2)
    assert await ask(spec.address, 8080, source=client) == "v2"
    (seen,) = backend.seen
    assert seen.header[:13] == b"\r\n\r\n\0\r\nQUIT\n\x21"
    assert ".".join(map(str, seen.header[16:20])) == client != seen.peer[0]


async def test_proxy_protocol_v1_names_the_client(world: World) -> None:
    client = world.addresses.take()
    backend = await world.backend("v1", header=20)
    spec = await world.load_balancer(backend.target, proxy_protocol=ProxyProtocol.V1)
    assert await ask(spec.address, 8080, source=client) == "v1"
    assert backend.seen[0].header.startswith(f"PROXY TCP4 {client}".encode()[:20])


@pytest.mark.req("E-12")
async def test_target_by_host_name(world: World) -> None:
    from tests.xds.world import Backend

    backend = await Backend("by-name").start("127.0.0.1")
    try:
        by_name = Target(TargetKey("localhost", backend.port))
        spec = await world.load_balancer(by_name)
        assert await ask(spec.address, 8080) == "by-name"
        other = await world.backend("by-address")
        await world.change(spec, Action.REGISTER, other.target)
        assert {await ask(spec.address, 8080) for _ in range(4)} == {"by-name", "by-address"}
        await world.change(spec, Action.DEREGISTER, by_name)
        assert {await ask(spec.address, 8080) for _ in range(4)} == {"by-address"}
    finally:
        await backend.stop()


@pytest.mark.req("K-32")
async def test_one_changed_target_of_many_load_balancers_pushes_that_one_only(world: World) -> None:
    backend, other = await world.backend("one"), await world.backend("two")
    specs = [await world.load_balancer(backend.target) for _ in range(5)]
    await settled(world.provider)
    counters = world.provider.counters
    before = (dict(counters.resources), counters.bytes_sent)
    await world.change(specs[2], Action.REGISTER, other.target)
    sent = {kind.short: counters.resources[kind] - before[0][kind] for kind in counters.resources}
    assert {name: count for name, count in sent.items() if count} == {"endpoints": 1}
    assert counters.bytes_sent - before[1] < 500


async def test_deleted_load_balancer_closes_its_port(world: World) -> None:
    backend = await world.backend("gone")
    spec = await world.load_balancer(backend.target)
    await world.provider.delete(spec.key)
    witness = await world.load_balancer(backend.target)
    assert await ask(witness.address, 8080) == "gone"
    assert await world.provider.observe(spec.key) is None
    await until_closed(spec.address, 8080)


@pytest.mark.req("F-4")
@pytest.mark.skipif(os.geteuid() != 0, reason="closing a connection needs CAP_NET_ADMIN")
@pytest.mark.parametrize(("drain_s", "whole"), [(8.0, True), (4.0, False)])
async def test_a_download_from_a_draining_target_ends_or_is_cut_at_the_deadline(
    world: World, drain_s: float, whole: bool
) -> None:
    """New connections go to another target meanwhile."""
    last_part = asyncio.Event()

    async def download(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(b"x")
            await last_part.wait()
            writer.write(b"y")
            await writer.drain()
        writer.close()

    address = world.addresses.take()
    server = await asyncio.start_server(download, address, 8080)
    other = await world.backend("other")
    target = Target(TargetKey(address, 8080))
    spec = world.spec(drain_s=drain_s)
    await world.serve(spec, target)
    reader, writer = await asyncio.open_connection(spec.address, 8080)
    received = await reader.readexactly(1)
    await world.change(spec, Action.REGISTER, other.target)
    await world.change(spec, Action.REGISTER, msgspec.structs.replace(target, draining=True))
    observed = await world.provider.observe(spec.key)
    assert observed is not None
    assert observed.draining is not None
    assert observed.draining.targets == 1
    assert {await ask(spec.address, 8080) for _ in range(4)} == {"other"}
    if whole:
        last_part.set()
    with contextlib.suppress(ConnectionError):
        received += await reader.read(-1)
    last_part.set()
    writer.close()
    await stop_listening(server)
    assert received == (b"xy" if whole else b"x")

    async def figures_are_gone() -> bool:
        observed = await world.provider.observe(spec.key)
        return observed is not None and observed.draining is None

    await wait_until(figures_are_gone, "nothing drains any longer")


@pytest.mark.req("F-4")
@pytest.mark.parametrize("reset", [False, True])
async def test_both_ends_see_how_a_drain_ends_a_connection(world: World, reset: bool) -> None:
    """After a reset, the client does not take a part of the data for all of it."""
    address, ends = world.addresses.take(), asyncio.Queue[str]()

    async def end_of(reader: asyncio.StreamReader) -> str:
        try:
            return "end" if not await reader.read() else "data"
        except ConnectionResetError:
            return "reset"

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        await ends.put(await end_of(reader))
        writer.close()

    server = await asyncio.start_server(hold, address, 8080)
    target, spec = Target(TargetKey(address, 8080)), world.spec(drain_s=0.2, drain_reset=reset)
    await world.serve(spec, target)
    reader, writer = await asyncio.open_connection(spec.address, 8080)
    assert await reader.readexactly(1) == b"x"
    await world.change(spec, Action.REGISTER, msgspec.structs.replace(target, draining=True))
    async with asyncio.timeout(TIMEOUT_S):
        assert [await end_of(reader), await ends.get()] == (["reset"] * 2 if reset else ["end"] * 2)
    writer.close()
    await stop_listening(server)


@pytest.mark.req("F-4")
@pytest.mark.skipif(os.geteuid() != 0, reason="closing a connection needs CAP_NET_ADMIN")
async def test_a_drain_cuts_no_connection_of_another_load_balancer(world: World) -> None:
    """A pod that leaves one Service may serve another; a target with a host name has no connections to find."""
    address, ended = world.addresses.take(), asyncio.Event()

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        await ended.wait()
        writer.write(b"y")
        writer.close()

    server = await asyncio.start_server(hold, address, 8080)
    target, name = Target(TargetKey(address, 8080)), Target(TargetKey("localhost", 8080))
    limited, unlimited, short = world.spec(drain_s=0.2), world.spec(), world.spec(drain_s=0.1)
    for spec in (limited, unlimited):
        await world.serve(spec, target)
    alone = await world.backend("alone")
    await world.serve(short, alone.target, name)
    first, first_writer = await asyncio.open_connection(limited.address, 8080)
    second, second_writer = await asyncio.open_connection(unlimited.address, 8080)
    received = [await first.readexactly(1), await second.readexactly(1)]

    async def drained(spec: FrontendSpec) -> None:
        async def check() -> bool:
            observed = await world.provider.observe(spec.key)
            return observed is not None and observed.draining is None

        await wait_until(check, "the drain time is over")

    await world.change(short, Action.DRAIN, msgspec.structs.replace(name, draining=True))
    await world.change(limited, Action.REGISTER, msgspec.structs.replace(target, draining=True))
    await drained(limited)
    await world.change(short, Action.DRAIN, msgspec.structs.replace(alone.target, draining=True))
    await drained(short)
    ended.set()
    received += [await first.read(-1), await second.read(-1)]
    assert received == [b"x", b"x", b"y", b"y"]
    for writer in (first_writer, second_writer):
        writer.close()
    await stop_listening(server)
