"""How is the one Envoy of a data directory kept running?

In: a data directory, a command and a bootstrap. Out: a running process, adopted or started; started again only when it
is dead (with back-off), and never twice: a lock on the directory is held for the life of the hub. Files in the data
directory: ``lock``, ``bootstrap.json``, ``envoy.pid``, ``envoy.log``, ``admin.sock``, ``xds.sock``. It ends an Envoy
only in ``stop``, or when that one has stopped answering.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import structlog

from fairlead.errors import BadConfiguration
from fairlead.providers.envoy.envoy_process import (
    Running,
    admin_get,
    find_binary,
    find_running,
    start_detached,
    stop_process,
    wait_gone,
)
from fairlead.providers.envoy.local_machine import FLAG, LOCK

_FIRST_BACK_OFF_S = 0.1
_LAST_BACK_OFF_S = 30.0
#: After a life of this length the next start is not delayed.
_STABLE_S = 60.0
_ANSWER_S = 10.0

_log = structlog.get_logger(__name__)


class LocalEnvoy:
    """The Envoy of one data directory, which is made if it is missing.

    ``options`` are flags of the command; ``bootstrap`` is the content of its ``bootstrap.json``.
    """

    def __init__(
        self,
        *,
        data_dir: Path,
        admin_socket: Path,
        bootstrap: bytes,
        options: Sequence[str],
        binary: Path | None = None,
    ) -> None:
        self.running: Running | None = None
        self.adopted = False
        self.restarts = 0
        self._data_dir = data_dir
        self._admin_socket = admin_socket
        self._bootstrap = bootstrap
        self._options = options
        self._binary = binary
        self._lock: IO[str] | None = None
        self._supervisor: asyncio.Task[None] | None = None

    def lock(self) -> None:
        """Lock the data directory, for the life of this process: one hub, one Envoy."""
        if self._lock is not None:
            return
        self._binary = self._binary or find_binary()
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self._data_dir / LOCK).open("a+")
        except OSError as error:
            raise BadConfiguration(
                f"--data-dir: {self._data_dir} cannot be used ({error.strerror}); make it writable or choose another"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise BadConfiguration(
                f"another hub uses the data directory {self._data_dir} and the Envoy in it: stop that hub first; a hub "
                "for another API needs a --data-dir and an --address-pool of its own"
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._lock = lock

    async def start(self) -> None:
        """Adopt the Envoy of the data directory, or start one, and keep one running."""
        self.lock()
        await self._adopt_or_start()
        self._supervisor = asyncio.create_task(self._supervise())

    async def close(self) -> None:
        """Release the data directory; Envoy goes on serving."""
        await self._stop_supervising()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def stop(self) -> None:
        """End Envoy, then release the data directory."""
        await self._stop_supervising()
        running = self.running or find_running(self._data_dir)
        if running is not None:
            await stop_process(running)
        self.running = None
        await self.close()

    async def _stop_supervising(self) -> None:
        task, self._supervisor = self._supervisor, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _adopt_or_start(self) -> None:
        path = self._data_dir / "bootstrap.json"
        existing = find_running(self._data_dir)
        if existing is not None and await self._answers(existing):
            self.running, self.adopted = existing, True
            if not path.exists() or path.read_bytes() != self._bootstrap:
                # Restarting it would cut every connection: that is the operator's decision.
                _log.warning("envoy runs with an older bootstrap; stop it to renew that", pid=existing.pid)
            else:
                _log.info("envoy adopted", pid=existing.pid)
            return
        if existing is not None:
            _log.error("envoy does not answer; ending it", pid=existing.pid)
            await stop_process(existing)
        path.write_bytes(self._bootstrap)
        self.adopted = False
        command = [str(self._binary), "-c", str(path), FLAG, *self._options]
        self.running = await start_detached(self._data_dir, command)
        _log.info("envoy started", pid=self.running.pid if self.running else 0)

    async def _answers(self, running: Running) -> bool:
        """Return whether the admin interface answers; a start-up in progress (503) is an answer too."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                while running.alive():
                    status, _ = await admin_get(self._admin_socket, "/ready")
                    if status:
                        return True
                    await asyncio.sleep(0.1)
        return False

    async def _supervise(self) -> None:
        back_off_s = _FIRST_BACK_OFF_S
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            if self.running is not None:
                await wait_gone(self.running)
            stable = loop.time() - started_s > _STABLE_S
            back_off_s = _FIRST_BACK_OFF_S if stable else min(back_off_s * 2, _LAST_BACK_OFF_S)
            _log.error("envoy has ended; starting it again", after_s=back_off_s, log=str(self._data_dir / "envoy.log"))
            await asyncio.sleep(back_off_s)
            self.restarts += 1
            try:
                await self._adopt_or_start()
            except (OSError, BadConfiguration) as error:
                _log.error("envoy cannot be started", error=str(error))
