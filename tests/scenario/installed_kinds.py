"""Embedded API servers at which the kinds of Fairlead are installed from the start.

To install them costs more than most of what a test does; ``tests/unit/kube/test_kube_preflight.py`` and all tests of
processes do so for themselves.
"""

from __future__ import annotations

from typing import Any

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import CRDS
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.discovery import install_crds
from podless import ApiServer

_BUCKET = f"{CRDS.plural}.{CRDS.group}"
_installed: list[tuple[str, bytes]] = []


async def server_with_kinds(**options: Any) -> ApiServer:
    """Return a server, not yet started; ``options`` are those of ``ApiServer``."""
    if not _installed:
        _installed.extend([(_BUCKET, raw) for raw in await _definitions()])
    return ApiServer(objects=_installed, **options)


async def _definitions() -> list[bytes]:
    server = ApiServer()
    config = ClusterConfig(server=await server.start(), sign_in=bearer(server.admin_token), user="admin")
    try:
        async with Cluster(config, name="template") as cluster:
            assert await install_crds(cluster, all_crds(), "template") == []
            return [await cluster.raw("GET", CRDS.path("", str(crd["metadata"]["name"]))) for crd in all_crds()]
    finally:
        await server.stop()
