"""What all tests share: how hypothesis searches, and how many schedules the simulation runs."""

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
