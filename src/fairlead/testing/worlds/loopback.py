"""Choose addresses that nothing else uses: random /24s of the loopback range, so that two worlds never meet."""

from __future__ import annotations

import random
import socket

from fairlead.errors import Terminal

_TRIES = 50


def free_network(port: int = 8080) -> str:
    """Return the first three parts of a loopback /24, such as ``127.42.7``, where ``port`` is free."""
    chooser = random.SystemRandom()
    for _ in range(_TRIES):
        network = f"127.{chooser.randint(10, 190)}.{chooser.randint(0, 255)}"
        if all(_free(f"{network}.{last}", port) for last in (1, 2, 11)):
            return network
    raise Terminal("There is no free loopback network on this machine; are many demos running?")


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port that is free right now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
