"""End what one machine runs: the hub of a data directory and its Envoys, which otherwise outlive the hub.

In: a data directory of ``fairlead standalone`` or ``fairlead hub``, which may be deleted already. Out: a line for each
process that was ended. Without a directory only Envoys are ended whose data directory is gone: nothing can adopt
these any more. Never ends the Envoy of a directory that exists and was not named.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from fairlead.errors import Terminal
from fairlead.providers.envoy.envoy_process import (
    Running,
    envoys_of,
    hub_of,
    local_envoys,
    running_as,
    stop_process,
    wait_gone,
)

#: A hub winds down in four seconds, and its API after it.
_HUB_S = 20.0


async def stop_machine(data_dir: Path) -> list[str]:
    """End hub and Envoys of a data directory; return what was ended, nothing when nothing ran.

    Raises:
        Terminal: one of them does not end.
    """
    ended: list[str] = []
    # The directory of ``fairlead standalone``, and one of ``fairlead hub``.
    for directory in (data_dir / "hub", data_dir):
        if pid := hub_of(directory):
            await _stop_hub(directory, pid)
            ended.append(f"hub {pid} of {directory}")
        for its, running in envoys_of(directory).items():
            await _stop_envoy(its, running)
            ended.append(f"Envoy {running.pid} of {its}")
    return ended


async def stop_orphans() -> tuple[list[str], list[Path]]:
    """End the Envoys whose data directory is gone; return what was ended, and the directories of the others."""
    ended: list[str] = []
    remaining: list[Path] = []
    for directory, running in sorted(local_envoys().items()):
        if directory.exists():
            remaining.append(directory)
            continue
        await _stop_envoy(directory, running)
        ended.append(f"Envoy {running.pid} of {directory}, which is gone")
    return ended, remaining


def orphans_problem() -> str:
    """Return one sentence about Envoys whose data directory is gone; empty when there are none."""
    missing = [str(directory) for directory in sorted(local_envoys()) if not directory.exists()]
    if not missing:
        return ""
    return f"Envoy still serves for {', '.join(missing)}, which is gone; end it with  fairlead standalone --stop"


async def _stop_hub(directory: Path, pid: int) -> None:
    hub = running_as(pid)
    if hub is None:
        return
    try:
        os.kill(pid, signal.SIGTERM)
    except PermissionError as error:
        raise Terminal(f"The hub {pid} of {directory} is another user's: stop it as that user.") from error
    except ProcessLookupError:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HUB_S):
            await wait_gone(hub)
            return
    raise Terminal(f"The hub {pid} of {directory} has not ended within {_HUB_S:g} s: end it with  kill -9 {pid}")


async def _stop_envoy(directory: Path, running: Running) -> None:
    try:
        await stop_process(running)
    except PermissionError as error:
        raise Terminal(f"The Envoy {running.pid} of {directory} is another user's: stop it as that user.") from error
