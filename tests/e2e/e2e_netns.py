"""Where do backends live when loopback addresses are refused? In a network namespace of the tests' own.

The whole test process enters it (and so do its children), and all of ``10.66.0.0/16`` is local there: any address of it
can be bound without being configured.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_CLONE_NEWNET = 0x40000000
LOCAL_RANGE = "10.66.0.0/16"


@contextmanager
def own_network() -> Iterator[None]:
    """Be in a network namespace of our own inside the block; only this thread, and what it starts, is."""
    name = f"fairlead-{os.getpid()}-{secrets.token_hex(3)}"
    _ip("netns", "add", name)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    inside = os.open(f"/var/run/netns/{name}", os.O_RDONLY)
    try:
        _enter(inside)
        _ip("link", "set", "lo", "up")
        _ip("route", "add", "local", LOCAL_RANGE, "dev", "lo")
        yield
    finally:
        _enter(before)
        os.close(before)
        os.close(inside)
        _ip("netns", "delete", name)


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True)
