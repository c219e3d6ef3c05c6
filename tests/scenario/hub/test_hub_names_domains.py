"""A hub with a domain: names of Ingresses, Gateways and Services, what they answer, and what stays over a restart."""

from __future__ import annotations

import pytest
from hub_world import HubWorld
from names_world import answered, delete_route, gateway, gone, hostname, names_of, owned, route

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import condition_of
from fairlead.api.tenant import TENANTS
from fairlead.errors import Invalid, NotFound
from fairlead.model.keys import LoadBalancerKey
from fairlead.testing.builders import lb_key

GATEWAY = {"kind": "Gateway", "namespace": "shop", "name": "web", "uid": "uid-of-gateway"}
NAME = "web-shop.east.lb.example.com"


@pytest.fixture
async def east(world: HubWorld):
    world.domain = "lb.example.com"
    hub = await world.start()
    await world.tenant()
    await gateway(world)
    return hub


def config(world, name="shop.gw"):
    return world.cloud.load_balancers[LoadBalancerKey("HTTPLoadBalancer", "tenant-east", name)].spec.l7


@pytest.mark.req("K-47", "K-48", "K-49", "K-50", "K-51")
async def test_an_ingress_gets_a_name_that_meets_its_rules(world, east):
    await route(world, "shop.example.com")
    there = await owned(world, NAME, "east")
    assert there.spec.generated
    assert (await world.user.get(TENANTS, "", "east")).status.domain == "east.lb.example.com"

    async def shown():
        return (await names_of(world)).hostname == NAME

    await world.until(shown, what="the name in the status")
    (taken,) = config(world).routes
    assert {host for each in taken.attachments for host in each.hostnames} == {"shop.example.com", NAME}
    # Made again it has the same name.
    await delete_route(world)
    await gone(world, NAME)
    await route(world, "other.example.com")
    await owned(world, NAME, "east")


@pytest.mark.req("K-49", "K-50")
async def test_a_gateway_gets_a_name_that_meets_the_rules_of_its_routes(world, east):
    listeners = [{"name": "http", "port": 80, "hostname": "shop.example.com"}]
    await gateway(world, name="gateway.shop.web", listeners=listeners, origin=GATEWAY)
    await route(world, "shop.example.com", kind="HTTPRoute", load_balancer="gateway.shop.web")
    name = "web-shop-gw.east.lb.example.com"
    await owned(world, name, "east")

    async def shown():
        there = await world.user.get(HTTP_LOAD_BALANCERS, "tenant-east", "gateway.shop.web")
        return there.status.names.hostname == name

    await world.until(shown, what="the name in the status")
    await world.until(lambda: [each.hostname for each in config(world, "gateway.shop.web").listeners][1:] == [name])
    attachments = config(world, "gateway.shop.web").routes[0].attachments
    assert [each.listener for each in attachments] == ["http", "generated/80"]


@pytest.mark.req("K-49")
async def test_a_service_gets_a_name_when_it_asks_for_it(world, east):
    origin = {"kind": "Service", "namespace": "shop", "name": "db"}
    await world.lb("shop.db", spec={"generateHostname": True, "hostnames": ["db.example.com"], "origin": origin})
    address = await world.programmed("shop.db")
    there = await owned(world, "db-shop-svc.east.lb.example.com", "east")
    assert there.spec.owner.load_balancer == str(lb_key("shop.db"))

    async def points():
        return (await hostname(world, "db.example.com")).spec.addresses == [address]

    await world.until(points, what="the address of the Service")


@pytest.mark.req("KI-9", "K-48")
async def test_another_member_cannot_take_a_name_that_it_guesses(world, east):
    await world.tenant("west")
    await gateway(world, "west")
    await route(world, NAME, member="west", name="guess")
    await answered(world, "DomainReserved", member="west", name="guess")
    await route(world, "shop.example.com")
    await owned(world, NAME, "east")


@pytest.mark.req("KI-9", "KI-6")
async def test_a_restart_writes_nothing_and_idle_is_silent(world, east):
    for number in range(20):
        await route(world, f"h{number}.example.com", name=f"r{number}")
    for number in range(20):
        await owned(world, f"r{number}-shop.east.lb.example.com", "east")
    await world.quiet()
    east.cluster.written.clear()
    await world.quiet()
    assert east.written == []
    await world.stop(east)
    again = await world.start()
    await world.quiet()
    assert [each for each in again.written if "Hostname" in each or "Route" in each or "Tenant" in each] == []


