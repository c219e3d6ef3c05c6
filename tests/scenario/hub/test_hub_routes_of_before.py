"""Routes that were stored before the values of their fields had bounds, and that a hub of today cannot read."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hub_http_world import KEY, NAMESPACE, at_cloud, endpoints, load_balancer, route, says
from hub_world import TOKEN, HubWorld, RunningHub

from fairlead.api.httploadbalancer import LOAD_BALANCER_ROUTES
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import CRDS, NAMESPACES
from fairlead.errors import Invalid
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.discovery import install_crds
from podless import ApiServer


def unbounded(schema: Any) -> Any:
    """Return a schema without bounds of numbers."""
    if isinstance(schema, dict):
        return {name: unbounded(each) for name, each in schema.items() if name not in ("minimum", "maximum")}
    return [unbounded(each) for each in schema] if isinstance(schema, list) else schema


def served(world: HubWorld) -> list[str]:
    l7 = world.cloud.load_balancers[KEY].spec.l7
    assert l7 is not None
    return [each.name for each in l7.routes]


async def store_as_before(user: Cluster) -> None:
    """Write a value beyond its bound while the kind has none, as an older hub had it."""
    name = f"{LOAD_BALANCER_ROUTES.plural}.{LOAD_BALANCER_ROUTES.group}"
    crd = json.loads(await user.raw("GET", CRDS.path("", name)))
    await user.replace(CRDS, crd | {"spec": unbounded(crd["spec"])})
    old = json.loads(await user.raw("GET", LOAD_BALANCER_ROUTES.path(NAMESPACE, "shop.old")))
    old["spec"]["rules"][0]["filters"] = {"cors": {"allowOrigins": ["*"], "maxAge": -5}}
    with pytest.raises(Invalid, match="maxAge"):  # it is stored, and the answer is one that this client cannot read
        await user.replace(LOAD_BALANCER_ROUTES, old)


async def test_a_stored_route_of_that_kind_can_be_corrected_or_deleted(tmp_path: Path):
    async def running(stack: AsyncExitStack) -> Cluster:
        server = ApiServer(data_dir=tmp_path, admin_token=TOKEN)
        config = ClusterConfig(server=await server.start(), sign_in=bearer(TOKEN))
        stack.push_async_callback(server.stop)
        user = Cluster(config, name="user")
        stack.push_async_callback(user.aclose)
        return user

    spec = {"loadBalancer": "shop.gw", "rules": [{}]}
    body = {"metadata": {"name": "shop.old", "namespace": NAMESPACE}, "spec": spec}
    async with AsyncExitStack() as stack:
        user = await running(stack)
        assert await install_crds(user, all_crds(), "an older release") == []
        await user.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await user.create(LOAD_BALANCER_ROUTES, body)
        await store_as_before(user)
    for correct in (True, False):
        async with AsyncExitStack() as stack:
            user = await running(stack)
            assert await install_crds(user, all_crds(), "today") == []
            raw = json.loads(await user.raw("GET", LOAD_BALANCER_ROUTES.path(NAMESPACE, "shop.old")))
            assert raw["spec"]["rules"][0]["filters"]["cors"]["maxAge"] == -5
            with pytest.raises(Invalid, match="maxAge"):
                await user.merge_patch(
                    LOAD_BALANCER_ROUTES, NAMESPACE, "shop.old", {"spec": {"rules": raw["spec"]["rules"]}}
                )
            if correct:
                await user.apply(LOAD_BALANCER_ROUTES, body, manager="agent", force=True)
                await user.get(LOAD_BALANCER_ROUTES, NAMESPACE, "shop.old")
                await store_as_before(user)
            else:
                await user.delete(LOAD_BALANCER_ROUTES, NAMESPACE, "shop.old")
                assert await user.list(LOAD_BALANCER_ROUTES) == []


@pytest.mark.parametrize("mended", [True, False], ids=["corrected", "deleted"])
async def test_a_stored_value_beyond_its_bound_stops_only_its_route(world: HubWorld, hub: RunningHub, mended: bool):
    await load_balancer(world)
    await route(world, "shop.good", path="/good")
    await route(world, "shop.old", path="/old", service="shop/old")
    await endpoints(world, "10.1.0.1")
    await endpoints(world, "10.1.0.2", service="shop/old")
    await says(world, "Programmed", "True")
    await world.stop(hub)
    await store_as_before(world.user)
    await world.start()
    unresolved = await says(world, "ResolvedRefs", "False")
    assert unresolved.reason == "Invalid"
    for text in ("LoadBalancerRoute", "shop.old", "Expected `int` >= -1", "$.spec.rules[0].filters.cors.maxAge"):
        assert text in unresolved.message
    await route(world, "shop.good", path="/better")
    await route(world, "shop.new", path="/new")
    await endpoints(world, "10.1.0.1", "10.1.0.3")
    await world.until(lambda: served(world) == ["shop.good", "shop.new"])
    await world.until(lambda: "shop/web:80 10.1.0.3:8080" in at_cloud(world))
    if mended:
        filters = {"cors": {"allowOrigins": ["*"], "maxAge": 5}}
        rules = [
            {"matches": [{"path": {"value": "/old"}}], "backends": [{"backend": "shop/old:80"}], "filters": filters}
        ]
        await world.user.merge_patch(LOAD_BALANCER_ROUTES, NAMESPACE, "shop.old", {"spec": {"rules": rules}})
        await world.until(lambda: served(world) == ["shop.good", "shop.new", "shop.old"])
    else:
        await world.user.delete(LOAD_BALANCER_ROUTES, NAMESPACE, "shop.old")
    await says(world, "ResolvedRefs", "True")
