"""Real Helm at a real API server: the charts are installed, upgraded with their kinds, and uninstalled.

`make helm` builds Helm with Go; KUBEBUILDER_ASSETS names the binaries of the API server.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.api.kinds import all_crds
from fairlead.api.meta import JSONObject
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.tenant import TENANTS
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from tests.e2e.e2e_real_apis import RealApis, assets_directory

HELM = shutil.which("helm", path=Path(sys.executable).parent)
CHARTS = Path(__file__).parents[3] / "deploy" / "charts"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

pytestmark = [
    pytest.mark.real_api,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(HELM is None, reason="Helm is not installed: make helm builds it, where Go is"),
]


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


@pytest.fixture
async def apis(tmp_path: Path) -> AsyncIterator[RealApis]:
    assets = assets_directory()
    if assets is None:
        pytest.skip("set KUBEBUILDER_ASSETS to a directory with kube-apiserver and etcd")
    apis = RealApis(tmp_path / "api", ("hub", "east"), assets=assets)
    try:
        await apis.start()
        yield apis
    finally:
        await apis.close()


def older_chart(directory: Path) -> Path:
    """Return a copy of the hub's chart whose kinds have no columns yet, and which has one kind less."""
    chart = directory / "fairlead-hub"
    shutil.copytree(CHARTS / "fairlead-hub", chart)
    file = chart / "files" / "crds.yaml"
    crds = [crd for crd in yaml.safe_load_all(file.read_text()) if crd]
    for crd in crds:
        crd["spec"]["versions"][0].pop("additionalPrinterColumns", None)
    file.write_text(yaml.safe_dump_all(crds[:-1]))
    return chart


@pytest.mark.req("OP-1", "KI-8")
async def test_the_hub_is_installed_upgraded_with_its_kinds_and_uninstalled(apis: RealApis, tmp_path: Path) -> None:
    async with Cluster.from_kubeconfig(apis.kubeconfig("hub"), name="hub") as cluster:
        release = Release(apis.kubeconfig("hub"), cluster, tmp_path)
        release.does("install", "fairlead-hub", str(older_chart(tmp_path)), "--create-namespace")
        before = await release.columns()
        assert set(map(tuple, before.values())) == {()}
        assert await release.replicas("fairlead-hub") == 2
        await cluster.create(TENANTS, {"metadata": {"name": "east"}, "spec": {}})

        chart = str(CHARTS / "fairlead-hub")
        release.does("upgrade", "fairlead-hub", chart, "--set=replicaCount=3", "--set=protection.enabled=true")
        expected = {crd["metadata"]["name"]: columns_of(crd) for crd in all_crds()}
        assert await release.columns() == expected
        assert set(before) < set(expected)
        assert await release.replicas("fairlead-hub") == 3
        policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        assert (await release.get(f"{policies}/do-not-delete.fairlead.dev"))["spec"]["validations"]

        # A value that is misspelt is refused by its name, and changes nothing.
        refused = release.helm("upgrade", "fairlead-hub", chart, "--set=replicaCout=5")
        assert refused.returncode != 0
        assert "replicaCout" in refused.stderr
        assert release.revision("fairlead-hub") == 2
        assert await release.replicas("fairlead-hub") == 3

        # Back, and off: the kinds stay, and so do the objects.
        release.does("rollback", "fairlead-hub", "1")
        assert await release.replicas("fairlead-hub") == 2
        release.does("uninstall", "fairlead-hub")
        with pytest.raises(NotFound):
            await release.replicas("fairlead-hub")
        assert set(await release.columns()) == set(expected)
        assert [tenant.metadata.name for tenant in await cluster.list(TENANTS)] == ["east"]


@pytest.mark.req("OP-1", "KI-8")
async def test_the_agent_is_installed_upgraded_and_uninstalled(apis: RealApis, tmp_path: Path) -> None:
    async with Cluster.from_kubeconfig(apis.kubeconfig("east"), name="east") as cluster:
        release = Release(apis.kubeconfig("east"), cluster, tmp_path)
        chart = str(CHARTS / "fairlead-agent")
        refused = release.helm("install", "fairlead-agent", chart, "--create-namespace")
        assert refused.returncode != 0
        assert "tenant" in refused.stderr
        release.does("install", "fairlead-agent", chart, "--create-namespace", "--set=tenant=east")
        assert await release.replicas("fairlead-agent") > 0
        release.does("upgrade", "fairlead-agent", chart, "--reuse-values", "--set=replicaCount=3")
        assert await release.replicas("fairlead-agent") == 3
        release.does("uninstall", "fairlead-agent")
        with pytest.raises(NotFound):
            await release.replicas("fairlead-agent")
