"""The endpoint of a Cluster: published, copied, in conflict, claimed twice; and what is paused."""

from __future__ import annotations

import pytest
from capi_world import NAMESPACE, World, new_world

from fairlead.api.clusterapi import CLUSTERS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.errors import Invalid
from tests.scenario.any_api import embedded_api, until

USER = {"host": "api.blue.example", "port": 6443}


@pytest.mark.req("C-24", "C-28", "C-29", "C-34", "C-53", "T-C-02")
async def test_t_c_02_an_endpoint_of_the_user_is_copied_and_stays(world: World) -> None:
    await world.start()
    await world.cluster(controlPlaneEndpoint=USER)
    await world.lb()
    await world.until_condition("EndpointPublished", "True")
    load_balancer = await world.get_lb()
    assert str(load_balancer.spec.endpoint) == "api.blue.example:6443"
    # Its own address is shown, for the DNS record of that name.
    assert load_balancer.status.address.startswith("192.0.2.")
    assert str((await world.get_cluster()).endpoint) == "api.blue.example:6443"
    await world.until_condition("IsReachable", "False", reason="NameNotResolved")


@pytest.mark.req("C-25", "T-C-03")
async def test_t_c_03_different_endpoints_are_an_error_and_nothing_is_written(world: World) -> None:
    await world.start()
    await world.cluster(controlPlaneEndpoint=USER)
    await world.lb(endpoint={"host": "192.0.2.5", "port": 6443})
    condition = await world.until_condition("EndpointPublished", "False", reason="EndpointConflict")
    assert "192.0.2.5:6443" in condition.message
    assert "api.blue.example:6443" in condition.message
    assert str((await world.get_cluster()).endpoint) == "api.blue.example:6443"
    assert str((await world.get_lb()).spec.endpoint) == "192.0.2.5:6443"


@pytest.mark.req("C-24", "C-27", "C-34")
async def test_an_endpoint_on_the_load_balancer_is_published(world: World) -> None:
    await world.start()
    await world.cluster()
    await world.lb(endpoint={"host": "192.0.2.5", "port": 6443})
    await world.until_condition("EndpointPublished", "True")
    assert str((await world.get_cluster()).endpoint) == "192.0.2.5:6443"
    # It is an address of the pool, so the load balancer has it.
    assert (await world.get_lb()).status.address == "192.0.2.5"


@pytest.mark.req("C-12", "C-68")
async def test_an_endpoint_that_is_set_cannot_be_changed(world: World) -> None:
    await world.start()
    await world.lb(endpoint=USER)
    with pytest.raises(Invalid, match="endpoint is immutable"):
        await world.lb(endpoint={"host": "other.example", "port": 6443})
    with pytest.raises(Invalid, match="clusterName is immutable"):
        await world.lb(cluster="red", endpoint=USER)


@pytest.mark.req("C-25")
async def test_two_load_balancers_that_claim_one_endpoint(world: World) -> None:
    await world.start()
    await world.cluster()
    await world.lb("first")
    await world.until_condition("EndpointPublished", "True", name="first")
    published = str((await world.get_cluster()).endpoint)
    await world.lb("second")
    second = await world.until_condition("EndpointPublished", "False", name="second")
    claims = {"first": (await world.get_lb("first")).metadata.creation_timestamp}
    if claims["first"] != (await world.get_lb("second")).metadata.creation_timestamp:
        assert second.reason in {"EndpointClaimed", "Pending"}
    await world.until_condition("EndpointPublished", "False", name="second", reason="EndpointClaimed")
    assert str((await world.get_cluster()).endpoint) == published


@pytest.mark.req("C-33", "C-70", "T-C-07")
async def test_t_c_07_a_paused_cluster_is_left_alone_and_goes_on_when_it_is_not(world: World) -> None:
    await world.start()
    await world.cluster()
    await world.lb()
    await world.machine("m-1", "10.0.0.1")
    await world.until_states(m_1="active")
    await world.user.merge_patch(CLUSTERS, NAMESPACE, "blue", {"spec": {"paused": True}})
    await world.until_condition("MembersResolved", "False", reason="PausedByUser")
    await world.machine("m-2", "10.0.0.2")
    await world.delete_machine("m-1")

    async def counted() -> bool:
        return (await world.get_lb()).status.targets == 2

    await until(counted, what="the status shows both machines")
    assert world.at_proxies() == {"10.0.0.1:6443": False}
    second = await world.get_machine("m-2")
    assert second is not None
    assert second.metadata.finalizers is None
    await world.user.merge_patch(CLUSTERS, NAMESPACE, "blue", {"spec": {"paused": False}})
    await world.until_free("m-1")
    await world.until_served("10.0.0.2:6443")


@pytest.mark.req("C-3", "C-4", "C-10", "T-C-08")
async def test_t_c_08_infrastructure_of_others_makes_no_difference(world: World) -> None:
    await world.start()
    await world.cluster(annotations={"cluster.x-k8s.io/managed-by": "another"})
    await world.lb()
    await world.machine("m-1", "10.0.0.1")
    await world.until_served("10.0.0.1:6443")
    await world.until_condition("EndpointPublished", "True")


@pytest.mark.req("C-5", "C-12")
async def test_unrelated_clusters_and_load_balancers_are_unchanged(world: World) -> None:
    await world.start()
    await world.cluster("plain")
    await world.machine("p-1", "10.0.0.7", cluster="plain", behind=())
    body = {
        "metadata": {"name": "shared", "namespace": NAMESPACE},
        "spec": {"className": "cloud", "listeners": [{"port": 80, "protocol": "TCP"}]},
    }
    await world.user.apply(LOAD_BALANCERS, body, manager="user")
    await world.cluster()
    await world.lb()
    await world.until_condition("EndpointPublished", "True")
    shared = await world.get_lb("shared")
    assert shared.metadata.finalizers in (None, ["fairlead.dev/cleanup"])
    assert (shared.status.members, shared.status.target_kind) == (None, "")
    assert not (await world.get_cluster("plain")).endpoint.given
    machine = await world.get_machine("p-1")
    assert machine is not None
    assert machine.metadata.annotations is None


@pytest.mark.req("C-1")
async def test_cluster_api_may_be_installed_later_and_in_its_older_version() -> None:
    async with embedded_api() as api, new_world(api, versions=("v1beta1",), install=False) as world:
        await world.start()
        await world.lb()
        assert world.capi is not None
        assert "install Cluster API" in world.capi.capi.not_ready()[0]
        await world.install()
        await world.cluster()
        await world.machine("m-1", "10.0.0.1")
        await world.until_served("10.0.0.1:6443")
        assert world.capi.capi.not_ready() == []


@pytest.mark.req("C-2", "C-9", "C-13", "C-58")
async def test_another_provider_is_another_class_and_entries_of_others_stay(world: World) -> None:
    await world.start()
    await world.cluster(controlPlaneEndpoint=USER)
    await world.lb(className="cloud", parameters={"zone": "a"})
    await world.machine("m-1", "10.0.0.1")
    await world.machine("m-2", "10.0.0.2")
    await until(
        lambda: world.at_cloud() == {"10.0.0.1:6443": False, "10.0.0.2:6443": False}, what="both are at the cloud"
    )
    await world.delete_machine("m-1")
    await world.until_free("m-1")
    await until(lambda: world.at_cloud() == {"10.0.0.2:6443": False}, what="m-1 has left the cloud")
