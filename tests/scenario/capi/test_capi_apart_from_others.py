"""What the load balancers of Clusters have nothing to do with: tenants, DNS servers, the providers of others."""

from __future__ import annotations

import asyncio

import pytest
from capi_world import World

from fairlead.api.hostname import HOSTNAMES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import condition_of
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.translate.tenant import agent_rules
from tests.scenario.any_api import until
from tests.worlds.listening import listening


@pytest.mark.req("C-53", "T-C-22")
async def test_t_c_22_without_a_zone_no_record_is_written_and_the_endpoint_is_published(world: World) -> None:
    asked: list[str] = []

    async def resolve(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    world.resolve = resolve
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with listening(server) as port:
        await world.start()
        await world.cluster(controlPlaneEndpoint={"host": "blue.example", "port": port})
        await world.lb()
        await world.until_condition("EndpointPublished", "True")
        # The name is only asked for, by the probe; how it comes to resolve is not asked.
        await world.until_condition("IsReachable", "True")
    assert set(asked) == {"blue.example"}

    async def left_to_others() -> bool:
        """The name has an owner, as every name that is asked for; where its records are is not the hub's matter."""
        there = await world.user.get(HOSTNAMES, SYSTEM_NAMESPACE, "blue.example")
        return any(each.reason == "NoSuchZone" for each in there.status.conditions or ())

    await until(left_to_others, what="the name is in no zone of the hub")
    assert (await world.get_lb()).status.names.conditions is None


@pytest.mark.req("C-57")
def test_the_rights_of_a_member_have_nothing_of_clusters() -> None:
    """An agent signs in at the hub for its Services; load balancers of Clusters are none of them."""
    for leaving in (True, False):
        for rule in agent_rules(leaving=leaving):
            assert "cluster.x-k8s.io" not in rule["apiGroups"]
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
            clusters = {"loadbalancers", "backendgroups", "clusterloadbalancerpolicies"}
            assert clusters.isdisjoint(rule["resources"])


@pytest.mark.req("C-14")
async def test_which_providers_there_are_can_be_listed(world: World) -> None:
    await world.start()
    body = {"metadata": {"name": "wrong"}, "spec": {"provider": "nowhere"}}
    await world.user.apply(LOAD_BALANCER_CLASSES, body, manager="operator")

    async def listed() -> bool:
        classes = {each.metadata.name: each for each in await world.user.list(LOAD_BALANCER_CLASSES)}
        wrong = condition_of(classes["wrong"].status.conditions, "Accepted")
        providers = {name: each.spec.provider for name, each in classes.items()}
        known = providers.items() >= {"edge": "envoy", "cloud": "memory"}.items()
        return (
            known
            and wrong is not None
            and wrong.reason == "NoSuchProvider"
            and "it runs: " in wrong.message
            and "envoy" in wrong.message
        )

    await until(listed, what="the classes say what there is, and the one that is wrong names the providers")
