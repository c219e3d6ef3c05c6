"""Connections to one target are counted and closed, and those of others are kept."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Generator

import pytest

from fairlead.model.keys import TargetKey
from fairlead.providers.envoy.connections import ConnectionsTo, close_connections, count_connections

#: Python has no name for it.
IP_FREEBIND = 15
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="closing a connection needs CAP_NET_ADMIN")


@contextlib.contextmanager
def server(family: socket.AddressFamily, host: str) -> Generator[ConnectionsTo]:
    with socket.create_server((host, 0), family=family) as listening:
        yield ConnectionsTo(TargetKey(host, listening.getsockname()[1]))


@needs_root
@pytest.mark.req("F-4")
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_only_connections_of_the_process_to_the_target_are_closed(family: socket.AddressFamily, host: str) -> None:
    program = "import socket,sys; c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); print(1, flush=1); "
    program += "c.recv(1)"
    with server(family, host) as target, server(family, host) as other:
        elsewhere = socket.create_connection(other.target)
        mine = socket.create_connection(target.target)
        arguments = [sys.executable, "-c", program, target.target.address, str(target.target.port)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            assert count_connections([process.pid], [target, other]) == {target: 1}
            assert close_connections([process.pid], [target]) == {target: 1}
            assert process.wait(20) != 0
        assert not count_connections([process.pid], [target])
        assert count_connections([os.getpid()], [target]) == {target: 1}
        for connection in (mine, elsewhere):
            connection.setblocking(False)
            with pytest.raises(BlockingIOError):
                connection.recv(1)
            connection.close()


@pytest.mark.req("F-4", "MC-13")
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_connections_of_members_are_known_by_freebind(family: socket.AddressFamily, host: str) -> None:
    with server(family, host) as plain, socket.socket(family) as of_members, socket.socket(family) as other:
        of_members.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        of_members.connect(tuple(plain.target))
        shared, here = plain._replace(shared=True), [os.getpid()]
        assert count_connections(here, [plain, shared]) == {shared: 1}
        other.connect(tuple(plain.target))
        assert count_connections(here, [plain, shared]) == {plain: 1, shared: 1}


@pytest.mark.req("F-4")
def test_a_process_that_has_ended_has_no_connections() -> None:
    with server(socket.AF_INET, "127.0.0.1") as target:
        assert not count_connections([2**22 + 1], [target])
