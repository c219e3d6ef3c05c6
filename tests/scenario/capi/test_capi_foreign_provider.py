"""A load balancer that a provider serves that is not Fairlead's: a process that only knows the contract."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from capi_world import NAME, NAMESPACE, STATUS, World

from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import KubeObject, Resource
from fairlead.errors import Invalid, NotFound
from fairlead.kube.discovery import install_crds
from tests.scenario.any_api import until

GROUP = "infrastructure.far.example"
FAR: Resource[Any] = Resource(GROUP, "v1", "FarLoadBalancer", "farloadbalancers", True, KubeObject)
FAR_CLUSTERS: Resource[Any] = Resource(GROUP, "v1", "FarCluster", "farclusters", True, KubeObject)
REF = {"apiGroup": GROUP, "kind": "FarLoadBalancer", "name": "far"}


def _crd(resource: Resource[Any]) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": resource.kind, "plural": resource.plural, "singular": resource.kind.lower()}
    spec = {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.full_name},
        "spec": spec,
    }


@asynccontextmanager
async def provider(world: World, authority: bytes) -> AsyncGenerator[None]:
    """Run the other provider next to the world; Fairlead serves no class for it."""
    assert not await install_crds(world.user, [_crd(FAR), _crd(FAR_CLUSTERS)], "far")
    access = await world.api.sign_in(None)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.worlds.foreign_provider",
        world.api.server,
        base64.b64encode(authority).decode(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(access.headers["Authorization"].removeprefix("Bearer ").encode() + b"\n")
    await process.stdin.drain()
    assert await process.stdout.readline() == b"ready\n"
    try:
        yield
    finally:
        process.kill()
        await process.wait()
        for resource in (FAR, FAR_CLUSTERS):
            for obj in await world.user.list(resource):
                with contextlib.suppress(NotFound):
                    await world.user.merge_patch(
                        resource, obj.metadata.namespace, obj.metadata.name, {"metadata": {"finalizers": None}}
                    )
                    await world.user.delete(resource, obj.metadata.namespace, obj.metadata.name)


async def make_far(world: World, **spec: Any) -> None:
    body = {"metadata": {"name": "far", "namespace": NAMESPACE}, "spec": spec}
    await world.user.apply(FAR, body, manager="user")


async def make_lb(world: World, **spec: Any) -> None:
    whole = {"clusterName": "blue", "infrastructureRef": REF, "listeners": [{"port": 6443, "protocol": "TCP"}], **spec}
    body = {"metadata": {"name": "api", "namespace": NAMESPACE}, "spec": whole}
    await world.user.apply(LOAD_BALANCERS, body, manager="user")


async def credential(world: World) -> str:
    there = await world.raw_status(FAR, "far")
    return there.get("credential", "")


@pytest.mark.req("C-2", "C-3", "C-18", "C-19", "C-27", "C-28", "T-C-04")
async def test_a_provider_that_only_knows_the_contract_serves_a_cluster(world: World, authority: bytes) -> None:
    await world.start()
    async with provider(world, authority):
        await world.cluster(
            infrastructureRef={"apiGroup": "infrastructure.example", "kind": "MetalCluster", "name": "b"}
        )
        await make_lb(world)

        async def is_missed() -> bool:
            return "spec.infrastructureRef" in (await world.until_condition("Exists", "False")).message

        await until(is_missed, what="the object in spec.infrastructureRef is missed once its kind has been read")
        await make_far(world)
        # Pulled up level by level.
        await world.until_condition("EndpointPublished", "True")
        endpoint = str((await world.get_lb()).spec.endpoint)
        assert endpoint.startswith("203.0.113.")
        assert str((await world.get_cluster()).endpoint) == endpoint
        await world.machine("m-1", "10.0.0.1")
        await world.machine("m-2", "10.0.0.2")
        await world.until_states(m_1="active", m_2="active")

        async def counted() -> bool:
            status = (await world.get_lb()).status
            return (status.targets, status.active_targets) == (2, 2)

        await until(counted, what="the provider's counts are shown")
        await world.until_condition("MatchesConfig", "True")
        machine = await world.get_machine("m-1")
        assert machine is not None
        # The marks are the provider's; none of ours are next to them, and the hub has nothing of it.
        assert machine.metadata.finalizers == ["far.example/member"]
        assert (machine.annotation(NAME), machine.annotation(STATUS)) == ("far", "active")
        assert world.at_proxies() == {}
        await world.delete_machine("m-1")
        await world.until_states(m_2="active")
        await world.user.delete(LOAD_BALANCERS, NAMESPACE, "api")
        await world.until_gone()
        with pytest.raises(NotFound):
            await world.user.get(FAR, NAMESPACE, "far")
        left = await world.get_machine("m-2")
        assert left is not None
        assert left.metadata.finalizers in (None, [])


@pytest.mark.req("C-24", "C-25", "C-28", "T-C-02", "T-C-03")
async def test_an_endpoint_from_above_is_copied_down_and_another_below_is_an_error(
    world: World, authority: bytes
) -> None:
    await world.start()
    async with provider(world, authority):
        await world.cluster(controlPlaneEndpoint={"host": "blue.example", "port": 6443})
        await make_far(world)
        await make_lb(world)

        async def copied() -> bool:
            return (await world.raw_spec(FAR, "far")).get("endpoint") == {"host": "blue.example", "port": 6443}

        # Before the provider knows whose it is, it writes no endpoint of its own.
        await until(copied, what="the endpoint is copied down")
        await world.until_condition("EndpointPublished", "True")
        other = {"spec": {"endpoint": {"host": "198.51.100.9", "port": 6443}}}
        await world.user.merge_patch(FAR, NAMESPACE, "far", other)
        conflict = await world.until_condition("EndpointPublished", "False", reason="EndpointConflict")
        assert "198.51.100.9:6443" in conflict.message
        assert str((await world.get_cluster()).endpoint) == "blue.example:6443"


@pytest.mark.req("C-55", "T-C-23")
@pytest.mark.parametrize(
    ("own", "infrastructure", "used"),
    [
        ({"credentialRef": {"name": "explicit"}}, "FarCluster", "explicit"),
        ({"credentialRef": {"name": "explicit"}}, "MetalCluster", "explicit"),
        ({}, "FarCluster", "of-cluster"),
        ({}, "MetalCluster", "default"),
    ],
)
async def test_t_c_23_the_order_of_credentials(
    world: World, authority: bytes, own: dict[str, Any], infrastructure: str, used: str
) -> None:
    """The provider's own setting, else that of a cluster of the same provider, else the provider's default."""
    await world.start()
    async with provider(world, authority):
        cluster = {"metadata": {"name": "b", "namespace": NAMESPACE}, "spec": {"credentialRef": {"name": "of-cluster"}}}
        await world.user.apply(FAR_CLUSTERS, cluster, manager="user")
        await world.cluster(infrastructureRef={"apiGroup": GROUP, "kind": infrastructure, "name": "b"})
        await make_far(world, **own)
        await make_lb(world)
        await world.until_condition("EndpointPublished", "True")

        async def chosen() -> bool:
            return await credential(world) == used

        await until(chosen, what=f"the provider uses {used}")


async def test_a_class_or_a_reference_and_not_both(world: World) -> None:
    with pytest.raises(Invalid, match="one of className and infrastructureRef"):
        await make_lb(world, className="edge")
    with pytest.raises(Invalid, match="infrastructureRef needs clusterName"):
        await make_lb(world, clusterName="")
