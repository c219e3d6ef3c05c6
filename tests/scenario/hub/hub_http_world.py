"""An HTTPLoadBalancer with routes and endpoints, as an agent writes them, and what is read back of it."""

from __future__ import annotations

import base64

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import ENDPOINT_SLICES, SECRETS
from fairlead.api.meta import condition_of
from fairlead.api.names import LABEL_BACKEND, LABEL_SLICE_MANAGED_BY, SLICE_MANAGED_BY
from fairlead.model.keys import LoadBalancerKey

NAMESPACE = "tenant-east"
KEY = LoadBalancerKey("HTTPLoadBalancer", NAMESPACE, "shop.gw")


async def secret(world, chain: bytes, key: bytes) -> None:
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
    body = {"metadata": {"name": "cert", "namespace": NAMESPACE}, "type": "kubernetes.io/tls", "data": data}
    await world.user.apply(SECRETS, body, manager="agent")


async def load_balancer(world, **spec):
    listeners = [{"name": "http", "port": 80}, *spec.pop("more", [])]
    body = {"metadata": {"name": "shop.gw", "namespace": NAMESPACE}, "spec": {"listeners": listeners, **spec}}
    await world.user.apply(HTTP_LOAD_BALANCERS, body, manager="agent")


async def route(world, name="shop.web", *, path="/", service="shop/web", labels=None):
    backend = {"name": f"{service}:80", "service": service, "portName": "http"}
    spec = {
        "loadBalancer": "shop.gw",
        "attachments": [{"listener": "http", "hostnames": ["shop.example.com"]}],
        "rules": [{"matches": [{"path": {"value": path}}], "backends": [{"backend": backend["name"]}]}],
        "backends": [backend],
    }
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels or {}}
    await world.user.apply(LOAD_BALANCER_ROUTES, {"metadata": metadata, "spec": spec}, manager="agent")


async def endpoints(world, *addresses, service="shop/web"):
    label = service.replace("/", ".")
    body = {
        "metadata": {
            "name": label,
            "namespace": NAMESPACE,
            "labels": {LABEL_BACKEND: label, LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
    }
    await world.user.apply(ENDPOINT_SLICES, body, manager="agent")


async def read(world):
    return await world.user.get(HTTP_LOAD_BALANCERS, NAMESPACE, "shop.gw")


async def condition(world, kind):
    return condition_of((await read(world)).status.conditions, kind)


async def says(world, kind, status):
    async def condition_found():
        item = await condition(world, kind)
        return item if item is not None and item.status == status else None

    return await world.until(condition_found, what=f"{kind} is {status}")


def at_cloud(world):
    members = world.cloud.members(KEY)
    return {f"{listener.backend} {target.address}:{target.port}" for listener, target in members}
