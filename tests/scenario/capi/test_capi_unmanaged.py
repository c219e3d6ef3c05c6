"""Clusters without a control-plane provider, and infrastructure that is left to Fairlead."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from capi_world import NAMESPACE, World

from fairlead.api.kubernetes import SECRETS
from fairlead.api.meta import KubeObject, Resource
from fairlead.kube.discovery import install_crds
from fairlead_demo.worlds.certificates import self_signed
from tests.scenario.any_api import until
from tests.worlds.listening import listening

HOST = "blue.example"
METAL: Resource[Any] = Resource("infrastructure.example", "v1", "MetalCluster", "metalclusters", True, KubeObject)


@asynccontextmanager
async def api_server(directory: Path, answer: list[bytes]) -> AsyncGenerator[tuple[int, bytes]]:
    """Serve ``answer[0]`` over TLS; yields the port and the authority."""
    chain, key = self_signed(HOST)
    for name, content in (("tls.crt", chain), ("tls.key", key)):
        (directory / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 " + answer[0] + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with listening(server) as port:
        yield port, chain


async def secret(world: World, name: str, **data: bytes) -> None:
    encoded = {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}
    await world.management.apply(
        SECRETS, {"metadata": {"name": name, "namespace": NAMESPACE}, "data": encoded}, manager="c"
    )


@pytest.mark.req("C-26", "C-30", "T-C-06")
async def test_t_c_06_a_kubeconfig_and_a_probe_replace_a_control_plane_provider(world: World, tmp_path: Path) -> None:
    async def resolve(_host: str) -> list[str]:
        return ["127.0.0.1"]

    world.resolve = resolve
    answer = [b"500 Internal Server Error"]
    async with api_server(tmp_path, answer) as (port, authority):
        await world.start()
        for name in ("blue-ca", "blue-kubeconfig"):
            await world.forget_secret(name)
        await world.cluster(controlPlaneEndpoint={"host": HOST, "port": port})
        await world.lb()
        missing = await world.until_condition("ControlPlaneInitialized", "False")
        assert "blue-kubeconfig" in missing.message
        await world.until_condition("ControlPlaneReady", "False")
        await secret(world, "blue-ca", tls_crt=authority)
        await secret(world, "blue-kubeconfig", value=b"apiVersion: v1")
        await world.until_condition("ControlPlaneInitialized", "True")
        not_ready = await world.until_condition("ControlPlaneReady", "False", reason="NotReachable")
        assert "/readyz" in not_ready.message
        answer[0] = b"200 OK"
        await world.until_condition("ControlPlaneReady", "True")
        # Where a provider of control planes speaks for the Cluster, Fairlead does not.
        plane = {"spec": {"controlPlaneRef": {"kind": "AnyControlPlane", "name": "blue"}}}
        await world.management.merge_patch(world.clusters, NAMESPACE, "blue", plane)

        async def silent() -> bool:
            return await world.condition("ControlPlaneReady") is None

        await until(silent, what="the condition is left to the provider")
        for name in ("blue-ca", "blue-kubeconfig"):
            await world.forget_secret(name)


@pytest.mark.req("C-10", "C-11", "C-70")
@pytest.mark.parametrize(("manager", "written"), [("fairlead.dev", True), ("another", False)])
async def test_infrastructure_that_leaves_its_load_balancer_to_others(
    world: World, manager: str, written: bool
) -> None:
    """The provider skips externally managed objects; Fairlead writes the endpoint only where it is the manager."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
    }
    names = {"kind": METAL.kind, "plural": METAL.plural, "singular": "metalcluster"}
    spec = {"group": METAL.group, "scope": "Namespaced", "names": names, "versions": [version]}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": METAL.full_name},
        "spec": spec,
    }
    assert not await install_crds(world.user, [crd], "metal")
    await world.start()
    meta = {"name": "blue", "namespace": NAMESPACE, "annotations": {"cluster.x-k8s.io/managed-by": manager}}
    await world.user.apply(METAL, {"metadata": meta, "spec": {}}, manager="user")
    await world.cluster(infrastructureRef={"apiGroup": METAL.group, "kind": METAL.kind, "name": "blue"})
    await world.lb()
    await world.until_condition("EndpointPublished", "True")
    await world.machine("m-1", "10.0.0.1")
    await world.until_states(m_1="active")

    async def provisioned() -> bool:
        return (await world.raw_status(METAL, "blue")).get("initialization") == {"provisioned": True}

    if written:
        await until(provisioned, what="the infrastructure is provisioned")
        endpoint = (await world.raw_spec(METAL, "blue"))["controlPlaneEndpoint"]
        assert f"{endpoint['host']}:{endpoint['port']}" == str((await world.get_cluster()).endpoint)
    else:
        assert (await world.raw_spec(METAL, "blue"), await world.raw_status(METAL, "blue")) == ({}, {})
    await world.user.delete(METAL, NAMESPACE, "blue")


@pytest.mark.req("EDGE-09")
async def test_the_bundle_of_a_health_check_follows_the_authority_of_its_cluster(world: World) -> None:
    await world.start()
    first, second, users = (self_signed(f"{name}.example")[0] for name in ("a", "b", "c"))
    await secret(world, "blue-ca", tls_crt=first)
    await world.cluster()
    await world.lb()

    async def bundle() -> bytes:
        check = (await world.get_lb()).spec.health_check
        return check.ca_bundle.encode() if check is not None else b""

    async def until_bundle(wanted: bytes) -> None:
        async def so() -> bool:
            return await bundle() == wanted

        await until(so, what="the bundle")

    try:
        await until_bundle(first)
        await secret(world, "blue-ca", tls_crt=first + second)
        await until_bundle(first + second)
        await world.stop_capi()
        await secret(world, "blue-ca", tls_crt=second)
        await world.start_capi()
        await until_bundle(second)
        # A bundle that a user gives stays.
        await world.lb(healthCheck={"path": "/readyz", "caBundle": users.decode()})
        await secret(world, "blue-ca", tls_crt=first)
        await world.stop_capi()
        await world.start_capi()
        await world.until_condition("EndpointPublished", "True")
        assert await bundle() == users
    finally:
        await world.forget_secret("blue-ca")


@pytest.mark.req("EDGE-09")
@pytest.mark.parametrize(
    ("of_cluster", "own"), [("fd00:0::5", "fd00::5"), ("API.blue.example.", "api.blue.example")], ids=["IPv6", "name"]
)
async def test_an_endpoint_in_another_spelling_is_the_same(world: World, of_cluster: str, own: str) -> None:
    await world.start()
    await world.cluster(controlPlaneEndpoint={"host": of_cluster, "port": 6443})
    await world.lb(endpoint={"host": own, "port": 6443})

    async def judged() -> str:
        there = await world.condition("EndpointPublished")
        return there.reason if there is not None else ""

    assert await until(judged, what="the endpoint is judged") != "EndpointConflict"
