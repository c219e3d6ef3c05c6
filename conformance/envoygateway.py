"""Envoy Gateway itself for benchmarks, built with Go: `python -m conformance.envoygateway`.

In: the module in conformance/go/envoygateway, which pins the version and its hash. Out: one program, kept for all runs,
and the definitions of its kinds. FAIRLEAD_ENVOY_GATEWAY names a directory that has both already.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from conformance.paths import ROOT, of_this_process

VERSION = "v1.9.1"
PROGRAM = "envoy-gateway"
DEFINITIONS = "crds"
_MODULE = ROOT / "conformance" / "go" / "envoygateway"
_PATH = "github.com/envoyproxy/gateway"
_RELEASED = "charts/gateway-helm/charts/crds/crds/generated"


def directory() -> Path:
    """Return where the program and the definitions are, or are to be."""
    given = os.environ.get("FAIRLEAD_ENVOY_GATEWAY")
    return Path(given) if given else of_this_process().builds / f"envoy-gateway-{VERSION}"


def why_not() -> str:
    """Return why they are not there, empty when they are."""
    if (directory() / PROGRAM).exists() and (directory() / DEFINITIONS).is_dir():
        return ""
    return (
        "Envoy Gateway is not built here: `python -m conformance.envoygateway` builds it with Go, "
        "FAIRLEAD_ENVOY_GATEWAY names a build"
    )


def build() -> Path:
    """Build what is missing; return its directory."""
    into = directory()
    if not why_not():
        return into
    if shutil.which("go") is None:
        raise SystemExit("go is missing: Envoy Gateway is built with Go")
    into.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOFLAGS": "-mod=readonly -p=1"}
    asked = ["go", "mod", "download", "-json", _PATH]
    answer = subprocess.run(asked, cwd=_MODULE, check=True, env=environment, capture_output=True)
    shutil.copytree(Path(json.loads(answer.stdout)["Dir"]) / _RELEASED, into / DEFINITIONS, dirs_exist_ok=True)
    command = ["go", "build", "-ldflags", "-s -w", "-o", str(into / PROGRAM), f"{_PATH}/cmd/envoy-gateway"]
    subprocess.run(command, cwd=_MODULE, check=True, env=environment)
    return into


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
