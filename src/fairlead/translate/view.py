"""The views, with everything that a decision may depend on; the decisions; and the conditions common to all intents.

    TCPView           one TCPLoadBalancer     -> Decision
    HTTPView          one HTTPLoadBalancer    -> Decision
    GlobalView        one GlobalService       -> GlobalDecision
    LoadBalancerView  one LoadBalancer        -> LoadBalancerDecision
      GroupView       each of its groups         (part of both)

The settings of a class are a ``ClassBehaviour``: from the spec of the class, or from the record of the serving provider
if the class is gone or names another provider. Settings without a record (drain, guard, repair) have the defaults.

In: decoded objects and facts that the hub has collected at one moment. Never: a reference to a cache or a client.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Self

import msgspec
from msgspec.structs import replace

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.drill import Drill
from fairlead.api.globalservice import GlobalMemberState, GlobalService
from fairlead.api.httploadbalancer import HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.intent import Allocation, IntentObject
from fairlead.api.kubernetes import EndpointSlice, Node, Pod, Service
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.loadbalancerclass import EnsurePolicy, LoadBalancerClass, LoadBalancerClassSpec
from fairlead.api.meta import KubeObject
from fairlead.api.names import ANNOTATION_PAUSED, ANNOTATION_REPAIR, COMMAND_NAMES, LABEL_DO_NOT_DELETE, PAUSED_BY_CAPI
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.tenant import Tenant
from fairlead.api.times import seconds_from_duration
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind, Capabilities
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec, GuardPolicy, Shares, Spillover, Targets
from fairlead.model.health import HealthCheck, HealthCheckSettings, OutlierDetection, problem_of
from fairlead.model.http import Backend, Certificate, FixedAnswer, Maintenance
from fairlead.model.keys import Family, ListenerKey, LoadBalancerKey, TargetKey


class ClassBehaviour(msgspec.Struct, frozen=True):
    """The settings that a load balancer has from its class. ``health_check`` None: its backends are not checked."""

    provider: str
    parameters: Mapping[str, str]
    health_check: HealthCheck | None
    guard: GuardPolicy
    drain_s: float
    repair_s: float


def behaviour_of_class(spec: LoadBalancerClassSpec) -> ClassBehaviour:
    """Return the settings of ``spec``."""
    check = spec.health_check
    return ClassBehaviour(
        provider=spec.provider,
        parameters=spec.parameters,
        health_check=None
        if check.disabled
        else HealthCheck(
            interval_s=seconds_from_duration(check.interval),
            timeout_s=seconds_from_duration(check.timeout),
            unhealthy_threshold=check.unhealthy_threshold,
            healthy_threshold=check.healthy_threshold,
        ),
        guard=GuardPolicy(spec.guard.max_removal_percent, spec.guard.min_backends),
        drain_s=seconds_from_duration(spec.drain),
        repair_s=repair_s(spec.ensure_policy),
    )


def behaviour_on_record(provider: str, asked: FrontendSpec | None) -> ClassBehaviour:
    """Return the settings that ``provider`` got last; the defaults if nothing is recorded."""
    behaviour = behaviour_of_class(LoadBalancerClassSpec(provider=provider))
    if asked is None:
        return behaviour
    return replace(behaviour, parameters=asked.parameters, health_check=asked.health_check)


def check_refusals(
    check: HealthCheckSettings | None, outlier: OutlierDetection | None, capabilities: Capabilities
) -> Iterator[str]:
    """Yield errors in health checks that a user sets, and fields that the provider does not support."""
    if problem := problem_of(check):
        yield f"spec.healthCheck: {problem.field} {problem.text}"
    kind = (check.kind or "tcp") if check is not None else "none"
    if kind not in {"none", *capabilities.health_checks}:
        can = ", ".join(sorted(capabilities.health_checks))
        text = (
            f"this class has {can} checks and no {kind} checks" if can else "health checks of this class cannot be set"
        )
        yield f"spec.healthCheck: {text}; leave it out, or use a class with provider envoy"
    if problem := problem_of(outlier):
        yield f"spec.outlierDetection: {problem.field} {problem.text}"
    if outlier is not None and not capabilities.outlier_detection:
        yield "spec.outlierDetection: this class has none; leave it out, or use a class with provider envoy"


def repair_asked(item: IntentObject) -> str:
    """Return the pending repair request; empty if there is none."""
    request = item.annotation(ANNOTATION_REPAIR)
    return request if request != item.status.repaired else ""


#: Minimum time between two repairs, because reading a whole load balancer is expensive at some providers.
LEAST_REPAIR_S = 30.0


def repair_s(policy: EnsurePolicy) -> float:
    """Return the interval in seconds (at least 30) of repairs of own entries; 0 if manual changes are kept."""
    return max(LEAST_REPAIR_S, seconds_from_duration(policy.min_period)) if policy.policy == "Always" else 0.0


#: (namespace, name) of a BackendGroup.
GroupKey = tuple[str, str]
#: The backends that the ledger holds for one load balancer.
Recorded = frozenset[tuple[ListenerKey, TargetKey]]


_NO_CLASS = behaviour_of_class(LoadBalancerClassSpec(provider=""))


class NodeAddresses(msgspec.Struct, frozen=True):
    """The nodes of one member that may take traffic: their addresses by name, in each family.

    ``stale`` is why the addresses of a family are out of date, without an entry for a current one. ``leaving`` are the
    nodes reported as terminating; True: they still serve.
    """

    ready: Mapping[Family, Mapping[str, str]] = {}
    stale: Mapping[Family, str] = {}
    leaving: Mapping[Family, Mapping[str, tuple[str, bool]]] = {}


class MemberState(msgspec.Struct, frozen=True, gc=False):
    """The liveness of a member's agent; ``message`` is empty while its lease is renewed.

    ``drained``: its targets get no new connections, since its Tenant is being removed, or drainWhenLost has passed.
    ``dropped``: dropWhenLost has passed, so they are removed. ``silent_since`` is when the agent
    last reported (RFC 3339), empty unless it is silent.
    """

    message: str = ""
    drained: bool = False
    dropped: bool = False
    silent_since: str = ""


class ChecksLimit(msgspec.Struct, frozen=True, gc=False):
    """The factor by which the checks of a member are slowed, so that they stay within its limit.

    ``per_s`` is the number of checks a second that proxies would make without it.
    """

    slowdown: int = 1
    per_s: float = 0.0


class MemberView(msgspec.Struct, frozen=True):
    """The common part of the views of load balancers of members.

    ``providers`` maps the provider names that this hub runs to their capabilities, ``provider_problems`` those that
    failed to start to the reason. ``allocation`` is on record. ``accepted_class`` is the class of the version that was
    last accepted, None when it is gone or names another provider than the serving one. ``over_quota`` is the sentence
    for the user when the tenant's quota is exceeded, else empty. ``stale`` is why the view is known to be incomplete,
    else empty. ``unreadable`` is a sentence about an object of the member that cannot be read, so that it is not known
    which load balancer it is for; empty when all can be. ``loopback_targets`` allows 127.0.0.0/8 where all is on one
    machine. ``given`` are the load balancers, of every member, that answer at each address and port.
    """

    key: LoadBalancerKey
    load_balancer: IntentObject
    tenant: Tenant | None
    load_balancer_class: LoadBalancerClass | None
    providers: Mapping[str, Capabilities]
    nodes: NodeAddresses
    allocation: Allocation
    accepted_class: LoadBalancerClass | None = None
    member: MemberState = MemberState()
    over_quota: str = ""
    stale: str = ""
    unreadable: str = ""
    loopback_targets: bool = False
    provider_problems: Mapping[str, str] = {}
    checks: ChecksLimit = ChecksLimit()
    given: Mapping[TargetKey, Collection[LoadBalancerKey]] = {}
    #: Seconds until another view is due without a change.
    due_s: float | None = None

    #: Settings that apply instead of the class while the last accepted version is served.
    in_force: ClassBehaviour | None = None

    @property
    def behaviour(self) -> ClassBehaviour:
        """Return the settings of its class; the defaults without a class."""
        if self.in_force is not None:
            return self.in_force
        load_balancer_class = self.load_balancer_class
        return behaviour_of_class(load_balancer_class.spec) if load_balancer_class is not None else _NO_CLASS

    @property
    def provider(self) -> str:
        """Return the name of its provider, empty when it has no class."""
        if self.in_force is not None:
            return self.in_force.provider
        return self.load_balancer_class.spec.provider if self.load_balancer_class is not None else ""

    @property
    def capabilities(self) -> Capabilities | None:
        """Return the capabilities of its provider, None when this hub does not run it."""
        return self.providers.get(self.provider)

    @property
    def accepted_class_name(self) -> str | None:
        """Return the class of the version that was last accepted, None when there is no such version."""
        raise NotImplementedError


class TCPView(MemberView, frozen=True, kw_only=True):
    """The view of one TCPLoadBalancer.

    ``slices`` are those labelled with the load balancer, in any order. ``certificates`` are those that could be read,
    by name; ``missing_certificates`` maps the others to the reason.
    """

    load_balancer: TCPLoadBalancer
    slices: tuple[EndpointSlice, ...]
    certificates: Mapping[str, Certificate] = {}
    missing_certificates: Mapping[str, str] = {}

    @property
    def accepted_class_name(self) -> str | None:
        """Return the class of the version that was last accepted, None when there is no such version."""
        accepted = self.load_balancer.status.accepted
        return None if accepted is None else accepted.class_name


class SharedBackend(msgspec.Struct, frozen=True):
    """One port of a Service that several members serve: the targets of each are a ``Locality`` of ``shares``.

    ``owners`` and ``stale`` as in ``DesiredLoadBalancer``, for this port.
    """

    targets: Targets
    shares: Shares
    owners: frozenset[str] = frozenset()
    stale: str = ""


#: By name and protocol of the port, as the Service of one member has it.
SharedPorts = Mapping[tuple[str, str], SharedBackend]


class HTTPView(MemberView, frozen=True, kw_only=True):
    """The view of one HTTPLoadBalancer.

    ``routes`` are those that name it, ordered by name. ``slices`` are those of the Services that backends name, by
    "namespace/name" of the Service in the member. ``certificates`` are those that could be read, by name;
    ``missing_certificates`` maps the others to the reason. ``domain_certificates`` name that for the names that the
    hub makes for the member, by domain, where there is one. ``answers`` are to challenges of an authority. ``shared``
    are the Services whose requests other members serve as well, by "namespace/name"; routes may name none of them.
    ``maintenance`` is in effect now.
    """

    load_balancer: HTTPLoadBalancer
    routes: tuple[LoadBalancerRoute, ...] = ()
    slices: Mapping[str, tuple[EndpointSlice, ...]] = {}
    certificates: Mapping[str, Certificate] = {}
    missing_certificates: Mapping[str, str] = {}
    domain_certificates: Mapping[str, str] = {}
    answers: tuple[FixedAnswer, ...] = ()
    shared: Mapping[str, SharedPorts] = {}
    maintenance: tuple[Maintenance, ...] = ()

    def shared_backend(self, backend: Backend) -> SharedBackend | None:
        """Return the shared backend of a Service that several members serve; None if one member serves it alone."""
        ports = self.shared.get(backend.service)
        if ports is None or backend.protocol == "UDP" or self.capabilities is None or not self.capabilities.localities:
            return None
        return ports.get((backend.port_name, "TCP"))

    @property
    def domains(self) -> tuple[str, ...]:
        """Return the domains of the member's generated names, the present one first."""
        return self.tenant.name_domains if self.tenant is not None else ()

    @property
    def accepted_class_name(self) -> str | None:
        """Return the class of the version that was last accepted, None when there is no such version."""
        accepted = self.load_balancer.status.accepted
        return None if accepted is None else accepted.class_name


