"""The process that has a port, named exactly: one machine may have several hubs and several Envoys."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from fairlead.standalone.hub_process import PortOwner, owner_of, taken_ports

BIND = "Error adding/updating listener(s) a: cannot bind '127.200.0.{}:80': Address already in use"
ENVOY = ("/x/envoy", "-c", "/var/lib/first/bootstrap.json", "--disable-hot-restart", "--concurrency", "2")


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_the_owner_of_a_port_is_found(kind: socket.SocketKind, address: str) -> None:
    family, asked = (socket.AF_INET6, "[::1]") if ":" in address else (socket.AF_INET, "127.0.0.1")
    with socket.socket(family, kind) as taken:
        taken.bind((address, 0))
        if kind is socket.SOCK_STREAM:
            taken.listen()
        port = taken.getsockname()[1]
        owner = owner_of(f"{asked}:{port}")
        assert owner is not None
        assert owner.pid == os.getpid()
        assert Path(owner.command[0]).name == Path(sys.executable).name
    assert owner_of(f"{asked}:{port}") is None
    assert owner_of("nonsense") is None


def test_whose_ports_these_are_is_one_sentence() -> None:
    refused = [BIND.format(1), "refused for another reason", BIND.format(2)]
    sentence = taken_ports(refused, lambda place: PortOwner(4711, ENVOY) if place == "127.200.0.1:80" else None)
    assert "cannot open 127.200.0.1:80 and 1 more: another hub's Envoy has it" in sentence
    assert "process 4711, --data-dir /var/lib/first)" in sentence
    assert "process 5 (nginx) uses it" in taken_ports(refused, lambda _: PortOwner(5, ("/usr/sbin/nginx", "-g")))
    assert "another process of this machine uses it" in taken_ports(refused, lambda _: None)
    assert taken_ports(["refused for another reason"], lambda _: None) == ""
