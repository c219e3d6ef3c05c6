"""The increase since the last reading, summed over all processes that serve a load balancer."""

from __future__ import annotations

import pytest

from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import NO_ANSWERS, Classes, Counted, Reading, Totals
from fairlead.page.traffic import TrafficRates, figure_of

WEB = Counted(LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "web"))


def reading(
    source: str, connections: int, active: int = 0, *, requests: Classes = NO_ANSWERS, p99_ms: float | None = None
) -> Reading:
    return Reading(source, {WEB: Totals(connections, active, requests=requests, p99_ms=p99_ms)})


def test_rates_are_per_second() -> None:
    figure = figure_of(WEB, Totals(50, 3, 5000, 0, (0, 50, 0, 0, 5), 1.5, 20.0), 5.0, http=True)
    assert (figure.connections, figure.active, figure.bytes_in, figure.bytes_out) == (10.0, 3, 1000.0, 0.0)
    assert (figure.requests, figure.p50_ms, figure.p99_ms) == ((0.0, 10.0, 0.0, 0.0, 1.0), 1.5, 20.0)
    assert figure_of(WEB, Totals(5), 5.0, http=False).requests == ()


@pytest.mark.req("OP-11")
def test_what_a_process_had_before_it_was_read_is_not_of_now() -> None:
    rates = TrafficRates()
    assert rates.take([reading("a", 1000, 7)]) == {}
    assert rates.active(WEB) == 7
    assert rates.take([reading("a", 1010, 6)]) == {WEB: Totals(10, 6)}


@pytest.mark.req("OP-11")
def test_the_proxies_of_a_load_balancer_are_summed_and_the_slowest_counts() -> None:
    rates = TrafficRates()
    rates.take([reading("a", 100, 1), reading("b", 200, 2)])
    added = rates.take([reading("a", 110, 1, p99_ms=3.0), reading("b", 203, 2, p99_ms=9.0)])
    assert added == {WEB: Totals(13, 3, p99_ms=9.0)}
    # Only one of them has changed: what is open at the other still counts.
    assert rates.take([reading("a", 111, 4), Reading("b")]) == {WEB: Totals(1, 6)}


@pytest.mark.req("OP-11")
def test_a_restarted_proxy_counts_from_zero() -> None:
    rates = TrafficRates()
    rates.take([reading("a", 100)])
    assert rates.take([reading("a", 4)]) == {WEB: Totals(4)}


@pytest.mark.req("OP-11")
@pytest.mark.parametrize("away", [[], [Reading("b", problem="it does not answer")]])
def test_a_proxy_that_goes_takes_its_connections_and_comes_back_with_a_base(away: list[Reading]) -> None:
    rates = TrafficRates()
    rates.take([reading("a", 100, 1), reading("b", 900, 5)])
    rates.take([Reading("a"), *away])
    assert rates.active(WEB) == 1
    assert rates.take([Reading("a"), reading("b", 905, 5)]) == {}
    assert rates.active(WEB) == 6


def test_what_has_answered_over_http_is_http() -> None:
    rates = TrafficRates()
    rates.take([reading("a", 1, requests=(0, 1, 0, 0, 0))])
    assert rates.is_http(WEB)
    assert not TrafficRates().is_http(WEB)


@pytest.mark.req("OP-11")
def test_a_deleted_load_balancer_has_no_connections() -> None:
    rates = TrafficRates()
    rates.take([reading("a", 100, 2, requests=(0, 1, 0, 0, 0)), reading("b", 100, 3)])
    assert rates.take([Reading("a", gone=frozenset({WEB})), Reading("b")]) == {}
    assert rates.active(WEB) == 3, "the other process has not removed it yet"
    rates.take([Reading("a"), Reading("b", gone=frozenset({WEB}))])
    assert (rates.active(WEB), rates.is_http(WEB)) == (0, False)
    # One of the same name that is made later counts from its beginning.
    assert rates.take([reading("a", 4, 1), Reading("b")]) == {WEB: Totals(4, 1)}
