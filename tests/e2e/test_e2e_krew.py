"""The plugin of kubectl as krew installs it: from the manifest and the archive, with a Python that has no packages.

`go build sigs.k8s.io/krew/cmd/krew` makes the krew that KREW names; without it the archive is unpacked as krew does.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from fairlead import __version__
from tools import krew

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
PLATFORM = next(each for each in krew.PLATFORMS if (each.os, each.arch) == ("linux", ARCH))


def wheel_of(name: str, directory: Path) -> Path:
    """Return the wheel of an installed package."""
    installed = distribution(name)
    tags = re.findall(r"(?m)^Tag: (\S+)$", installed.read_text("WHEEL") or "")
    path = directory / f"{name.replace('-', '_')}-{installed.version}-{tags[0]}.whl"
    with zipfile.ZipFile(path, "w") as files:
        for file in installed.files or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
                files.write(source, str(file))
    return path


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that `make release` writes, of this machine's platform and Python, without an index."""
    directory = tmp_path_factory.mktemp("krew")
    names = re.findall(r"(?m)^([A-Za-z0-9_.-]+)==", krew.requirements())
    (wheels := directory / "wheels").mkdir()
    every = [*krew.own_wheels(wheels), *(wheel_of(name, wheels) for name in names)]
    checksum = krew.archive(every, directory / PLATFORM.archive)
    (directory / "fairlead.yaml").write_text(krew.manifest({PLATFORM: checksum}, directory.as_uri()))
    return directory


def installed(published: Path, home: Path) -> Path:
    """Install the plugin; return the directory of the command that kubectl finds."""
    store = home / ".krew"
    if (program := os.environ.get("KREW")) is None:
        place = store / "store"
        place.mkdir(parents=True)
        shutil.unpack_archive(published / PLATFORM.archive, place, filter="data")
        (store / "bin").mkdir()
        (store / "bin" / "kubectl-fairlead").symlink_to(place / "kubectl-fairlead")
        return store / "bin"
    command = [program, "install", f"--manifest={published / 'fairlead.yaml'}"]
    command.append(f"--archive={published / PLATFORM.archive}")
    environment = {"HOME": str(home), "KREW_ROOT": str(store), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return store / "bin"


@pytest.mark.req("F-26")
def test_the_installed_plugin_answers_without_any_package_of_python(published: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    # A Python without the packages of this environment.
    python = Path(sys.base_prefix) / "bin" / f"python{sysconfig.get_python_version()}"
    subprocess.run([python, "-m", "venv", "--without-pip", bare], check=True)
    path = os.pathsep.join([str(installed(published, tmp_path)), str(bare / "bin"), "/usr/bin", "/bin"])
    environment = {"HOME": str(tmp_path), "PATH": path}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    version = run("kubectl-fairlead", "version")
    assert version.returncode == 0, version.stderr
    assert __version__ in version.stdout
    assert "kubectl fairlead" in run("kubectl-fairlead", "--help").stdout
    unreachable = tmp_path / "kubeconfig"
    unreachable.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u}]}"
    )
    status = run("kubectl-fairlead", "status", "--kubeconfig", str(unreachable))
    assert "127.0.0.1:1" in status.stderr
    assert "Traceback" not in status.stderr


@pytest.mark.req("F-26")
def test_an_unsupported_python_is_named(published: Path, tmp_path: Path) -> None:
    with_another = tmp_path / "other"
    shutil.unpack_archive(published / PLATFORM.archive, with_another, filter="data")
    (compiled,) = (with_another / "lib").glob(f"cp{sysconfig.get_python_version().replace('.', '')}")
    compiled.rename(with_another / "lib" / "cp399")
    done = subprocess.run(
        [sys.executable, with_another / "kubectl-fairlead"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.strip().startswith("kubectl fairlead needs Python 3.11 to 3.14")) == (1, True)
