"""Members that are disabled, unselected, lost, renumbered, behind two load balancers, or of another kind."""

from __future__ import annotations

import pytest
from capi_world import NAME, NAMESPACE, STATUS, World, ours_on

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.clusterapi import CLUSTERS, MACHINES, TargetObject
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import Resource
from fairlead.capi.reconcile import release_hooks
from fairlead.errors import NotFound
from fairlead.kube.discovery import install_crds
from fairlead_demo.worlds.clusterapi_kinds import member_crd
from tests.scenario.any_api import until

pytestmark = pytest.mark.slow

DISABLED = "loadbalancer.cluster.x-k8s.io/disabled"


async def serving(world: World, count: int = 2, *, class_name: str = "edge") -> None:
    await world.start()
    await world.cluster(controlPlaneEndpoint={"host": "blue.example", "port": 6443})
    await world.lb(className=class_name)
    for number in range(1, count + 1):
        await world.machine(f"m-{number}", f"10.0.0.{number}")
    await world.until_states(**{f"m_{number}": "active" for number in range(1, count + 1)})


@pytest.mark.req("C-16", "C-17", "C-18", "T-C-01")
async def test_t_c_01_selector_and_kind_have_defaults(world: World) -> None:
    await serving(world, 1)
    status = (await world.get_lb()).status
    assert status.target_kind == "Machine.cluster.x-k8s.io"
    assert status.target_selector == "cluster.x-k8s.io/cluster-name=blue,loadbalancer.cluster.x-k8s.io/name=api"


@pytest.mark.req("C-36", "C-37", "T-C-09")
async def test_t_c_09_a_member_is_marked_on_its_object(world: World) -> None:
    await serving(world, 1)

    async def marked() -> bool:
        machine = await world.get_machine("m-1")
        return machine is not None and machine.annotation(STATUS) == "active" and machine.annotation(NAME) == "api"

    await until(marked, what="the markers of m-1")


@pytest.mark.req("C-10", "C-35", "C-42", "C-44", "T-C-10")
async def test_t_c_10_a_member_whose_label_goes_leaves_without_a_trace(world: World) -> None:
    await serving(world)
    await world.user.merge_patch(MACHINES, NAMESPACE, "m-1", {"metadata": {"labels": {NAME: None}}})
    await world.until_free("m-1")
    await world.until_served("10.0.0.2:6443")
    machine = await world.get_machine("m-1")
    assert machine is not None
    assert not any("loadbalancer" in key for key in machine.metadata.annotations or ())


@pytest.mark.req("C-39", "C-40", "C-41", "T-C-11", "T-C-12")
async def test_t_c_11_and_12_a_disabled_member_stays_out_until_it_is_enabled(world: World) -> None:
    await serving(world)
    await world.annotate_with("m-1", {DISABLED: ""})
    await world.until_states(m_1="disabled", m_2="active")
    assert world.at_proxies() == {"10.0.0.1:6443": True, "10.0.0.2:6443": False}
    # Whatever else changes, it stays out.
    await world.machine("m-3", "10.0.0.3")
    await world.until_states(m_1="disabled", m_2="active", m_3="active")
    assert world.at_proxies()["10.0.0.1:6443"] is True
    await world.annotate_with("m-1", {DISABLED: None})
    await world.until_states(m_1="active", m_2="active", m_3="active")
    await world.until_served("10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443")


@pytest.mark.req("C-43", "C-47", "C-51", "C-63", "C-64", "T-C-14")
async def test_t_c_14_hooks_stay_while_the_hub_cannot_deregister(world: World) -> None:
    await serving(world, class_name="cloud")
    await world.stop_hub()
    await world.delete_machine("m-1")

    async def removing() -> bool:
        members = (await world.get_lb()).status.members or ()
        return any(each.name == "m-1" and each.state == "removing" for each in members)

    await until(removing, what="m-1 is on its way out")
    machine = await world.get_machine("m-1")
    assert machine is not None
    assert len(ours_on(machine)) == 3
    await world.start_hub()
    await world.until_free("m-1")
    assert world.at_cloud() == {"10.0.0.2:6443": False}


@pytest.mark.req("C-45", "C-48", "T-C-13")
async def test_a_machine_that_was_deleted_while_the_controller_was_dead_is_released(world: World) -> None:
    await serving(world)
    await world.stop_capi()
    await world.delete_machine("m-1")
    await world.start_capi()
    await world.until_free("m-1")
    await world.until_served("10.0.0.2:6443")


@pytest.mark.req("C-7", "C-50", "T-C-15")
async def test_t_c_15_nothing_is_left_when_the_load_balancer_goes(world: World) -> None:
    await serving(world)
    await world.user.delete(LOAD_BALANCERS, NAMESPACE, "api")
    await world.until_gone()
    for name in ("m-1", "m-2"):
        machine = await world.get_machine(name)
        assert machine is not None
        assert ours_on(machine) == []
    assert world.at_proxies() == {}


@pytest.mark.req("C-7", "C-49", "C-50", "T-C-15")
async def test_t_c_15_all_machines_of_a_cluster_that_goes_are_released(world: World) -> None:
    await serving(world)
    for name in ("m-1", "m-2"):
        await world.delete_machine(name)
    await world.until_free("m-1")
    await world.until_free("m-2")
    await until(lambda: world.at_proxies() == {}, what="no backend is left")
    await world.user.delete(CLUSTERS, NAMESPACE, "blue")


