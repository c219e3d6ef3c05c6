"""The DiffTracker alone: one change among many, a cold full diff, and what an address costs in memory."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import AsyncIterator

from bench.figures import Figure, percentile
from fairlead.model.change import DONE
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec, Listener, Target
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.sync.plan import Tracker, plan_load_balancer

PER_SERVICE = 100
HTTP = Listener(80)
#: The Go DiffTracker of cloud-provider-azure, one change, by how many addresses there are.
GO_CHANGE_US = {1_000: 500, 10_000: 7_600, 100_000: 130_000}
GO_COLD_MS = 93


def wanted_by(service: int, *, weight: int = 1) -> DesiredLoadBalancer:
    targets: dict[TargetKey, Target] = {}
    for number in range(PER_SERVICE):
        at = TargetKey(f"10.{service >> 8}.{service & 255}.{number}", 8080)
        targets[at] = Target(at, weight if number == 0 else 1)
    key = LoadBalancerKey("TCPLoadBalancer", "bench", f"service-{service}")
    return DesiredLoadBalancer(FrontendSpec(key, "bench", (HTTP,)), {HTTP.key: targets})


def carry_out(tracker: Tracker) -> int:
    rows = 0
    for key in tracker.pop_dirty():
        side = tracker.state(key)
        if side is None:
            continue
        plan = plan_load_balancer(key, side, now_s=0.0)
        if plan.frontend is not None:
            tracker.apply_frontend_result(plan.frontend, DONE)
        tracker.apply_results(plan.changes, [DONE] * len(plan.changes), now_s=0.0)
        rows += len(plan.changes)
    return rows


def filled(addresses: int) -> Tracker:
    tracker = Tracker()
    for service in range(addresses // PER_SERVICE):
        tracker.put(wanted_by(service))
    carry_out(tracker)
    return tracker


async def one_change() -> AsyncIterator[Figure]:
    """Put, plan and fold one changed address, among more and more of them."""
    medians: dict[int, float] = {}
    for addresses in (1_000, 10_000, 100_000):
        tracker = filled(addresses)
        gc.collect()
        gc.disable()
        took: list[float] = []
        for turn in range(300):
            wanted = wanted_by(turn % (addresses // PER_SERVICE), weight=turn + 2)
            started = time.perf_counter()
            tracker.put(wanted)
            rows = carry_out(tracker)
            took.append((time.perf_counter() - started) * 1e6)
            assert rows == 1
        gc.enable()
        medians[addresses] = percentile(took, 0.5)
        yield Figure(
            name=f"tracker: one change among {addresses:,}, put + plan + fold, p50",
            value=medians[addresses],
            unit="us",
            limit=200.0,
            compares_with=f"Go DiffTracker {GO_CHANGE_US[addresses]:,} us",
        )
    yield Figure(
        name="tracker: 100,000 addresses against 1,000", value=medians[100_000] / medians[1_000], unit="x", limit=1.5
    )


async def cold_diff(addresses: int = 100_000) -> AsyncIterator[Figure]:
    """Plan everything that is desired while nothing is there, and weigh the tracker."""
    tracker = Tracker()
    all_wanted = [wanted_by(service) for service in range(addresses // PER_SERVICE)]
    for load_balancer in all_wanted:
        tracker.put(load_balancer)
    took: list[float] = []
    for _ in range(3):
        started = time.perf_counter()
        rows = sum(
            len(plan_load_balancer(key, side, now_s=0.0).changes)
            for key in tracker
            if (side := tracker.state(key)) is not None
        )
        took.append((time.perf_counter() - started) * 1e3)
        assert rows == addresses
    yield Figure(
        name=f"tracker: cold full diff of {addresses:,}",
        value=min(took),
        unit="ms",
        limit=200.0,
        compares_with=f"Go DiffTracker {GO_COLD_MS} ms",
    )
    del tracker, all_wanted
    gc.collect()
    tracemalloc.start()
    kept = filled(20_000)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield Figure(name="tracker: memory for each address, both sides", value=size / 20_000, unit="bytes", limit=600.0)
    assert len(kept)
