"""Change the Envoy of a machine to another binary, and back if that one does not serve.

    plan.upgrade ──► check the binary ──► keep the running one ──► end Envoy, start the new one ──► healthy: kept
                          └─ refused: nothing was changed                     └─ not healthy: the former one again

The hub has drained the machine before. ``envoy.json`` in the state directory has the binary that every later start uses
and the upgrades that have ended, so an upgrade that was interrupted is made again, and one that ended is not.
A binary that a package replaced on disk is copied from the running process, so there is always one to go back to.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import structlog
from msgspec.structs import replace

from fairlead.api.json_text import read_json
from fairlead.errors import BadConfiguration
from fairlead.machine.announcing import ServingEnvoys
from fairlead.machine.checks import listening, serving
from fairlead.model.in_words import listed
from fairlead.model.machine import EnvoyUpgrade, MachinePlan
from fairlead.providers.envoy.envoy_process import LocalEnvoy, find_binary
from fairlead.runtime.clock import SystemClock
from fairlead.runtime.private_file import write_private

_VERSION_S = 30.0
#: A new Envoy serves within that time, for so long without a break, and after fewer starts than that.
_START_S, _PROVEN_S, _STARTS = 60.0, 2.0, 3
_LOOK_S = 0.25
_OK = 200
#: What the kernel appends to the name of a file that a process was started from.
_DELETED = " (deleted)"
#: "envoy  version: <commit>/1.36.2/Clean/RELEASE/BoringSSL"
_VERSION = re.compile(r"version: [0-9a-f]*/([^/\s]+)/")

log = structlog.get_logger(__name__)


class EnvoyRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The Envoy of this machine: ``binary`` is a path, empty for the installed one.

    ``ended`` is the last upgrade that has ended, and ``problem`` why it failed. ``former`` is the binary to go back to
    while ``trying`` another one.
    """

    binary: str = ""
    ended: str = ""
    problem: str = ""
    trying: str = ""
    former: str = ""


