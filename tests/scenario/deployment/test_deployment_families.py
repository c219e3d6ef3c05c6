"""Envoys as Deployments with IPv6 and both families: their Service, their listeners, what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from deployment_pod import Relay
from deployment_world import World, new_world

from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.kubernetes.manifests import DeploymentSettings
from podless import ApiServer
from tests.e2e.e2e_backends import refused
from tests.scenario.any_api import embedded_api, until
from tests.xds.world import ask

pytestmark = [pytest.mark.req("K-4"), pytest.mark.req("K-58"), pytest.mark.req("K-28")]

FOUR, SIX = "203.0.113.7", "2001:db8::7"


@pytest.fixture
async def single_stack(directory: Path) -> AsyncIterator[World]:
    """A cluster of IPv4 alone."""
    async with embedded_api(ApiServer(service_range="10.96.0.0/16")) as config, new_world(config, directory) as made:
        yield made


async def families(world: World, key: LoadBalancerKey) -> tuple[str | None, list[str] | None]:
    spec = (await world.service(key)).spec
    return spec.ip_family_policy, spec.ip_families


async def asks(world: World, key: LoadBalancerKey, **spec: object) -> None:
    """Change what the load balancer asks for."""
    await world.admin.merge_patch(TCP_LOAD_BALANCERS, key.namespace, key.name, {"spec": spec})


async def test_the_service_follows_the_families_of_the_load_balancer(world: World) -> None:
    """The same on the embedded API and on a real one; both have a dual-stack range."""
    await world.hub()
    namespace = await world.tenant()
    both = await world.load_balancer(namespace, "both", ipFamilies=["IPv6", "IPv4"], ipFamilyPolicy="RequireDualStack")
    six = await world.load_balancer(namespace, "six", ipFamilies=["IPv6"])
    plain = await world.load_balancer(namespace, "plain")
    assert await families(world, both) == ("RequireDualStack", ["IPv4", "IPv6"])
    assert await families(world, six) == ("SingleStack", ["IPv6"])
    assert await families(world, plain) == ("SingleStack", ["IPv4"])

    await asks(world, plain, ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="PreferDualStack")

    async def has_both() -> bool:
        return await families(world, plain) == ("PreferDualStack", ["IPv4", "IPv6"])

    await until(has_both, what="a second family comes")
    await asks(world, plain, ipFamilies=None, ipFamilyPolicy=None)

    async def has_one() -> bool:
        return await families(world, plain) == ("SingleStack", ["IPv4"])

    await until(has_one, what="and goes")


@pytest.mark.envoy
async def test_requests_arrive_in_both_families(traffic: World) -> None:
    relay = await Relay().start()
    try:
        traffic.settings = DeploymentSettings(xds_host="localhost", xds_port=relay.port)
        hub = await traffic.hub()
        relay.target = hub.provider.server.port
        namespace, backend = await traffic.tenant(), await traffic.backend("one")
        families, policy = ["IPv6", "IPv4"], "RequireDualStack"
        web = await traffic.load_balancer(namespace, "web", backend=backend, ipFamilies=families, ipFamilyPolicy=policy)
        # A cloud names them in an order of its own.
        await traffic.assign(web, FOUR, SIX)
        async with traffic.pod(namespace):
            shown = (await traffic.programmed(web)).status.load_balancer.ingress or ()
            assert [entry.ip for entry in shown] == [SIX, FOUR]
            port = await traffic.proxy_port(web)
            assert [await ask(host, port) for host in ("127.0.0.1", "::1")] == ["one", "one"]

            await asks(traffic, web, ipFamilies=None, ipFamilyPolicy=None)

            async def closed() -> bool:
                return await refused("::1", port)

            await until(closed, what="the IPv6 listener is closed")
            assert await ask("127.0.0.1", port) == "one"
    finally:
        await relay.stop()


async def test_a_cluster_of_one_family_refuses_what_it_has_not(single_stack: World) -> None:
    world = single_stack
    await world.hub()
    namespace = await world.tenant()
    both, six = ["IPv4", "IPv6"], ["IPv6"]
    needs = await world.load_balancer(namespace, "needs", ipFamilies=both, ipFamilyPolicy="RequireDualStack")
    alone = await world.load_balancer(namespace, "alone", ipFamilies=six)
    prefers = await world.load_balancer(
        namespace, "prefers", ipFamilies=[*six, "IPv4"], ipFamilyPolicy="PreferDualStack"
    )
    for key, why in ((needs, "not configured for dual-stack services"), (alone, "not configured on this cluster")):

        async def said(key: LoadBalancerKey = key, why: str = why) -> bool:
            return why in (await world.condition(key))[2]

        await until(said, what=f"{key} says why")
    assert await families(world, prefers) == ("PreferDualStack", ["IPv4"])