@pytest.mark.req("K-48", "KI-10")
async def test_an_invalid_domain_of_a_tenant_is_rejected(world, east):
    await world.user.apply(TENANTS, {"metadata": {"name": "east"}, "spec": {"domain": "apps.example.net"}}, manager="k")
    await route(world, "shop.example.com")
    await owned(world, "web-shop.apps.example.net", "east")
    for field, value in (("domain", "bücher.example"), ("domain", "a..b"), ("domains", ["*.example.com"])):
        body = {"metadata": {"name": "west"}, "spec": {field: value}}
        with pytest.raises(Invalid, match="A-label"):
            await world.user.apply(TENANTS, body, manager="kubectl")


@pytest.mark.req("KI-9")
async def test_a_shared_domain_is_reported_to_the_younger_tenant(world, east):
    async def condition():
        return condition_of((await world.user.get(TENANTS, "", "west")).status.conditions, "HostnamesAccepted")

    await world.tenant("east", domains=["shop.example.com"])
    await world.tenant("west", domains=["shop.example.com"])

    async def refused():
        there = await condition()
        return there is not None and there.status == "False" and "belongs to Tenant east" in there.message

    await world.until(refused, what="west reads that its domain is taken")
    await world.tenant("east", domains=["other.example.com"])

    async def clear():
        return await condition() is None

    await world.until(clear, what="west has the domain")


@pytest.mark.req("K-47", "KI-9")
async def test_a_hub_of_one_region_leaves_names_to_the_hub_that_serves_all(world, east):
    world.domain = "regional.example.com"
    regional = await world.start(identity="hub-north", region="north")
    await world.tenant("west")
    await gateway(world, member="west")
    await route(world, "west.example.com", member="west")
    await owned(world, "web-shop.west.lb.example.com", "west")
    assert (await world.user.get(TENANTS, "", "west")).status.domain == "west.lb.example.com"
    assert [each for each in regional.cluster.written if "Hostname" in each] == []


async def domains_of(world):
    status = (await world.user.get(TENANTS, "", "east")).status
    return status.domain, [each.domain for each in status.former_domains or ()]


def hosts_of(world):
    return {host for each in config(world).routes for at in each.attachments for host in at.hostnames}


@pytest.mark.req("K-47", "K-48", "KI-6")
async def test_former_names_are_kept_for_an_hour_after_the_new_ones(world, east):
    await route(world, "shop.example.com")
    await owned(world, NAME, "east")
    new = "web-shop.apps.example.net"
    await world.user.merge_patch(TENANTS, "", "east", {"spec": {"domain": "apps.example.net"}})
    await owned(world, new, "east")
    await world.until(lambda: hosts_of(world) == {"shop.example.com", NAME, new}, what="both names are served")
    before = await hostname(world, NAME)
    assert (before.spec.addresses, before.spec.generated) == ((await hostname(world, new)).spec.addresses, True)
    assert await domains_of(world) == ("apps.example.net", ["east.lb.example.com"])
    assert (await names_of(world)).hostname == new
    assert not (await names_of(world)).conditions
    # Another member cannot have it meanwhile, and a restart keeps it.
    await world.tenant("west")
    await gateway(world, "west")
    await route(world, NAME, member="west", name="guess")
    await answered(world, "DomainReserved", member="west", name="guess")
    await world.quiet()  # what the members use is counted
    await world.stop(east)
    again = await world.start()
    await world.quiet()
    assert [each for each in again.written if "Hostname" in each or "Tenant" in each] == []
    assert hosts_of(world) == {"shop.example.com", NAME, new}
    await world.clock.advance(3700)
    await gone(world, NAME)
    await world.until(lambda: hosts_of(world) == {"shop.example.com", new}, what="the former name is served no more")
    assert await domains_of(world) == ("apps.example.net", [])


