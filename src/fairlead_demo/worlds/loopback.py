"""Choose addresses and ports that nothing else uses: random ones, so that two worlds never meet.

Out: /24s of the loopback range, and ports that neither the kernel gives to outgoing connections nor a hub to proxies.
One of these could be taken between the moment it is found free and the moment a process listens there, and then
another world's process may answer in its place.
"""

from __future__ import annotations

import random
import socket
from functools import cache
from pathlib import Path

from fairlead.errors import Terminal
from fairlead.providers.envoy.envoy_process import may_open
from fairlead.translate.addresses import PROXY_PORTS

_TRIES = 50
_FIRST_PORT, _ENOUGH = 2_000, 1_000
_INSTEAD = 8_000
#: Every port that this process has been given.
_handed_out: set[int] = set()
_OUTGOING, _USUAL_END = Path("/proc/sys/net/ipv4/ip_local_port_range"), 65_535


def free_network(port: int = 8080) -> str:
    """Return the first three parts of a loopback /24, such as ``127.42.7``, where ``port`` is free."""
    chooser = random.SystemRandom()
    for _ in range(_TRIES):
        network = f"127.{chooser.randint(10, 190)}.{chooser.randint(0, 255)}"
        if all(_free(f"{network}.{last}", port) for last in (1, 2, 11)):
            return network
    raise Terminal("There is no free loopback network on this machine; are many demos running?")


@cache
def service_port(number: int) -> int:
    """Return the port to use for Service port ``number``: 8000 more when this user may not listen on it."""
    return number if may_open(number) else number + _INSTEAD


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that is free now for TCP and UDP, and that neither the kernel nor a hub gives to another process.

    A process never gets the same port twice: nothing may listen at the first one yet when the second is asked for.
    """
    chooser = random.SystemRandom()
    ports = _candidates()
    for _ in range(_TRIES):
        port = chooser.choice(ports)
        if port not in _handed_out and _free(host, port) and _free(host, port, socket.SOCK_DGRAM):
            _handed_out.add(port)
            return port
    raise Terminal(f"No port from {ports[0]} to {ports[-1]} is free at {host}.")


def _candidates() -> range:
    """Return the ports above those for outgoing connections, or those below a hub's where these reach the end."""
    try:
        last = int(_OUTGOING.read_text(encoding="ascii").split()[1])
    except OSError:
        last = _USUAL_END
    above = range(last + 1, 65_535)  # BIND rejects the last port
    return above if len(above) >= _ENOUGH else range(_FIRST_PORT, PROXY_PORTS.start)


def _free(host: str, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
