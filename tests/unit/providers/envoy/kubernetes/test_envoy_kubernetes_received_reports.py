"""Reports of other replicas: which proxies they have, and what a change of one wakes."""

from __future__ import annotations

import pytest

from fairlead.model.keys import TargetKey
from fairlead.providers.envoy.kubernetes.health_exchange import (
    GroupReport,
    ProxyReport,
    ReceivedReports,
    cluster_report,
    encode_report,
)

pytestmark = pytest.mark.req("X-1")
TARGETS = frozenset({TargetKey("10.0.0.1", 8080)})
HEALTHY, DEAD = cluster_report(TARGETS, (), ()), cluster_report(TARGETS, TARGETS, ())


def text(*nodes: str, replica: str = "b", group: str = "shop", **clusters) -> str:
    report = GroupReport(replica, group, tuple(ProxyReport(node, clusters or {"web": HEALTHY}) for node in nodes))
    return encode_report(report)


def nodes(received: ReceivedReports, *names: str, group: str = "shop") -> list[str | None]:
    return [proxy and proxy.report.node for proxy in received.of(group, names)]


def test_a_report_has_its_proxies_and_wakes_their_clusters():
    received = ReceivedReports("a")
    assert received.take("", text("p1", "p2")) == {"web"}
    assert nodes(received, "p2", "p1", "p3") == ["p1", "p2", None]
    assert nodes(received, "p1", group="other") == [None]


def test_an_equal_report_wakes_nothing():
    received = ReceivedReports("a")
    received.take("", text("p1"))
    assert received.take(text("p1"), text("p1")) == set()


def test_only_what_differs_is_woken():
    received = ReceivedReports("a")
    received.take("", text("p1", web=HEALTHY, dns=HEALTHY))
    assert received.take(text("p1", web=HEALTHY, dns=HEALTHY), text("p1", web=DEAD, dns=HEALTHY)) == {"web"}


def test_a_proxy_that_left_is_forgotten():
    received = ReceivedReports("a")
    received.take("", text("p1", "p2"))
    assert received.take(text("p1", "p2"), text("p2")) == {"web"}
    assert nodes(received, "p1", "p2") == [None, "p2"]
    assert received.take(text("p2"), "") == {"web"}
    assert nodes(received, "p2") == [None]


def test_a_proxy_that_moved_is_not_forgotten_with_the_report_that_it_left():
    received = ReceivedReports("a")
    received.take("", text("p1"))
    received.take("", text("p1", replica="c", web=DEAD))
    assert received.take(text("p1"), "") == set()
    assert nodes(received, "p1") == ["p1"]
    assert received.take(text("p1", replica="c", web=DEAD), "") == {"web"}
    assert nodes(received, "p1") == [None]


@pytest.mark.parametrize("other", [text("p1", replica="a"), "{", '{"replica": 7}'], ids=["own", "broken", "strange"])
def test_our_own_report_and_what_cannot_be_read_count_as_none(other):
    received = ReceivedReports("a")
    assert received.take("", other) == set()
    assert nodes(received, "p1") == [None]
    received.take("", text("p1"))
    assert received.take(text("p1"), other) == {"web"}
