"""The PoolEndpoints controller: only the regions that a change concerns, and renewTime exactly then."""

from __future__ import annotations

import json

import pytest
from regions_world import NAMESPACE, SELECTOR, Running, World, until

from fairlead.api.kubernetes import ENDPOINT_SLICES, NODES


async def renewed(world: World, *names: str) -> dict[str, str | None]:
    return {name: (await world.get(name)).spec.renew_time for name in names}


async def three_regions(world: World, *, class_name: str = "fairlead.dev/envoy") -> Running:
    for number, pool in enumerate(("beijing", "hangzhou", "shanghai"), start=1):
        await world.pool(pool, edge="yes")
        await world.node(f"n-{pool}", pool, address=f"10.1.{number}.1")
    await world.service(selector="edge=yes", class_name=class_name)
    await world.slice(("10.0.1.1", "n-beijing"), ("10.0.2.1", "n-hangzhou"), ("10.0.3.1", "n-shanghai"))
    # Layer 2 is not what is looked at here.
    return await world.start(balancer=False)


ALL = ("test-beijing", "test-hangzhou", "test-shanghai")


async def backends(world: World, name: str) -> list[tuple[str, bool]]:
    decoded = json.loads((await world.get(name)).annotation("fairlead.dev/backends"))
    return [(each["address"], each["ready"]) for group in decoded.get("groups", ()) for each in group["endpoints"]]


@pytest.mark.req("O-5", "O-13", "O-17", "O-55")
async def test_an_endpoint_change_is_one_write_in_its_own_region(world: World) -> None:
    running = await three_regions(world)
    assert [await backends(world, name) for name in ALL] == [
        [("10.0.1.1", True)], [("10.0.2.1", True)], [("10.0.3.1", True)],
    ]  # fmt: skip
    before, writes = await renewed(world, *ALL), running.requests()
    await world.slice(("10.0.1.1", "n-beijing"), ("10.0.2.1", "n-hangzhou", False), ("10.0.3.1", "n-shanghai"))
    await world.settled()
    after = await renewed(world, *ALL)
    assert [name for name in ALL if after[name] != before[name]] == ["test-hangzhou"]
    assert (after["test-hangzhou"] or "") > (before["test-hangzhou"] or "")
    assert running.requests() == writes + 1
    assert await backends(world, "test-hangzhou") == [("10.0.2.1", False)]
    await world.user.delete(ENDPOINT_SLICES, NAMESPACE, "test-1")
    await world.settled()
    assert [await backends(world, name) for name in ALL] == [[], [], []]
    assert running.requests() == writes + 4


@pytest.mark.req("O-14")
async def test_a_node_that_moves_is_a_write_in_the_two_pools_concerned(world: World) -> None:
    running = await three_regions(world)
    before, writes = await renewed(world, *ALL), running.requests()
    await world.user.merge_patch(NODES, "", "n-beijing", {"metadata": {"labels": {"region": "shanghai"}}})
    await world.settled()
    after = await renewed(world, *ALL)
    assert [name for name in ALL if after[name] != before[name]] == ["test-beijing", "test-shanghai"]
    assert running.requests() == writes + 2
    assert await backends(world, "test-beijing") == []
    assert await backends(world, "test-shanghai") == [("10.0.1.1", True), ("10.0.3.1", True)]


@pytest.mark.req("O-14")
async def test_node_readiness_concerns_only_services_whose_backends_are_nodes(world: World) -> None:
    running = await three_regions(world)
    await world.service("nodes", selector="edge=yes", class_name="elb")
    await world.settled()
    writes = running.requests()
    await world.node("n-hangzhou", "hangzhou", address="10.1.2.1", ready="False")
    await world.settled()
    assert running.requests() == writes + 1
    decoded = json.loads((await world.get("nodes-hangzhou")).annotation("fairlead.dev/backends"))["nodes"]
    assert decoded == [{"name": "n-hangzhou", "address": "10.1.2.1", "ready": False}]
    # A heartbeat says nothing new.
    status = {"conditions": [{"type": "Ready", "status": "False", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}]}
    await world.user.merge_patch(NODES, "", "n-hangzhou", {"status": status}, subresource="status")
    await world.settled()
    assert running.requests() == writes + 1


@pytest.mark.req("O-14")
async def test_backends_of_a_node_that_is_gone_stay_until_their_slice_drops_them(world: World) -> None:
    running = await three_regions(world)
    writes = running.requests()
    await world.user.delete(NODES, "", "n-beijing")
    await world.settled()
    assert await backends(world, "test-beijing") == [("10.0.1.1", True)]
    assert running.requests() == writes
    await world.stop(running)
    again = await world.start(balancer=False)
    assert await backends(world, "test-beijing") == [("10.0.1.1", True)]
    assert again.requests() == 0
    await world.slice(("10.0.2.1", "n-hangzhou"), ("10.0.3.1", "n-shanghai"))
    await world.settled()
    assert await backends(world, "test-beijing") == []


@pytest.mark.req("O-15", "O-48", "W-O-10")
async def test_a_new_pool_gets_a_pool_service_for_each_matching_service_only(world: World) -> None:
    running = await three_regions(world)
    await world.service("other", selector="tier=core", class_name="elb")
    await world.settled()
    writes = running.requests("poolservices")
    await world.pool("shenzhen", edge="yes")
    await world.until_names(*ALL, "test-shenzhen")
    await world.settled()
    assert running.requests("poolservices") == writes + 1


