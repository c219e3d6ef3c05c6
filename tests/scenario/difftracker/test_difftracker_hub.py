"""From what users write to what is at the cloud, at a provider whose ledger are BackendRecords: one hop, pods only."""

from __future__ import annotations

import pytest
from hub_world import EVENT, POOL, RunningHub
from prometheus_client import generate_latest

from fairlead.api.backendgroup import BACKEND_GROUPS, BACKEND_RECORDS
from fairlead.api.kubernetes import ENDPOINT_SLICES, NAMESPACES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import FINALIZER_CLEANUP
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import Unreachable
from fairlead.model.keys import LoadBalancerKey
from fairlead.testing.builders import HTTP, endpoint, lb_key, slice_body, target

EDGE = {"provider": "memory", "drain": "0s", "guard": {"maxRemovalPercent": 100, "minBackends": 0}}
SHARED = LoadBalancerKey("LoadBalancer", "shop", "shared")


class Edge:
    """Load balancers of a class that is not ours to serve."""

    def __init__(self, world):
        self.world = world

    async def open(self):
        body = {"metadata": {"name": "edge"}, "spec": EDGE}
        await self.world.user.apply(LOAD_BALANCER_CLASSES, body, manager="kubectl")

    async def lb(self, name="web", **spec):
        await self.world.lb(name, spec={"className": "edge", **spec})

    def at(self, name="web"):
        return {at.address for _, at in self.world.outside.members(lb_key(name))}

    async def until(self, *addresses, name="web"):
        wanted = set(addresses)
        await self.world.until(lambda: self.at(name) == wanted, what=f"{wanted} at {name}")

    async def gone(self, name="web"):
        async def check():
            return await self.world.get(name) is None

        await self.world.until(check, what=f"{name} to go")

    async def records(self):
        return await self.world.user.list(BACKEND_RECORDS)


@pytest.fixture
async def edge(world, hub):
    edge = Edge(world)
    await edge.open()
    return edge


@pytest.mark.req("A-1")
async def test_at52_without_the_class_no_provider_is_called(world, hub):
    await world.lb()
    await world.slice("web", "10.1.0.1")
    await world.programmed()
    await world.delete_lb()
    await world.until(lambda: lb_key() not in world.cloud.load_balancers)
    assert hub.hub.providers.durable == {}
    assert hub.durable.calls.total() == 0
    assert [each for each in hub.written if "Backend" in each or " LoadBalancer " in each] == []


@pytest.mark.req("A-2", "A-3", "A-4", "A-6")
async def test_each_service_gets_a_load_balancer_with_its_pods(world, edge):
    await world.nodes("10.0.0.1", "10.0.0.2")
    for number in range(3):
        await edge.lb(f"web-{number}")
        await world.slice(f"web-{number}", f"10.1.{number}.1")
    for number in range(3):
        await edge.until(f"10.1.{number}.1", name=f"web-{number}")
    assert set(world.outside.load_balancers) == {lb_key(f"web-{number}") for number in range(3)}
    assert {record.spec.target.address for record in await edge.records()} == {f"10.1.{n}.1" for n in range(3)}
    await world.slice("web-1", "10.1.1.1", "10.1.1.2")
    await edge.until("10.1.1.1", "10.1.1.2", name="web-1")
    assert await world.user.list(LOAD_BALANCERS) == []
    assert await world.user.list(BACKEND_GROUPS) == []


@pytest.mark.req("A-5")
@pytest.mark.parametrize("policy", ["Cluster", "Local"])
async def test_at47_every_ready_pod_is_a_backend_whatever_the_traffic_policy(world, edge, policy):
    await world.nodes("10.0.0.1")
    await edge.lb(externalTrafficPolicy=policy)
    await world.slice("web", "10.1.0.1", "10.1.0.2", endpoint("10.1.0.3", ready=False))
    await edge.until("10.1.0.1", "10.1.0.2")


@pytest.mark.req("A-22", "A-21")
async def test_at27_endpoints_that_are_there_first_wait_for_the_load_balancer(world, edge, hub):
    await world.slice("web", "10.1.0.1")
    await world.quiet()
    assert hub.durable.calls.total() == 0 or set(hub.durable.calls) == {"observe"}
    await edge.lb()
    await edge.until("10.1.0.1")


