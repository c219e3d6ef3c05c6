"""Two hubs as processes, with an API and a Service for proxies between; an Envoy runs as its Deployment starts it.

In: an API, and the environment of the first hub, which may be of another version. Out: processes that can be killed,
and ways that can be closed.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from deployment_pod import Relay
from deployment_world import World, new_world

from fairlead.api.kubernetes import ENDPOINT_SLICES, LEASES
from fairlead.api.names import HUB_LEASE, SYSTEM_NAMESPACE
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.testing.builders import slice_body
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.processes import fairlead, wait_until
from fairlead_demo.worlds.traffic import Traffic
from podless import ApiServer
from tests.e2e.e2e_real_apis import own_network

TOKEN = "for-these-tests-only"
#: What may be behind the load balancer, by address.
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

    def __init__(self, name: str, api: int, directory: Path, service: int, environment: Mapping[str, str]) -> None:
        self.name = name
        self._environment = environment
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
        self.hub.environment.update(self._environment)
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
    """Two replicas, a Service for proxies, a tenant with a load balancer. ``first_environment``: that of the first."""

    def __init__(self, world: World, directory: Path, *, first_environment: Mapping[str, str] | None = None) -> None:
        self.world = world
        self._environments = {"first": first_environment or {}, "second": {}}
        self._directory = directory
        self.service = Way()
        self.members: list[Member] = []

    async def open(self, api: int) -> None:
        await self.service.start()
        for name, environment in self._environments.items():
            member = Member(name, api, self._directory, self.service.port, environment)
            self.members.append(member)
            await member.start()
            self.service.targets.append(member.xds.port)
            if name == "first":
                await wait_until(member.leads, "the first leads")
        self.namespace = await self.world.tenant()
        self.key = await self.world.load_balancer(self.namespace)
        await self.serve("10.66.0.1")
        await self.world.assign(self.key, ip="203.0.113.7")

    async def serve(self, *addresses: str) -> None:
        """Make these the backends of the load balancer."""
        ports = [{"port": 8080, "protocol": "TCP", "name": "p80"}]
        body = slice_body("web-1", addresses, namespace=self.namespace, load_balancer="web", ports=ports)
        await self.world.admin.apply(ENDPOINT_SLICES, body, manager="agent")

    async def holder(self) -> str:
        return (await self.world.admin.get(LEASES, SYSTEM_NAMESPACE, HUB_LEASE)).spec.holder_identity or ""

    async def close(self) -> None:
        for member in self.members:
            await member.stop()
        await self.service.stop()


@asynccontextmanager
async def new_city(directory: Path, *, first_environment: Mapping[str, str] | None = None) -> AsyncGenerator[City]:
    """Run a city in a network of its own."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("backends must not be loopback addresses: needs root and iproute2 for a network namespace")
    with own_network():
        server = ApiServer(admin_token=TOKEN)
        url = await server.start()
        config = ClusterConfig(server=url, sign_in=bearer(TOKEN), user="admin")
        async with new_world(config, directory) as world:
            city = City(world, directory, first_environment=first_environment)
            try:
                await city.open(int(url.rpartition(":")[2]))
                yield city
            finally:
                await city.close()
        await server.stop()


async def follows(city: City, traffic: Traffic, address: str) -> None:
    """Add a backend, and wait until requests get there: by whichever replica Envoy has found.

    The first one stays: an Envoy that was cut off while all were replaced has none until it has checked the new ones.
    """
    await city.serve("10.66.0.1", address)

    async def there() -> bool:
        return traffic.count.by_pod[BACKENDS[address]] > 0

    await wait_until(there, f"requests get to {address}")
