"""The kernel itself: packets through the maps of one machine, with a client and targets in network namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from fairlead.machine import kernel
from fairlead.machine.kernel import KernelPath
from fairlead.model.keys import Protocol
from fairlead.model.machine import (
    AnnouncedAddress,
    ForwardedLoadBalancer,
    ForwardedPort,
    ForwardedTarget,
    ForwardingTable,
    MachinePlan,
)
from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.forwarding import ADDRESS, ADDRESS6, CLIENT, CLIENT6, ForwardingSite
from fairlead_demo.worlds.networks import inside
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.proxy_machines import why_no_namespaces

pytestmark = [pytest.mark.slow]
PORT = 8080
PLAN = MachinePlan(
    machine="m1",
    version="1",
    addresses=(AnnouncedAddress(address=ADDRESS, announcement="L2", machines=("m1",), load_balancers=("east/web",)),),
)
PLAN6 = msgspec.structs.replace(
    PLAN, addresses=(msgspec.structs.replace(PLAN.addresses[0], address=ADDRESS6),), version="2"
)
FOREIGN = "table ip foreign {\n\tchain none {\n\t}\n}\n"


class World:
    """Targets that answer with their name and the client they see, and the process of the machine."""

    def __init__(self, site: ForwardingSite, directory: Path) -> None:
        self.site = site
        self._file = directory / "forwarding.json"
        self._servers: dict[str, asyncio.Server] = {}
        self._open: set[asyncio.StreamWriter] = set()
        self._running: asyncio.Task[None] | None = None
        self._version = 0
        self.path = KernelPath(self._file, on_change=lambda: None)

    async def target(self, number: int, *, v6: bool = False) -> str:
        address = self.site.add_target(number, v6=v6)
        await self.listen(address)
        return address

    async def listen(self, address: str) -> None:
        listening = self.site.socket_at(self.site.targets, v6=":" in address)
        listening.bind((address, PORT))

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._open.add(writer)
            with contextlib.suppress(ConnectionError):
                while line := await reader.readline():
                    writer.write(f"{address} {writer.get_extra_info('peername')[0]} {line.decode()}".encode())
            writer.close()

        self._servers[address] = await asyncio.start_server(answer, sock=listening)

    def stop(self, address: str) -> None:
        """Close the port of a target; its connections stay."""
        self._servers.pop(address).close()

    async def begin(self) -> None:
        """Start the process of the machine."""
        self.path = KernelPath(self._file, on_change=lambda: None)
        self.path.load()
        self.path.follow(PLAN)
        self._running = asyncio.create_task(self.path.run())

    async def end(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        for server in self._servers.values():
            await stop_listening(server)
        for writer in self._open:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def forward(self, *load_balancers: ForwardedLoadBalancer) -> None:
        """Have the kernel forward these, and wait for it."""
        self._version += 1
        version = f"life-{self._version}"
        self.path.update(ForwardingTable(version=version, load_balancers=load_balancers))
        await self.until(lambda: self.path.state.version == version, "the kernel has it")

    async def until(self, check: Callable[[], bool], what: str) -> None:
        async def checked() -> bool:
            return check()

        await wait_until(checked, what)

    def table(self, *arguments: str) -> str:
        return self.site.run(self.site.machine, ("nft", "list", *arguments))

    async def connect(
        self, *, port: int = 80, source: str = "", address: str = ADDRESS
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        client = self.site.socket_at(self.site.client, v6=":" in address)
        if source:
            client.bind((source, 0))
        try:
            async with asyncio.timeout(180):
                await asyncio.get_running_loop().sock_connect(client, (address, port))
        except OSError:
            client.close()
            raise
        reader, writer = await asyncio.open_connection(sock=client)
        self._open.add(writer)
        return reader, writer

    async def ask(self, *, port: int = 80, source: str = "", address: str = ADDRESS) -> tuple[str, str]:
        """Return the target that answers a new connection, and the client that it sees."""
        reader, writer = await self.connect(port=port, source=source, address=address)
        answer = await echoed(reader, writer)
        writer.close()
        return answer


async def echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, str]:
    async with asyncio.timeout(180):
        writer.write(b"hello\n")
        target, client, _ = (await reader.readline()).decode().split(" ", 2)
    return target, client


def load_balancer(
    *targets: ForwardedTarget,
    name: str = "east/web",
    port: int = 80,
    keep: bool = False,
    affinity: bool = False,
    address: str = ADDRESS,
) -> ForwardedLoadBalancer:
    ports = (ForwardedPort(protocol=Protocol.TCP, port=port, targets=targets),)
    return ForwardedLoadBalancer(
        kind="K", name=name, addresses=(address,), ports=ports, keep_client=keep, affinity=affinity
    )


def to(address: str, *, weight: int = 1, draining: bool = False) -> ForwardedTarget:
    return ForwardedTarget(address=address, port=PORT, weight=weight, draining=draining)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    if why := why_no_namespaces():
        pytest.skip(why)
    if not (shutil.which("nft") and shutil.which("conntrack")):
        pytest.skip("nft or conntrack is missing: .ci/nftables installs both")
    site = ForwardingSite()
    try:
        site.start()
        world = World(site, tmp_path)
        # Programs that this process starts are in the namespace of its thread.
        with inside(site.machine):
            await world.begin()
            try:
                yield world
            finally:
                await world.end()
    finally:
        site.close()


@pytest.mark.req("P-31")
@pytest.mark.req("P-32")
async def test_the_kernel_chooses_by_weight_or_client(world: World) -> None:
    first, second = await world.target(1), await world.target(2)
    assert world.path.serving(PLAN) == {}
    await world.forward(load_balancer(to(first), to(second, weight=3)))
    assert world.path.serving(PLAN) == {ADDRESS: True}
    answers = [await world.ask() for _ in range(120)]
    targets = Counter(target for target, _ in answers)
    assert 8 < targets[first] < 60 < targets[second], targets
    assert {client for _, client in answers} == {ADDRESS}, "replies find the machine that has the address"

    await world.forward(load_balancer(to(first), to(second), keep=True, affinity=True))
    assert (await world.ask())[1] == CLIENT
    clients = world.site.add_clients(12)
    chosen = {source: await world.ask(source=source) for source in clients}
    assert all(client == source for source, (_, client) in chosen.items())
    assert {target for target, _ in chosen.values()} == {first, second}
    for source in clients:
        assert await world.ask(source=source) == chosen[source]


@pytest.mark.req("P-30")
async def test_changes_and_restarts_keep_connections(world: World) -> None:
    world.site.run(world.site.machine, ("nft", "-f", "-"), text=FOREIGN)
    first, second = await world.target(1), await world.target(2)
    web = load_balancer(to(first))
    await world.forward(web, load_balancer(to(second), name="east/other", port=81))
    kept = await world.connect()
    other = await world.connect(port=81)
    assert await echoed(*other) == (second, ADDRESS)
    await world.forward(web)
    with pytest.raises(ConnectionRefusedError):
        await world.connect(port=81)
    assert await echoed(*kept) == (first, ADDRESS)
    assert await echoed(*other) == (second, ADDRESS), "it has its drain time"

    # The process ends; the next one changes nothing that is right.
    before = world.table("table", "inet", "fairlead")
    running = world._running
    assert running is not None
    running.cancel()
    await asyncio.wait({running})
    assert (await world.ask())[0] == first
    await world.begin()
    await world.until(lambda: world.path.state.version != "", "the next process has read the table back")
    assert world.table("table", "inet", "fairlead") == before
    assert await echoed(*kept) == (first, ADDRESS)

    # A target drains, and then its connections end.
    await world.forward(load_balancer(to(first, draining=True), to(second)))
    assert {(await world.ask())[0] for _ in range(8)} == {second}
    assert await echoed(*kept) == (first, ADDRESS)
    await world.forward(load_balancer(to(second)))
    mine = f"sport={kept[1].get_extra_info('sockname')[1]}"
    await world.until(
        lambda: mine not in world.site.run(world.site.machine, ("conntrack", "-L", "-p", "tcp")), "its entry is gone"
    )
    assert world.table("table", "ip", "foreign") == FOREIGN


@pytest.mark.req("P-30")
@pytest.mark.req("P-32")
async def test_what_does_not_answer_gets_no_connections(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = await world.target(1), await world.target(2)
    # The machine itself listens at the port, at all its addresses.
    own = world.site.socket_at(world.site.machine)
    own.bind(("0.0.0.0", 80))
    own.listen()
    with own:
        await world.forward(load_balancer(to(first), to(second)))
        world.stop(first)
        await world.until(lambda: len(world.path.state.unhealthy) == 1, "it is out")
        await world.until(lambda: first not in world.table("map", "inet", "fairlead", "targets4"), "the kernel knows")
        assert {(await world.ask())[0] for _ in range(8)} == {second}
        world.stop(second)
        await world.until(lambda: "goto" not in world.table("map", "inet", "fairlead", "services4"), "nothing is left")
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        await world.until(lambda: not world.path.healthy(), "the machine says so")
        await world.listen(first)
        await world.until(lambda: "east/web" in world.path.healthy(), "it is back")
        assert (await world.ask())[0] == first

        # Another program deletes the table.
        monkeypatch.setattr(kernel, "_CHECK_S", 60.0)
        world.site.run(world.site.machine, ("nft", "flush", "ruleset"))
        await world.until(lambda: "table inet fairlead" in world.table("tables"), "the table is made again")
        await world.until(lambda: "goto" in world.table("map", "inet", "fairlead", "services4"), "with its elements")
        assert (await world.ask())[0] == first


@pytest.mark.req("P-30", "P-31", "P-32")
async def test_ipv6_is_forwarded_like_ipv4(world: World) -> None:
    first, second = await world.target(1, v6=True), await world.target(2, v6=True)
    four = await world.target(3)
    world.path.follow(PLAN6)
    web = load_balancer(to(first), to(second), address=ADDRESS6)
    await world.forward(web, load_balancer(to(four), name="east/four"))
    assert world.path.serving(PLAN6) == {ADDRESS6: True}
    answers = {await world.ask(address=ADDRESS6) for _ in range(40)}
    assert answers == {(first, ADDRESS6), (second, ADDRESS6)}
    assert (await world.ask())[0] == four
    kept = await world.connect(address=ADDRESS6)
    chosen = (await echoed(*kept))[0]
    other = second if chosen == first else first
    await world.forward(load_balancer(to(chosen, draining=True), to(other), keep=True, address=ADDRESS6))
    assert {await world.ask(address=ADDRESS6) for _ in range(8)} == {(other, CLIENT6)}
    assert await echoed(*kept) == (chosen, ADDRESS6), "an open connection stays as it began"
    world.stop(other)
    await world.until(lambda: other not in world.table("map", "inet", "fairlead", "targets6"), "the dead target is out")
    await world.forward()
    with pytest.raises(ConnectionRefusedError):
        await world.connect(address=ADDRESS6)


@pytest.mark.parametrize("vip", [ADDRESS, ADDRESS6], ids=["IPv4", "IPv6"])
async def test_datagrams_are_forwarded(world: World, vip: str) -> None:
    v6 = ":" in vip
    address = world.site.add_target(1, v6=v6)
    loop = asyncio.get_running_loop()
    with (
        world.site.socket_at(world.site.targets, socket.SOCK_DGRAM, v6=v6) as target,
        world.site.socket_at(world.site.client, socket.SOCK_DGRAM, v6=v6) as client,
    ):
        target.bind((address, PORT))
        ports = (ForwardedPort(protocol=Protocol.UDP, port=53, targets=(to(address),)),)
        await world.forward(ForwardedLoadBalancer(kind="K", name="east/web", addresses=(vip,), ports=ports))
        assert world.path.serving(PLAN6 if v6 else PLAN) == {vip: True}
        client.connect((vip, 53))
        await loop.sock_sendall(client, b"question")
        async with asyncio.timeout(180):
            question, sender = await loop.sock_recvfrom(target, 100)
            await loop.sock_sendto(target, b"answer", sender)
            assert (question, await loop.sock_recv(client, 100)) == (b"question", b"answer")
