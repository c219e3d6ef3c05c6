"""The time at an API server, from the Date header of its answers: to the second, and without a request of its own."""

from __future__ import annotations

from datetime import timedelta
from email.utils import format_datetime

import pytest

from fairlead.kube.transport import NOTICEABLE_S, ServerClock
from fairlead.runtime.clock import VirtualClock


def date(clock, *, ahead_s=0.0):
    return format_datetime(clock.now() + timedelta(seconds=ahead_s), usegmt=True)


def test_without_an_answer_it_is_this_machines():
    clock = VirtualClock()
    server = ServerClock(clock)
    assert server.ahead_s is None
    assert server.now() == clock.now()


@pytest.mark.req("X-6")
@pytest.mark.parametrize("ahead_s", [-86_400, -600, 0, 600])
async def test_simulated_time_passes_between_two_answers(ahead_s):
    clock = VirtualClock()
    server = ServerClock(clock)
    server.follow(date(clock, ahead_s=ahead_s), asked_s=clock.monotonic())
    await clock.advance(100)
    off_s = (server.now() - clock.now()).total_seconds() - ahead_s
    assert abs(off_s) <= 1
    assert (abs(server.ahead_s or 0) >= NOTICEABLE_S) == bool(ahead_s)


async def test_a_clock_that_is_set_is_followed():
    clock = VirtualClock()
    server = ServerClock(clock)
    server.follow(date(clock, ahead_s=600), asked_s=clock.monotonic())
    await clock.advance(5)
    server.follow(date(clock), asked_s=clock.monotonic())
    assert abs(server.ahead_s or 0) <= 1


async def test_an_answer_that_took_long_says_less_than_an_earlier_one():
    clock = VirtualClock()
    server = ServerClock(clock)
    server.follow(date(clock), asked_s=clock.monotonic())
    old = date(clock)
    asked_s = clock.monotonic()
    await clock.advance(20)
    server.follow(old, asked_s=asked_s)
    assert abs(server.ahead_s or 0) <= 1


@pytest.mark.parametrize("header", [None, "", "yesterday"])
def test_a_server_without_a_readable_date_is_believed_to_have_our_time(header):
    clock = VirtualClock()
    server = ServerClock(clock)
    server.follow(header, asked_s=0.0)
    assert server.now() == clock.now()
