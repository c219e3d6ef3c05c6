"""Bad input, crashes and races: the others go on, the object says why, nothing is leaked or removed by mistake."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from regions_world import FINALIZER, NAMESPACE, SELECTOR, Running, World, until

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import CRDS, NODES, SERVICE_ACCOUNTS, SERVICES
from fairlead.api.poolservice import openyurt_node_pools
from fairlead.errors import BadConfiguration, FairleadError, NotServed
from fairlead.kube.config import bearer
from fairlead.kube.discovery import install_crds


@pytest.mark.req("W-O-9", "O-8")
async def test_a_selector_that_cannot_be_read_keeps_what_is_there_with_one_warning(world: World) -> None:
    await world.pool("np1", app="deploy")
    await world.service()
    await world.service("other")
    running = await world.start()
    await world.until_names("other-np1", "test-np1")
    await world.annotate(**{SELECTOR: "app in (deploy"})
    event = await world.event("test", "InvalidSelector")
    assert "app in (deploy" in event.message
    await world.settled()
    assert await world.names() == ["other-np1", "test-np1"]
    condition = next(iter((await world.get_service()).status.conditions or ()))
    assert (condition.status, condition.reason) == ("False", "InvalidSelector")
    assert running.regions.queues["pool-service"].failures((NAMESPACE, "test")) == 0
    assert [event.count for event in await world.events("test", "InvalidSelector")] == [1]
    await world.pool("np2", app="deploy")
    await world.until_names("other-np1", "other-np2", "test-np1")
    await world.annotate(**{SELECTOR: "app=deploy"})
    await world.until_names("other-np1", "other-np2", "test-np1", "test-np2")


@pytest.mark.req("W-O-1", "O-28")
async def test_two_pairs_with_one_name_both_get_their_pool_service(world: World) -> None:
    await world.pool("b-c", set="one")
    await world.pool("c", set="two")
    await world.service("a", selector="set=one")
    await world.service("a-b", selector="set=two")
    running = await world.start()
    names = await world.names()
    assert len(names) == 2
    assert "a-b-c" in names
    pairs = {
        ((await world.get(name)).label("openyurt.io/service-name"), (await world.get(name)).spec.nodepool_name)
        for name in names
    }
    assert pairs == {("a", "b-c"), ("a-b", "c")}
    # Neither writes again.
    writes = running.requests()
    for key in ("a", "a-b"):
        running.regions.queues["pool-service"].add((NAMESPACE, key))
    await world.settled()
    assert running.requests() == writes
    await world.stop(running)
    again = await world.start()
    assert (again.requests(), await world.names()) == (0, names)
    await world.delete_service("a")
    await world.until_names(*[name for name in names if (await world.find(name)) and await _is_for(world, name, "a-b")])


async def _is_for(world: World, name: str, service: str) -> bool:
    pool_service = await world.find(name)
    return pool_service is not None and pool_service.label("openyurt.io/service-name") == service


@pytest.mark.req("W-O-12", "O-28")
async def test_pool_names_longer_than_a_label_may_be(world: World) -> None:
    pool = "p" * 60 + "." + "q" * 60
    await world.pool(pool, nodes={"region": "far"}, app="deploy")
    await world.service()
    running = await world.start()
    (name,) = await world.names()
    load_balancer = await world.get(name)
    assert (name, load_balancer.spec.nodepool_name) == (f"test-{pool}", pool)
    assert len(load_balancer.label("openyurt.io/pool-name")) <= 63
    await world.delete_pool(pool)
    await world.until_names()
    assert running.regions.leading


@pytest.mark.req("W-O-2", "O-3", "O-33")
async def test_the_old_access_point_stays_until_the_new_class_answers(world: World) -> None:
    await world.pool("np1", app="deploy")
    await world.service()
    await world.start()
    await world.answer("test-np1", "1.1.1.1")
    await world.until_shown("1.1.1.1")
    # The class of a Service can only change while its type is not LoadBalancer.
    await world.change_service({"spec": {"type": "ClusterIP", "loadBalancerClass": None}})
    await world.change_service({"spec": {"type": "LoadBalancer", "loadBalancerClass": "other"}})

    async def both() -> list[str]:
        names = await world.names()
        return names if len(names) == 2 else []

    names = await until(both)
    new = next(name for name in names if name != "test-np1")
    assert (await world.get(new)).spec.load_balancer_class == "other"
    assert (await world.get("test-np1")).spec.load_balancer_class == "elb"
    await world.until_shown("1.1.1.1")
    await world.answer(new, "2.2.2.2")
    await world.until_shown("2.2.2.2")
    await world.until_names(new)


@pytest.mark.req("O-47", "O-33")
async def test_a_service_that_flips_to_cluster_ip_and_back_keeps_its_regions(world: World) -> None:
    await world.pool("np1", app="deploy")
    await world.service()
    await world.start()
    await world.answer("test-np1", "1.1.1.1")
    await world.until_shown("1.1.1.1")
    uid = (await world.get("test-np1")).metadata.uid
    await world.change_service({"spec": {"type": "ClusterIP", "loadBalancerClass": None}})
    await world.settled()
    await world.change_service({"spec": {"type": "LoadBalancer", "loadBalancerClass": "elb"}})
    await world.until_shown("1.1.1.1")
    await world.settled()
    assert (await world.get("test-np1")).metadata.uid == uid
    assert (await world.get_service()).metadata.finalizers == [FINALIZER]


@pytest.mark.req("O-7", "O-9")
async def test_a_service_deleted_while_no_replica_ran_is_cleaned_up_by_the_next(world: World) -> None:
    await world.pool("np1", app="deploy")
    await world.service()
    await world.stop(await world.start())
    await world.delete_service()
    assert (await world.get_service()).deleting
    await world.start()
    await world.until_names()

    async def gone() -> bool:
        return not await world.user.list(SERVICES, NAMESPACE)

    await until(gone)


@pytest.mark.req("O-7", "W-O-8")
async def test_a_service_whose_finalizer_was_taken_by_force_leaves_nothing_behind(world: World) -> None:
    await world.pool("np1", app="deploy")
    await world.service()
    await world.stop(await world.start())
    await world.change_service({"metadata": {"finalizers": None}})
    await world.delete_service()
    await world.change("test-np1", {"metadata": {"ownerReferences": None}})
    await world.start()
    await world.until_names()


@pytest.mark.req("O-39")
async def test_a_restart_and_a_second_replica_write_nothing(world: World) -> None:
    for pool in ("np1", "np2"):
        await world.pool(pool, app="deploy")
    await world.service()
    await world.service("ours", class_name="fairlead.dev/envoy")
    first = await world.start()
    await world.answer("test-np1", "1.1.1.1")
    await world.until_shown("1.1.1.1")
    await world.settled()
    await world.stop(first)
    second = await world.start(identity="two")
    assert second.written() == {}


@pytest.mark.req("O-51")
async def test_a_crash_after_every_single_write_converges_to_the_same(world: World) -> None:
    for pool in ("np1", "np2"):
        await world.pool(pool, app="deploy")
        await world.node(f"n-{pool}", pool)
    await world.service(class_name="fairlead.dev/envoy")
    await world.slice(("10.0.0.1", "n-np1"), ("10.0.0.2", "n-np2"))
    runs = 0
    while True:
        runs += 1
        running = Running(world.api, identity=f"run-{runs}")
        allowed = running.regions.term.may_write
        running.regions.term.may_write = lambda running=running, allowed=allowed: allowed() and not running.requests()  # type: ignore[method-assign]
        world.running.append(running)
        await until(lambda running=running: running.regions.term.in_term, what="leading")
        await until(lambda running=running: running.requests() or running.regions.leading, what="looked")
        await world.settled()
        wrote = running.requests()
        await world.stop(running)
        if not wrote:
            break
        assert runs < 40
    assert runs >= 5
    assert await world.names() == ["test-np1", "test-np2"]
    load_balancers = await world.load_balancers()
    assert sorted(load_balancers) == ["test-np1.poolservice.fairlead", "test-np2.poolservice.fairlead"]
    assert await world.targets("test-np1.poolservice.fairlead") == ["10.0.0.1"]
    assert await world.targets("test-np2.poolservice.fairlead") == ["10.0.0.2"]


@pytest.mark.req("O-50")
async def test_without_the_kinds_and_the_right_to_install_them_it_says_which_are_missing(world: World) -> None:
    await world.user.delete(CRDS, "", "poolservices.fairlead.dev")

    async def not_served() -> bool:
        try:
            await world.user.raw("GET", "/apis/fairlead.dev/v1alpha1/poolservices")
        except NotServed:
            return True
        return False

    await until(not_served)
    account = SERVICE_ACCOUNTS.path(NAMESPACE, "without-rights")
    await world.user.create(SERVICE_ACCOUNTS, {"metadata": {"name": "without-rights", "namespace": NAMESPACE}})
    answer = msgspec.json.decode(await world.user.raw("POST", f"{account}/token", body=b'{"spec": {}}'))
    sign_in = bearer(answer["status"]["token"], tls=(await world.api.sign_in(None)).ssl)
    running = Running(replace(world.api, sign_in=sign_in))
    with pytest.raises(FairleadError) as caught:
        await asyncio.wait_for(running.task, 180)
    assert isinstance(caught.value, BadConfiguration)
    assert "poolservices.fairlead.dev" in caught.value.sentence
    assert "nodepools" not in caught.value.sentence
    await running.cluster.aclose()
    assert await install_crds(world.user, all_crds(), "user") == []


def openyurt_crd(*versions: str, stored: str = "") -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": "nodepools.apps.openyurt.io"},
        "spec": {
            "group": "apps.openyurt.io",
            "scope": "Cluster",
            "names": {"plural": "nodepools", "singular": "nodepool", "kind": "NodePool", "listKind": "NodePoolList"},
            "versions": [
                {"name": version, "served": True, "storage": version == (stored or versions[0]), "schema": schema}
                for version in versions
            ],
        },
    }


@pytest.mark.req("O-15", "O-27")
async def test_openyurt_may_be_installed_upgraded_and_removed_while_regions_run(world: World) -> None:
    await world.pool("ours", app="deploy")
    await world.service()
    running = await world.start(look_s=0.1)
    assert await world.names() == ["test-ours"]

    assert await install_crds(world.user, [openyurt_crd("v1beta1")], "user") == []
    theirs = openyurt_node_pools("v1beta1")
    await world.user.create(theirs, {"metadata": {"name": "yurt", "labels": {"app": "deploy"}}})
    await world.until_names("test-ours", "test-yurt")

    # An upgrade brings a version: its pools are the same, and no region goes for a moment.
    uid = (await world.get("test-yurt")).metadata.uid
    assert await install_crds(world.user, [openyurt_crd("v1beta1", "v1beta2")], "user") == []

    def turned() -> bool:
        kinds = [
            cache.resource.version for cache in running.regions.caches.values() if "openyurt" in cache.resource.group
        ]
        return kinds == ["v1beta2"] and len(running.regions.inventory.node_pools) == 2

    await until(turned, what="the newest version is read")
    await world.settled()
    assert (await world.get("test-yurt")).metadata.uid == uid

    await world.user.delete(CRDS, "", "nodepools.apps.openyurt.io")
    await world.until_names("test-ours")
    await until(lambda: len(running.regions.inventory.node_pools) == 1, what="the kind is forgotten")
    await until(lambda: running.regions.not_ready() == [], what="ready without it")
    await world.pool("more", app="deploy")
    await world.until_names("test-more", "test-ours")


@pytest.mark.req("O-15", "O-27")
async def test_openyurts_own_node_pools_count_where_they_are_installed(world: World) -> None:
    assert await install_crds(world.user, [openyurt_crd("v1beta1")], "user") == []
    theirs = openyurt_node_pools("v1beta1")
    await world.user.create(
        theirs, {"metadata": {"name": "yurt", "labels": {"app": "deploy"}}, "spec": {"type": "Edge"}}
    )
    await world.pool("ours", app="deploy")
    await world.node("n1", "ours")
    patch = {"metadata": {"labels": {"apps.openyurt.io/nodepool": "yurt"}}}
    await world.user.merge_patch(NODES, "", "n1", patch)
    await world.service(class_name="fairlead.dev/envoy")
    await world.slice(("10.0.0.1", "n1"))
    await world.start()
    assert await world.names() == ["test-ours", "test-yurt"]
    owner = (await world.get("test-yurt")).metadata.owner_references or []
    assert owner[1].api_version == "apps.openyurt.io/v1beta1"
    assert await world.targets("test-yurt.poolservice.fairlead") == ["10.0.0.1"]
    assert await world.targets("test-ours.poolservice.fairlead") == []
    await world.user.delete(theirs, "", "yurt")
    await world.until_names("test-ours")

    async def came_back() -> bool:
        return await world.targets("test-ours.poolservice.fairlead") == ["10.0.0.1"]

    await until(came_back)
    await world.clean()
    await world.user.delete(CRDS, "", "nodepools.apps.openyurt.io")


@pytest.mark.req("O-16", "O-34")
async def test_nothing_is_deleted_while_the_view_is_uncertain(world: World) -> None:
    await world.pool("np1", app="deploy")
    await world.pool("np2", app="deploy")
    await world.service()
    running = await world.start()
    assert await world.names() == ["test-np1", "test-np2"]
    cache = running.regions.caches["nodes"]
    cache.problem = "the watch of nodes has broken"
    await world.delete_pool("np2")

    async def waited_for() -> bool:
        return len(running.regions.queues["pool-endpoints"]._due) > 0

    await until(waited_for)
    assert await world.names() == ["test-np1", "test-np2"]
    cache.problem = ""
    await world.until_names("test-np1")


@pytest.mark.req("O-51")
async def test_a_replica_that_lost_its_lease_writes_nothing(world: World) -> None:
    await world.pool("np1", app="deploy")
    await world.service()
    first = await world.start(identity="one")
    waiting = Running(world.api, identity="two")
    world.running.append(waiting)
    await until(lambda: bool(waiting.regions.caches) and not waiting.regions.not_ready(), what="synced")
    await world.service("more")
    await world.until_names("more-np1", "test-np1")
    assert waiting.requests() == 0
    await world.stop(first)
    await until(lambda: waiting.regions.leading, what="the other one leads")
    await world.service("third")
    await world.until_names("more-np1", "test-np1", "third-np1")
    assert waiting.requests() > 0
