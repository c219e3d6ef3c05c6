"""Whether Envoy may open ports below 1024 when an ordinary user runs it; most Services ask for such ports.

In: who we are, the kernel's first unprivileged port, the capabilities of Envoy's file. Out: yes or no, and one sentence
that says how to allow it. Never changes a right.
Source: ip(7) for ip_unprivileged_port_start, capabilities(7) for security.capability.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

_HTTP = 80
#: The bit of CAP_NET_BIND_SERVICE, and the flag that a capability of a file is effective at once.
_NET_BIND_SERVICE, _EFFECTIVE = 1 << 10, 1
_DENIED = "Permission denied"
_NOT_LOCAL = "Cannot assign requested address"
_LOCAL_STEPS = (
    "Envoy's machine does not have that address: add its range there, with  ip route add local RANGE dev lo  as root, "
    "or take it out of the AddressPool or --address-pool and make the load balancer anew"
)


def may_open(port: int) -> bool:
    """Return whether this process, and so what it starts, may listen on a port."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno != errno.EACCES
    return True


def low_ports_problem(binary: Path) -> str:
    """Return one sentence when this Envoy may not open port 80; empty when it may."""
    if may_open(_HTTP) or _has_capability(binary):
        return ""
    what = "Envoy may not open ports below 1024 for this user, so Services that ask for one are not served"
    return f"{what}: {_steps(binary)}"


def explained(refusal: str, binary: Path | None = None) -> str:
    """Return what Envoy says of a port that it could not open, with the next step for a right or an address."""
    if "cannot bind" not in refusal:
        return refusal
    if _NOT_LOCAL in refusal:
        return f"{refusal} ({_LOCAL_STEPS})"
    return f"{refusal} ({_steps(binary)})" if _DENIED in refusal else refusal


def _steps(binary: Path | None) -> str:
    return (
        "use ports from 1024 on, or allow lower ones with  sysctl -w net.ipv4.ip_unprivileged_port_start=80  or  "
        f"setcap cap_net_bind_service=+ep {binary or 'ENVOY_BINARY'}  as root and restart Envoy"
    )


def _has_capability(binary: Path) -> bool:
    try:
        data = os.getxattr(binary, "security.capability")
    except OSError:
        return False
    return bool(data[0] & _EFFECTIVE and int.from_bytes(data[4:8], "little") & _NET_BIND_SERVICE)
