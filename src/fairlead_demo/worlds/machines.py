"""A management cluster of Cluster API: its API, a hub with Envoy, the controller, and machines that are processes.

In: a directory. Out: ``ManagementWorld``, whose machines come and go as a control-plane provider would have them;
``close`` ends them all. A machine serves HTTPS at every path, with a certificate of its cluster's authority.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from fairlead.api.clusterapi import CLUSTERS, LABEL_CLUSTER_NAME, MACHINES, MARKER_NAME, TargetObject
from fairlead.api.clusterapi import CapiCluster as ClusterObject
from fairlead.api.kubernetes import SECRETS
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.errors import Conflict, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.certificates import self_signed
from fairlead_demo.worlds.clusterapi_kinds import cluster_api_crds
from fairlead_demo.worlds.https_client import HttpsClient
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.loopback import free_network
from fairlead_demo.worlds.processes import PATIENCE_S, Child, ExpectationFailed, fairlead, wait_until

NAME = "blue"
CLASS = "edge"
API_PORT = 6443
#: The name in the certificates of the machines.
HOST = "blue.example"
#: The default of thirty seconds is too long for tests.
DRAIN = "1s"


class RunningMachine(msgspec.Struct):
    """One machine: its object's name, its address, its process; when its address was announced, by perf_counter."""

    name: str
    address: str
    child: Child
    announced_s: float = 0.0


