"""A cache of a kind that comes and goes: what happened while it was not followed is seen afterwards."""

from __future__ import annotations

import asyncio

import pytest
from kube_scripted import ScriptedApi, service
from watching import names

from fairlead.api.kubernetes import SERVICES, Service
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import OptionalCache


@pytest.mark.parametrize("offer", ["yes", "no"])
@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_a_deletion_while_a_kind_was_not_served_is_seen_when_it_is_again(
    api: ScriptedApi, cluster: Cluster, version: str, offer: str
) -> None:
    api.watch_list = offer
    for name in ("a", "b"):
        api.put("services", service(name))
    cache: OptionalCache[Service] = OptionalCache(cluster, SERVICES)
    cache.serve("v1")
    task = asyncio.create_task(cache.run())
    try:
        await cache.wait_synced(5)
        await api.until(lambda: bool(api.watches))
        cache.serve("")
        await api.until(lambda: not api.watches)
        api.drop("services", "a", "a")
        api.put("services", service("c"))
        assert names(cache) == ["a", "b"]
        cache.serve(version)
        await api.until(lambda: "c" in names(cache))
        assert names(cache) == ["b", "c"]
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_deletion_between_two_versions_is_seen(api: ScriptedApi, cluster: Cluster) -> None:
    for name in ("a", "b"):
        api.put("services", service(name))
    cache: OptionalCache[Service] = OptionalCache(cluster, SERVICES)
    cache.serve("v1")
    task = asyncio.create_task(cache.run())
    try:
        await cache.wait_synced(5)
        await api.until(lambda: bool(api.watches))
        api.drop("services", "a", "a", notify=False)
        cache.serve("v2")
        await api.until(lambda: any("/v2/" in watch.seen.path for watch in api.watches))
        api.put("services", service("c"))
        await api.until(lambda: "c" in names(cache))
        assert names(cache) == ["b", "c"]
    finally:
        task.cancel()
        await asyncio.wait({task})
