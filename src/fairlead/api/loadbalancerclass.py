"""LoadBalancerClass: which provider makes a load balancer, and how it behaves.

Who the provider is and how it is reached never changes; as whom we come to it, and how long we wait, may.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.crd import ACCEPTED, AGE, IN_USE, CelRule, Column, Crd
from fairlead.api.meta import LIST_SET, Conditions, KubeObject, Line63, Resource, Wire
from fairlead.api.names import GROUP, VERSION

#: Parameters of a class that may change while it lives, as may all that begin with ``timeout.``: they say as whom we
#: come and how gently, not who is at the other end. All others are part of the identity of its load balancers.
CHANGEABLE_PARAMETERS = (
    "credentials",
    "caBundle",
    "timeout",
    "parallel",
    "verify",
    "acceptDryRunCall",
    "backendHealth",
    "ipFamilies",
    "drainTimeout",
    "allowedBackends",
    "accessLog",
    "accessLogSink",
    "tracing",
    "tracingSink",
    "collectorCA",
    "requestsPerSecond",
    "connections",
    "bandwidth",
)
Parameters = Annotated[dict[str, Annotated[str, Meta(max_length=4096)]], Meta(max_length=64)]

Duration = Annotated[str, Meta(pattern=r"^[0-9]+(ms|s|m|h)$", max_length=16)]


class EnsurePolicy(Wire, frozen=True, gc=False):
    """IfNotSucc keeps manual changes. Always repairs Fairlead's entries every minPeriod."""

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
    """The provider by its entry point's name, its parameters, and the behaviour of all load balancers of the class.

    parameters count before those of a load balancer. draining: what uses the class lives on, and nothing new may.
    tenants are the names of the Tenants whose Services may use it; all of them when empty. maxPerTenant is how many
    load balancers of the class one Tenant may have; 0 means no limit.
    region is where the proxies of the class are, nearRegions are the next best ones: GlobalServices with
    trafficDistribution prefer members there.
    """

    provider: Annotated[str, Meta(min_length=1, max_length=63)]
    parameters: Parameters = msgspec.field(default_factory=dict[str, str])
    targets: Literal["", "Node", "Pod"] = ""
    ensure_policy: EnsurePolicy = EnsurePolicy()
    drain: Duration = "30s"
    guard: Guard = Guard()
    health_check: ClassHealthCheck = ClassHealthCheck()
    draining: bool = False
    region: Line63 = ""
    near_regions: Annotated[list[Line63], Meta(max_length=64, extra_json_schema=LIST_SET)] = msgspec.field(
        default_factory=list[str]
    )
    tenants: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=56)]], Meta(max_length=256, extra_json_schema=LIST_SET)
    ] = msgspec.field(default_factory=list[str])
    max_per_tenant: Annotated[int, Meta(ge=0)] = 0


class LoadBalancerClassStatus(Wire, frozen=True, gc=False):
    """Whether the class can be used, and whether it is: loadBalancers counts what asks for it, of both kinds."""

    load_balancers: int = 0
    observed_generation: int = 0
    conditions: Conditions = None


class LoadBalancerClass(KubeObject, frozen=True, gc=False):
    """A kind of load balancer that Services can ask for as loadBalancerClass fairlead.dev/<name>."""

    spec: LoadBalancerClassSpec = LoadBalancerClassSpec(provider="")
    status: LoadBalancerClassStatus = LoadBalancerClassStatus()

    @property
    def closed(self) -> str:
        """Return why nothing new may use it, empty when it may."""
        if self.deleting:
            return f"LoadBalancerClass {self.metadata.name!r} is being deleted and accepts nothing new; choose another"
        if self.spec.draining:
            return f"LoadBalancerClass {self.metadata.name!r} is draining and accepts nothing new; choose another"
        return ""


LOAD_BALANCER_CLASSES = Resource(GROUP, VERSION, "LoadBalancerClass", "loadbalancerclasses", False, LoadBalancerClass)


def _class_parameters() -> CelRule:
    """Return the rule that a class's parameters never change, but for those that only say how we come."""
    new, old = (f"(has({value}.parameters) ? {value}.parameters : {{}})" for value in ("self", "oldSelf"))
    names = ", ".join(f"'{name}'" for name in CHANGEABLE_PARAMETERS)
    free = f"k in [{names}] || k.startsWith('timeout.')"
    return CelRule(
        f"{new}.all(k, {free} || (k in {old} && {old}[k] == {new}[k])) && {old}.all(k, {free} || k in {new})",
        f"parameters is immutable, except {', '.join(CHANGEABLE_PARAMETERS)} and timeout.<hook>: create another class",
        ".parameters",
    )


LOAD_BALANCER_CLASS_CRD = Crd(
    LOAD_BALANCER_CLASSES,
    short_names=("lbc",),
    columns=(
        Column("Provider", ".spec.provider"),
        Column("Targets", ".spec.targets"),
        Column("Accepted", f"{ACCEPTED}.status"),
        Column("Load Balancers", ".status.loadBalancers", "integer", description="what asks for it"),
        Column("Draining", ".spec.draining", "boolean"),
        Column("Drain", ".spec.drain", priority=1),
        Column("Used By", f"{IN_USE}.message", priority=1),
        AGE,
    ),
    rules=(
        CelRule("self.provider == oldSelf.provider", "provider is immutable: create another class", ".provider"),
        _class_parameters(),
    ),
)
