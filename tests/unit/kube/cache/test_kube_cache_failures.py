"""What a watch cache does when the server forgets, fails or sends what cannot be read: it removes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from kube_scripted import ScriptedApi, Seen, is_list, is_watch, line, service
from watching import QuickClock, lists, names, relists, running

from fairlead.api.kubernetes import SERVICES, Service
from fairlead.api.meta import ObjectKey
from fairlead.errors import Unreachable
from fairlead.kube.cache import CacheSettings, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.runtime.clock import VirtualClock

# --- 410 ------------------------------------------------------------------------------------------------------


def _gone_event(api: ScriptedApi) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    api.notify("services", line("ERROR", gone))


def _gone_http(api: ScriptedApi) -> None:
    api.oldest = api.version + 1_000
    api.end_watches()


@pytest.mark.req("B17")
@pytest.mark.parametrize("gone", [_gone_event, _gone_http])
@pytest.mark.parametrize("offer", ["yes", "no"])
async def test_after_410_the_difference_is_reported(
    api: ScriptedApi, cluster: Cluster, gone: Callable[[ScriptedApi], None], offer: str
) -> None:
    api.watch_list = offer
    for name in ("kept", "changed", "deleted"):
        api.put("services", service(name))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        changes.clear()
        api.put("services", service("changed", type="ClusterIP"), notify=False)
        api.put("services", service("new"), notify=False)
        api.drop("services", "a", "deleted", notify=False)
        gone(api)
        await api.until(lambda: len(changes) == 3)
        api.oldest = 0
        assert sorted(changes[:2], key=str) == [("changed", "changed"), (None, "new")]
        assert changes[2] == ("deleted", None)  # what is gone comes last: add before remove
        assert names(cache) == ["changed", "kept", "new"]


async def test_an_object_that_who_follows_cannot_stand_ends_no_watch(api: ScriptedApi, cluster: Cluster) -> None:
    def fails(_old: object, new: Service | None) -> None:
        if new is not None and new.metadata.name == "bad":
            raise OverflowError("date value out of range")

    async with running(cluster) as (cache, changes):
        cache._callbacks.insert(0, fails)
        await api.until(lambda: bool(api.watches))
        for name in ("bad", "good"):
            api.put("services", service(name))
        await api.until(lambda: len(changes) == 2)
        assert changes == [(None, "bad"), (None, "good")]
        assert names(cache) == ["bad", "good"]


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
        api.drop("services", "a", "a", notify=False)
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
        api.drop("services", "a", "a", notify=False)
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
        assert len(cache) == 0
        with pytest.raises(Unreachable, match="does not serve Service"):
            await cache.wait_synced(0.001)
        await cache.wait_synced(5)
        assert cache.problem == ""


@pytest.mark.req("CORE-16")
async def test_a_watch_comes_back_within_a_minute_whatever_the_server_asks(
    api: ScriptedApi, cluster: Cluster, clock: QuickClock
) -> None:
    api.answer(lambda _: True, 503, "ServiceUnavailable", times=2, headers={"Retry-After": "3600"})
    api.put("services", service("a"))
    async with running(cluster, wait=False) as (cache, _):
        await cache.wait_synced(5)
        assert names(cache) == ["a"]
    assert max(clock.asked_s) <= 60


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
async def test_one_unreadable_object_keeps_its_last_state_and_stops_no_other(
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
        assert "Expected `int`" in cache.broken[ObjectKey("a", "bad")]
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
    """A tenant had stored 82 MB, which hid the objects of all other tenants."""
    monkeypatch.setattr("fairlead.kube.transport.LINE_LIMIT_BYTES", 500_000)
    huge = service("huge")
    huge["metadata"] = {"annotations": {"a": "x" * head}, **huge["metadata"], "labels": {"b": "y" * 3_000_000}}
    api.put("services", service("before"))
    api.put("services", huge)
    async with running(cluster) as (cache, changes):
        assert names(cache) == ["before"]
        assert "MiB" in cache.broken[ObjectKey("a", "huge")]
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
    monkeypatch.setattr("fairlead.kube.transport.LINE_LIMIT_BYTES", 500_000)
    api.put("services", service("hidden"))
    api.put("services", service("other"))
    async with running(cluster) as (cache, _changes):
        hidden = service("hidden")
        hidden["metadata"] = {"annotations": {"a": "x" * 1_000_000}, **hidden["metadata"]}
        api.put("services", hidden, notify=False)
        _gone_event(api)
        await api.until(lambda: relists(cluster) == 2)
        assert names(cache) == ["hidden", "other"]
        assert "MiB" in cache.broken[ObjectKey("", "")]


@pytest.mark.req("CORE-02")
@pytest.mark.parametrize("watch_list", ["yes", "no"])
async def test_a_state_without_end_fills_no_memory_and_removes_nothing(
    api: ScriptedApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, watch_list: str
) -> None:
    """Pages that never end, or a stream of initial events without its last one."""
    monkeypatch.setattr("fairlead.kube.transport.STATE_LIMIT_BYTES", 2_000_000)
    api.watch_list = watch_list
    ending = asyncio.Event()
    served = 0

    async def endless(seen: Seen) -> web.StreamResponse | None:
        nonlocal served
        if ending.is_set():
            return None
        if not seen.is_watch:
            served += 1
            meta = {"resourceVersion": "900", "continue": str(served)}
            return web.json_response({"kind": "ServiceList", "metadata": meta, "items": []})
        return None

    api.fault(lambda seen: not seen.is_watch, endless, times=10_000)
    if watch_list == "yes":
        for number in range(100):
            api.put("services", service(f"web-{number}", externalName="x" * 50_000))
    cache = WatchCache(cluster, SERVICES)
    running_cache = asyncio.create_task(cache.run())
    try:
        await api.until(lambda: "more than" in cache.problem)
        assert served <= 40
        assert len(cache) == 0
        ending.set()
        monkeypatch.setattr("fairlead.kube.transport.STATE_LIMIT_BYTES", 2_000_000_000)
        await cache.wait_synced(60)
    finally:
        running_cache.cancel()
        await asyncio.gather(running_cache, return_exceptions=True)


@pytest.mark.req("CORE-02")
async def test_events_without_end_fill_no_memory_and_remove_nothing(
    api: ScriptedApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.kube.transport.STATE_LIMIT_BYTES", 2_000_000)
    large = "x" * 50_000
    cache = WatchCache(cluster, SERVICES)
    running_cache = asyncio.create_task(cache.run())
    try:
        await cache.wait_synced(60)
        for version in range(100):
            api.put("services", service("often", externalName=large))
            api.put("services", service(f"short-{version}", externalName=large))
            api.drop("services", "a", f"short-{version}")
        api.put("services", service("last"))
        await api.until(lambda: names(cache) == ["last", "often"])
        assert cache.problem == "", "only what is there counts"
        for number in range(100):
            api.put("services", service(f"web-{number}", externalName=large))
        await api.until(lambda: "more than" in cache.problem)
        assert 2 <= len(cache) <= 41
        assert {"last", "often"} <= set(names(cache))
        monkeypatch.setattr("fairlead.kube.transport.STATE_LIMIT_BYTES", 2_000_000_000)
        await api.until(lambda: len(cache) == 102)
    finally:
        running_cache.cancel()
        await asyncio.gather(running_cache, return_exceptions=True)


POISON = [
    b'{"f:a":' * 1_200 + b"{}" + b"}" * 1_200,
    b"[" * 300_000 + b"]" * 300_000,
    '"h\u00fctte"'.encode("latin-1"),
    b'"\\ud800"',
    b"9" * 5_000,
    b"1e999",
]


@pytest.mark.req("CORE-02")
@pytest.mark.parametrize("offer", ["yes", "no"])
@pytest.mark.parametrize("poison", POISON, ids=["deep", "very deep", "latin-1", "surrogate", "digits", "exponent"])
@pytest.mark.parametrize("field", ["annotations", "managedFields"])
async def test_no_bytes_of_one_object_hide_another(
    api: ScriptedApi, cluster: Cluster, offer: str, poison: bytes, field: str
) -> None:
    api.watch_list, api.written = offer, {b'"@@"': poison}
    bad = service("bad")
    bad["metadata"][field] = {"x": "@@"} if field == "annotations" else [{"fieldsV1": "@@"}]
    api.put("services", service("first"))
    api.put("services", bad)
    async with running(cluster) as (cache, changes):
        assert "first" in names(cache)
        assert not cache.broken or list(cache.broken) == [ObjectKey("a", "bad")]
        assert cache.broken or cache.get("a", "bad") is not None
        api.put("services", bad)
        api.put("services", service("second"))
        await api.until(lambda: (None, "second") in changes)
        assert cache.broken or cache.get("a", "bad") is not None
        api.written = {}
        bad["metadata"].pop(field)
        api.put("services", bad)
        await api.until(lambda: not cache.broken and "bad" in names(cache))
        api.written = {b'"@@"': poison}
        bad["metadata"][field] = {"x": "@@"} if field == "annotations" else [{"fieldsV1": "@@"}]
        api.put("services", bad)
        api.drop("services", "a", "bad")
        await api.until(lambda: ("bad", None) in changes)
        assert not cache.broken
        assert "first" in names(cache)


@pytest.mark.req("CORE-02")
@pytest.mark.parametrize("offer", ["yes", "no"])
async def test_an_object_that_we_fail_to_process_hides_no_other(api: ScriptedApi, cluster: Cluster, offer: str) -> None:
    api.watch_list = offer

    def fails_for(name: str) -> Any:
        def compute(obj: Any) -> Any:
            if obj.metadata.name == name:
                raise KeyError(name)
            return obj if name == "transformed" else [obj.metadata.name]

        return compute

    for name in ("indexed", "transformed", "good"):
        api.put("services", service(name))
    indexes = {"by-name": fails_for("indexed")}
    async with running(cluster, transform=fails_for("transformed"), indexes=indexes) as (cache, changes):
        assert names(cache) == ["good"]
        assert set(cache.broken) == {("a", "indexed"), ("a", "transformed")}
        for name in ("indexed", "transformed", "later"):
            api.put("services", service(name))
        await api.until(lambda: (None, "later") in changes)
        assert set(cache.broken) == {("a", "indexed"), ("a", "transformed")}


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
async def test_a_line_that_is_not_an_event_starts_over(api: ScriptedApi, cluster: Cluster, rubbish: bytes) -> None:
    api.put("services", service("a"))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        api.put("services", service("missed"), notify=False)
        api.notify("services", rubbish)
        await api.until(lambda: (None, "missed") in changes)
        assert "a" in names(cache)


async def test_an_event_of_an_unknown_type_is_passed_over(api: ScriptedApi, cluster: Cluster) -> None:
    async with running(cluster) as (cache, _):
        await api.until(lambda: bool(api.watches))
        api.notify("services", line("SHINY", service("x")))
        api.put("services", service("a"))
        await api.until(lambda: len(cache) == 1)


async def test_an_error_event_that_is_not_410_resumes(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("a"))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        api.notify("services", line("ERROR", {"kind": "Status", "code": 500, "message": "etcd"}))
        await api.until(lambda: "etcd" in cache.problem)
        await api.until(lambda: cache.problem == "")
        assert "sendInitialEvents" not in api.seen[-1].query
        assert changes == [(None, "a")]


@pytest.mark.parametrize("offer", ["yes", "no"])
@pytest.mark.parametrize(
    "body",
    ["<html>Please log in</html>", "{}", "null", "[]", '{"error": "login required"}', '{"kind": "Status", "code": 500}',
     '{"kind": "ServiceList", "metadata": {}, "items": null}', '{"kind": "ServiceList", "items": []}', ""],
)  # fmt: skip
async def test_what_a_proxy_between_answers_with_200_removes_nothing(
    api: ScriptedApi, cluster: Cluster, body: str, offer: str
) -> None:
    async def page(_seen: Seen) -> web.Response:
        return web.Response(text=body, content_type="text/html")

    api.watch_list = offer
    api.put("services", service("a"))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        changes.clear()
        api.fault(lambda seen: seen.method == "GET", page, times=12)
        api.end_watches()
        await api.until(lambda: bool(cache.problem))
        assert names(cache) == ["a"]
        await api.until(lambda: not cache.problem)
        assert names(cache) == ["a"]
        assert changes == []


@pytest.mark.parametrize("content_type", ["text/html", "application/json"])
async def test_a_watch_that_is_answered_with_other_lines_is_a_problem_and_not_heard(
    api: ScriptedApi, content_type: str
) -> None:
    """An agent called its member fresh while a proxy answered for the member's API."""

    async def page(_seen: Seen) -> web.Response:
        return web.Response(text="<html>\n<body>\nPlease log in\n", content_type=content_type)

    clock = VirtualClock()
    api.put("services", service("a"))
    async with api.cluster(clock=clock) as cluster, running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        api.fault(is_watch, page, times=5)
        api.notify("services", b"rubbish\n")
        await clock.advance_until(lambda: len(api.requests("GET", watch=True)) == 6)
        assert "watch" in cache.problem
        assert cache.age_s == clock.monotonic()
        await clock.advance_until(lambda: not cache.problem)
        assert names(cache) == ["a"]
        assert changes == [(None, "a")]
