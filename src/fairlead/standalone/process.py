"""A process on its machine: its first calls, its name in leases, and how it is ended.

    hub, standalone    the name is kept in the data directory, whose lock the caller holds already
    agent, regions     the name is kept in a file that the process locks; a second process there gets a new name

A process that was killed gets its own lease back at once. A lock holds on one kernel only: a name that was kept before
the machine booted is not used again, because a copy of the disk may run elsewhere.
An API that does not answer the first calls is waited for, because it may be down while we start. Any other error ends
the process within seconds, with one sentence.

In: the calls; a data directory of ``fairlead standalone`` or ``fairlead hub``, which may be deleted already. Out:
whether the calls were answered; an identity; a line for each process that was ended.
Never: a write to an API, or silence while it waits; ends the Envoy of an existing directory that was not named.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import signal
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple

import structlog
from prometheus_client import CollectorRegistry

from fairlead.errors import BadConfiguration, Retry, Terminal
from fairlead.kube.transport import RetryPolicy
from fairlead.providers.envoy.envoy_process import envoys_of, hub_of, local_envoys
from fairlead.runtime.background import Supervisor
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.runtime.commands import Running, running_as, stop_process, wait_gone
from fairlead.runtime.queue import backoff_s
from fairlead.runtime.telemetry import StatusServer

#: Later calls are patient; these show at once that an API is not there.
FIRST_CALLS = RetryPolicy(attempts=4, base_s=0.3, limit_s=2.0, deadline_s=20.0, connect_s=4.0, read_s=15.0)
_BASE_S, _LIMIT_S = 1.0, 15.0
#: Files of the announcers, below the data directory of a hub that announces.
ANNOUNCERS = "announce"

log = structlog.get_logger(__name__)


async def wait_for_api(
    check: Callable[[], Awaitable[object]], *, pages: tuple[str, int] | None = None, clock: Clock | None = None
) -> bool:
    """Call ``check`` until the API answers; return False when the process is stopped before that.

    ``pages``: where /livez and /readyz are served meanwhile, host and port; the latter says what is waited for.

    Raises:
        FairleadError: what a retry does not fix, such as Unauthorized or BadConfiguration.
    """
    clock = clock or SystemClock()
    waiting_for = ["the API has not been asked yet"]
    answered = False
    supervisor = Supervisor(clock=clock)

    async def until_answered() -> None:
        nonlocal answered
        failures = 0
        while not answered:
            try:
                await check()
                answered = True
            except Retry as error:
                failures += 1
                pause_s = max(backoff_s(failures, base_s=_BASE_S, limit_s=_LIMIT_S), error.after_s or 0.0)
                waiting_for[:] = [error.sentence]
                log.warning("waiting for the API", sentence=error.sentence, in_s=round(pause_s, 1))
                await clock.sleep(pause_s)
        supervisor.stop()

    if pages is not None:
        supervisor.spawn("pages", StatusServer(*pages, CollectorRegistry(), lambda: waiting_for).run)
    supervisor.spawn("first calls", until_answered)
    await supervisor.run_until_stopped()
    return answered


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


#: A hub winds down in four seconds, and its API after it.
_HUB_S = 20.0


async def stop_machine(data_dir: Path) -> list[str]:
    """End hub and Envoys of a data directory; return what was ended, nothing when nothing ran.

    Raises:
        Terminal: one of them does not end.
    """
    ended: list[str] = []
    # The directory of ``fairlead standalone``, and one of ``fairlead hub``.
    for directory in (data_dir / "hub", data_dir):
        if pid := hub_of(directory):
            await _stop_hub(directory, pid)
            ended.append(f"hub {pid} of {directory}")
        for directory_of_envoy, running in envoys_of(directory).items():
            await _stop_envoy(directory_of_envoy, running)
            ended.append(f"Envoy {running.pid} of {directory_of_envoy}")
        if (directory / ANNOUNCERS).exists():
            from fairlead.standalone.own_machine import withdraw

            await withdraw(directory)
            ended.append(f"announcements of {directory}")
    return ended


async def stop_orphans() -> tuple[list[str], list[Path]]:
    """End the Envoys whose data directory is gone; return what was ended, and the directories of the others."""
    ended: list[str] = []
    remaining: list[Path] = []
    for directory, running in sorted(local_envoys().items()):
        if directory.exists():
            remaining.append(directory)
            continue
        await _stop_envoy(directory, running)
        ended.append(f"Envoy {running.pid} of {directory}, which was deleted")
    return ended, remaining


def orphans_problem() -> str:
    """Return one sentence about Envoys whose data directory is gone; empty when there are none."""
    missing = [str(directory) for directory in sorted(local_envoys()) if not directory.exists()]
    if not missing:
        return ""
    return f"Envoy still serves for {', '.join(missing)}, which was deleted; stop it with  fairlead standalone --stop"


async def _stop_hub(directory: Path, pid: int) -> None:
    hub = running_as(pid)
    if hub is None:
        return
    try:
        os.kill(pid, signal.SIGTERM)
    except PermissionError as error:
        raise Terminal(f"The hub {pid} of {directory} is another user's: stop it as that user.") from error
    except ProcessLookupError:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HUB_S):
            await wait_gone(hub)
            return
    raise Terminal(f"The hub {pid} of {directory} has not stopped within {_HUB_S:g} s: stop it with  kill -9 {pid}")


async def _stop_envoy(directory: Path, running: Running) -> None:
    try:
        await stop_process(running)
    except PermissionError as error:
        raise Terminal(f"The Envoy {running.pid} of {directory} is another user's: stop it as that user.") from error
