"""cert-manager itself for tests: its kinds, and its controllers built with Go: `python -m conformance.certmanager`.

In: the module in conformance/go/certmanager, which pins the version and its hash. Out: the definitions of its kinds and
one program with the controllers that issue by ACME, kept for all runs. FAIRLEAD_CERT_MANAGER names a directory that has
the program and the definitions (crds) already.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from conformance.paths import ROOT, of_this_process

VERSION = "v1.21.2"
PROGRAM = "cert-manager"
DEFINITIONS = "crds"
_MODULE = ROOT / "conformance" / "go" / "certmanager"
_PATH = "github.com/cert-manager/cert-manager"


def directory() -> Path:
    """Return where the program and the definitions are, or are to be."""
    given = os.environ.get("FAIRLEAD_CERT_MANAGER")
    return Path(given) if given else of_this_process().builds / f"cert-manager-{VERSION}"


def why_not(*, program: bool = True) -> str:
    """Return why it is not there, empty when it is; ``program`` False: the definitions alone are needed."""
    there = (directory() / DEFINITIONS).is_dir() and (not program or (directory() / PROGRAM).exists())
    if there:
        return ""
    return (
        "cert-manager is not built here: `python -m conformance.certmanager` builds it with Go, FAIRLEAD_CERT_MANAGER "
        "names a build"
    )


def definitions() -> list[Path]:
    """Return the files with the definitions of its kinds."""
    return sorted((directory() / DEFINITIONS).glob("*.yaml"))


def build() -> Path:
    """Build what is missing; return its directory."""
    into = directory()
    if not why_not():
        return into
    if shutil.which("go") is None:
        raise SystemExit("go is missing: cert-manager is built with Go")
    into.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOFLAGS": "-mod=readonly -p=1"}
    asked = ["go", "mod", "download", "-json", _PATH]
    answer = subprocess.run(asked, cwd=_MODULE, check=True, env=environment, capture_output=True)
    shutil.copytree(Path(json.loads(answer.stdout)["Dir"]) / "deploy" / "crds", into / DEFINITIONS, dirs_exist_ok=True)
    command = ["go", "build", "-ldflags", "-s -w", "-o", str(into / PROGRAM), "."]
    subprocess.run(command, cwd=_MODULE, check=True, env=environment)
    return into


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
