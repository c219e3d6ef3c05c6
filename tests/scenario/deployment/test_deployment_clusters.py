"""A Cluster's load balancer on Envoys that run as Deployments: the rights they need, and checks with its authority."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from deployment_pod import Relay
from deployment_run import install
from deployment_world import World, until

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.kubernetes import NAMESPACES, SERVICES
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.names import PROXIES_NAMESPACE
from fairlead.errors import NotFound
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.kubernetes.manifests import DeploymentSettings, group_of, service_name
from fairlead.providers.envoy.kubernetes.objects import WRITTEN
from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.certificates import self_signed
from tests.scenario.any_api import as_service_account

MANIFESTS = Path(__file__).parents[3] / "deploy" / "kubernetes"
NAME = "kubernetes"


class Machine:
    """A control-plane machine: answers /readyz over TLS, and says its name to everything else."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address, self.port = name, address, 0
        self.authority, self._key = self_signed(NAME)
        self.checks = 0
        self._server: asyncio.Server | None = None

    async def start(self, directory: Path) -> Machine:
        own = directory / f"{self.name}.pem"
        own.write_bytes(self._key + self.authority)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(own)
        self._server = await asyncio.start_server(self._serve, self.address, 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if (await reader.readline()).startswith(b"GET /readyz "):
                self.checks += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                writer.write(f"{self.name}\n".encode())
            await writer.drain()
        writer.close()

    async def stop(self) -> None:
        assert self._server is not None
        await stop_listening(self._server)
        await self._server.wait_closed()


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[tuple[Machine, Machine]]:
    """A machine of the Cluster, and one whose certificate is of another authority."""
    own, imposter = Machine("own", "127.68.0.1"), Machine("imposter", "127.68.0.2")
    await own.start(tmp_path)
    await imposter.start(tmp_path)
    yield own, imposter
    await own.stop()
    await imposter.stop()


async def apply_manifests(world: World, *names: str) -> None:
    """Apply the parts of these manifests that grant rights, and their namespaces."""
    for name in names:
        await install(world, yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text()))


async def load_balancer(world: World, machines: tuple[Machine, Machine]) -> LoadBalancerKey:
    """Create a namespace for Clusters that belongs to no member, and the load balancer of one of them."""
    namespace = f"{world.prefix}-fleet"
    await world.admin.create(NAMESPACES, {"metadata": {"name": namespace}})
    authority = machines[0].authority.decode()
    spec = {
        "className": "envoy",
        "clusterName": "blue",
        "listeners": [{"port": 6443}],
        "healthCheck": {"caBundle": authority, "host": NAME, "interval": "1s"},
    }
    await world.admin.create(LOAD_BALANCERS, {"metadata": {"name": "blue", "namespace": namespace}, "spec": spec})
    static = [f"{each.address}:{each.port}" for each in machines]
    group = {"loadBalancers": ["blue"], "static": static, "listBackends": True}
    await world.admin.create(BACKEND_GROUPS, {"metadata": {"name": "blue", "namespace": namespace}, "spec": group})
    return LoadBalancerKey(LOAD_BALANCERS.kind, namespace, "blue")


async def said(port: int, authority: str) -> str:
    """Return the name of the machine that a connection comes to, empty for none."""
    tls = ssl.create_default_context(cadata=authority)
    tls.verify_mode, tls.check_hostname = ssl.CERT_REQUIRED, False
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=NAME)
    except OSError:
        return ""
    writer.write(b"who\n")
    name = (await reader.readline()).decode().strip()
    writer.close()
    return name


async def get(world: World, key: LoadBalancerKey) -> LoadBalancer:
    return await world.admin.get(LOAD_BALANCERS, key.namespace, key.name)


@pytest.mark.envoy
@pytest.mark.req("C-56", "C-65")
async def test_machines_are_checked_with_the_authority_of_their_cluster(
    traffic: World, machines: tuple[Machine, Machine]
) -> None:
    relay = await Relay().start()
    traffic.settings = DeploymentSettings(xds_host="localhost", xds_port=relay.port)
    try:
        await apply_manifests(traffic, "cluster-proxies")
        hub = await traffic.hub()
        relay.target = hub.provider.server.port
        own, imposter = machines
        key = await load_balancer(traffic, machines)
        place = (PROXIES_NAMESPACE, service_name(key))
        await until(lambda: traffic.admin.get(SERVICES, *place), what="the Service")
        ingress = {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}}
        await traffic.admin.merge_patch(SERVICES, *place, ingress, subresource="status")
        async with traffic.pod(PROXIES_NAMESPACE, group=group_of(key)):

            async def served() -> bool:
                there = await get(traffic, key)
                by_type = {each.type: each.status for each in there.status.conditions or ()}
                ready = by_type.get("Programmed") == "True" == by_type.get("Serving")
                return ready and there.status.unhealthy_targets == [f"{imposter.address}:{imposter.port} (TCP/6443)"]

            await until(served, what="served, without the machine of another authority")
            status = (await get(traffic, key)).status
            assert status.address == "203.0.113.9"
            (port,) = [each.proxy_port for each in status.allocation.ports]
            authority = own.authority.decode()
            assert {await said(port, authority) for _ in range(10)} == {"own"}
            assert own.checks > 0
            assert imposter.checks == 0, "what is asked goes to nobody else's machine"
        await traffic.admin.delete(BACKEND_GROUPS, key.namespace, key.name)
        await traffic.admin.delete(LOAD_BALANCERS, key.namespace, key.name)

        async def gone() -> bool:
            with contextlib.suppress(NotFound):
                await get(traffic, key)
                return False
            return await traffic.kinds(PROXIES_NAMESPACE) == []

        await until(gone, what="nothing is left of the load balancer and its proxies")
    finally:
        await relay.stop()


@pytest.mark.req("C-56")
async def test_proxies_of_a_cluster_have_exactly_these_rights(world: World, machines: tuple[Machine, Machine]) -> None:
    """Next to Clusters are their kubeconfigs: the hub has no right to write there."""
    await apply_manifests(world, "hub", "cluster-proxies")
    world.config = await as_service_account(world.admin, world.config, "fairlead-hub")
    hub = await world.hub()
    key = await load_balancer(world, machines)
    service = await until(lambda: world.admin.get(SERVICES, PROXIES_NAMESPACE, service_name(key)), what="the Service")
    assert await world.kinds(key.namespace) == []
    group = service.metadata.labels["fairlead.dev/envoy-group"]
    own = [
        (each.kind, obj.metadata.name)
        for each in WRITTEN
        for obj in await world.admin.list(each, PROXIES_NAMESPACE, label_selector=f"fairlead.dev/envoy-group={group}")
    ]
    assert len({kind for kind, _ in own}) == len(WRITTEN)
    # By a hub that has read nothing of it, none of these is taken for left over.
    hub.provider.objects._wanted.clear()
    orphans = {(each.kind, each.name) for each in await hub.provider.objects.owned()}
    assert orphans.isdisjoint(own)
    await world.admin.delete(BACKEND_GROUPS, key.namespace, key.name)
    await world.admin.delete(LOAD_BALANCERS, key.namespace, key.name)

    async def gone() -> bool:
        with contextlib.suppress(NotFound):
            await get(world, key)
            return False
        return True

    await until(gone, what="the load balancer is gone")
