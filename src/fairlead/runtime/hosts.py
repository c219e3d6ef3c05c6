"""The host names that name this machine in a request: others may have been made to point here (DNS rebinding)."""

from __future__ import annotations

from ipaddress import ip_address


def is_this_machine(host: str) -> bool:
    """Return whether the host of a request, with its port, is an address in figures, or localhost."""
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Return whether only processes of this machine reach a socket that listens on ``address``."""
    if address.lower() == "localhost":
        return True
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
