"""The files of a release: `make release`, or `python -m tools.release DIRECTORY [--image ...]`.

    addon-fairlead/v0.2.0/     components.yaml and metadata.yaml: DIRECTORY is a local repository of clusterctl
    charts/                    the Helm charts, and oci/: the same as an OCI image layout, for a registry
    krew/                      the kubectl plugin for each platform, and its manifest
    airgap.txt                 every image and chart that an installation pulls
    fairlead.cdx.json          bill of materials in CycloneDX 1.5, from requirements/run.lock
    SHA256SUMS                 the checksums of all files; with --sign-with also .asc, and .prov for the charts

In: the version of this source, and the digests of images that were pushed. Out: the same bytes each time.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from fairlead import __version__
from fairlead.api.clusterapi import PROVIDER_LABEL, labelled, metadata
from fairlead.api.kinds import all_crds
from fairlead.providers.envoy.kubernetes.manifests import DeploymentSettings
from tools import krew

_ROOT = Path(__file__).parents[1]
_MANIFEST = _ROOT / "deploy" / "kubernetes" / "capi.yaml"
_CHARTS = ("fairlead-hub", "fairlead-agent")
_DIGEST = re.compile(r"(?P<repository>[^@\s]+?)(?::[^:@/\s]+)?@(?P<digest>sha256:[0-9a-f]{64})")
_LOCKED = re.compile(r"(?m)^([A-Za-z0-9_.-]+)==(\S+)")
_OF_CHART = "application/vnd.cncf.helm"
_IMAGE = re.compile(r"image: (\S+)( # yours)?")


def components(release: str) -> str:
    """Return components.yaml of ``release``; FAIRLEAD_IMAGE names the image, the manifest's own when it is not set."""
    # clusterctl replaces $ as shells do: every $ that does not start our variable is doubled.
    kinds = yaml.safe_dump_all(labelled(all_crds()), sort_keys=False, explicit_start=True, width=120)
    image = _IMAGE.search(_MANIFEST.read_text())
    assert image is not None, f"{_MANIFEST} names no image"
    default = f"{image[1].rpartition(':')[0]}:{release.removeprefix('v')}"
    controller = _IMAGE.sub(f"image: ${{FAIRLEAD_IMAGE:={default}}}", _MANIFEST.read_text())
    return f"{kinds.replace('$', '$$')}---\n{controller}"


def write(directory: Path, release: str) -> list[Path]:
    """Write both files of ``release`` below ``directory``; return them."""
    home = directory / PROVIDER_LABEL / release
    home.mkdir(parents=True, exist_ok=True)
    contents = {
        "components.yaml": components(release),
        "metadata.yaml": yaml.safe_dump(metadata(release), sort_keys=False),
    }
    for name, content in contents.items():
        (home / name).write_text(content)
    return [home / name for name in contents]


def package(name: str, image: str, proxy_image: str) -> bytes:
    """Return a chart as `helm package` makes it; images that are pinned by digest become its defaults.

    Raises:
        ValueError: an image is not of the form REPOSITORY@sha256:DIGEST.
    """
    chart = _ROOT / "deploy" / "charts" / name
    files = {str(path.relative_to(chart)): path.read_bytes() for path in chart.rglob("*") if path.is_file()}
    values = files["values.yaml"].decode()
    if image:
        pinned = _pinned(image)
        values = values.replace('repository: "registry.example.com/fairlead"', f'repository: "{pinned["repository"]}"')
        values = values.replace('digest: ""', f'digest: "{pinned["digest"]}"', 1)
    if proxy_image and name == "fairlead-hub":
        _pinned(proxy_image)
        before, proxy, after = values.partition("\nproxy:\n")
        values = before + proxy + after.replace('image: ""', f'image: "{proxy_image}"', 1)
    return _archive({f"{name}/{path}": data for path, data in {**files, "values.yaml": values.encode()}.items()})


def _pinned(image: str) -> re.Match[str]:
    pinned = _DIGEST.fullmatch(image)
    if pinned is None:
        raise ValueError(f"image {image!r} has no digest; write it as REPOSITORY@sha256:DIGEST")
    return pinned


def _archive(files: Mapping[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        # Helm reads Chart.yaml of the directory that comes first.
        for name, content in sorted(files.items(), key=lambda item: (not item[0].endswith("/Chart.yaml"), item[0])):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), mtime=0)


