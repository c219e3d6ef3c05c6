"""The limit of open files of this process. Each connection is one, and each watch of a client."""

from __future__ import annotations

import errno
import resource
import sys

#: The error and the next step, as the end of a sentence.
NO_MORE_FILES = "this process has reached its limit of open files; raise it (ulimit -n, or LimitNOFILE in the unit)"

#: With fewer a hub runs out of them: files of its own, its API, Envoy's streams, one for each watch.
_FEW = 512
#: More than any Fairlead process needs.
_ENOUGH = 65_536


def raise_file_limit() -> None:
    """Raise the limit of open files to the permitted maximum, up to a sufficient number.

    A container runtime may give a process 1,024 at first, and lets it take hundreds of thousands.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < _FEW:
        # Not logged: a command that prints JSON has no log.
        sys.stderr.write(
            f"fairlead: This process may open {wanted} files, and will refuse connections: raise the limit with "
            "ulimit -Hn 1048576, or LimitNOFILE=1048576 in the unit.\n"
        )


def no_more_files(error: object) -> bool:
    """Return whether an error says that this process, or the machine, can open no more files."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
