"""A load balancer comes, changes and goes, with agents and hub there or not."""

from __future__ import annotations

import pytest

from fairlead.api.names import FINALIZER_CLEANUP
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.testing.builders import endpoint, lb_key, target


@pytest.mark.req("K-10", "K-12", "K-24", "KI-10")
async def test_what_a_member_asks_for_becomes_a_load_balancer(world, hub):
    await world.lb()
    await world.slice("web", "10.1.0.1", endpoint("10.1.0.2", ready=False))
    address = await world.programmed()
    assert address == world.address_at_cloud()
    assert world.at_cloud() == {"10.1.0.1:8080"}
    load_balancer = await world.get()
    assert load_balancer.status.load_balancer.ingress[0].ip == address
    assert load_balancer.status.targets == "1/2"
    assert load_balancer.status.allocation.address == address
    assert load_balancer.status.accepted == load_balancer.spec
    assert FINALIZER_CLEANUP in load_balancer.metadata.finalizers
    assert {(condition.type, condition.status) for condition in load_balancer.status.conditions} == {
        ("Accepted", "True"),
        ("ResolvedRefs", "True"),
        ("Ready", "True"),
        ("Programmed", "True"),
        ("Serving", "Unknown"),
    }
    await world.until(world.events, what="an Event")
    assert ("Normal", "Programmed") in await world.events()


@pytest.mark.req("I-9", "K-31")
async def test_a_rolling_update_is_followed(world, hub):
    await world.lb()
    await world.slice("web", "10.1.0.1", "10.1.0.2")
    await world.programmed()
    await world.slice("web", "10.1.0.2", "10.1.0.3")
    await world.until(lambda: "10.1.0.3:8080" in world.at_cloud())
    await world.quiet(40)
    assert world.at_cloud() == {"10.1.0.2:8080", "10.1.0.3:8080"}


@pytest.mark.req("I-1")
async def test_held_removals_proceed_once_objects_are_readable(world, hub):
    """A watch that broke for a moment held a removal until something else happened to that load balancer."""
    await world.lb()
    await world.slice("web", "10.1.0.1", "10.1.0.2")
    await world.programmed()
    hub.hub.inventory.address_pools.problem = "the connection broke"
    await world.slice("web", "10.1.0.1")
    assert "the connection broke" in (await world.said("Guarded", "True")).message
    await world.quiet()
    assert world.at_cloud() == {"10.1.0.1:8080", "10.1.0.2:8080"}
    hub.hub.inventory.address_pools.problem = ""
    await world.until(lambda: world.at_cloud() == {"10.1.0.1:8080"})


@pytest.mark.req("I-1")
async def test_an_emptied_slice_takes_the_last_targets_from_no_load_balancer_and_says_so(world, hub):
    await world.lb()
    await world.slice("web", "10.1.0.1", "10.1.0.2")
    await world.programmed()
    await world.slice("web")
    guarded = await world.said("Guarded", "True")
    assert "2 removals held" in guarded.message
    assert len(world.at_cloud()) == 2
    await world.slice("web", "10.1.0.3")
    await world.until(lambda: world.at_cloud() == {"10.1.0.3:8080"})
    await world.quiet()
    assert await world.condition("Guarded") is None


@pytest.mark.req("KI-1")
async def test_deleted_it_is_gone_and_so_is_its_finalizer(world, hub):
    await world.lb()
    await world.slice("web", "10.1.0.1")
    await world.programmed()
    await world.delete_lb()
    await world.until(lambda: gone(world))
    assert world.cloud.load_balancers == {}
    assert len(hub.hub.allocator) == 0


async def gone(world, name="web"):
    return await world.get(name) is None


@pytest.mark.req("I-3", "KI-1")
async def test_deleted_while_the_hub_was_down_it_is_cleaned_when_it_is_back(world, hub):
    await world.lb()
    await world.slice("web", "10.1.0.1")
    await world.programmed()
    await world.stop(hub)
    await world.delete_lb()
    assert (await world.get()).deleting
    assert lb_key() in world.cloud.load_balancers
    await world.start()
    await world.until(lambda: gone(world))
    assert world.cloud.load_balancers == {}


