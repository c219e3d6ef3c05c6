"""Each fault that the simulator must find can still be put back into the code of today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Puts each fault back in a child process, because a fault stays in the code of its process.
_PUT_BACK = """
import os
from tests.simulate.former_faults import FORMER
for name, put_back in FORMER.items():
    if not (child := os.fork()):
        put_back()
        print(name, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.req(
    "CORE-01",
    "CORE-02",
    "CORE-03",
    "CORE-04",
    "CORE-05",
    "CORE-06",
    "CORE-07",
    "CORE-08",
    "CORE-09",
    "CORE-10",
    "L4-1",
    "L4-2",
    "L4-3",
    "MC-20",
    "MC-22",
)
def test_every_former_fault_can_be_put_back() -> None:
    from tests.simulate.former_faults import FORMER

    run = subprocess.run(
        [sys.executable, "-c", _PUT_BACK],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert run.stdout.split() == list(FORMER), run.stderr
