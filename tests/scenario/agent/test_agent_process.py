"""An agent as a process: settings, status page, leadership, and a view that is not complete."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from agent_door import Door
from agent_world import KUBELB, World, ensure_namespaces, until, writes

from fairlead.agent.config import AgentConfig
from fairlead.api.kubernetes import LEASES
from fairlead.api.meta import ObjectKey
from fairlead.api.names import AGENT_LEADER_LEASE, AGENT_LEASE
from fairlead.errors import BadConfiguration, NotFound
from fairlead.kube.cache import CacheSettings

WRONG = [
    ({"tenant": ""}, "--tenant"),
    ({"tenant": "A_b"}, "--tenant"),
    ({"tenant": "x" * 57}, "--tenant"),
    ({"tenant": "x", "target": "pod"}, "--target"),
    ({"tenant": "x", "cloud_load_balancer": "maybe"}, "--cloud-load-balancer"),
    ({"tenant": "x", "workers": 0}, "workers"),
]


def test_the_key_of_another_tenant_is_refused():
    config = AgentConfig(tenant="west")
    with pytest.raises(BadConfiguration, match=r"tenant 'east'.*fairlead tenant add west.*--tenant east"):
        config.namespace_at_hub("tenant-east")
    assert config.namespace_at_hub("default") == config.namespace_at_hub("tenant-west") == "tenant-west"
    assert config.namespace_at_hub("elsewhere") == "elsewhere"


@pytest.mark.parametrize(("options", "flag"), WRONG)
def test_a_wrong_setting_is_named(options, flag):
    with pytest.raises(BadConfiguration, match=flag):
        AgentConfig(**options).check()


async def test_status_page_and_metrics(world: World):
    from fairlead.runtime.telemetry import StatusServer

    await world.service()
    await world.service("bad", kind="ClusterIP", annotations=KUBELB)
    agent = await world.start()
    async with StatusServer("127.0.0.1", 0, agent.registry, agent.readiness) as page, aiohttp.ClientSession() as web:
        async with web.get(f"{page.url}/readyz") as answer:
            assert answer.status == 200, await answer.text()
        async with web.get(f"{page.url}/metrics") as answer:
            text = await answer.text()
    assert "fairlead_agent_exported_load_balancers 1.0" in text
    assert 'fairlead_agent_refused_services{reason="UnsupportedService"} 1.0' in text
    assert "fairlead_agent_hub_reachable 1.0" in text
    assert "fairlead_agent_leading 1.0" in text


@pytest.mark.req("K-5")
@pytest.mark.req("K-6")
async def test_the_whole_process_from_kubeconfig_files(tmp_path):
    from fairlead.agent.app import run_agent
    from fairlead.api.kinds import all_crds
    from fairlead.kube.cluster import Cluster
    from fairlead.kube.discovery import install_crds
    from podless import ApiServer

    servers = {"member": ApiServer(), "hub": ApiServer()}
    for name, server in servers.items():
        await server.start()
        server.write_kubeconfig(tmp_path / name)
    users = {name: Cluster.from_kubeconfig(tmp_path / name) for name in servers}
    await ensure_namespaces(users["member"], "kube-system", "fairlead-system", "shop")
    await ensure_namespaces(users["hub"], "tenant-east")
    assert await install_crds(users["hub"], all_crds(), "test") == []
    config = AgentConfig(
        tenant="east",
        member_kubeconfig=str(tmp_path / "member"),
        hub_kubeconfig=str(tmp_path / "hub"),
        metrics=("127.0.0.1", 0),
    )
    task = asyncio.create_task(run_agent(config))

    async def alive() -> bool:
        try:
            return bool(await users["hub"].get(LEASES, "tenant-east", AGENT_LEASE))
        except NotFound:
            return False

    await until(alive, what="heartbeat")
    leader = await users["member"].get(LEASES, "fairlead-system", AGENT_LEADER_LEASE)
    assert leader.spec.holder_identity
    task.cancel()
    await asyncio.wait({task})
    leader = await users["member"].get(LEASES, "fairlead-system", AGENT_LEADER_LEASE)
    assert not leader.spec.holder_identity, "a clean stop hands the lease back"
    for name, server in servers.items():
        await users[name].aclose()
        await server.stop()


async def test_a_kubeconfig_that_is_missing_is_a_wrong_configuration(tmp_path):
    from fairlead.agent.app import run_agent

    config = AgentConfig(tenant="east", member_kubeconfig=str(tmp_path / "none"), hub_kubeconfig=str(tmp_path / "none"))
    with pytest.raises(BadConfiguration, match="none"):
        await run_agent(config)


@pytest.mark.req("B03")
@pytest.mark.req("I-1")
async def test_a_list_that_is_suddenly_empty_removes_nothing_until_it_is_confirmed(world: World):
    """The member's API server comes back with an empty view for one list, and is itself again for the next."""
    await world.service()
    agent = await world.start()
    cache = agent.caches.services
    before = writes(agent)
    real, lists = agent.member.listing, 0

    async def empty_once(resource, *args, **options):
        nonlocal lists
        listing = await real(resource, *args, **options)
        if resource is cache.resource:
            lists += 1
            if lists == 1:
                listing.items.clear()
        return listing

    agent.member.listing = empty_once
    cache._settings = CacheSettings(confirm_after_s=0.0)
    await cache._list()
    assert lists == 2
    await world.settled(agent)
    assert writes(agent) == before
    assert not (await world.find()).deleting