class EnvoyUpgrades:
    """The binary of the machine with this state directory."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "envoy.json"
        self._copy = directory / "envoy-former"
        self.record = self._load()

    def binary(self) -> Path:
        """Return the binary that this machine runs; ``BadConfiguration`` when there is no Envoy."""
        path = Path(self.record.binary or self.record.former or find_binary())
        if os.access(path, os.X_OK):
            return path
        log.warning("the binary of the last upgrade is gone; using the installed Envoy", binary=str(path))
        return find_binary()

    async def follow(
        self, upgrade: EnvoyUpgrade, envoy: LocalEnvoy, why_unhealthy: Callable[[], Awaitable[str]]
    ) -> None:
        """Make an upgrade, unless it has ended before.

        ``why_unhealthy`` waits until the Envoy that was started serves, or returns why it does not.

        Raises:
            OSError: the state directory cannot be written.
        """
        if upgrade.requested == self.record.ended:
            return
        try:
            binary = Path(upgrade.binary) if upgrade.binary else find_binary()
            await asyncio.to_thread(_check, binary, upgrade)
            former = await asyncio.to_thread(self._keep_former, upgrade, envoy)
        except (BadConfiguration, OSError) as error:
            self._end(upgrade, self.record.binary, f"the Envoy of this machine was not changed: {error}")
            return
        log.info("upgrade of Envoy", binary=str(binary), former=former)
        await envoy.replace(binary)
        problem = await why_unhealthy()
        if problem:
            log.error("the new Envoy is not healthy; the former one is started again", problem=problem)
            await envoy.replace(Path(former))
            still = await why_unhealthy()
            problem = f"Envoy of {binary} is not healthy: {problem}. The machine runs its former Envoy again" + (
                f", and that is not healthy, either: {still}" if still else ""
            )
            self._end(upgrade, former, problem)
            return
        self._end(upgrade, upgrade.binary, "")
        if self._copy.exists() and self.record.binary != str(self._copy):
            self._copy.unlink()

    def _keep_former(self, upgrade: EnvoyUpgrade, envoy: LocalEnvoy) -> str:
        """Return the path of the binary to go back to, and record it with the attempt."""
        former = self.record.former if self.record.trying == upgrade.requested else ""
        if not former:
            former, running = self.record.binary or str(find_binary()), envoy.running
            executable = Path("/proc", str(running.pid), "exe") if running is not None and running.alive() else None
            started_from = str(executable.readlink()) if executable is not None else ""
            if executable is not None and started_from.endswith(_DELETED):
                # A package has replaced the file; only the process still has what it was started from.
                shutil.copyfile(executable, partial := self._copy.with_suffix(".new"))
                partial.chmod(0o700)
                partial.replace(self._copy)
                former = str(self._copy)
            elif started_from and Path(former).is_symlink():
                former = started_from  # the link may name another file by now
        self._write(replace(self.record, binary="", trying=upgrade.requested, former=former))
        return former

    def _end(self, upgrade: EnvoyUpgrade, binary: str, problem: str) -> None:
        self._write(EnvoyRecord(binary=binary, ended=upgrade.requested, problem=problem))
        log.info("upgrade of Envoy has ended", binary=binary or "installed", problem=problem)

    def _load(self) -> EnvoyRecord:
        try:
            return read_json(self._file.read_bytes(), EnvoyRecord) or EnvoyRecord()
        except OSError:
            return EnvoyRecord()

    def _write(self, record: EnvoyRecord) -> None:
        self.record = record
        write_private(self._file, msgspec.json.encode(record))


class EnvoyProof:
    """The proof that an Envoy serves what the one before it served, when this was made with the ``plan`` of then."""

    def __init__(self, proxies: ServingEnvoys, plan: MachinePlan) -> None:
        self._proxies = proxies
        self._plan = plan
        self._clock = SystemClock()
        self._served = self._serves()
        self._refused = frozenset(proxies.refused())

    async def why_unhealthy(self) -> str:
        """Wait until the Envoy that was started serves; return why it does not."""
        (envoy,) = self._proxies.envoys
        began_s, good_s, restarts, process = self._clock.monotonic(), 0.0, envoy.restarts, None
        while True:
            why = await self._why_not(envoy)
            now_s, running = self._clock.monotonic(), envoy.running
            if why or running != process or not good_s:
                process, good_s = running, 0.0 if why else now_s
            elif now_s - good_s >= _PROVEN_S:
                return ""
            if why and (now_s - began_s >= _START_S or envoy.restarts - restarts >= _STARTS):
                return why
            await self._clock.sleep(_LOOK_S)

    async def _why_not(self, envoy: LocalEnvoy) -> str:
        running, refused = envoy.running, self._proxies.refused()
        if running is None or not running.alive():
            return f"Envoy ended; see {envoy.directory / 'envoy.log'}"
        status, _ = await envoy.admin("/ready")
        if status != _OK:
            return "Envoy does not become ready" if status else "Envoy does not answer"
        if rejected := sorted(refused.keys() - self._refused):
            return f"Envoy rejects {rejected[0]}: {refused[rejected[0]]}"
        missing = sorted(self._served - self._serves())
        return f"Envoy does not listen at {listed(missing, 3)}" if missing else ""

    def _serves(self) -> frozenset[str]:
        """Return the addresses of the plan with an open port, of load balancers that are still there."""
        here = serving(self._plan, alive=True, listeners=self._proxies.listeners(), sockets=listening())
        return frozenset(address for address, serves in here.items() if serves)


def version_in(text: str) -> str:
    """Return the version in the output of ``envoy --version``; empty when there is none."""
    match = _VERSION.search(text)
    return match[1] if match else ""


def _leading_to(file: Path) -> list[Path]:
    """Return a file and all directories by which it is found, also those of symbolic links."""
    places: dict[Path, None] = {}
    following = [file]
    while following:
        path = following.pop()
        for place in (path, *path.parents):
            if place not in places:
                places[place] = None
                if place.is_symlink():
                    following.append(place.parent / place.readlink())
    return list(places)


def _check(binary: Path, upgrade: EnvoyUpgrade) -> None:
    """Check a binary before the running Envoy is touched.

    Raises:
        BadConfiguration: it is missing, may be changed by others, does not run, or has another version.
    """
    if not binary.is_absolute() or not binary.is_file() or not os.access(binary, os.X_OK):
        raise BadConfiguration(f"{binary} is not an executable file on this machine. Install it first, then try again")
    if upgrade.binary:
        for place in _leading_to(binary):
            status = place.stat()
            # In a sticky directory such as /tmp, only its owner replaces a file.
            writable = status.st_mode & 0o022 and not (place.is_dir() and status.st_mode & stat.S_ISVTX)
            if status.st_uid not in (0, os.geteuid()) or writable:
                raise BadConfiguration(
                    f"{place} can be changed by others than root, and so can the Envoy {binary}. "
                    f"Run: chown root {place} && chmod go-w {place}"
                )
    try:
        answer = subprocess.run((binary, "--version"), capture_output=True, text=True, check=False, timeout=_VERSION_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadConfiguration(f"{binary} --version does not work: {error}") from error
    version = version_in(answer.stdout)
    if not version:
        raise BadConfiguration(f"{binary} is not an Envoy: --version printed {answer.stdout.strip()[:100]!r}")
    if upgrade.version and version != upgrade.version:
        raise BadConfiguration(
            f"{binary} is Envoy {version}, not {upgrade.version}. Install that version on this machine, then try again"
        )
