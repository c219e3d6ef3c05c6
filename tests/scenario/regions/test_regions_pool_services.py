"""The PoolService controller: a Service becomes one PoolService for each matching pool (T-O-01 .. T-O-25)."""

from __future__ import annotations

import pytest
from regions_world import FINALIZER, NAMESPACE, OWNED, SELECTOR, World, until

from fairlead.api.kubernetes import SERVICES
from fairlead.api.poolservice import NODE_POOLS, POOL_SERVICES
from fairlead.errors import NotFound


@pytest.mark.req("T-O-01", "O-50")
async def test_a_service_that_is_gone_is_nothing_to_do(world: World) -> None:
    running = await world.start()
    running.regions.queues["pool-service"].add((NAMESPACE, "never-was"))
    assert await world.names() == []
    assert running.requests() == 0


@pytest.mark.req("T-O-02", "O-6", "O-12", "O-28", "O-2", "O-26")
async def test_one_pool_service_for_each_matching_pool_and_none_for_the_others(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.pool("np234", app="deploy")
    await world.pool("np345")
    await world.service()
    await world.start()
    assert await world.names() == ["test-np123", "test-np234"]
    for name, pool in (("test-np123", "np123"), ("test-np234", "np234")):
        load_balancer = await world.get(name)
        assert load_balancer.spec.load_balancer_class == "elb"
        assert load_balancer.spec.nodepool_name == pool
        assert load_balancer.spec.renew_time
        assert load_balancer.metadata.labels == {
            "openyurt.io/service-name": "test", "openyurt.io/pool-name": pool, **OWNED,
        }  # fmt: skip
        assert load_balancer.status.load_balancer.ingress is None
    assert await world.events("test") == []


@pytest.mark.req("T-O-03", "O-27")
async def test_an_empty_selector_is_none(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.service(selector="")
    await world.start()
    assert await world.names() == []


@pytest.mark.req("O-27")
@pytest.mark.parametrize(
    "change", [{"class_name": None}, {"kind": "ClusterIP", "class_name": None}, {"selector": None}]
)
async def test_a_service_that_is_not_managed_is_left_alone(world: World, change: dict[str, str | None]) -> None:
    await world.pool("np123", app="deploy")
    await world.service(**change)  # type: ignore[arg-type]
    running = await world.start()
    assert await world.names() == []
    assert running.requests() == 0


@pytest.mark.req("T-O-04", "O-49")
async def test_services_of_kube_system_and_the_same_name_in_two_namespaces(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.pool("np234", app="deploy", more="yes")
    await world.service(namespace="kube-system")
    await world.service(selector="app=deploy,!more")
    await world.start()
    assert await world.names("kube-system") == ["test-np123", "test-np234"]
    assert await world.names() == ["test-np123"]


@pytest.mark.req("T-O-05", "O-16")
async def test_a_pool_that_no_longer_matches_loses_its_pool_service(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.pool("np234")
    await world.service()
    await world.pool_service("test", "np123")
    await world.pool_service("test", "np234")
    kept = (await world.get("test-np123")).metadata.uid
    await world.start()
    await world.until_names("test-np123")
    assert (await world.get("test-np123")).metadata.uid == kept


@pytest.mark.req("T-O-11", "T-O-12", "O-9", "O-39")
async def test_the_finalizer_is_added_with_one_write_and_only_when_missing(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.service("without")
    await world.service("with", finalizers=[FINALIZER])
    version = (await world.get_service("with")).metadata.resource_version
    running = await world.start()
    assert (await world.get_service("without")).metadata.finalizers == [FINALIZER]
    assert (await world.get_service("with")).metadata.resource_version == version
    assert running.requests("services") == 1


@pytest.mark.req("T-O-13", "O-31", "W-O-9")
async def test_no_matching_pool_is_one_warning_and_no_error(world: World) -> None:
    await world.pool("np345", app="other")
    await world.service()
    running = await world.start()
    assert "app=deploy" in (await world.event("test", "NoMatchNodePool")).message
    for _ in range(5):
        for queue in ("pool-service", "access-points"):
            running.regions.queues[queue].add((NAMESPACE, "test"))
        await world.settled()
    assert [event.count for event in await world.events("test", "NoMatchNodePool")] == [1]
    condition = next(iter((await world.get_service()).status.conditions or ()))
    assert (condition.type, condition.status, condition.reason) == ("fairlead.dev/Regions", "False", "NoMatchNodePool")
    await world.stop(running)
    again = await world.start()
    assert again.requests() == 0
    assert len(await world.events("test", "NoMatchNodePool")) == 1
    await world.pool("np345", app="deploy")
    await world.until_names("test-np345")
    await world.settled()
    assert next(iter((await world.get_service()).status.conditions or ())).status == "True"


@pytest.mark.req("T-O-14", "O-7")
async def test_a_service_that_is_deleted_without_pool_services_goes(world: World) -> None:
    await world.service(finalizers=[FINALIZER])
    await world.delete_service()
    await world.start()

    async def gone() -> bool:
        return not await world.user.list(SERVICES, NAMESPACE)

    await until(gone)


@pytest.mark.req("T-O-15", "T-O-16", "O-7", "O-9", "O-34")
async def test_a_service_stays_until_its_last_pool_service_is_gone(world: World) -> None:
    await world.pool("np1", app="deploy")
    await world.pool("np2", app="deploy")
    await world.service(finalizers=[FINALIZER])
    await world.pool_service("test", "np1", finalizers=["elb.openyurt.io/resources"])
    await world.pool_service("test", "np2")
    running = await world.start()
    await world.delete_service()
    await world.until_names("test-np1")
    await world.settled()
    load_balancer = await world.get("test-np1")
    assert load_balancer.deleting
    assert FINALIZER in ((await world.get_service()).metadata.finalizers or ())
    # Deleting it again would be a write for nothing.
    before = running.requests("poolservices")
    running.regions.queues["pool-service"].add((NAMESPACE, "test"))
    await world.settled()
    assert running.requests("poolservices") == before
    await world.change("test-np1", {"metadata": {"finalizers": None}})
    await world.until_names()

    async def gone() -> bool:
        return not await world.user.list(SERVICES, NAMESPACE)

    await until(gone)


@pytest.mark.req("T-O-17", "O-29")
async def test_both_owners_are_named(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.service()
    await world.start()
    service = await world.get_service()
    pool = await world.user.get(NODE_POOLS, "", "np123")
    result = [
        (
            owner_reference.api_version,
            owner_reference.kind,
            owner_reference.name,
            owner_reference.uid,
            owner_reference.controller,
            owner_reference.block_owner_deletion,
        )
        for owner_reference in (await world.get("test-np123")).metadata.owner_references or ()
    ]
    assert result == [
        ("v1", "Service", "test", service.metadata.uid, True, True),
        ("fairlead.dev/v1alpha1", "NodePool", "np123", pool.metadata.uid, None, True),
    ]


@pytest.mark.req("T-O-18", "O-32", "W-O-7")
async def test_a_pool_that_is_being_deleted_no_longer_matches(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.user.merge_patch(NODE_POOLS, "", "np123", {"metadata": {"finalizers": ["test.example/held"]}})
    await world.service()
    await world.start()
    assert await world.names() == ["test-np123"]
    await world.delete_pool("np123")  # only its deletionTimestamp changes
    await world.until_names()


@pytest.mark.req("T-O-19", "O-33", "O-47", "W-O-5")
async def test_a_service_that_becomes_cluster_ip_is_cleaned_up(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.service()
    await world.start()
    await world.answer("test-np123", "1.2.3.4", aggregateToLabels={"lb-id": "lb1"})
    await world.until_shown("1.2.3.4")
    await world.settled()
    await world.change_service({"spec": {"type": "ClusterIP", "loadBalancerClass": None}})
    await world.until_names()

    async def clean() -> bool:
        meta = (await world.get_service()).metadata
        return not meta.finalizers and meta.labels in (None, {}) and list(meta.annotations or ()) == [SELECTOR]

    await until(clean)


@pytest.mark.req("T-O-20", "O-33", "W-O-5")
async def test_a_service_that_loses_its_selector_is_cleaned_up(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.service()
    await world.start()
    await world.answer("test-np123", "1.2.3.4", aggregateToAnnotations={"lb-id": "lb1"})
    await world.until_shown("1.2.3.4")
    await world.annotate("test", NAMESPACE, fairlead_dev=None, **{SELECTOR: None})
    await world.until_names()

    async def clean() -> bool:
        service = await world.get_service()
        return not service.metadata.finalizers and not service.metadata.annotations

    await until(clean)
    assert await world.shown() == []


@pytest.mark.req("T-O-21", "O-45")
async def test_a_pool_service_that_is_not_ours_is_left_alone(world: World) -> None:
    await world.service()
    await world.pool_service("test", "np123", owned=False)
    version = (await world.get("test-np123")).metadata.resource_version
    await world.answer("test-np123", "9.9.9.9")
    await world.start()
    assert await world.names() == ["test-np123"]
    load_balancer = await world.get("test-np123")
    assert not load_balancer.deleting
    assert version
    assert await world.shown() == []


@pytest.mark.req("T-O-22", "O-42", "W-O-8")
async def test_tampered_labels_and_owners_are_put_back_with_an_event(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.service()
    await world.start()
    before = await world.get("test-np123")
    labels = {"openyurt.io/service-name": "mock", "openyurt.io/pool-name": "np111"}
    await world.change("test-np123", {"metadata": {"labels": labels, "ownerReferences": None}})
    await world.event("test-np123", "Modified")
    await world.settled()
    after = await world.get("test-np123")
    assert (after.metadata.labels, after.metadata.owner_references) == (
        before.metadata.labels,
        before.metadata.owner_references,
    )
    assert after.spec == before.spec


@pytest.mark.req("T-O-23", "O-44")
async def test_tampering_towards_another_service_deletes_nothing(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.service()
    await world.service("mock", selector="app=none")
    await world.start()
    uid = (await world.get("test-np123")).metadata.uid
    labels = {"openyurt.io/service-name": "mock", "openyurt.io/pool-name": "np111"}
    await world.change("test-np123", {"metadata": {"labels": labels, "ownerReferences": None}})
    await world.event("test-np123", "Modified")
    await world.settled()
    load_balancer = await world.get("test-np123")
    assert (load_balancer.metadata.uid, load_balancer.deleting, load_balancer.label("openyurt.io/service-name")) == (
        uid,
        False,
        "test",
    )


@pytest.mark.req("T-O-24", "O-42")
async def test_a_tampered_pool_label_is_one_write(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.service()
    running = await world.start()
    before, renewed = running.requests("poolservices"), (await world.get("test-np123")).spec.renew_time
    await world.change("test-np123", {"metadata": {"labels": {"openyurt.io/pool-name": "other"}}})
    await world.event("test-np123", "Modified")
    await world.settled()
    load_balancer = await world.get("test-np123")
    assert (load_balancer.label("openyurt.io/pool-name"), load_balancer.spec.renew_time) == ("np123", renewed)
    assert running.requests("poolservices") == before + 1


@pytest.mark.req("T-O-25", "O-41", "O-45")
async def test_a_foreign_pool_service_in_the_way_has_a_warning_and_is_left_alone(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.pool_service("mock", "np123", name="test-np123", owned=False)
    version = (await world.get("test-np123")).metadata.resource_version
    await world.service()
    running = await world.start()
    await world.event("test-np123", "ManagedConflict")
    await world.settled()
    assert (await world.get("test-np123")).metadata.resource_version == version
    assert running.requests("poolservices") == 0
    assert running.regions.queues["pool-service"].failures((NAMESPACE, "test")) == 0
    condition = next(iter((await world.get_service()).status.conditions or ()))
    assert "np123" in condition.message


@pytest.mark.req("O-43")
async def test_a_pool_service_that_was_deleted_by_hand_is_made_again(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.service()
    await world.start()
    uid = (await world.get("test-np123")).metadata.uid
    await world.user.delete(POOL_SERVICES, NAMESPACE, "test-np123")

    async def again() -> bool:
        pool_service = await world.find("test-np123")
        return pool_service is not None and pool_service.metadata.uid != uid

    await until(again)


@pytest.mark.req("W-O-2", "O-42")
async def test_drift_of_a_valid_pool_service_is_put_back(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.service()
    await world.start()
    await world.change("test-np123", {"spec": {"loadBalancerClass": "other", "nodepoolName": "elsewhere"}})
    await world.event("test-np123", "Modified")
    await world.settled()
    load_balancer = await world.get("test-np123")
    assert (load_balancer.spec.load_balancer_class, load_balancer.spec.nodepool_name) == ("elb", "np123")
    assert await world.names() == ["test-np123"]


@pytest.mark.req("W-O-8", "O-9")
async def test_a_service_is_held_by_a_pool_service_whose_labels_were_tampered_with(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.service()
    running = await world.start()
    await world.change("test-np123", {"metadata": {"finalizers": ["elb.example/lb"]}})
    await world.stop(running)
    labels = {"openyurt.io/service-name": "mock", "openyurt.io/pool-name": "np111"}
    await world.change("test-np123", {"metadata": {"labels": labels}})
    await world.delete_service()
    await world.start()
    assert (await world.get("test-np123")).deleting
    assert (await world.get_service()).metadata.finalizers == [FINALIZER]
    await world.change("test-np123", {"metadata": {"finalizers": None}})

    async def gone() -> bool:
        try:
            await world.get_service()
        except NotFound:
            return True
        return False

    await until(gone)
