"""An API server, embedded or real, with the kinds of Fairlead in it, and a kubeconfig of its administrator."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.errors import AlreadyExists
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.discovery import install_crds
from tests.scenario.any_api import api, authority, real

__all__ = ["api", "authority", "real"]


@pytest.fixture
async def admin(api: ClusterConfig) -> AsyncIterator[Cluster]:
    async with Cluster(api, name="the hub") as cluster:
        assert await install_crds(cluster, all_crds(), "admin") == []
        for name in ("fairlead-system", "doctor-east"):
            try:
                await cluster.create(NAMESPACES, {"metadata": {"name": name}})
            except AlreadyExists:
                continue
        yield cluster


@pytest.fixture
async def kubeconfig(api: ClusterConfig, authority: bytes, tmp_path: Path) -> Path:
    access = await api.sign_in(None)
    cluster = {"server": api.server}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": access.headers["Authorization"].removeprefix("Bearer ")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    file.chmod(0o600)
    return file
