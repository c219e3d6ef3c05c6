"""A process that may open few files says so when it starts, and how the limit is raised."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
from fairlead.runtime.file_limit import raise_file_limit
raise_file_limit()
"""


@pytest.mark.parametrize(("limit", "warned"), [(100, True), (4096, False)])
def test_a_low_limit_is_named_with_the_way_to_raise_it(limit: int, *, warned: bool) -> None:
    command = [sys.executable, "-c", PROGRAM.format(limit=limit)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr
    assert ("ulimit -Hn" in said, str(limit) in said) == (warned, warned)
