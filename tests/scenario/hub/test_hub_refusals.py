"""Every refusal has a reason that the user reads, and takes nothing from others."""

from __future__ import annotations

import pytest

from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.cli.hub_reader import gather_status
from fairlead.status.fleet import Trouble
from fairlead.testing.builders import lb_key


async def served(world, name="web", **options):
    await world.lb(name, **options)
    await world.slice(name, "10.1.0.1")
    return await world.programmed(name)


async def change(world, name="web", **spec):
    await world.user.merge_patch(TCP_LOAD_BALANCERS, "tenant-east", name, {"spec": spec})


@pytest.mark.req("KI-10")
async def test_an_unknown_class(world, hub):
    await world.lb(spec={"className": "gold"})
    accepted = await world.said("Accepted", "False")
    assert accepted.reason == "NoSuchClass"
    assert "'gold'" in accepted.message
    await world.until(world.events)
    assert ("Warning", "NoSuchClass") in await world.events()
    assert world.cloud.load_balancers == {}


@pytest.mark.req("KI-10")
async def test_a_class_that_comes_later_is_enough(world, hub):
    await world.lb(spec={"className": "gold"})
    await world.slice("web", "10.1.0.1")
    await world.said("Accepted", "False")
    await world.user.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "gold"}, "spec": {"provider": "envoy"}})
    assert await world.programmed()


@pytest.mark.req("I-7")
async def test_a_class_that_is_deleted_takes_nothing_away(world, hub):
    gold = {"metadata": {"name": "gold"}, "spec": {"provider": "envoy"}}
    await world.user.create(LOAD_BALANCER_CLASSES, gold)
    address = await served(world, spec={"className": "gold"})
    await world.user.delete(LOAD_BALANCER_CLASSES, "", "gold")
    # It is held while it is used, unless a user insists.
    await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "gold", {"metadata": {"finalizers": None}})
    accepted = await world.said("Accepted", "False")
    assert accepted.reason == "NoSuchClass"
    assert world.at_cloud() == {"10.1.0.1:8080"}
    assert world.address_at_cloud() == address
    await world.user.create(LOAD_BALANCER_CLASSES, gold)
    await world.said("Accepted", "True")
    assert await world.programmed() == address


@pytest.mark.req("KI-10", "X-35")
async def test_a_quota(world, hub):
    for name in ("a", "a2", "a3"):
        await served(world, name)
    await world.tenant(maxLoadBalancers=1)
    await world.lb("b")
    accepted = await world.said("Accepted", "False", name="b")
    assert accepted.reason == "QuotaExceeded"
    assert "uses 3 load balancers" in accepted.message
    assert "spec.maxLoadBalancers of its Tenant allows 1;" in accepted.message
    await world.tenant(maxLoadBalancers=4)
    await world.slice("b", "10.1.0.1")
    assert await world.programmed("b")


@pytest.mark.req("I-6", "KI-10")
async def test_a_pool_that_is_exhausted(world, hub):
    addresses = {await served(world, f"lb-{number}") for number in range(6)}
    assert len(addresses) == 6
    await world.lb("late")
    programmed = await world.said("Programmed", "False", name="late")
    assert programmed.reason == "AddressPoolExhausted"
    assert {await world.programmed(f"lb-{number}") for number in range(6)} == addresses


@pytest.mark.req("I-6", "I-7", "X-33")
async def test_a_clash_of_ports_on_one_address(world, hub):
    first = await served(world, "a", spec={"address": "192.0.2.3"})
    had = await served(world, "b", spec={"address": "192.0.2.4"})
    await change(world, "b", address="192.0.2.3")
    accepted = await world.said("Accepted", "False", name="b")
    assert (accepted.reason, "the last accepted version is served" in accepted.message) == ("PortConflict", True)
    await world.said("Programmed", "True", name="b")
    fleet = await gather_status(world.user)
    (row,) = [each for each in fleet.load_balancers if each.name == "b"]
    assert (row.state, row.reason, row.address) == (Trouble.ATTENTION, "PortConflict", had)
    assert (await world.programmed("a"), world.address_at_cloud("b")) == (first, had)
    await world.stop(hub)
    await world.start()
    assert (world.address_at_cloud("a"), world.address_at_cloud("b")) == (first, had)
    await change(world, "b", address="192.0.2.5")
    await world.said("Accepted", "True", name="b")
    assert world.address_at_cloud("b") == "192.0.2.5"


@pytest.mark.req("I-7", "KI-10")
async def test_a_bad_source_range_leaves_the_last_good_version_through_a_restart(world, hub):
    address = await served(world, spec={"loadBalancerSourceRanges": ["10.0.0.0/8"]})
    await change(world, loadBalancerSourceRanges=["10.0.0.0/99"], ports=[{"port": 81}])
    accepted = await world.said("Accepted", "False")
    assert "'10.0.0.0/99'" in accepted.message

    def as_before():
        spec = world.cloud.load_balancers[lb_key()].spec
        return (spec.address, [listener.port for listener in spec.listeners], spec.source_ranges) == (
            address,
            [80],
            ("10.0.0.0/8",),
        )

    assert as_before()
    await world.quiet()
    await world.stop(hub)
    again = await world.start()
    await world.quiet()
    assert as_before()
    assert again.written == []
    await change(world, loadBalancerSourceRanges=["10.0.0.0/9"])
    await world.said("Accepted", "True")
    await world.until(
        lambda: [listener.port for listener in world.cloud.load_balancers[lb_key()].spec.listeners] == [81]
    )


@pytest.mark.req("I-7")
async def test_one_bad_object_among_others_stops_no_other(world, hub):
    await world.lb("bad", spec={"address": "nonsense"})
    await served(world, "good")
    assert (await world.said("Accepted", "False", name="bad")).reason == "AddressNotUsable"
    assert set(world.cloud.load_balancers) == {lb_key("good")}


async def test_a_refused_one_that_was_never_served_can_be_deleted(world, hub):
    await world.lb(spec={"className": "gold"})
    await world.said("Accepted", "False")
    await world.delete_lb()
    await world.until(lambda: absent(world))


async def absent(world):
    return await world.get() is None


@pytest.mark.req("I-4")
async def test_a_namespace_that_was_there_before_is_not_taken_over(world, hub):
    body = {"metadata": {"name": "evil"}, "spec": {"namespace": "kube-system"}}
    await world.user.apply(TENANTS, body, manager="kubectl")

    async def refused():
        tenant = await world.user.get(TENANTS, "", "evil")
        return next((condition for condition in tenant.status.conditions or () if condition.status == "False"), None)

    condition = await world.until(refused)
    assert "existed before this Tenant" in condition.message
