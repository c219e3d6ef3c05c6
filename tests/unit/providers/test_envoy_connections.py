"""Connections to one target are counted and closed, and those of others are kept."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Generator
from types import SimpleNamespace

import pytest

from fairlead.model.desired import Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.providers.envoy import connections
from fairlead.providers.envoy.clusters import EndpointSet
from fairlead.providers.envoy.connections import (
    ConnectionsTo,
    Drains,
    Place,
    close_connections,
    count_connections,
    may_borrow_sockets,
)
from fairlead.providers.envoy.resources import DrainLimit, cluster_name, packaged_schema

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
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("traces", [False, True])
def test_only_connections_of_the_process_to_the_target_are_closed(
    monkeypatch: pytest.MonkeyPatch, family: socket.AddressFamily, host: str, reset: bool, traces: bool
) -> None:
    """A copy of the socket is closed or reset; without one, the kernel destroys the connection."""
    if not traces:
        monkeypatch.setattr(connections, "_copy_of", refuse)
    program = "import socket,sys; c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); print(1, flush=1); "
    program += "sys.exit(3 if c.recv(1) else 0)"
    with server(family, host) as target, server(family, host) as other:
        elsewhere = socket.create_connection(other.target)
        mine = socket.create_connection(target.target)
        arguments = [sys.executable, "-c", program, target.target.address, str(target.target.port)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            assert count_connections([process.pid], [target, other]) == {target: 1}
            assert close_connections([process.pid], [target], reset=reset) == {target: 1}
            assert process.wait(20) == (0 if traces and not reset else 1)
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


@pytest.mark.req("F-4")
def test_a_shortage_of_files_is_not_remembered_as_a_missing_right(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(_pid: int, _descriptor: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    # No process has this number, so nothing is remembered of it.
    pid = 2**22 + 2
    monkeypatch.setattr(connections, "_copy_of", exhausted)
    assert not may_borrow_sockets(pid)
    monkeypatch.setattr(connections, "_copy_of", lambda _pid, _descriptor: -1)
    assert may_borrow_sockets(pid)


def refuse(pid: int, _descriptor: int) -> int:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), pid)


HTTP, OTHER = (LoadBalancerKey("HTTPLoadBalancer", "shop", name) for name in ("web", "web-2"))
TARGET, ANOTHER = (ConnectionsTo(TargetKey(f"10.0.0.{number}", 8080)) for number in (1, 2))


class Proxies:
    """Drains of proxies whose kernel answers as the test says, with a clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.open = Counter({TARGET: 3, ANOTHER: 2})
        self.closed: list[ConnectionsTo] = []
        self.reset: list[ConnectionsTo] = []
        self.failing = ""
        self.error = errno.ENOBUFS
        self.places: dict[Place, bool] = {}
        clock = SimpleNamespace(monotonic=lambda: self.now_s, time=lambda: self.now_s)
        monkeypatch.setattr(connections, "time", clock)
        monkeypatch.setattr(connections, "count_connections", lambda _pids, groups: self._answer("count", groups))
        monkeypatch.setattr(connections, "close_connections", self._close)
        self.drains = Drains(
            pids=lambda _groups: [1],
            places_of=lambda targets, _groups: (
                (place, draining) for place, draining in self.places.items() if place[1].target in targets
            ),
            changed=lambda _keys: None,
        )

    def _close(
        self, _pids: Collection[int], groups: Collection[ConnectionsTo], *, reset: bool = False
    ) -> Counter[ConnectionsTo]:
        self.reset += groups if reset else ()
        return self._answer("close", groups)

    def _answer(self, what: str, groups: Collection[ConnectionsTo]) -> Counter[ConnectionsTo]:
        if what == self.failing:
            raise OSError(self.error, "no")
        if what == "close":
            self.closed += groups
        return Counter({group: self.open[group] for group in groups})

    def drain(self, place: Place, drain_s: float, *groups: str, reset: bool = True) -> None:
        self.places[place] = True
        self.drains.note(place, groups or ("g",), DrainLimit(drain_s, reset), drains=True)

    async def look(self, at_s: float) -> None:
        self.now_s = at_s
        await self.drains._look()


@pytest.fixture
async def proxies(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Proxies]:
    made = Proxies(monkeypatch)
    yield made
    made.drains.close()


def place(key: LoadBalancerKey, backend: str, group: ConnectionsTo = TARGET) -> Place:
    return cluster_name(key, backend), group


