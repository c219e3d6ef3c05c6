"""What happens when a part dies: the agent, the hub, the member, a rival; and what is never written."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from agent_world import HUB_NAMESPACE, World, ensure_namespaces, metric, until, writes

from fairlead.agent.config import AgentConfig
from fairlead.agent.heartbeat import ANNOTATION_MEMBER_UID, ANNOTATION_REGION
from fairlead.agent.process import exit_code
from fairlead.api.kubernetes import LEASES, NAMESPACES
from fairlead.api.names import AGENT_LEADER_LEASE, AGENT_LEASE
from fairlead.errors import BadConfiguration, NotFound, Unreachable
from fairlead.kube.cache import CacheSettings

POD = {"fairlead.dev/target": "Pod"}
KUBELB = {"kubernetes.io/service.class": "kubelb"}


class Door:
    """A TCP door in front of an API server that can be shut: connections break, and new ones are refused."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self._port = 0
        self._open: set[asyncio.StreamWriter] = set()

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{self._port}"

    async def shut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, inner_writer}
        try:
            await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        finally:
            self._open -= {writer, inner_writer}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.transport.abort()


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


@pytest.mark.req("I-1")
@pytest.mark.req("I-8")
@pytest.mark.req("B06")
async def test_the_member_is_unreachable(world: World):
    door = Door(world.member_url)
    url = await door.open()
    await world.service(annotations=POD)
    await world.slice("10.1.0.1")
    agent = await world.start(member_url=url, heartbeat_s=0.05)
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


async def renew_time(world: World) -> str:
    return (await world.hub.get(LEASES, HUB_NAMESPACE, AGENT_LEASE)).spec.renew_time


async def beats_again(world: World, than: str) -> bool:
    return await renew_time(world) != than


@pytest.mark.req("I-5")
@pytest.mark.req("B08")
async def test_two_agents_and_one_lease(world: World):
    await world.service()
    first = await world.start()
    second = await world.start(exporting=False)
    await until(lambda: second.sources.synced)
    await until(lambda: second.problems == [], what="checked")
    await world.service("more")
    await world.load_balancer("shop.more")
    await world.settled(first)
    assert not second.leadership.may_write()
    assert writes(second) == 0
    assert second.readiness() == [], "one that waits for its turn is ready"
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
    await until(lambda: second.sources.services.get("shop", "late"))
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
    agent.sources.services._store.remove(("shop", "web"))
    agent.sources.services.broken[("shop", "web")] = "unreadable"
    agent.exports.add(("shop", "web"))
    await until(lambda: not len(agent.exports) and not agent.exports.processing)
    assert not (await world.find()).deleting


async def test_what_is_lacking_is_said(world: World):
    agent = await world.start(exporting=False, hub_namespace="tenant-nowhere", member_url=world.member_url)
    await until(lambda: any("tenant-nowhere does not exist" in each for each in agent.readiness()))
    # The member as the hub: it does not serve our kinds.
    lost = await world.start(exporting=False, hub_url=world.member_url, tenant="west")
    await until(lambda: any("does not serve fairlead.dev/v1alpha1" in each for each in lost.readiness()))
    assert writes(lost) == 0


WRONG = [
    ({"tenant": ""}, "--tenant"),
    ({"tenant": "A_b"}, "--tenant"),
    ({"tenant": "x" * 57}, "--tenant"),
    ({"tenant": "x", "target": "pod"}, "--target"),
    ({"tenant": "x", "cloud_load_balancer": "maybe"}, "--cloud-load-balancer"),
    ({"tenant": "x", "workers": 0}, "workers"),
    ({"tenant": "x", "status_listen": "9091"}, "--metrics"),
]


def test_the_key_of_another_tenant_is_refused():
    config = AgentConfig(tenant="west")
    with pytest.raises(BadConfiguration, match=r"the key of tenant 'east'.*fairlead tenant add west.*--tenant east"):
        config.namespace_at_hub("tenant-east")
    assert config.namespace_at_hub("default") == config.namespace_at_hub("tenant-west") == "tenant-west"
    assert config.namespace_at_hub("elsewhere") == "elsewhere"


@pytest.mark.parametrize(("options", "flag"), WRONG)
def test_a_wrong_setting_is_named(options, flag):
    with pytest.raises(BadConfiguration, match=flag) as caught:
        AgentConfig(**options).check()
    assert exit_code(caught.value) == 2
    assert exit_code(Unreachable("x")) == 1
    assert exit_code(None) == 0


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
    from fairlead.agent.process import run_agent
    from fairlead.api.kinds import all_crds
    from fairlead.apiserver import ApiServer
    from fairlead.kube.cluster import Cluster
    from fairlead.kube.preflight import install_crds

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
        status_listen="127.0.0.1:0",
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
    from fairlead.agent.process import run_agent

    config = AgentConfig(tenant="east", member_kubeconfig=str(tmp_path / "none"), hub_kubeconfig=str(tmp_path / "none"))
    with pytest.raises(BadConfiguration, match="none"):
        await run_agent(config)


@pytest.mark.req("B03")
@pytest.mark.req("I-1")
async def test_a_list_that_is_suddenly_empty_removes_nothing_until_it_is_confirmed(world: World):
    """The member's API server comes back with an empty view for one list, and is itself again for the next."""
    await world.service()
    agent = await world.start()
    cache = agent.sources.services
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
    rival = await world.start(exporting=False, identity="one")
    await until(lambda: rival.readiness() == [], what="waiting for its turn")
    again = await world.start(identity="one", reclaim_lease=True)
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
    await until(second.leadership.may_write, what="the standby leads", timeout_s=90)
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
async def test_nothing_is_removed_at_the_hub_while_the_view_of_the_member_is_not_whole_and_current(
    world: World, monkeypatch: pytest.MonkeyPatch, lacks: str
):
    await world.service()
    agent = await world.start()
    before = await world.load_balancer()
    with monkeypatch.context() as patched:
        if lacks == "it is old":
            patched.setattr(agent.sources, "member_is_fresh", lambda *, fresh_s: fresh_s < 0)
        else:
            patched.setitem(agent.sources.slices.broken, ("shop", "web-x"), "no JSON")
        await world.service(kind="ClusterIP")
        await world.settled(agent)
        kept = await world.load_balancer()
        assert (kept.metadata.uid, kept.deleting) == (before.metadata.uid, False)
    agent.exports.add(("shop", "web"))
    await world.release()
    await until(lambda: is_gone(world))


async def is_gone(world: World) -> bool:
    present = await world.find()
    return present is None or present.deleting
