"""A key on stdout that is a file which others can read is warned of."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = "from fairlead.cli.tenant import hand_over; hand_over('key', None)"


@pytest.mark.req("X-14")
@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o640, True), (0o600, False)])
def test_a_redirected_key_names_the_mode(tmp_path, mode, warned):
    path = tmp_path / "key"
    with path.open("w") as file:
        os.fchmod(file.fileno(), mode)
        done = subprocess.run([sys.executable, "-c", CODE], stdout=file, stderr=subprocess.PIPE, text=True, check=True)
    assert path.read_text() == "key"
    assert (f"mode 0{mode:o}" in done.stderr) == warned
    assert ("chmod 600" in done.stderr) == warned
