"""The last hour of traffic: a value for each minute that was read, none for others, in bounded memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.api.httploadbalancer import HTTPLoadBalancer, LoadBalancerRoute, LoadBalancerRouteSpec, RouteKey
from fairlead.api.meta import ObjectMeta
from fairlead.api.tcploadbalancer import Origin, TCPLoadBalancer, TCPLoadBalancerSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Counted, Reading, Totals
from fairlead.page import traffic
from fairlead.page.traffic import MINUTES, LastHour, Traffic, identity_of, space_of
from fairlead.runtime.clock import VirtualClock

WEB = Counted(LoadBalancerKey("TCPLoadBalancer", "tenant-east", "web"))
EDGE = Counted(LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "edge"))
ROUTE = EDGE._replace(route="ingress/shop/web")
SUBJECT = RouteKey("Ingress", "tenant-east", "shop", "web")

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


def test_a_recreated_object_does_not_inherit_the_hour_of_the_earlier_one():
    uids = {WEB: "1", ROUTE: "2", space_of("TCPLoadBalancer", "tenant-east"): "east"}
    hour = LastHour(lambda counted: uids.get(counted, ""))
    read(hour, 1, {WEB: Totals(60), ROUTE: Totals(1, requests=(0, 60, 0, 0, 0))})
    del uids[WEB]
    assert hour.of([WEB]) is None
    read(hour, 2, {WEB: Totals(6)})  # connections of the deleted object that were still open
    uids |= {WEB: "3", ROUTE: "4"}
    assert (hour.of([WEB]), hour.of([ROUTE])) == (None, None)
    read(hour, 3, {WEB: Totals(120)})
    trend = hour.of([WEB])
    assert trend is not None
    assert trend.load[-3:] == (0.0, 0.0, 2.0)
    assert hour.of([space_of("TCPLoadBalancer", "tenant-east")]) is not None


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


def test_the_identity_of_figures_is_the_uid_in_the_member_or_else_at_the_hub():
    def cache(obj):
        return SimpleNamespace(get=lambda *_: obj, indexed=lambda _index, key: [obj] if key == SUBJECT else [])

    lb = TCPLoadBalancer(metadata=ObjectMeta(uid="hub"), spec=TCPLoadBalancerSpec(ports=[], origin=Origin(uid="svc")))
    edge = HTTPLoadBalancer(metadata=ObjectMeta(uid="edge"))
    route = LoadBalancerRoute(
        metadata=ObjectMeta(uid="route"), spec=LoadBalancerRouteSpec("edge", origin=Origin(uid="ingress"))
    )
    objects = {"TCPLoadBalancer": lb, "HTTPLoadBalancer": edge}
    inventory: Any = SimpleNamespace(
        intents={kind: SimpleNamespace(cache=cache(obj)) for kind, obj in objects.items()},
        caches={"loadbalancerroutes": cache(route)},
        tenant_of=lambda _namespace: None,
    )
    subjects = (WEB, EDGE, ROUTE, ROUTE._replace(route="ingress/shop/other"), space_of("TCPLoadBalancer", "tenant-x"))
    assert [identity_of(inventory, counted) for counted in subjects] == ["svc", "edge", "ingress", "", ""]
