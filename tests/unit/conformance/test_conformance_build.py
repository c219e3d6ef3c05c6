"""Where the programs of a control plane are, and the command that builds them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from conformance.build import control_plane
from conformance.paths import KUBERNETES_VERSION, ROOT, read_settings

_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")


def built(directory: Path, *programs: str) -> Path:
    directory.mkdir(parents=True)
    for name in programs:
        (directory / name).touch()
    return directory


def test_complete_input_is_accepted(tmp_path: Path) -> None:
    ours = built(tmp_path / f"kubernetes-{KUBERNETES_VERSION}", *_PROGRAMS, "etcdutl")
    given = built(tmp_path / "given", *_PROGRAMS[:2])
    settings = read_settings({"BUILDS": str(tmp_path), "KUBEBUILDER_ASSETS": str(given)})
    assert control_plane(settings) == ours
    assert (
        control_plane(msgspec.structs.replace(settings, assets=built(tmp_path / "whole", *_PROGRAMS))).name == "whole"
    )


@pytest.mark.req("W-10")
def test_the_command_that_a_skipped_restore_names_prints_a_directory_with_etcdutl(tmp_path: Path) -> None:
    """``make conformance``, which it named before, takes what KUBEBUILDER_ASSETS names, and that may have none."""
    ours = built(tmp_path / f"kubernetes-{KUBERNETES_VERSION}", *_PROGRAMS, "etcdutl")
    given = built(tmp_path / "given", *_PROGRAMS)
    # Everything is built: Go has only to be there.
    go = built(tmp_path / "bin", "go") / "go"
    go.chmod(0o755)
    environment = {
        **os.environ,
        "BUILDS": str(tmp_path),
        "KUBEBUILDER_ASSETS": str(given),
        "PATH": f"{go.parent}{os.pathsep}{os.environ['PATH']}",
    }
    skip = (ROOT / "tests" / "e2e" / "test_e2e_etcd_restore.py").read_text()
    assert "`KUBEBUILDER_ASSETS=$(python -m conformance.build)`" in skip
    command = [sys.executable, "-m", "conformance.build"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{ours}\n"
