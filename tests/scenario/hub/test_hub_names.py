"""Host names at a hub with two members: who owns a name, what the other one reads, and what survives."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from names_world import answered, delete_route, gateway, gone, hostname, names_of, owned, route, zone

from fairlead.api.hostname import DNS_ZONES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.meta import condition_of
from fairlead.api.tenant import TENANTS
from fairlead.cli.changes import plan_of
from fairlead.cli.explain import explained
from fairlead.cli.names import ask_zones, name_rows
from fairlead.hub.inspect.preview import preview


@pytest.fixture
async def members(world, hub):
    await world.tenant("west")
    for member in ("east", "west"):
        await gateway(world, member)
    return hub


@pytest.mark.req("KI-9")
async def test_a_host_belongs_to_the_first_member_and_points_to_its_address(world, members):
    await zone(world)
    await route(world, "shop.example.com")
    there = await owned(world, "shop.example.com", "east")
    assert there.spec.owner.load_balancer == "HTTPLoadBalancer/tenant-east/shop.gw"
    assert (there.spec.owner.kind, there.spec.owner.name) == ("Ingress", "web")

    async def has_address():
        return (await hostname(world, "shop.example.com")).spec.addresses

    assert len(await world.until(has_address)) == 1
    await route(world, "shop.example.com", member="west")
    refused = await answered(world, "HostnameTaken", member="west")
    assert refused.status == "False"
    assert "shop.example.com" in refused.message
    assert "east" not in refused.message
    assert (await hostname(world, "shop.example.com")).spec.owner.member == "east"
    assert (await hostname(world, "shop.example.com")).status.waiting == 1
    assert (await names_of(world)).conditions is None
    await delete_route(world)
    passed = await owned(world, "shop.example.com", "west")
    assert passed.spec.owner.load_balancer == "HTTPLoadBalancer/tenant-west/shop.gw"
    await answered(world, "HostnamesAccepted", member="west")
    await delete_route(world, "west")
    await gone(world, "shop.example.com")


@pytest.mark.req("KI-9")
async def test_ownership_survives_a_restart_and_a_restart_writes_nothing(world, members):
    await zone(world)
    await route(world, "shop.example.com")
    await owned(world, "shop.example.com", "east")
    await route(world, "shop.example.com", member="west")
    await answered(world, "HostnameTaken", member="west")
    await world.quiet()
    await world.stop(members)
    again = await world.start()
    await world.quiet()
    assert (await hostname(world, "shop.example.com")).spec.owner.member == "east"
    assert [each for each in again.written if "Hostname" in each or "Route" in each] == []


@pytest.mark.req("KI-9")
async def test_a_domain_of_the_operators_choice_is_for_its_member_only(world, members):
    await zone(world)
    await route(world, "shop.example.com", member="west")
    await owned(world, "shop.example.com", "west")
    body = {"metadata": {"name": "east"}, "spec": {"domains": ["example.com"]}}
    await world.user.apply(TENANTS, body, manager="kubectl")
    await answered(world, "DomainReserved", member="west")
    await gone(world, "shop.example.com")
    await route(world, "shop.example.com")
    await owned(world, "shop.example.com", "east")


async def test_hosts_of_routes_matter_only_with_a_zone(world, members):
    await route(world, "shop.example.com")
    await route(world, "shop.example.com", member="west")
    await answered(world, "HostnameTaken", member="west")
    await zone(world, "example.net")
    await world.quiet()
    assert await hostname(world, "shop.example.com") is None, "no zone could serve it"
    assert [write for write in members.cluster.written if " Hostname " in write] == []

    await zone(world, "example.com")
    await owned(world, "shop.example.com", "east")
    await world.user.delete(DNS_ZONES, "", "example.com")
    await world.user.delete(DNS_ZONES, "", "example.net")

    async def unknown():
        there = await hostname(world, "shop.example.com")
        accepted = condition_of(there.status.conditions, "Accepted")
        return (
            there if accepted is not None and (accepted.status, accepted.reason) == ("Unknown", "NoSuchZone") else None
        )

    there = await world.until(unknown, what="the last zone is gone")
    (row,) = name_rows([there], await ask_zones([there], []))
    assert (row.good, row.state) == (True, "NotAsked")
    (previewed,) = [each for each in await preview(world.user) if each.key.kind == "Hostname"]
    assert plan_of(previewed).problem == ""
    explained_states = {each.status for each in explained(previewed, now=datetime.now(UTC), leading=True).conditions}
    assert explained_states <= {"Unknown"}


@pytest.mark.req("KI-9")
async def test_a_name_is_given_again_while_the_watch_of_names_hangs(world, members):
    await zone(world)
    await route(world, "shop.example.com")
    before = await owned(world, "shop.example.com", "east")
    await world.quiet()
    members.cluster.caught_up.clear()
    members.cluster.lagging_kind = "Hostname"
    await delete_route(world)
    deleted_s = world.clock.monotonic()

    async def going():
        there = await hostname(world, "shop.example.com")
        return there is None or there.deleting

    await world.until(going, what="the end of the name")
    await route(world, "shop.example.com", member="west")
    after = await owned(world, "shop.example.com", "west")
    assert after.metadata.uid != before.metadata.uid
    assert world.clock.monotonic() - deleted_s < 60, "the link is noticed as silent after 90 s"
    members.cluster.caught_up.set()
    await world.quiet()
    assert (await hostname(world, "shop.example.com")).metadata.uid == after.metadata.uid


@pytest.mark.req("KI-9")
async def test_records_stay_while_their_load_balancer_is_not_accepted(world, members):
    """Names do not vanish from DNS because an edit of the load balancer is refused, nor at the restart after it."""
    await zone(world)
    await route(world, "shop.example.com")
    await owned(world, "shop.example.com", "east")

    async def addresses():
        return (await hostname(world, "shop.example.com")).spec.addresses

    before = await world.until(addresses, what="the address of the name")
    twice = [{"name": "http", "port": 80}, {"name": "again", "port": 80}]
    await gateway(world, listeners=twice)

    async def refused():
        obj = await world.user.get(HTTP_LOAD_BALANCERS, "tenant-east", "shop.gw")
        return any(each.type == "Accepted" and each.status == "False" for each in obj.status.conditions or ())

    await world.until(refused, what="the refusal")
    await world.quiet()
    assert await addresses() == before
    await world.stop(members)
    await world.start()
    await world.quiet()
    assert await addresses() == before
