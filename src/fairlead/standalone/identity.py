"""The name of a process in leases: the same after a restart on one machine, never that of another living process.

    hub, standalone    kept in the data directory, whose lock the caller holds already
    agent, regions     kept in a file that this process locks for its life; a second one there gets a new name

So a process that was killed gets its own lease back at once. A lock holds on one kernel only: a name that was kept
before the machine started last is not used again, because a copy of the disk may run elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple

import structlog

from fairlead.errors import BadConfiguration

log = structlog.get_logger(__name__)

_FILE = "identity"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def state_dir() -> Path:
    """Return where processes keep their state by default, which a person may move by XDG_STATE_HOME."""
    state_home = os.environ.get("XDG_STATE_HOME", "")
    # As the specification of these directories has it, one that is not absolute does not count.
    return Path(state_home if state_home.startswith("/") else "~/.local/state") / "fairlead"


class Claim(NamedTuple):
    """An identity; with a ``lock`` no other process on this machine has it while that is open."""

    identity: str
    lock: IO[str] | None = None


def new_identity() -> str:
    """Return a new unique name: the host name and random digits."""
    return f"{os.uname().nodename}-{secrets.token_hex(4)}"


def kept_identity(data_dir: Path) -> str:
    """Return the name kept in ``data_dir``, a new one the first time.

    Raises:
        BadConfiguration: it can neither be read nor written.
    """
    path = data_dir / _FILE
    try:
        kept = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        if not kept:
            kept = new_identity()
            data_dir.mkdir(parents=True, exist_ok=True)
            path.write_text(kept + "\n", encoding="utf-8")
    except OSError as error:
        raise _unusable(path, error) from error
    return kept


def claim_identity(path: Path) -> Claim:
    """Return the name kept in ``path``, locked; a new one without a lock while another process has that.

    Raises:
        BadConfiguration: it can neither be read nor written.
    """
    lock: IO[str] | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = path.open("a+", encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.seek(0)
        identity, _, boot = lock.read().strip().partition(" ")
        if not identity or boot != _this_boot():
            identity = new_identity()
            lock.truncate(0)
            lock.write(f"{identity} {_this_boot()}\n")
            lock.flush()
    except BlockingIOError:
        # Another process has that name: both may run, and one of them will lead.
        if lock is not None:
            lock.close()
        return Claim(new_identity())
    except OSError as error:
        if lock is not None:
            lock.close()
        raise _unusable(path, error) from error
    return Claim(identity, lock)


@contextmanager
def claim_for(role: str, server: str, *, data_dir: Path | None) -> Generator[Claim]:
    """Hold an identity for each role and API server, stored in ``data_dir``, inside the block.

    Without ``data_dir`` it is kept in ``state_dir``; where that cannot be written (a container), the name is new.

    Raises:
        BadConfiguration: ``data_dir`` was asked for, and cannot be used.
    """
    name = f"{role}-{sha256(server.encode()).hexdigest()[:8]}.lock"
    try:
        claim = claim_identity((state_dir() if data_dir is None else data_dir).expanduser() / name)
    except (BadConfiguration, RuntimeError) as error:  # RuntimeError: no home directory
        if data_dir is not None:
            raise
        log.info("the name of this process is not kept", why=str(error))
        claim = Claim(new_identity())
    try:
        yield claim
    finally:
        if claim.lock is not None:
            claim.lock.close()


def _this_boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return os.uname().nodename


def _unusable(path: Path, error: OSError) -> BadConfiguration:
    return BadConfiguration(
        f"--data-dir: {path} cannot be used ({error.strerror}); make the directory writable or choose another"
    )
