"""What an agent does when it restarts, when the hub or the member is away, and when another one holds the lease."""

from __future__ import annotations

from typing import Any

import pytest
from agent_door import Door
from agent_l7_objects import gateway, gateway_class, http_route, ingress, ingress_class, install, path
from agent_world import HUB_NAMESPACE, KUBELB, POD, World, metric, until, writes

from fairlead.agent.term import ANNOTATION_MEMBER_UID, ANNOTATION_REGION
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import LEASES, NAMESPACES
from fairlead.api.meta import KubeObject, ObjectKey, Resource
from fairlead.api.names import AGENT_LEADER_LEASE, AGENT_LEASE, FINALIZER_CLEANUP
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import NotFound


@pytest.mark.req("KI-6")
@pytest.mark.req("I-10")
@pytest.mark.req("B06")
@pytest.mark.req("W-6")
async def test_a_restart_with_nothing_changed_writes_nothing(world: World):
    await world.service()
    await world.service("local", externalTrafficPolicy="Local")
    await world.service("np", kind="NodePort", annotations=KUBELB)
    await world.service("pods", annotations=POD)
    await world.slice("10.1.0.1", "10.1.0.2", service="pods")
    await world.slice("10.1.0.3", service="local", name="local-1")
    first = await world.start()
    assert writes(first) == 4 + 2 + 1
    for name in ("web", "np", "pods", "local"):
        await world.answer("192.0.2.1", f"shop.{name}")
    await world.until_shown("192.0.2.1", name="pods")
    await world.settled(first)
    await world.stop(first)
    events = [await world.events(name) for name in ("web", "np", "pods", "local")]
    second = await world.start()
    assert (writes(second), writes(second, "member")) == (0, 0)
    assert second.hub.writes <= 1, "the heartbeat and nothing else"
    assert [await world.events(name) for name in ("web", "np", "pods", "local")] == events


@pytest.mark.req("K-20")
@pytest.mark.req("KI-1")
@pytest.mark.req("KI-2")
@pytest.mark.req("I-2")
@pytest.mark.req("I-3")
@pytest.mark.req("B09")
@pytest.mark.req("B24")
async def test_what_went_while_the_agent_was_down_is_removed_when_it_is_back(world: World):
    await world.service("deleted", annotations=POD)
    await world.slice("10.1.0.1", service="deleted")
    await world.service("changed")
    await world.service("unannotated", kind="NodePort", annotations=KUBELB)
    await world.service("stays")
    agent = await world.start()
    for name in ("changed", "stays"):
        await world.answer("192.0.2.1", f"shop.{name}")
        await world.until_shown("192.0.2.1", name=name)
    await world.stop(agent)
    await world.delete_service("deleted")
    await world.service("changed", kind="ClusterIP")
    await world.service("unannotated", kind="NodePort")
    await world.start()
    for name in ("deleted", "changed", "unannotated"):
        await world.gone(f"shop.{name}")
    assert set(await world.load_balancers()) == {"shop.stays"}
    await world.until_shown(name="changed")
    await world.until_shown("192.0.2.1", name="stays")


@pytest.mark.req("I-2")
async def test_a_slice_whose_load_balancer_is_gone_is_removed(world: World):
    await world.service(annotations=POD)
    await world.slice("10.1.0.1")
    agent = await world.start()
    await world.stop(agent)
    await world.delete_service()
    from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS

    await world.hub.delete(TCP_LOAD_BALANCERS, HUB_NAMESPACE, "shop.web")
    await world.release()
    assert await world.slices() != {}
    await world.start()
    await until(lambda: no_slices(world))


async def no_slices(world: World) -> bool:
    return not await world.slices()


@pytest.mark.req("KI-1")
@pytest.mark.req("KI-7")
@pytest.mark.req("W-25")
@pytest.mark.req("I-8")
async def test_the_hub_is_down_while_the_member_changes(world: World):
    door = Door(world.hub_url)
    url = await door.open()
    await world.service("old")
    await world.service("web", annotations=POD)
    await world.slice("10.1.0.1")
    agent = await world.start(hub_url=url)
    await world.answer("192.0.2.1", "shop.old")
    await world.until_shown("192.0.2.1", name="old")
    await door.shut()
    await until(lambda: any("hub" in each for each in agent.readiness()), what="readiness")
    assert metric(agent, "hub_reachable") == 0
    await world.delete_service("old")
    with pytest.raises(NotFound):
        await world.get_service("old")
    await world.slice("10.1.0.2")
    await world.service("new")
    assert not (await world.find("shop.old")).deleting
    await door.open()
    await world.gone("shop.old")
    await world.load_balancer("shop.new")

    async def caught_up() -> bool:
        return await world.addresses() == ["10.1.0.2"]

    await until(caught_up)
    await until(lambda: agent.readiness() == [], what="ready again")
    await door.shut()