@pytest.mark.req("A-43")
async def test_at49_not_ready_leaves_and_ready_again_returns(world, edge):
    await edge.lb()
    await world.slice("web", "10.1.0.1", "10.1.0.2")
    await edge.until("10.1.0.1", "10.1.0.2")
    await world.slice("web", "10.1.0.1", endpoint("10.1.0.2", ready=False))
    await world.until(lambda: ready(world) == {"10.1.0.1"})
    await world.slice("web", "10.1.0.1", endpoint("10.1.0.2"))
    await world.until(lambda: ready(world) == {"10.1.0.1", "10.1.0.2"})


def ready(world):
    return {at.address for (_, at), each in world.outside.members(lb_key()).items() if not each.draining}


@pytest.mark.req("A-44")
async def test_repacked_slices_remove_no_backend(world, edge, hub):
    await edge.lb()
    await world.slice("web", "10.1.0.1", "10.1.0.2")
    second = slice_body("web-2", ["10.1.0.2", "10.1.0.3"], load_balancer="web")
    await world.user.apply(ENDPOINT_SLICES, second, manager="kubectl")
    await edge.until("10.1.0.1", "10.1.0.2", "10.1.0.3")
    calls = hub.durable.calls["apply"]
    await world.slice("web", "10.1.0.1")
    await world.quiet()
    assert edge.at() == {"10.1.0.1", "10.1.0.2", "10.1.0.3"}
    assert hub.durable.calls["apply"] == calls
    await world.user.delete(ENDPOINT_SLICES, "tenant-east", "web-2")
    await edge.until("10.1.0.1")


@pytest.mark.req("A-6", "A-22")
async def test_at50_no_endpoints_is_an_empty_load_balancer_that_fills_later(world, edge):
    await edge.lb()
    await world.until(lambda: lb_key() in world.outside.load_balancers)
    assert edge.at() == set()
    await world.slice("web", "10.1.0.1")
    await edge.until("10.1.0.1")


@pytest.mark.req("A-42", "A-21")
async def test_the_finalizer_is_there_before_the_load_balancer_and_stays_until_it_is_gone(world, edge, hub):
    hub.cluster.refuse_writes = True
    await edge.lb()
    await world.slice("web", "10.1.0.1")
    await world.quiet(20)
    assert world.outside.load_balancers == {}, "what cannot be held is not made"
    hub.cluster.refuse_writes = False
    await edge.until("10.1.0.1")
    assert FINALIZER_CLEANUP in (await world.get()).metadata.finalizers
    hub.durable.faults.down = "no answer"
    await world.delete_lb()
    await world.quiet(30)
    assert FINALIZER_CLEANUP in (await world.get()).metadata.finalizers
    hub.durable.faults.down = ""
    await edge.gone()
    assert (world.outside.load_balancers, await edge.records()) == ({}, [])


@pytest.mark.req("A-39", "A-42")
async def test_at34_a_load_balancer_recreated_during_deletion_keeps_backends(world, edge, hub):
    await edge.lb()
    await world.slice("web", "10.1.0.1", "10.1.0.2")
    await edge.until("10.1.0.1", "10.1.0.2")
    first = (await world.get()).metadata.uid
    hub.durable.faults.down = "no answer"
    await world.delete_lb()
    await world.quiet(5)
    assert (await world.get()).deleting
    hub.durable.faults.down = ""
    await edge.gone()
    await edge.lb()
    await edge.until("10.1.0.1", "10.1.0.2")
    assert (await world.get()).metadata.uid != first


