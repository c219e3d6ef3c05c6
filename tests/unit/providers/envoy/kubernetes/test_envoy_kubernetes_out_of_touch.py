from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.errors import BadConfiguration
from fairlead.providers.envoy.kubernetes.provider import OutOfTouch
from fairlead.runtime.clock import VirtualClock

pytestmark = pytest.mark.req("K-28", "I-8")


class Hub:
    """A hub whose API last answered at ``heard_s``, and when it ended its connections."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.heard_s = 0.0
        self.ended_at_s: list[float] = []
        self.refusals = 0
        watch = OutOfTouch(
            silent_s=lambda: self.clock.monotonic() - self.heard_s, disconnect=self.disconnect, clock=self.clock
        )
        self.task = asyncio.create_task(watch.run())

    async def disconnect(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise BadConfiguration("cannot listen for proxies")
        self.ended_at_s.append(self.clock.monotonic())


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    hub = Hub()
    yield hub
    hub.task.cancel()
    await asyncio.wait({hub.task})


async def pass_s(hub: Hub, seconds: int) -> None:
    for _ in range(seconds):
        await hub.clock.advance(1)


async def test_connections_end_when_the_api_has_been_silent_and_less_often_later(hub: Hub) -> None:
    begin_s = hub.heard_s = hub.clock.monotonic()
    await pass_s(hub, 15)
    assert hub.ended_at_s == []
    await pass_s(hub, 300)
    pauses = [round(after - before) for before, after in zip([begin_s, *hub.ended_at_s], hub.ended_at_s, strict=False)]
    assert pauses == [20, 20, 40, 80]


async def test_the_wait_restarts_after_each_answer_of_the_api(hub: Hub) -> None:
    hub.heard_s = hub.clock.monotonic()
    await pass_s(hub, 100)
    before = len(hub.ended_at_s)
    for _ in range(20):
        hub.heard_s = hub.clock.monotonic()
        await pass_s(hub, 5)
    assert len(hub.ended_at_s) == before
    await pass_s(hub, 25)
    assert len(hub.ended_at_s) == before + 1


async def test_a_port_that_is_taken_for_a_moment_is_tried_again(hub: Hub) -> None:
    hub.heard_s = hub.clock.monotonic()
    hub.refusals = 3
    await pass_s(hub, 30)
    assert hub.refusals == 0
    assert len(hub.ended_at_s) == 1
