"""What a process has started ends with it, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.left_running import end, left_running, marked

_SCRIPT = """
import signal, subprocess, sys, time
# Whoever has started the tests in the background may have had this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from fairlead_demo.worlds.guard import guard
guard(); guard()
sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
subprocess.Popen(sleeps, start_new_session=True)
subprocess.Popen(sleeps)
print("started", flush=True)
{then}
"""


@pytest.mark.req("T-13")
@pytest.mark.parametrize(
    ("then", "how"),
    [
        ("time.sleep(600)", signal.SIGKILL),
        ("time.sleep(600)", signal.SIGTERM),
        ("time.sleep(600)", signal.SIGINT),
        ("raise SystemExit(1)", None),
    ],
)
def test_started_processes_end_with_their_parent(then: str, how: signal.Signals | None) -> None:
    environment = marked()
    command = [sys.executable, "-c", _SCRIPT.format(then=then)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        if how is not None:
            parent.send_signal(how)
        parent.wait(60)
    left = left_running(environment)
    end(left)
    assert left == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_commands_are_run_after_the_parent(how: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "network").touch()
    script = _SCRIPT.format(
        then="from fairlead_demo.worlds.guard import run_afterwards\n"
        f"run_afterwards('false'); run_afterwards('rm', {str(tmp_path / 'network')!r})\n"
        "print('made', flush=True); time.sleep(600)"
    )
    environment = marked()
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        assert [parent.stdout.readline(), parent.stdout.readline()] == ["started\n", "made\n"]
        assert (tmp_path / "network").exists()
        parent.send_signal(how)
        parent.wait(60)
    left = left_running(environment)
    end(left)
    assert left == []
    assert not (tmp_path / "network").exists()
