"""CoreDNS with its plugin multicluster for tests, built with Go: `python -m conformance.coredns`.

In: the module in conformance/go/coredns, which pins the versions and their hashes. Out: one program, kept for all runs.
FAIRLEAD_COREDNS names a directory that has it already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from conformance.paths import ROOT, of_this_process

PROGRAM = "coredns"
_MODULE = ROOT / "conformance" / "go" / "coredns"


def directory() -> Path:
    """Return where the program is, or is to be."""
    given = os.environ.get("FAIRLEAD_COREDNS")
    return Path(given) if given else of_this_process().builds / "coredns"


def why_not() -> str:
    """Return why the program is not there, empty when it is."""
    if (directory() / PROGRAM).exists():
        return ""
    return (
        "CoreDNS is not built here: `python -m conformance.coredns` builds it with Go, FAIRLEAD_COREDNS names a build"
    )


def build() -> Path:
    """Build what is missing; return the directory of the program."""
    into = directory()
    if not why_not():
        return into
    if shutil.which("go") is None:
        raise SystemExit("go is missing: CoreDNS is built with Go")
    into.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOFLAGS": "-mod=readonly -p=1"}
    command = ["go", "build", "-ldflags", "-s -w", "-o", str(into / PROGRAM), "."]
    subprocess.run(command, cwd=_MODULE, check=True, env=environment)
    return into


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
