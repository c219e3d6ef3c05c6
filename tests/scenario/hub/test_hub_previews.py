"""What operators see before anything happens, and why: plan, explain, pause, drift and orphans over a real hub."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from group_shop import KEY, PODS_OF_WEB
from shop_world import open_shop

from fairlead.api.backendgroup import BACKEND_GROUPS, BACKEND_RECORDS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.cli.changes import plan_of
from fairlead.cli.explain import explained, lines_of
from fairlead.hub.inspect.preview import OrphanKind, orphans_of, preview, remove_orphan

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def reported(result):
    return "\n".join(lines_of(explained(result, now=NOW, leading=True), now=NOW))


def fields(row):
    return {field.field: (field.ledger, field.wanted) for field in row.fields}


@pytest.mark.req("I-10", "L-41")
async def test_what_would_change_is_shown_with_its_reason_and_nothing_is_written(shop, world, hub):
    await shop.pod("web-0", "10.1.0.1")
    await shop.group("web", pods=PODS_OF_WEB)
    await shop.group("fixed", static=["10.9.0.1:8080"])
    await shop.until("10.1.0.1", "10.9.0.1")
    await shop.registered(2)
    await world.quiet(10)
    (calm,) = await preview(world.user)
    assert plan_of(calm).rows == []
    await world.stop(hub)
    await shop.group("fixed", static=["10.9.0.2:8080"])
    await shop.group("web", pods=PODS_OF_WEB, parameters={"weight": "7"})
    written = len(world.user.written)
    (previewed,) = await preview(world.user)
    rows = {(row.action, row.target): row for row in plan_of(previewed).rows}
    assert {key: row.reason for key, row in rows.items()} == {
        ("Update", "10.1.0.1:8080"): "Changed",
        ("Register", "10.9.0.2:8080"): "New",
        ("Deregister", "10.9.0.1:8080"): "Absent",
    }
    assert not any(row.held_by for row in rows.values())
    changed = rows["Update", "10.1.0.1:8080"]
    assert (changed.listener, changed.source) == ("TCP/80", "Pod/shop/web-0")
    assert fields(changed) == {"weight": ("1", "7")}
    assert fields(rows["Register", "10.9.0.2:8080"])["owners"] == ("", "BackendGroup/shop/fixed")
    assert fields(rows["Deregister", "10.9.0.1:8080"])["weight"] == ("1", "")
    assert len(world.user.written) == written
    text = reported(previewed)
    assert "10.1.0.1:8080  Registered" in text
    assert "for BackendGroup/shop/web" in text
    assert "waits: Deregister is next, Absent: " in text
    assert "10.9.0.2:8080  NotRegistered" in text
    await world.start(identity="hub-1")
    await shop.until("10.1.0.1", "10.9.0.2")


@pytest.mark.req("I-10")
async def test_paused_holds_everything_and_the_condition_says_what(shop, world, hub):
    await shop.group("fixed", static=["10.9.0.1:8080", "10.9.0.2:8080"])
    await shop.until("10.9.0.1", "10.9.0.2")
    await shop.registered(2)
    patch = {"metadata": {"annotations": {"fairlead.dev/paused": "true"}}}
    await world.user.merge_patch(LOAD_BALANCERS, "shop", "shared", patch)
    await world.quiet(3)
    await world.user.delete(BACKEND_GROUPS, "shop", "fixed")
    await world.quiet(20)
    assert shop.at_cloud() == {"10.9.0.1:8080", "10.9.0.2:8080"}
    (previewed,) = await preview(world.user)
    plan = plan_of(previewed)
    assert {(row.action, row.held_by) for row in plan.rows} == {("Deregister", "Paused")}
    assert plan.rows[0].message.endswith("fairlead resume LoadBalancer/shop/shared")
    lb = await world.user.get(LOAD_BALANCERS, "shop", "shared")
    (said,) = [condition.message for condition in lb.status.conditions if condition.type == "Paused"]
    assert "2 held: Deregister 10.9.0.1:8080, Deregister 10.9.0.2:8080" in said


@pytest.mark.req("I-10")
async def test_a_paused_class_holds_what_is_asked_of_the_load_balancer_itself_too(shop, world, hub):
    await shop.group("fixed", static=["10.9.0.1:8080"])
    await shop.until("10.9.0.1")
    await shop.registered(1)
    patch = {"metadata": {"annotations": {"fairlead.dev/paused": "true"}}}
    await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "edge", patch)
    await world.quiet(3)
    await shop.lb("shared", attributes={"size": "large"})
    await world.quiet(20)
    assert world.outside.load_balancers[KEY].spec.attributes == {}
    (previewed,) = await preview(world.user)
    assert previewed.paused == ("LoadBalancerClass/edge",)
    (row,) = plan_of(previewed).rows
    assert (row.action, row.held_by, fields(row)) == ("Ensure", "Paused", {"attributes.size": ("", "large")})
    assert row.message.endswith("fairlead resume LoadBalancerClass/edge")


@pytest.mark.req("I-10")
async def test_absent_targets_are_explained(shop, world, hub):
    await shop.pod("web-0", "10.1.0.1")
    await shop.pod("web-1", "10.1.0.2", ready=False)
    await shop.pod("web-2", "10.1.0.3")
    await shop.pod("web-3", "")
    await shop.group("web", pods=PODS_OF_WEB)
    await shop.group("named", pods={"byName": ["web-0", "web-9"], "ports": [{"port": 8080}]})
    await shop.group("other", listener="https", static=["10.9.0.1:8080"])
    await shop.group("bad", static=["224.0.0.1:8080", "10.9.0.2:8080"])
    await shop.until("10.1.0.1", "10.9.0.2")
    (previewed,) = await preview(world.user)
    assert {
        (exclusion.what, exclusion.owner.rpartition("/")[2]): exclusion.why for exclusion in previewed.exclusions
    } == {
        ("Pod/shop/web-1", "web"): "the pod is not ready",
        ("Pod/shop/web-2", "web"): "named in spec.pods.byLabel.except",
        ("Pod/shop/web-3", "web"): "the pod has no address yet (phase Running)",
        ("Pod/shop/web-9", "named"): "spec.pods.byName: there is no such pod",
        ("everything", "other"): "spec.listener: the load balancer has no listener 'https'",
        ("224.0.0.1:8080", "bad"): "spec.static: this may not be a backend; use an address:port that the provider can "
        "reach",
    }


@pytest.mark.req("I-10")
async def test_what_a_driver_says_while_it_is_at_it_is_what_a_backend_waits_for(world):
    async with open_shop(world) as shop:
        running = {"status": "Running", "msg": "the cloud is slow", "minRetryDelayInSeconds": 5}
        shop.driver.on("ensureBackend", running)
        await shop.class_("driven")
        await shop.lb("driven", className="driven")
        await shop.group("fixed", lbs=("driven",), static=["10.9.0.1:8080"])

        async def said():
            return [record for record in await shop.records() if record.status.message]

        (record,) = await world.until(said, what="the driver's words are on record")
        patched = f"patch BackendRecord {record.metadata.name}"
        written = world.hubs[0].written.count(patched)
        await world.quiet(30)
        assert len(shop.driver.asked("ensureBackend")) > 3
        assert world.hubs[0].written.count(patched) == written, "once is enough"
        previewed = {each.key.name: each for each in await preview(world.user)}["driven"]
        text = reported(previewed)
        assert "10.9.0.1:8080  Pending" in text
        assert "the provider reports: driver" in text
        assert "is still working on ensureBackend for 10.9.0.1:8080" in text
        assert "the cloud is slow" in text
        shop.driver.on("ensureBackend", {"status": "Succ"})
        await shop.registered(1)
        (record,) = await shop.records()
        assert record.status.message == ""


@pytest.mark.req("I-10")
async def test_a_missing_class_is_reported_and_nothing_is_planned(shop, world, hub):
    await shop.lb("lost", className="none-such")
    previewed = {each.key.name: each for each in await preview(world.user)}
    plan = plan_of(previewed["lost"])
    assert plan.rows == []
    assert "NoSuchClass" in plan.problem
    assert "none-such" in reported(previewed["lost"])


async def test_a_rejected_load_balancer_is_not_reported_as_deleted(shop, world, hub):
    hub.durable.faults.refuse_new = "the quota is used up"
    await shop.lb("second")
    await shop.group("fixed", lbs=("second",), static=["10.9.0.1:8080"])

    async def refused():
        lb = await world.user.get(LOAD_BALANCERS, "shop", "second")
        return any("the quota is used up" in condition.message for condition in lb.status.conditions or ())

    await world.until(refused)
    previewed = {each.key.name: each for each in await preview(world.user)}["second"]
    assert not previewed.drift.ours
    text = reported(previewed)
    assert "the quota is used up" in text
    assert "waits: Register is next, after the load balancer itself, New" in text


@pytest.mark.req("I-2", "L-6")
async def test_a_load_balancer_without_its_object_is_a_removed_orphan(shop, world, hub):
    await shop.group("fixed", static=["10.9.0.1:8080"])
    await shop.until("10.9.0.1")
    await shop.registered(1)
    await world.quiet(5)
    await world.stop(hub)
    await world.user.merge_patch(LOAD_BALANCERS, "shop", "shared", {"metadata": {"finalizers": None}})
    await world.user.delete(LOAD_BALANCERS, "shop", "shared")
    # Not even its class is left: what is on record says who must release it.
    await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "edge", {"metadata": {"finalizers": None}})
    await world.user.delete(LOAD_BALANCER_CLASSES, "", "edge")
    (previewed,) = await preview(world.user)
    assert previewed.gone
    assert {row.reason for row in plan_of(previewed).rows} == {"OwnerDeleted"}
    (orphan,) = orphans_of(previewed)
    assert (orphan.kind, str(orphan.target), orphan.leaving) == (OrphanKind.RECORD, "10.9.0.1:8080", False)
    await world.start(identity="hub-1")
    await shop.until()

    async def gone():
        return not await shop.records()

    await world.until(gone)
    assert await preview(world.user) == []


async def test_an_orphaned_record_is_deleted_on_demand_and_deregistered_by_the_hub(shop, world, hub):
    await shop.group("fixed", static=["10.9.0.1:8080"])
    await shop.until("10.9.0.1")
    await shop.registered(1)
    await world.stop(hub)
    await world.user.merge_patch(LOAD_BALANCERS, "shop", "shared", {"metadata": {"finalizers": None}})
    await world.user.delete(LOAD_BALANCERS, "shop", "shared")
    (previewed,) = await preview(world.user)
    (orphan,) = orphans_of(previewed)
    assert await remove_orphan(world.user, previewed, orphan) == "deleted: the hub deregisters it now"
    assert shop.at_cloud() == {"10.9.0.1:8080"}, "only the hub calls a provider"
    (record,) = await world.user.list(BACKEND_RECORDS, "shop")
    assert record.deleting
    (previewed,) = await preview(world.user)
    (orphan,) = orphans_of(previewed)
    assert orphan.leaving
    assert await remove_orphan(world.user, previewed, orphan) == "already being deleted"
    await world.start(identity="hub-1")
    await shop.until()


async def test_a_record_of_a_missing_provider_is_an_orphan(shop, world, hub):
    spec = {
        "loadBalancer": {"kind": "LoadBalancer", "namespace": "shop", "name": "old", "provider": "gone-away"},
        "listener": {"port": 80, "protocol": "TCP"},
        "target": {"address": "10.9.0.9", "port": 8080},
    }
    meta = {"name": "old-1", "namespace": "shop", "finalizers": ["fairlead.dev/deregister"]}
    await world.user.create(BACKEND_RECORDS, {"metadata": meta, "spec": spec})
    previewed = {each.key.name: each for each in await preview(world.user)}["old"]
    assert (previewed.provider, previewed.gone) == ("gone-away", True)
    assert previewed.unread == "provider 'gone-away' is not installed where this command runs"
    assert [(each.kind, each.record) for each in orphans_of(previewed)] == [(OrphanKind.RECORD, ("shop", "old-1"))]
    assert "10.9.0.9:8080" in reported(previewed)
