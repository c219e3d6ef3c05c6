"""The behaviour that a LoadBalancerClass sets for all its load balancers, as values of the model.

In: the spec of a class. Out: health check, guard, repair interval; times in seconds.
"""

from __future__ import annotations

from fairlead.api.intent import IntentObject
from fairlead.api.loadbalancerclass import EnsurePolicy, LoadBalancerClassSpec
from fairlead.api.names import ANNOTATION_REPAIR
from fairlead.api.times import seconds_from_duration
from fairlead.model.desired import GuardPolicy, HealthCheck


def health_check_from_class(spec: LoadBalancerClassSpec) -> HealthCheck | None:
    """Return the health check of the backends, None when the class disables it."""
    check = spec.health_check
    if check.disabled:
        return None
    return HealthCheck(
        interval_s=seconds_from_duration(check.interval),
        timeout_s=seconds_from_duration(check.timeout),
        unhealthy_threshold=check.unhealthy_threshold,
        healthy_threshold=check.healthy_threshold,
    )


def guard_from_class(spec: LoadBalancerClassSpec) -> GuardPolicy:
    """Return the limits of removals in one run."""
    return GuardPolicy(spec.guard.max_removal_percent, spec.guard.min_backends)


def repair_asked(item: IntentObject) -> str:
    """Return the request for a repair that has no answer yet; empty when there is none."""
    request = item.annotation(ANNOTATION_REPAIR)
    return request if request != item.status.repaired else ""


def repair_s(policy: EnsurePolicy) -> float:
    """Return the interval in seconds (at least 30) of repairs of own entries; 0 when manual changes are kept."""
    return max(30.0, seconds_from_duration(policy.min_period)) if policy.policy == "Always" else 0.0
