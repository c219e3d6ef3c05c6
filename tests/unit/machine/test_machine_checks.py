"""Whether an address may be announced: from the kernel's tables of sockets."""

from __future__ import annotations

import socket

import pytest

from fairlead.machine.checks import Socket, listening, load_balancers_with, serving, unhealthy_addresses
from fairlead.model.keys import Protocol
from fairlead.model.machine import AnnouncedAddress, MachinePlan

LISTENER = "TCPLoadBalancer/shop/web/TCP/80"
WEB = AnnouncedAddress(address="192.0.2.1", load_balancers=("shop/web",))
OPEN = Socket(Protocol.TCP, "192.0.2.1", 80)


def plan(*addresses: AnnouncedAddress) -> MachinePlan:
    return MachinePlan(machine="m1", version="1", addresses=addresses)


@pytest.mark.req("P-5")
@pytest.mark.parametrize(
    ("alive", "listeners", "sockets", "announced"),
    [
        (True, (LISTENER,), (OPEN,), True),
        (False, (LISTENER,), (OPEN,), False),
        (True, (LISTENER,), (), False),
        (True, (LISTENER,), (Socket(Protocol.TCP, "192.0.2.2", 80),), False),
        (True, (LISTENER,), (Socket(Protocol.UDP, "192.0.2.1", 80),), False),
        (True, (LISTENER, "TCPLoadBalancer/shop/web/TCP/443"), (OPEN,), True),
        (True, ("TCPLoadBalancer/other/web/TCP/80",), (), False),
        (True, ("TCPLoadBalancer/shop/web/UDP/53",), (Socket(Protocol.UDP, "192.0.2.1", 53),), True),
        (True, ("HTTPLoadBalancer/shop/web/http3/443",), (Socket(Protocol.UDP, "192.0.2.1", 443),), True),
        # The snapshot is lost, and Envoy goes on.
        (True, (), (OPEN,), True),
    ],
)
def test_an_address_serves_where_one_of_its_ports_is_open(
    alive: bool, listeners: tuple[str, ...], sockets: tuple[Socket, ...], announced: bool
) -> None:
    assert serving(plan(WEB), alive=alive, listeners=listeners, sockets=sockets) == {"192.0.2.1": announced}


@pytest.mark.req("P-5")
def test_ipv6_listeners_count_for_their_own_address() -> None:
    both = (WEB, AnnouncedAddress(address="2001:db8::1", load_balancers=("shop/web",)))
    names = (LISTENER, f"{LISTENER}/IPv6")
    answer = serving(plan(*both), alive=True, listeners=names, sockets=(Socket(Protocol.TCP, "2001:db8::1", 80),))
    assert answer == {"192.0.2.1": False, "2001:db8::1": True}


@pytest.mark.parametrize(
    ("family", "kind", "address"),
    [
        (socket.AF_INET, socket.SOCK_STREAM, "127.0.0.5"),
        (socket.AF_INET, socket.SOCK_DGRAM, "127.0.0.6"),
        (socket.AF_INET6, socket.SOCK_STREAM, "::1"),
        (socket.AF_INET6, socket.SOCK_DGRAM, "::1"),
    ],
)
def test_the_kernel_says_where_it_listens(family: int, kind: int, address: str) -> None:
    with socket.socket(family, kind) as server:
        server.bind((address, 0))
        protocol = Protocol.TCP if kind == socket.SOCK_STREAM else Protocol.UDP
        place = Socket(protocol, address, server.getsockname()[1])
        if protocol is Protocol.TCP:
            assert place not in listening(), "bound, but not listening"
            server.listen()
        assert place in listening()
    assert place not in listening()


@pytest.mark.req("P-20")
@pytest.mark.parametrize(
    ("asked", "keeper", "anycast", "healthy", "announced"),
    [
        (True, "m2", False, set[str](), False),
        (True, "m2", False, {"shop/web"}, True),
        (True, "m2", False, None, True),
        (False, "m2", False, set[str](), True),
        # The machine that the hub has chosen keeps it, unless it is served elsewhere, too.
        (True, "m1", False, set[str](), True),
        (True, "m1", True, set[str](), False),
        # No hub has chosen one: all of them could withdraw at once.
        (True, "", False, set[str](), True),
    ],
)
def test_without_a_healthy_target_all_but_one_machine_withdraw(
    asked: bool, keeper: str, anycast: bool, healthy: set[str] | None, announced: bool
) -> None:
    address = AnnouncedAddress(
        address="192.0.2.1",
        load_balancers=("shop/web",),
        machines=("m2", "m1"),
        keeper=keeper,
        anycast=anycast,
        withdraw_when_unhealthy=asked,
    )
    seen = frozenset(healthy) if healthy is not None else None
    answer = serving(plan(address), alive=True, listeners=(LISTENER,), sockets=(OPEN,), healthy=seen)
    assert answer == {"192.0.2.1": announced}
    expected = ("192.0.2.1",) if asked and healthy == set() else ()
    assert unhealthy_addresses(plan(address), seen) == expected


def test_targets_are_read_from_the_statistics_of_envoy() -> None:
    statistics = (
        "cluster.TCPLoadBalancer/shop/web/TCP/80.membership_healthy: 0\n"
        "cluster.TCPLoadBalancer/shop/web/TCP/443.membership_healthy: 2\n"
        "cluster.HTTPLoadBalancer/shop/site/backend/a.b.membership_healthy: 0\n"
        "cluster.HTTPLoadBalancer/shop/site/backend/a.b.membership_total: 3\n"
        "cluster.TCPLoadBalancer/shop/empty/TCP/80.membership_total: 0\n"
        "cluster.fairlead-xds.membership_healthy: 1\n"
    )
    assert load_balancers_with(statistics, "healthy") == {"shop/web"}
    assert load_balancers_with(statistics, "total") == {"shop/site"}
