from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web
from kube_scripted import ScriptedApi, Seen, bookmark, is_list, is_watch, line, service

from fairlead.api.kubernetes import SERVICES, Service
from fairlead.errors import Unreachable
from fairlead.kube.cache import CacheSettings, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.runtime.clock import SystemClock, VirtualClock

Changes = list[tuple[str | None, str | None]]


class QuickClock(SystemClock):
    """The machine's clock, on which waits are a hundred times shorter; it remembers what was asked for."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.asked_s.append(seconds)
        await asyncio.sleep(seconds / 100)


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
async def cluster(api: ScriptedApi, clock: QuickClock) -> AsyncIterator[Cluster]:
    async with api.cluster(clock=clock) as cluster:
        yield cluster


@asynccontextmanager
async def running(cluster: Cluster, **more: Any) -> AsyncIterator[tuple[WatchCache[Service], Changes]]:
    wait = more.pop("wait", True)
    cache: WatchCache[Service] = WatchCache(cluster, SERVICES, **more)
    changes: Changes = []
    cache.on_change(
        lambda old, new: changes.append((old.metadata.name if old else None, new.metadata.name if new else None))
    )
    task = asyncio.create_task(cache.run())
    try:
        if wait:
            await cache.wait_synced(5)
        yield cache, changes
    finally:
        assert not task.done() or task.exception() is None
        task.cancel()
        await asyncio.wait({task})


def names(cache: WatchCache[Service]) -> list[str]:
    return sorted(obj.metadata.name for obj in cache.values())


def relists(cluster: Cluster) -> float | None:
    labels = {"cluster": cluster.name, "resource": "services", "event": "relist"}
    return cluster.metrics.registry.get_sample_value("fairlead_kube_cache_events_total", labels)


def lists(api: ScriptedApi) -> int:
    return sum(1 for seen in api.seen if is_list(seen))


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
async def test_not_synced_before_the_server_has_told_everything(api: ScriptedApi, cluster: Cluster) -> None:
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
        api.tell("services", bookmark(api.version, end=True))
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
        api.tell("services", bookmark(api.version))
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


async def test_the_same_version_again_is_no_change(api: ScriptedApi, cluster: Cluster) -> None:
    obj = api.put("services", service("a"))
    async with running(cluster) as (_, changes):
        await api.until(lambda: bool(api.watches))
        api.tell("services", line("MODIFIED", obj) * 5)
        api.put("services", service("b"))
        await api.until(lambda: (None, "b") in changes)
        assert changes == [(None, "a"), (None, "b")]


async def test_after_a_normal_end_it_goes_on_from_the_last_version(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("a"))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        api.tell("services", bookmark(4711))
        api.end_watches()
        await api.until(lambda: len(api.requests("GET", watch=True)) == 2)
        assert api.seen[-1].query["resourceVersion"] == "4711"
        assert "sendInitialEvents" not in api.seen[-1].query
        assert (names(cache), changes, lists(api)) == (["a"], [(None, "a")], 0)


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
    queries = [seen.query for seen in api.seen]
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


async def test_events_may_be_cut_anywhere(api: ScriptedApi, cluster: Cluster) -> None:
    async with running(cluster) as (cache, _):
        await api.until(lambda: bool(api.watches))
        data = b"".join(line("ADDED", _versioned(service(f"s{n}"), n)) for n in range(20))
        for start in range(0, len(data), 7):
            api.tell("services", data[start : start + 7])
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


# --- 410 ------------------------------------------------------------------------------------------------------


def _gone_event(api: ScriptedApi) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    api.tell("services", line("ERROR", gone))


def _gone_http(api: ScriptedApi) -> None:
    api.oldest = api.version + 1_000
    api.end_watches()


@pytest.mark.req("B17")
@pytest.mark.parametrize("gone", [_gone_event, _gone_http])
@pytest.mark.parametrize("offer", ["yes", "no"])
async def test_after_410_the_difference_is_told(
    api: ScriptedApi, cluster: Cluster, gone: Callable[[ScriptedApi], None], offer: str
) -> None:
    api.watch_list = offer
    for name in ("kept", "changed", "deleted"):
        api.put("services", service(name))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        changes.clear()
        api.put("services", service("changed", type="ClusterIP"), tell=False)
        api.put("services", service("new"), tell=False)
        api.drop("services", "a", "deleted", tell=False)
        gone(api)
        await api.until(lambda: len(changes) == 3)
        api.oldest = 0
        assert sorted(changes[:2], key=str) == [("changed", "changed"), (None, "new")]
        assert changes[2] == ("deleted", None)  # what is gone comes last: add before remove
        assert names(cache) == ["changed", "kept", "new"]


async def test_410_again_and_again_backs_off(api: ScriptedApi, cluster: Cluster, clock: QuickClock) -> None:
    api.watch_list = "no"
    api.put("services", service("a"))
    api.oldest = 10_000
    async with running(cluster) as (cache, changes):
        await api.until(lambda: lists(api) >= 5)
        assert names(cache) == ["a"]
        assert changes == [(None, "a")]
    pauses = [seconds for seconds in clock.asked_s if seconds > 0.01]
    assert pauses[3] > 4 * pauses[0]


# --- nothing is removed because information is missing ---------------------------------------------------------

FAILURES = [(500, "InternalError"), (503, "ServiceUnavailable"), (429, "TooManyRequests"), (401, "Unauthorized"),
            (403, "Forbidden"), (404, "NotFound"), (400, "BadRequest")]  # fmt: skip


@pytest.mark.req("I-1")
@pytest.mark.req("B02")
@pytest.mark.parametrize(("code", "reason"), FAILURES)
async def test_no_error_ever_removes_anything(api: ScriptedApi, cluster: Cluster, code: int, reason: str) -> None:
    for name in ("a", "b"):
        api.put("services", service(name))
    async with running(cluster, settings=CacheSettings(terminal_retry_s=0.5)) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        changes.clear()
        api.answer(lambda _: True, code, reason, times=10)
        api.end_watches()
        await api.until(lambda: bool(cache.problem))
        assert cache.synced
        assert names(cache) == ["a", "b"]
        await api.until(lambda: not cache.problem)
        assert names(cache) == ["a", "b"]
        assert changes == []


@pytest.mark.req("I-1")
@pytest.mark.req("B03")
@pytest.mark.parametrize("offer", ["yes", "no"])
async def test_an_empty_list_for_one_cycle_removes_nothing(api: ScriptedApi, cluster: Cluster, offer: str) -> None:
    api.watch_list = offer
    for name in ("a", "b"):
        api.put("services", service(name))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        changes.clear()
        held, api.objects["services"] = api.objects["services"], {}
        before = lists(api)

        async def recover(_seen: Seen) -> None:
            if lists(api) - before == (2 if offer == "no" else 1):
                api.objects["services"] = held

        api.fault(is_list, recover, times=9)
        _gone_event(api)
        await api.until(lambda: lists(api) - before >= (2 if offer == "no" else 1) and len(api.watches) == 1)
        api.put("services", service("c"))
        await api.until(lambda: len(cache) == 3)
        assert changes == [(None, "c")]


@pytest.mark.req("B03")
async def test_an_empty_list_is_believed_when_a_second_one_agrees(
    api: ScriptedApi, cluster: Cluster, clock: QuickClock
) -> None:
    api.watch_list = "no"
    api.put("services", service("a"))
    async with running(cluster, settings=CacheSettings(confirm_after_s=3.0)) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        api.drop("services", "a", "a", tell=False)
        before = lists(api)
        _gone_event(api)
        await api.until(lambda: changes[-1] == ("a", None))
        assert len(cache) == 0
        assert lists(api) - before == 2
        assert 3.0 in clock.asked_s


async def test_confirmation_can_be_switched_off(api: ScriptedApi, cluster: Cluster) -> None:
    api.watch_list = "no"
    api.put("services", service("a"))
    async with running(cluster, settings=CacheSettings(confirm_empty=False)) as (cache, _):
        await api.until(lambda: bool(api.watches))
        api.drop("services", "a", "a", tell=False)
        before = lists(api)
        _gone_event(api)
        await api.until(lambda: len(cache) == 0)
        assert lists(api) - before == 1


async def test_watch_denied_while_list_is_allowed(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer(is_watch, 403, "Forbidden", times=999)
    api.put("services", service("a"))
    async with running(cluster, settings=CacheSettings(terminal_retry_s=1)) as (cache, _):
        assert names(cache) == ["a"]
        await api.until(lambda: '"watch" services' in cache.problem)
        api.put("services", service("b"))
        await api.until(lambda: len(cache) == 2)  # slow polling is better than standing still
        assert '"watch" services' in cache.problem


async def test_a_kind_that_comes_later(api: ScriptedApi, cluster: Cluster) -> None:
    async def unknown(_seen: Seen) -> web.Response:
        return web.Response(status=404, text="404 page not found")

    api.fault(lambda _: True, unknown, times=3)
    async with running(cluster, settings=CacheSettings(terminal_retry_s=1), wait=False) as (cache, _):
        await api.until(lambda: "does not serve Service" in cache.problem)
        assert not cache.synced
        with pytest.raises(Unreachable, match="does not serve Service"):
            await cache.wait_synced(0.001)
        await cache.wait_synced(5)
        assert cache.problem == ""


async def test_a_lost_server_is_a_problem_with_an_age(api: ScriptedApi, clock: QuickClock) -> None:
    async with ScriptedApi() as server, server.cluster(clock=clock) as cluster, running(cluster) as (cache, _):
        await server.__aexit__(None, None, None)
        await api.until(lambda: "refuses connections" in cache.problem)
        assert cache.synced
        await server.__aenter__()
        await api.until(lambda: cache.problem == "")


# --- unreadable things ----------------------------------------------------------------------------------------


@pytest.mark.req("I-7")
@pytest.mark.parametrize("offer", ["yes", "no"])
async def test_one_unreadable_object_keeps_its_last_state_and_stops_nobody(
    api: ScriptedApi, cluster: Cluster, offer: str
) -> None:
    api.watch_list = offer
    api.put("services", service("bad"))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        api.put("services", service("bad", port="eighty"))
        api.put("services", service("good"))
        await api.until(lambda: (None, "good") in changes)
        kept = cache.get("a", "bad")
        assert kept is not None
        assert kept.spec.ports
        assert kept.spec.ports[0].port == 80
        assert "Expected `int`" in cache.broken["a", "bad"]
        _gone_event(api)  # nor does a list remove it
        await api.until(lambda: len(api.requests("GET", watch=True)) >= 2 and len(api.watches) == 1)
        await api.until(lambda: relists(cluster) == 2)
        assert cache.get("a", "bad") is kept
        api.put("services", service("bad", port=81))
        await api.until(lambda: ("bad", "bad") in changes)
        assert not cache.broken
        api.put("services", service("bad", port="eighty"))
        api.drop("services", "a", "bad")
        await api.until(lambda: ("bad", None) in changes)
        assert not cache.broken


@pytest.mark.req("S-1", "I-7")
@pytest.mark.parametrize("head", [0, 200_000])
async def test_an_object_beyond_all_size_is_set_aside_and_the_watch_goes_on(
    api: ScriptedApi, cluster: Cluster, head: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant had stored 82 MB, and no other tenant's object was seen any more."""
    monkeypatch.setattr("fairlead.kube.frames.LINE_LIMIT_BYTES", 500_000)
    huge = service("huge")
    huge["metadata"] = {"annotations": {"a": "x" * head}, **huge["metadata"], "labels": {"b": "y" * 3_000_000}}
    api.put("services", service("before"))
    api.put("services", huge)
    async with running(cluster) as (cache, changes):
        assert names(cache) == ["before"]
        assert "it takes more than" in cache.broken["a", "huge"]
        api.put("services", service("after"))
        await api.until(lambda: (None, "after") in changes)
        api.put("services", service("huge"))
        await api.until(lambda: (None, "huge") in changes)
        assert not cache.broken
        api.put("services", huge)
        await api.until(lambda: ("a", "huge") in cache.broken)
        assert names(cache) == ["after", "before", "huge"]  # its last state that was read
        api.drop("services", "a", "huge")
        await api.until(lambda: ("huge", None) in changes)
        assert not cache.broken
        assert lists(api) == 0
        assert relists(cluster) == 1


