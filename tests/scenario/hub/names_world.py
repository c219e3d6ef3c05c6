"""Routes and load balancers of several members that ask for host names, and what is read back of them."""

from __future__ import annotations

from fairlead.api.hostname import DNS_ZONES, HOSTNAMES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.hub.names.ownership import object_name


async def zone(world, suffix="com"):
    """Create a DNSZone whose provider does not run: its names are recorded, and not published."""
    spec = {"zone": suffix, "provider": "elsewhere", "ownerId": "tests", "parameters": {}}
    await world.user.apply(DNS_ZONES, {"metadata": {"name": suffix}, "spec": spec}, manager="kubectl")


async def gateway(world, member="east", name="shop.gw", *, listeners=None, origin=None):
    spec = {"listeners": listeners or [{"name": "http", "port": 80}], **({"origin": origin} if origin else {})}
    body = {"metadata": {"name": name, "namespace": f"tenant-{member}"}, "spec": spec}
    await world.user.apply(HTTP_LOAD_BALANCERS, body, manager="agent")


async def route(world, *hosts, member="east", name="web", kind="Ingress", load_balancer="shop.gw"):
    spec = {
        "loadBalancer": load_balancer,
        "attachments": [{"listener": "http", "hostnames": list(hosts)}],
        "rules": [{"matches": [{"path": {"value": "/"}}]}],
        "origin": {"kind": kind, "namespace": "shop", "name": name, "uid": f"uid-of-{name}"},
    }
    body = {"metadata": {"name": f"shop.{name}", "namespace": f"tenant-{member}"}, "spec": spec}
    return await world.user.apply(LOAD_BALANCER_ROUTES, body, manager="agent")


async def delete_route(world, member="east", name="web"):
    await world.user.delete(LOAD_BALANCER_ROUTES, f"tenant-{member}", f"shop.{name}")


async def hostname(world, host):
    return await world.find(HOSTNAMES, SYSTEM_NAMESPACE, object_name(host))


async def owned(world, host, member):
    """Wait until ``host`` is the member's, and return its Hostname."""

    async def check():
        there = await hostname(world, host)
        return there if there is not None and there.spec.owner.member == member else None

    return await world.until(check, what=f"{host} belongs to {member}")


async def gone(world, host):
    async def check():
        return await hostname(world, host) is None

    await world.until(check, what=f"{host} has no owner")


async def names_of(world, member="east", name="web"):
    there = await world.user.get(LOAD_BALANCER_ROUTES, f"tenant-{member}", f"shop.{name}")
    return there.status.names


async def answered(world, reason, *, member="east", name="web"):
    """Wait until a route reads ``reason`` about its names, and return the condition."""

    async def check():
        conditions = (await names_of(world, member, name)).conditions or ()
        return next((each for each in conditions if each.reason == reason), None)

    return await world.until(check, what=f"{reason} at {member}/{name}")
