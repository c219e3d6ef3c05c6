"""A namespace with one LoadBalancer of the provider ``memory``: what its users write, and what is at the cloud."""

from __future__ import annotations

from fairlead.api.backendgroup import BACKEND_GROUPS, BACKEND_RECORDS
from fairlead.api.kubernetes import NAMESPACES, PODS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.model.keys import LoadBalancerKey

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")


class Shop:
    """What users do in one namespace."""

    def __init__(self, world):
        self.world = world
        self.api = world.user

    async def open(self, **spec):
        await self.api.apply(NAMESPACES, {"metadata": {"name": "shop"}}, manager="kubectl")
        body = {"metadata": {"name": "edge"}, "spec": {"provider": "memory", "drain": "0s", **spec}}
        await self.api.apply(LOAD_BALANCER_CLASSES, body, manager="kubectl")
        await self.lb("shared")

    async def lb(self, name, **spec):
        spec = {"className": "edge", "listeners": [{"name": "http", "port": 80, "protocol": "TCP"}], **spec}
        body = {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}
        await self.api.apply(LOAD_BALANCERS, body, manager="kubectl")

    async def group(self, name, *, lbs=("shared",), **spec):
        body = {"metadata": {"name": name, "namespace": "shop"}, "spec": {"loadBalancers": list(lbs), **spec}}
        await self.api.apply(BACKEND_GROUPS, body, manager="kubectl")

    async def pod(self, name, address, *, ready=True, phase="Running", labels=None):
        meta = {"name": name, "namespace": "shop", "labels": labels or {"app": "web"}}
        spec = {"containers": [{"name": "web", "image": "web"}]}
        await self.api.apply(PODS, {"metadata": meta, "spec": spec}, manager="kubectl")
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"phase": phase, "podIP": address, "conditions": conditions}
        await self.api.merge_patch(PODS, "shop", name, {"status": status}, subresource="status")

    async def records(self):
        return await self.api.list(BACKEND_RECORDS, "shop")

    def at_cloud(self, key=KEY):
        return {str(at) for _, at in self.world.outside.members(key)}

    async def until(self, *addresses):
        wanted = {f"{address}:8080" for address in addresses}
        await self.world.until(lambda: self.at_cloud() == wanted, what=f"{wanted}, there are {self.at_cloud()}")

    async def registered(self, count):
        async def check():
            records = await self.records()
            return len(records) == count and all(record.status.state == "Registered" for record in records)

        await self.world.until(check, what=f"{count} registered records")


PODS_OF_WEB = {"byLabel": {"selector": {"app": "web"}, "except": ["web-2"]}, "ports": [{"port": 8080}]}
