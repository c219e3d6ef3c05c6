"""A management cluster with Cluster API's own managers, Fairlead next to them, and a cluster that they make.

In: a directory, and the programs of ``conformance.clusterapi``. Out: ``RealClusterApi``; ``close`` ends it all. To be
used inside ``own_network`` and ``machines_network``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from conformance import clusterapi
from fairlead.api.backendgroup import BACKEND_GROUPS, BackendGroup
from fairlead.api.clusterapi import CLUSTERS, MACHINES, TargetObject
from fairlead.api.clusterapi import CapiCluster as ClusterObject
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, Resource
from fairlead.errors import FairleadError, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds
from fairlead_demo.worlds.certificates import self_signed
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.machines import ours_on
from fairlead_demo.worlds.networks import ip
from fairlead_demo.worlds.processes import Child, fairlead, wait_until
from tests.e2e import e2e_capi_machines as network
from tests.e2e.e2e_capi_machines import INFRASTRUCTURE, Instances
from tests.e2e.e2e_capi_manifests import kinds, webhooks
from tests.e2e.e2e_real_apis import RealApis

NAME, CLASS = "blue", "edge"
#: The only address of the hub's pool: the certificates of the machines are made for it.
ENDPOINT, PORT = "10.66.9.9", 6443
_CONTROL_PLANE = "controlplane.cluster.x-k8s.io"
CONTROL_PLANES = Resource(_CONTROL_PLANE, "v1beta2", "KubeadmControlPlane", "kubeadmcontrolplanes", True, KubeObject)
DEV_CLUSTERS = Resource(INFRASTRUCTURE, "v1beta2", "DevCluster", "devclusters", True, KubeObject)
TEMPLATES = Resource(INFRASTRUCTURE, "v1beta2", "DevMachineTemplate", "devmachinetemplates", True, KubeObject)
_WEBHOOKS = {
    kind: Resource("admissionregistration.k8s.io", "v1", kind, f"{kind.lower()}s", False, KubeObject)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}
_MANAGERS = ("capi-core", "capi-bootstrap", "capi-controlplane", "capi-dev")
#: What the real controllers do takes its time on a busy machine.
PATIENCE_S = 300.0


class RealClusterApi:
    """The management cluster. ``namespace``: the network namespace of the machines."""

    def __init__(self, directory: Path, programs: Path, assets: Path, namespace: str) -> None:
        self._directory = directory
        self._programs = programs
        self._namespace = namespace
        self.apis = RealApis(directory / "api", ("hub",), assets=assets, reached_at=network.MANAGEMENT)
        self.kubeconfig = self.apis.kubeconfig("hub")
        self._managers = {name: self._manager(name, number) for number, name in enumerate(_MANAGERS)}
        options = ("--kubeconfig", str(self.kubeconfig), "--log-format", "json", "--log-level", "debug")
        data = directory / "hub"
        data.mkdir(parents=True)
        hub = fairlead("hub", *options, "--address-pool", f"{ENDPOINT}/32", "--data-dir", str(data))
        self.hub = HubProcess("hub", hub, envoy_directory=data, log=directory / "hub.log")
        capi = fairlead("capi", *options, "--data-dir", str(directory / "capi"))
        self.capi = Child("capi", capi, log=directory / "capi.log")
        self.cluster = Cluster.from_kubeconfig(self.kubeconfig, name="management")
        self.instances = Instances(self.cluster, namespace)
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the API server, the managers with their kinds, the hub, and the controller."""
        await self.apis.start()
        ip("-n", self._namespace, "route", "add", "local", ENDPOINT, "dev", "lo")
        for number, name in enumerate(_MANAGERS):
            await self._install(name, number)
        await asyncio.gather(*(child.start() for child in self._managers.values()))
        await self.hub.start_ready()
        spec: JSONObject = {"provider": "envoy", "drain": "1s", "healthCheck": {"interval": "1s"}}
        await self.cluster.apply(LOAD_BALANCER_CLASSES, {"metadata": {"name": CLASS}, "spec": spec}, manager="operator")
        await self.capi.start()
        self._following = asyncio.create_task(self.instances.run())

    async def create_cluster(self, version: str) -> None:
        """Create a Cluster with one control-plane machine, and its LoadBalancer, as their user would."""
        about: JSONObject = {"name": NAME, "namespace": "default"}
        listener = {"port": PORT, "protocol": "TCP"}
        # The API servers of the provider answer at / only, and their certificates have this name.
        check = {"path": "/", "host": "localhost"}
        spec: JSONObject = {"className": CLASS, "clusterName": NAME, "listeners": [listener], "healthCheck": check}
        await self._admitted(LOAD_BALANCERS, {"metadata": about, "spec": spec})
        template = {"spec": {"template": {"spec": {"backend": {"inMemory": _QUICK}}}}}
        await self._admitted(TEMPLATES, {"metadata": about, **template})
        # It would serve an endpoint of its own, were it not given that of the Cluster first.
        # The provider writes into its annotations, and expects that there are some.
        paused = {"annotations": {"cluster.x-k8s.io/paused": "", "example.com/of": "a test"}}
        await self._admitted(DEV_CLUSTERS, {"metadata": {**about, **paused}, "spec": {"backend": {"inMemory": {}}}})
        labels = {"labels": {"loadbalancer.cluster.x-k8s.io/name": NAME}}
        machines = {"metadata": labels, "spec": {"infrastructureRef": _ref(INFRASTRUCTURE, TEMPLATES.kind)}}
        plane = {"replicas": 1, "version": version, "machineTemplate": machines, "kubeadmConfigSpec": _KUBEADM}
        await self._admitted(CONTROL_PLANES, {"metadata": about, "spec": plane})
        network_of = {"pods": {"cidrBlocks": ["192.168.0.0/16"]}, "services": {"cidrBlocks": ["10.128.0.0/12"]}}
        refs = {
            "infrastructureRef": _ref(INFRASTRUCTURE, DEV_CLUSTERS.kind),
            "controlPlaneRef": _ref(_CONTROL_PLANE, CONTROL_PLANES.kind),
        }
        await self._admitted(CLUSTERS, {"metadata": about, "spec": {"clusterNetwork": network_of, **refs}})

    async def provide_infrastructure(self) -> None:
        """Let the infrastructure provider begin, with the endpoint that the Cluster has by now."""
        endpoint = {"host": ENDPOINT, "port": PORT}
        patch = {
            "metadata": {"annotations": {"cluster.x-k8s.io/paused": None}},
            "spec": {"controlPlaneEndpoint": endpoint},
        }
        await self.cluster.merge_patch(DEV_CLUSTERS, "default", NAME, patch)

    async def change_control_plane(self, **spec: object) -> None:
        """Change fields of the control plane's spec."""
        await self.cluster.merge_patch(CONTROL_PLANES, "default", NAME, {"spec": spec})

    async def endpoint(self) -> str:
        """Return the endpoint of the Cluster."""
        return str((await self._cluster_object()).endpoint)

    async def load_balancer(self) -> LoadBalancer:
        """Return the load balancer."""
        return await self.cluster.get(LOAD_BALANCERS, "default", NAME)

    async def group(self) -> BackendGroup:
        """Return the backends of the load balancer."""
        groups = await self.cluster.list(BACKEND_GROUPS, "default")
        return groups[0]

    async def machines(self) -> list[TargetObject]:
        """Return the Machines of the Cluster."""
        return await self.cluster.list(MACHINES, "default")

    async def until_serving(self, count: int, version: str) -> None:
        """Wait until exactly ``count`` Machines of ``version`` are there and are what the load balancer serves."""

        async def serving() -> bool:
            self._check_running()
            answer = await self.read(f"/apis/{_CONTROL_PLANE}/v1beta2/namespaces/default/kubeadmcontrolplanes/{NAME}")
            status = answer.get("status") or {}
            machines = {each.metadata.name for each in await self.machines()}
            balancer = (await self.load_balancer()).status
            members = {each.name for each in balancer.members or () if each.state == "active"}
            backends = {f"{self.instances.addresses.get(name)}:{PORT}" for name in machines}
            return (
                status.get("availableReplicas") == count == len(machines)
                and status.get("version") == version
                and machines == members
                and balancer.active_targets == count
                and set((await self.group()).spec.static or ()) == backends
            )

        await self.wait(serving, f"{count} machines of {version} serve")

    async def marks(self) -> dict[str, list[str]]:
        """Return the hooks and finalizers of Fairlead by machine."""
        return {each.metadata.name: ours for each in await self.machines() if (ours := ours_on(each))}

    async def delete_cluster(self) -> None:
        """Delete the Cluster, and wait until it and all that is of it is gone."""
        await self.cluster.delete(CLUSTERS, "default", NAME)

        async def gone() -> bool:
            self._check_running()
            try:
                await self._cluster_object()
            except NotFound:
                return not await self.machines()
            return False

        await self.wait(gone, "the Cluster is gone")

    async def authority(self) -> bytes:
        """Return the certificate of the Cluster's authority, as the load balancer was given it."""

        async def known() -> bool:
            check = (await self.load_balancer()).spec.health_check
            return check is not None and bool(check.ca_bundle)

        await self.wait(known, "the load balancer knows the authority of the Cluster")
        check = (await self.load_balancer()).spec.health_check
        return check.ca_bundle.encode() if check is not None else b""

    async def read(self, path: str) -> dict[str, Any]:
        """Return a page of the API server; empty when there is none."""
        try:
            return msgspec.json.decode(await self.cluster.raw("GET", path), type=dict[str, Any])
        except NotFound:
            return {}

    async def wait(self, condition: Callable[[], Awaitable[object]], what: str) -> None:
        """Return once ``condition`` answers something true."""
        await wait_until(condition, what, timeout_s=PATIENCE_S)

    async def close(self) -> None:
        """End everything, Envoy included."""
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
        await self.cluster.aclose()
        await asyncio.gather(self.capi.terminate(), self.hub.close())
        await asyncio.gather(*(child.kill() for child in self._managers.values()))
        await self.apis.close()

    def _manager(self, name: str, number: int) -> Child:
        """Return a manager of Cluster API; all of them are in the namespace of the machines.

        There the endpoint is the machines' own: the API servers of the provider forget what a watch that is resumed
        has missed, so the managers must not be cut off from a machine that goes, as clients of the endpoint are.
        """
        home = self._directory / name
        home.mkdir(parents=True)
        chain, key = self_signed(network.MACHINES)
        (home / "tls.key").touch(mode=0o600)
        (home / "tls.crt").write_bytes(chain)
        (home / "tls.key").write_bytes(key)
        command = (
            "ip", "netns", "exec", self._namespace, str(self._programs / name),
            f"--kubeconfig={self.apis.kubeconfig_from_outside('hub')}", f"--webhook-port={_port(number)}",
            f"--webhook-cert-dir={home}", f"--health-addr=127.0.0.1:{_port(number) + 1}",
            f"--diagnostics-address=127.0.0.1:{_port(number) + 2}", "--insecure-diagnostics",
            "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
        )  # fmt: skip
        # Nothing here is reached through a proxy, and no kubelet gives it the address of its Pod.
        environment = {"POD_IP": ENDPOINT, "NO_PROXY": "*"}
        return Child(name, command, log=self._directory / f"{name}.log", environment=environment)

    async def _install(self, name: str, number: int) -> None:
        config, url = clusterapi.config_of(name), f"https://{network.MACHINES}:{_port(number)}"
        authority = (self._directory / name / "tls.crt").read_bytes()
        problems = await install_crds(self.cluster, kinds(config, url, authority), "clusterctl", timeout_s=PATIENCE_S)
        assert not problems
        for configuration in webhooks(config, name, url, authority):
            await self.cluster.apply(_WEBHOOKS[configuration["kind"]], configuration, manager="clusterctl")

    async def _admitted(self, resource: AnyResource, obj: JSONObject) -> None:
        """Create an object; the webhooks of the managers may not answer yet."""

        async def created() -> bool:
            self._check_running()
            try:
                await self.cluster.create(resource, obj)
            except FairleadError as error:
                if "failed calling webhook" in str(error):
                    return False
                raise
            return True

        await self.wait(created, f"a {resource.kind} is admitted: {json.dumps(obj)[:200]}")

    async def _cluster_object(self) -> ClusterObject:
        return await self.cluster.get(CLUSTERS, "default", NAME)

    def _check_running(self) -> None:
        for child in (*self._managers.values(), self.hub, self.capi):
            child.check_running()


def _port(number: int) -> int:
    return 9400 + 10 * number


def _ref(group: str, kind: str) -> JSONObject:
    return {"apiGroup": group, "kind": kind, "name": NAME}


#: Each part of a machine takes a second to start.
_QUICK = {
    part: {"provisioning": {"startupDuration": "1s", "startupJitter": "0"}}
    for part in ("vm", "node", "apiServer", "etcd")
}
_NODE = {"nodeRegistration": {"criSocket": "unix:///run/containerd/containerd.sock"}}
_KUBEADM = {"initConfiguration": _NODE, "joinConfiguration": _NODE}
