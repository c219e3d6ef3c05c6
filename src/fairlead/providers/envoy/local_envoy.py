"""Keeps the one Envoy of a directory running.

In: a directory, a command and a bootstrap. Out: a running process, adopted or started; started again only when it is
dead (with back-off), and never twice: the hub has locked its data directory. Files in the directory:
``bootstrap.json``, ``envoy.pid``, ``envoy.log``, ``admin.sock``. It ends an Envoy only in ``stop``, or when that one
has stopped answering.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import structlog

from fairlead.errors import BadConfiguration
from fairlead.providers.envoy.envoy_process import (
    FLAG,
    Running,
    admin_get,
    check_socket_path,
    find_binary,
    find_running,
    start_detached,
    stop_process,
    wait_gone,
)
from fairlead.runtime.background import end, keep_running

_FIRST_BACK_OFF_S = 0.1
_LAST_BACK_OFF_S = 30.0
#: What keeps one from being started, such as a full disk, may end any moment, and nothing is served until then.
_NOT_STARTED_S = 2.0
#: After a life of this length the next start is not delayed.
_STABLE_S = 60.0
_ANSWER_S = 10.0
#: How long a page of the admin interface may take.
_ADMIN_S = 10.0

_log = structlog.get_logger(__name__)


class LocalEnvoy:
    """The Envoy of one directory, which is made if it is missing.

    ``options`` are flags of the command; ``bootstrap`` is the content of its ``bootstrap.json``.
    """

    def __init__(
        self,
        *,
        directory: Path,
        bootstrap: bytes,
        options: Sequence[str],
        binary: Path | None = None,
    ) -> None:
        self.running: Running | None = None
        self.adopted = False
        self.restarts = 0
        self.directory = directory
        self.admin_socket = directory / "admin.sock"
        self._bootstrap = bootstrap
        self._options = options
        self._binary = binary
        self._supervisor: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Find Envoy; ``BadConfiguration`` when there is none, or the path of a socket is too long."""
        check_socket_path(self.admin_socket)
        self._binary = self._binary or find_binary()

    async def admin(self, path: str) -> tuple[int, str]:
        """Ask the admin interface for a page: HTTP status (0: no answer), text."""
        return await admin_get(self.admin_socket, path, timeout_s=_ADMIN_S)

    async def start(self) -> None:
        """Adopt the Envoy of the directory, or start one, and keep one running."""
        await self._adopt_or_start()
        self._supervisor = keep_running("envoy", self._supervise)

    async def close(self) -> None:
        """Supervise it no more; Envoy goes on serving."""
        await end(self._supervisor)
        self._supervisor = None

    async def stop(self) -> None:
        """End Envoy."""
        await self.close()
        running = self.running or find_running(self.directory)
        if running is not None:
            await stop_process(running)
        self.running = None

    async def _adopt_or_start(self) -> None:
        path = self.directory / "bootstrap.json"
        as_before = path.exists() and path.read_bytes() == self._bootstrap
        existing = find_running(self.directory)
        if existing is not None and await self._answers(existing):
            self.running, self.adopted = existing, True
            if not as_before:
                # Restarting it would cut every connection: that is the operator's decision.
                _log.warning("envoy runs with an older bootstrap; stop it to renew that", pid=existing.pid)
            else:
                _log.info("envoy adopted", pid=existing.pid)
            return
        if existing is not None:
            _log.error("envoy does not answer; ending it", pid=existing.pid)
            await stop_process(existing)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not as_before:  # on a full disk it could only be emptied
            path.write_bytes(self._bootstrap)
        self.adopted = False
        command = [str(self._binary), "-c", str(path), FLAG, *self._options]
        self.running = await start_detached(self.directory, command)
        _log.info("envoy started", pid=self.running.pid if self.running else 0)

    async def _answers(self, running: Running) -> bool:
        """Return whether the admin interface answers; a start-up in progress (503) is an answer too."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                while running.alive():
                    status, _ = await admin_get(self.admin_socket, "/ready")
                    if status:
                        return True
                    await asyncio.sleep(0.1)
        return False

    async def _supervise(self) -> None:
        back_off_s, why_not = _FIRST_BACK_OFF_S, ""
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            if self.running is not None:
                await wait_gone(self.running)
            stable = loop.time() - started_s > _STABLE_S
            limit_s = _NOT_STARTED_S if why_not else _LAST_BACK_OFF_S
            back_off_s = _FIRST_BACK_OFF_S if stable else min(back_off_s * 2, limit_s)
            if not why_not:
                log = str(self.directory / "envoy.log")
                _log.error("envoy has ended; starting it again", after_s=back_off_s, log=log)
            await asyncio.sleep(back_off_s)
            self.restarts += 1
            try:
                await self._adopt_or_start()
                why_not = ""
            except (OSError, BadConfiguration) as error:
                if str(error) != why_not:
                    _log.error("envoy cannot be started", error=str(error), every_s=_NOT_STARTED_S)
                why_not = str(error)
