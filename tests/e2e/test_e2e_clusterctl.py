"""Real clusterctl: it installs this release from a directory, and moves a Cluster between two management clusters.

No network: the machine's own is left, and what clusterctl asks of cert-manager is that its kinds are served.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance import clusterapi
from fairlead import __version__
from fairlead.api.clusterapi import CLUSTERS, MACHINES
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.meta import JSONObject, ObjectMeta
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds
from fairlead.providers.envoy.envoy_process import admin_get
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.machines import ours_on
from fairlead_demo.worlds.processes import Child, fairlead, wait_until
from tests.e2e.conftest import working_directory
from tests.e2e.e2e_capi_manifests import kinds
from tests.e2e.e2e_real_apis import RealApis, assets_directory, own_network, why_not_real
from tools import release

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.real_api, pytest.mark.timeout(900)]

SOURCE, TARGET = "hub", "target"
HOST, MACHINE, PORT = "blue.clusters.test", "10.66.3.1", 6443
RELEASE = f"v{__version__}"
_PATIENCE_S = 180.0


class Management:
    """One management cluster: a real API server, a hub, and the controller."""

    def __init__(self, apis: RealApis, name: str, pool: str, directory: Path) -> None:
        self.kubeconfig = apis.kubeconfig(name)
        self.cluster = Cluster.from_kubeconfig(self.kubeconfig, name=name)
        self.data = directory / name
        self.data.mkdir(parents=True)
        options = ("--kubeconfig", str(self.kubeconfig))
        hub = fairlead("hub", *options, "--address-pool", pool, "--data-dir", str(self.data))
        self.hub = HubProcess(name, hub, envoy_directory=self.data, log=directory / f"{name}.log")
        capi = fairlead("capi", *options, "--data-dir", str(directory / f"{name}-capi"))
        self.capi = Child(f"{name} capi", capi, log=directory / f"{name}-capi.log")

    async def start(self) -> None:
        await self.hub.start_ready()
        await self.capi.start()

    async def load_balancer(self) -> LoadBalancer:
        return await self.cluster.get(LOAD_BALANCERS, "default", "blue")

    async def give_address(self) -> None:
        """Say where the machine is, as its infrastructure's controller does."""
        status = {"addresses": [{"type": "InternalIP", "address": MACHINE}], "nodeRef": {"name": "blue-1"}}
        await self.cluster.merge_patch(MACHINES, "default", "blue-1", {"status": status}, subresource="status")

    async def until_active(self) -> None:
        async def active() -> bool:
            there = await self.load_balancer()
            return [(each.name, each.state) for each in there.status.members or ()] == [("blue-1", "active")]

        await wait_until(active, "the machine is behind its load balancer", timeout_s=_PATIENCE_S)

    async def serves(self) -> bool:
        """Say whether the Envoy there has the machine."""
        _, text = await admin_get(self.data / "admin.sock", "/clusters")
        return f"{MACHINE}:{PORT}::" in str(text)

    async def close(self) -> None:
        await self.cluster.aclose()
        await asyncio.gather(self.capi.terminate(), self.hub.close())


class Clusterctl:
    """The program, with a repository in a directory."""

    def __init__(self, directory: Path) -> None:
        self._config = directory / "clusterctl.yaml"
        written = release.write(directory / "releases", RELEASE)
        core = directory / "releases" / "cluster-api" / clusterapi.VERSION
        core.mkdir(parents=True)
        namespace: JSONObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "capi-system"}}
        definitions = map(_without_conversion, kinds(clusterapi.config_of("capi-core"), "https://127.0.0.1", b""))
        (core / "core-components.yaml").write_text(yaml.safe_dump_all([namespace, *definitions]))
        series = [{"major": 1, "minor": 14, "contract": "v1beta2"}]
        about = {"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata", "releaseSeries": series}
        (core / "metadata.yaml").write_text(yaml.safe_dump(about))
        providers = [
            {"name": "fairlead", "type": "AddonProvider", "url": str(written[0])},
            {"name": "cluster-api", "type": "CoreProvider", "url": str(core / "core-components.yaml")},
        ]
        self._config.write_text(yaml.safe_dump({"providers": providers}))
        self._environment = {**os.environ, "CLUSTERCTL_DISABLE_VERSIONCHECK": "true", "HOME": str(directory)}

    async def run(self, *arguments: str) -> str:
        """Run it; return what it prints."""
        command = [str(clusterapi.directory() / "clusterctl"), *arguments, "--config", str(self._config)]
        output, end = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
        process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=end, env=self._environment)
        text = (await process.communicate())[0].decode()
        assert process.returncode == 0, text[-3000:]
        return text

    async def init(self, management: Management) -> None:
        """Install the core's kinds and this release, as users do."""
        assert not await install_crds(management.cluster, list(_of_cert_manager()), "cert-manager")
        core, addon = f"cluster-api:{clusterapi.VERSION}", f"fairlead:{RELEASE}"
        without = ("--bootstrap", "-", "--control-plane", "-")
        where = ("--kubeconfig", str(management.kubeconfig))
        await self.run("init", *where, "--core", core, *without, "--addon", addon)


