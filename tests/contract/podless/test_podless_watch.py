"""A watch sends every event once, and says so when it cannot."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from aiohttp import web
from podless_client import Api, config_map

from podless import ApiServer
from podless.http import watches

MINE = {"mine": ""}  # a real server's controllers put ConfigMaps of their own into every namespace


def kinds(events: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(event["type"], event["object"]["metadata"].get("name")) for event in events]


async def now(api: Api) -> str:
    return (await api.get(api.cms)).ok()["metadata"]["resourceVersion"]


async def test_resume_sends_only_later_events(api: Api) -> None:
    await api.post(api.cms, config_map("before"))
    rv = await now(api)
    await api.post(api.cms, config_map("w", labels=MINE))
    await api.patch(api.cms + "/w", {"data": {"k": "2"}})
    await api.delete(api.cms + "/w")
    events = await api.watch(api.cms, until=3, resourceVersion=rv, labelSelector="mine")
    assert kinds(events) == [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")]
    rvs = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert rvs == sorted(set(rvs))
    assert rvs[0] > int(rv)


async def test_without_a_resource_version_everything_comes_first(api: Api) -> None:
    await api.post(api.cms, config_map("a", labels={"x": "y"}))
    events = await api.watch(api.cms, until=1, labelSelector="x=y")
    assert kinds(events) == [("ADDED", "a")]


async def test_entering_and_leaving_a_selector(api: Api) -> None:
    await api.post(api.cms, config_map("a", labels={"set": "p"}))
    await api.post(api.cms, config_map("b"))
    rv = await now(api)
    left = (await api.patch(api.cms + "/a", {"metadata": {"labels": {"set": "q"}}})).ok()
    await api.patch(api.cms + "/b", {"metadata": {"labels": {"set": "p"}}})
    events = await api.watch(api.cms, until=2, resourceVersion=rv, labelSelector="set=p")
    assert kinds(events) == [("DELETED", "a"), ("ADDED", "b")]
    assert events[0]["object"]["metadata"]["labels"] == {"set": "p"}
    assert events[0]["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_watch_list_ends_with_its_bookmark(api: Api) -> None:
    for name in ("a", "b"):
        await api.post(api.cms, config_map(name, labels={"set": "p"}))
    events = await api.watch(
        api.cms,
        until=3,
        labelSelector="set=p",
        sendInitialEvents="true",
        allowWatchBookmarks="true",
        resourceVersionMatch="NotOlderThan",
    )
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK"]
    assert events[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    lone = await api.get(api.cms, watch="1", sendInitialEvents="true")
    lone.refused(422, "Invalid", "resourceVersionMatch")


async def test_timeout_ends_with_a_bookmark(own: tuple[ApiServer, Api]) -> None:
    # A real server sends bookmarks about once a minute, and not for its end.
    _, api = own
    rv = await now(api)
    answer = await api.get(api.cms, watch="1", resourceVersion=rv, timeoutSeconds="1", allowWatchBookmarks="true")
    assert b"BOOKMARK" in answer.raw.splitlines()[-1]


async def test_all_namespaces_and_one_name(api: Api) -> None:
    rv = await now(api)
    for name in ("a", "b"):
        await api.post(api.cms, config_map(name, labels={"of": api.ns}))
    everywhere = await api.watch("/api/v1/configmaps", until=2, resourceVersion=rv, labelSelector=f"of={api.ns}")
    assert kinds(everywhere) == [("ADDED", "a"), ("ADDED", "b")]
    selected = await api.watch(api.cms, until=1, resourceVersion=rv, fieldSelector="metadata.name=b")
    assert kinds(selected) == [("ADDED", "b")]


async def test_tables_can_be_watched(api: Api) -> None:
    await api.post(api.cms, config_map("a"))
    heads = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    query = {"watch": "1", "timeoutSeconds": "1", "labelSelector": "!none", "fieldSelector": "metadata.name=a"}
    answer = await api.get(api.cms, headers=heads, **query)
    assert b'"kind":"Table"' in answer.raw.splitlines()[0]


async def test_an_old_resource_version_is_expired(own: tuple[ApiServer, Api]) -> None:
    server, api = own
    first = await api.watch(api.cms, until=1, resourceVersion="1")
    rv = await now(api)
    await api.post(api.cms, config_map("a"))
    page = (await api.get(api.cms, limit=0)).ok()
    server.compact()
    events = await api.watch(api.cms, until=1, resourceVersion=rv)
    for event in (first[0], events[0]):
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert (
        await api.watch(api.cms, until=1, resourceVersion=page["metadata"]["resourceVersion"], timeoutSeconds=1) == []
    )
    future = await api.watch(api.cms, until=1, resourceVersion="999999")
    assert future[0]["object"]["code"] == 410
    (await api.get(api.cms, resourceVersion="999999")).refused(504, "Timeout", "Too large resource version")


async def test_many_watchers_see_the_same(api: Api) -> None:
    rv = await now(api)
    watching = [
        asyncio.create_task(api.watch(api.cms, until=20, resourceVersion=rv, labelSelector="mine")) for _ in range(10)
    ]
    for index in range(20):
        await api.post(api.cms, config_map(f"c{index}", labels=MINE))
    seen = await asyncio.gather(*watching)
    assert all(kinds(events) == [("ADDED", f"c{index}") for index in range(20)] for events in seen)


async def test_stop_ends_watches(own: tuple[ApiServer, Api]) -> None:
    server, api = own
    await api.post(api.cms, config_map("a"))
    seen = asyncio.Event()
    watching = asyncio.create_task(api.watch(api.cms, until=2, seen=seen))
    await seen.wait()
    await server.stop()
    assert kinds(await watching) == [("ADDED", "a")]


async def test_a_watch_that_ends_says_nothing_of_events_that_it_has_not_sent(
    own: tuple[ApiServer, Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookmark ahead of queued events makes a client that resumes from it miss them."""
    _, api = own
    sends, under_way = watches._send, asyncio.Event()

    async def slow(response: web.StreamResponse, lines: Iterable[bytes]) -> None:
        await sends(response, made := list(lines))
        if made:
            under_way.set()
            await asyncio.sleep(1.5)  # the time of the watch is over by then

    monkeypatch.setattr(watches, "_send", slow)
    rv = (await api.get(api.cms)).ok()["metadata"]["resourceVersion"]
    watch = asyncio.create_task(
        api.watch(api.cms, until=9, resourceVersion=rv, allowWatchBookmarks="true", timeoutSeconds="1")
    )
    (await api.post(api.cms, config_map("first"))).ok(201)
    await under_way.wait()
    late = (await api.post(api.cms, config_map("second"))).ok(201)["metadata"]["resourceVersion"]
    events = await watch
    assert [each["object"]["metadata"].get("name") for each in events if each["type"] == "ADDED"] == ["first"]
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) < int(late)
