"""Real Helm, at one cluster.

In: a kubeconfig. Out: what Helm says, and what the cluster has after it. `make helm` builds Helm with Go.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from fairlead.api.meta import JSONObject
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.kube.cluster import Cluster

HELM = shutil.which("helm", path=Path(sys.executable).parent)
CHARTS = Path(__file__).parents[3] / "deploy" / "charts"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Release:
    """Helm, at one cluster."""

    def __init__(self, kubeconfig: Path, cluster: Cluster, home: Path) -> None:
        self.cluster = cluster
        self._kubeconfig = kubeconfig
        self._environment = {**os.environ, "HOME": str(home)}

    def helm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        assert HELM is not None
        where = ("--kubeconfig", str(self._kubeconfig), "--namespace", SYSTEM_NAMESPACE)
        return subprocess.run(
            [HELM, *arguments, *where],
            capture_output=True, text=True, check=False, timeout=180, env=self._environment,
        )  # fmt: skip

    def does(self, *arguments: str) -> str:
        done = self.helm(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def revision(self, name: str) -> int:
        (release,) = [each for each in json.loads(self.does("list", "--output=json")) if each["name"] == name]
        return int(release["revision"])

    async def get(self, path: str) -> Any:
        return json.loads(await self.cluster.raw("GET", path))

    async def replicas(self, name: str) -> int:
        deployment = await self.get(f"/apis/apps/v1/namespaces/{SYSTEM_NAMESPACE}/deployments/{name}")
        return int(deployment["spec"]["replicas"])

    async def columns(self) -> dict[str, list[str]]:
        """Return the columns of every kind of ours that the API serves."""
        served = (await self.get(CRDS))["items"]
        return {crd["metadata"]["name"]: columns_of(crd) for crd in served}


def columns_of(crd: JSONObject) -> list[str]:
    return [column["name"] for column in crd["spec"]["versions"][0].get("additionalPrinterColumns", [])]
