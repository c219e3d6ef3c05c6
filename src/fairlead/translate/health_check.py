"""The health check of a LoadBalancer's backends: that of its class, or a request over TLS of its own.

    no spec.healthCheck, or disabled  -> as the class says
    spec.healthCheck                  -> a request over TLS; times and thresholds of the class where it gives none

In: the two specs. Out: a ``HealthCheck``, None when nothing is checked.
"""

from __future__ import annotations

import msgspec

from fairlead.api.capiside import RequestCheck
from fairlead.api.durations import seconds_from_duration
from fairlead.api.loadbalancer import LoadBalancerSpec
from fairlead.api.loadbalancerclass import LoadBalancerClassSpec
from fairlead.model.desired import HealthCheck, HealthRequest
from fairlead.translate.class_behaviour import health_check_from_class


def health_check_of(spec: LoadBalancerSpec, of_class: LoadBalancerClassSpec) -> HealthCheck | None:
    """Return the health check of a load balancer of this class."""
    check, request = health_check_from_class(of_class), spec.health_check
    if request is None or request.disabled:
        return check
    return _with_request(check or HealthCheck(), request)


def _with_request(check: HealthCheck, request: RequestCheck) -> HealthCheck:
    return msgspec.structs.replace(
        check,
        interval_s=seconds_from_duration(request.interval) if request.interval else check.interval_s,
        timeout_s=seconds_from_duration(request.timeout) if request.timeout else check.timeout_s,
        unhealthy_threshold=request.unhealthy_threshold or check.unhealthy_threshold,
        healthy_threshold=request.healthy_threshold or check.healthy_threshold,
        request=HealthRequest(path=request.path, host=request.host, ca_bundle=request.ca_bundle),
    )