class Returning(msgspec.Struct, frozen=True, gc=False):
    """A member that is down or returns: ``part`` of its share; 0: only when no other member has a healthy endpoint."""

    part: float = 0.0
    flaps: bool = False


class GlobalView(MemberView, frozen=True, kw_only=True):
    """The view of one GlobalService, with the ports that are open in its spec.

    ``tenants`` are those that the present and the accepted spec name, by name. ``parts`` are the views of the load
    balancers of their Services, by Tenant and spec.service. ``down`` are the members with fewer healthy endpoints than
    they need, ``returning`` those without a healthy endpoint and those that return. ``agents`` are the states of
    members by Tenant, drainWhenLost and dropWhenLost. ``drill`` takes a member out of service now.
    """

    load_balancer: GlobalService
    tenants: Mapping[str, Tenant] = {}
    parts: Mapping[tuple[str, str], TCPView] = {}
    down: frozenset[str] = frozenset()
    returning: Mapping[str, Returning] = {}
    agents: Mapping[tuple[str, str, str], MemberState] = {}
    drill: Drill | None = None

    @property
    def accepted_class_name(self) -> str | None:
        """Return the class of the version that was last accepted, None when there is no such version."""
        accepted = self.load_balancer.status.accepted
        return None if accepted is None else accepted.class_name


