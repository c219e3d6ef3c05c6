"""Two hubs as processes, an Envoy as its Deployment starts it, and what may happen to the hub that leads.

Traffic flows meanwhile, and no request of it may fail; the other replica takes over, and changes nothing at Envoy.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import yaml
from deployment_pod import Relay
from deployment_world import World, new_world, until

from fairlead.api.kubernetes import ENDPOINT_SLICES, LEASES
from fairlead.api.names import HUB_LEASE, SYSTEM_NAMESPACE
from fairlead.apiserver import ApiServer
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.envoy_process import admin_get
from fairlead.testing.builders import slice_body
from fairlead.testing.worlds.hub import HubProcess
from fairlead.testing.worlds.loopback import free_port
from fairlead.testing.worlds.processes import fairlead, wait_until
from fairlead.testing.worlds.traffic import Traffic
from tests.e2e.e2e_backends import echoes
from tests.e2e.e2e_real_apis import own_network

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]

TOKEN = "for-these-tests-only"
BACKENDS = {"10.66.0.1": "one", "10.66.0.2": "two", "10.66.0.3": "three"}


class Gate(Relay):
    """A way that can be closed: what is on it then stays there, as with a network that drops packets."""

    def __init__(self, target: int = 0) -> None:
        super().__init__()
        self.target = target

    def close_way(self) -> None:
        self.flows.clear()

    def open_way(self) -> None:
        self.flows.set()


class Way(Relay):
    """The hub's Service: each connection goes to the next of its replicas that takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[int] = []

    def choose(self) -> int:
        self.targets.append(self.targets.pop(0))
        return self.targets[-1]


class Member:
    """One ``fairlead hub`` with a way of its own to the API, and one to it for proxies."""

    def __init__(self, name: str, api: int, directory: Path, service: int) -> None:
        self.name = name
        self.api = Gate(api)
        self.xds = Gate(free_port())
        self._directory, self._service = directory / name, service

    async def start(self) -> None:
        await self.api.start()
        await self.xds.start()
        self._directory.mkdir()
        config = self._directory / "kubeconfig"
        server = {"server": f"http://127.0.0.1:{self.api.port}"}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "hub", "cluster": server}],
            "users": [{"name": "hub", "user": {"token": TOKEN}}],
            "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "hub"}}],
            "current-context": "hub",
        }
        config.write_text(yaml.safe_dump(content))
        options = {
            "kubeconfig": str(config),
            "envoy": "deployment",
            "data-dir": str(self._directory / "data"),
            "xds-listen": f"127.0.0.1:{self.xds.target}",
            "xds-address": f"localhost:{self._service}",
            "log-format": "json",
        }
        command = fairlead("hub", *(f"--{name}={value}" for name, value in options.items()))
        log = self._directory / "log"
        self.hub = HubProcess(self.name, command, envoy_directory=self._directory / "data", log=log)
        await self.hub.start_ready()

    async def leads(self) -> bool:
        return await self.hub.metric("fairlead_hub_leading") == 1

    async def changing_pushes(self) -> float:
        return await self.hub.metric("fairlead_xds_changing_pushes_total")

    async def stop(self) -> None:
        if self.hub.running:
            os.kill(self.hub.pid, signal.SIGCONT)
        await self.hub.kill()
        await self.api.stop()
        await self.xds.stop()


