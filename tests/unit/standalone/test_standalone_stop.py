"""What one machine runs is ended by its directory; an Envoy whose directory is gone is named and ended."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from fairlead.errors import Terminal
from fairlead.providers.envoy.envoy_process import LOCK, find_running, hub_of, local_envoys, wanted_directories
from fairlead.standalone import process as stop
from fairlead_demo.worlds.processes import wait_until

_HUB = """
import fcntl, os, signal, sys, time
lock = open(sys.argv[1], "a+"); fcntl.flock(lock, fcntl.LOCK_EX); lock.write(f"{os.getpid()}\\n"); lock.flush()
print("locked", flush=True)
time.sleep(600)
"""


async def start_envoy(directory: Path) -> asyncio.subprocess.Process:
    # The shell's arguments are Envoy's, which is how an Envoy is recognised.
    script = "import time; time.sleep(600)"
    flags = ("-c", str(directory / "bootstrap.json"), "--disable-hot-restart")
    fake = directory.parent / f"envoy-{directory.name}"
    fake.write_text(f"#!{sys.executable}\n{script}\n")
    fake.chmod(0o755)
    process = await asyncio.create_subprocess_exec(str(fake), *flags)

    async def runs() -> bool:
        return find_running(directory) is not None

    await wait_until(runs, "it runs")
    return process


async def ended(process: asyncio.subprocess.Process) -> bool:
    async with asyncio.timeout(180):
        return await process.wait() != 0


@pytest.mark.req("X-16")
async def test_the_envoy_of_a_directory_that_is_gone_is_named_and_ended_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, gone = tmp_path / "there", tmp_path / "gone"
    there.mkdir()
    kept, orphan = await start_envoy(there), await start_envoy(gone)
    try:
        mine = {directory: running for directory, running in local_envoys().items() if directory.parent == tmp_path}
        assert set(mine) == {there, gone}
        # Of all that this machine runs, only what this test has started.
        monkeypatch.setattr(stop, "local_envoys", lambda: mine)
        assert f"{gone}, which was deleted; stop it with  fairlead standalone --stop" in stop.orphans_problem()
        assert str(there) not in stop.orphans_problem()
        assert await stop.stop_orphans() == ([f"Envoy {orphan.pid} of {gone}, which was deleted"], [there])
        assert await ended(orphan)
        assert kept.returncode is None
        assert await stop.stop_machine(there) == [f"Envoy {kept.pid} of {there}"]
        assert await ended(kept)
        assert await stop.stop_machine(there) == []
    finally:
        for process in (kept, orphan):
            if process.returncode is None:
                process.kill()


@pytest.mark.req("X-16")
@pytest.mark.parametrize("gone", [False, True])
async def test_all_envoys_of_a_directory_are_ended_also_when_it_is_gone(tmp_path: Path, gone: bool) -> None:
    directories = wanted_directories(tmp_path / "hub", 2)
    for directory in directories:
        directory.mkdir(parents=True)
    envoys = [await start_envoy(directory) for directory in directories]
    if gone:
        for directory in directories:
            directory.rmdir()
    try:
        expected = [f"Envoy {each.pid} of {directory}" for each, directory in zip(envoys, directories, strict=True)]
        assert await stop.stop_machine(tmp_path) == expected
        assert all([await ended(each) for each in envoys])
    finally:
        for each in envoys:
            if each.returncode is None:
                each.kill()


@pytest.mark.req("X-16")
async def test_a_hub_is_found_by_its_lock_and_ended(tmp_path: Path) -> None:
    directory = tmp_path / "hub"
    directory.mkdir()
    assert hub_of(directory) == 0
    (directory / LOCK).write_text(f"{os.getpid()}\n")
    assert hub_of(directory) == 0, "a lock file that is not locked is what a dead hub has left"
    (directory / LOCK).unlink()
    command = (sys.executable, "-c", _HUB, str(directory / LOCK))
    hub = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert hub.stdout is not None
        await hub.stdout.readline()
        assert await stop.stop_machine(tmp_path) == [f"hub {hub.pid} of {directory}"]
        assert await ended(hub)
    finally:
        if hub.returncode is None:
            hub.kill()


@pytest.mark.req("X-16")
async def test_a_hub_that_does_not_end_is_an_error_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "_HUB_S", 0.3)
    deaf = _HUB.replace("import fcntl", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nimport fcntl", 1)
    command = (sys.executable, "-c", deaf, str(tmp_path / LOCK))
    hub = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert hub.stdout is not None
        await hub.stdout.readline()
        with pytest.raises(Terminal, match=f"kill -9 {hub.pid}"):
            await stop.stop_machine(tmp_path)
    finally:
        hub.kill()
        await hub.wait()
