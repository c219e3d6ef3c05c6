"""The files that `make release` writes for clusterctl, read as clusterctl reads them."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from deployment_helm import HELM

from fairlead import __version__
from fairlead.api.kinds import all_crds
from tools import krew
from tools.release import sign, write, write_all

_VARIABLE = re.compile(r"\$\{([A-Z_]+)(?::=([^}]*))?\}")


def _substituted(text: str, **variables: str) -> str:
    """Replace variables as clusterctl does: a default where there is one, two dollars are one."""
    return _VARIABLE.sub(lambda match: variables.get(match[1], match[2]), text).replace("$$", "$")


def _components(directory: Path, **variables: str) -> list[dict[str, Any]]:
    path = directory / "addon-fairlead" / "v0.2.0" / "components.yaml"
    return [each for each in yaml.safe_load_all(_substituted(path.read_text(), **variables)) if each]


def test_a_local_repository_of_clusterctl_has_both_files(tmp_path: Path) -> None:
    written = write(tmp_path, "v0.2.0")
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        "addon-fairlead/v0.2.0/components.yaml",
        "addon-fairlead/v0.2.0/metadata.yaml",
    ]
    metadata = yaml.safe_load(written[1].read_text())
    assert metadata["releaseSeries"] == [{"major": 0, "minor": 2, "contract": "v1beta2"}]


def test_components_are_the_kinds_and_the_controller_in_one_namespace(tmp_path: Path) -> None:
    write(tmp_path, "v0.2.0")
    objects = _components(tmp_path)
    kinds = [each for each in objects if each["kind"] == "CustomResourceDefinition"]
    assert [each["spec"] for each in kinds] == [each["spec"] for each in all_crds()]
    # clusterctl refuses components with several namespaces, and takes the only one as where the provider goes.
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"] == ["fairlead-system"]
    namespaced = {each["metadata"].get("namespace") for each in objects} - {None}
    assert namespaced == {"fairlead-system"}


def test_the_image_is_a_variable_with_the_release_as_its_default(tmp_path: Path) -> None:
    write(tmp_path, "v0.2.0")

    def image(**variables: str) -> str:
        (deployment,) = (each for each in _components(tmp_path, **variables) if each["kind"] == "Deployment")
        return deployment["spec"]["template"]["spec"]["containers"][0]["image"]

    assert image() == "registry.example.com/fairlead:0.2.0"
    assert image(FAIRLEAD_IMAGE="mirror.example.com/fairlead:mine") == "mirror.example.com/fairlead:mine"


class Registry(BaseHTTPRequestHandler):
    """A registry that serves one OCI image layout, read only, as the distribution specification says."""

    layout: Path

    def do_GET(self) -> None:
        asked = re.fullmatch(r"/v2/(?:charts/([^/]+)/(manifests|blobs)/(.+))?", self.path)
        digest = asked[3] if asked is not None else None
        if asked is not None and asked[2] == "manifests" and not str(digest).startswith("sha256:"):
            index = json.loads((self.layout / "index.json").read_text())
            names = {entry["annotations"]["org.opencontainers.image.ref.name"]: entry for entry in index["manifests"]}
            digest = names[f"{asked[1]}:{digest}"]["digest"]
        data = (self.layout / "blobs" / digest.replace(":", "/")).read_bytes() if digest else b"{}"
        self.send_response(200 if asked is not None else 404)
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        manifest = asked is not None and asked[2] == "manifests"
        kind = "application/vnd.oci.image.manifest.v1+json" if manifest else "application/octet-stream"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_request(self, code: object = "", size: object = "") -> None:
        """Print nothing."""


@pytest.mark.req("F-27")
@pytest.mark.skipif(HELM is None, reason="Helm is not installed: make helm builds it, where Go is")
def test_helm_pulls_a_signed_chart_from_a_registry_and_verifies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert HELM is not None
    monkeypatch.setattr(krew, "write", lambda *_arguments: [])
    monkeypatch.setenv("HOME", str(tmp_path))
    (home := tmp_path / "gpg").mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    gpg = ["gpg", "--batch", "--quiet"]
    key = ["--passphrase", "", "--quick-generate-key", "release@example.com", "rsa2048", "sign", "never"]
    subprocess.run([*gpg, *key], check=True, capture_output=True)
    ring = tmp_path / "ring.gpg"
    ring.write_bytes(subprocess.run([*gpg, "--export"], check=True, capture_output=True).stdout)
    dist, image = tmp_path / "dist", f"mirror.example.com/fairlead@sha256:{'ab' * 32}"
    write_all(dist, image=image, proxy_image="", url="https://example.com", platforms=())
    sign(dist, "release@example.com")
    handler = type("Served", (Registry,), {"layout": dist / "charts" / "oci"})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        chart = f"oci://127.0.0.1:{server.server_address[1]}/charts/fairlead-hub"
        pull = [HELM, "pull", chart, "--plain-http", "--version", __version__, "--destination", str(tmp_path)]
        pulled = subprocess.run(pull, capture_output=True, text=True, check=False, timeout=120)
        server.shutdown()
    assert pulled.returncode == 0, pulled.stderr
    name = f"fairlead-hub-{__version__}.tgz"
    assert (tmp_path / name).read_bytes() == (dist / "charts" / name).read_bytes()

    def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([HELM or "", *arguments], capture_output=True, text=True, check=False, timeout=120)

    assert helm("verify", "--keyring", str(ring), str(dist / "charts" / name)).returncode == 0
    rendered = helm("template", "x", str(tmp_path / name), "--namespace", "fairlead-system", "--kube-version", "1.33.0")
    assert f"image: {image}" in rendered.stdout, rendered.stderr
    unknown = helm("template", "x", str(tmp_path / name), "--kube-version", "1.33.0", "--set", "nonsense=1")
    assert "nonsense" in unknown.stderr
    assert unknown.returncode != 0
