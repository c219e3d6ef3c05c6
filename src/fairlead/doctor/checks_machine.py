"""Checks that an Envoy on this machine can open what it needs.

In: facts about this machine. Out: findings about Envoy, limits, ports and directories.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api.kubernetes import SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.doctor.facts import Facts
from fairlead.doctor.finding import Finding, error, warning
from fairlead.doctor.reading import items, spec

#: Below this an Envoy runs out of files with some thousand listeners and their connections.
FEW_FILES = 65_536
_LITTLE_SPACE = 256 << 20
#: Each connection of a proxy to a target takes a port of this range.
_FEW_PORTS = 16_384


def envoy(facts: Facts) -> Iterator[Finding]:
    """Say that there is no Envoy to start."""
    if facts.machine is not None and facts.machine.envoy_problem:
        yield error("Envoy", facts.machine.envoy_problem, "pip install 'fairlead[standalone]'")


def low_ports(facts: Facts) -> Iterator[Finding]:
    """Say that ports below 1024 may not be opened."""
    if facts.machine is not None and facts.machine.low_ports_problem:
        yield warning(
            "ports below 1024", facts.machine.low_ports_problem, "sysctl -w net.ipv4.ip_unprivileged_port_start=80"
        )


def files(facts: Facts) -> Iterator[Finding]:
    """Say that a process may open few files."""
    if facts.machine is not None and facts.machine.file_limit < FEW_FILES:
        fault = f"a process may open {facts.machine.file_limit} files; each connection takes two"
        yield warning("limit of open files", fault, "ulimit -Hn 1048576   or LimitNOFILE=1048576 in the unit")


def outgoing_ports(facts: Facts) -> Iterator[Finding]:
    """Say that few ports are left for connections to targets, or that listeners are among them."""
    if facts.machine is None:
        return
    first, last = facts.machine.ephemeral_ports
    if last - first + 1 < _FEW_PORTS:
        fault = f"only {last - first + 1} ports are for outgoing connections ({first} to {last})"
        yield warning("net.ipv4.ip_local_port_range", fault, 'sysctl -w net.ipv4.ip_local_port_range="32768 60999"')
    listened = _listened(facts)
    among = sorted(port for port in listened if first <= port <= last)
    if among:
        fault = f"load balancers listen at {', '.join(map(str, among[:3]))}, which outgoing connections may take first"
        yield warning("net.ipv4.ip_local_port_range", fault, f"sysctl -w net.ipv4.ip_local_reserved_ports={among[0]}")


def directory(facts: Facts) -> Iterator[Finding]:
    """Say that the data directory cannot be used, or is nearly full."""
    machine = facts.machine
    if machine is None or not machine.data_dir:
        return
    if machine.data_dir_problem:
        yield error(machine.data_dir, machine.data_dir_problem, f"install -d -m 0700 -o $USER {machine.data_dir}")
    elif machine.free_bytes < _LITTLE_SPACE:
        fault = f"{machine.free_bytes >> 20} MiB are free where it is"
        yield warning(machine.data_dir, fault, f"df -h {machine.data_dir}")


def lost_envoys(facts: Facts) -> Iterator[Finding]:
    """Name Envoys whose directory is gone: nothing configures them, and they serve on."""
    for data_dir in facts.machine.lost_envoys if facts.machine else ():
        fault = "an Envoy runs whose directory is gone; nothing configures it any more"
        yield warning(data_dir, fault, f"fairlead standalone --stop --data-dir {data_dir}")


def _listened(facts: Facts) -> set[int]:
    hub = facts.hub
    if hub is None or hub.list(SERVICES):
        return set()  # proxies in a cluster have a network of their own
    return {int(port.get("port", 0)) for lb in hub.list(TCP_LOAD_BALANCERS) for port in items(spec(lb).get("ports"))}
