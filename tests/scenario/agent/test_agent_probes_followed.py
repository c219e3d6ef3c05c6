"""A Service that follows the readiness probe of its pods: read from a real API, and only for such Services."""

from __future__ import annotations

import pytest
from agent_world import World, until

from fairlead.api.kubernetes import ENDPOINT_SLICES, PODS
from fairlead.api.meta import JSONObject
from fairlead.model.health import HealthCheckSettings

FOLLOWS = {"fairlead.dev/target": "Pod", "fairlead.dev/follow-readiness-probe": "true"}


async def pod(world: World, name: str, path: str) -> str:
    probe = {"httpGet": {"path": path, "port": 8080}}
    container = {"name": "web", "image": "web", "ports": [{"containerPort": 8080}], "readinessProbe": probe}
    meta: JSONObject = {"name": name, "namespace": "shop", "labels": {"app": "web"}}
    made = await world.member.apply(PODS, {"metadata": meta, "spec": {"containers": [container]}}, manager="kubelet")
    return made.metadata.uid


async def listed(world: World, *uids: str) -> None:
    endpoints = [
        {"addresses": [f"10.1.0.{number}"], "targetRef": {"kind": "Pod", "uid": uid}}
        for number, uid in enumerate(uids, 1)
    ]
    body = {
        "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }
    await world.member.apply(ENDPOINT_SLICES, body, manager="endpointslice-controller")


async def is_checked(world: World, expected: HealthCheckSettings) -> None:
    async def check() -> bool:
        load_balancer = await world.find()
        return load_balancer is not None and load_balancer.spec.health_check == expected

    await until(check, what=f"{expected}")


@pytest.mark.req("F-12")
async def test_targets_are_checked_as_the_probe_of_the_pods_says(world: World) -> None:
    await world.service(annotations=FOLLOWS)
    old = await pod(world, "old", "/healthz")
    await listed(world, old)
    await world.start()
    await is_checked(world, HealthCheckSettings(type="http", path="/healthz"))
    # A rollout that changes the probe: connect, until all pods are of one kind again.
    new = await pod(world, "new", "/ready")
    await listed(world, old, new)
    await is_checked(world, HealthCheckSettings(type="tcp"))
    await world.member.delete(PODS, "shop", "old")
    await listed(world, new)
    await is_checked(world, HealthCheckSettings(type="http", path="/ready"))
