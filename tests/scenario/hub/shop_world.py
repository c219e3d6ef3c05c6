"""A shop with a webhook driver over real HTTP: what its users, its operator and its driver do."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from group_shop import Shop
from hub_world import EVENT, HubWorld

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.kubernetes import NODES, SERVICES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import AnyResource, condition_of
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
    result = body["podBackend"]
    return {"status": "Succ", "backendAddr": f"{result['pod']['status']['podIP']}:{result['port']['portNumber']}"}


class DrivenShop(Shop):
    """The shop; its class ``edge`` is that of the driver when it was opened with ``driven``."""

    def __init__(self, world: HubWorld, driver: Driver) -> None:
        super().__init__(world)
        self.driver = driver

    async def class_(self, name: str = "edge", **spec: Any) -> None:
        # On a busy machine an answer takes its time, and a driver that was not heard is asked again.
        parameters = {"url": self.driver.url, "timeout": "20s", **spec.pop("parameters", {})}
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
        wanted = {address if ":" in address else f"{address}:8080" for address in addresses}
        await self.world.until(lambda: self.at_driver() == wanted, what=f"{wanted}, there are {self.at_driver()}")

    async def says(
        self, resource: AnyResource, name: str, type_: str, status: str, *text: str, namespace: str = "shop"
    ) -> Any:
        """Wait until a condition has this status and these words in its message, and return it."""

        async def check() -> Any:
            given = await self.world.find(resource, namespace if resource.namespaced else "", name)
            result = condition_of(given.status.conditions, type_) if given else None
            good = result is not None and result.status == status and all(word in result.message for word in text)
            return result if good else None

        return await self.world.until(check, what=f"{type_}={status} {text} of {name}")

    async def lb_says(self, type_: str, status: str, *text: str, name: str = "shared") -> Any:
        return await self.says(LOAD_BALANCERS, name, type_, status, *text)

    async def group_says(self, name: str, type_: str, status: str, *text: str, namespace: str = "shop") -> Any:
        return await self.says(BACKEND_GROUPS, name, type_, status, *text, namespace=namespace)

    async def warned(self, name: str, reason: str, *text: str, namespace: str = "shop") -> None:
        async def check() -> bool:
            events = await self.world.user.list(EVENT, namespace)
            return any(
                (event.type, event.reason, event.involved_object.get("name")) == ("Warning", reason, name)
                and all(word in event.message for word in text)
                for event in events
            )

        await self.world.until(check, what=f"Warning {reason} about {name}: {text}")


@contextlib.asynccontextmanager
async def open_shop(world: HubWorld) -> AsyncGenerator[DrivenShop]:
    """Start a hub that knows the webhook provider, and open a shop there."""
    driver = Driver()
    await driver.start()
    world.factories["webhook"] = lambda: WebhookProvider(clock=world.clock)
    try:
        await world.start()
        shop = DrivenShop(world, driver)
        await shop.open()
        yield shop
        for hub in list(world.hubs):
            await world.stop(hub)
    finally:
        await driver.stop()
