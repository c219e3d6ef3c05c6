"""The behaviour of a load balancer that its class sets, as values of the model; times in seconds.

    behaviour_of_class        from the spec of a class
    behaviour_on_record       from the record of what the serving provider was asked for: its class is gone, or names
                              another provider by now

Pure. What no record holds (drain, guard, repair) has the defaults of a class.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.api.intent import IntentObject
from fairlead.api.loadbalancerclass import EnsurePolicy, LoadBalancerClassSpec
from fairlead.api.names import ANNOTATION_REPAIR
from fairlead.api.times import seconds_from_duration
from fairlead.model.desired import FrontendSpec, GuardPolicy, HealthCheck


class ClassBehaviour(msgspec.Struct, frozen=True):
    """What a load balancer has from its class. ``health_check`` None: its backends are not checked."""

    provider: str
    parameters: Mapping[str, str]
    health_check: HealthCheck | None
    guard: GuardPolicy
    drain_s: float
    repair_s: float


def behaviour_of_class(spec: LoadBalancerClassSpec) -> ClassBehaviour:
    """Return what ``spec`` sets."""
    return ClassBehaviour(
        provider=spec.provider,
        parameters=spec.parameters,
        health_check=health_check_from_class(spec),
        guard=guard_from_class(spec),
        drain_s=seconds_from_duration(spec.drain),
        repair_s=repair_s(spec.ensure_policy),
    )


def behaviour_on_record(provider: str, asked: FrontendSpec | None) -> ClassBehaviour:
    """Return what ``provider`` was asked for last; that of a class without settings when nothing is on record."""
    behaviour = behaviour_of_class(LoadBalancerClassSpec(provider=provider))
    if asked is None:
        return behaviour
    return msgspec.structs.replace(behaviour, parameters=asked.parameters, health_check=asked.health_check)


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
