"""The last hour of traffic: a value for each minute that was read, none for others, in bounded memory."""

from __future__ import annotations

import pytest

from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Counted, Reading, Totals
from fairlead.page import traffic
from fairlead.page.traffic import MINUTES, LastHour, Traffic, space_of
from fairlead.runtime.clock import VirtualClock

WEB = Counted(LoadBalancerKey("TCPLoadBalancer", "tenant-east", "web"))
EDGE = Counted(LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "edge"))
ROUTE = EDGE._replace(route="ingress/shop/web")

pytestmark = pytest.mark.req("OP-11")


def read(hour: LastHour, minute: int, added: dict[Counted, Totals]) -> None:
    """Have half of a minute read at its end, and the other half before."""
    hour.add({}, minute * 60 + 30.0, 30.0)
    hour.add(added, minute * 60 + 60.0, 30.0)


def test_requests_and_errors_are_kept_by_minute():
    hour = LastHour()
    for minute in range(100):
        bad = 6 if minute >= 97 else 0
        read(hour, minute, {ROUTE: Totals(1, requests=(0, 60, 0, 0, bad)), WEB: Totals(120)})
    trend = hour.of([ROUTE])
    assert trend is not None
    assert (trend.http, len(trend.load), trend.load[0], trend.load[-1]) == (True, MINUTES, 1.0, 1.1)
    assert trend.errors[-4:] == (0.0, 0.1, 0.1, 0.1)
    connections = hour.of([WEB])
    assert connections is not None
    assert (connections.http, connections.load[-1]) == (False, 2.0)
    assert hour.of([space_of("TCPLoadBalancer", "tenant-east")]) == connections
    whole = hour.of([ROUTE, WEB])
    assert whole is not None
    assert (whole.http, whole.load[-1]) == (True, 1.1)  # connections are not added to requests
    assert hour.of([EDGE]) is None


def test_minutes_that_were_not_read_are_gaps_and_idle_ones_are_zero():
    hour = LastHour()
    read(hour, 1, {WEB: Totals(60)})
    read(hour, 2, {})
    hour.add({WEB: Totals(6000)}, 9 * 60.0, 6 * 60.0)  # its minutes are unknown
    read(hour, 9, {WEB: Totals(60)})
    trend = hour.of([WEB])
    assert trend is not None
    assert trend.load[-9:] == (1.0, 0.0, None, None, None, None, None, None, 1.0)


def test_idle_subjects_are_dropped_after_an_hour_and_their_number_is_bounded(monkeypatch):
    monkeypatch.setattr(traffic, "MOST_TRENDS", 5)
    hour = LastHour()
    many = [Counted(LoadBalancerKey("TCPLoadBalancer", "t", str(number))) for number in range(9)]
    read(hour, 1, {counted: Totals(60) for counted in many})
    assert list(hour.subjects()) == [*many[:5], space_of("TCPLoadBalancer", "t")]
    read(hour, MINUTES + 3, {WEB: Totals(60)})
    assert list(hour.subjects()) == [WEB, space_of("TCPLoadBalancer", "tenant-east")]


async def test_every_reading_counts_for_the_last_hour():
    clock, counts = VirtualClock(), iter(range(0, 10_000, 60))

    class Reader:
        async def read(self):
            return [Reading("envoy", {WEB: Totals(next(counts))})]

    figures = Traffic(lambda: [Reader()], clock=clock, now=clock.now)
    for _ in range(20):
        await figures.refresh()  # as for a scrape
        await clock.advance(10)
    trend = figures.last_hour.of([WEB])
    assert trend is not None
    assert [value for value in trend.load if value][-1] == 6.0