@pytest.mark.req("S-1")
async def test_an_object_whose_size_hides_its_name_removes_nothing(
    api: ScriptedApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.kube.frames.LINE_LIMIT_BYTES", 500_000)
    api.put("services", service("hidden"))
    api.put("services", service("other"))
    async with running(cluster) as (cache, _changes):
        hidden = service("hidden")
        hidden["metadata"] = {"annotations": {"a": "x" * 1_000_000}, **hidden["metadata"]}
        api.put("services", hidden, tell=False)
        _gone_event(api)
        await api.until(lambda: relists(cluster) == 2)
        assert names(cache) == ["hidden", "other"]
        assert "it takes more than" in cache.broken["", ""]


RUBBISH = [
    b"rubbish\n",
    b"[]\n",
    b'{"type":"ADDED","object":{"metad\n',
    b'{"type":"ADDED"}\n',
    b'{"type":"ADDED","object":{}}\n',
    b'{"type":"MODIFIED","object":{"metadata":{"name":3}}}\n',
    b'{"type":"BOOKMARK","object":{"metadata":3}}\n',
]


@pytest.mark.parametrize("rubbish", RUBBISH)
async def test_a_line_that_is_no_event_starts_over(api: ScriptedApi, cluster: Cluster, rubbish: bytes) -> None:
    api.put("services", service("a"))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        api.put("services", service("missed"), tell=False)
        api.tell("services", rubbish)
        await api.until(lambda: (None, "missed") in changes)
        assert "a" in names(cache)


async def test_an_event_of_an_unknown_type_is_passed_over(api: ScriptedApi, cluster: Cluster) -> None:
    async with running(cluster) as (cache, _):
        await api.until(lambda: bool(api.watches))
        api.tell("services", line("SHINY", service("x")))
        api.put("services", service("a"))
        await api.until(lambda: len(cache) == 1)


async def test_an_error_event_that_is_not_410_resumes(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("a"))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        api.tell("services", line("ERROR", {"kind": "Status", "code": 500, "message": "etcd"}))
        await api.until(lambda: "etcd" in cache.problem)
        await api.until(lambda: cache.problem == "")
        assert "sendInitialEvents" not in api.seen[-1].query
        assert changes == [(None, "a")]


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
