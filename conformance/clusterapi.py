"""Cluster API itself for tests, built with Go: `python -m conformance.clusterapi` builds it and runs its tests.

In: the module in conformance/go/capi, which pins the version and its hash. Out: its managers, its development provider,
whose machines exist in memory only, and clusterctl, kept for all runs; and where the manifests of each are.
FAIRLEAD_CLUSTER_API names a directory that has the programs already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from conformance.build import control_plane
from conformance.paths import ROOT, of_this_process

VERSION = "v1.14.2"
_MODULE = ROOT / "conformance" / "go" / "capi"
_PATH = "sigs.k8s.io/cluster-api"
#: Programs, and the package of each.
PROGRAMS = {
    "capi-core": f"{_PATH}/core",
    "capi-bootstrap": f"{_PATH}/bootstrap/kubeadm",
    "capi-controlplane": f"{_PATH}/controlplane/kubeadm",
    "capi-dev": f"{_PATH}/test/infrastructure/docker",
    "clusterctl": f"{_PATH}/cmd/clusterctl",
}


def directory() -> Path:
    """Return where the programs are, or are to be."""
    given = os.environ.get("FAIRLEAD_CLUSTER_API")
    return Path(given) if given else of_this_process().builds / f"cluster-api-{VERSION}"


def why_not() -> str:
    """Return why Cluster API cannot be run here, empty when it can."""
    if shutil.which("go") is None:
        return "go is missing: Cluster API is built with Go"
    if all((directory() / name).exists() for name in PROGRAMS):
        return ""
    return (
        "Cluster API is not built here: `make test-cluster-api` builds it with Go, which takes long; "
        "FAIRLEAD_CLUSTER_API names a build"
    )


def build() -> Path:
    """Build what is missing; return the directory of the programs."""
    if shutil.which("go") is None:
        raise SystemExit(why_not())
    into = directory()
    into.mkdir(parents=True, exist_ok=True)
    for name, package in PROGRAMS.items():
        if (into / name).exists():
            continue
        sys.stderr.write(f"Building with Go: {package} ...\n")
        command = ["go", "build", "-ldflags", "-s -w", "-o", str(into / name), package]
        # One package at a time: the tests of others go on meanwhile.
        environment = {**os.environ, "GOFLAGS": "-mod=readonly -p=1"}
        subprocess.run(command, cwd=_MODULE, check=True, env=environment)
    return into


def config_of(program: str) -> Path:
    """Return the directory with the manifests of a program, as Go keeps them."""
    command = ["go", "list", "-mod=readonly", "-f", "{{.Dir}}", PROGRAMS[program]]
    listed = subprocess.run(command, cwd=_MODULE, check=True, capture_output=True, text=True)
    return Path(listed.stdout.strip()) / "config"


def run_tests(arguments: list[str]) -> int:
    """Build what is missing, and run the tests against the real controllers; return pytest's exit code."""
    if shutil.which("go") is None:
        sys.stdout.write(f"{why_not()}; nothing was run\n")
        return 0
    environment = {
        **os.environ,
        "FAIRLEAD_CLUSTER_API": str(build()),
        "KUBEBUILDER_ASSETS": str(control_plane(of_this_process())),
    }
    tests = (str(ROOT / "tests" / "e2e" / f"test_e2e_{name}.py") for name in ("real_cluster_api", "clusterctl"))
    command = [sys.executable, "-m", "pytest", "-n", "0", "-rs", *tests, *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(run_tests(sys.argv[1:]))
