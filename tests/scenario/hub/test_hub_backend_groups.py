"""LoadBalancer and BackendGroup, from what users write to what is at the cloud, with BackendRecords in between."""

from __future__ import annotations

import pytest
from group_shop import KEY, PODS_OF_WEB
from hub_world import EVENT

from fairlead.api.backendgroup import BACKEND_GROUPS, BACKEND_RECORDS
from fairlead.api.kubernetes import NAMESPACES, PODS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.names import FINALIZER_DEREGISTER
from fairlead.testing.builders import HTTP, target


@pytest.mark.req("L-1", "L-2", "L-10", "L-19", "L-40", "A-4", "A-6")
async def test_ready_pods_are_registered_with_a_record_each_and_no_other_pods(shop, world):
    """LT-1, LT-2, LT-9."""
    world.outside.add_foreign(KEY, "by-hand", target("200"))
    await shop.pod("web-0", "10.1.0.1")
    await shop.pod("web-1", "10.1.0.2", ready=False)
    await shop.pod("web-2", "10.1.0.3")
    await shop.pod("db-0", "10.1.0.4", labels={"app": "db"})
    await shop.group("web", pods=PODS_OF_WEB, parameters={"weight": "10"})
    await shop.until("10.1.0.1")
    await shop.registered(1)
    (record,) = await shop.records()
    assert FINALIZER_DEREGISTER in record.metadata.finalizers
    assert record.spec.owners == ["BackendGroup/shop/web"]
    assert record.spec.target.source.startswith("Pod/shop/web-0/")
    assert record.spec.parameters == {"weight": "10"}
    assert world.outside.members(KEY)[HTTP, target("10.1.0.1").key].weight == 10
    assert world.outside.foreign(KEY) == {"by-hand": target("200")}

    async def reported():
        lb = await world.user.get(LOAD_BALANCERS, "shop", "shared")
        group = await world.user.get(BACKEND_GROUPS, "shop", "web")
        return (lb.status.backends, group.status.backends, group.status.registered_backends) == ("1/1", 1, 1)

    await world.until(reported)


@pytest.mark.req("L-34", "L-35", "L-6", "L-9")
async def test_a_group_that_goes_takes_its_backends_and_the_load_balancer_goes_last(shop, world):
    """LT-14, LT-15."""
    await shop.pod("web-0", "10.1.0.1")
    await shop.group("web", pods=PODS_OF_WEB)
    await shop.group("fixed", static=["10.9.0.1:8080"])
    await shop.until("10.1.0.1", "10.9.0.1")
    await world.user.delete(BACKEND_GROUPS, "shop", "web")
    await shop.until("10.9.0.1")
    await world.user.delete(LOAD_BALANCERS, "shop", "shared")
    await world.until(lambda: KEY not in world.outside.load_balancers)

    async def gone():
        return not await shop.records() and await world.find(LOAD_BALANCERS, "shop", "shared") is None

    await world.until(gone)


@pytest.mark.req("L-6", "L-34")
async def test_the_only_group_takes_all_backends_with_it(shop, world):
    """The guard keeps last targets that vanish; these were taken away on purpose."""
    await shop.group("fixed", static=["10.9.0.1:8080", "10.9.0.2:8080"])
    await shop.until("10.9.0.1", "10.9.0.2")
    await world.user.delete(BACKEND_GROUPS, "shop", "fixed")
    await shop.until()


@pytest.mark.req("L-6", "I-3")
async def test_a_group_deleted_while_no_hub_runs_takes_all_its_backends_with_it(shop, world, hub):
    await shop.group("fixed", static=["10.9.0.1:8080", "10.9.0.2:8080"])
    await shop.until("10.9.0.1", "10.9.0.2")
    await shop.registered(2)
    await world.stop(hub)
    await world.user.delete(BACKEND_GROUPS, "shop", "fixed")
    assert len(shop.at_cloud()) == 2
    await world.start(identity="hub-1")
    await shop.until()


@pytest.mark.req("L-44", "L-11")
async def test_an_address_of_two_groups_goes_with_the_last_of_them(shop, world, hub):
    await shop.group("one", static=["10.9.0.1:8080", "10.9.0.2:8080"])
    await shop.group("two", static=["10.9.0.1:8080"])
    await shop.until("10.9.0.1", "10.9.0.2")
    await shop.registered(2)
    calls = hub.durable.calls["apply"]
    await shop.group("two", static=["10.9.0.2:8080"])

    async def owners():
        return {record.spec.target.address: len(record.spec.owners) for record in await shop.records()} == {
            "10.9.0.1": 1,
            "10.9.0.2": 2,
        }

    await world.until(owners)
    assert hub.durable.calls["apply"] == calls, "who owns a backend is no business of the provider"
    await world.user.delete(BACKEND_GROUPS, "shop", "one")
    await shop.until("10.9.0.2")


@pytest.mark.req("L-5", "L-7", "L-15")
async def test_a_pod_that_goes_while_no_hub_runs_is_deregistered_by_the_next(shop, world, hub):
    """LT-7: found by its absence, with no event delivered."""
    for number in (1, 2, 3):
        await shop.pod(f"web-{number + 4}", f"10.1.0.{number}")
    await shop.group("web", pods=PODS_OF_WEB)
    await shop.until("10.1.0.1", "10.1.0.2", "10.1.0.3")
    await shop.registered(3)
    await world.stop(hub)
    await world.user.delete(PODS, "shop", "web-6")
    await world.start(identity="hub-1")
    await shop.until("10.1.0.1", "10.1.0.3")


