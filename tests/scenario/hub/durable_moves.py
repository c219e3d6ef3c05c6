"""A load balancer that moves between providers, and what its users see meanwhile."""

from __future__ import annotations

import asyncio
import contextlib

from hub_world import HubWorld

from fairlead.api.backendgroup import BACKEND_RECORDS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import NotFound
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.testing.builders import NAMESPACE, lb_key

ADDRESSES = {"edge": "198.51.100.1", "rack": "198.51.100.2"}
PROVIDERS = {"edge": "memory", "rack": "racks", "envoy": "envoy"}
DRAIN_S = 4.0


class Watcher:
    """Follows one load balancer like a user with a browser: is the address that is shown one that answers?"""

    def __init__(self, world: HubWorld) -> None:
        self.world = world
        self.clouds: dict[str, MemoryCloud] = {}
        self.addresses: list[str] = []
        self.gaps: list[str] = []

    def look(self, shown: str) -> None:
        if not self.addresses or self.addresses[-1] != shown:
            self.addresses.append(shown)
        serving = [name for name, cloud in self.clouds.items() if self._answers(cloud, shown)]
        if not serving:
            self.gaps.append(f"{shown or 'no address'} at {self.world.clock.monotonic():g}")

    def _answers(self, cloud: MemoryCloud, shown: str) -> bool:
        load_balancer = cloud.load_balancers.get(lb_key())
        if load_balancer is None:
            return False
        address = load_balancer.spec.address or load_balancer.spec.parameters.get("address", "")
        return shown == address and any(not member.draining for member in cloud.members(lb_key()).values())


class Moves:
    """One load balancer that is moved from class to class."""

    def __init__(self, world: HubWorld) -> None:
        self.world = world
        self.racks = MemoryCloud(clock=world.clock)
        self.rack = MemoryProvider(cloud=self.racks)
        world.factories["racks"] = self.new_rack
        self.watcher = Watcher(world)
        self.watcher.clouds = {"envoy": world.cloud, "edge": world.outside, "rack": self.racks}

    def new_rack(self) -> MemoryProvider:
        self.rack = MemoryProvider(cloud=self.racks, faults=self.rack.faults)
        return self.rack

    def cloud(self, name: str) -> MemoryCloud:
        return self.watcher.clouds[name]

    async def classes(self) -> None:
        for name, address in ADDRESSES.items():
            spec = {
                "provider": PROVIDERS[name],
                "parameters": {"address": address},
                "targets": "Pod",
                "drain": f"{DRAIN_S:g}s",
            }
            body = {"metadata": {"name": name}, "spec": spec}
            await self.world.user.apply(LOAD_BALANCER_CLASSES, body, manager="kubectl")
        drain = {"spec": {"drain": f"{DRAIN_S:g}s"}}
        await self.world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "envoy", drain)

    async def serve(self, first: str) -> str:
        """Make one that works, by class ``first``; returns its address."""
        await self.classes()
        await self.world.slice("web", "10.1.0.1", "10.1.0.2")
        await self.world.lb(spec={"className": first})
        return await self.world.programmed()

    async def ask(self, name: str) -> None:
        """Move it: what a user does."""
        await self.world.user.merge_patch(TCP_LOAD_BALANCERS, NAMESPACE, "web", {"spec": {"className": name}})

    async def follow(self, check, *, what: str = "", limit_s: float = 180.0):
        """Wait until ``check``; a user looks at every step."""

        async def looked():
            load_balancer = await self.world.get()
            if load_balancer is not None and not load_balancer.deleting:
                self.watcher.look(load_balancer.status.address)
            last = check()
            return await last if asyncio.iscoroutine(last) else last

        return await self.world.until(looked, what=what, limit_s=limit_s)

    async def moved(self, name: str) -> None:
        """Wait until it is at ``name`` and nowhere else, on record too."""
        await self.follow(lambda: self.is_at(name), what=f"it is at {name} alone")

    async def is_at(self, name: str) -> bool:
        load_balancer = await self.world.get()
        if load_balancer is None or load_balancer.status.serving_provider != PROVIDERS[name]:
            return False
        there = {each for each, cloud in self.watcher.clouds.items() if lb_key() in cloud.load_balancers}
        recorded = {record.spec.load_balancer.provider for record in await self.records()}
        durable = {PROVIDERS[name]} - {"envoy"}
        programmed = next(condition for condition in load_balancer.status.conditions if condition.type == "Programmed")
        return (
            there == {name}
            and recorded == durable
            and set(load_balancer.status.recorded_providers) == durable
            and (programmed.status, programmed.observed_generation) == ("True", load_balancer.metadata.generation)
            and bool(load_balancer.status.allocation.address) == (name == "envoy")
        )

    def ready_at(self, name: str) -> set[str]:
        members = self.cloud(name).members(lb_key())
        return {str(at) for (_, at), each in members.items() if not each.draining}

    async def shows_another_than(self, address: str) -> bool:
        return (await self.world.get()).status.address != address

    async def class_is_gone(self, name: str) -> None:
        """Wait until a class that was deleted is gone; what still holds it is overruled."""
        with contextlib.suppress(NotFound):
            meta = {"metadata": {"finalizers": None}}
            await self.world.user.merge_patch(LOAD_BALANCER_CLASSES, "", name, meta)
        assert await self.world.find(LOAD_BALANCER_CLASSES, "", name) is None

    async def is_gone(self) -> bool:
        left = [name for name, cloud in self.watcher.clouds.items() if lb_key() in cloud.load_balancers]
        return not left and not await self.records() and await self.world.get() is None

    async def records(self):
        return await self.world.user.list(BACKEND_RECORDS, NAMESPACE)

    def never_without(self) -> None:
        assert self.watcher.gaps == []
