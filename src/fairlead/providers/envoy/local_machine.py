"""Which hubs with a local Envoy, and which local Envoys, run on this machine?

In: locks on data directories, and the command lines of processes. Out: process ids. Never starts or ends anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from fairlead.providers.envoy.envoy_process import Running, find_running

#: No other Envoy has this flag.
FLAG = "--disable-hot-restart"
#: Locked by the hub of the data directory; holds its process id.
LOCK = "lock"


def hub_of(data_dir: Path) -> int:
    """Return the process id of the hub that holds the data directory, 0 when none does."""
    try:
        with (data_dir / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = (data_dir / LOCK).read_text().strip()
        return int(text) if text.isdigit() else 0
    except OSError:
        return 0
    return 0


def local_envoys() -> dict[Path, Running]:
    """Return the local Envoys of this machine that we may see, by their data directories, also those that are gone."""
    envoys: dict[Path, Running] = {}
    for process in Path("/proc").iterdir():
        # A process that ends meanwhile cannot be read.
        with contextlib.suppress(OSError):
            if not process.name.isdigit():
                continue
            command = process.joinpath("cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            directory = data_dir_of(tuple(map(os.fsdecode, command)))
            if directory is not None and (running := find_running(directory)) is not None:
                envoys[directory] = running
    return envoys


def data_dir_of(command: Sequence[str]) -> Path | None:
    """Return the data directory of a local Envoy that was started with this command; None for any other command."""
    if FLAG not in command or "-c" not in command[:-1]:
        return None
    return Path(command[command.index("-c") + 1]).parent
