"""When a member's heartbeat is written: at its interval, and at once when what is refused has changed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from fairlead.agent.term import MemberHeartbeat, Refusals
from fairlead.api.kubernetes import Lease
from fairlead.api.names import ANNOTATION_REFUSED
from fairlead.errors import Unreachable
from fairlead.runtime.clock import VirtualClock

WEB, API = ("shop", "web"), ("shop", "api")


class Hub:
    """Takes heartbeats: when each came, and which Services it says are refused."""

    def __init__(self, clock: VirtualClock) -> None:
        self.beats: list[tuple[float, list[str]]] = []
        self.down = False
        self._clock = clock

    async def apply(self, _resource: Any, body: Any, **_more: Any) -> Lease:
        if self.down:
            raise Unreachable("The hub does not answer.")
        text = body["metadata"]["annotations"].get(ANNOTATION_REFUSED, "{}")
        self.beats.append((self._clock.monotonic(), sorted(msgspec.json.decode(text))))
        return Lease()


@pytest.fixture
async def world():
    clock, refusals = VirtualClock(), Refusals()
    hub = Hub(clock)
    heartbeat = MemberHeartbeat(
        hub=cast("Any", hub),
        namespace="tenant-east",
        tenant="east",
        region="",
        identity="a",
        member_uid="1",
        interval_s=10.0,
        is_fresh=lambda: True,
        refusals=refusals,
        offboarding=cast("Any", SimpleNamespace(leaving=False, done=False, heard=lambda _lease: None)),
        clock=clock,
    )
    running = asyncio.ensure_future(heartbeat.run())
    await clock.advance(0)
    yield SimpleNamespace(hub=hub, clock=clock, refusals=refusals)
    running.cancel()


async def test_without_a_change_it_is_written_at_its_interval(world) -> None:
    await world.clock.advance(35)
    assert world.hub.beats == [(0, []), (10, []), (20, []), (30, [])]


async def test_rejections_and_their_end_are_written_at_once(world) -> None:
    await world.clock.advance(5.25)
    world.refusals.put(WEB, "it is headless")
    await world.clock.advance(2)
    world.refusals.put(WEB, "it is headless")
    await world.clock.advance(1)
    world.refusals.put(WEB, "")
    await world.clock.advance(10)
    assert world.hub.beats == [(0, []), (5.25, ["shop/web"]), (8.25, []), (18.25, [])]


async def test_what_changes_within_a_second_after_a_beat_is_one_more(world) -> None:
    await world.clock.advance(0.25)
    world.refusals.put(WEB, "it is headless")
    await world.clock.advance(0.25)
    world.refusals.put(API, "it has no port")
    await world.clock.advance(5)
    assert world.hub.beats == [(0, []), (1, ["shop/api", "shop/web"])]


async def test_what_the_hub_did_not_hear_is_in_the_next_beat(world) -> None:
    world.hub.down = True
    await world.clock.advance(5)
    world.refusals.put(WEB, "it is headless")
    await world.clock.advance(1)
    world.hub.down = False
    await world.clock.advance(10)
    assert world.hub.beats == [(0, []), (15, ["shop/web"])]
