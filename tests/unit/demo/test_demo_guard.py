"""What a process has started ends with it, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys

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
