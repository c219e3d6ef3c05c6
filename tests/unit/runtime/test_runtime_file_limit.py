"""A process that runs for long takes the files that it may have: each proxy of a hub is a connection."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import resource
from fairlead.cli.run import run_async

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard if {allowed} is None else {allowed}))

async def main():
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))

run_async(main)
"""


@pytest.mark.parametrize("allowed", [None, 300, 256])
def test_a_command_raises_its_limit_to_what_it_may_have(allowed: int | None) -> None:
    out = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(allowed=allowed)], capture_output=True, text=True, check=True
    ).stdout
    soft, hard = map(int, out.split())
    unlimited = hard == -1
    assert soft == (65_536 if unlimited else min(hard, 65_536))
    assert soft > 256 or allowed == 256