class GroupView(msgspec.Struct, frozen=True):
    """One BackendGroup with the objects that it selects.

    ``kept`` are (namespace, name) of the pods that stay registered by policy. ``accepted`` are the parameters with
    which this load balancer last accepted the group, None when it never has. ``verdict`` is the provider's refusal,
    None when it accepts. ``retention_error`` is why the driver could not be asked which pods stay, else empty.
    """

    group: BackendGroup
    pods: tuple[Pod, ...] = ()
    service: Service | None = None
    nodes: tuple[Node, ...] = ()
    kept: frozenset[tuple[str, str]] = frozenset()
    out_of_scope: bool = False
    accepted: Mapping[str, str] | None = None
    verdict: Condition | None = None
    retention_error: str = ""


class LoadBalancerView(msgspec.Struct, frozen=True):
    """The view of one LoadBalancer.

    ``conflict`` is the "namespace/name" of the LoadBalancer that has the same identity, else empty. ``living``: it was
    accepted before; ``accepted`` is then the frontend last sent to the provider named ``provider``. ``verdict`` is
    the provider's refusal of the present spec, None when it accepts. ``stale``, ``unreadable``, ``loopback_targets``:
    see MemberView.
    """

    key: LoadBalancerKey
    load_balancer: LoadBalancer
    load_balancer_class: LoadBalancerClass | None
    providers: Mapping[str, Capabilities]
    groups: tuple[GroupView, ...] = ()
    recorded: Recorded = frozenset()
    conflict: str = ""
    stale: str = ""
    unreadable: str = ""
    loopback_targets: bool = False
    living: bool = False
    accepted: FrontendSpec | None = None
    provider: str = ""
    verdict: Condition | None = None
    #: The allocation on record; for a provider that needs an address or ports of the hub.
    allocation: Allocation = Allocation()
    #: A provider has been asked about the load balancer or a group, and has not answered yet.
    pending: bool = False
    #: As in MemberView.
    due_s: float | None = None

    @property
    def behaviour(self) -> ClassBehaviour:
        """Return the settings of its class; if the class is gone, the last ones that its provider got."""
        if self.load_balancer_class is not None:
            return behaviour_of_class(self.load_balancer_class.spec)
        return behaviour_on_record(self.provider, self.accepted)

    @property
    def class_provider(self) -> str:
        """Return the provider of its class; if the class is gone, the recorded one."""
        return self.load_balancer_class.spec.provider if self.load_balancer_class is not None else self.provider

    @property
    def capabilities(self) -> Capabilities | None:
        """Return the capabilities of its provider, None when this hub does not run it."""
        return self.providers.get(self.class_provider)

    @property
    def needs_allocation(self) -> bool:
        """Return whether its provider needs an address or ports from the hub."""
        capabilities = self.capabilities
        return capabilities is not None and capabilities.allocation is not AllocationKind.NONE

    @property
    def name(self) -> str:
        """Return "namespace/name"."""
        return f"{self.key.namespace}/{self.key.name}"