@pytest.mark.req("K-47", "K-49")
async def test_a_gateway_answers_at_its_former_name_and_operators_drop_that_at_once(world, east):
    listeners = [{"name": "http", "port": 80, "hostname": "shop.example.com"}]
    await gateway(world, name="gateway.shop.web", listeners=listeners, origin=GATEWAY)
    await route(world, "shop.example.com", kind="HTTPRoute", load_balancer="gateway.shop.web")
    former, new = "web-shop-gw.east.lb.example.com", "web-shop-gw.apps.example.net"
    await owned(world, former, "east")
    served = LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "gateway.shop.web")
    await world.until(lambda: served in world.cloud.load_balancers, what="the gateway is served")

    def listened():
        return {each.name: each.hostname for each in config(world, "gateway.shop.web").listeners[1:]}

    await world.user.merge_patch(TENANTS, "", "east", {"spec": {"domain": "apps.example.net"}})
    both = {"generated/80": new, "former/east.lb.example.com/80": former}
    await world.until(lambda: listened() == both, what="listeners for both names")
    (taken,) = config(world, "gateway.shop.web").routes
    assert [each.listener for each in taken.attachments] == ["http", *both]
    await world.user.merge_patch(TENANTS, "", "east", {"spec": {"keepFormerDomain": "0s"}})
    await gone(world, former)
    await world.until(lambda: listened() == {"generated/80": new}, what="the listener of the new name alone")


@pytest.mark.req("K-47", "K-48")
async def test_another_hub_domain_after_a_restart_keeps_the_former_names(world, east):
    await route(world, "shop.example.com")
    await owned(world, NAME, "east")
    await world.stop(east)
    world.domain = "lb.example.net"
    await world.start()
    await owned(world, "web-shop.east.lb.example.net", "east")
    assert await domains_of(world) == ("east.lb.example.net", ["east.lb.example.com"])
    await owned(world, NAME, "east")
    assert NAME in hosts_of(world)


@pytest.mark.req("CORE-07")
async def test_a_refused_tenant_takes_neither_names_nor_quota_nor_domains(world, east):
    origin = {"kind": "Service", "namespace": "shop", "name": "web", "uid": "u1"}
    await world.lb("shop.web", spec={"generateHostname": True, "origin": origin})
    await world.slice("shop.web", "10.1.0.1")
    name = "web-shop-svc.east.lb.example.com"
    await owned(world, name, "east")
    spec = {"namespace": "tenant-east", "maxPorts": 1, "maxLoadBalancers": 1, "domains": ["example.net"]}
    await world.user.apply(TENANTS, {"metadata": {"name": "aaa"}, "spec": spec}, manager="kubectl")

    async def refused():
        conditions = (await world.user.get(TENANTS, "", "aaa")).status.conditions
        accepted = condition_of(conditions, "Accepted")
        return accepted is not None and accepted.status == "False"

    await world.until(refused, what="the second Tenant of the namespace to be refused")
    await world.lb("shop.two", spec={"origin": origin}, ports=[{"port": 81}, {"port": 82}])
    await world.slice("shop.two", "10.1.0.2")
    await world.programmed("shop.two")
    await owned(world, name, "east")
    # Its domain belongs to the Tenant that names it next.
    await world.tenant("west", domains=["example.net"])
    await world.lb("shop.net", namespace="tenant-west", spec={"hostnames": ["www.example.net"], "origin": origin})
    await world.slice("shop.net", "10.2.0.2", namespace="tenant-west")
    await owned(world, "www.example.net", "west")


@pytest.mark.req("CORE-07")
async def test_a_deleted_namespace_still_belongs_to_its_tenant(world):
    async def accepted(name: str) -> str:
        condition = condition_of((await world.user.get(TENANTS, "", name)).status.conditions, "Accepted")
        return condition.status if condition is not None else ""

    async def taken() -> bool:
        return await accepted("east") == "True"

    hub = await world.start()
    await world.tenant()
    await world.until(taken, what="the first Tenant to be accepted")
    await world.stop(hub)
    await world.user.delete(NAMESPACES, "", "tenant-east")
    await world.until(lambda: _gone(world, "tenant-east"), what="the namespace to be gone")
    await world.user.apply(
        TENANTS, {"metadata": {"name": "aaa"}, "spec": {"namespace": "tenant-east"}}, manager="kubectl"
    )

    await world.start()

    async def refused() -> bool:
        return await accepted("aaa") == "False"

    await world.until(refused, what="the second Tenant to be refused")
    assert await accepted("east") == "True"
    # The namespace is free once its Tenant is gone.
    await world.user.delete(TENANTS, "", "east")

    async def taken_over() -> bool:
        return await accepted("aaa") == "True"

    await world.until(taken_over, what="the second Tenant to be accepted")


async def _gone(world, name: str) -> bool:
    try:
        await world.user.get(NAMESPACES, "", name)
    except NotFound:
        return True
    return False
