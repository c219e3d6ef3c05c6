"""The command line of the benchmarks, and what they read of an API server."""

from __future__ import annotations

import math

import pytest

from bench.__main__ import CASES, SIZED, first_line, parser
from bench.cluster_world import Probe, count_writes
from bench.storm import latency_ms

_EMBEDDED = """\
# TYPE fairlead_apiserver_requests_total counter
fairlead_apiserver_requests_total{code="200",resource="httproutes/status",verb="patch"} 7.0
fairlead_apiserver_requests_total{code="409",resource="httproutes/status",verb="patch"} 2.0
fairlead_apiserver_requests_total{code="201",resource="httproutes",verb="create"} 3.0
fairlead_apiserver_requests_total{code="200",resource="leases",verb="update"} 30.0
fairlead_apiserver_requests_total{code="200",resource="services",verb="list"} 5.0
"""
_KUBERNETES = """\
apiserver_request_total{code="200",resource="httproutes",scope="resource",subresource="status",verb="APPLY"} 4
apiserver_request_total{code="200",resource="httproutes",scope="resource",subresource="status",verb="PATCH"} 3
apiserver_request_total{code="201",resource="httproutes",scope="resource",subresource="",verb="POST"} 3
apiserver_request_total{code="200",resource="leases",scope="resource",subresource="",verb="PUT"} 30
"""


@pytest.mark.parametrize("metrics", [_EMBEDDED, _KUBERNETES], ids=["embedded", "kubernetes"])
def test_writes_are_counted_alike_at_both_api_servers(metrics: str) -> None:
    assert count_writes(metrics) == {"patch httproutes/status": 7, "create httproutes": 3}


def test_the_help_has_a_line_for_each_case() -> None:
    text = parser().format_help()
    for name, case in {**CASES, **SIZED}.items():
        assert first_line(case)
        assert f"{name} " in text


def test_routes_that_were_never_served_count_in_a_percentile() -> None:
    served = [Probe(number / 100, 0) for number in range(1, 9)]
    lost = Probe(math.inf, 0)
    assert latency_ms(served, 0.5) == pytest.approx(45)
    assert math.isinf(latency_ms([*served, lost, lost], 0.99))
    assert math.isinf(latency_ms([], 0.5))
