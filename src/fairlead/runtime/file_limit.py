"""The limit of open files of this process. Each connection is one, and each watch of a client."""

from __future__ import annotations

import resource

#: More than any process of ours needs.
_ENOUGH = 65_536


def raise_file_limit() -> None:
    """Take as many open files as this process may have, up to what is enough.

    A container runtime may give a process 1,024 at first, and lets it take hundreds of thousands.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
