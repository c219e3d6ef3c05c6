"""Write a file that only its owner may read, in one step: no reader sees half of it, or sees it before it is private.

In: a path and its content. Out: the file with mode 0600; a directory with mode 0700, and its lock.
Never: leaves the old content half replaced, or a second copy.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import IO

import structlog

from fairlead.errors import BadConfiguration


def write_private(path: Path, content: str | bytes) -> None:
    """Replace ``path``, or the file that it links to, by ``content``; text is written as UTF-8.

    Raises:
        OSError: its directory is missing or cannot be written.
    """
    path = path.resolve()
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        error.filename = str(path)  # the name of the file that was meant, not of the temporary file
        raise
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def readable_by_others(mode: int) -> bool:
    """Return whether a regular file of this mode can be read by its group or by all."""
    return stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))


log = structlog.get_logger(__name__)


def make_private(path: Path, *, option: str = "--data-dir") -> None:
    """Make ``path`` with mode 0700 where it is missing, else see that no other user can replace its files.

    ``option`` is the one that named it, for messages.
    A group may write: volumes of Kubernetes belong to root and to the group of their pod.

    Raises:
        BadConfiguration: another user than root owns it, or it is shared by all users, as /tmp is.
        OSError: it cannot be made or read.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    there = path.stat()
    mode, ours = stat.S_IMODE(there.st_mode), there.st_uid == os.geteuid()
    if not ours and there.st_uid != 0:
        raise BadConfiguration(
            f"{option}: {path} belongs to user {there.st_uid}, who can replace every file in it: "
            f"chown {os.geteuid()} {path}, or choose another directory"
        )
    if not mode & stat.S_IWOTH:
        return
    if mode & stat.S_ISVTX:
        raise BadConfiguration(
            f"{option}: every user may write {path} (mode {mode:04o}): choose a directory in it, or chmod o-w {path}"
        )
    if not ours:
        log.warning("every user who reaches the data directory may write it", path=str(path))
        return
    path.chmod(mode & ~stat.S_IWOTH)
    log.warning("every user could write the data directory; only its owner and group may now", path=str(path))


class DirectoryLock:
    """The lock of one private directory, not taken yet: the file ``name`` in it, with the id of the process.

    ``option`` names the directory, ``unusable`` is the next step where it cannot be used, and ``taken`` the sentence
    where another process has it.
    """

    def __init__(self, path: Path, *, option: str, name: str, unusable: str, taken: str) -> None:
        self._path = path
        self._option = option
        self._name = name
        self._unusable = unusable
        self._taken = taken
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Make the directory if it is missing, and take the lock; once it is ours, that does nothing.

        Raises:
            BadConfiguration: another process has it, or the directory cannot be used.
        """
        if self._file is not None:
            return
        try:
            make_private(self._path, option=self._option)
            lock = (self._path / self._name).open("a+")
        except OSError as error:
            raise BadConfiguration(
                f"{self._option}: {self._path} cannot be used ({error.strerror}); {self._unusable}"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise BadConfiguration(self._taken) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._file = lock

    def release(self) -> None:
        """Let the next process have the directory."""
        if self._file is not None:
            self._file.close()
            self._file = None
