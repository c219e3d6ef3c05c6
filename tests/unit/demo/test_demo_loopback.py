"""Addresses and ports of a world are its own."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from fairlead.translate.addresses import PROXY_PORTS
from fairlead_demo.worlds import loopback
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.name_servers import Bind, binary


@pytest.mark.req("X-7")
@pytest.mark.parametrize("outgoing", ["32768\t60999", "1024 65535", "15000 64900", ""])
def test_a_free_port_is_none_that_the_kernel_or_a_hub_gives_away(
    outgoing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = tmp_path / "ip_local_port_range"
    if outgoing:
        setting.write_text(outgoing)
    monkeypatch.setattr(loopback, "_OUTGOING", setting)
    ports = {free_port() for _ in range(200)}
    assert ports.isdisjoint(PROXY_PORTS)
    if outgoing == "32768\t60999":
        assert min(ports) >= 61_000
    assert len(ports) == 200
    assert 65_535 not in loopback._candidates()


def test_a_port_that_is_in_use_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket() as unused, socket.socket(type=kind) as server:
            unused.bind(("127.0.0.1", 0))
            server.bind(("127.0.0.1", 0))
            taken, free = server.getsockname()[1], unused.getsockname()[1]
            unused.close()
            answers = iter([taken, free])
            monkeypatch.setattr("random.SystemRandom.choice", lambda *_, answers=answers: next(answers))
            assert free_port() == free


@pytest.mark.req("CORE-20")
def test_a_port_is_handed_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = 10_001, 10_002
    monkeypatch.setattr(loopback, "_handed_out", set())
    monkeypatch.setattr(loopback, "_free", lambda *_: True)
    answers = iter([first, first, second])
    monkeypatch.setattr("random.SystemRandom.choice", lambda *_: next(answers))
    assert (free_port(), free_port()) == (first, second)


@pytest.mark.req("CORE-20")
@pytest.mark.skipif(binary("named") is None, reason="BIND 9 is not installed: apt-get install bind9, as root")
async def test_a_name_server_that_lost_its_port_takes_another_one(tmp_path: Path) -> None:
    server = Bind(tmp_path / "bind")
    lost = server.port
    with socket.socket() as faster:
        faster.bind(("127.0.0.1", lost))
        faster.listen()
        try:
            await server.start()
            assert server.port != lost
            assert server.server.endswith(f":{server.port}")
            assert await server.ask(server.zone, "NS")
        finally:
            await server.kill()
