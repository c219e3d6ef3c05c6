"""The whole of it, as people run it: the demo of regions, with real Envoys and real traffic, and the command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.left_running import passed_demo

FAIRLEAD = [sys.executable, "-m", "fairlead.cli.main"]
SEPARATE = os.geteuid() == 0 and shutil.which("ip") is not None


@pytest.mark.envoy
@pytest.mark.slow
@pytest.mark.req("O-4", "O-5", "O-14", "O-15", "O-16", "O-20", "O-21", "O-22", "O-23", "O-24", "O-55")
async def test_one_service_in_three_regions_each_on_its_own_network() -> None:
    text = await passed_demo([*FAIRLEAD, "demo", "regions", "--plain"])
    if SEPARATE:
        assert "network namespace" in text
        assert "no region's access point can be reached from another region" in text


@pytest.mark.req("O-51", "O-50")
def test_bad_settings_are_refused_before_anything_starts(tmp_path: Path) -> None:
    process = subprocess.run([*FAIRLEAD, "regions", "--workers", "0"], capture_output=True, text=True, check=False)
    assert (process.returncode, "--workers is 0" in process.stderr) == (2, True)
    missing = str(tmp_path / "no.kubeconfig")
    process = subprocess.run(
        [*FAIRLEAD, "regions", "--kubeconfig", missing], capture_output=True, text=True, check=False
    )
    assert process.returncode == 2
    assert "no.kubeconfig" in process.stderr
