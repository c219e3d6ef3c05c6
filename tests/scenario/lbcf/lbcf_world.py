"""A shop whose load balancers are behind a webhook driver: the real hub and provider, a real API, a real driver.

In: what users, kubelets and drivers do. Out: what the driver was asked, what is on its load balancers and on record.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from hub_world import EVENT, TOKEN, HubWorld, RunningHub, WatchedCluster
from lbcf_driver import Driver
from lbcf_wire import Wire
from prometheus_client import CollectorRegistry

from fairlead.api.backendgroup import BACKEND_GROUPS, BACKEND_RECORDS, BackendRecord
from fairlead.api.kubernetes import NAMESPACES, NODES, PODS, SERVICES
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import condition_of
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.webhook.provider import WebhookProvider
from podless import ApiServer
from tests.scenario.installed_kinds import server_with_kinds

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")
WEB = {"byLabel": {"selector": {"app": "web"}}, "ports": [{"port": 80}]}
LOOSE = {"maxRemovalPercent": 100, "minBackends": 0}
#: Longer than the longest wait between two tries.
LONG_S = 400.0


class LbcfWorld(HubWorld):
    """Hubs whose way to the API can be broken, and whose classes may name a webhook driver."""

    def __init__(self, server: ApiServer, wire: Wire, driver: Driver) -> None:
        self.wire = wire
        self.driver = driver
        super().__init__(server)
        self.webhook_registry = CollectorRegistry()
        self.factories["webhook"] = self._webhook

    def _webhook(self) -> WebhookProvider:
        self.webhook_registry = CollectorRegistry()
        return WebhookProvider(clock=self.clock, registry=self.webhook_registry)

    def connect(self, name: str) -> WatchedCluster:
        server = self.wire.url if name == "hub" else self.server.url
        return WatchedCluster(ClusterConfig(server=server, sign_in=bearer(TOKEN)), name=name, clock=self.clock, qps=0)

    async def start_at_once(self, identity: str = "hub-1") -> RunningHub:
        """Start a hub without waiting for it to get anywhere."""
        running_hub = RunningHub(
            self, identity=identity, pool="192.0.2.0/29", refuse_writes=False, refuse_preparing=False
        )
        self.hubs.append(running_hub)
        await self.quiet(2)
        return running_hub


class Death:
    """The moment at which a hub dies: the ``point``-th time that it is about to do something, or has done it."""

    def __init__(self, point: int) -> None:
        self._left = point
        self.came = asyncio.Event()

    async def at_point(self) -> None:
        """Be at one point; from the deadly one on nothing goes through."""
        self._left -= 1
        if self._left < 0:
            self.came.set()
            await asyncio.Event().wait()


class Shop:
    """One namespace, one class, and what people do with them."""

    def __init__(self, world: LbcfWorld) -> None:
        self.world = world
        self.api = world.user
        self.driver = world.driver

    async def open(self, *, parameters: dict[str, str] | None = None, lbs: tuple[str, ...] = (), **spec: Any) -> None:
        await self.api.apply(NAMESPACES, {"metadata": {"name": "shop"}}, manager="kubectl")
        await self.lb_class(parameters=parameters, **spec)
        for name in lbs:
            await self.lb(name)

    async def lb_class(self, name: str = "edge", *, parameters: dict[str, str] | None = None, **spec: Any) -> None:
        parameters = {"url": self.driver.url, **(parameters or {})}
        body = {"provider": "webhook", "drain": "0s", "guard": LOOSE, "parameters": parameters, **spec}
        await self.api.apply(LOAD_BALANCER_CLASSES, {"metadata": {"name": name}, "spec": body}, manager="kubectl")

    async def lb(self, name: str = "shared", *, class_name: str = "edge", **spec: Any) -> None:
        listeners = [{"name": "http", "port": 80, "protocol": "TCP"}]
        body = {"className": class_name, "listeners": listeners, "parameters": {"name": name}, **spec}
        body = {"metadata": {"name": name, "namespace": "shop"}, "spec": body}
        await self.api.apply(LOAD_BALANCERS, body, manager="kubectl")

    async def group(self, name: str = "web", *, lbs: tuple[str, ...] = ("shared",), **spec: Any) -> None:
        spec = spec or {"pods": WEB}
        body = {"metadata": {"name": name, "namespace": "shop"}, "spec": {"loadBalancers": list(lbs), **spec}}
        await self.api.apply(BACKEND_GROUPS, body, manager="kubectl")

    async def elsewhere(self, *addresses: str) -> None:
        """Have a load balancer in another namespace, with these static backends."""
        listeners = [{"name": "http", "port": 80, "protocol": "TCP"}]
        await self.api.apply(NAMESPACES, {"metadata": {"name": "elsewhere"}}, manager="kubectl")
        meta = {"name": "elsewhere", "namespace": "elsewhere"}
        spec: dict[str, Any] = {"className": "edge", "listeners": listeners, "parameters": {"name": "elsewhere"}}
        await self.api.apply(LOAD_BALANCERS, {"metadata": meta, "spec": spec}, manager="kubectl")
        spec = {"loadBalancers": ["elsewhere"], "static": list(addresses)}
        await self.api.apply(BACKEND_GROUPS, {"metadata": meta, "spec": spec}, manager="kubectl")
        await self.until_at(*addresses, lb="elsewhere")

    async def pod(
        self,
        name: str,
        address: str,
        *,
        ready: bool = True,
        labels: dict[str, str] | None = None,
        finalizers: tuple[str, ...] = (),
    ) -> None:
        meta = {"name": name, "namespace": "shop", "labels": labels or {"app": "web"}, "finalizers": list(finalizers)}
        spec = {"nodeName": "n1", "containers": [{"name": "web", "image": "web"}]}
        await self.api.apply(PODS, {"metadata": meta, "spec": spec}, manager="kubectl")
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"phase": "Running", "podIP": address or None, "conditions": conditions}
        await self.api.merge_patch(PODS, "shop", name, {"status": status}, subresource="status")

    async def delete_pod(self, name: str) -> None:
        await self.api.delete(PODS, "shop", name)

    async def node(self, name: str, address: str, **labels: str) -> None:
        await self.api.apply(NODES, {"metadata": {"name": name, "labels": labels}, "spec": {}}, manager="kubelet")
        status = {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        body = {"metadata": {"name": name}, "status": status}
        await self.api.apply(NODES, body, manager="kubelet", subresource="status")

    async def service(
        self, name: str = "svc", *, type_: str = "NodePort", port: int = 80, node_port: int = 30200
    ) -> None:
        ports = [{"name": "http", "port": port, "targetPort": 8080} | ({"nodePort": node_port} if node_port else {})]
        body = {"metadata": {"name": name, "namespace": "shop"}, "spec": {"type": type_, "ports": ports}}
        await self.api.apply(SERVICES, body, manager="kubectl", force=True)

    async def records(self) -> list[BackendRecord]:
        return await self.api.list(BACKEND_RECORDS, "shop")

    async def states(self) -> dict[str, str]:
        return {record.spec.target.address: record.status.state for record in await self.records()}

    async def touch(self, kind: str) -> None:
        """Write all objects of one kind once more, so that a cache that could not read them reads them again."""
        for resource in (PODS, SERVICES, NODES, BACKEND_GROUPS, LOAD_BALANCERS, LOAD_BALANCER_CLASSES):
            for each in await self.api.list(resource) if resource.plural == kind else ():
                await self.api.merge_patch(resource, *each.key, {"metadata": {"annotations": {"touched": "yes"}}})

    async def none_left(self) -> bool:
        return not await self.records()

    async def forget_everything(self, name: str) -> None:
        """Tear out what is left of one load balancer, while no hub runs."""
        without_finalizers = {"metadata": {"finalizers": None}}
        for resource in (BACKEND_RECORDS, LOAD_BALANCERS):
            for each in await self.api.list(resource, "shop"):
                await self.api.merge_patch(resource, *each.key, without_finalizers)
                await self.api.delete(resource, *each.key)
        await self.api.delete(BACKEND_GROUPS, "shop", name)
        for each in await self.api.list(PODS, "shop"):
            await self.api.delete(PODS, *each.key)

    async def get(self, name: str = "shared") -> LoadBalancer:
        return await self.api.get(LOAD_BALANCERS, "shop", name)

    async def condition(self, kind: str, name: str = "shared") -> tuple[str, str, str]:
        """Return (status, reason, message) of one condition."""
        there = condition_of((await self.get(name)).status.conditions, kind)
        return (there.status, there.reason, there.message) if there else ("", "", "")

    async def says(self, kind: str, *text: str, name: str = "shared", limit_s: float = 180.0) -> None:
        """Wait until a condition is what it should not be, and names all of ``words``."""

        async def check() -> bool:
            status, _, message = await self.condition(kind, name)
            return status == ("False" if kind in ("Accepted", "ResolvedRefs", "Programmed") else "True") and all(
                word in message for word in text
            )

        await self.world.until(check, what=f"{kind} of {name} says {text}", limit_s=limit_s)

    async def is_good(self, kind: str = "Programmed", name: str = "shared", limit_s: float = LONG_S) -> None:
        async def check() -> bool:
            last[:] = await self.condition(kind, name)
            return last[0] == "True"

        last = ["", "", ""]
        try:
            await self.world.until(check, limit_s=limit_s)
        except AssertionError as error:
            raise AssertionError(f"{kind} of {name} is {last}") from error

    async def says_somewhere(self, *text: str, name: str = "shared") -> None:
        """Wait until a condition that is not as it should be names all of ``words``."""

        async def check() -> bool:
            conditions = (await self.get(name)).status.conditions or ()
            bad = [
                condition.message
                for condition in conditions
                if condition.type in ("Accepted", "Programmed") and condition.status != "True"
            ]
            return any(all(word in message for word in text) for message in bad)

        await self.world.until(check, what=f"a condition of {name} says {text}")

    async def reported(self, *text: str) -> None:
        """Wait for an Event whose message names all of ``words``."""

        async def check() -> bool:
            events = await self.api.list(EVENT, "shop")
            return any(all(word in f"{event.reason} {event.message}" for word in text) for event in events)

        await self.world.until(check, what=f"an Event with {text}")

    async def until_at(self, *addresses: str, lb: str = "shared", limit_s: float = 180.0) -> None:
        wanted = set(addresses)
        await self.world.until(
            lambda: self.driver.at(lb) == wanted, what=f"{wanted}, there are {self.driver.at(lb)}", limit_s=limit_s
        )

    async def registered(self, *addresses: str, limit_s: float = 180.0) -> None:
        """Wait until exactly these have records, and all of them are Registered."""
        wanted = dict.fromkeys(addresses, "Registered")

        async def check() -> bool:
            return len(await self.records()) == len(addresses) and await self.states() == wanted

        await self.world.until(check, what=f"records of {addresses}", limit_s=limit_s)

    async def until_gone(self, name: str = "shared", limit_s: float = 180.0) -> None:
        async def check() -> bool:
            return not await self.records() and await self.world.find(LOAD_BALANCERS, "shop", name) is None

        await self.world.until(check, what=f"{name} and all records to go", limit_s=limit_s)


@contextlib.asynccontextmanager
async def new_lbcf_world() -> AsyncGenerator[LbcfWorld]:
    server = await server_with_kinds(admin_token=TOKEN)
    async with contextlib.AsyncExitStack() as stack:
        await server.start()
        stack.push_async_callback(server.stop)
        wire = Wire(server.url)
        await wire.start()
        stack.push_async_callback(wire.stop)
        driver = Driver()
        await driver.start()
        stack.push_async_callback(driver.stop)
        world = LbcfWorld(server, wire, driver)
        stack.push_async_callback(world.user.aclose)
        try:
            yield world
        finally:
            driver.gate.set()
            for hub in list(world.hubs):
                await world.stop(hub)
