"""The views: all that one decision may depend on, and the decision. Frozen values, one pair for each intent.

    TCPView           one TCPLoadBalancer     -> Decision
    HTTPView          one HTTPLoadBalancer    -> Decision
    LoadBalancerView  one LoadBalancer        -> LoadBalancerDecision
      GroupView       each of its groups         (part of both)

In: decoded objects and facts that the hub has collected at one moment. Never: a reference to a cache or a client.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Self

import msgspec

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.httploadbalancer import HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.intent import Allocation, IntentObject
from fairlead.api.kubernetes import EndpointSlice, Node, Pod, Service
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.loadbalancerclass import LoadBalancerClass, LoadBalancerClassSpec
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.tenant import Tenant
from fairlead.model.condition import Condition, ConditionReason
from fairlead.model.contract import AllocationKind, Capabilities
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec
from fairlead.model.http import Certificate, FixedAnswer
from fairlead.model.keys import Family, ListenerKey, LoadBalancerKey, TargetKey
from fairlead.translate.class_behaviour import ClassBehaviour, behaviour_of_class

#: (namespace, name) of a BackendGroup.
GroupKey = tuple[str, str]
#: The backends that the ledger holds for one load balancer.
Recorded = frozenset[tuple[ListenerKey, TargetKey]]


_NO_CLASS = behaviour_of_class(LoadBalancerClassSpec(provider=""))


class NodeAddresses(msgspec.Struct, frozen=True):
    """The nodes of one member that may take traffic: their addresses by name, in each family.

    ``stale`` is why those of a family are out of date; it has no entry for one that is not. ``leaving`` are those that
    are reported as terminating; True: they still serve.
    """

    ready: Mapping[Family, Mapping[str, str]] = {}
    stale: Mapping[Family, str] = {}
    leaving: Mapping[Family, Mapping[str, tuple[str, bool]]] = {}


class MemberState(msgspec.Struct, frozen=True, gc=False):
    """The liveness of a member's agent; ``message`` is empty while its lease is renewed."""

    message: str = ""
    #: The tenant's drainWhenLost has passed: its targets get no new connections.
    drained: bool = False


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
    given: Mapping[TargetKey, Collection[LoadBalancerKey]] = {}

    #: What applies instead of the class: of the version that was last accepted, while that is served.
    in_force: ClassBehaviour | None = None

    @property
    def behaviour(self) -> ClassBehaviour:
        """Return what its class sets, the defaults when there is none."""
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
    """The view of one TCPLoadBalancer. ``slices`` are those labelled with the load balancer, in any order."""

    load_balancer: TCPLoadBalancer
    slices: tuple[EndpointSlice, ...]

    @property
    def accepted_class_name(self) -> str | None:
        """Return the class of the version that was last accepted, None when there is no such version."""
        accepted = self.load_balancer.status.accepted
        return None if accepted is None else accepted.class_name


class HTTPView(MemberView, frozen=True, kw_only=True):
    """The view of one HTTPLoadBalancer.

    ``routes`` are those that name it, ordered by name. ``slices`` are those of the Services that backends name, by
    "namespace/name" of the Service in the member. ``certificates`` are those that could be read, by name;
    ``missing_certificates`` maps the others to the reason. ``domain_certificates`` name that for the names that the
    hub makes for the member, by domain, where there is one. ``answers`` are to challenges of an authority.
    """

    load_balancer: HTTPLoadBalancer
    routes: tuple[LoadBalancerRoute, ...] = ()
    slices: Mapping[str, tuple[EndpointSlice, ...]] = {}
    certificates: Mapping[str, Certificate] = {}
    missing_certificates: Mapping[str, str] = {}
    domain_certificates: Mapping[str, str] = {}
    answers: tuple[FixedAnswer, ...] = ()

    @property
    def domains(self) -> tuple[str, ...]:
        """Return the domains in which the member has names that the hub makes, the present one first."""
        return self.tenant.name_domains if self.tenant is not None else ()

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
    #: What is allocated to it on record; for a provider that needs an address or ports of the hub.
    allocation: Allocation = Allocation()
    #: A provider has been asked about the load balancer or a group, and has not answered yet.
    pending: bool = False

    @property
    def class_spec(self) -> LoadBalancerClassSpec:
        """Return the spec of its class, the defaults when the class is gone."""
        load_balancer_class = self.load_balancer_class
        return load_balancer_class.spec if load_balancer_class else LoadBalancerClassSpec(provider=self.provider)

    @property
    def capabilities(self) -> Capabilities | None:
        """Return the capabilities of its provider, None when this hub does not run it."""
        return self.providers.get(self.class_spec.provider)

    @property
    def needs_allocation(self) -> bool:
        """Return whether its provider serves at an address, or at ports, that the hub gives it."""
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
    """

    desired: DesiredLoadBalancer | None
    conditions: tuple[Condition, ...]
    targets: str = ""
    provider: str = ""
    serving_last_accepted: bool = False
    allocation: Allocation = Allocation()

    def summary(self) -> Self:
        """Return the decision without what is only needed to carry it out."""
        return msgspec.structs.replace(self, desired=None)

    def condition(self, reason: ConditionReason) -> Condition | None:
        """Return the first condition with ``reason``, None when there is none."""
        return next((condition for condition in self.conditions if condition.reason is reason), None)


class LoadBalancerDecision(Decision, frozen=True):
    """The decision about one LoadBalancerView, also by group.

    ``groups`` are the conditions of each group for this load balancer; ``taken`` the parameters of each that is
    accepted unchanged. ``view`` is the view with the verdicts of its provider.
    """

    groups: Mapping[GroupKey, tuple[Condition, ...]] = msgspec.field(
        default_factory=dict[GroupKey, tuple[Condition, ...]]
    )
    taken: Mapping[GroupKey, Mapping[str, str]] = msgspec.field(default_factory=dict[GroupKey, Mapping[str, str]])
    #: The generation of each group that lists its backends.
    generations: Mapping[GroupKey, int] = msgspec.field(default_factory=dict[GroupKey, int])
    view: LoadBalancerView | None = None

    def summary(self) -> Self:
        """Return the decision without what is only needed to carry it out."""
        return msgspec.structs.replace(self, desired=None, view=None)


#: Gives a load balancer an address or ports; returns what it has then, and why that is not what it asks for.
Allocated = tuple[Allocation, Condition | None]
