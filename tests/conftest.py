"""What all tests share: how hypothesis searches, how many schedules the simulation runs, which tests start first."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# Deterministic: a failure in one run is the same failure in the next, and its seed is printed.
settings.register_profile(
    "fairlead",
    deadline=None,
    derandomize=True,
    print_blob=True,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fairlead")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what can be asked of the simulation."""
    parser.addoption("--schedules", type=int, default=10_000, help="schedules of the crash simulation")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slow tests first, otherwise in the order in which they are: at the end no worker waits for another."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