@pytest.mark.req("C-50")
async def test_release_hooks_frees_every_machine(world: World) -> None:
    await serving(world)
    await world.stop_capi()
    freed = await release_hooks(world.user)
    assert sorted(freed) == ["LoadBalancer fleet/api", "Machine fleet/m-1", "Machine fleet/m-2"]
    for name in ("m-1", "m-2"):
        machine = await world.get_machine(name)
        assert machine is not None
        assert ours_on(machine) == []
    assert await release_hooks(world.user) == []


@pytest.mark.req("C-42", "T-C-16")
async def test_t_c_16_a_backend_that_is_not_a_member_is_removed(world: World) -> None:
    await serving(world, 1)
    group = await world.group()
    spec = {"static": [*(group.spec.static or ()), "10.9.9.9:6443"]}
    await world.user.merge_patch(BACKEND_GROUPS, NAMESPACE, "api", {"spec": spec})
    await world.until_served("10.0.0.1:6443")

    async def cleaned() -> bool:
        return (await world.group()).spec.static == ["10.0.0.1:6443"]

    await until(cleaned, what="the group asks for its members only")


@pytest.mark.req("C-60", "T-C-19")
async def test_t_c_19_members_that_lose_their_addresses_stay(world: World) -> None:
    await serving(world)
    for name in ("m-1", "m-2"):
        await world.user.merge_patch(MACHINES, NAMESPACE, name, {"status": {"addresses": None}}, subresource="status")
    await world.until_condition("MembersResolved", "True")
    await world.annotate_with("m-1", {"note": "a change"})
    assert world.at_proxies() == {"10.0.0.1:6443": False, "10.0.0.2:6443": False}
    assert (await world.group()).spec.static == ["10.0.0.1:6443", "10.0.0.2:6443"]


@pytest.mark.req("C-69")
async def test_a_member_whose_address_changes_is_never_without_one(world: World) -> None:
    await serving(world, 1)
    await world.addresses("m-1", "2001:db8::7")
    await world.until_served("[2001:db8::7]:6443")
    await world.until_states(m_1="active")


@pytest.mark.req("C-15", "C-46", "T-C-24")
async def test_t_c_24_a_machine_behind_two_load_balancers_waits_for_both(world: World) -> None:
    await serving(world, 1)
    selector = {"matchLabels": {"cluster.x-k8s.io/cluster-name": "blue"}}
    await world.lb(
        "inner", additional=True, selector=selector, listeners=[{"port": 8443, "targetPort": 6443, "protocol": "TCP"}]
    )
    await world.until_states("inner", m_1="active")
    await world.until_served("10.0.0.1:6443", name="inner")

    async def both() -> bool:
        machine = await world.get_machine("m-1")
        return machine is not None and machine.annotation(NAME) == "api,inner" and len(ours_on(machine)) == 6

    await until(both, what="both load balancers are on m-1")
    await world.delete_machine("m-1")
    await world.until_free("m-1")
    assert (world.at_proxies(), world.at_proxies("inner")) == ({}, {})


@pytest.mark.req("C-6", "C-17")
async def test_members_of_any_kind_that_has_addresses(world: World) -> None:
    kind = Resource("infrastructure.example", "v1", "PoolMachine", "poolmachines", True, TargetObject)
    assert not await install_crds(world.user, [member_crd(kind)], "tests")
    await world.start()
    await world.cluster()
    target = {"apiGroup": "infrastructure.example", "kind": "PoolMachine"}
    await world.lb(targetKind=target)
    labels = {"cluster.x-k8s.io/cluster-name": "blue", NAME: "api"}
    meta = {"name": "p-1", "namespace": NAMESPACE, "labels": labels}
    await world.user.apply(kind, {"metadata": meta, "spec": {}}, manager="user")
    status = {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}
    await world.user.merge_patch(kind, NAMESPACE, "p-1", status, subresource="status")
    await world.until_served("10.0.0.9:6443")
    held = await world.user.get(kind, NAMESPACE, "p-1")
    assert not any(".delete.hook." in key for key in held.metadata.annotations or ())
    await world.user.delete(kind, NAMESPACE, "p-1")

    async def gone() -> bool:
        try:
            await world.user.get(kind, NAMESPACE, "p-1")
        except NotFound:
            return True
        return False

    await until(gone, what="the PoolMachine is gone")


@pytest.mark.req("C-35", "C-43")
async def test_members_that_are_there_from_the_beginning_are_one_write_of_their_group(world: World) -> None:
    await world.start()
    await world.stop_capi()
    await world.cluster()
    await world.lb()
    names = [f"m-{number}" for number in range(20)]
    for number, name in enumerate(names):
        await world.machine(name, f"10.0.0.{1 + number}")
    await world.start_capi()
    await world.until_states(**{name.replace("-", "_"): "active" for name in names})
    assert (await world.group()).metadata.generation == 1
    for name in names:
        machine = await world.get_machine(name)
        assert machine is not None
        assert len(ours_on(machine)) == 3  # two hooks and the finalizer
