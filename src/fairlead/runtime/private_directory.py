"""A directory for what only this user may change: keys, a database, the socket that commands Envoy.

In: a path. Out: the directory, made if it is missing. One of ours that every user may write is closed to them, with a
warning; one that another user owns is refused, because that user can replace every file in it. An ``emptyDir`` of
Kubernetes is root's and open to all: who reaches it are the containers of the pod, so it is taken, with a warning.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import structlog

from fairlead.errors import BadConfiguration

log = structlog.get_logger(__name__)


def make_private(path: Path) -> None:
    """Make ``path`` with mode 0700 where it is missing, else see that no other user can replace its files.

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
            f"--data-dir: {path} belongs to user {there.st_uid}, who can replace every file in it: "
            f"chown {os.geteuid()} {path}, or choose another directory"
        )
    if not mode & stat.S_IWOTH:
        return
    if mode & stat.S_ISVTX:
        raise BadConfiguration(
            f"--data-dir: every user may write {path} (mode {mode:04o}): choose a directory in it, or chmod o-w {path}"
        )
    if not ours:
        log.warning("every user who reaches the data directory may write it", path=str(path))
        return
    path.chmod(mode & ~stat.S_IWOTH)
    log.warning("every user could write the data directory; only its owner and group may now", path=str(path))