class Decision(msgspec.Struct, frozen=True):
    """The result for one view, decided once.

    ``desired`` None means that there is nothing to program (yet): not that something is to be removed. ``targets`` is
    the count shown in the status. ``serving_last_accepted``: ``desired`` is from an earlier, valid version, so that the
    present spec is not recorded as accepted. ``allocation`` is what it has now, to be recorded before it is used.
    ``complete``: each listener is to have a target that takes connections; None when that is not known yet.
    ``checks_per_s``: health checks that its proxies would make in a second, had its Tenant no limit of them; 0 where it
    has none.
    """

    desired: DesiredLoadBalancer | None
    conditions: tuple[Condition, ...]
    targets: str = ""
    provider: str = ""
    serving_last_accepted: bool = False
    allocation: Allocation = Allocation()
    complete: bool | None = None
    #: For an HTTP load balancer, the hosts that are in maintenance.
    maintenance: tuple[Maintenance, ...] = ()
    checks_per_s: float = 0.0

    def summary(self) -> Self:
        """Return the decision without what is only needed to carry it out."""
        return replace(self, desired=None)

    def condition(self, reason: ConditionReason) -> Condition | None:
        """Return the first condition with ``reason``, None when there is none."""
        return next((condition for condition in self.conditions if condition.reason is reason), None)


class MemberShare(msgspec.Struct, frozen=True, gc=False):
    """One member of a GlobalService as it was decided.

    ``weight`` 0: no new connections, for ``why``. ``tier`` counts from 0 without gaps. ``ready`` of ``total``
    endpoints take connections; for nodes they are not counted. ``silent_since`` is when its agent last reported, empty
    unless it is silent.
    """

    tenant: str
    service: str = ""
    weight: int = 0
    tier: int = 0
    ready: int = 0
    total: int = 0
    state: GlobalMemberState = "Missing"
    why: str = ""
    silent_since: str = ""


class GlobalDecision(Decision, frozen=True):
    """The decision about one GlobalView, with its members ordered as in its spec."""

    members: tuple[MemberShare, ...] = ()
    spillover: Spillover = Spillover.STRICT


