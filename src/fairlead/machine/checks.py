"""Check what a proxy machine can do, and whether its Envoy serves an address: all from local facts.

    before the start    Envoy is installed, the process has CAP_NET_ADMIN and CAP_NET_RAW
    at the start        net.ipv4.ip_nonlocal_bind and its IPv6 counterpart: listeners open before the address is here
    four times a second the kernel listens at each port that Envoy has acknowledged: /proc/net, no connection is opened

An address that is not local yet cannot be connected to from here, and a connection would reach a backend. A socket in
the kernel's tables, in a process whose admin interface answers, takes connections.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, NamedTuple

from fairlead.errors import BadConfiguration
from fairlead.model.keys import Protocol
from fairlead.model.machine import MachinePlan
from fairlead.providers.envoy.envoy_process import find_binary
from fairlead.providers.envoy.resources import load_balancer_of

_STATUS = Path("/proc/self/status")
_NET = Path("/proc/self/net")
#: Pages of Envoy's admin interface, for ``sum_of`` and ``load_balancers_with``.
CONNECTIONS = (
    r"/stats?usedonly&filter=%5E(tcp|http|udp)%5C.%5BA-Za-z%5D%2B/.*%5C.downstream_(cx|sess)_(total|active)%24"
)
TARGETS = r"/stats?filter=%5Ecluster%5C.%5BA-Za-z%5D%2B/.*%5C.membership_(healthy|total)%24"
#: Bits of a set of capabilities.
_CAPABILITIES = {"NET_ADMIN": 12, "NET_RAW": 13}
_NONLOCAL = (Path("/proc/sys/net/ipv4/ip_nonlocal_bind"), Path("/proc/sys/net/ipv6/ip_nonlocal_bind"))
#: Listening TCP sockets and open UDP sockets, by their state in the kernel's tables.
_TABLES = (
    ("tcp", Protocol.TCP, "0A"),
    ("tcp6", Protocol.TCP, "0A"),
    ("udp", Protocol.UDP, ""),
    ("udp6", Protocol.UDP, ""),
)
_HTTP3 = "http3"


class Socket(NamedTuple):
    """A port that the kernel listens at."""

    protocol: Protocol
    address: str
    port: int


def check_machine() -> None:
    """Check what this process needs before anything is started.

    Raises:
        BadConfiguration: there is no Envoy, or a capability is missing.
    """
    find_binary()
    if missing := missing_capabilities():
        names = " and ".join(missing)
        raise BadConfiguration(
            f"this process lacks {names}, without which no address can be announced: run it as root, or add "
            f"AmbientCapabilities={names.replace(' and ', ' ')} to its unit"
        )


def missing_capabilities(status: Path = _STATUS) -> list[str]:
    """Return the capabilities that a process lacks to announce addresses."""
    lines = status.read_text(encoding="utf-8").splitlines()
    effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return [f"CAP_{name}" for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]


def allow_nonlocal_bind() -> None:
    """Let Envoy listen at addresses that this machine does not have yet.

    Raises:
        BadConfiguration: the kernel's setting cannot be written.
    """
    for path in _NONLOCAL:
        try:
            if path.read_text(encoding="ascii").strip() != "1":
                path.write_text("1\n", encoding="ascii")
        except FileNotFoundError:
            continue  # a kernel without IPv6
        except OSError as error:
            name = ".".join(path.parts[3:])
            raise BadConfiguration(
                f"{name} cannot be set ({error.strerror}); set it before the start: sysctl -w {name}=1"
            ) from error


def listening() -> frozenset[Socket]:
    """Return the ports that the kernel listens at, in the network of this process."""
    return frozenset(socket for file, protocol, state in _TABLES for socket in _sockets(file, protocol, state))


def _sockets(file: str, protocol: Protocol, state: str) -> Iterator[Socket]:
    try:
        table = (_NET / file).open(encoding="ascii")
    except FileNotFoundError:
        return
    with table:
        next(table, None)
        for line in table:
            fields = line.split()
            if state and fields[3] != state:
                return  # those that listen come first, and of connections there may be thousands
            address, _, port = fields[1].partition(":")
            yield Socket(protocol, _address(address), int(port, 16))


def _address(figures: str) -> str:
    """Read an address of the tables: every four bytes are in the machine's byte order."""
    parts = (int(figures[start : start + 8], 16) for start in range(0, len(figures), 8))
    return str(ip_address(b"".join(part.to_bytes(4, sys.byteorder) for part in parts)))


