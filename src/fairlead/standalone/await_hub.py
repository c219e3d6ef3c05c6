"""Waits for a hub that is just being started on this machine.

``fairlead standalone &`` returns at once; its kubeconfig, and then its kinds, are there some seconds later. Its data
directory shows it: a process locks it. In: the path of a kubeconfig, and what has to be true. Out: whether it
became true, within limits. Never: a wait for an API that no process of this machine serves from that directory.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from fairlead.runtime.clock import Clock, SystemClock

#: How long a hub that starts is waited for, in seconds.
WAIT_S = 30.0
#: How long an API without a hub may have until it shows that it is one.
_HUB_SHOWS_S = 5.0
_EVERY_S = 0.1


def is_locked(directory: Path) -> bool:
    """Return whether a living process of this machine keeps its state in ``directory``."""
    try:
        handle = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


async def await_hub(
    kubeconfig: Path | None, is_true: Callable[[], Awaitable[bool]], *, what: str, clock: Clock | None = None
) -> bool:
    """Return whether ``is_true`` became true; wait for it only while a hub starts in the directory of ``kubeconfig``.

    ``what`` names what is waited for, in one line on stderr, once the directory shows that it is a hub's.
    """
    if await is_true():
        return True
    if kubeconfig is None or not is_locked(kubeconfig.parent):
        return False
    clock = clock or SystemClock()
    began_s = clock.monotonic()
    announced = False
    while (waited_s := clock.monotonic() - began_s) < WAIT_S:
        if await is_true():
            return True
        is_hub = (kubeconfig.parent / "identity").exists()
        if not is_locked(kubeconfig.parent) or (waited_s > _HUB_SHOWS_S and not is_hub):
            return False
        if is_hub and not announced:
            announced = True
            sys.stderr.write(f"A hub is starting in {kubeconfig.parent}; waiting up to {WAIT_S:.0f} s for {what}.\n")
        await clock.sleep(_EVERY_S)
    return False