class LoadBalancerDecision(Decision, frozen=True):
    """The decision about one LoadBalancerView, also by group.

    ``groups`` are the conditions of each group for this load balancer; ``taken`` the parameters of each that is
    accepted unchanged. ``view`` is the view with the verdicts of its provider.
    """

    groups: Mapping[GroupKey, tuple[Condition, ...]] = msgspec.field(
        default_factory=dict[GroupKey, tuple[Condition, ...]]
    )
    taken: Mapping[GroupKey, Mapping[str, str]] = msgspec.field(default_factory=dict[GroupKey, Mapping[str, str]])
    #: The generation of each group that was decided about.
    generations: Mapping[GroupKey, int] = msgspec.field(default_factory=dict[GroupKey, int])
    view: LoadBalancerView | None = None

    def summary(self) -> Self:
        """Return the decision without what is only needed to carry it out."""
        return replace(self, desired=None, view=None)


#: Allocates an address or ports for a load balancer; returns the allocation, and why it differs from the request.
Allocated = tuple[Allocation, Condition | None]


_NO_READY = "no ready"


def refused(reason: ConditionReason, message: str) -> Condition:
    """Return condition Accepted with status False."""
    return Condition(ConditionType.ACCEPTED, False, reason, message)


def build_accepted(refusal: Condition | None, *, served: bool = True) -> Condition:
    """Return condition Accepted; ``served``: an earlier version stays in effect while this one is refused."""
    if refusal is None:
        return Condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, "")
    message = f"{refusal.message}; the last accepted version is served until then" if served else refusal.message
    return replace(refusal, message=message)


def build_unprogrammed(refusal: Condition) -> Condition:
    """Return condition Programmed for a rejected object, which is not programmed."""
    return replace(refusal, type=ConditionType.PROGRAMMED)


def unresolved(reason: ConditionReason, message: str) -> Condition:
    """Return condition ResolvedRefs with status False."""
    return Condition(ConditionType.RESOLVED_REFS, False, reason, message)


def no_ready(noun: str, places: str) -> str:
    """Return the message of BackendNotFound about ``places`` whose backends exist, but accept no connections."""
    return f"{_NO_READY} {noun} for {places}"


def says_no_ready(reason: str, message: str) -> bool:
    """Return whether a condition reports only that, so that it has the same cause as Serving with the reason NoTargets.

    The text is compared because the status, which other versions write too, has no other field for it.
    """
    return reason == ConditionReason.BACKEND_NOT_FOUND and message.startswith(_NO_READY)


def resolved() -> Condition:
    """Return condition ResolvedRefs with status True."""
    return Condition(ConditionType.RESOLVED_REFS, True, ConditionReason.RESOLVED_REFS, "")


def _end_of_pause(paused: KubeObject) -> str:
    if paused.annotation(ANNOTATION_PAUSED) == PAUSED_BY_CAPI:
        return "the Cluster is no longer paused"
    name, namespace = paused.metadata.name, paused.metadata.namespace
    short = COMMAND_NAMES.get(type(paused).__name__, "")
    if not short:
        return f"annotation {ANNOTATION_PAUSED} is removed"
    return f"fairlead resume {short}/{name}" + (f" -n {namespace}" if namespace else "")


def build_paused(*objects: KubeObject | None) -> Condition | None:
    """Return condition Paused when one of ``objects`` carries the annotation with any value but "false"."""
    by = [item for item in objects if item is not None and item.annotation(ANNOTATION_PAUSED, "false") != "false"]
    if not by:
        return None
    ends = " and ".join(map(_end_of_pause, by))
    text = f"nothing is changed or removed until {ends}"
    return Condition(ConditionType.PAUSED, True, ConditionReason.PAUSED_BY_USER, text)


def first_three(items: set[str]) -> str:
    """Return the first three of ``items`` by name, for a message."""
    return ", ".join(sorted(items)[:3]) + (" and more" if len(items) > 3 else "")


def is_labelled(item: KubeObject) -> bool:
    """Return whether ``item`` carries the label, with any value."""
    return LABEL_DO_NOT_DELETE in (item.metadata.labels or {})


def is_leaving(item: KubeObject) -> bool:
    """Return whether ``item`` is being deleted and no label holds it, so that everything created for it is removed."""
    return item.deleting and not is_labelled(item)


def build_protected(item: KubeObject) -> Condition | None:
    """Return condition Protected; None if ``item`` is not being deleted, or not held."""
    if not item.deleting or not is_labelled(item):
        return None
    text = (
        f"deleted, but label {LABEL_DO_NOT_DELETE} keeps the object and all it serves; remove the label to release it"
    )
    return Condition(ConditionType.PROTECTED, True, ConditionReason.DO_NOT_DELETE, text)
