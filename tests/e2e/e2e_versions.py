"""The code of an earlier version, out of the history of this repository.

In: a commit, a directory. Out: the environment in which ``fairlead`` is what it was there.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION_0_1 = "8d93f72"


def environment_of(commit: str, directory: Path, *packages: Path) -> dict[str, str]:
    """Return the environment in which ``fairlead`` is that of ``commit``; ``packages``: of more imports."""
    if not shutil.which("git"):
        pytest.skip("git is not installed, and the code of an earlier version is in the history only")
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", commit, "src"], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(f"the history of this clone does not reach back to {commit}")
    home = directory / commit
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(home, filter="data")
    environment = {"PYTHONPATH": os.pathsep.join(map(str, (home / "src", *packages)))}
    where = subprocess.run(
        [sys.executable, "-c", "import fairlead; print(fairlead.__file__)"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(home)), "processes would run the present code"
    return environment


def packages_of_0_1() -> Path:
    """Return the directory with what version 0.1 imports and the present one does not; made once in an environment."""
    directory = Path(sys.prefix) / "packages-of-0.1"
    if not directory.exists():
        made = directory.with_name(f"{directory.name}.{os.getpid()}")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(made)]
        installed = subprocess.run([*pip, "kubernetes>=37"], capture_output=True, text=True, check=False)
        if installed.returncode:
            pytest.skip(f"the package kubernetes, which version 0.1 imports, cannot be installed: {installed.stderr}")
        try:
            made.rename(directory)
        except OSError:  # another test process was faster
            shutil.rmtree(made)
    return directory
