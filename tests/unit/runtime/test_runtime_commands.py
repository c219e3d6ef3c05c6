"""Programs that are run to their end, and what is left of one whose caller was cancelled."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from fairlead.runtime.commands import prefer, run_command, running_as
from fairlead_demo.worlds.processes import wait_until


async def test_output_exit_code_and_input() -> None:
    assert await run_command("sh", "-c", "cat; echo wrong >&2; exit 3", stdin=b"text") == (3, b"text", b"wrong\n")
    assert await run_command("sh", "-c", "echo $A", environment={"A": "1"}) == (0, b"1\n", b"")
    assert (await run_command("sh", "-c", "kill -9 $$")).code == -9


async def test_a_program_may_leave_its_input_unread() -> None:
    assert await run_command("true", stdin=b"x" * (1 << 20)) == (0, b"", b"")


async def test_a_program_that_is_missing_or_writes_too_much() -> None:
    with pytest.raises(FileNotFoundError):
        await run_command("no-such-program-anywhere")
    with pytest.raises(OSError, match="1000 bytes"):
        await run_command("yes", longest_output=1000)


@pytest.mark.parametrize("stdin", [b"", b"x" * (1 << 20), None])
async def test_a_cancelled_caller_leaves_no_process(tmp_path: Path, stdin: bytes | None) -> None:
    pid = tmp_path / "pid"
    running = asyncio.create_task(run_command("sh", "-c", f"echo $$ > {pid}; exec sleep 600", stdin=stdin))

    async def started() -> bool:
        return pid.exists() and pid.read_text().endswith("\n")

    await wait_until(started, "the program has started")
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert running_as(int(pid.read_text())) is None


def test_a_process_runs_before_others_as_far_as_that_is_permitted() -> None:
    capabilities = next(line for line in Path("/proc/self/status").read_text().splitlines() if "CapEff:" in line)
    permitted = int(capabilities.split()[1], 16) >> 23 & 1
    with subprocess.Popen(["sleep", "600"]) as process:
        own = os.getpriority(os.PRIO_PROCESS, process.pid)
        for niceness, expected in ((own + 1, own), (own - 1, own - 1 if permitted else own)):
            prefer(process.pid, niceness)
            assert os.getpriority(os.PRIO_PROCESS, process.pid) == expected
        process.kill()
    prefer(process.pid, -20)
