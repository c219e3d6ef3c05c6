"""The simulator: the same seed gives the same run, a violation shrinks to a story, and the invariants hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulate import invariants

_ROOT = Path(__file__).parents[2]


def simulate(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own: its loop and its link are not those of tests."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.simulate", *arguments]
    return subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.parametrize("seed", ["5", "7", "19"])
def test_one_seed_gives_one_trace(seed: str) -> None:
    first, second = (simulate("--seed", seed, hash_seed=text).stdout for text in ("1", "77"))
    assert first == second
    assert re.search(r"digest [0-9a-f]{8}", first)


def test_a_story_replays_its_seed() -> None:
    by_seed = simulate("--seed", "11").stdout
    story = by_seed.splitlines()[0]
    assert simulate("--story", story).stdout == by_seed


def test_a_violation_shrinks_to_a_story_that_replays() -> None:
    # What is deleted while the only hub is gone is not torn down.
    shape = '{"kind":"hub","hubs":0}'
    events = "0 tenant east {}; 1 tenant west {}; 2 class hw; 9 end"
    shrunk = simulate("--story", f"seed 1 shape {shape}; {events}", "--shrink", "--no-trace")
    assert shrunk.returncode == 1
    story = next(line for line in shrunk.stdout.splitlines() if line.startswith("minimal: ")).removeprefix("minimal: ")
    assert story.count(" tenant ") == 1
    assert " class " not in story
    replayed = simulate("--story", story, "--no-trace")
    assert replayed.returncode == 1
    assert "every_key_is_retried" in replayed.stdout


def test_the_document_names_every_invariant() -> None:
    code = Path(invariants.__file__).read_text() + (Path(__file__).parent / "story.py").read_text()
    checked = set(re.findall(r'(?:fail\(|yield |name = )\s*"(\w+)"', code)) | {"what_is_released_is_given"}
    named = set(re.findall(r"^\| `(\w+)`", (_ROOT / "docs/invariants.md").read_text(), re.MULTILINE))
    assert checked == named