@pytest.mark.req("A-30")
async def test_at69_what_cannot_be_listed_at_the_start_is_not_decided(world, edge, hub):
    await edge.lb()
    await world.slice("web", "10.1.0.1", "10.1.0.2")
    await edge.until("10.1.0.1", "10.1.0.2")
    await world.quiet()
    await world.stop(hub)
    await world.slice("web", "10.1.0.1")
    again = RunningHub(world, identity="hub-1", pool=POOL, refuse_writes=False, refuse_preparing=False)
    world.hubs.append(again)
    listing, broken = again.cluster.listing, [True]

    async def fails(resource, *rest, **text):
        if broken[0] and resource is BACKEND_RECORDS:
            raise Unreachable("The hub's API does not answer.")
        return await listing(resource, *rest, **text)

    again.cluster.listing = fails
    await world.quiet(40)
    assert not again.hub.leading, "not before it knows what is on record"
    assert [method for method in again.durable.calls if method != "observe"] == []
    assert [each for each in again.written if "Backend" in each] == []
    assert edge.at() == {"10.1.0.1", "10.1.0.2"}
    broken[0] = False
    await edge.until("10.1.0.1")


@pytest.mark.req("A-32", "A-31")
async def test_at66_added_deleted_and_moved_while_no_process_ran(world, edge, hub):
    for name in ("a", "b", "c"):
        await edge.lb(name)
        await world.slice(name, "10.1.0.1", "10.1.0.2")
        await edge.until("10.1.0.1", "10.1.0.2", name=name)
    await world.quiet()
    await world.stop(hub)
    await world.delete_lb("a")
    await world.slice("b", "10.1.0.2", "10.1.0.3")
    for number in range(5):
        await edge.lb(f"new-{number}")
        await world.slice(f"new-{number}", "10.1.0.9")
    again = await world.start(identity="hub-1")
    await edge.gone("a")
    await edge.until("10.1.0.2", "10.1.0.3", name="b")
    for number in range(5):
        await edge.until("10.1.0.9", name=f"new-{number}")
    assert edge.at("c") == {"10.1.0.1", "10.1.0.2"}
    assert set(world.outside.load_balancers) == {lb_key(each) for each in ("b", "c", *(f"new-{n}" for n in range(5)))}
    assert again.durable.calls["delete"] == 1
    assert len(await edge.records()) == 2 + 2 + 5


@pytest.mark.req("A-37", "A-35")
async def test_at37_an_invalid_update_is_reported_and_the_live_backends_go_on(world, edge):
    await edge.lb()
    await world.slice("web", "10.1.0.1")
    await edge.until("10.1.0.1")
    await world.said("Accepted", "True")
    await patch(world, ports=[{"port": 80}], loadBalancerSourceRanges=["10.0.0.0/99"])
    accepted = await world.said("Accepted", "False")
    assert "'10.0.0.0/99'" in accepted.message

    async def warned():
        return ("Warning", accepted.reason) in await world.events()

    await world.until(warned)
    await world.slice("web", "10.1.0.1", "10.1.0.2")
    await edge.until("10.1.0.1", "10.1.0.2")
    await patch(world, loadBalancerSourceRanges=["10.0.0.0/9"])
    await world.said("Accepted", "True")
    await world.until(lambda: world.outside.load_balancers[lb_key()].spec.source_ranges == ("10.0.0.0/9",))


async def patch(world, **spec):
    await world.user.merge_patch(TCP_LOAD_BALANCERS, "tenant-east", "web", {"spec": spec})


@pytest.mark.req("A-37")
async def test_at38_a_spec_that_is_repaired_is_served(world, edge):
    await edge.lb(loadBalancerSourceRanges=["nonsense"])
    await world.slice("web", "10.1.0.1")
    await world.said("Accepted", "False")
    await world.quiet(20)
    assert world.outside.load_balancers == {}
    await patch(world, loadBalancerSourceRanges=[])
    await edge.until("10.1.0.1")


@pytest.mark.req("A-2")
async def test_at51_a_class_that_is_nobodys_here_is_left_alone(world, edge, hub):
    await world.lb("theirs", spec={"className": "of-another-hub"})
    await world.slice("theirs", "10.1.0.1")
    await world.said("Accepted", "False", name="theirs")
    assert (world.outside.load_balancers, world.cloud.load_balancers) == ({}, {})
    assert not (await world.get("theirs")).metadata.finalizers


