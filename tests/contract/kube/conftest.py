"""The same tests against every API server there is: the embedded one, and a real one where its binaries are.

KUBEBUILDER_ASSETS names the directory that holds ``etcd`` and ``kube-apiserver`` (as setup-envtest installs them).
"""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.api.kubernetes import NAMESPACES
from fairlead.apiserver import ApiServer
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.credentials import tls_context

_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Real:
    url: str
    authority: bytes
    token: str
    nobody: str  # a token that is known and may do nothing


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        pytest.skip("KUBEBUILDER_ASSETS is not set")
    root = tmp_path_factory.mktemp("kube-apiserver")
    token, nobody = secrets.token_hex(16), secrets.token_hex(16)
    (root / "tokens.csv").write_text(f'{token},admin,1,"system:masters"\n{nobody},nobody,2\n')
    subprocess.run(["openssl", "genrsa", "-out", str(root / "sa.key"), "2048"], check=True, capture_output=True)
    port, client, peer = free_port(), free_port(), free_port()
    etcd = [
        f"{assets}/etcd",
        f"--data-dir={root / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync",
    ]
    apiserver = [
        f"{assets}/kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{client}",
        f"--cert-dir={root / 'certs'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--token-auth-file={root / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={root / 'sa.key'}",
        f"--service-account-signing-key-file={root / 'sa.key'}",
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
    ]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in (etcd, apiserver):
            with (root / f"{Path(command[0]).name}.log").open("wb") as log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        certificate = root / "certs" / "apiserver.crt"
        _wait_ready(f"https://127.0.0.1:{port}/readyz", token, certificate, processes)
        yield Real(f"https://127.0.0.1:{port}", certificate.read_bytes(), token, nobody)
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)


def _wait_ready(url: str, token: str, certificate: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert all(process.poll() is None for process in processes), "etcd or kube-apiserver ended; see its log"
        if certificate.exists():
            context = ssl.create_default_context(cafile=str(certificate))
            request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
            try:
                with urllib.request.urlopen(request, context=context, timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                pass
        time.sleep(0.1)
    raise TimeoutError("kube-apiserver did not become ready within 60 s")


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real_api)])
async def config(request: pytest.FixtureRequest) -> AsyncIterator[ClusterConfig]:
    if request.param == "embedded":
        server = ApiServer()
        url = await server.start()
        yield ClusterConfig(server=url, sign_in=bearer(server.admin_token), user="admin")
        await server.stop()
        return
    there: Real = request.getfixturevalue("real")
    tls = tls_context(authority=there.authority)
    yield ClusterConfig(server=there.url, sign_in=bearer(there.token, tls=tls), user="admin")


@pytest.fixture
async def cluster(config: ClusterConfig) -> AsyncIterator[Cluster]:
    async with Cluster.connect(config, name="contract") as cluster:
        yield cluster


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    """A namespace of this test's own: the real server outlives the test."""
    name = f"t-{os.getpid()}-{next(_NUMBERS)}"
    await cluster.create(NAMESPACES, {"metadata": {"name": name}})
    return name
