"""Routes of Gateway API whose backend is a ServiceImport."""

from __future__ import annotations

from typing import Any

import pytest
from multicluster_world import USER, Member, new_set, until

from fairlead.api.gateway import GATEWAY_CLASSES, GATEWAYS, HTTP_ROUTES
from fairlead.api.httploadbalancer import LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.names import GATEWAY_CONTROLLER
from fairlead.kube.discovery import install_crds
from podless.offline import gateway_definitions

IMPORT = {"group": "multicluster.x-k8s.io", "kind": "ServiceImport", "name": "hello", "port": 42}


@pytest.mark.req("K-55", "MC-7")
async def test_a_route_leads_to_the_pods_of_all_members() -> None:
    async with new_set("west", "east") as world:
        west, east = world.members["west"], world.members["east"]
        assert await install_crds(east.user, gateway_definitions("GatewayClass", "Gateway", "HTTPRoute"), "test") == []
        await _route(east)
        assert (await _resolved(east)).reason == "BackendNotFound"
        for member, pod in ((west, "10.1.0.1"), (east, "10.2.0.1")):
            await member.service("hello", pod)
            await member.export()
        assert (await _resolved(east, "True")).reason == "ResolvedRefs"

        async def pods() -> bool:
            slices = await world.hub_user.list(
                ENDPOINT_SLICES, "tenant-east", label_selector="fairlead.dev/backend=shop.clusterset-hello"
            )
            endpoints = [endpoint for endpoint_slice in slices for endpoint in endpoint_slice.endpoints or ()]
            addresses = {address for endpoint in endpoints for address in endpoint.addresses or ()}
            return addresses == {"10.1.0.1", "10.2.0.1"}

        await until(pods, what="the pods of both members are backends")
        (route,) = await world.hub_user.list(LOAD_BALANCER_ROUTES, "tenant-east")
        assert [backend.service for backend in route.spec.backends] == ["shop/clusterset-hello"]
        for member in (west, east):
            await member.unexport()
        assert (await _resolved(east)).reason == "BackendNotFound"


async def _route(member: Member) -> None:
    await member.user.apply(
        GATEWAY_CLASSES,
        {"metadata": {"name": "fairlead"}, "spec": {"controllerName": GATEWAY_CONTROLLER}},
        manager=USER,
    )
    meta = {"name": "web", "namespace": "shop"}
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    gateway = {"metadata": meta, "spec": {"gatewayClassName": "fairlead", "listeners": [listener]}}
    await member.user.apply(GATEWAYS, gateway, manager=USER)
    spec = {"parentRefs": [{"name": "web"}], "rules": [{"backendRefs": [IMPORT]}]}
    await member.user.apply(HTTP_ROUTES, {"metadata": meta, "spec": spec}, manager=USER)


async def _resolved(member: Member, status: str = "False") -> Any:
    async def shown() -> Any:
        route = await member.user.get(HTTP_ROUTES, "shop", "web")
        conditions = [each for parent in route.status.parents or () for each in parent.conditions or ()]
        return next((each for each in conditions if (each.type, each.status) == ("ResolvedRefs", status)), None)

    return await until(shown, what=f"ResolvedRefs={status}")