@pytest.mark.req("O-16", "O-20", "O-48")
async def test_a_pool_that_stops_matching_or_is_deleted_touches_no_other(world: World) -> None:
    running = await three_regions(world)
    before = await renewed(world, "test-hangzhou")
    await world.pool("beijing", edge="no")
    await world.until_names("test-hangzhou", "test-shanghai")
    await world.delete_pool("shanghai")  # its node lives on
    await world.until_names("test-hangzhou")
    await world.settled()
    assert await renewed(world, "test-hangzhou") == before
    assert running.requests("poolservices") == 3 + 2


@pytest.mark.req("T-O-62", "O-48")
async def test_a_pool_with_only_a_new_spec_causes_no_work(world: World) -> None:
    running = await three_regions(world)
    writes = running.requests()
    await world.pool("beijing", edge="yes", region="north")
    await world.settled()
    assert running.requests() == writes


@pytest.mark.req("O-8", "O-10", "O-11", "O-46")
async def test_a_service_change_refreshes_every_region_once(world: World) -> None:
    running = await three_regions(world)
    before, writes = await renewed(world, *ALL), running.requests()
    await world.change_service({"spec": {"ports": [{"name": "http", "port": 8081, "targetPort": 8080}]}})
    await world.settled()
    after = await renewed(world, *ALL)
    assert all((after[name] or "") > (before[name] or "") for name in ALL)
    assert running.requests() == writes + 3
    document = json.loads((await world.get("test-beijing")).annotation("fairlead.dev/service"))
    assert document["spec"]["ports"][0]["port"] == 8081
    assert "status" not in document
    assert "managedFields" not in document["metadata"]
    assert "clusterIP" not in document["spec"]


@pytest.mark.req("T-O-41", "O-46", "O-39")
async def test_private_fields_of_users_are_not_a_difference(world: World) -> None:
    running = await three_regions(world)
    writes = running.requests()
    await world.annotate(note="something")
    await world.settled()
    assert running.requests() == writes
    await world.stop(running)
    again = await world.start(balancer=False)
    assert again.requests() == 0


@pytest.mark.req("O-30", "O-8")
async def test_a_changed_selector_adds_and_removes_regions(world: World) -> None:
    await three_regions(world)
    await world.pool("shenzhen", edge="no", tier="core")
    kept = (await world.get("test-hangzhou")).metadata.uid
    await world.annotate(**{SELECTOR: "edge notin (nowhere), !absent, edge in (yes,no), tier!=gold"})
    await world.until_names(*ALL, "test-shenzhen")
    await world.annotate(**{SELECTOR: "tier"})
    await world.until_names("test-shenzhen")
    await world.annotate(**{SELECTOR: "edge"})
    await world.until_names(*ALL, "test-shenzhen")
    assert (await world.get("test-hangzhou")).metadata.uid != kept


@pytest.mark.req("O-27")
async def test_openyurts_own_spelling_of_the_selector_is_read_too(world: World) -> None:
    await world.pool("np1", app="deploy")
    await world.service(selector=None, annotations={"service.openyurt.io/nodepool-labelselector": "app=deploy"})
    await world.start()
    await world.until_names("test-np1")


@pytest.mark.req("O-5")
async def test_a_node_is_in_one_pool_and_the_younger_claim_has_a_warning(world: World) -> None:
    running = await three_regions(world)

    async def second_passed() -> bool:
        await world.pool("again", nodes={"region": "hangzhou"}, edge="yes")
        await world.settled()
        pools = {pool.name: pool.created for pool in running.regions.inventory.pools.values()}  # type: ignore[union-attr]
        if pools.get("again", "") > pools["hangzhou"]:
            return True
        await world.delete_pool("again")
        return False

    await until(second_passed)
    event = await world.event("again", "NodeClaimedTwice", namespace="default")
    assert "n-hangzhou" in event.message
    assert "hangzhou" in event.message
    await world.until_names(*ALL, "test-again")
    await world.settled()
    assert await backends(world, "test-again") == []
    assert await backends(world, "test-hangzhou") == [("10.0.2.1", True)]
    await world.delete_pool("hangzhou")
    await world.until_names("test-again", "test-beijing", "test-shanghai")
    await world.settled()
    assert await backends(world, "test-again") == [("10.0.2.1", True)]
    resolved = await world.event("again", "Resolved", namespace="default")
    assert "NodeClaimedTwice" in resolved.message


@pytest.mark.req("T-O-60", "T-O-61", "T-O-63", "T-O-64", "T-O-65", "O-48", "W-O-10")
async def test_pools_that_come_change_and_go_concern_the_services_that_want_them(world: World) -> None:
    names = ("s1", "s2", "s3")
    for name in names:
        await world.service(name)
    await world.service("else", selector="tier=gold")
    await world.service("plain", selector=None)
    running = await world.start()
    looked: list[str] = []
    running.regions.changes.on_region.append(lambda key: looked.append(key.service))  # type: ignore[union-attr]
    await world.pool("np")  # without labels
    await world.settled()
    assert looked == []
    await world.pool("np", app="deploy")
    await world.until_names("s1-np", "s2-np", "s3-np")
    await world.settled()
    assert sorted(set(looked)) == list(names)
    looked.clear()
    await world.pool("unrelated", app="other")
    await world.delete_pool("unrelated")
    await world.settled()
    assert looked == []
    await world.delete_pool("np")
    await world.until_names()
    await world.settled()
    assert sorted(set(looked)) == list(names)