def write_layout(directory: Path, charts: Mapping[str, bytes]) -> None:
    """Write charts as an OCI image layout: `oras cp --from-oci-layout`, `skopeo copy` and `crane push` read it."""
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)

    def put(data: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    entries: list[dict[str, Any]] = []
    for name, data in charts.items():
        about = yaml.safe_load((_ROOT / "deploy" / "charts" / name / "Chart.yaml").read_text())
        image = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": put(json.dumps(about, sort_keys=True).encode(), f"{_OF_CHART}.config.v1+json"),
            "layers": [put(data, f"{_OF_CHART}.chart.content.v1.tar+gzip")],
            "annotations": {
                "org.opencontainers.image.title": name,
                "org.opencontainers.image.version": about["version"],
            },
        }
        entry = put(json.dumps(image, sort_keys=True).encode(), str(image["mediaType"]))
        entries.append({**entry, "annotations": {"org.opencontainers.image.ref.name": f"{name}:{about['version']}"}})
    (directory / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries}
    (directory / "index.json").write_text(json.dumps(index, indent=1) + "\n")


def bill() -> dict[str, Any]:
    """Return the bill of materials: every package with the version that the lock file names."""
    locked = _LOCKED.findall((_ROOT / "requirements" / "run.lock").read_text())
    own = f"pkg:pypi/fairlead@{__version__}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "fairlead", "version": __version__, "purl": own}},
        "components": [
            {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
            for name, version in locked
        ],
    }


def write_all(directory: Path, *, image: str, proxy_image: str, url: str, platforms: Iterable[krew.Platform]) -> None:
    """Write the whole release below ``directory``, all but its signatures."""
    write(directory, f"v{__version__}")
    charts = {name: package(name, image, proxy_image) for name in _CHARTS}
    (directory / "charts").mkdir(parents=True, exist_ok=True)
    for name, data in charts.items():
        (directory / "charts" / f"{name}-{__version__}.tgz").write_bytes(data)
    write_layout(directory / "charts" / "oci", charts)
    krew.write(directory / "krew", url, platforms)
    needed = [image or f"registry.example.com/fairlead:{__version__}", proxy_image or DeploymentSettings().image]
    pulled = [*needed, *(f"charts/{name}-{__version__}.tgz" for name in charts)]
    (directory / "airgap.txt").write_text("".join(f"{line}\n" for line in pulled))
    (directory / "fairlead.cdx.json").write_text(json.dumps(bill(), indent=1) + "\n")
    listed = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    sums = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(directory)}\n" for path in listed)
    (directory / "SHA256SUMS").write_text("".join(sums))


def sign(directory: Path, key: str) -> None:
    """Sign the checksums, and each chart as `helm verify` expects it, with a key of GnuPG.

    Raises:
        CalledProcessError: GnuPG cannot use the key.
    """
    gpg = ["gpg", "--batch", "--yes", "--armor", "--local-user", key]
    subprocess.run([*gpg, "--detach-sign", str(directory / "SHA256SUMS")], check=True)
    for name in _CHARTS:
        chart = directory / "charts" / f"{name}-{__version__}.tgz"
        about = (_ROOT / "deploy" / "charts" / name / "Chart.yaml").read_text()
        checksum = hashlib.sha256(chart.read_bytes()).hexdigest()
        text = f"{about.strip()}\n\n...\nfiles:\n  {chart.name}: sha256:{checksum}\n"
        provenance = subprocess.run([*gpg, "--clear-sign"], input=text.encode(), capture_output=True, check=True)
        chart.with_name(f"{chart.name}.prov").write_bytes(provenance.stdout)


def main(arguments: list[str] | None = None) -> None:
    """Write a release."""
    parser = argparse.ArgumentParser(description="Write the files of a release.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--image", default="", help="image of Fairlead as REPOSITORY@sha256:DIGEST")
    parser.add_argument("--proxy-image", default="", help="image of Envoy as REPOSITORY@sha256:DIGEST")
    parser.add_argument("--url", default=f"https://example.com/fairlead/v{__version__}", help="where archives will be")
    parser.add_argument("--platform", action="append", default=[], help="OS-ARCH of the plugin, instead of all")
    parser.add_argument("--sign-with", default="", help="key of GnuPG; nothing is signed without")
    given = parser.parse_args(arguments)
    chosen = [each for each in krew.PLATFORMS if not given.platform or f"{each.os}-{each.arch}" in given.platform]
    try:
        write_all(given.directory, image=given.image, proxy_image=given.proxy_image, url=given.url, platforms=chosen)
    except ValueError as error:
        parser.error(str(error))
    if given.sign_with:
        sign(given.directory, given.sign_with)
    unpinned = [] if given.image and given.proxy_image else ["images are not pinned: give --image and --proxy-image"]
    unsigned = [] if given.sign_with else ["nothing is signed: give --sign-with"]
    for line in (f"{given.directory}: release v{__version__}", *unpinned, *unsigned):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
