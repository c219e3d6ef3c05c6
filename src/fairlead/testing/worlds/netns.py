"""Network namespaces of Linux: run ``ip``, and be inside one for the length of a block. Needs root."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from fairlead.errors import Terminal

_CLONE_NEWNET = 0x40000000


def ip(*arguments: str) -> None:
    """Run ``ip``; ``Terminal`` says what it answered when it fails."""
    try:
        subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True)
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        answer = getattr(error, "stderr", "") or str(error)
        raise Terminal(f"ip {' '.join(arguments)}: {answer.strip()}") from error


@contextmanager
def inside(namespace: str) -> Generator[None]:
    """Be in a network namespace for the length of a block: this thread only, and what it starts."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        target = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
        try:
            _enter(target)
        finally:
            os.close(target)
        try:
            yield
        finally:
            _enter(before)
    finally:
        os.close(before)


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
