"""Targets are counted by what is seen of them, for one load balancer and for all of a class."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.hub.intents.status import (
    CountedTargets,
    TargetCounts,
    count_targets,
    in_rotation,
    is_complete,
    shown_targets,
)
from fairlead.model.observed import Health, Observed
from fairlead.testing.builders import HTTP, desired, lb_key, target
from fairlead.translate.view import Decision

pytestmark = pytest.mark.req("X-1")
HALF = Health(total=4, healthy=1, unhealthy=("10.0.0.2:80",), unknown=2)


def test_all_load_balancers_of_a_class_are_summed_until_they_are_gone() -> None:
    counts = TargetCounts()
    counts.put(lb_key("a"), "envoy", "edge", CountedTargets(1, 2, 3))
    counts.put(lb_key("b"), "envoy", "edge", CountedTargets(10, 0, 0))
    counts.put(lb_key("c"), "haproxy", "other", CountedTargets(0, 0, 5))
    counts.put(lb_key("b"), "envoy", "edge", CountedTargets(7, 3, 0))
    assert counts.by_class() == {
        ("envoy", "edge", "healthy"): 8,
        ("envoy", "edge", "unhealthy"): 5,
        ("envoy", "edge", "unknown"): 3,
        ("haproxy", "other", "healthy"): 0,
        ("haproxy", "other", "unhealthy"): 0,
        ("haproxy", "other", "unknown"): 5,
    }
    for name in ("a", "b", "c", "never there"):
        counts.forget(lb_key(name))
    assert not counts.by_class()


@pytest.mark.parametrize(
    ("health", "expected", "counts"), [(HALF, 9, (1, 3, 2)), (None, 9, (0, 0, 9)), (Health(), 9, (0, 0, 0))]
)
def test_what_a_provider_says_counts_and_what_it_does_not_say_is_unknown(
    health: Health | None, expected: int, counts: tuple[int, int, int]
) -> None:
    assert count_targets(health, expected) == counts


def test_only_targets_that_take_connections_are_in_rotation() -> None:
    leaving = msgspec.structs.replace(target("2"), draining=True)
    assert in_rotation(desired([target("1"), leaving, target("3")])) == 2
    assert in_rotation(desired([])) == 0
    assert in_rotation(None) == 0
    assert is_complete(Decision(desired([target("1"), leaving]), ()))
    assert not is_complete(Decision(desired([leaving]), ()))
    assert not is_complete(Decision(None, ()))
    assert HTTP in desired([leaving]).targets


@pytest.mark.parametrize(
    ("ready", "health", "shown"),
    [
        ("2/3", None, "2/3"),
        ("2/3", Health(unknown=3), "2/3"),
        ("2/3", HALF, "1/4 healthy"),
        ("nodes", HALF, "1/4 healthy"),
        ("nodes", Health(total=4, healthy=4), "nodes healthy"),
    ],
)
def test_the_column_shows_what_is_seen(ready: str, health: Health | None, shown: str) -> None:
    assert shown_targets(ready, Observed(health=health)) == shown
