"""Traffic figures: only of what is busy, only while they are looked at, and never of what could not be read."""

from __future__ import annotations

import pytest

from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Counted, Reading, Totals
from fairlead.page.traffic import READ_S, Traffic
from fairlead.runtime.clock import VirtualClock

WEB = Counted(LoadBalancerKey("TCPLoadBalancer", "tenant-east", "web"))
BACKEND = Counted(LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "edge"), "default.web.80")


class Counts:
    """A data plane whose counts a test sets; ``reads`` counts questions."""

    def __init__(self) -> None:
        self.changed: dict[Counted, Totals] = {}
        self.reads = 0
        self.down = False

    async def read(self):
        self.reads += 1
        if self.down:
            return [Reading("one", problem="it does not answer")]
        changed, self.changed = self.changed, {}
        return [Reading("one", changed)]


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def counts():
    return Counts()


@pytest.fixture
def traffic(counts, clock):
    return Traffic(lambda: [counts], clock=clock, now=clock.now)


async def read(traffic, clock, seconds=READ_S):
    await clock.advance(seconds)
    await traffic.read()


@pytest.mark.req("OP-11")
async def test_idle_load_balancers_have_no_figures(traffic, counts, clock):
    counts.changed = {WEB: Totals(10)}
    await traffic.read()
    assert traffic.visible_item(WEB) is None
    counts.changed = {WEB: Totals(60)}
    await read(traffic, clock)
    assert traffic.visible_item(WEB).item.connections == 10.0
    assert list(traffic.all_keys()) == [WEB]
    await read(traffic, clock)
    assert traffic.visible_item(WEB) is None
    assert list(traffic.all_keys()) == []


async def test_unchanged_counters_are_idle(traffic, counts, clock):
    counts.changed = {WEB: Totals(10, requests=(0, 5, 0, 0, 0))}
    await traffic.read()
    counts.changed = {WEB: Totals(10, requests=(0, 5, 0, 0, 0))}
    await read(traffic, clock)
    assert traffic.visible_item(WEB) is None


async def test_open_connections_without_a_byte_are_still_there(traffic, counts, clock):
    counts.changed = {WEB: Totals(1, 1)}
    await traffic.read()
    counts.changed = {WEB: Totals(3, 2)}
    await read(traffic, clock)
    await read(traffic, clock)
    assert (traffic.visible_item(WEB).item.active, traffic.visible_item(WEB).item.connections) == (2, 0.0)
    assert traffic.active(WEB) == 2


@pytest.mark.req("OP-11")
async def test_unreadable_objects_are_reported_without_a_number(traffic, counts, clock):
    counts.changed = {WEB: Totals(1, 5)}
    await traffic.read()
    counts.changed = {WEB: Totals(2, 5)}
    await read(traffic, clock)
    counts.down = True
    await read(traffic, clock)
    answer = await traffic.answer()
    assert (answer.problem, answer.figures) == ("it does not answer", [])


@pytest.mark.req("OP-11")
async def test_backends_are_listed_apart(traffic, counts, clock):
    await traffic.read()
    counts.changed = {WEB: Totals(5), BACKEND: Totals(requests=(0, 5, 0, 0, 0))}
    await read(traffic, clock)
    answer = await traffic.answer()
    assert [each.id for each in answer.figures] == ["TCPLoadBalancer/tenant-east/web"]
    assert [(each.id, each.requests) for each in answer.backends] == [
        ("HTTPLoadBalancer/tenant-east/edge#default.web.80", (0.0, 1.0, 0.0, 0.0, 0.0))
    ]


@pytest.mark.req("OP-11")
async def test_a_scrape_reads_once_and_not_again_at_once(counts, clock):
    added: list[object] = []
    traffic = Traffic(lambda: [counts], clock=clock, now=clock.now, added=added.append)
    await traffic.refresh()
    await traffic.refresh()
    assert counts.reads == 1
    # A minute later this is too old for a rate, but still counted.
    counts.changed = {WEB: Totals(600)}
    await clock.advance(60.0)
    await traffic.refresh()
    assert (counts.reads, added[-1]) == (2, {WEB: Totals(600)})
    assert traffic.visible_item(WEB) is None


@pytest.mark.req("OP-11")
async def test_a_data_plane_that_is_not_read_is_a_problem(counts, clock):
    readers = [counts]
    traffic = Traffic(lambda: readers, clock=clock, now=clock.now)
    assert traffic.problem()
    await traffic.read()
    assert not traffic.problem()
    readers.clear()
    await read(traffic, clock)
    assert traffic.problem(), "nothing was read"
