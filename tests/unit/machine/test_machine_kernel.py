"""The kernel data path of a machine without a kernel: what it keeps, what it says, and how it checks targets."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path

import msgspec

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
from tests.worlds.listening import listening

VIP = "192.0.2.10"


def table(version: str, *names: str) -> ForwardingTable:
    targets = (ForwardedTarget(address="127.0.0.1", port=9),)
    ports = (ForwardedPort(protocol=Protocol.TCP, port=80, targets=targets),)
    return ForwardingTable(
        version=version,
        load_balancers=tuple(
            ForwardedLoadBalancer(kind="K", name=name, addresses=(VIP,), ports=ports) for name in names
        ),
    )


def plan(*load_balancers: str) -> MachinePlan:
    announced = AnnouncedAddress(address=VIP, announcement="L2", machines=("m1",), load_balancers=load_balancers)
    return MachinePlan(machine="m1", version="1", addresses=(announced,))


def path(file: Path) -> KernelPath:
    return KernelPath(file, on_change=lambda: None)


def test_a_table_survives_the_process(tmp_path: Path):
    file = tmp_path / "forwarding.json"
    file.write_bytes(msgspec.json.encode(table("life-7", "east/web")))
    later = path(file)
    later.load()
    assert later.version == "life-7"
    file.write_bytes(b"half a fi")
    damaged = path(file)
    damaged.load()
    assert damaged.version == ""


def test_what_the_kernel_has_not_taken_yet_is_unknown(tmp_path: Path):
    mine = path(tmp_path / "forwarding.json")
    mine.update(table("life-1", "east/web"))
    assert mine.serving(plan("east/web")) == {VIP: None}
    assert mine.serving(plan("east/other")) == {}, "addresses of Envoy are left to Envoy"
    assert mine.state.version == ""


async def test_a_target_answers_when_it_accepts_a_connection():
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with listening(server) as port:
        assert await kernel.answers("127.0.0.1", port)
    assert not await kernel.answers("127.0.0.1", port)


async def test_a_target_that_does_not_answer_is_asked_twice():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.socket() as first, socket.socket() as second:
            # The queue of a server that accepts nothing.
            for client in (first, second):
                client.setblocking(False)
                client.connect_ex(full.getsockname())
            assert not await kernel.answers(*full.getsockname())


def test_a_deleted_table_is_noticed_among_other_events():
    def message(kind: int) -> bytes:
        return struct.pack("=IHHII", 20, kind, 0, 0, 0) + b"\0" * 4

    assert not kernel.has_deleted_table(message(10 << 8 | 12) + message(10 << 8 | 15))
    assert kernel.has_deleted_table(message(10 << 8 | 12) + message(10 << 8 | 2))