async def lease_holder(world: World) -> str:
    try:
        return (await world.member.get(LEASES, "kube-system", AGENT_LEADER_LEASE)).spec.holder_identity or ""
    except NotFound:
        return ""


@pytest.mark.req("I-5")
@pytest.mark.req("B08")
async def test_a_killed_agent_leads_again_at_once_when_its_name_was_locked(world: World):
    await world.service()
    # Its predecessor died a moment ago: the lease has an hour to go, and no process will hand it back.
    lease = {
        "metadata": {"name": AGENT_LEADER_LEASE, "namespace": "kube-system"},
        "spec": {"holderIdentity": "one", "leaseDurationSeconds": 3600, "leaseTransitions": 7},
    }
    await world.member.apply(LEASES, lease, manager="predecessor")
    # Nothing but the name may decide: on a slow machine a short lease would expire by itself.
    rival = await world.start(exporting=False, identity="one", lease_s=600.0)
    await until(lambda: rival.readiness() == [], what="waiting for its turn")
    again = await world.start(identity="one", reclaim_lease=True, lease_s=600.0)
    await world.load_balancer()
    assert not rival.leadership.may_write()
    assert writes(rival) == 0
    assert (await world.member.get(LEASES, "kube-system", AGENT_LEADER_LEASE)).spec.lease_transitions == 8
    await world.stop(again)


@pytest.mark.req("I-8")
@pytest.mark.req("B15")
async def test_an_agent_that_cannot_work_never_takes_the_lease(world: World):
    await world.service()
    homeless = await world.start(exporting=False, hub_namespace="tenant-nowhere", tenant="nowhere")
    await until(lambda: "tenant-nowhere does not exist" in homeless.eligibility.problem, what="said")
    kept_out = await world.start(exporting=False, hub_url=world.member_url)
    await until(lambda: "fairlead.dev/v1alpha1" in kept_out.eligibility.problem, what="said")
    assert await lease_holder(world) == ""
    standby = await world.start()
    await world.load_balancer()
    assert await lease_holder(world) == standby.identity
    assert not homeless.leadership.may_write()
    assert not kept_out.leadership.may_write()


@pytest.mark.req("I-8")
@pytest.mark.req("B15")
async def test_a_leader_that_the_hub_turns_away_makes_room_for_its_standby(world: World):
    """The leader's way to the hub breaks, and only that one: it renews its lease without being able to work."""
    door = Door(world.hub_url)
    await world.service()
    first = await world.start(hub_url=await door.open(), heartbeat_s=0.05, let_go_s=0.5, fresh_s=1.0)
    second = await world.start(exporting=False)
    await world.load_balancer()
    await door.shut()
    await until(second.leadership.may_write, what="the standby leads")
    assert not first.leadership.may_write()
    assert any("hub" in each for each in first.readiness())
    await world.service("later")
    await world.load_balancer("shop.later")
    await door.open()
    await until(lambda: first.eligibility.problem == "", what="able again")
    assert second.leadership.may_write(), "whoever leads goes on leading"
    await door.shut()


@pytest.mark.req("T-survivors", "I-6")
@pytest.mark.parametrize("lacks", ["it is old", "a slice cannot be read"])
async def test_nothing_is_removed_with_an_incomplete_view_of_the_member(
    world: World, monkeypatch: pytest.MonkeyPatch, lacks: str
):
    await world.service()
    agent = await world.start()
    before = await world.load_balancer()
    with monkeypatch.context() as patched:
        if lacks == "it is old":
            patched.setattr(agent.caches, "member_is_fresh", lambda *, fresh_s: fresh_s < 0)
        else:
            patched.setitem(agent.caches.slices.broken, ObjectKey("shop", "web-x"), "no JSON")
        await world.service(kind="ClusterIP")
        await world.settled(agent)
        kept = await world.load_balancer()
        assert (kept.metadata.uid, kept.deleting) == (before.metadata.uid, False)
    agent.engine.publish(("Service", "shop", "web"))
    await world.release()
    await until(lambda: is_gone(world))


async def is_gone(world: World) -> bool:
    present = await world.find()
    return present is None or present.deleting
