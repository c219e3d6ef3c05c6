"""LoadBalancerClass: which provider makes a load balancer, and how it behaves."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.meta import KubeObject, Resource, Wire
from fairlead.api.names import GROUP, VERSION

Duration = Annotated[str, Meta(pattern=r"^[0-9]+(ms|s|m|h)$", max_length=16)]


class EnsurePolicy(Wire, frozen=True, gc=False):
    """IfNotSucc: what was changed by hand stands. Always: our own entries are repaired every minPeriod."""

    policy: Literal["IfNotSucc", "Always"] = "IfNotSucc"
    min_period: Duration = "60s"


class Guard(Wire, frozen=True, gc=False):
    """How much may be removed in one run without positive knowledge that it is gone."""

    max_removal_percent: Annotated[int, Meta(ge=1, le=100)] = 50
    min_backends: Annotated[int, Meta(ge=0, le=1000)] = 1


class ClassHealthCheck(Wire, frozen=True, gc=False):
    """Active TCP health checks of the targets; disabled turns them off."""

    disabled: bool = False
    interval: Duration = "5s"
    timeout: Duration = "1s"
    unhealthy_threshold: Annotated[int, Meta(ge=1, le=10)] = 2
    healthy_threshold: Annotated[int, Meta(ge=1, le=10)] = 1


class LoadBalancerClassSpec(Wire, frozen=True, gc=False):
    """The provider by its entry point's name, its parameters, and the behaviour of all load balancers of the class."""

    provider: Annotated[str, Meta(min_length=1, max_length=63)]
    parameters: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    targets: Literal["", "Node", "Pod"] = ""
    ensure_policy: EnsurePolicy = EnsurePolicy()
    drain: Duration = "30s"
    guard: Guard = Guard()
    health_check: ClassHealthCheck = ClassHealthCheck()


class LoadBalancerClass(KubeObject, frozen=True, gc=False):
    """A kind of load balancer that Services can ask for as loadBalancerClass fairlead.dev/<name>."""

    spec: LoadBalancerClassSpec = LoadBalancerClassSpec(provider="")


LOAD_BALANCER_CLASSES = Resource(GROUP, VERSION, "LoadBalancerClass", "loadbalancerclasses", False, LoadBalancerClass)
