"""Clusters that get a LoadBalancer by an annotation, or because a policy selects them."""

from __future__ import annotations

import pytest
from capi_world import NAMESPACE, World

from fairlead.api.clusterapi import CLUSTER_POLICIES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from tests.scenario.any_api import until

CONTROL_PLANE = {"cluster.x-k8s.io/control-plane": ""}


@pytest.mark.req("C-23", "C-59")
async def test_a_cluster_with_the_annotation_gets_everything_by_itself(world: World) -> None:
    await world.start()
    await world.cluster(annotations={"fairlead.dev/load-balancer-class": "edge"})
    await world.until_condition("EndpointPublished", "True", name="blue")
    assert (await world.get_cluster()).endpoint.host == (await world.get_lb("blue")).status.address
    await world.machine("m-1", "10.0.0.1", labels=CONTROL_PLANE, behind=())
    await world.machine("w-1", "10.0.0.9", behind=())
    await world.until_states("blue", m_1="active")
    await world.until_served("10.0.0.1:6443", name="blue")
    owners = (await world.get_lb("blue")).metadata.owner_references or []
    assert [each.kind for each in owners] == ["Cluster"]


@pytest.mark.req("C-5", "C-12", "C-59")
async def test_a_policy_makes_one_for_each_cluster_that_it_selects(world: World) -> None:
    await world.start()
    await world.cluster("plain")
    await world.cluster("old", controlPlaneEndpoint={"host": "198.51.100.1", "port": 6443})
    spec = {"className": "edge", "infrastructureKinds": ["MetalCluster"]}
    body = {"metadata": {"name": "metal", "namespace": NAMESPACE}, "spec": spec}
    await world.user.apply(CLUSTER_POLICIES, body, manager="user")
    metal = {"kind": "MetalCluster", "name": "any"}
    for name in ("red", "green"):
        await world.cluster(name, infrastructureRef=metal)
    for name in ("red", "green"):
        await world.until_condition("EndpointPublished", "True", name=name)

    async def counted() -> bool:
        policy = await world.user.get(CLUSTER_POLICIES, NAMESPACE, "metal")
        accepted = [each.status for each in policy.status.conditions or () if each.type == "Accepted"]
        return policy.status.load_balancers == 2 and accepted == ["True"]

    await until(counted, what="the policy counts what it has made")
    made = {each.metadata.name for each in await world.user.list(LOAD_BALANCERS)}
    assert made == {"red", "green"}
    # What it has made belongs to the Clusters: it outlives the policy.
    await world.user.delete(CLUSTER_POLICIES, NAMESPACE, "metal")
    await world.cluster("late", infrastructureRef=metal)
    await world.machine("m-1", "10.0.0.1", cluster="red", labels=CONTROL_PLANE, behind=())
    await world.until_states("red", m_1="active")
    assert {each.metadata.name for each in await world.user.list(LOAD_BALANCERS)} == made