@pytest.mark.req("X-40")
async def test_waiting_objects_have_a_warning_while_the_hub_is_away(world: World):
    door = Door(world.hub_url)
    url = await door.open()
    await world.service("served")
    await world.start(hub_url=url, let_go_s=1.0)
    await world.answer("192.0.2.1", "shop.served")
    await world.until_shown("192.0.2.1", name="served")
    await door.shut()
    await world.service("new")
    assert "has not answered" in await world.event("HubNotAnswering", "new")
    assert "HubNotAnswering" not in [reason for _, reason, _ in await world.events("served")]
    await door.open()
    assert "HubNotAnswering" in await world.event("Resolved", "new")
    await door.shut()


@pytest.mark.req("I-1")
@pytest.mark.req("I-8")
@pytest.mark.req("B06")
async def test_the_member_is_unreachable(world: World):
    door = Door(world.member_url)
    url = await door.open()
    await world.service(annotations=POD)
    await world.slice("10.1.0.1")
    agent = await world.start(member_url=url, heartbeat_s=0.05, lease_s=3.0)
    renewed = await renew_time(world)
    await until(lambda: beats_again(world, renewed))
    before = writes(agent)
    await door.shut()
    await until(lambda: not agent.leadership.may_write(), what="the lease cannot be renewed")
    quiet = await renew_time(world)
    await world.delete_service()
    assert any("the member" in each for each in agent.readiness())
    assert writes(agent) == before
    assert not (await world.find()).deleting
    assert await world.addresses() == ["10.1.0.1"]
    assert await renew_time(world) == quiet, "no sign of life for a member that cannot be seen"
    await door.open()
    await world.gone()
    await until(lambda: beats_again(world, quiet))
    await door.shut()


async def renew_time(world: World) -> str | None:
    return (await world.hub.get(LEASES, HUB_NAMESPACE, AGENT_LEASE)).spec.renew_time


async def beats_again(world: World, than: str | None) -> bool:
    return await renew_time(world) != than


@pytest.mark.req("I-5")
@pytest.mark.req("B08")
async def test_two_agents_and_one_lease(world: World):
    await world.service()
    first = await world.start()
    second = await world.start(exporting=False)
    await until(lambda: second.caches.synced)
    await until(lambda: second.problems == [], what="checked")
    await world.service("more")
    await world.load_balancer("shop.more")
    await world.settled(first)
    assert not second.leadership.may_write()
    assert writes(second) == 0
    await until(lambda: second.readiness() == [], what="one that waits for its turn is ready")
    await world.stop(first)
    await until(second.leadership.may_write, what="takeover")
    await world.settled(second)
    assert writes(second) == 0
    await world.service("again")
    await world.load_balancer("shop.again")
    # Another process steals the lease: writing stops at once.
    lease = {"metadata": {"name": AGENT_LEADER_LEASE, "namespace": "kube-system"}, "spec": {"holderIdentity": "thief"}}
    await world.member.apply(LEASES, lease, manager="thief")
    await until(lambda: not second.leadership.may_write(), what="deposed")
    before = writes(second)
    await world.service("late")
    await until(lambda: second.caches.services.get("shop", "late"))
    assert writes(second) == before
    assert await world.find("shop.late") is None


@pytest.mark.req("I-4")
@pytest.mark.req("B27")
@pytest.mark.req("I-1")
async def test_another_cluster_cannot_take_over_a_tenant(world: World):
    await world.service()
    agent = await world.start()
    await world.stop(agent)
    lease = await world.hub.get(LEASES, HUB_NAMESPACE, AGENT_LEASE)
    assert lease.annotation(ANNOTATION_REGION) == "eu-1"
    uid = (await world.member.get(NAMESPACES, "", "kube-system")).metadata.uid
    assert lease.annotation(ANNOTATION_MEMBER_UID) == uid
    # The hub itself as the member: it has none of the tenant's Services.
    rival = await world.start(exporting=False, member_url=world.hub_url)
    await until(lambda: any("belongs to another cluster" in each for each in rival.readiness()))
    assert writes(rival) == 0
    assert not (await world.find()).deleting


