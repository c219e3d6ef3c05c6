"""What goes wrong in a management cluster: each gets an answer that names it, and takes nothing out of service."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from capi_world import NAMESPACE, World, ours_on

from fairlead.api.clusterapi import CLUSTERS, MACHINES
from fairlead.api.meta import KubeObject, Resource
from fairlead.errors import FairleadError, NotFound
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.testing.faults import Fault
from fairlead.translate import view
from tests.scenario.any_api import until

pytestmark = pytest.mark.slow

SHARED = {"host": "192.0.2.9", "port": 6443}
FOREIGN_HOOK = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup"
CRDS: Resource[Any] = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False, KubeObject
)


async def serving(world: World, *, class_name: str = "edge") -> None:
    await world.start()
    await world.cluster()
    await world.lb(className=class_name)
    await world.machine("m-1", "10.0.0.1")
    await world.machine("m-2", "10.0.0.2")
    await world.until_states(m_1="active", m_2="active")


@pytest.mark.req("C-25")
async def test_two_load_balancers_of_two_clusters_that_claim_one_endpoint(world: World) -> None:
    await world.start()
    await world.cluster("blue")
    await world.cluster("red")
    await world.lb("first", endpoint=SHARED)
    await world.until_condition("EndpointPublished", "True", name="first")
    await world.lb("second", cluster="red", endpoint=SHARED)
    refused = await world.until_condition("EndpointPublished", "False", name="second", reason="EndpointClaimed")
    assert "fleet/first" in refused.message
    assert not (await world.get_cluster("red")).endpoint.given
    # A user's endpoint on the Cluster itself does not get around this.
    await world.cluster("green", controlPlaneEndpoint=SHARED)
    await world.lb("third", cluster="green")
    await world.until_condition("EndpointPublished", "False", name="third", reason="EndpointClaimed")
    assert not (await world.get_lb("third")).spec.endpoint.given
    await world.until_condition("EndpointPublished", "True", name="first")


@pytest.mark.req("C-8")
async def test_a_selector_that_reaches_machines_of_another_cluster(world: World) -> None:
    await serving(world)
    await world.machine("r-1", "10.0.1.1", cluster="red", labels={"role": "control"}, behind=())
    await world.machine("b-1", "10.0.0.3", labels={"role": "control"}, behind=())
    await world.lb("wide", additional=True, selector={"matchLabels": {"role": "control"}})
    await world.until_served("10.0.0.3:6443", name="wide")
    refused = await world.until_condition("MembersResolved", "False", name="wide", reason="OtherClusters")
    assert "r-1" in refused.message
    other = await world.get_machine("r-1")
    assert other is not None
    assert ours_on(other) == []


@pytest.mark.req("C-60")
async def test_a_machine_that_never_has_an_address_is_named(world: World) -> None:
    await serving(world)
    await world.machine("m-3")
    unknown = await world.until_condition("MembersResolved", "False", reason="MembersUnknown")
    assert "m-3" in unknown.message
    assert world.at_proxies() == {"10.0.0.1:6443": False, "10.0.0.2:6443": False}
    await world.addresses("m-3", "10.0.0.3")
    await world.until_condition("MembersResolved", "True")
    await world.until_served("10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443")


@pytest.mark.req("C-22", "C-60")
async def test_all_members_are_unhealthy_and_stay(world: World) -> None:
    await serving(world)
    both = {TargetKey("10.0.0.1", 6443), TargetKey("10.0.0.2", 6443)}
    world.proxies.unhealthy |= both
    world.proxies.changed([LoadBalancerKey("LoadBalancer", NAMESPACE, "api")])
    unhealthy = await world.until_condition("Healthy", "False", reason="SomeMembersDown")
    assert unhealthy.message.startswith("0 of 2 members take traffic")
    assert world.at_proxies() == {"10.0.0.1:6443": False, "10.0.0.2:6443": False}
    assert (await world.get_lb()).status.active_targets == 0
    world.proxies.unhealthy.clear()
    world.proxies.changed([LoadBalancerKey("LoadBalancer", NAMESPACE, "api")])
    await world.until_condition("Healthy", "True")


@pytest.mark.req("C-25", "C-68")
async def test_a_manual_endpoint_is_reported_and_not_overwritten(world: World) -> None:
    await serving(world)
    await world.until_condition("EndpointPublished", "True")
    before = str((await world.get_lb()).spec.endpoint)
    by_hand = {"spec": {"controlPlaneEndpoint": {"host": "198.51.100.7", "port": 6443}}}
    await world.user.merge_patch(world.clusters, NAMESPACE, "blue", by_hand)
    conflict = await world.until_condition("EndpointPublished", "False", reason="EndpointConflict")
    assert "198.51.100.7" in conflict.message
    assert str((await world.get_lb()).spec.endpoint) == before
    assert (await world.get_cluster()).endpoint.host == "198.51.100.7"
    # Members are followed on: who still has the old endpoint is served.
    await world.machine("m-3", "10.0.0.3")
    await world.until_served("10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443")


@pytest.mark.req("C-48", "C-50")
async def test_a_machine_whose_object_vanished_while_fairlead_was_dead_is_deregistered(world: World) -> None:
    await serving(world)
    await world.stop_capi()
    await world.delete_machine("m-1")

    async def forced() -> bool:
        """Take every finalizer off, as a person does who is in a hurry."""
        with contextlib.suppress(NotFound):
            await world.user.merge_patch(MACHINES, NAMESPACE, "m-1", {"metadata": {"finalizers": None}})
        return await world.get_machine("m-1") is None

    await until(forced, what="the object of m-1 is gone")
    await world.start_capi()
    await world.until_served("10.0.0.2:6443")
    await world.until_states(m_2="active")


@pytest.mark.req("C-47", "C-50")
async def test_hooks_of_others_are_left_alone(world: World) -> None:
    await serving(world)
    await world.annotate_with("m-1", {FOREIGN_HOOK: "", "example.org/note": "mine"})
    kept = {"metadata": {"finalizers": ["example.org/held", *await _finalizers(world, "m-1")]}}
    await world.user.merge_patch(MACHINES, NAMESPACE, "m-1", kept)
    await world.delete_machine("m-1")
    await world.until_free("m-1")
    machine = await world.get_machine("m-1")
    assert machine is not None
    assert FOREIGN_HOOK in (machine.metadata.annotations or {})
    assert machine.annotation("example.org/note") == "mine"
    assert machine.metadata.finalizers == ["example.org/held"]
    await world.until_served("10.0.0.2:6443")


async def _finalizers(world: World, name: str) -> list[str]:
    machine = await world.get_machine(name)
    assert machine is not None
    return machine.metadata.finalizers or []


@pytest.mark.req("C-60", "C-63")
async def test_the_kind_of_clusters_is_not_served_for_a_while(world: World) -> None:
    await serving(world)
    await world.until_condition("EndpointPublished", "True")
    await _serve(world, CLUSTERS.full_name, served=False)
    assert world.capi is not None
    capi = world.capi.capi
    await until(
        lambda: any("install Cluster API" in each for each in capi.not_ready()),
        what="the controller says that Cluster API is missing",
    )
    assert world.at_proxies() == {"10.0.0.1:6443": False, "10.0.0.2:6443": False}
    await _serve(world, CLUSTERS.full_name, served=True)
    await until(lambda: capi.not_ready() == [], what="the controller has what it needs")
    await world.machine("m-3", "10.0.0.3")
    await world.until_served("10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443")
    assert not world.capi.task.done()


async def _serve(world: World, name: str, *, served: bool) -> None:
    there = msgspec.json.decode(await world.user.raw("GET", f"/apis/apiextensions.k8s.io/v1/{CRDS.plural}/{name}"))
    versions = [{**each, "served": served} for each in there["spec"]["versions"]]
    await world.user.merge_patch(CRDS, "", name, {"spec": {"versions": versions}})


@pytest.mark.req("C-50", "C-63")
async def test_the_kind_of_machines_is_removed_while_it_runs(world: World) -> None:
    await serving(world)
    await world.user.delete(CRDS, "", MACHINES.full_name)

    async def removed() -> bool:
        """A definition is deleted with its objects, once Fairlead holds none of them."""
        try:
            await world.user.get(CRDS, "", MACHINES.full_name)
        except NotFound:
            return True
        return False

    await until(removed, what="the kind is gone")
    assert world.capi is not None
    capi = world.capi.capi
    await until(
        lambda: any("install Cluster API" in each for each in capi.not_ready()),
        what="the controller says that Cluster API is missing",
    )
    await until(_patiently(world.install), what="the kinds are back")
    await until(_patiently(lambda: world.machine("m-3", "10.0.0.3")), what="there is another machine")
    await until(lambda: "10.0.0.3:6443" in world.at_proxies(), what="m-3 is served")
    assert not world.capi.task.done()


def _patiently(action: Any) -> Any:
    async def trying() -> bool:
        try:
            await action()
        except (FairleadError, AssertionError):
            return False
        return True

    return trying


@pytest.mark.req("C-20", "C-63", "T-C-18")
async def test_t_c_18_a_deleted_load_balancer_is_recreated_with_its_endpoint(world: World) -> None:
    await world.start(ensurePolicy={"policy": "Always", "minPeriod": "1s"})
    await world.cluster(controlPlaneEndpoint={"host": "blue.example", "port": 6443})
    await world.lb(className="cloud")
    await world.machine("m-1", "10.0.0.1")
    await world.until_states(m_1="active")
    await world.until_condition("Exists", "True")
    assert world.hub is not None
    world.hub.at_cloud = Fault.FAIL_BEFORE
    world.cloud.delete(LoadBalancerKey("LoadBalancer", NAMESPACE, "api"))
    await world.until_condition("Exists", "False")
    machine = await world.get_machine("m-1")
    assert machine is not None
    assert len(ours_on(machine)) == 3
    world.hub.at_cloud = Fault.NONE
    await world.until_condition("Exists", "True")
    await until(lambda: world.at_cloud() == {"10.0.0.1:6443": False}, what="the member is registered again")
    assert str((await world.get_lb()).spec.endpoint) == "blue.example:6443"
    assert str((await world.get_cluster()).endpoint) == "blue.example:6443"


@pytest.mark.req("C-21", "T-C-17")
async def test_t_c_17_what_others_change_at_its_provider_is_shown_and_put_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "LEAST_REPAIR_S", 1.0)
    await world.start(ensurePolicy={"policy": "Always", "minPeriod": "1s"})
    await world.cluster()
    await world.lb(className="cloud")
    await world.machine("m-1", "10.0.0.1")
    await world.until_states(m_1="active")
    await world.until_condition("MatchesConfig", "True")
    assert world.hub is not None
    world.hub.at_cloud_changes = Fault.FAIL_BEFORE
    key = LoadBalancerKey("LoadBalancer", NAMESPACE, "api")
    world.cloud.drift(key, ListenerKey(Protocol.TCP, 6443), TargetKey("10.0.0.1", 6443), None)
    await world.until_condition("MatchesConfig", "False", reason="Drifted")
    world.hub.at_cloud_changes = Fault.NONE
    await world.until_condition("MatchesConfig", "True")
    assert world.at_cloud() == {"10.0.0.1:6443": False}


@pytest.mark.req("C-31", "C-5", "T-C-05")
async def test_t_c_05_a_cluster_without_a_load_balancer_keeps_its_endpoint(world: World) -> None:
    await world.start()
    await world.cluster("plain", infrastructureRef={"kind": "ExampleCluster", "name": "plain"})
    await world.cluster("blue")
    await world.lb()
    await world.until_condition("EndpointPublished", "True")
    # Cluster API's own controller pulls it up from the infrastructure.
    pulled = {"spec": {"controlPlaneEndpoint": {"host": "203.0.113.4", "port": 443}}}
    await world.user.merge_patch(world.clusters, NAMESPACE, "plain", pulled)
    await world.machine("p-1", "10.0.9.1", cluster="plain", behind=())
    await world.machine("m-1", "10.0.0.1")
    await world.until_states(m_1="active")
    assert str((await world.get_cluster("plain")).endpoint) == "203.0.113.4:443"
    machine = await world.get_machine("p-1")
    assert machine is not None
    assert (machine.metadata.annotations, machine.metadata.finalizers) == (None, None)
    load_balancers = await world.user.list(
        Resource("fairlead.dev", "v1alpha1", "LoadBalancer", "loadbalancers", True, KubeObject)
    )
    assert [each.metadata.name for each in load_balancers if each.metadata.namespace == NAMESPACE] == ["api"]
