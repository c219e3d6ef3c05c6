"""Who waits for a server that was away waits no longer once it is back."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from kube_scripted import ScriptedApi, Seen, is_watch

from fairlead.api.kubernetes import SERVICES
from fairlead.errors import Unreachable
from fairlead.kube.cache import WatchCache
from fairlead.kube.transport import LOST_S, Reachability, RetryPolicy
from fairlead.runtime.clock import VirtualClock, settle

ONCE = RetryPolicy(attempts=1)


async def test_a_pause_ends_when_the_server_is_back() -> None:
    clock = VirtualClock()
    reachable, called = Reachability(clock), list[str]()
    reachable.on_back(lambda: called.append("back"))
    reachable.failed()
    pause = asyncio.create_task(reachable.pause(30))
    await settle()
    await clock.advance(LOST_S)
    assert not pause.done()
    reachable.answered()
    await settle()
    assert pause.done()
    assert called == ["back"]
    reachable.answered()
    assert called == ["back"]


async def test_without_an_answer_it_lasts_as_long_as_it_should() -> None:
    clock = VirtualClock()
    reachable = Reachability(clock)
    pause = asyncio.create_task(reachable.pause(30))
    await settle()
    await clock.advance(29)
    assert not pause.done()
    await clock.advance(1)
    await settle()
    assert pause.done()


async def test_a_server_that_answers_others_in_between_was_not_away() -> None:
    clock = VirtualClock()
    reachable, called = Reachability(clock), list[str]()
    reachable.on_back(lambda: called.append("back"))
    for _ in range(20):
        reachable.failed()
        await clock.advance(LOST_S / 2)
        reachable.answered()
    assert called == []


async def test_a_server_for_which_a_proxy_answered_was_away(api: ScriptedApi) -> None:
    async def page(_seen: Seen) -> web.Response:
        return web.Response(status=502, text="<html>Bad gateway</html>", content_type="text/html")

    clock = VirtualClock()
    api.put("services", {"metadata": {"namespace": "a", "name": "x"}})
    api.fault(lambda _: True, page)
    async with api.cluster(clock=clock, policy=ONCE) as cluster:
        with pytest.raises(Unreachable):
            await cluster.get(SERVICES, "a", "x")
        await clock.advance(LOST_S)
        assert cluster.silent_s == LOST_S
        await cluster.get(SERVICES, "a", "x")
        assert cluster.reachable.returns == 1


@pytest.mark.parametrize("then", ["watched", "forgotten", "broken"])
async def test_caches_that_wait_for_half_a_minute_follow_at_once_when_it_is_back(api: ScriptedApi, then: str) -> None:
    """After an outage each watch of an agent waited for up to 30 s although the hub had answered its heartbeat.

    ``forgotten``: the version to resume from has expired at the server. ``broken``: the server answers, and
    closes the connection of the first watch, as an overloaded one does.
    """
    clock = VirtualClock()
    api.put("services", {"metadata": {"namespace": "a", "name": "x"}})
    async with api.cluster(clock=clock, policy=ONCE) as cluster:
        cache = WatchCache(cluster, SERVICES)
        running = asyncio.create_task(cache.run())
        await api.until(lambda: cache.synced)
        await api.__aexit__()
        for _ in range(8):
            # Every pause ends in another failure, and the next one is longer.
            await clock.advance(60)
            with pytest.raises(Unreachable):
                await cluster.get(SERVICES, "a", "x")
            await api.until(lambda: clock.sleepers > 0)
        assert cache.problem
        api.oldest = api.version + 1 if then == "forgotten" else 0
        if then == "broken":
            # Twice: the HTTP client itself tries once more.
            api.fault(is_watch, _end_connection, times=2)
        async with api:
            assert (await cluster.get(SERVICES, "a", "x")).metadata.name == "x"
            await api.until(lambda: then != "broken" or "broke" in cache.problem)
            await api.until(lambda: not cache.problem or clock.sleepers > 0)
            # The pause after a failure that follows is that of a first one.
            await clock.advance(0.25)
            await api.until(lambda: not cache.problem, limit_s=20)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class _NoAnswer(web.StreamResponse):
    async def prepare(self, request: web.BaseRequest) -> None:
        assert request.transport is not None
        request.transport.abort()


async def _end_connection(_seen: Seen) -> web.StreamResponse:
    return _NoAnswer()