class City:
    """Two replicas, a Service for proxies, a tenant with a load balancer."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        self._directory = directory
        self.service = Way()
        self.members: list[Member] = []

    async def open(self, api: int) -> None:
        await self.service.start()
        for name in ("first", "second"):
            member = Member(name, api, self._directory, self.service.port)
            self.members.append(member)
            await member.start()
            self.service.targets.append(member.xds.port)
            if name == "first":
                await wait_until(member.leads, "the first leads")
        self.namespace = await self.world.tenant()
        self.key = await self.world.load_balancer(self.namespace)
        await self.serve("10.66.0.1")
        await self.world.assign(self.key, ip="203.0.113.7")

    async def serve(self, address: str) -> None:
        """Make one backend that of the load balancer."""
        ports = [{"port": 8080, "protocol": "TCP", "name": "p80"}]
        body = slice_body("web-1", [address], namespace=self.namespace, load_balancer="web", ports=ports)
        await self.world.admin.apply(ENDPOINT_SLICES, body, manager="agent")

    async def holder(self) -> str:
        return (await self.world.admin.get(LEASES, SYSTEM_NAMESPACE, HUB_LEASE)).spec.holder_identity or ""

    async def close(self) -> None:
        for member in self.members:
            await member.stop()
        await self.service.stop()


@pytest.fixture
def network() -> Iterator[None]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("backends must not be loopback addresses: needs root and iproute2 for a network namespace")
    with own_network():
        yield


@pytest.fixture
async def city(network: None, directory: Path) -> AsyncIterator[City]:
    server = ApiServer(admin_token=TOKEN)
    url = await server.start()
    config = ClusterConfig(server=url, sign_in=bearer(TOKEN), user="admin")
    async with new_world(config, directory) as world:
        city = City(world, directory)
        try:
            await city.open(int(url.rpartition(":")[2]))
            yield city
        finally:
            await city.close()
    await server.stop()


async def killed(member: Member) -> None:
    await member.hub.kill()


async def suspended(member: Member) -> None:
    os.kill(member.hub.pid, signal.SIGSTOP)


async def cut_from_the_api(member: Member) -> None:
    member.api.close_way()


async def cut_from_envoys(member: Member) -> None:
    member.xds.close_way()


async def cut_from_both(member: Member) -> None:
    member.api.close_way()
    member.xds.close_way()


@pytest.mark.req("W-10", "K-28", "K-31", "I-5", "I-8")
@pytest.mark.parametrize("fault", [killed, suspended, cut_from_the_api, cut_from_envoys, cut_from_both])
async def test_a_leader_that_fails_costs_no_request(city: City, fault: Callable[[Member], Awaitable[None]]) -> None:
    first, second = city.members
    world = city.world
    async with echoes(*((address, 8080, name) for address, name in BACKENDS.items())), world.pod(city.namespace):
        await world.programmed(city.key)
        port = await world.proxy_port(city.key)
        traffic = Traffic(host="127.0.0.1", port=port, kept=0)
        await until(traffic.is_answered, what="the load balancer answers")
        traffic.start()
        before = await city.holder()

        await fault(first)
        if fault is not cut_from_envoys:

            async def taken_over() -> bool:
                return await city.holder() not in ("", before) and await second.leads()

            await wait_until(taken_over, "the second replica leads", timeout_s=120)
        await follows(city, traffic, "10.66.0.2")
        await traffic.stop()
        assert (traffic.count.failed, traffic.count.cut) == (0, 0), traffic.count.failures
        assert (await world.lb(city.key)).status.allocation.ports[0].proxy_port == port


async def follows(city: City, traffic: Traffic, address: str) -> None:
    """Change the backend, and wait until requests get there: by whichever replica Envoy has found."""
    await city.serve(address)

    async def there() -> bool:
        return traffic.count.by_pod[BACKENDS[address]] > 0

    await wait_until(there, f"requests get to {address}", timeout_s=180)


@pytest.mark.req("K-28", "K-31", "I-8")
async def test_an_envoy_that_starts_without_a_leader_is_served_the_same(city: City) -> None:
    first, second = city.members
    world = city.world
    async with echoes(*((address, 8080, name) for address, name in BACKENDS.items())):
        async with world.pod(city.namespace):
            await world.programmed(city.key)
            served = await versions(world, city.key)
        # The one that leads dies, and the other one cannot take the lease.
        second.api.close_way()
        await first.hub.kill()
        holder = await city.holder()
        async with world.pod(city.namespace, "late") as pod:
            traffic = Traffic(host="127.0.0.1", port=await world.proxy_port(city.key), kept=0)
            await wait_until(traffic.is_answered, "the late Envoy serves", timeout_s=120)
            status, page = await admin_get(pod.admin, "/listeners")
            assert status == 200
            assert city.key.name in page
        assert await city.holder() == holder
        assert not await second.leads()
        second.api.open_way()
        await wait_until(second.leads, "the second leads once it reaches the API", timeout_s=180)
        async with world.pod(city.namespace, "later"):
            await world.programmed(city.key)
        assert await versions(world, city.key) == served


async def versions(world: World, key: LoadBalancerKey) -> tuple[object, ...]:
    """Return what was recorded of a load balancer."""
    status = (await world.lb(key)).status
    return status.address, status.allocation, status.accepted
