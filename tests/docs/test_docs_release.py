"""What a release has: charts with pinned images, an OCI layout, checksums, signatures, and the plugin of kubectl."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead import __version__
from tools import krew, release

DIGEST = f"sha256:{'ab' * 32}"
IMAGE, ENVOY = f"mirror.example.com:5000/fairlead@{DIGEST}", f"docker.io/envoyproxy/envoy@{DIGEST}"


def files_of(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {entry.name: file.read() for entry in tar if (file := tar.extractfile(entry)) is not None}


def wheel(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as files:
        for name in names:
            files.writestr(name, name)
    return path


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release whose plugin has one small package."""
    monkeypatch.setattr(krew, "own_wheels", lambda _directory: [wheel(tmp_path / "a-1-py3-none-any.whl", "a.py")])
    monkeypatch.setattr(krew, "download", lambda *_arguments: [])
    directory = tmp_path / "dist"
    release.write_all(directory, image=IMAGE, proxy_image=ENVOY, url="https://example.com/x/", platforms=krew.PLATFORMS)
    return directory


@pytest.mark.req("F-27")
def test_charts_have_the_images_by_digest_and_the_files_of_the_source(written: Path) -> None:
    for name in ("fairlead-hub", "fairlead-agent"):
        files = files_of((written / "charts" / f"{name}-{__version__}.tgz").read_bytes())
        assert next(iter(files)) == f"{name}/Chart.yaml"
        values = yaml.safe_load(files[f"{name}/values.yaml"])
        expected = {"repository": "mirror.example.com:5000/fairlead", "digest": DIGEST}
        assert {key: values["image"][key] for key in expected} == expected
        source = release._ROOT / "deploy" / "charts"
        for path, content in files.items():
            assert path.endswith("values.yaml") or (source / path).read_bytes() == content
        schema = json.loads(files[f"{name}/values.schema.json"])
        assert schema["additionalProperties"] is False
    assert yaml.safe_load(files_of(release.package("fairlead-hub", IMAGE, ENVOY))["fairlead-hub/values.yaml"])[
        "proxy"
    ] == {"replicas": 2, "image": ENVOY}


@pytest.mark.req("F-27")
def test_the_layout_has_each_chart_as_an_artifact_of_helm(written: Path) -> None:
    layout = written / "charts" / "oci"
    index = json.loads((layout / "index.json").read_text())
    names = [entry["annotations"]["org.opencontainers.image.ref.name"] for entry in index["manifests"]]
    assert names == [f"fairlead-hub:{__version__}", f"fairlead-agent:{__version__}"]

    def blob(entry: dict[str, Any]) -> bytes:
        data = (layout / "blobs" / entry["digest"].replace(":", "/")).read_bytes()
        assert (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)) == (entry["digest"], entry["size"])
        return data

    for entry, name in zip(index["manifests"], ("fairlead-hub", "fairlead-agent"), strict=True):
        manifest = json.loads(blob(entry))
        (layer,) = manifest["layers"]
        assert layer["mediaType"] == "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
        assert blob(layer) == (written / "charts" / f"{name}-{__version__}.tgz").read_bytes()
        assert json.loads(blob(manifest["config"]))["name"] == name


@pytest.mark.req("F-26", "F-27")
def test_checksums_cover_every_file_and_a_second_release_is_the_same(written: Path, tmp_path: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=written, check=True)
    listed = {line.split("  ")[1] for line in (written / "SHA256SUMS").read_text().splitlines()}
    there = {str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()}
    assert listed == there - {"SHA256SUMS"}
    assert (written / "airgap.txt").read_text().splitlines()[:2] == [IMAGE, ENVOY]
    components = json.loads((written / "fairlead.cdx.json").read_text())["components"]
    assert {"type": "library", "name": "msgspec"}.items() <= next(
        c for c in components if c["name"] == "msgspec"
    ).items()
    again = tmp_path / "again"
    release.write_all(again, image=IMAGE, proxy_image=ENVOY, url="https://example.com/x/", platforms=krew.PLATFORMS)
    assert (again / "SHA256SUMS").read_text() == (written / "SHA256SUMS").read_text()


@pytest.mark.req("F-26")
def test_the_manifest_of_krew_names_each_archive_with_its_checksum(written: Path) -> None:
    plugin = yaml.safe_load((written / "krew" / "fairlead.yaml").read_text())
    assert (plugin["metadata"]["name"], plugin["spec"]["version"]) == ("fairlead", f"v{__version__}")
    labels = [platform["selector"]["matchLabels"] for platform in plugin["spec"]["platforms"]]
    assert {(label["os"], label["arch"]) for label in labels} == {
        (system, arch) for system in ("linux", "darwin") for arch in ("amd64", "arm64")
    }
    for platform in plugin["spec"]["platforms"]:
        data = (written / "krew" / platform["uri"].removeprefix("https://example.com/x/")).read_bytes()
        assert hashlib.sha256(data).hexdigest() == platform["sha256"]
        assert {"kubectl-fairlead", "LICENSE", "lib/common/a.py"} == files_of(data).keys()


@pytest.mark.req("F-26")
def test_packages_are_placed_by_what_they_are_compiled_for(tmp_path: Path) -> None:
    wheels = [
        wheel(tmp_path / "m-1-cp311-cp311-manylinux_2_17_x86_64.whl", "m/_core.so"),
        wheel(tmp_path / "c-1-cp311-abi3-manylinux_2_28_x86_64.whl", "c/_rust.so"),
        wheel(tmp_path / "p-1-py3-none-any.whl", "p.py", "p-1.data/purelib/q.py", "p-1.data/data/share/man/p.1"),
    ]
    krew.archive(wheels, target := tmp_path / "a.tar.gz")
    names = files_of(target.read_bytes()).keys() - {"LICENSE", "kubectl-fairlead"}
    assert names == {"lib/cp311/m/_core.so", "lib/common/c/_rust.so", "lib/common/p.py", "lib/common/q.py"}


@pytest.mark.req("F-27")
def test_an_image_without_a_digest_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        release.main([str(tmp_path), "--image", "mirror.example.com/fairlead:0.2.0", "--platform", "none"])
    assert "has no digest" in capsys.readouterr().err


def test_every_locked_package_is_kept_or_left_out_on_purpose() -> None:
    locked = set(release._LOCKED.findall((release._ROOT / "requirements" / "run.lock").read_text()))
    kept = set(release._LOCKED.findall(krew.requirements()))
    assert {name for name, _ in locked - kept} == krew._LEFT_OUT
