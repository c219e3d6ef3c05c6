"""Traffic figures: rates between two reads, only of what is busy, and only while they are looked at."""

from __future__ import annotations

import pytest

from fairlead.errors import Retry
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.traffic import Totals
from fairlead.page.traffic import READ_S, Traffic, figure_of
from fairlead.runtime.clock import VirtualClock

WEB = LoadBalancerKey("TCPLoadBalancer", "tenant-east", "web")


class Counts:
    """A data plane whose counts a test sets; ``reads`` counts questions."""

    def __init__(self) -> None:
        self.changed: dict[LoadBalancerKey, Totals] = {}
        self.reads = 0
        self.down = False

    async def read(self):
        self.reads += 1
        if self.down:
            raise Retry("it does not answer")
        changed, self.changed = self.changed, {}
        return changed


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def counts():
    return Counts()


@pytest.fixture
def traffic(counts, clock):
    return Traffic([counts], clock=clock, now=clock.now)


async def read(traffic, clock, seconds=READ_S):
    await clock.advance(seconds)
    await traffic.read()


def test_rates_are_per_second_and_survive_a_restart_of_the_proxy() -> None:
    before, now = Totals(100, 1, 1000, 2000, (0, 10, 0, 0, 0)), Totals(150, 3, 6000, 2000, (0, 60, 0, 0, 5), 1.5, 20.0)
    figure = figure_of(WEB, before, now, 5.0)
    assert (figure.connections, figure.active, figure.bytes_in, figure.bytes_out) == (10.0, 3, 1000.0, 0.0)
    assert (figure.requests, figure.p50_ms, figure.p99_ms) == ((0.0, 10.0, 0.0, 0.0, 1.0), 1.5, 20.0)
    assert figure_of(WEB, now, Totals(5), 5.0).connections == 1.0


@pytest.mark.req("OP-11")
async def test_what_is_idle_has_no_figure(traffic, counts, clock):
    counts.changed = {WEB: Totals(10)}
    await traffic.read()
    assert traffic.shown(WEB) is None
    counts.changed = {WEB: Totals(60)}
    await read(traffic, clock)
    assert traffic.shown(WEB).item.connections == 10.0
    assert WEB in traffic.all_keys()
    await read(traffic, clock)
    assert WEB in traffic.all_keys()
    assert traffic.shown(WEB) is None
    assert list(traffic.all_keys()) == []


async def test_open_connections_without_a_byte_are_still_there(traffic, counts, clock):
    counts.changed = {WEB: Totals(1, 1)}
    await traffic.read()
    counts.changed = {WEB: Totals(3, 2)}
    await read(traffic, clock)
    await read(traffic, clock)
    assert (traffic.shown(WEB).item.active, traffic.shown(WEB).item.connections) == (2, 0.0)


@pytest.mark.req("OP-11")
async def test_what_cannot_be_read_is_said(traffic, counts, clock):
    await traffic.read()
    counts.down = True
    await read(traffic, clock)
    answer = await traffic.answer()
    assert (answer.problem, answer.figures) == ("it does not answer", [])


async def test_what_no_reader_reads_is_said(clock):
    traffic = Traffic([], clock=clock, now=clock.now, unread="some proxies are not read")
    await traffic.read()
    await read(traffic, clock)
    assert (await traffic.answer()).problem == "some proxies are not read"
