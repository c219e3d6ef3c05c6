"""Write a file that only its owner may read, in one step: no reader sees half of it, or sees it before it is private.

In: a path and its content. Out: the file with mode 0600. Never: leaves the old content half replaced, or a second copy.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def write_private(path: Path, content: str | bytes) -> None:
    """Replace ``path``, or the file that it links to, by ``content``; text is written as UTF-8.

    Raises:
        OSError: its directory is missing or cannot be written.
    """
    path = path.resolve()
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        error.filename = str(path)  # the name of the file that was meant, not of the one beside it
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