@pytest.mark.req("F-4")
@pytest.mark.parametrize("others", [("g",), ("g", "h")])
async def test_connections_are_closed_when_the_last_drain_of_their_target_is_over(
    proxies: Proxies, others: tuple[str, ...]
) -> None:
    proxies.drain(place(HTTP, "a"), 10.0)
    proxies.drain(place(OTHER, "a"), 10.5, *others)
    await proxies.look(10.0)
    assert not proxies.closed, "the other load balancer still drains"
    await proxies.look(10.5)
    assert set(proxies.closed) == {TARGET}
    assert not proxies.drains.figures()


@pytest.mark.req("F-4")
@pytest.mark.parametrize("answers", [False, True])
async def test_connections_are_closed_first_and_reset_when_an_end_stays(proxies: Proxies, answers: bool) -> None:
    proxies.drain(place(HTTP, "a"), 10.0, reset=False)
    await proxies.look(10.0)
    assert (proxies.closed, proxies.reset) == ([TARGET], [])
    assert proxies.drains.figures()[HTTP].connections == 3
    proxies.open[TARGET] = 0 if answers else 1
    await proxies.look(11.0)
    assert bool(proxies.drains.figures()) is not answers
    await proxies.look(20.0)
    assert proxies.reset == ([] if answers else [TARGET])
    assert not proxies.drains.figures()


@pytest.mark.req("F-4")
@pytest.mark.parametrize("limit", [None, DrainLimit(30.0), DrainLimit(0.0, reset=True)])
def test_a_proxy_machine_reads_how_a_drain_ends_from_the_endpoints(limit: DrainLimit | None) -> None:
    endpoints = EndpointSet([Target(TARGET.target, draining=True), Target(ANOTHER.target)])
    endpoints.configure(0, limit)
    assignment = packaged_schema().read_assignment(endpoints.assignment("web"))
    assert assignment == ({TARGET.target: (True, limit), ANOTHER.target: (False, None)}, False)


@pytest.mark.req("F-4")
async def test_connections_of_a_target_that_serves_elsewhere_are_kept(proxies: Proxies) -> None:
    proxies.drain(place(HTTP, "a"), 10.0)
    proxies.places[place(OTHER, "a")] = False
    await proxies.look(10.0)
    assert (proxies.closed, proxies.drains.figures()) == ([], {})


@pytest.mark.req("F-4")
async def test_connections_that_several_ports_share_are_counted_once(proxies: Proxies) -> None:
    for where in (place(HTTP, "a"), place(HTTP, "b"), place(HTTP, "a", ANOTHER), place(OTHER, "a")):
        proxies.drain(where, 10.0)
    await proxies.look(1.0)
    figures = proxies.drains.figures()
    assert {key: (shown.targets, shown.connections) for key, shown in figures.items()} == {HTTP: (2, 5), OTHER: (1, 3)}
    assert [metric.samples[0].value for metric in proxies.drains.collect()] == [2, 5]


@pytest.mark.req("F-4")
@pytest.mark.parametrize("failing", ["count", "close"])
async def test_a_kernel_that_does_not_answer_leaves_the_last_count(proxies: Proxies, failing: str) -> None:
    proxies.drain(place(HTTP, "a"), 10.0)
    proxies.drain(place(OTHER, "a", ANOTHER), 20.0)
    await proxies.look(1.0)
    proxies.failing, proxies.open = failing, Counter({ANOTHER: 1})
    await proxies.look(10.0)
    assert {key: shown.connections for key, shown in proxies.drains.figures().items()} == (
        {OTHER: 2} if failing == "count" else {HTTP: 3, OTHER: 1}
    )


@pytest.mark.req("F-4")
async def test_a_process_that_may_not_close_connections_gives_up(proxies: Proxies) -> None:
    proxies.failing, proxies.error = "close", errno.EPERM
    for error in (errno.EPERM, errno.ENOBUFS):
        proxies.error = error
        proxies.drain(place(HTTP, "a"), 10.0)
        for _ in range(30 if error == errno.ENOBUFS else 1):
            await proxies.look(proxies.now_s + 60.0)
        assert not proxies.drains._drains
        proxies.drains._ended.clear()


@pytest.mark.req("F-4")
@pytest.mark.parametrize("reset", [False, True])
async def test_connections_that_could_not_be_closed_are_closed_later(proxies: Proxies, reset: bool) -> None:
    proxies.drain(place(HTTP, "a"), 10.0, reset=reset)
    proxies.failing = "close"
    for at_s in (10.0, 11.0, 12.9):
        await proxies.look(at_s)
        assert proxies.drains.figures()[HTTP].targets == 1
    proxies.failing = ""
    await proxies.look(12.9)
    assert not proxies.closed, "the next attempt is two seconds after the second one"
    await proxies.look(13.0)
    assert (proxies.closed, bool(proxies.reset)) == ([TARGET], reset)
