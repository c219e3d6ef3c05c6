"""A program that does not start, or has ended, is an error with the end of its log; none is left behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fairlead_demo.worlds.processes import PATIENCE_S, Child, ExpectationFailed, run_fairlead, wait_until


def python(code: str, log: Path, **environment: str) -> Child:
    return Child("the program", [sys.executable, "-c", code], log=log, environment=environment)


async def test_the_first_line_is_returned_and_it_runs_until_it_is_ended(tmp_path: Path) -> None:
    child = python(
        "import os, time; print(os.environ['GREETING'], flush=True); time.sleep(60)", tmp_path / "log", GREETING="hi"
    )
    assert not child.running
    assert await child.start(first_line_s=PATIENCE_S) == "hi"
    child.check_running()
    assert child.pid
    await child.terminate()
    assert await child.ended() == -15
    assert not child.running


async def test_what_ends_at_once_is_an_error_with_its_log(tmp_path: Path) -> None:
    child = python("import sys; sys.exit('no such thing')", tmp_path / "log")
    with pytest.raises(ExpectationFailed, match="the program did not start: no such thing"):
        await child.start(first_line_s=PATIENCE_S)
    await child.ended()
    with pytest.raises(ExpectationFailed, match="the program has ended: no such thing"):
        child.check_running()


async def test_what_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    child = python(code, tmp_path / "log")
    await child.start(first_line_s=PATIENCE_S)
    await child.terminate(patience_s=0.1)
    assert await child.ended() == -9


async def test_what_never_becomes_true_is_named() -> None:
    async def never() -> bool:
        return False

    with pytest.raises(ExpectationFailed, match="the moon is blue: not within 0 s"):
        await wait_until(never, "the moon is blue", timeout_s=0)


async def test_fairlead_is_run_to_its_end() -> None:
    code, out, _ = await run_fairlead("version")
    assert code == 0
    assert out