@pytest.mark.req("A-48")
async def test_the_address_is_reported_repaired_and_never_wiped(world, hub):
    await world.lb()
    await world.slice("web", "10.1.0.1")
    address = await world.programmed()
    hub.cluster.refuse_writes = True
    await world.lb("late")
    await world.slice("late", "10.1.0.1")
    await world.quiet()
    hub.cluster.refuse_writes = False
    assert await world.programmed("late"), "a status that could not be written is written later"
    await world.slice("web", "10.1.0.7")
    await world.quiet()
    assert await ingress(world) == [address], "no reconcile wipes it"
    await world.stop(hub)
    nothing = {"status": {"address": None, "loadBalancer": None, "conditions": None}}
    await world.user.merge_patch(TCP_LOAD_BALANCERS, "tenant-east", "web", nothing, subresource="status")
    assert await ingress(world) == []
    await world.start(identity="hub-1")

    async def back():
        return await ingress(world) == [address]

    await world.until(back, what="what the crash left out")


async def ingress(world):
    result = (await world.get()).status.load_balancer
    return [each.ip for each in (result.ingress if result else None) or ()]


@pytest.mark.req("A-51", "A-52")
async def test_pending_failing_rejected_and_drifted_are_counted(world, edge, hub):
    def metric(name, **labels):
        text = generate_latest(hub.hub._telemetry.registry).decode()
        wanted = {f'{key}="{value}"' for key, value in {"provider": "memory", **labels}.items()}
        for line in text.splitlines():
            head, _, value = line.rpartition(" ")
            if head.split("{")[0] == name and wanted <= set(head.partition("{")[2].rstrip("}").split(",")):
                return float(value)
        raise AssertionError(f"there is no {name} {labels}")

    hub.durable.faults.rejected = frozenset({target("10.1.0.66").key})
    await edge.lb()
    await world.slice("web", "10.1.0.1", "10.1.0.2", "10.1.0.66")
    await edge.until("10.1.0.1", "10.1.0.2")
    await world.quiet()
    assert metric("fairlead_sync_quarantined") == 1
    assert metric("fairlead_provider_calls_total", method="apply", result="success") >= 1
    world.outside.add_foreign(lb_key(), "by-hand", target("200"))
    world.outside.drift(lb_key(), HTTP, target("10.1.0.2").key, None)
    await world.until(lambda: metric("fairlead_sync_drift") == 1, what="drift")
    assert metric("fairlead_sync_foreign") == 1
    assert metric("fairlead_sync_retrying") == 0
    hub.durable.faults.down = "no answer"
    await world.slice("web", "10.1.0.1", "10.1.0.2", "10.1.0.3")
    await world.until(lambda: metric("fairlead_sync_retrying") == 1, what="a failure")
    assert metric("fairlead_sync_retries_total") >= 1
    assert metric("fairlead_provider_calls_total", method="apply", result="error") >= 1
    hub.durable.faults.down = ""
    await world.until(lambda: metric("fairlead_sync_retrying") == 0, what="success")
    await world.quiet()
    assert metric("fairlead_sync_records", state="Registered") == 3
    assert metric("fairlead_sync_pending") == 0


@pytest.mark.req("A-50")
async def test_at61_a_group_that_names_a_load_balancer_of_others_is_refused_and_reported(world, edge):
    for name in ("shop", "thieves"):
        await world.user.apply(NAMESPACES, {"metadata": {"name": name}}, manager="kubectl")
    spec = {"className": "edge", "listeners": [{"name": "http", "port": 80, "protocol": "TCP"}]}
    body = {"metadata": {"name": "shared", "namespace": "shop"}, "spec": spec}
    await world.user.apply(LOAD_BALANCERS, body, manager="kubectl")
    for namespace, number in (("shop", 1), ("thieves", 9)):
        text = {"loadBalancers": ["shop/shared"], "static": [f"10.9.0.{number}:8080"]}
        group = {"metadata": {"name": "web", "namespace": namespace}, "spec": text}
        await world.user.apply(BACKEND_GROUPS, group, manager="kubectl")
    await world.until(lambda: len(world.outside.members(SHARED)) > 0)
    await world.quiet(20)
    assert {at.address for _, at in world.outside.members(SHARED)} == {"10.9.0.1"}

    async def warned():
        events = await world.user.list(EVENT, "shop")
        return [event for event in events if event.type == "Warning" and "thieves/web" in event.message]

    assert await world.until(warned)