def _without_conversion(crd: JSONObject) -> JSONObject:
    """Return a definition with the version that is stored alone: no manager is there that would convert others."""
    crd["spec"]["versions"] = [each for each in crd["spec"]["versions"] if each["storage"]]
    crd["spec"].pop("conversion", None)
    crd["metadata"]["labels"]["cluster.x-k8s.io/provider"] = "cluster-api"
    return crd


def _of_cert_manager() -> Iterator[JSONObject]:
    for kind, plural in (("Issuer", "issuers"), ("Certificate", "certificates")):
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.cert-manager.io"},
            "spec": {
                "group": "cert-manager.io",
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
            },
        }


async def create_cluster(at: Management) -> None:
    """Create a Cluster with one machine behind its load balancer, as if all of it had been provisioned."""
    meta: JSONObject = {"name": "blue", "namespace": "default"}
    endpoint = {"host": HOST, "port": PORT}
    made = await at.cluster.create(CLUSTERS, {"metadata": meta, "spec": {"controlPlaneEndpoint": endpoint}})
    initialized = {
        "type": "ControlPlaneInitialized",
        "status": "True",
        "reason": "Initialized",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    done = {"infrastructureProvisioned": True, "controlPlaneInitialized": True}
    status = {"initialization": done, "conditions": [initialized]}
    await at.cluster.merge_patch(CLUSTERS, "default", "blue", {"status": status}, subresource="status")
    listeners = [{"port": PORT, "protocol": "TCP"}]
    spec: JSONObject = {"className": "envoy", "clusterName": "blue", "listeners": listeners}
    await at.cluster.create(LOAD_BALANCERS, {"metadata": meta, "spec": spec})
    labels = {"cluster.x-k8s.io/cluster-name": "blue", "loadbalancer.cluster.x-k8s.io/name": "blue"}
    machine: JSONObject = {
        "name": "blue-1",
        "namespace": "default",
        "labels": labels,
        "ownerReferences": [_own(made.metadata)],
    }
    infrastructure = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AnyMachine", "name": "blue-1"}
    of_machine = {"clusterName": "blue", "bootstrap": {"dataSecretName": "blue-1"}, "infrastructureRef": infrastructure}
    await at.cluster.create(MACHINES, {"metadata": machine, "spec": of_machine})
    await at.give_address()


def _own(meta: ObjectMeta) -> dict[str, Any]:
    return {"apiVersion": CLUSTERS.api_version, "kind": "Cluster", "name": meta.name, "uid": meta.uid}


@pytest.fixture
def network() -> Iterator[None]:
    if why := clusterapi.why_not() or why_not_real():
        pytest.skip(why)
    with ExitStack() as stack:
        stack.enter_context(own_network())
        yield


@pytest.fixture
async def both(network: None) -> AsyncIterator[tuple[Management, Management, Clusterctl]]:
    del network  # it has to be there before
    assets = assets_directory()
    assert assets is not None
    with working_directory() as directory:
        apis = RealApis(directory / "api", (SOURCE, TARGET), assets=assets)
        source = Management(apis, SOURCE, "10.66.9.9/32", directory)
        target = Management(apis, TARGET, "10.66.9.10/32", directory)
        try:
            await apis.start()
            yield source, target, Clusterctl(directory)
        finally:
            await asyncio.gather(source.close(), target.close())
            await apis.close()


@pytest.mark.req("C-33", "C-50", "C-60", "C-70", "T-C-07", "T-C-19")
async def test_clusterctl_installs_and_moves_without_deregistration(
    both: tuple[Management, Management, Clusterctl],
) -> None:
    source, target, clusterctl = both
    for each in (source, target):
        await clusterctl.init(each)
        await each.start()
    await create_cluster(source)
    await source.until_active()
    await wait_until(source.serves, "the Envoy of the source has the machine", timeout_s=_PATIENCE_S)
    moved = ("move", "--kubeconfig", str(source.kubeconfig), "--to-kubeconfig", str(target.kubeconfig))
    await clusterctl.run(*moved, "--namespace", "default")
    assert await source.cluster.list(LOAD_BALANCERS, "default") == []
    assert await source.serves()
    await wait_until(target.serves, "the Envoy of the target has the machine", timeout_s=_PATIENCE_S)
    await target.give_address()
    await target.until_active()
    (machine,) = await target.cluster.list(MACHINES, "default")
    assert len(ours_on(machine)) == 3
    assert (await target.load_balancer()).spec.endpoint.host == HOST
    assert await source.serves()
    assert await target.serves()
