"""external-dns itself for tests, built with Go: `python -m conformance.externaldns`.

In: the module in conformance/go/externaldns, which pins the version and its hash. Out: one program with all sources of
external-dns and its provider for RFC 2136, kept for all runs, and the definition of DNSEndpoint. FAIRLEAD_EXTERNAL_DNS
names a directory that has both already.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from conformance.paths import ROOT, of_this_process

VERSION = "v0.21.0"
PROGRAM = "external-dns"
DEFINITION = "dnsendpoints.yaml"
_MODULE = ROOT / "conformance" / "go" / "externaldns"
_PATH = "sigs.k8s.io/external-dns"
_RELEASED = "config/crd/standard/dnsendpoints.externaldns.k8s.io.yaml"


def directory() -> Path:
    """Return where the program and the definition are, or are to be."""
    given = os.environ.get("FAIRLEAD_EXTERNAL_DNS")
    return Path(given) if given else of_this_process().builds / f"external-dns-{VERSION}"


def why_not() -> str:
    """Return why they are not there, empty when they are."""
    if all((directory() / name).exists() for name in (PROGRAM, DEFINITION)):
        return ""
    return (
        "external-dns is not built here: `python -m conformance.externaldns` builds it with Go, FAIRLEAD_EXTERNAL_DNS "
        "names a build"
    )


def build() -> Path:
    """Build what is missing; return its directory."""
    into = directory()
    if not why_not():
        return into
    if shutil.which("go") is None:
        raise SystemExit("go is missing: external-dns is built with Go")
    into.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOFLAGS": "-mod=readonly -p=1"}
    asked = ["go", "mod", "download", "-json", _PATH]
    answer = subprocess.run(asked, cwd=_MODULE, check=True, env=environment, capture_output=True)
    shutil.copyfile(Path(json.loads(answer.stdout)["Dir"]) / _RELEASED, into / DEFINITION)
    command = ["go", "build", "-ldflags", "-s -w", "-o", str(into / PROGRAM), "."]
    subprocess.run(command, cwd=_MODULE, check=True, env=environment)
    return into


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
