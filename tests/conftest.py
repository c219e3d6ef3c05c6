"""What all tests share: how hypothesis searches."""

from __future__ import annotations

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
