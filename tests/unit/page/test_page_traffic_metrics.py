"""Traffic figures as metrics: a bounded number of series, and counters that never go back."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Counted, Totals
from fairlead.page.traffic import TrafficMetrics
from fairlead.runtime.clock import VirtualClock


def key(number: int) -> LoadBalancerKey:
    return LoadBalancerKey("TCPLoadBalancer", "tenant-east", f"s{number}")


def of(*numbers: int, connections: int = 1) -> dict[Counted, Totals]:
    return {Counted(key(number)): Totals(connections, bytes_in=1000 - number) for number in numbers}


def connections(metrics: TrafficMetrics) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(metrics)
    samples = [sample for family in registry.collect() for sample in family.samples]
    return {
        each.labels["load_balancer"].rpartition("/")[2]: each.value
        for each in samples
        if each.name == "fairlead_traffic_connections_total"
    }


@pytest.mark.req("OP-11")
async def test_the_busiest_have_series_and_the_rest_one() -> None:
    metrics = TrafficMetrics(clock=VirtualClock(), limit=3)
    metrics.add(of(*range(1000)))
    assert connections(metrics) == {"s0": 1, "s1": 1, "s2": 1, "(other)": 997}
    metrics.add(of(2, 500, connections=5))
    assert connections(metrics) == {"s0": 1, "s1": 1, "s2": 6, "(other)": 1002}


@pytest.mark.req("OP-11")
async def test_who_was_idle_for_an_hour_gives_its_place_to_another() -> None:
    clock = VirtualClock()
    metrics = TrafficMetrics(clock=clock, limit=1)
    metrics.add(of(1))
    await clock.advance(3599.0)
    metrics.add(of(2))
    assert connections(metrics) == {"s1": 1, "(other)": 1}
    await clock.advance(1.0)
    metrics.add(of(2, connections=7))
    # What it had among the others stays there: a counter that fell would read as a restart.
    assert connections(metrics) == {"s2": 7, "(other)": 1}


@pytest.mark.req("OP-11")
async def test_answers_are_counted_by_class_and_backends_have_no_series() -> None:
    metrics = TrafficMetrics(clock=VirtualClock())
    metrics.active = lambda _key: 4
    edge = LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "edge")
    metrics.add({Counted(edge): Totals(requests=(0, 5, 0, 1, 2)), Counted(edge, "shop.web"): Totals(9)})
    registry = CollectorRegistry()
    registry.register(metrics)
    labels = {"load_balancer": str(edge)}

    def value(name: str, **more: str) -> float | None:
        return registry.get_sample_value(name, {**labels, **more})

    assert value("fairlead_traffic_requests_total", **{"class": "5xx"}) == 2
    assert value("fairlead_traffic_connections_open") == 4
    assert connections(metrics) == {"edge": 0, "(other)": 0}


@pytest.mark.req("OP-11")
async def test_routes_have_a_bounded_number_of_series_of_their_own() -> None:
    metrics = TrafficMetrics(clock=VirtualClock(), limit=2)
    edge = LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "edge")
    metrics.add(
        {Counted(edge, route=f"ingress/shop/{number}"): Totals(requests=(0, number, 0, 0, 0)) for number in range(9)}
    )
    registry = CollectorRegistry()
    registry.register(metrics)
    samples = [sample for family in registry.collect() for sample in family.samples if sample.value]
    assert {(each.labels["route"], each.labels["class"], each.value) for each in samples} == {
        ("ingress/shop/8", "2xx", 8.0), ("ingress/shop/7", "2xx", 7.0), ("(other)", "2xx", 21.0),
    }  # fmt: skip


@pytest.mark.req("F-16")
async def test_a_tenant_with_a_budget_has_series_of_its_own() -> None:
    metrics = TrafficMetrics(clock=VirtualClock(), limit=1)
    west = LoadBalancerKey("TCPLoadBalancer", "tenant-west", "w")
    metrics.add({**of(1, 2), Counted(west): Totals(1)})
    assert connections(metrics) == {"s1": 1, "(other)": 2}
    metrics.budget = lambda namespace: {"tenant-east": 2}.get(namespace, 0)
    metrics.add({**of(1, 2, 3), Counted(west): Totals(1)})
    assert connections(metrics) == {"s1": 2, "s2": 1, "w": 1, "(other)": 3}
