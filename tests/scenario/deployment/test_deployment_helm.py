"""Real Helm at a real API server: the charts are installed, upgraded with their kinds, and uninstalled.

`make helm` builds Helm with Go; KUBEBUILDER_ASSETS names the binaries of the API server.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from deployment_helm import CHARTS, HELM, Release, columns_of
from deployment_world import until

from fairlead.api.kinds import all_crds
from fairlead.api.tenant import TENANTS
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from tests.e2e.e2e_real_apis import RealApis, assets_directory

pytestmark = [
    pytest.mark.real_api,
    pytest.mark.slow,
    pytest.mark.skipif(HELM is None, reason="Helm is not installed: make helm builds it, where Go is"),
]


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
        # Kinds are served a moment after they were installed.
        tenant = {"metadata": {"name": "east"}, "spec": {}}
        await until(lambda: cluster.create(TENANTS, tenant), what="the kind Tenant is served")

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
