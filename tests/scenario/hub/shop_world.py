"""A shop with a webhook driver over real HTTP: what its users, its operator and its driver do."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from hub_world import EVENT, HubWorld
from test_hub_backend_groups import Shop

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.kubernetes import NODES, SERVICES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import Resource
from fairlead.providers.webhook.provider import WebhookProvider
from tests.unit.providers.webhook.scripted_driver import ScriptedDriver

YES = {"succ": True}


class Driver(ScriptedDriver):
    """A driver that agrees to everything, has addresses for pods, and remembers who is registered."""

    def __init__(self) -> None:
        super().__init__()
        self.backends: dict[str, dict[str, Any]] = {}
        self.on("validateLoadBalancer", YES)
        self.on("validateBackend", YES)
        self.on("createLoadBalancer", {"status": "Succ", "lbInfo": {"id": "1"}})
        self.on("generateBackendAddr", _address)
        self.on("ensureBackend", self._ensure)
        self.on("deregisterBackend", self._deregister)
        self.on("judgePodDeregister", {"succ": True, "doNotDeregister": []})

    def _ensure(self, body: dict[str, Any]) -> dict[str, Any]:
        self.backends[body["backendAddr"]] = body["parameters"]
        return {"status": "Succ"}

    def _deregister(self, body: dict[str, Any]) -> dict[str, Any]:
        self.backends.pop(body["backendAddr"], None)
        return {"status": "Succ"}


def _address(body: dict[str, Any]) -> dict[str, Any]:
    found = body["podBackend"]
    return {"status": "Succ", "backendAddr": f"{found['pod']['status']['podIP']}:{found['port']['portNumber']}"}


class DrivenShop(Shop):
    """The shop; its class ``edge`` is that of the driver when it was opened with ``driven``."""

    def __init__(self, world: HubWorld, driver: Driver) -> None:
        super().__init__(world)
        self.driver = driver

    async def class_(self, name: str = "edge", **spec: Any) -> None:
        parameters = {"url": self.driver.url, "timeout": "300ms", **spec.pop("parameters", {})}
        body = {"metadata": {"name": name}, "spec": {"provider": "webhook", "parameters": parameters, **spec}}
        await self.api.apply(LOAD_BALANCER_CLASSES, body, manager="kubectl")

    async def node(self, name: str, address: str, *, ready: bool = True, labels: dict[str, str] | None = None) -> None:
        await self.api.apply(NODES, {"metadata": {"name": name, "labels": labels or {}}}, manager="kubectl")
        status = {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        }
        await self.api.merge_patch(NODES, "", name, {"status": status}, subresource="status")

    async def service(self, name: str = "web", **spec: Any) -> None:
        ports = [{"name": "http", "port": 80, "nodePort": 30200, "protocol": "TCP"}]
        spec = {"type": "NodePort", "ports": ports, "selector": {"app": "web"}, **spec}
        await self.api.apply(SERVICES, {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}, manager="me")

    def at_driver(self) -> set[str]:
        return set(self.driver.backends)

    async def driver_has(self, *addresses: str) -> None:
        wanted = {one if ":" in one else f"{one}:8080" for one in addresses}
        await self.world.until(lambda: self.at_driver() == wanted, what=f"{wanted}, there are {self.at_driver()}")

    async def says(
        self, resource: Resource, name: str, type_: str, status: str, *words: str, namespace: str = "shop"
    ) -> Any:
        """Wait until a condition has this status and these words in its message, and return it."""

        async def check() -> Any:
            one = await self.world.find(resource, namespace if resource.namespaced else "", name)
            found = next((each for each in one.status.conditions or () if each.type == type_), None) if one else None
            good = found is not None and found.status == status and all(word in found.message for word in words)
            return found if good else None

        return await self.world.until(check, what=f"{type_}={status} {words} of {name}")

    async def lb_says(self, type_: str, status: str, *words: str, name: str = "shared") -> Any:
        return await self.says(LOAD_BALANCERS, name, type_, status, *words)

    async def group_says(self, name: str, type_: str, status: str, *words: str, namespace: str = "shop") -> Any:
        return await self.says(BACKEND_GROUPS, name, type_, status, *words, namespace=namespace)

    async def warned(self, name: str, reason: str, *words: str, namespace: str = "shop") -> None:
        async def check() -> bool:
            found = await self.world.user.list(EVENT, namespace)
            return any(
                (one.type, one.reason, one.involved_object.get("name")) == ("Warning", reason, name)
                and all(word in one.message for word in words)
                for one in found
            )

        await self.world.until(check, what=f"Warning {reason} about {name}: {words}")


@contextlib.asynccontextmanager
async def open_shop(world: HubWorld) -> AsyncIterator[DrivenShop]:
    """Start a hub that knows the webhook provider, and open a shop there."""
    driver = Driver()
    await driver.start()
    world.factories["webhook"] = lambda: WebhookProvider(clock=world.clock)
    try:
        await world.start()
        shop = DrivenShop(world, driver)
        await shop.open()
        yield shop
        for one in list(world.hubs):
            await world.stop(one)
    finally:
        await driver.stop()
