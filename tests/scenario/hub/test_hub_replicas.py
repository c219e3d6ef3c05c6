"""Two hubs, a hub that may not write, and the moments in between."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.backendgroup import BACKEND_RECORDS
from fairlead.api.hostname import HOSTNAMES
from fairlead.api.intent import Allocation
from fairlead.api.kubernetes import LEASES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import MANAGER_HUB, SYSTEM_NAMESPACE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.hub.intents.tcp import TCPStatus
from fairlead.kube.writes import write_status
from fairlead.testing.builders import lb_key
from tests.scenario.hub.hub_world import POOL, RunningHub


async def served(world, name, **options):
    await world.lb(name, **options)
    await world.slice(name, "10.1.0.1")
    return await world.programmed(name)


@pytest.mark.req("I-5")
async def test_only_the_leader_writes_and_the_other_takes_over(world, hub):
    second = await world.start(identity="hub-1", lead=False)
    await served(world, "a")
    assert hub.written
    assert second.written == []
    assert await world.lease_holder() == "hub-0"
    await world.stop(hub)
    await world.until(lambda: second.hub.leading, what="the second to lead")
    await served(world, "b")
    assert second.written


@pytest.mark.req("I-6", "I-5")
async def test_b11_a_new_leader_gives_out_no_address_that_is_in_use(world, hub):
    """The second hub was there before any address was given: its book is what it has learnt since."""
    second = await world.start(identity="hub-1", lead=False)
    had = {name: await served(world, name) for name in ("a", "b", "c")}
    await world.stop(hub)
    for number in range(3):
        await world.lb(f"new-{number}")
        await world.slice(f"new-{number}", "10.1.0.9")
    await world.until(lambda: second.hub.leading)
    given = {await world.programmed(f"new-{number}") for number in range(3)}
    await world.quiet()
    assert {name: await world.programmed(name) for name in had} == had
    assert given.isdisjoint(had.values())
    assert len(given) == 3


@pytest.mark.req("I-6", "I-7", "I-8")
async def test_b19_a_restart_while_the_api_refuses_writes_serves_what_is_on_record(world, hub):
    had = {name: await served(world, name) for name in ("a", "b")}
    await world.stop(hub)
    await world.lb("late")
    await world.slice("late", "10.1.0.2")
    await world.slice("a", "10.1.0.1", "10.1.0.3")
    again = await world.start(lead=False, refuse_writes=True)
    await world.until(lambda: "10.1.0.3:8080" in world.at_cloud("a"), what="targets go on being followed")
    await world.quiet()
    assert {name: world.address_at_cloud(name) for name in had} == had
    assert lb_key("late") not in world.cloud.load_balancers
    again.cluster.refuse_writes = False
    address = await world.programmed("late")
    assert address not in had.values()
    assert {name: await world.programmed(name) for name in had} == had


@pytest.mark.req("I-2", "I-6")
async def test_programmed_targets_are_recorded_first(world, hub):
    hub.cluster.refuse_writes = True
    await world.lb()
    await world.slice("web", "10.1.0.1")
    await world.quiet()
    assert world.cloud.load_balancers == {}
    hub.cluster.refuse_writes = False
    address = await world.programmed()
    assert (await world.get()).status.allocation.address == address


@pytest.mark.req("I-8")
async def test_b19_a_restart_while_the_api_refuses_really_every_write(world, hub):
    await served(world, "a")
    await world.stop(hub)
    await world.start(lead=False, refuse_writes=True, refuse_preparing=True)
    await world.slice("a", "10.1.0.1", "10.1.0.3")
    await world.until(lambda: "10.1.0.3:8080" in world.at_cloud("a"))


@pytest.mark.req("I-2", "I-6")
async def test_words_that_are_older_than_the_record_do_not_erase_it(world, hub):
    await world.lb()
    before_the_record = await world.get()
    await world.slice("web", "10.1.0.1")
    address = await world.programmed()
    await world.stop(hub)
    older = msgspec.structs.replace(before_the_record.status, allocation=Allocation(address="203.0.113.1"))
    for each in (before_the_record.status, older):
        obj = await world.get()
        await write_status(
            world.user, TCP_LOAD_BALANCERS, obj, obj.status, each, manager=MANAGER_HUB, others=TCPStatus.owned_elsewhere
        )
        status = (await world.get()).status
        assert (status.conditions, status.allocation.address) == (None, address)
        assert status.accepted is not None


@pytest.mark.req("I-7")
async def test_a_class_that_was_deleted_still_serves_after_a_restart(world, hub):
    await world.user.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "gold"}, "spec": {"provider": "envoy"}})
    await served(world, "a", spec={"className": "gold"})
    await world.user.delete(LOAD_BALANCER_CLASSES, "", "gold")
    # It is held while it is used, unless a user insists.
    await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "gold", {"metadata": {"finalizers": None}})
    await world.said("Accepted", "False", name="a")
    await world.stop(hub)
    await world.user.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "gold"}, "spec": {"provider": "elsewhere"}})
    again = await world.start()
    assert lb_key("a") in again.hub.providers["envoy"].tracker


@pytest.mark.req("X-7")
async def test_a_hub_is_ready_only_when_the_default_class_is_there(world):
    replica = RunningHub(world, identity="hub-0", pool=POOL, refuse_writes=False, refuse_preparing=False)
    replica.cluster.refuse_name = "envoy"
    world.hubs.append(replica)
    await world.until(lambda: replica.hub.leading, what="the hub leads")
    await world.quiet()
    (reason,) = replica.hub.not_ready()
    assert "the class envoy could not be created yet" in reason
    replica.cluster.refuse_name = ""
    await world.until(lambda: not replica.hub.not_ready(), what="the hub is ready")
    await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "envoy", {"spec": {"drain": "3s"}}, manager="operator")


@pytest.mark.req("CORE-04")
@pytest.mark.parametrize("again", ["lease deleted", "with a region"])
async def test_records_of_an_earlier_lease_do_not_fence_the_leader(world, again):
    hub = await world.start()
    await world.tenant("east")
    spec = {"provider": "memory", "parameters": {"address": "198.51.100.1"}, "drain": "4s"}
    await world.user.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "hw"}, "spec": spec})
    for _ in range(3):
        await world.stop(hub)
        hub = await world.start()
    await world.lb("a", spec={"className": "hw", "region": "eu"})
    await world.slice("a", "10.1.0.1", "10.1.0.2")
    await world.programmed("a")
    highest = max(record.spec.epoch for record in await world.user.list(BACKEND_RECORDS))
    assert highest == 4
    await world.stop(hub)
    if again == "lease deleted":
        await world.user.delete(LEASES, SYSTEM_NAMESPACE, "fairlead-hub")
        hub, lease = await world.start(), "fairlead-hub"
    else:
        hub, lease = await world.start(region="eu"), "fairlead-hub-eu"
    assert (await world.user.get(LEASES, SYSTEM_NAMESPACE, lease)).spec.lease_transitions > highest
    await world.slice("a", "10.1.0.1", "10.1.0.3")

    def registered() -> set[str]:
        return {target.address for _, target in world.outside.members(lb_key("a"))}

    await world.until(lambda: registered() == {"10.1.0.1", "10.1.0.3"}, what="the dead pod to be deregistered")
    await world.delete_lb("a")
    await world.until(lambda: _is_gone(world, "a"), what="the end of the deletion")


async def _is_gone(world, name):
    return await world.get(name) is None


@pytest.mark.req("CORE-05")
async def test_a_new_leader_whose_watch_lags_gives_no_address_twice(world):
    first = await world.start()
    await world.tenant("east")
    await world.tenant("west")
    two = await world.start(identity="hub-1", lead=False)
    first.cluster.refuse_writes = True
    keys = [(f"lb{number}", namespace) for number in range(3) for namespace in ("tenant-east", "tenant-west")]
    for name, namespace in keys:
        await world.lb(name, namespace=namespace)
        await world.slice(name, "10.1.0.1", namespace=namespace)
    await world.quiet(3)
    two.cluster.lagging_kind = "TCPLoadBalancer"
    first.cluster.refuse_writes = False
    addresses = {key: await world.programmed(*key) for key in keys}
    await world.stop(first)
    await world.until(lambda: two.hub.leading)
    await world.quiet(3)
    two.cluster.caught_up.set()
    await world.quiet(8)
    assert {key: await world.programmed(*key) for key in keys} == addresses
    assert len(set(addresses.values())) == len(keys)


@pytest.mark.req("CORE-05")
async def test_a_new_leader_whose_watch_lags_passes_no_name_on(world):
    first = await world.start()
    await world.tenant("east")
    await world.tenant("west")
    two = await world.start(identity="hub-1", lead=False)
    await served(world, "a")
    two.cluster.lagging_kind = "Hostname"
    host = "shop.example.com"
    await world.lb("b", namespace="tenant-west", spec={"hostnames": [host]})
    await world.slice("b", "10.2.0.1", namespace="tenant-west")
    await world.programmed("b", "tenant-west")
    await world.until(lambda: world.find(HOSTNAMES, SYSTEM_NAMESPACE, host))
    # The object of the other member is older, so that it would get a free name.
    await world.user.merge_patch(TCP_LOAD_BALANCERS, "tenant-east", "a", {"spec": {"hostnames": [host]}})
    await world.quiet(3)
    await world.stop(first)
    await world.until(lambda: two.hub.leading)
    await world.quiet(3)
    two.cluster.caught_up.set()
    await world.quiet(8)
    assert (await world.user.get(HOSTNAMES, SYSTEM_NAMESPACE, host)).spec.owner.member == "west"
