"""The paths and options of a run, read from the environment once.

NS      name of the network namespace            D      directory of logs, sockets and state
ONLY    name of one test                          KEEP   leave the cluster running, for the next run
BUILDS  directory of what Go has built, kept for all runs
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
#: The versions of what is built; those in conformance/go/*/go.mod.
SUITE_VERSION, MCS_SUITE_VERSION, KUBERNETES_VERSION = "v1.6.1", "v0.5.0", "v1.36.2"


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    namespace: str
    directory: Path
    builds: Path
    only: str = ""
    keep: bool = False
    #: The directory with the binaries of a control plane that is there already.
    assets: Path | None = None

    @property
    def kubeconfig(self) -> Path:
        """Return where the administrator's kubeconfig is."""
        return self.directory / "kubeconfig"

    @property
    def log(self) -> Path:
        """Return where the output of the suite goes."""
        return self.directory / "suite.log"


def read_settings(environ: dict[str, str]) -> RunSettings:
    """Return the settings that the environment asks for."""
    cache = Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    namespace = environ.get("NS") or "fairlead-conformance"
    assets = environ.get("KUBEBUILDER_ASSETS")
    return RunSettings(
        namespace=namespace,
        directory=Path(environ.get("D") or cache / "fairlead" / namespace).absolute(),
        builds=Path(environ.get("BUILDS") or cache / "fairlead" / "conformance-builds").absolute(),
        only=environ.get("ONLY", ""),
        keep=bool(environ.get("KEEP")),
        assets=Path(assets) if assets else None,
    )


def of_this_process() -> RunSettings:
    """Return the settings of this process."""
    return read_settings(dict(os.environ))
