"""A durable journal: one SQLite file in WAL mode, one row per object.

Every write is one transaction, committed before the request is answered. ``synchronous=NORMAL`` in WAL mode: a
committed transaction survives ``kill -9`` of the process at any moment (it is in the page cache of the system);
only a power cut may lose the last ones, and never corrupts the file. Checkpoints run in a thread, so that no write
waits for an fsync.

A failed write (disk full) is rolled back and raised; the caller changes its memory only afterwards, so the two never
disagree. Never decides anything about objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import structlog

from podless.failure import ApiFailure, ConfigurationError
from podless.store.entry import BucketEntry

_log = structlog.get_logger(__name__)

FILE_NAME = "state.sqlite"
CHECKPOINT_AFTER_WRITES = 200
#: The limit of the write-ahead log; a write that exceeds it waits for a checkpoint.
LOG_MAX_BYTES = 64 * 1024 * 1024
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (bucket TEXT, namespace TEXT, name TEXT, body BLOB NOT NULL,
  PRIMARY KEY (bucket, namespace, name));
CREATE TABLE IF NOT EXISTS meta (id INTEGER PRIMARY KEY CHECK (id = 1), rv INTEGER NOT NULL);
INSERT OR IGNORE INTO meta VALUES (1, 0);
"""


class SqliteJournal:
    """The journal in ``<data_dir>/state.sqlite``.

    A lock file keeps a second process out, and notes whether the last one has closed the database.
    """

    def __init__(self, data_dir: Path) -> None:
        self._dir = data_dir
        self._path = data_dir / FILE_NAME
        self._lock = self._take_lock()
        try:
            noted = os.pread(self._lock, 16, 0)
            if missing := what_is_missing(self._path, noted):
                raise ConfigurationError(missing)
            if noted and not self._path.exists():
                _log.warning("the database is missing; starting with an empty state", path=str(self._path))
            self._db = self._open()
        except BaseException:
            os.close(self._lock)
            raise
        self._unchecked = 0

    def load(self) -> tuple[int, Iterable[tuple[str, bytes]]]:
        """Return the last resourceVersion and every (bucket, JSON)."""
        try:
            rv: int = self._db.execute("SELECT rv FROM meta").fetchone()[0]
            rows = self._db.execute("SELECT bucket, body FROM objects").fetchall()
        except sqlite3.DatabaseError as error:
            raise self._corrupt(error) from error
        return rv, rows

    def put(self, bucket: str, entry: BucketEntry) -> None:
        """Store an object and its resourceVersion in one transaction."""
        self._commit(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)",
            (bucket, entry.namespace, entry.name, entry.raw),
            entry.rv,
        )

    def delete(self, bucket: str, entry: BucketEntry) -> None:
        """Delete an object in one transaction."""
        sql = "DELETE FROM objects WHERE bucket = ? AND namespace = ? AND name = ?"
        self._commit(sql, (bucket, entry.namespace, entry.name), entry.rv)

    def _commit(self, sql: str, values: tuple[object, ...], rv: int) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(sql, values)
            self._db.execute("UPDATE meta SET rv = ?", (rv,))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            # On a full disk the log cannot grow; copied into the database, it is written from its beginning again.
            self._unchecked = CHECKPOINT_AFTER_WRITES
            message = (
                f"the write was not stored, because {self._dir} cannot be written ({error}); "
                "reading still works: make room or writable there and try again"
            )
            raise ApiFailure(507, "InsufficientStorage", message) from error
        self._unchecked += 1

    async def checkpoint(self) -> None:
        """Run a WAL checkpoint in a thread, once enough has been written."""
        if self._unchecked < CHECKPOINT_AFTER_WRITES:
            return
        self._unchecked = 0
        # A checkpoint that fails (disk full) loses nothing: the log is kept, and the next one retries.
        with contextlib.suppress(sqlite3.Error):
            await asyncio.to_thread(self._checkpoint)

    def _checkpoint(self) -> None:
        with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Close the file and release the lock."""
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with contextlib.suppress(OSError):
            self._note(CLOSED)  # before SQLite deletes the log
        self._db.close()
        os.close(self._lock)

    def _note(self, state: bytes) -> None:
        os.pwrite(self._lock, state, 0)

    def _take_lock(self) -> int:
        try:
            handle = os.open(self._dir / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"The data directory {self._dir} cannot be written: make it writable, or name another one",
                detail=str(error),
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            raise ConfigurationError(
                f"Another process uses the data directory {self._dir}: stop it first, or name another directory",
                detail=str(error),
            ) from error
        return handle

    def _open(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = None
        try:
            self._path.touch(mode=0o600)  # SQLite creates the WAL files with the permissions of the database
            db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            # ``checkpoint`` normally runs first; these limits only matter during a burst of large writes.
            db.execute(f"PRAGMA wal_autocheckpoint={LOG_MAX_BYTES // 4096}")
            db.execute(f"PRAGMA journal_size_limit={LOG_MAX_BYTES}")
            db.execute("PRAGMA busy_timeout=2000")
            verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            db.executescript(_SCHEMA)
            self._note(OPEN)
        except (OSError, sqlite3.OperationalError) as error:
            if db is not None:
                db.close()
            raise ConfigurationError(
                f"The database {self._path} cannot be opened: check its permissions and the free disk space",
                detail=str(error),
            ) from error
        except sqlite3.DatabaseError as error:
            if db is not None:
                db.close()
            raise self._corrupt(error) from error
        return db

    def _corrupt(self, error: Exception) -> ConfigurationError:
        return ConfigurationError(
            f"The database {self._path} is damaged: restore a copy of it, or move it away to start with an empty state",
            detail=str(error),
        )


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
            f"The log {wal} is missing, and the last writes were only in it. Put it back, or restore a copy of the "
            f"database. To start without these writes, delete {database.parent / 'lock'}"
        )
    return ""
