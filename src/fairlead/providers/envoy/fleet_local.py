"""How does one machine run its Envoy?

One process serves the groups of all load balancers; each of these has its own address, and keeps its own port numbers.
Envoy outlives the hub: the next hub finds it in the data directory and adopts it. It is started again only when it is
dead (with back-off), and never twice: a lock on the directory is held for the life of the hub.
Files in the data directory: ``lock``, ``bootstrap.json``, ``envoy.pid``, ``envoy.log``, ``admin.sock``, ``xds.sock``.
It never ends an Envoy unless told to (``stop``), or unless that one has stopped answering.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import msgspec
import structlog

from fairlead.errors import BadConfiguration
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured
from fairlead.providers.envoy.bootstrap import Bootstrap, bootstrap_json
from fairlead.providers.envoy.envoy_process import (
    Running,
    admin_get,
    check_socket_path,
    file_limit,
    find_binary,
    find_running,
    start_detached,
    stop_process,
    wait_gone,
)

GROUP = "local"

#: Files that Envoy opens beside its listeners and connections.
_OTHER_FILES = 256
_FIRST_BACK_OFF_S = 0.1
_LAST_BACK_OFF_S = 30.0
_ANSWER_S = 10.0
_FLAG = "--disable-hot-restart"

_log = structlog.get_logger(__name__)


class LocalFleet:
    """One Envoy process on this machine.

    ``data_dir`` is made if it is missing. ``concurrency`` is Envoy's number of worker threads. Half of the files that a
    process may open are for listeners (each costs one for each worker), the rest for connections (two each).
    """

    allocation = AllocationKind.ADDRESS
    #: Somebody else on this machine may have the port: the kernel must say so.
    reuse_port = False

    def __init__(
        self,
        *,
        data_dir: Path,
        concurrency: int = 0,
        binary: Path | None = None,
        max_files: int = 0,
        drain_s: int = 600,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.concurrency = concurrency or min(2, os.cpu_count() or 1)
        self.admin_socket = check_socket_path(self.data_dir / "admin.sock")
        self.xds_socket = check_socket_path(self.data_dir / "xds.sock")
        self.running: Running | None = None
        self.adopted = False
        self.restarts = 0
        self._binary = binary
        self._drain_s = drain_s
        files = max_files or file_limit()
        self.max_listeners = files // 2 // self.concurrency
        self._max_connections = max(16, (files - files // 2 - _OTHER_FILES) // 2)
        self._addresses: dict[LoadBalancerKey, Ensured] = {}
        self._lock: IO[str] | None = None
        self._supervisor: asyncio.Task[None] | None = None

    # --- the traffic side -------------------------------------------------------------------------------------

    def group_of(self, spec: FrontendSpec) -> str:  # noqa: ARG002 - there is but one
        """Return the one group that there is."""
        return GROUP

    def bind_address(self, spec: FrontendSpec) -> str:
        """Return the load balancer's own address."""
        return spec.address

    def sees_clients(self, spec: FrontendSpec) -> bool:  # noqa: ARG002 - always
        """Say yes: nothing stands between."""
        return True

    def refuse(self, *, group: str, listeners: int) -> str:  # noqa: ARG002 - there is but one
        """Refuse what would take Envoy to its limit of open files, where it aborts."""
        if listeners <= self.max_listeners:
            return ""
        return (
            f"this machine's proxy can open {self.max_listeners} ports with its limit of open files; "
            "raise the limit (ulimit -Hn) or lower --envoy-threads"
        )

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        """Do nothing: addresses change only by ``ensure``."""

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Return the load balancer's own address."""
        self._addresses[spec.key] = Ensured((spec.address,))
        return self._addresses[spec.key]

    def addresses(self, key: LoadBalancerKey) -> Ensured:
        """Return the load balancer's own address."""
        return self._addresses.get(key, Ensured())

    async def delete(self, key: LoadBalancerKey) -> None:
        """Forget the address."""
        self._addresses.pop(key, None)

    # --- the process side -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Adopt the Envoy of this data directory, or start one, and keep one running."""
        self.prepare()
        await self._adopt_or_start()
        self._supervisor = asyncio.create_task(self._supervise())

    def prepare(self) -> None:
        """Lock the data directory, for the life of this process: one hub, one Envoy."""
        if self._lock is not None:
            return
        self._binary = self._binary or find_binary()
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self.data_dir / "lock").open("w")
        except OSError as error:
            raise BadConfiguration(
                f"--data-dir: {self.data_dir} cannot be used ({error.strerror}); make it writable or choose another"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise BadConfiguration(
                f"another hub uses the data directory {self.data_dir} and the Envoy in it: stop that hub first; a hub "
                "for another API needs a --data-dir and an --address-pool of its own"
            ) from error
        self._lock = lock

    async def sweep(self) -> None:
        """Do nothing: what is gone is not served."""

    async def close(self) -> None:
        """Let go: Envoy goes on serving, and the directory is free for the next hub."""
        task, self._supervisor = self._supervisor, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def stop(self) -> None:
        """End Envoy, then let go."""
        task, self._supervisor = self._supervisor, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        running = self.running or find_running(self.data_dir)
        if running is not None:
            await stop_process(running)
        self.running = None
        await self.close()

    async def _adopt_or_start(self) -> None:
        content = msgspec.json.format(msgspec.json.encode(self._bootstrap()), indent=1)
        path = self.data_dir / "bootstrap.json"
        found = find_running(self.data_dir)
        if found is not None and await self._answers(found):
            self.running, self.adopted = found, True
            if not path.exists() or path.read_bytes() != content:
                # Restarting it would cut every connection: that is the operator's decision.
                _log.warning("envoy runs with an older bootstrap; stop it to renew that", pid=found.pid)
            else:
                _log.info("envoy adopted", pid=found.pid)
            return
        if found is not None:
            _log.error("envoy does not answer; ending it", pid=found.pid)
            await stop_process(found)
        path.write_bytes(content)
        self.adopted = False
        self.running = await start_detached(self.data_dir, self._command())
        _log.info("envoy started", pid=self.running.pid if self.running else 0)

    async def _answers(self, running: Running) -> bool:
        """Say whether the admin interface answers; a start-up in progress (503) is an answer too."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                while running.alive():
                    status, _ = await admin_get(self.admin_socket, "/ready")
                    if status:
                        return True
                    await asyncio.sleep(0.1)
        return False

    async def _supervise(self) -> None:
        back_off_s = _FIRST_BACK_OFF_S
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            if self.running is not None:
                await wait_gone(self.running)
            back_off_s = _FIRST_BACK_OFF_S if loop.time() - started > 60 else min(back_off_s * 2, _LAST_BACK_OFF_S)
            _log.error("envoy has ended; starting it again", after_s=back_off_s, log=str(self.data_dir / "envoy.log"))
            await asyncio.sleep(back_off_s)
            self.restarts += 1
            try:
                await self._adopt_or_start()
            except (OSError, BadConfiguration) as error:
                _log.error("envoy cannot be started", error=str(error))

    def _bootstrap(self) -> object:
        return bootstrap_json(
            Bootstrap(
                node_id=f"{GROUP}/{os.uname().nodename}",
                group=GROUP,
                xds_address=str(self.xds_socket),
                admin_socket=str(self.admin_socket),
                max_connections=self._max_connections,
            )
        )

    def _command(self) -> list[str]:
        flags = (_FLAG, "--concurrency", str(self.concurrency), "--drain-time-s", str(self._drain_s))
        return [str(self._binary), "-c", str(self.data_dir / "bootstrap.json"), *flags, "--log-level", "warning"]


def data_dir_of(command: Sequence[str]) -> Path | None:
    """Return the data directory of a local Envoy that was started with this command; None when it is no such one."""
    if _FLAG not in command or "-c" not in command[:-1]:
        return None
    return Path(command[command.index("-c") + 1]).parent
