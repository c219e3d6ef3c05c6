"""The state of a watch cache: how it begins, how it follows changes, and how it is looked up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kube_scripted import ScriptedApi, bookmark, line, service
from structlog.testing import capture_logs
from watching import QuickClock, lists, names, relists, running

from fairlead.api.kubernetes import SERVICES, Service
from fairlead.errors import Unreachable
from fairlead.kube.cache import CacheSettings, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.runtime.clock import VirtualClock

# --- the first state ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offer", ["yes", "no", "ignored"])
async def test_the_first_state_by_watchlist_or_by_list(api: ScriptedApi, cluster: Cluster, offer: str) -> None:
    api.watch_list = offer
    for name in ("a", "b", "c"):
        api.put("services", service(name))
    async with running(cluster, settings=CacheSettings(first_idle_s=0.1)) as (cache, changes):
        assert names(cache) == ["a", "b", "c"]
        assert sorted(changes, key=str) == [(None, "a"), (None, "b"), (None, "c")]
        assert lists(api) == (0 if offer == "yes" else 1)
        await api.until(lambda: bool(api.watches))
        api.put("services", service("d"))
        await api.until(lambda: len(cache) == 4)
        assert changes[-1] == (None, "d")


@pytest.mark.parametrize("offer", ["yes", "no", "ignored"])
async def test_nothing_is_a_state_too(api: ScriptedApi, cluster: Cluster, offer: str) -> None:
    api.watch_list = offer
    async with running(cluster, settings=CacheSettings(first_idle_s=0.05)) as (cache, changes):
        assert cache.synced
        assert len(cache) == 0
        assert changes == []


@pytest.mark.req("I-1")
async def test_not_synced_before_the_server_has_sent_everything(api: ScriptedApi, cluster: Cluster) -> None:
    api.watch_list = "ignored"
    api.put("services", service("a"))
    async with running(cluster, settings=CacheSettings(first_idle_s=60), wait=False) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        with pytest.raises(Unreachable, match="have not arrived within"):
            await cache.wait_synced(0.05)
        assert not cache.synced
        assert changes == []
        api.watches[0].end()  # broken off half-way: still nothing that could be believed
        await api.until(lambda: len(api.requests("GET", watch=True)) > 1)
        assert not cache.synced
        api.notify("services", bookmark(api.version, end=True))
        await cache.wait_synced(5)
        assert names(cache) == ["a"]


async def test_age_and_problem_before_and_after(api: ScriptedApi) -> None:
    virtual = VirtualClock()
    async with api.cluster(clock=virtual) as cluster:
        cache: WatchCache[Service] = WatchCache(cluster, SERVICES)
        assert cache.age_s == float("inf")
        task = asyncio.create_task(cache.run())
        await virtual.advance_until(lambda: cache.synced)
        await virtual.advance(42)
        assert cache.age_s >= 42
        await api.until(lambda: bool(api.watches))
        api.notify("services", bookmark(api.version))
        await api.until(lambda: cache.age_s == 0)
        task.cancel()


# --- following ------------------------------------------------------------------------------------------------


async def test_changes_and_deletions(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("a"))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        api.put("services", service("a", type="ClusterIP"))
        api.drop("services", "a", "a")
        await api.until(lambda: len(changes) == 3)
        assert changes == [(None, "a"), ("a", "a"), ("a", None)]
        assert cache.get("a", "a") is None


async def test_the_same_version_again_is_not_a_change(api: ScriptedApi, cluster: Cluster) -> None:
    obj = api.put("services", service("a"))
    async with running(cluster) as (_, changes):
        await api.until(lambda: bool(api.watches))
        api.notify("services", line("MODIFIED", obj) * 5)
        api.put("services", service("b"))
        await api.until(lambda: (None, "b") in changes)
        assert changes == [(None, "a"), (None, "b")]


async def test_after_a_normal_end_it_goes_on_from_the_last_version(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("a"))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        api.version = 4711
        api.notify("services", bookmark(4711))
        api.end_watches()
        await api.until(lambda: len(api.requests("GET", watch=True)) == 2)
        assert api.seen[-1].query["resourceVersion"] == "4711"
        assert "sendInitialEvents" not in api.seen[-1].query
        assert (names(cache), changes, relists(cluster)) == (["a"], [(None, "a")], 1)


async def test_a_missed_deletion_comes_with_the_resumed_watch(api: ScriptedApi, cluster: Cluster) -> None:
    for name in ("a", "b"):
        api.put("services", service(name))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        api.end_watches()
        await api.until(lambda: len(api.watches) == 1 and len(api.requests("GET", watch=True)) == 2)
        api.drop("services", "a", "b")
        await api.until(lambda: ("b", None) in changes)
        assert names(cache) == ["a"]


async def test_every_watch_asks_for_bookmarks_and_a_jittered_end(api: ScriptedApi, cluster: Cluster) -> None:
    async with running(cluster, namespace="a", label_selector="x=y"):
        await api.until(lambda: bool(api.watches))
        for number in range(2, 12):
            api.end_watches()
            await api.until(lambda n=number: len(api.watches) == 1 and len(api.requests("GET", watch=True)) == n)
    queries = [seen.query for seen in api.requests("GET", watch=True)]
    assert all(query["allowWatchBookmarks"] == "true" for query in queries)
    assert all(query["labelSelector"] == "x=y" for query in queries)
    assert all(240 <= int(query["timeoutSeconds"]) <= 480 for query in queries)
    assert len({query["timeoutSeconds"] for query in queries}) > 1


async def test_a_watch_that_ends_at_once_does_not_spin(api: ScriptedApi, cluster: Cluster, clock: QuickClock) -> None:
    async with running(cluster):
        for number in range(1, 9):
            await api.until(lambda n=number: len(api.watches) == 1 and len(api.requests("GET", watch=True)) == n)
            api.end_watches()
        await api.until(lambda: len(clock.asked_s) >= 8)
    assert clock.asked_s[-1] > 10 * clock.asked_s[0]


@pytest.mark.req("CORE-05")
async def test_a_refresh_overtakes_a_watch_that_lags(api: ScriptedApi, cluster: Cluster) -> None:
    kept, gone = api.put("services", service("kept")), api.put("services", service("gone"))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        old = line("MODIFIED", {**kept, "metadata": {**kept["metadata"], "resourceVersion": str(api.version + 1)}})
        api.version += 1
        newest = api.put("services", service("kept"), notify=False)["metadata"]["resourceVersion"]
        api.drop("services", "a", "gone", notify=False)
        deleted = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(api.version)}}
        again = api.put("services", service("gone"), notify=False)
        await cache.refresh()
        assert names(cache) == ["gone", "kept"]
        # What the watch shows now is what the list had already.
        api.notify("services", old + line("DELETED", deleted))
        api.put("services", service("new"))
        await api.until(lambda: len(cache) == 3)
        there = {obj.metadata.name: obj.metadata.resource_version for obj in cache.values()}
        assert (there["kept"], there["gone"]) == (newest, again["metadata"]["resourceVersion"])
        assert ("gone", None) not in changes


async def test_events_may_be_cut_anywhere(api: ScriptedApi, cluster: Cluster) -> None:
    async with running(cluster) as (cache, _):
        await api.until(lambda: bool(api.watches))
        data = b"".join(line("ADDED", _versioned(service(f"s{n}"), n)) for n in range(20))
        for start in range(0, len(data), 7):
            api.notify("services", data[start : start + 7])
        await api.until(lambda: len(cache) == 20)


def _versioned(obj: dict[str, Any], version: int) -> dict[str, Any]:
    obj["metadata"]["resourceVersion"] = str(version)
    return obj


@pytest.mark.req("B17")
async def test_a_dead_link_is_noticed(api: ScriptedApi, cluster: Cluster) -> None:
    async with running(cluster, settings=CacheSettings(idle_s=0.1)) as (cache, _):
        await api.until(lambda: len(api.requests("GET", watch=True)) >= 3)
        api.put("services", service("a"))
        await api.until(lambda: len(cache) == 1)


async def test_a_watch_without_changes_is_not_a_problem(api: ScriptedApi, cluster: Cluster) -> None:
    with capture_logs() as logs:
        async with running(cluster, settings=CacheSettings(idle_s=0.1)) as (cache, _):
            await api.until(lambda: len(api.requests("GET", watch=True)) >= 4)
            assert not cache.problem
    assert [entry for entry in logs if entry["log_level"] != "debug"] == []
    assert cluster.reachable.returns == 0
