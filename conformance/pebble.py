"""A real certificate authority for tests, Pebble, built with Go: `python -m conformance.pebble`.

In: the module in conformance/go/pebble, which pins the version and its hash. Out: two programs, the authority and its
DNS server, kept for all runs. FAIRLEAD_PEBBLE names a directory that has them already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from conformance.paths import ROOT, of_this_process

PROGRAMS = ("pebble", "pebble-challtestsrv")
_MODULE = ROOT / "conformance" / "go" / "pebble"
_PACKAGE = "github.com/letsencrypt/pebble/v2/cmd"


def directory() -> Path:
    """Return where the programs are, or are to be."""
    given = os.environ.get("FAIRLEAD_PEBBLE")
    return Path(given) if given else of_this_process().builds / "pebble"


def why_not() -> str:
    """Return why the programs are not there, empty when they are."""
    if all((directory() / name).exists() for name in PROGRAMS):
        return ""
    return "Pebble is not built here: `python -m conformance.pebble` builds it with Go, FAIRLEAD_PEBBLE names a build"


def build() -> Path:
    """Build what is missing; return the directory of the programs."""
    into = directory()
    if not why_not():
        return into
    if shutil.which("go") is None:
        raise SystemExit("go is missing: Pebble is built with Go")
    into.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOFLAGS": "-mod=readonly"}
    for name in PROGRAMS:
        command = ["go", "build", "-o", str(into / name), f"{_PACKAGE}/{name}"]
        subprocess.run(command, cwd=_MODULE, check=True, env=environment)
    return into


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
