"""Indexes, callbacks and transforms of a watch cache, and two clusters at once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from kube_scripted import ScriptedApi, service
from watching import QuickClock, running

from fairlead.api.kubernetes import SERVICES, Service
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster

# --- looking things up ----------------------------------------------------------------------------------------


async def test_indexes_follow_every_change(api: ScriptedApi, cluster: Cluster) -> None:
    indexes = {"type": lambda obj: [obj.spec.type], "ports": lambda obj: [p.port for p in obj.spec.ports or ()]}
    for name in ("c", "a", "b"):
        api.put("services", service(name))
    async with running(cluster, indexes=indexes) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        assert [obj.metadata.name for obj in cache.by_index("type", "LoadBalancer")] == ["a", "b", "c"]
        api.put("services", service("b", type="ClusterIP", port=81))
        api.drop("services", "a", "c")
        await api.until(lambda: len(changes) == 5)
        assert [obj.metadata.name for obj in cache.by_index("type", "LoadBalancer")] == ["a"]
        assert [obj.metadata.name for obj in cache.by_index("type", "ClusterIP")] == ["b"]
        assert [obj.metadata.name for obj in cache.by_index("ports", 81)] == ["b"]
        assert list(cache.by_index("type", "ExternalName")) == []


async def test_the_callback_sees_the_store_after_the_change(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("a"))
    cache: WatchCache[Service] = WatchCache(cluster, SERVICES)
    seen: list[int] = []
    cache.on_change(lambda _old, _new: seen.append(len(cache)))
    task = asyncio.create_task(cache.run())
    await cache.wait_synced(5)
    await api.until(lambda: bool(api.watches))
    api.drop("services", "a", "a")
    await api.until(lambda: seen == [1, 0])
    task.cancel()


async def test_a_callback_on_a_part_sees_only_changes_of_that_part(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("a"))
    seen: list[tuple[str, str]] = []
    async with running(cluster) as (cache, changes):
        cache.on_object(lambda obj: seen.append((obj.metadata.name, obj.spec.type)), part=lambda obj: obj.spec.type)
        await api.until(lambda: bool(api.watches))
        api.put("services", service("a", port=81))
        api.put("services", service("a", type="ClusterIP"))
        api.put("services", service("b"))
        api.drop("services", "a", "a")
        await api.until(lambda: len(changes) == 5)
        assert seen == [("a", "ClusterIP"), ("b", "LoadBalancer"), ("a", "ClusterIP")]


async def test_objects_are_transformed_before_they_are_stored(api: ScriptedApi, cluster: Cluster) -> None:
    def smaller(obj: Service) -> Service:
        return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, ports=None))

    api.put("services", service("a"))
    async with running(cluster, transform=smaller) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        api.put("services", service("b"))
        await api.until(lambda: len(changes) == 2)
        assert all(obj.spec.ports is None for obj in cache.values())


@pytest.mark.req("B06")
async def test_two_clusters_fail_apart(api: ScriptedApi, clock: QuickClock) -> None:
    async with ScriptedApi() as other:
        api.put("services", service("a"))
        other.answer(lambda _: True, 503, "ServiceUnavailable", times=9999)
        async with (
            api.cluster(clock=clock) as first,
            other.cluster(name="two", clock=clock) as two,
            running(first) as (good, _),
            running(two, wait=False) as (bad, changes),
        ):
            await api.until(lambda: bool(bad.problem))
            assert good.synced
            assert not bad.synced
            assert changes == []
