"""Writes the key of a tenant into a file that only its owner can read, or to stdout with a warning.

In: the key, and a path or none. Out: the file, or stdout; sentences on stderr. Never: a key in a message.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fairlead.errors import BadConfiguration
from fairlead.runtime.private_file import readable_by_others, write_private


def check_output(output: Path | None) -> None:
    """Refuse a file that cannot be written, before anything is done at the hub.

    Raises:
        BadConfiguration: names the path and what is wrong with it.
    """
    if output is None:
        return
    path = output.expanduser()
    if path.is_dir():
        raise BadConfiguration(f"--output: {path} is a directory; name a file in it")
    directory = path.resolve().parent
    if not directory.is_dir():
        raise BadConfiguration(f"--output: {directory} does not exist; make it, or name another file")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise BadConfiguration(f"--output: {directory} cannot be written by this user; name another file")


def hand_over(key: str, output: Path | None) -> None:
    """Write the key to ``output``, else print it."""
    if output is not None:
        path = output.expanduser()
        try:
            write_private(path, key)
        except OSError as error:
            raise BadConfiguration(
                f"--output: {path} cannot be written ({error.strerror}); name another file"
            ) from error
        return
    sys.stdout.write(key)
    sys.stdout.flush()
    sys.stderr.write(stdout_warning())


def stdout_warning() -> str:
    """Return what to say of a key on stdout: who can read it there."""
    try:
        status = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError):  # no real stdout
        status = None
    if status is not None and readable_by_others(status.st_mode):
        return (
            f"Warning: stdout is a file with mode {status.st_mode & 0o777:04o}, and the key in it can be read by other "
            "users of this machine: chmod 600 it, and the next time use --output FILE.\n"
        )
    return "The key was printed; --output FILE writes it to a file that only you can read.\n"
