"""The kinds an API serves: versions in the order of Kubernetes, no subresources, and invalid discovery answers."""

from __future__ import annotations

import asyncio
import json

import pytest

from fairlead.api.clusterapi import TargetObject
from fairlead.api.gateway import GATEWAYS
from fairlead.errors import NotServed, Retry
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.discovery import LOOK_S, Discovery, OptionalCache, find_kind, served_kinds, served_versions
from fairlead.runtime.background import end
from fairlead.runtime.clock import VirtualClock, settle

GROUP = "infrastructure.example"


class Api(Cluster):
    """An API whose discovery is played, by path."""

    answers: dict[str, bytes]

    async def raw(self, method: str, path: str, **_named) -> bytes:
        if path not in self.answers:
            raise NotServed(f"{method} {path}")
        return self.answers[path]


@pytest.fixture
async def api():
    async with Api(ClusterConfig(server="http://127.0.0.1:9"), name="management") as made:
        made.answers = {}
        yield made


async def test_the_version_that_kubernetes_prefers_and_that_has_the_kind_is_used(api: Api):
    api.answers = {"/apis": b'{"groups": []}'}
    assert await find_kind(api, GROUP, "PoolMachine", TargetObject) is None
    versions = [{"version": version} for version in ("v1alpha1", "v1beta1", "odd", "v2", "v1", "v" + "9" * 5_000)]
    rows = [{"name": "poolmachines/status", "kind": "PoolMachine"}, {"name": "poolmachines", "kind": "PoolMachine"}]
    api.answers |= {
        f"/apis/{GROUP}": json.dumps({"versions": versions}).encode(),
        f"/apis/{GROUP}/v1": b"{}",
        f"/apis/{GROUP}/v1beta1": json.dumps({"resources": rows}).encode(),
    }
    assert await served_versions(api, GROUP) == ["v2", "v1", "v1beta1", "v1alpha1", "odd", "v" + "9" * 5_000]
    resource = await find_kind(api, GROUP, "PoolMachine", TargetObject)
    assert resource is not None
    assert (resource.version, resource.plural) == ("v1beta1", "poolmachines")
    assert await find_kind(api, GROUP, "Other", TargetObject) is None


@pytest.mark.req("CORE-01")
@pytest.mark.parametrize("groups", [None, b"{}", b'{"groups": [{"name": "%s", "versions": [{"version": "v1"}]}]}'])
async def test_a_404_without_the_list_of_groups_is_not_an_absent_kind(api: Api, groups: bytes | None):
    if groups is not None:
        api.answers = {"/apis": groups.replace(b"%s", GROUP.encode())}
    with pytest.raises(Retry, match="cannot be read"):
        await served_kinds(api, GROUP, "v1")
    with pytest.raises(Retry, match="cannot be read"):
        await find_kind(api, GROUP, "PoolMachine", TargetObject)


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b'{"versions": 3}', b"\xff"])
async def test_invalid_discovery_is_retried_with_a_next_step(api: Api, body: bytes):
    api.answers = {f"/apis/{GROUP}": body, f"/apis/{GROUP}/v1": body.replace(b"versions", b"resources")}
    with pytest.raises(Retry, match=r"management at /apis/infrastructure\.example cannot be read"):
        await find_kind(api, GROUP, "PoolMachine", TargetObject)
    with pytest.raises(Retry, match="kubectl get --raw"):
        await served_kinds(api, GROUP, "v1")


async def test_discovery_is_asked_less_often_while_nothing_changes():
    clock, looks = VirtualClock(), list[float]()
    async with Api(ClusterConfig(server="http://127.0.0.1:9"), name="member", clock=clock) as api:
        api.answers = {"/apis": b'{"groups": []}'}
        cache = OptionalCache(api, GATEWAYS)
        discovery = Discovery(api, GATEWAYS.group, {cache: ("v1",)}, looked=lambda: looks.append(clock.monotonic()))
        task = asyncio.create_task(discovery.run())
        try:
            await settle()
            for _ in range(600):
                await clock.advance(1.0)
            assert len(looks) <= 50, "3 s apart it would be asked 200 times"
            rows = [{"name": GATEWAYS.plural, "kind": GATEWAYS.kind}]
            api.answers |= {
                f"/apis/{GATEWAYS.group}": b'{"versions": [{"version": "v1"}]}',
                f"/apis/{GATEWAYS.group}/v1": json.dumps({"resources": rows}).encode(),
            }
            await clock.advance(5 * LOOK_S)
            assert cache.served
            api.answers = {"/apis": b'{"groups": []}'}
            cache.on_not_served()
            await settle()
            assert not cache.served
        finally:
            await end(task)
