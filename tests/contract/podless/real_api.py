"""A real API server for the contract tests: etcd, kube-apiserver and, where it is there, kube-controller-manager.

KUBEBUILDER_ASSETS names the directory that holds them (as setup-envtest installs the first two). Certificates are the
server's own, so there is nothing to make but the key of the service accounts. The embedded server speaks as Kubernetes
1.36 does; an older one words some refusals differently.
"""

from __future__ import annotations

import os
import secrets
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from fairlead_demo.worlds.loopback import free_port


@dataclass(frozen=True)
class Real:
    url: str
    authority: bytes
    token: str
    bystander: str  # a token that is known and may do nothing
    controllers: bool  # whether deletions are carried through to dependents and namespaces

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig of the administrator (JSON is YAML too)."""
        certificate = path.with_suffix(".crt")
        certificate.write_bytes(self.authority)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url, "certificate-authority": str(certificate)}}],
            "users": [{"name": "u", "user": {"token": self.token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        path.write_bytes(msgspec.json.encode(config))
        return path


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """A server of both families, IPv4 first, as the embedded one is."""
    with running(tmp_path_factory.mktemp("kube-apiserver"), "10.0.0.0/16,fd00:10::/108") as there:
        yield there


@pytest.fixture(scope="session")
def real_single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """A server of IPv4 alone."""
    with running(tmp_path_factory.mktemp("single-stack"), "10.0.0.0/16") as there:
        yield there


@contextmanager
def running(root: Path, service_range: str) -> Generator[Real]:
    """Run one inside the block."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        pytest.skip("KUBEBUILDER_ASSETS is not set")
    processes: list[subprocess.Popen[bytes]] = []

    def start(program: str, *flags: str) -> None:
        with (root / f"{program}.log").open("wb") as log:
            processes.append(subprocess.Popen([f"{assets}/{program}", *flags], stdout=log, stderr=log))

    try:
        controllers = Path(assets, "kube-controller-manager").exists()
        yield _start(root, start, processes, service_range, controllers=controllers)
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)


def _start(
    root: Path, start: Any, processes: list[subprocess.Popen[bytes]], service_range: str, *, controllers: bool
) -> Real:
    token, bystander = secrets.token_hex(16), secrets.token_hex(16)
    (root / "tokens.csv").write_text(f'{token},kubernetes-admin,1,"system:masters"\n{bystander},bystander,2\n')
    key = root / "sa.key"
    key.write_bytes(
        rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    port, client, peer = free_port(), free_port(), free_port()
    start(
        "etcd",
        f"--data-dir={root / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync",
    )
    start(
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{client}",
        f"--cert-dir={root / 'certs'}",
        "--bind-address=127.0.0.1",
        # Nothing asks for it, but without a default route, as in a network of tests, the server finds none itself.
        "--advertise-address=192.0.2.1",
        f"--secure-port={port}",
        f"--token-auth-file={root / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        f"--service-cluster-ip-range={service_range}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
    )
    certificate = root / "certs" / "apiserver.crt"
    url = f"https://127.0.0.1:{port}"
    _wait(f"{url}/readyz", token, certificate, processes)
    there = Real(url, certificate.read_bytes(), token, bystander, controllers)
    if controllers:
        config = there.kubeconfig(root / "kubeconfig")
        start(
            "kube-controller-manager",
            f"--kubeconfig={config}",
            f"--service-account-private-key-file={key}",
            f"--root-ca-file={certificate}",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--leader-elect=false",
        )
        _wait(f"{url}/api/v1/namespaces/default/serviceaccounts/default", token, certificate, processes)
    return there


def _wait(url: str, token: str, certificate: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for process in processes:
            assert process.poll() is None, f"{process.args[0]} ended; see its log"  # type: ignore[index]
        if certificate.exists():
            context = ssl.create_default_context(cafile=str(certificate))
            request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
            try:
                with urllib.request.urlopen(request, context=context, timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                pass
        time.sleep(0.1)
    raise TimeoutError(f"{url} did not answer within 60 s")