@pytest.mark.req("L-17", "A-31", "L-12")
async def test_a_restart_with_nothing_changed_calls_no_provider_and_writes_nothing(shop, world, hub):
    """Manual changes at the provider are kept."""
    await shop.pod("web-0", "10.1.0.1")
    await shop.pod("web-5", "10.1.0.5")
    await shop.group("web", pods=PODS_OF_WEB)
    await shop.until("10.1.0.1", "10.1.0.5")
    await shop.registered(2)
    await world.quiet(20)
    world.outside.drift(KEY, HTTP, target("10.1.0.5").key, None)
    await world.quiet(20)
    assert shop.at_cloud() == {"10.1.0.1:8080"}, "IfNotSucc: a person took it away"
    await world.stop(hub)
    again = await world.start(identity="hub-1")
    await world.quiet(30)
    assert {name: count for name, count in again.durable.calls.items() if name != "observe"} == {}
    assert [each for each in again.written if "BackendRecord" in each or "BackendGroup" in each] == []
    assert shop.at_cloud() == {"10.1.0.1:8080"}


@pytest.mark.req("L-8", "L-18")
async def test_a_record_deleted_by_hand_is_deregistered_and_recreated(shop, world, hub):
    """LT-39."""
    await shop.group("fixed", static=["10.9.0.1:8080"])
    await shop.until("10.9.0.1")
    await shop.registered(1)
    (before,) = await shop.records()
    await world.user.delete(BACKEND_RECORDS, *before.key)

    async def another():
        records = await shop.records()
        return [record.status.state for record in records] == ["Registered"] and records[
            0
        ].metadata.uid != before.metadata.uid

    await world.until(another)
    assert shop.at_cloud() == {"10.9.0.1:8080"}


@pytest.mark.req("L-20")
@pytest.mark.parametrize(
    ("policy", "phase", "stays"),
    [("IfNotReady", "Running", False), ("IfNotRunning", "Running", True), ("IfNotRunning", "Failed", False)],
)
async def test_which_pods_that_are_not_ready_keep_their_place(shop, policy, phase, stays, world):
    """LT-25."""
    await shop.pod("web-0", "10.1.0.1")
    await shop.pod("web-1", "10.1.0.9")
    await shop.pod("web-3", "10.1.0.3", ready=False)
    await shop.group("web", pods=PODS_OF_WEB, deregisterPolicy=policy)
    await shop.until("10.1.0.1", "10.1.0.9")
    await shop.registered(2)
    await shop.pod("web-0", "10.1.0.1", ready=False, phase=phase)
    if stays:
        await world.quiet(20)
    await shop.until(*(["10.1.0.1"] if stays else []), "10.1.0.9")


async def test_two_load_balancers_that_are_the_same_one_do_not_share_it(shop, world):
    await shop.lb("mine", existing={"backend": "b"})
    await world.quiet(2)
    await shop.lb("yours", existing={"backend": "b"})

    async def refused():
        lb = await world.user.get(LOAD_BALANCERS, "shop", "yours")
        text = [condition for condition in lb.status.conditions or () if condition.type == "Accepted"]
        return text and text[0].status == "False" and "shop/mine" in text[0].message

    await world.until(refused)


@pytest.mark.req("X-13")
async def test_who_has_an_existing_one_is_not_for_another_namespace_to_know(shop, world):
    await shop.lb("secret", existing={"backend": "b"})
    await world.quiet(2)
    # Of two that are made in the same second, the first by name has it.
    await world.user.apply(NAMESPACES, {"metadata": {"name": "warehouse"}}, manager="kubectl")
    spec = {"className": "edge", "listeners": [{"name": "http", "port": 80}], "existing": {"backend": "b"}}
    body = {"metadata": {"name": "mine", "namespace": "warehouse"}, "spec": spec}
    await world.user.apply(LOAD_BALANCERS, body, manager="kubectl")

    async def refusal():
        lb = await world.user.get(LOAD_BALANCERS, "warehouse", "mine")
        refused = [each for each in lb.status.conditions or () if each.type == "Accepted" and each.status == "False"]
        return refused and lb

    lb = await world.until(refusal)
    text = " ".join(condition.message for condition in lb.status.conditions)
    assert "a LoadBalancer in another namespace uses this load balancer" in text
    assert "shop" not in text
    assert "secret" not in text


@pytest.mark.req("I-10")
async def test_every_removal_has_its_reason_in_an_event(shop, world):
    await shop.group("fixed", static=["10.9.0.1:8080", "10.9.0.2:8080"])
    await shop.until("10.9.0.1", "10.9.0.2")
    await shop.group("fixed", static=["10.9.0.1:8080"])
    await shop.until("10.9.0.1")

    async def reported():
        events = await world.user.list(EVENT, "shop")
        return [event.message for event in events if event.reason == "Deregister" and "Absent" in event.message]

    assert await world.until(reported)
