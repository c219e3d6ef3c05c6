"""The AccessPoints controller: what a Service shows of its regions (T-O-06 .. T-O-10), and in which order."""

from __future__ import annotations

import json

import pytest
from regions_world import FINALIZER, NAMESPACE, World, until

from fairlead.api.kubernetes import NAMESPACES, SERVICES
from fairlead.api.poolservice import POOL_SERVICES

POINTS = "fairlead.dev/access-points"


async def two_regions(world: World, **service: object) -> None:
    await world.pool("np123", app="deploy")
    await world.pool("np234", app="deploy")
    await world.service(**service)  # type: ignore[arg-type]


@pytest.mark.req("T-O-06", "O-4", "O-18", "O-35", "O-49")
async def test_the_union_is_sorted_and_other_namespaces_are_ignored(world: World) -> None:
    await two_regions(world)
    await world.service(namespace="kube-system", selector="app=deploy,other")
    await world.pool("np234", app="deploy", other="yes")
    await world.start()
    await world.until_names("test-np234", namespace="kube-system")
    await world.answer("test-np234", "3.4.5.6", namespace="kube-system")
    await world.answer("test-np123", "2.2.3.4")
    await world.answer("test-np234", "1.2.3.4")
    await world.until_shown("1.2.3.4", "2.2.3.4")
    await world.settled()
    points = json.loads((await world.get_service()).annotation(POINTS))
    assert points == {"np123": ["2.2.3.4"], "np234": ["1.2.3.4"]}


@pytest.mark.req("T-O-07", "O-36", "O-37", "O-39", "W-O-3", "O-19")
async def test_markers_are_joined_and_only_legal_ones_become_labels(world: World) -> None:
    await two_regions(world)
    for pool in ("stale1", "stale2"):
        await world.pool_service("test", pool, finalizers=["test.example/held"])
        stale = {"lb-id": "lb12345"}
        await world.answer(f"test-{pool}", aggregateToLabels=stale, aggregateToAnnotations=stale)
    for pool, value in (("np123", "lb34567"), ("np234", "lb23456")):
        await world.pool_service("test", pool)
        both = {"lb-id": value}
        await world.answer(f"test-{pool}", aggregateToLabels={**both, "kind": "elb"}, aggregateToAnnotations=both)
    running = await world.start()
    service = await world.get_service()
    assert service.annotation("aggregated.lb-id") == "lb23456,lb34567"
    assert service.metadata.labels == {"aggregated.kind": "elb"}
    assert running.requests("services") == 2  # finalizer, and labels with annotations in one
    for _ in range(3):
        for queue in ("pool-service", "access-points"):
            running.regions.queues[queue].add((NAMESPACE, "test"))
        await world.settled()
    assert running.requests("services") == 2


@pytest.mark.req("T-O-08", "O-39")
async def test_markers_that_are_right_are_not_written_again(world: World) -> None:
    await two_regions(world, annotations={"aggregated.lb-id": "lb23456,lb34567"})
    for pool, value in (("np123", "lb34567"), ("np234", "lb23456")):
        await world.pool_service("test", pool)
        await world.answer(f"test-{pool}", aggregateToAnnotations={"lb-id": value})
    running = await world.start()
    assert (await world.get_service()).annotation("aggregated.lb-id") == "lb23456,lb34567"
    assert running.requests("services") == 1


@pytest.mark.req("T-O-09", "T-O-10", "O-38", "W-O-11")
@pytest.mark.parametrize(("left", "value"), [({"lb-id": "lb34567"}, "lb34567"), ({}, "")])
async def test_stale_markers_are_purged_and_others_never_touched(
    world: World, left: dict[str, str], value: str
) -> None:
    await world.pool("np123", app="deploy")
    marks = {"aggregated.lb-id": "lb23456,lb34567", "example.com/kept": "yes", "plain": "too"}
    await world.service(annotations=marks, labels={"aggregated.old": "x", "team": "a"})
    await world.pool_service("test", "np123")
    await world.answer("test-np123", aggregateToAnnotations=left)
    running = await world.start()
    service = await world.get_service()
    assert service.annotation("aggregated.lb-id") == value
    assert (service.annotation("example.com/kept"), service.annotation("plain")) == ("yes", "too")
    assert service.metadata.labels == {"team": "a"}
    assert running.requests("services") == 2
    # A user writes such a label by hand: it goes again.
    await world.change_service({"metadata": {"labels": {"aggregated.old": "y"}}})

    async def purged() -> bool:
        return (await world.get_service()).metadata.labels == {"team": "a"}

    await until(purged)


@pytest.mark.req("O-40", "O-18", "W-O-4")
async def test_host_names_have_a_stable_order_and_nothing_is_there_twice(world: World) -> None:
    await two_regions(world)
    await world.start()
    await world.answer("test-np123", "b.example.com", "10.0.0.9", "10.0.0.10")
    await world.answer("test-np234", "a.example.com", "10.0.0.9")
    await world.until_shown("10.0.0.9", "10.0.0.10", "a.example.com", "b.example.com")


