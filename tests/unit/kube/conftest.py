from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kube_scripted import ScriptedApi

from fairlead.api.kubernetes import NAMESPACES
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from tests.scenario.installed_kinds import server_with_kinds


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi() as server:
        yield server


@pytest.fixture
async def cluster(api: ScriptedApi) -> AsyncIterator[Cluster]:
    async with api.cluster() as cluster:
        yield cluster


@pytest.fixture
async def embedded() -> AsyncIterator[Cluster]:
    """A cluster that is served by the embedded API, with our kinds and the namespace ``a``."""
    server = await server_with_kinds()
    url = await server.start()
    try:
        async with Cluster(ClusterConfig(server=url, sign_in=bearer(server.admin_token)), name="one") as cluster:
            await cluster.create(NAMESPACES, {"metadata": {"name": "a"}})
            yield cluster
    finally:
        await server.stop()


@pytest.fixture(scope="session")
def pems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A self-signed server certificate, and a client certificate with its key."""
    root = tmp_path_factory.mktemp("pems")
    made: dict[str, Path] = {}
    for name in ("server", "client", "idp"):
        made[name], made[f"{name}-key"] = root / f"{name}.pem", root / f"{name}-key.pem"
        address = "127.0.0.9" if name == "server" else "127.0.0.1"
        command = (
            f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name}"
            f" -addext subjectAltName=DNS:{name}.example,IP:{address} -out {made[name]} -keyout {made[f'{name}-key']}"
        )
        subprocess.run(command.split(), check=True, capture_output=True)
    return made
