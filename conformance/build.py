"""The programs that a run needs, built with Go: the suite, and a control plane where none is given.

`python -m conformance.build` builds the control plane alone, with etcdutl, and prints its directory: what
KUBEBUILDER_ASSETS is to name for the tests against a real API server.

In: the modules in conformance/go, which pin every version and its hash. Out: paths of programs, kept for the next run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from conformance.paths import KUBERNETES_VERSION, MCS_SUITE_VERSION, ROOT, SUITE_VERSION, RunSettings, of_this_process

_MODULES = ROOT / "conformance" / "go"
_SUITE = "sigs.k8s.io/gateway-api/conformance"
_CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager")
#: What restores a snapshot of etcd; no control plane needs it to run.
_ETCDUTL = "etcdutl"
#: Where the source of each is: the module in conformance/go that pins its version, and its package.
_SOURCES = {
    "etcd": ("etcd", "."),
    _ETCDUTL: ("etcd", "go.etcd.io/etcd/etcdutl/v3"),
    **{name: ("controlplane", f"k8s.io/kubernetes/cmd/{name}") for name in _CONTROL_PLANE[1:]},
}
_VERSION = (
    "-s -w -X k8s.io/component-base/version.gitVersion={version} -X k8s.io/component-base/version.gitMajor={major} "
    "-X k8s.io/component-base/version.gitMinor={minor}"
)


class Programs(msgspec.Struct, frozen=True, kw_only=True):
    """The programs of a run. ``api`` and ``tests`` are the sources of Gateway API and of its suite."""

    suite: Path
    assets: Path
    api: Path
    tests: Path


def why_not() -> str:
    """Return why nothing can be built or run here; empty when it can."""
    for program in ("go", "ip"):
        if shutil.which(program) is None:
            return f"{program} is missing: the conformance suite is built with Go and runs in a network namespace"
    if os.geteuid() != 0:
        return "only root may make the network namespace that the conformance suite runs in"
    return ""


def build(settings: RunSettings) -> Programs:
    """Build what is missing; the first time that takes some minutes."""
    settings.builds.mkdir(parents=True, exist_ok=True)
    suite = settings.builds / f"gateway-api-{SUITE_VERSION}.test"
    if not suite.exists():
        _go("suite", "test", "-c", "-o", str(suite), _SUITE)
    return Programs(
        suite=suite, assets=control_plane(settings), api=source_of("sigs.k8s.io/gateway-api"), tests=source_of(_SUITE)
    )


def control_plane(settings: RunSettings) -> Path:
    """Return the directory of etcd, kube-apiserver and kube-controller-manager; built where none is given."""
    if settings.assets is not None and all((settings.assets / name).exists() for name in _CONTROL_PLANE):
        return settings.assets
    assets = settings.builds / f"kubernetes-{KUBERNETES_VERSION}"
    assets.mkdir(parents=True, exist_ok=True)
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    flags = _VERSION.format(version=KUBERNETES_VERSION, major=major, minor=minor)
    for name, (module, package) in _SOURCES.items():
        if not (assets / name).exists():
            given = flags if module == "controlplane" else "-s -w"
            _go(module, "build", "-ldflags", given, "-o", str(assets / name), package)
    return assets


def _go(module: str, *arguments: str) -> None:
    sys.stderr.write(f"Building with Go: {arguments[-1]} ...\n")
    subprocess.run(
        ["go", *arguments], cwd=_MODULES / module, check=True, env={**os.environ, "GOFLAGS": "-mod=readonly"}
    )


def build_mcs_suite(settings: RunSettings) -> Path:
    """Build the suite of the Multi-Cluster Services API where it is missing."""
    settings.builds.mkdir(parents=True, exist_ok=True)
    suite = settings.builds / f"mcs-api-{MCS_SUITE_VERSION}.test"
    if not suite.exists():
        _go("mcs", "test", "-c", "-o", str(suite), "sigs.k8s.io/mcs-api/conformance")
    return suite


def source_of(module: str, *, of: str = "suite") -> Path:
    """Return where Go keeps the source of a module of a suite; downloaded where it is missing."""
    command = ["go", "mod", "download", "-json", module]
    listed = subprocess.run(command, cwd=_MODULES / of, check=True, capture_output=True, text=True)
    return Path(str(json.loads(listed.stdout)["Dir"]))


if __name__ == "__main__":
    if shutil.which("go") is None:
        raise SystemExit("go is missing: the control plane is built with Go")
    sys.stdout.write(f"{control_plane(msgspec.structs.replace(of_this_process(), assets=None))}\n")
