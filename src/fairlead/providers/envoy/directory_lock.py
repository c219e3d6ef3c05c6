"""The lock that a hub holds on its data directory.

In: the directory, which is made if it is missing. Out: a lock on the file ``lock`` in it for the life of a process;
the file holds that process's id, which ``local_machine`` reads. One hub, and its Envoys, for each directory.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from fairlead.errors import BadConfiguration
from fairlead.providers.envoy.local_machine import LOCK
from fairlead.runtime.private_directory import make_private


class DirectoryLock:
    """The lock of one data directory, not taken yet."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Take the lock; once it is ours, that does nothing.

        Raises:
            BadConfiguration: another process has it, or the directory cannot be used.
        """
        if self._file is not None:
            return
        try:
            make_private(self._data_dir)
            lock = (self._data_dir / LOCK).open("a+")
        except OSError as error:
            raise BadConfiguration(
                f"--data-dir: {self._data_dir} cannot be used ({error.strerror}); make it writable or choose another"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise BadConfiguration(
                f"another hub uses the data directory {self._data_dir} and the Envoy in it: stop that hub first; a hub "
                "for another API needs a --data-dir and an --address-pool of its own"
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._file = lock

    def release(self) -> None:
        """Let the next hub have it."""
        if self._file is not None:
            self._file.close()
            self._file = None
