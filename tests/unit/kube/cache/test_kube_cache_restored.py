"""A server that was restored to an older state: the copy becomes that state, or its reader starts over."""

from __future__ import annotations

import asyncio
import copy

import pytest
from kube_scripted import JSON, ScriptedApi, bookmark, line, service
from watching import lists, names, running

from fairlead.api.kubernetes import SERVICES, Service
from fairlead.kube.cache import StateRestored, WatchCache, was_restored
from fairlead.kube.cluster import Cluster

#: What etcd's own documentation has the versions raised by.
BUMP = 1_000_000_000


class Backup:
    """What a server had."""

    def __init__(self, api: ScriptedApi) -> None:
        self._api, self._version = api, api.version
        self._objects: dict[str, dict[tuple[str, str], JSON]] = copy.deepcopy(api.objects)

    def restore(self, *, bump: int = 0) -> None:
        """Let the server begin again with it, its versions raised by ``bump``; every watch has ended."""
        self._api.objects, self._api.version = copy.deepcopy(self._objects), self._version + bump
        self._api.oldest = self._api.version if bump else 0
        self._api.answer(lambda _seen: True, 503, "ServiceUnavailable", times=1)
        self._api.end_watches()


@pytest.mark.req("I-1", "I-8")
@pytest.mark.parametrize("bump", [0, BUMP])
async def test_the_copy_becomes_what_was_restored(api: ScriptedApi, cluster: Cluster, bump: int) -> None:
    api.put("services", service("older"))
    backup = Backup(api)
    api.put("services", service("younger"))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        backup.restore(bump=bump)
        await api.until(lambda: names(cache) == ["older"])
        assert changes[-1] == ("younger", None)
        # With a watch of a version that is yet to come, this would not be seen.
        await api.until(lambda: bool(api.watches))
        api.put("services", service("again"))
        await api.until(lambda: names(cache) == ["again", "older"])


@pytest.mark.req("I-1")
async def test_versions_that_have_passed_the_old_ones_hide_no_restore(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("older"))
    backup = Backup(api)
    api.put("services", service("younger"))
    async with running(cluster) as (cache, _):
        await api.until(lambda: bool(api.watches))
        backup.restore()
        api.version += 1_000
        await api.until(lambda: names(cache) == ["older"])


async def test_a_bookmark_of_a_version_that_is_no_longer_reached(api: ScriptedApi, cluster: Cluster) -> None:
    """The objects are those of the backup, and yet the watch cannot go on from where it was."""
    api.put("services", service("older"))
    backup = Backup(api)
    async with running(cluster) as (cache, _):
        await api.until(lambda: bool(api.watches))
        api.notify("services", bookmark(5_000))
        api.notify("services", line("SHINY", {}))
        backup.restore()
        await api.until(lambda: lists(api) > 0 and bool(api.watches))
        assert "sendInitialEvents" in api.seen[-1].query
        assert names(cache) == ["older"]


@pytest.mark.req("I-1", "I-8")
@pytest.mark.parametrize("bump", [0, BUMP])
async def test_who_starts_over_sees_nothing_go(api: ScriptedApi, cluster: Cluster, bump: int) -> None:
    api.put("services", service("older"))
    backup = Backup(api)
    api.put("services", service("younger"))
    cache: WatchCache[Service] = WatchCache(cluster, SERVICES)
    task = asyncio.create_task(cache.run(end_when_restored=True))
    await cache.wait_synced(5)
    await api.until(lambda: bool(api.watches))
    backup.restore(bump=bump)
    with pytest.raises(StateRestored, match="one has been restored to an older state"):
        await asyncio.wait_for(task, 180)
    assert names(cache) == ["older", "younger"]


async def test_after_a_failure_a_watch_goes_on_where_nothing_was_restored(api: ScriptedApi, cluster: Cluster) -> None:
    for name in ("a", "b"):
        api.put("services", service(name))
    async with running(cluster) as (cache, changes):
        await api.until(lambda: bool(api.watches))
        api.answer(lambda _seen: True, 503, "ServiceUnavailable", times=2)
        api.end_watches()
        await api.until(lambda: len(api.requests("GET", watch=True)) >= 2 and bool(api.watches))
        assert api.seen[-1].query["resourceVersion"] == str(api.version)
        assert [seen.query["fieldSelector"] for seen in api.requests("GET", watch=False)][-1] == "metadata.name=b"
        api.drop("services", "a", "a")
        await api.until(lambda: names(cache) == ["b"])
        assert changes == [(None, "a"), (None, "b"), ("a", None)]


@pytest.mark.parametrize(
    ("before", "now", "restored"),
    [
        ("10", "9", True),
        ("9", "10", False),
        ("10", "10", False),
        ("10", str(10 + BUMP), True),
        ("10", str(10 + 5_000 * 3_600), False),
        ("", "9", False),
        ("a10", "9", False),
    ],
)
def test_which_versions_are_those_of_a_restored_server(before: str, now: str, restored: bool) -> None:
    assert was_restored(before, now) is restored