def sum_of(statistics: str, kind: Literal["total", "active"]) -> int:
    """Return how many connections, and sessions of UDP, Envoy has taken since it was started, or has now."""
    lines = (line.rpartition(": ") for line in statistics.splitlines())
    return sum(int(value) for name, _, value in lines if name.endswith(f"_{kind}") and value.isdigit())


def load_balancers_with(statistics: str, counted: Literal["healthy", "total"]) -> frozenset[str]:
    """Return ``namespace/name`` of each load balancer with a target, or with one that Envoy sees healthy."""
    counter = f".membership_{counted}"
    lines = (line.rpartition(": ") for line in statistics.splitlines())
    counts = ((name, value) for name, _, value in lines if name.endswith(counter))
    clusters = (name.removeprefix("cluster.") for name, value in counts if value.isdigit() and value != "0")
    return frozenset(owner for cluster in clusters if (owner := _owner(cluster)))


def serving(
    plan: MachinePlan,
    *,
    alive: bool,
    listeners: Iterable[str],
    sockets: Iterable[Socket],
    healthy: frozenset[str] | None = None,
) -> Mapping[str, bool]:
    """Return whether each address of the plan may be announced here: one of its ports is open at least.

    ``listeners`` are the names that Envoy has acknowledged. A port that Envoy rejects does not affect the others of
    its address: every machine may reject it. ``healthy`` are the load balancers with a healthy target, None if unknown:
    they count where the plan asks for it.
    """
    ports: dict[str, set[tuple[Protocol, int]]] = {}
    for name in listeners:
        if (port := _port_of(name)) is not None:
            ports.setdefault(_owner(name), set()).add(port)
    open_at: dict[str, set[tuple[Protocol, int]]] = {}
    for socket in sockets:
        open_at.setdefault(socket.address, set()).add((socket.protocol, socket.port))
    unhealthy = frozenset(unhealthy_addresses(plan, healthy))
    answer: dict[str, bool] = {}
    for planned in plan.addresses:
        expected = {port for owner in planned.load_balancers for port in ports.get(owner, ())}
        there = open_at.get(planned.address, set())
        # Without the names, after a lost snapshot, what an Envoy that lives has open counts.
        listening = alive and bool(there & expected if expected else there)
        healthy_here = planned.address not in unhealthy
        answer[planned.address] = planned.may_announce(plan.machine, listening=listening, healthy=healthy_here)
    return answer


def unhealthy_addresses(plan: MachinePlan, healthy: frozenset[str] | None) -> tuple[str, ...]:
    """Return the addresses without a healthy target in Envoy, where the plan requires one; none if unknown."""
    return tuple(
        planned.address
        for planned in plan.addresses
        if healthy is not None and planned.withdraw_when_unhealthy and healthy.isdisjoint(planned.load_balancers)
    )


def _owner(name: str) -> str:
    """Return ``namespace/name`` of the load balancer of a listener, as a plan has it."""
    key = load_balancer_of(name)
    return f"{key.namespace}/{key.name}" if key is not None else ""


def _port_of(name: str) -> tuple[Protocol, int] | None:
    """Read protocol and port from the name of a listener; None when it is another name."""
    parts = name.split("/")
    if len(parts) < 5 or not parts[4].isdigit():
        return None
    if parts[3] == _HTTP3:
        return Protocol.UDP, int(parts[4])
    return (Protocol(parts[3]), int(parts[4])) if parts[3] in tuple(Protocol) else None