@pytest.mark.req("I-8", "KI-6")
async def test_a_restart_with_nothing_changed_writes_nothing(world, hub):
    await world.tenant("west")
    for name in ("a", "b"):
        await world.lb(name)
        await world.slice(name, "10.1.0.1")
    await world.lb("c", namespace="tenant-west")
    await world.slice("c", "10.1.0.9", namespace="tenant-west")
    addresses = {name: await world.programmed(name) for name in ("a", "b")}
    addresses["c"] = await world.programmed("c", "tenant-west")
    await world.quiet()
    before = {key: each.spec for key, each in world.cloud.load_balancers.items()}
    await world.stop(hub)
    again = await world.start()
    await world.quiet()
    assert again.written == []
    assert {key: each.spec for key, each in world.cloud.load_balancers.items()} == before
    assert {name: await world.programmed(name) for name in ("a", "b")} == {n: addresses[n] for n in ("a", "b")}


@pytest.mark.req("I-4")
async def test_what_others_put_there_is_never_touched(world, hub):
    world.cloud.add_foreign(lb_key(), "by-hand", target("200"))
    world.cloud.add_foreign(lb_key("theirs"), "by-hand", target("201"))
    await world.lb()
    await world.slice("web", "10.1.0.1")
    await world.programmed()
    await world.delete_lb()
    await world.until(lambda: gone(world))
    assert world.cloud.foreign(lb_key()) == {"by-hand": target("200")}
    assert world.cloud.foreign(lb_key("theirs")) == {"by-hand": target("201")}


@pytest.mark.req("I-10")
async def test_paused_nothing_changes_until_it_is_taken_away(world, hub):
    await world.lb()
    await world.slice("web", "10.1.0.1")
    await world.programmed()
    annotate = {"metadata": {"annotations": {"fairlead.dev/paused": "true"}}}
    await world.user.merge_patch(TCP_LOAD_BALANCERS, "tenant-east", "web", annotate)
    await world.said("Paused", "True")
    await world.slice("web", "10.1.0.1", "10.1.0.2")
    await world.quiet()
    assert world.at_cloud() == {"10.1.0.1:8080"}
    release = {"metadata": {"annotations": {"fairlead.dev/paused": None}}}
    await world.user.merge_patch(TCP_LOAD_BALANCERS, "tenant-east", "web", release)
    await world.until(lambda: len(world.at_cloud()) == 2)


@pytest.mark.req("K-16", "K-17", "K-32")
async def test_an_added_node_causes_no_status_write(world, hub):
    await world.nodes("10.0.0.1", "10.0.0.2")
    for number in range(4):
        port = {"port": 80, "nodePort": 30080 + number}
        await world.lb(f"lb-{number}", ports=[port], spec={"targets": "Node"})
    for number in range(4):
        await world.programmed(f"lb-{number}")
    await world.quiet()
    hub.cluster.written.clear()
    await world.nodes("10.0.0.1", "10.0.0.2", "10.0.0.3")
    await world.until(lambda: all(len(world.at_cloud(f"lb-{n}")) == 3 for n in range(4)))
    await world.nodes("10.0.0.2", "10.0.0.3")
    await world.until(lambda: all("10.0.0.1" not in str(sorted(ready(world, f"lb-{n}"))) for n in range(4)))
    await world.quiet()
    assert hub.written == []


def ready(world, name):
    return {str(at) for (_, at), each in world.cloud.members(lb_key(name)).items() if not each.draining}


async def test_late_endpoints_cause_no_warning(world, hub):
    await world.lb()
    await world.said("Serving", "False")
    await world.slice("web", "10.1.0.1")
    await world.said("ResolvedRefs", "True")
    await world.programmed()
    assert ("Normal", "Programmed") in await world.events()
    assert [reason for kind, reason in await world.events() if kind == "Warning"] == []
