"""The tests say in one sentence what they need, and install nothing by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
#: pytest on a machine without Envoy.
_WITHOUT_ENVOY = """
import sys, pytest
from fairlead.errors import BadConfiguration
from fairlead.providers.envoy import envoy_process
def none():
    raise BadConfiguration("there is no Envoy on this machine: run  make install")
envoy_process.find_binary = none
sys.exit(pytest.main(["-p", "no:cacheprovider", "-n", "0", *sys.argv[1:]]))
"""


def without_envoy(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _WITHOUT_ENVOY, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.req("T-13")
def test_without_envoy_the_whole_suite_ends_in_one_sentence() -> None:
    run = without_envoy()
    assert run.returncode == 4
    assert "there is no Envoy on this machine: run  make install" in run.stdout + run.stderr
    assert "passed" not in run.stdout


@pytest.mark.req("T-13")
def test_without_envoy_a_test_that_needs_it_says_so_without_a_traceback() -> None:
    run = without_envoy("tests/e2e/test_e2e_standalone.py")
    assert run.returncode == 1
    assert "there is no Envoy on this machine" in run.stdout
    assert "Traceback" not in run.stdout


@pytest.mark.req("T-13")
def test_no_test_installs_a_program_of_the_machine() -> None:
    installs = [
        path
        for path in (ROOT / "tests").rglob("*.py")
        if path != Path(__file__) and '"apt-get", ' in path.read_text(encoding="utf-8")
    ]
    assert installs == []