@pytest.mark.req("I-1")
@pytest.mark.req("B06")
@pytest.mark.req("I-7")
async def test_a_service_that_cannot_be_read_keeps_what_it_has(world: World):
    await world.service()
    agent = await world.start()
    await world.load_balancer()
    agent.caches.services._store.remove(ObjectKey("shop", "web"))
    agent.caches.services.broken[ObjectKey("shop", "web")] = "unreadable"
    agent.engine.publish(("Service", "shop", "web"))
    await until(lambda: not any(len(queue) or queue.processing for queue in agent.engine.queues))
    assert not (await world.find()).deleting


@pytest.mark.req("I-1", "CORE-03")
async def test_an_unreadable_load_balancer_still_gets_its_endpoints(world: World):
    """The hub acts on them once it can read it: those of before would end backends that are wanted again."""
    await world.service(annotations=POD)
    await world.slice("10.1.0.1", "10.1.0.2")
    agent = await world.start()

    async def has(*addresses: str) -> bool:
        return await world.addresses() == list(addresses)

    await until(lambda: has("10.1.0.1", "10.1.0.2"))
    agent.caches.load_balancers.broken[ObjectKey(HUB_NAMESPACE, "shop.web")] = "unreadable"
    await world.slice("10.1.0.2", "10.1.0.3")
    await until(lambda: has("10.1.0.2", "10.1.0.3"))


async def test_missing_parts_are_reported(world: World):
    agent = await world.start(exporting=False, hub_namespace="tenant-nowhere", member_url=world.member_url)
    await until(lambda: any("tenant-nowhere does not exist" in each for each in agent.readiness()))
    # The member as the hub: it does not serve our kinds.
    lost = await world.start(exporting=False, hub_url=world.member_url, tenant="west")
    await until(lambda: any("does not serve fairlead.dev/v1alpha1" in each for each in lost.readiness()))
    assert writes(lost) == 0


@pytest.mark.req("X-40")
@pytest.mark.parametrize("kind", ["Ingress", "Gateway"])
async def test_waiting_http_objects_have_a_warning_while_the_hub_is_away(world: World, kind: str):
    door = Door(world.hub_url)
    url = await door.open()
    if kind == "Ingress":
        await world.service(kind="ClusterIP")
        await ingress_class(world)
    else:
        await install(world)
        await gateway_class(world)
    await world.start(hub_url=url, let_go_s=1.0)
    await door.shut()
    if kind == "Ingress":
        await ingress(world, "late", path())
    else:
        await gateway(world, name="late")
    assert "has not answered" in await world.event("HubNotAnswering", "late")
    await door.open()
    assert "HubNotAnswering" in await world.event("Resolved", "late")
    await door.shut()


@pytest.mark.req("F-28")
async def test_a_namespace_is_deleted_at_once_while_the_hub_is_down(world: World):
    """The member waits for nothing; the hub's objects are deleted when the hub is back, and keep their finalizer."""
    door = Door(world.hub_url)
    url = await door.open()
    await install(world)
    await gateway_class(world)
    await ingress_class(world)
    await world.service()
    await ingress(world, "shop", path())
    await gateway(world)
    await http_route(world)
    agent = await world.start(hub_url=url)
    await world.load_balancer()
    kinds = (HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, TCP_LOAD_BALANCERS)

    async def objects(kind: Resource[Any]) -> list[KubeObject]:
        return await world.hub.list(kind, HUB_NAMESPACE)

    async def published() -> bool:
        return [len(await objects(kind)) for kind in kinds] == [2, 2, 1]

    await until(published)
    await door.shut()
    await until(lambda: metric(agent, "hub_reachable") == 0)
    await world.member.delete(NAMESPACES, "", "shop")

    async def namespace_gone() -> bool:
        return "shop" not in {namespace.metadata.name for namespace in await world.member.list(NAMESPACES, "")}

    await until(namespace_gone)
    assert await published()
    assert not [obj for kind in kinds for obj in await objects(kind) if obj.deleting]
    await door.open()

    async def deleted_at_hub() -> bool:
        left = [obj for kind in kinds for obj in await objects(kind) if obj.metadata.name != "ingressclass.fairlead"]
        return all(obj.deleting for obj in left)

    await until(deleted_at_hub)
    held = await world.find()
    assert held is not None
    assert held.held_by(FINALIZER_CLEANUP), "the hub has not released the address yet"
    await door.shut()
