"""How ``fairlead top`` prints figures."""

from __future__ import annotations

import pytest

from fairlead.cli.top import lines_of, lines_of_routes, number, size, sorted_figures, time
from fairlead.page.traffic import Figure, TrafficAnswer

BUSY = Figure("HTTPLoadBalancer/a/busy", 3.0, 7, 2048.0, 5e6, (0.0, 90.0, 1.5, 0.0, 0.25), 1.25, 230.0)
QUIET = Figure("TCPLoadBalancer/a/quiet", 40.0, 1, 10.0, 20.0)
ANSWER = TrafficAnswer("2030-01-01T00:00:00Z", [QUIET, BUSY])


@pytest.mark.req("OP-11")
@pytest.mark.parametrize(
    ("by", "first"), [("bytes", BUSY), ("connections", QUIET), ("requests", BUSY), ("errors", BUSY), ("latency", BUSY)]
)
def test_the_most_comes_first(by: str, first: Figure) -> None:
    assert sorted_figures(ANSWER.figures, by)[0] is first


def test_lines_have_units_and_dashes() -> None:
    head, busy, quiet = lines_of([BUSY, QUIET], ANSWER)
    assert head.split()[2:5] == ["CONN/S", "ACTIVE", "IN/S"]
    assert busy.split() == [BUSY.id, "3.0", "7", "2.0KiB", "4.8MiB", "92", "90", "1.5", "0", "0.2", "1.2ms", "230ms"]
    assert quiet.split()[-7:] == ["-"] * 7
    assert lines_of([], TrafficAnswer("", [], "it does not answer"))[0] == "! it does not answer"


@pytest.mark.req("OP-11")
def test_routes_have_requests_and_a_load_balancer() -> None:
    route = Figure("HTTPLoadBalancer/a/edge@ingress/shop/web", requests=(0.0, 90.0, 1.5, 0.0, 0.25), p50_ms=1.25)
    slow = Figure("HTTPLoadBalancer/a/edge@ingress/shop/slow", requests=(0.0, 2.0, 0.0, 0.0, 0.0), p99_ms=9000.0)
    # Routes have no bytes: those with the most requests come first then.
    assert sorted_figures([slow, route], "bytes") == [route, slow]
    head, row = lines_of_routes([route], ANSWER)
    assert head.split()[:2] == ["ROUTE", "LOAD"]
    assert row.split() == ["ingress/shop/web", "HTTPLoadBalancer/a/edge", "92", "90", "1.5", "0", "0.2", "1.2ms", "-"]
    (none,) = lines_of_routes([], ANSWER)
    assert none.endswith("kubectl annotate --overwrite httplb NAME -n NAMESPACE fairlead.dev/route-figures=true")


def test_numbers() -> None:
    assert (number(0), number(3.14), number(31.4), size(1 << 50), time(None)) == ("0", "3.1", "31", "1024TiB", "-")