class ManagementWorld:
    """A management cluster, its machines and Fairlead on this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.apis = EmbeddedApis(directory, ("management",))
        self.kubeconfig = self.apis.kubeconfig("management")
        self.machines: dict[str, RunningMachine] = {}
        self._network, self._pool = free_network(API_PORT), free_network(API_PORT)
        self._started = 0
        data_dir = directory / "hub"
        data_dir.mkdir(parents=True, exist_ok=True)
        options = ("--kubeconfig", str(self.kubeconfig), "--log-format", "json")
        hub = fairlead("hub", *options, "--address-pool", f"{self._pool}.0/24", "--data-dir", str(data_dir))
        self.hub = HubProcess("hub", hub, envoy_directory=data_dir, log=directory / "hub.log")
        capi = fairlead("capi", *options, "--data-dir", str(directory / "capi"))
        self.capi = Child("capi", capi, log=directory / "capi.log")
        self.authority = b""
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """Return the management cluster's API."""
        if self._cluster is None:
            raise ExpectationFailed("the API has not been started")
        return self._cluster

    async def start(self) -> None:
        """Start the API with the kinds of Cluster API, the hub, and the controller."""
        await self.apis.start()
        self._cluster = Cluster.from_kubeconfig(self.kubeconfig, name="management")
        if problems := await install_crds(self.cluster, cluster_api_crds(), "clusterctl"):
            raise ExpectationFailed(problems[0])
        await self.hub.start_ready()
        spec: JSONObject = {"provider": "envoy", "drain": DRAIN, "healthCheck": {"interval": "1s"}}
        await self.cluster.apply(LOAD_BALANCER_CLASSES, {"metadata": {"name": CLASS}, "spec": spec}, manager="operator")
        await self.capi.start()

    async def create_cluster(self) -> str:
        """Create a Cluster and its LoadBalancer, as their user would; return the endpoint that the Cluster gets."""
        self.authority = self.renew_certificate()
        secret: JSONObject = {
            "metadata": {"name": f"{NAME}-ca", "namespace": "default"},
            "data": {"tls.crt": base64.b64encode(self.authority).decode()},
        }
        await self.cluster.apply(SECRETS, secret, manager="control-plane")
        about: JSONObject = {"name": NAME, "namespace": "default"}
        await self.cluster.apply(CLUSTERS, {"metadata": about, "spec": {}}, manager="user")
        spec: JSONObject = {
            "className": CLASS,
            "clusterName": NAME,
            "listeners": [{"port": API_PORT, "protocol": "TCP"}],
        }
        await self.cluster.apply(LOAD_BALANCERS, {"metadata": about, "spec": spec}, manager="user")

        async def published() -> bool:
            return (await self._read_cluster()).endpoint.given

        await wait_until(published, "the Cluster has an endpoint")
        return (await self._read_cluster()).endpoint.host

    def renew_certificate(self) -> bytes:
        """Make the certificate that machines show which are started from now on; return it, PEM."""
        chain, key = self_signed(HOST)
        for name, content in (("tls.crt", chain), ("tls.key", key)):
            path = self.directory / name
            path.touch(mode=0o600)
            path.write_bytes(content)
        return chain

    async def wait(self, condition: Callable[[], Awaitable[object]], what: str) -> None:
        """Wait until ``condition`` returns a true value."""
        await wait_until(condition, what)

    async def load_balancer(self) -> LoadBalancer:
        """Return the load balancer as it is now."""
        return await self.cluster.get(LOAD_BALANCERS, "default", NAME)

    async def start_machine(self, *, serving_first: bool = False) -> RunningMachine:
        """Start one more machine, and announce its address; ``serving_first``: not before it serves."""
        self._started += 1
        name, address = f"{NAME}-{self._started}", f"{self._network}.{10 + self._started}"
        pair = (str(self.directory / "tls.crt"), str(self.directory / "tls.key"))
        command = [sys.executable, "-m", "fairlead_demo.worlds.pod_server", address, str(API_PORT), name, *pair]
        meta: JSONObject = {
            "name": name,
            "namespace": "default",
            "labels": {LABEL_CLUSTER_NAME: NAME, MARKER_NAME: NAME},
            # Cluster API's own finalizer: the infrastructure is deleted before the object.
            "finalizers": ["machine.cluster.x-k8s.io"],
        }
        machine = self.machines[name] = RunningMachine(
            name, address, Child(name, command, log=self.directory / "machines.log")
        )
        if serving_first:
            await machine.child.start(first_line_s=PATIENCE_S)
        await self.cluster.create(MACHINES, {"metadata": meta, "spec": {"clusterName": NAME}})
        status = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
        machine.announced_s = time.perf_counter()
        await self.cluster.merge_patch(MACHINES, "default", name, status, subresource="status")
        if not serving_first:
            await machine.child.start(first_line_s=PATIENCE_S)
        return machine

    async def until_active(self, *names: str) -> None:
        """Wait until exactly these members take traffic."""

        async def active() -> bool:
            self.hub.check_running()
            self.capi.check_running()
            status = (await self.load_balancer()).status
            states = {member.name: member.state for member in status.members or ()}
            taking = {name for name, state in states.items() if state == "active"}
            return taking == set(names) and status.active_targets == len(names)

        await wait_until(active, f"{', '.join(names)} are active")

    async def new_connections_reach(self, endpoint: str, name: str) -> bool:
        """Return whether one of many new connections to the endpoint is answered by this machine."""
        client = HttpsClient(HOST, self.authority)
        for _ in range(12):
            reader, writer = await client.connect(endpoint, API_PORT)
            writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
            if answer.rpartition("\r\n\r\n")[2].strip() == name:
                return True
        return False

    async def annotate(self, name: str, annotations: dict[str, str | None]) -> None:
        """Write annotations of a machine's object; None removes one."""
        await self.cluster.merge_patch(MACHINES, "default", name, {"metadata": {"annotations": annotations}})

    async def delete_machine(self, name: str) -> float:
        """Delete a machine as Cluster API does: hooks first, then its process, its finalizer last.

        Returns the seconds for which the hooks held it.
        """
        await self.cluster.delete(MACHINES, "default", name)
        clock = asyncio.get_running_loop().time
        started_s = clock()

        async def free() -> bool:
            machine = await self._read_machine(name)
            return machine is None or not any(".delete.hook." in key for key in machine.metadata.annotations or ())

        await wait_until(free, f"the hooks of {name} are gone")
        held_s = clock() - started_s
        await self.machines.pop(name).child.terminate(patience_s=30.0)
        await self._drop_finalizer(name)

        async def gone() -> bool:
            return await self._read_machine(name) is None

        await wait_until(gone, f"Machine {name} is gone")
        return held_s

    async def _drop_finalizer(self, name: str) -> None:
        while (machine := await self._read_machine(name)) is not None:
            left = [
                finalizer for finalizer in machine.metadata.finalizers or () if finalizer != "machine.cluster.x-k8s.io"
            ]
            version = machine.metadata.resource_version
            patch: JSONObject = {"metadata": {"finalizers": left, "resourceVersion": version}}
            with contextlib.suppress(Conflict, NotFound):
                await self.cluster.merge_patch(MACHINES, "default", name, patch)
                return

    async def _read_machine(self, name: str) -> TargetObject | None:
        try:
            return await self.cluster.get(MACHINES, "default", name)
        except NotFound:
            return None

    async def marks(self) -> dict[str, list[str]]:
        """Return the hooks and finalizers of Fairlead by machine."""
        machines = await self.cluster.list(MACHINES, "default")
        return {machine.metadata.name: ours for machine in machines if (ours := ours_on(machine))}

    async def _read_cluster(self) -> ClusterObject:
        return await self.cluster.get(CLUSTERS, "default", NAME)

    async def close(self) -> None:
        """End everything, Envoy included."""
        if self._cluster is not None:
            await self._cluster.aclose()
        await asyncio.gather(*(machine.child.kill() for machine in self.machines.values()))
        await asyncio.gather(self.capi.terminate(), self.hub.close())
        await self.apis.close()


def ours_on(machine: TargetObject) -> list[str]:
    """Return the hooks and finalizers of Fairlead on a machine's object."""
    hooks = [key for key in machine.metadata.annotations or () if "/fairlead-" in key]
    return [*hooks, *(finalizer for finalizer in machine.metadata.finalizers or () if "fairlead.dev/" in finalizer)]
