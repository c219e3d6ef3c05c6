"""The counter of runs: it says what failed, counts what a run leaves behind, and ends its load."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import soak
from tests.left_running import left_running, marked

_DEMO = """
  0.5 s  ✓ both Services have an address
 14.2 s  ✗ some requests failed
           west default/web: 1 requests failed (after 13.7 s: ConnectionResetError [Errno 104])
FAILED in 21 s: 1270 requests sent, 1 failed
"""
_PYTEST = "FAILED tests/unit/test_a.py::test_b - assert 1 == 2\nERROR tests/e2e/test_c.py::test_d - boom\n1 failed\n"


@pytest.mark.req("T-10")
def test_what_failed_is_read_from_the_output_of_the_demo_and_of_pytest() -> None:
    assert soak.failures_in(_DEMO)[0] == "✗ some requests failed"
    assert soak.failures_in(_PYTEST) == (
        "FAILED tests/unit/test_a.py::test_b - assert 1 == 2",
        "ERROR tests/e2e/test_c.py::test_d - boom",
    )
    assert soak.failures_in("the word FAILED here is none\n") == ()


@pytest.mark.req("T-10", "T-13")
def test_a_run_that_leaves_a_process_behind_has_failed_and_the_process_is_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    sleeps = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)"
    code = f"import subprocess, sys; {sleeps}"
    run = soak.run_once([sys.executable, "-c", code], log)
    assert run.code == 0
    assert len(run.failures) == 1
    assert run.failures[0].startswith("left running: ")
    assert "time.sleep(600)" in run.failures[0]
    assert soak.run_once([sys.executable, "-c", ""], log).failures == ()


@pytest.mark.req("T-10")
def test_runs_are_counted_and_the_log_of_each_that_failed_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = tmp_path / "first"
    path = f"p = pathlib.Path({str(first)!r})"
    once = f"import pathlib, sys; {path}; n = p.exists(); p.touch(); print('FAILED it'); sys.exit(n)"
    monkeypatch.setitem(soak.COMMANDS, "demo", (sys.executable, "-c", once))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = marked(os.environ)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert soak.main(["demo", "3", "--busy", "1"]) == 1
    out = capsys.readouterr().out
    assert "2 of 3 runs of demo failed" in out
    assert "2 x  FAILED it" in out
    assert len(list(tmp_path.glob("fairlead-soak-*/*.log"))) == 2
    assert left_running(environment) == [], "the load has ended"
