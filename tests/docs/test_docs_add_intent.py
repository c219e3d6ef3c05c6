"""The example of docs/how-to/add-an-intent.md, run unchanged in a hub with an API server."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio

from fairlead.api.crd import build_crd
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.errors import NotFound
from fairlead.hub.app import Hub, HubConfig
from fairlead.hub.intents import INTENTS
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.discovery import install_crds
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import SystemClock
from fairlead.testing.faults import FaultyProvider
from fairlead.translate.addresses import AddressRanges
from podless import ApiServer
from tests.docs.docs_console import ROOT, blocks_of

PAGE = ROOT / "docs" / "how-to" / "add-an-intent.md"
KEY = LoadBalancerKey("StaticLoadBalancer", "shop", "web")


@pytest.fixture
def example() -> Iterator[Any]:
    """The Python of the page as one module."""
    module = types.ModuleType("add_an_intent")
    sys.modules[module.__name__] = module
    code = "\n".join(block.text for block in blocks_of(PAGE.read_text(encoding="utf-8")) if block.language == "python")
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]


class World:
    """A hub with the example's kind, a user's connection, and a load balancer service in memory."""

    def __init__(self, example: Any, user: Cluster, cloud: MemoryCloud) -> None:
        self.example = example
        self.user = user
        self.cloud = cloud

    async def apply(self, **spec: Any) -> None:
        body = {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "spec": spec}
        await self.user.apply(self.example.STATICS, body, manager="kubectl")

    async def get(self) -> Any:
        try:
            return await self.user.get(self.example.STATICS, KEY.namespace, KEY.name)
        except NotFound:
            return None

    async def condition(self, kind: str) -> tuple[str, str]:
        obj = await self.get()
        by_type = {condition.type: (condition.status, condition.reason) for condition in obj.status.conditions or ()}
        return by_type.get(kind, ("", ""))

    def served(self) -> set[str]:
        return {f"{listener} {target}" for listener, target in self.cloud.members(KEY)}


async def until(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(180):
        while True:
            result = check()
            if await result if isinstance(result, Awaitable) else result:
                return
            await asyncio.sleep(0.02)


@pytest_asyncio.fixture(params=["envoy", "memory"], ids=["served by the hub", "with a ledger"])
async def world(request: pytest.FixtureRequest, example: Any) -> AsyncIterator[World]:
    server, cloud, clock = ApiServer(), MemoryCloud(), SystemClock()
    config = ClusterConfig(server=await server.start(), sign_in=bearer(server.admin_token))
    served = MemoryProvider(cloud=cloud if request.param == "envoy" else MemoryCloud())
    try:
        async with Cluster(config, name="user") as user, Cluster(config, name="hub") as connection:
            assert await install_crds(user, [build_crd(example.STATIC_CRD)], "test") == []
            await user.create(NAMESPACES, {"metadata": {"name": KEY.namespace}})
            hub = Hub(
                cluster=connection,
                intents=example.INTENTS,
                providers={"envoy": FaultyProvider(served, clock=clock)},
                config=HubConfig(identity="hub", address_pool=AddressRanges.parse("192.0.2.0/29")),
                factories={"memory": lambda: MemoryProvider(cloud=cloud)},
            )
            running = asyncio.create_task(hub.run())
            try:
                await until(lambda: hub.leading)
                edge = {"metadata": {"name": "edge"}, "spec": {"provider": request.param}}
                await user.apply(LOAD_BALANCER_CLASSES, edge, manager="kubectl")
                yield World(example, user, cloud)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
    finally:
        await server.stop()


async def test_the_example_is_served_refused_and_finalized(world: World) -> None:
    await world.apply(className="edge", address="192.0.2.7", ports=[80], backends=["10.1.0.1", "10.1.0.2"])

    async def programmed() -> bool:
        return await world.condition("Programmed") == ("True", "Programmed")

    await until(programmed)
    assert (await world.get()).status.address == "192.0.2.7"
    assert world.served() == {"TCP/80 10.1.0.1:80", "TCP/80 10.1.0.2:80"}

    await world.apply(className="edge", ports=[80, 80], backends=[])

    async def refused() -> bool:
        return await world.condition("Accepted") == ("False", "Invalid")

    await until(refused)
    assert world.served() == {"TCP/80 10.1.0.1:80", "TCP/80 10.1.0.2:80"}, "the version accepted last is served on"

    await world.user.delete(world.example.STATICS, KEY.namespace, KEY.name)

    async def gone() -> bool:
        return await world.get() is None

    await until(gone)
    assert KEY not in world.cloud.load_balancers


def test_a_kind_is_one_line_of_the_list(example: Any) -> None:
    assert (*INTENTS, example.StaticIntent) == example.INTENTS