@pytest.mark.req("O-20", "W-O-6")
async def test_a_region_leaves_the_union_before_its_pool_service_is_deleted(world: World) -> None:
    await two_regions(world)
    running = await world.start()
    await world.answer("test-np123", "1.1.1.1")
    await world.answer("test-np234", "2.2.2.2")
    await world.until_shown("1.1.1.1", "2.2.2.2")
    await world.settled()
    deleted_while_shown: list[list[str]] = []
    cache = running.regions.caches["poolservices.fairlead.dev"]
    services = running.regions.caches["services"]

    def look(_old: object, new: object) -> None:
        if new is None or new.deleting:  # type: ignore[attr-defined]
            result = services.get(NAMESPACE, "test").status.load_balancer.ingress or ()
            deleted_while_shown.append([each.address for each in result])

    cache.on_change(look)
    await world.pool("np234", app="other")
    await world.until_names("test-np123")
    assert await world.shown() == ["1.1.1.1"]
    assert deleted_while_shown == [["1.1.1.1"]]
    await world.settled()
    assert json.loads((await world.get_service()).annotation(POINTS)) == {"np123": ["1.1.1.1"]}


@pytest.mark.req("W-O-6", "O-20")
async def test_a_pool_service_that_is_being_deleted_is_not_shown(world: World) -> None:
    await two_regions(world)
    await world.start()
    await world.change("test-np234", {"metadata": {"finalizers": ["elb.example/lb"]}})
    await world.answer("test-np123", "1.1.1.1")
    await world.answer("test-np234", "2.2.2.2")
    await world.until_shown("1.1.1.1", "2.2.2.2")
    await world.user.delete(POOL_SERVICES, NAMESPACE, "test-np234")
    await world.until_shown("1.1.1.1")
    assert (await world.get("test-np234")).deleting


@pytest.mark.req("O-18", "O-35")
async def test_entries_of_others_stay_and_ours_are_taken_back_after_a_restart(world: World) -> None:
    await two_regions(world)
    running = await world.start()
    await world.answer("test-np123", "1.1.1.1")
    await world.answer("test-np234", "2.2.2.2")
    await world.until_shown("1.1.1.1", "2.2.2.2")
    foreign = {"ip": "9.9.9.9"}
    ours = [{"ip": "1.1.1.1"}, {"ip": "2.2.2.2"}]
    patch = {"status": {"loadBalancer": {"ingress": [*ours, foreign]}}}
    await world.user.merge_patch(SERVICES, NAMESPACE, "test", patch, subresource="status", manager="somebody")
    await world.settled()
    await world.stop(running)
    await world.delete_pool("np234")
    await world.start()
    await world.until_shown("1.1.1.1", "9.9.9.9")


@pytest.mark.req("W-O-13")
async def test_a_region_without_ready_backends_is_not_shown_while_another_has_some(world: World) -> None:
    await two_regions(world)
    await world.node("n1", "np123")
    await world.node("n2", "np234")
    await world.slice(("10.0.0.1", "n1"))
    await world.start()
    await world.answer("test-np123", "1.1.1.1")
    await world.answer("test-np234", "2.2.2.2")
    await world.until_shown("1.1.1.1")
    await world.settled()
    assert await world.shown() == ["1.1.1.1"]
    await world.slice(("10.0.0.1", "n1"), ("10.0.0.2", "n2"))
    await world.until_shown("1.1.1.1", "2.2.2.2")
    # Pods that roll: it stays for a while, its address is a user's.
    await world.slice(("10.0.0.1", "n1"), ("10.0.0.2", "n2", False))
    await world.settled()
    assert await world.shown() == ["1.1.1.1", "2.2.2.2"]
    # With no backend ready anywhere the last addresses stay.
    await world.slice(("10.0.0.1", "n1", False), ("10.0.0.2", "n2", False))
    await world.settled()
    assert await world.shown() == ["1.1.1.1", "2.2.2.2"]


@pytest.mark.req("O-25", "O-18")
async def test_a_failing_region_is_named_and_the_others_go_on(world: World) -> None:
    await two_regions(world)
    await world.start()
    failed = {
        "type": "Programmed", "status": "False", "reason": "ProviderFailed", "message": "no quota left",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }  # fmt: skip
    await world.answer("test-np234", conditions=[failed])
    await world.answer("test-np123", "1.1.1.1")
    await world.until_shown("1.1.1.1")
    message = (await world.event("test", "RegionsFailing")).message
    assert "np234: ProviderFailed: no quota left" in message
    await world.settled()
    condition = next(iter((await world.get_service()).status.conditions or ()))
    assert (condition.status, condition.reason) == ("False", "RegionsFailing")
    assert condition.message.startswith("1 of 2 regions")
    await world.answer("test-np234", "2.2.2.2", conditions=[{**failed, "status": "True", "reason": "Programmed"}])
    await world.until_shown("1.1.1.1", "2.2.2.2")
    await world.settled()
    assert next(iter((await world.get_service()).status.conditions or ())).status == "True"


@pytest.mark.req("O-9", "O-7")
async def test_a_deleted_service_shows_nothing_while_its_load_balancers_go(world: World) -> None:
    await world.pool("np123", app="deploy")
    await world.service()
    await world.start()
    await world.answer("test-np123", "1.1.1.1")
    await world.until_shown("1.1.1.1")
    await world.change("test-np123", {"metadata": {"finalizers": ["elb.example/lb"]}})
    await world.delete_service()
    await world.until_shown()
    assert (await world.get_service()).metadata.finalizers == [FINALIZER]


@pytest.mark.req("O-49")
async def test_a_namespace_that_is_deleted_takes_its_regions_along(world: World) -> None:
    await world.user.create(NAMESPACES, {"metadata": {"name": "other"}})
    await world.pool("np123", app="deploy")
    await world.service(namespace="other")
    await world.start()
    await world.until_names("test-np123", namespace="other")
    await world.user.delete(SERVICES, "other", "test")
    await world.until_names(namespace="other")
    await world.user.delete(NAMESPACES, "", "other")
