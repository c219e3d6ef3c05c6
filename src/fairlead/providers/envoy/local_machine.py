"""The hubs with a local Envoy, and the local Envoys, that run on this machine.

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
_SEVERAL = "envoys-"


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


def wanted_directories(data_dir: Path, envoys: int) -> list[Path]:
    """Return where each of so many Envoys of a hub has its files; the only one has them beside the hub's."""
    return [data_dir / f"{_SEVERAL}{envoys}" / str(each) for each in range(1, envoys + 1)] if envoys > 1 else [data_dir]


def hub_directory(directory: Path) -> Path:
    """Return the data directory of the hub whose Envoy has its files in ``directory``."""
    number = directory.parent.name.removeprefix(_SEVERAL)
    several = number.isdigit() and directory.name.isdigit() and directory.parent.name != number
    return directory.parent.parent if several else directory


def local_envoys() -> dict[Path, Running]:
    """Return the local Envoys of this machine that we may see, by their directories, also those that are gone."""
    envoys: dict[Path, Running] = {}
    for process in Path("/proc").iterdir():
        # A process that ends meanwhile cannot be read.
        with contextlib.suppress(OSError):
            if not process.name.isdigit():
                continue
            command = process.joinpath("cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            directory = directory_of(tuple(map(os.fsdecode, command)))
            if directory is not None and (running := find_running(directory)) is not None:
                envoys[directory] = running
    return envoys


def envoys_of(data_dir: Path) -> dict[Path, Running]:
    """Return the Envoys of a hub's data directory by their directories, however many it had, also if that is gone."""
    theirs = {path for path in local_envoys() if hub_directory(path) == data_dir}
    there = {data_dir, *data_dir.glob(f"{_SEVERAL}*/*")} | theirs
    return {path: running for path in sorted(there) if (running := find_running(path)) is not None}


def directory_of(command: Sequence[str]) -> Path | None:
    """Return the directory of a local Envoy that was started with this command; None for any other command."""
    if FLAG not in command or "-c" not in command[:-1]:
        return None
    return Path(command[command.index("-c") + 1]).parent
