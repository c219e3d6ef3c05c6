"""Calls are counted in the bucket of their seconds, by method and result, and read as a scrape shows them."""

from __future__ import annotations

import pytest

from fairlead.sync.execute import BUCKETS_S, Timings

ENDS = ["0.01", "0.05", "0.1", "0.5", "1", "5", "10", "60", "+Inf"]


@pytest.mark.parametrize("at", range(len(BUCKETS_S) - 1))
def test_a_call_that_took_just_as_long_as_a_bucket_is_in_it(at):
    timings = Timings()
    timings.add("apply", "success", BUCKETS_S[at])
    assert timings.cumulative("apply", "success") == [
        (end, 1.0 if number >= at else 0.0) for number, end in enumerate(ENDS)
    ]


def test_buckets_count_all_calls_that_took_no_longer():
    timings = Timings()
    for seconds in (0.02, 0.02, 3.0, 100.0):
        timings.add("ensure", "error", seconds)
    assert [count for _, count in timings.cumulative("ensure", "error")] == [0, 2, 2, 2, 2, 3, 3, 3, 4]
    assert (timings.total("ensure", "error"), timings.seconds("ensure", "error")) == (4, pytest.approx(103.04))


def test_methods_and_results_are_counted_apart_and_listed_in_order():
    timings = Timings()
    timings.add("ensure", "success", 1.0)
    timings.add("apply", "success", 2.0)
    timings.add("apply", "error", 4.0)
    assert list(timings) == [("apply", "error"), ("apply", "success"), ("ensure", "success")]
    assert [timings.seconds(*labels) for labels in timings] == [4.0, 2.0, 1.0]
    assert (timings.total("delete", "success"), timings.seconds("delete", "success")) == (0, 0.0)
