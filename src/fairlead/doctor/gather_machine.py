"""Facts about this machine: what a process can open, and what belongs to a hub here.

In: a data directory and the kubeconfigs in use. Out: ``Machine``, and for targets whether they answer. Never: a change.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from fairlead.doctor.facts import ConnectionResult, Machine
from fairlead.errors import BadConfiguration
from fairlead.model.in_words import host_port
from fairlead.providers.envoy.envoy_process import file_limit, find_binary, local_envoys, low_ports_problem
from fairlead.runtime.private_file import readable_by_others

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_MOST = 256


def gather_machine(data_dir: Path | None, kubeconfigs: Iterable[Path]) -> Machine:
    """Return what this machine allows; ``data_dir`` None: no directory is looked at."""
    try:
        binary, envoy_problem = str(find_binary()), ""
    except BadConfiguration as error:
        binary, envoy_problem = "", error.sentence
    return Machine(
        data_dir=str(data_dir or ""),
        data_dir_problem=_directory_problem(data_dir) if data_dir else "",
        envoy=binary,
        envoy_problem=envoy_problem,
        low_ports_problem=low_ports_problem(Path(binary)) if binary else "",
        file_limit=file_limit(),
        free_bytes=_free(data_dir) if data_dir else 1 << 40,
        ephemeral_ports=_port_range(),
        open_kubeconfigs=tuple(str(path) for path in kubeconfigs if _others_may_read(path)),
        lost_envoys=tuple(_lost_envoys()),
    )


async def connect_all(targets: Sequence[tuple[str, str, int]], *, timeout_s: float) -> tuple[ConnectionResult, ...]:
    """Connect to (load balancer, host, port), some at a time, and say which did not answer."""
    limit = asyncio.Semaphore(32)

    async def attempt(load_balancer: str, host: str, port: int) -> ConnectionResult:
        target = host_port(host, port)
        async with limit:
            try:
                async with asyncio.timeout(timeout_s):
                    _, writer = await asyncio.open_connection(host, port)
            except TimeoutError:
                return ConnectionResult(load_balancer, target, f"no answer within {timeout_s:g} s")
            except OSError as error:
                return ConnectionResult(load_balancer, target, os.strerror(error.errno) if error.errno else str(error))
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            return ConnectionResult(load_balancer, target)

    return tuple(await asyncio.gather(*(attempt(*target) for target in targets[:_MOST])))


def _directory_problem(directory: Path) -> str:
    if not directory.exists():
        return "it does not exist; the hub makes it when it starts, if it may"
    if not directory.is_dir():
        return "it is no directory"
    return "" if os.access(directory, os.W_OK | os.X_OK) else "this user may not write there"


def _free(directory: Path) -> int:
    there = next((path for path in (directory, *directory.absolute().parents) if path.exists()), Path("/"))
    return shutil.disk_usage(there).free


def _port_range() -> tuple[int, int]:
    try:
        first, last = _RANGE.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return Machine().ephemeral_ports
    return int(first), int(last)


def _others_may_read(path: Path) -> bool:
    try:
        return readable_by_others(path.stat().st_mode)
    except OSError:
        return False


def _lost_envoys() -> list[str]:
    """Return the data directories of Envoys that run without them."""
    return sorted(str(path) for path in local_envoys() if not path.exists())
