"""Checks that the files of a database are those that its last process left: SQLite takes an empty one for a new one.

    state.sqlite empty, though the directory has been used    an empty state would be served as if it were all there is
    state.sqlite without its log after a crash                all that was written last is in the log only
    a log without its state.sqlite                            SQLite deletes such a log

In: the path of a database, and what its last process noted of it. Out: a sentence, empty when nothing
is missing. Never: changes a file.
"""

from __future__ import annotations

from pathlib import Path

#: Of one length: on a full disk one can still be written over the other.
OPEN, CLOSED = b"open  ", b"closed"


def what_is_missing(database: Path, noted: bytes) -> str:
    """Return which file is missing and the next step; ``noted``: ``OPEN``, ``CLOSED``, or nothing of a new one."""
    wal = database.with_name(f"{database.name}-wal")
    size = database.stat().st_size if database.exists() else -1
    log_size = wal.stat().st_size if wal.exists() else -1
    again = "or move all files that begin with its name away to start with an empty state"
    if size <= 0 < log_size:
        return f"The database {database} is lost, its log {wal.name} is not: restore a copy of both, {again}"
    if size == 0 and noted:
        return f"The database {database} is empty, and was not when it was used last: restore a copy of it, {again}"
    if size > 0 and noted == OPEN and log_size < 0:
        return (
            f"The log {wal} is missing, and what was written last was only in it: put it back, or restore a copy of "
            f"the database; to start with what {database.name} has, delete {database.parent / 'lock'}"
        )
    return ""
