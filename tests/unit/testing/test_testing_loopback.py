"""Addresses and ports of a world are its own."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from fairlead.testing.worlds.loopback import free_port


@pytest.mark.req("X-7")
def test_a_free_port_is_none_that_an_outgoing_connection_may_get() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = {free_port() for _ in range(200)}
    assert max(ports) < first
    assert min(ports) >= 10_000
    assert len(ports) > 190, "two worlds hardly ever choose the same"


def test_a_port_that_is_in_use_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = free_port(), free_port()
    answers = iter([taken, free])
    monkeypatch.setattr("random.SystemRandom.randint", lambda *_: next(answers))
    with socket.socket() as server:
        server.bind(("127.0.0.1", taken))
        assert free_port() == free
