"""The part of the translation that all load balancers of members share.

In: a ``MemberView``. Out: parts of a ``DesiredLoadBalancer``, and conditions. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

import msgspec

from fairlead.api.cidrs import parse_network
from fairlead.api.intent import Allocation
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import hub_name
from fairlead.api.tcploadbalancer import Origin
from fairlead.api.tenant import TenantSpec
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec, GuardPolicy, Listener, Owner, Targets
from fairlead.model.keys import Family, ListenerKey, TargetKey
from fairlead.translate.class_behaviour import behaviour_of_class, behaviour_on_record, repair_asked
from fairlead.translate.conditions import build_accepted, build_unprogrammed, first_three, unresolved
from fairlead.translate.endpoints import MAX_TARGETS, Admission, IPNetwork, TargetPolicy, is_host_name
from fairlead.translate.families import FamilySpec, wanted_families
from fairlead.translate.view import Allocated, Decision, MemberView

M = TypeVar("M", bound=MemberView)


def desired_load_balancer(
    view: MemberView, frontend: FrontendSpec, targets: Mapping[ListenerKey, Targets], *, paused: bool
) -> DesiredLoadBalancer:
    """Return ``frontend`` with its targets, and what its class says about changes."""
    behaviour = view.behaviour
    return DesiredLoadBalancer(
        spec=frontend,
        targets=targets,
        drain_s=behaviour.drain_s,
        # Draining a member is the operator's intention; the guard protects from accidents only.
        guard=GuardPolicy(100, 0) if view.member.drained else behaviour.guard,
        stale=view.stale,
        repair_s=behaviour.repair_s,
        repair=repair_asked(view.load_balancer),
        paused=paused,
        excluded_targets=view.given,
    )


def usable_allocation(view: MemberView) -> Allocation:
    """Return the allocation that the provider can use, empty for one that needs none.

    During a migration between providers the allocation may be for the other provider.
    """
    needs_none = view.capabilities is not None and view.capabilities.allocation is AllocationKind.NONE
    return Allocation() if needs_none else view.allocation


def frontend_at_allocation(
    view: MemberView, spec: FamilySpec, listeners: Iterable[Listener], origin: Origin
) -> FrontendSpec:
    """Return the frontend with ``listeners``, in their order, at what was allocated; the rest is as its class says."""
    allocation, behaviour = usable_allocation(view), view.behaviour
    proxy_ports = {(port.protocol, port.port): port.proxy_port for port in allocation.ports}
    return FrontendSpec(
        key=view.key,
        group=view.key.namespace,
        listeners=tuple(
            msgspec.structs.replace(each, proxy_port=proxy_ports.get((each.protocol.value, each.port), 0))
            for each in listeners
        ),
        address=allocation.address,
        second_address=allocation.second_address,
        limits_connections=allocation.limits_connections,
        families=wanted_families(spec),
        health_check=behaviour.health_check,
        parameters=dict(sorted(behaviour.parameters.items())),
        owner=owner_of(view, view.load_balancer.metadata, origin),
    )


def target_policy(view: MemberView) -> TargetPolicy:
    """Return which addresses may be targets of this member at this provider.

    Loopback is for load balancers that are on loopback themselves: an AddressPool may be one that
    others reach. A name leads wherever its owner says, and Envoy asks nothing but DNS: on the hub's machine that may be
    the hub.
    """
    capabilities, spec = view.capabilities, view.tenant.spec if view.tenant else TenantSpec()
    names = capabilities is not None and capabilities.host_name_targets
    own = (ipaddress.ip_address(address) for address, _ in usable_allocation(view).places)
    loopback = view.loopback_targets and all(address.is_loopback for address in own)
    trusted = loopback or spec.host_name_targets
    return TargetPolicy(
        ranges=tuple(map(_range, spec.target_ranges)),
        loopback=loopback,
        host_names=names and (trusted or not (capabilities is not None and capabilities.on_hub_machine)),
        ipv6=capabilities is not None and capabilities.ipv6,
    )


def without_load_balancers(
    view: MemberView, targets: Mapping[ListenerKey, Targets], refused: set[TargetKey]
) -> dict[ListenerKey, Targets]:
    """Return ``targets`` without the addresses and ports at which load balancers answer; adds these to ``refused``.

    Load balancers that lead to each other, or to themselves, would connect on for each connection, again and again,
    until their proxy has no open file left for others.
    """
    kept: dict[ListenerKey, Targets] = {}
    for listener, by_key in targets.items():
        loop_targets = view.given.keys() & by_key.keys()
        refused |= loop_targets
        kept[listener] = {key: by_key[key] for key in by_key if key not in loop_targets} if loop_targets else by_key
    return kept


def leads_to_load_balancers(view: MemberView, refused: Collection[TargetKey]) -> Condition | None:
    """Return why ``refused`` are not targets, None when there are none. Owners of the addresses are not named."""
    if not refused:
        return None
    named = {f"{key}, its own address" if view.key in view.given.get(key, ()) else str(key) for key in refused}
    return unresolved(
        ConditionReason.INVALID,
        f"endpoints that are load balancers themselves are left out ({first_three(named)}), as connections could go in "
        "a circle; list the pods or nodes behind them instead",
    )


def not_admitted(admission: Admission) -> Condition | None:
    """Return why endpoints are not targets, None when all are."""
    refused = admission.refused
    if admission.full:
        message = (
            f"the ports or backends have more than {MAX_TARGETS:,} endpoints, the limit of one load balancer. "
            "The others get no traffic; use several load balancers"
        )
        return unresolved(ConditionReason.QUOTA_EXCEEDED, message)
    if not refused:
        return None
    names = ", or host names by its spec.hostNameTargets" if any(map(is_host_name, refused)) else ""
    message = (
        f"addresses that may not be backends of this member are left out ({first_three(refused)}); "
        f"the operator of the hub admits ranges in the Tenant's spec.targetRanges{names}"
    )
    return unresolved(ConditionReason.INVALID, message)


def _range(text: str) -> IPNetwork:
    """Parse one of a Tenant's ranges; an unreadable one admits nothing, and the Tenant's own status names it."""
    return parse_network(text) or ipaddress.ip_network("255.255.255.255/32")


def owner_of(view: MemberView, meta: ObjectMeta, origin: Origin) -> Owner:
    """Return the owner of the load balancer for providers, from data of the hub that members cannot forge.

    The member is the Tenant whose namespace the object is in. ``origin`` counts when the object's own name says the
    same, which no other object of that member can; else it is the object at the hub. The uid is the hub's.
    """
    uid = _recorded_uid(view) or meta.uid
    if view.tenant is None:
        return Owner("", view.key.kind, meta.namespace, meta.name, uid)
    member = view.tenant.metadata.name
    # A name without a dot on either side can be taken apart in one way only.
    plain = "." not in origin.namespace and "." not in origin.name
    if origin.namespace and origin.name and plain and meta.name == hub_name(origin.namespace, origin.name):
        return Owner(member, origin.kind, origin.namespace, origin.name, uid)
    return Owner(member, view.key.kind, meta.namespace, meta.name, uid)


def _recorded_uid(view: MemberView) -> str:
    """Return the recorded uid, by which drivers have identified the load balancer since it was created."""
    on_record = view.load_balancer.status.frontend_of(view.provider)
    return on_record.asked.owner.uid if on_record is not None and on_record.asked is not None else ""


def build_stale(view: MemberView, *, nodes: Collection[Family]) -> Condition | None:
    """Return condition Stale when the member is lost, or its nodes are out of date in a family of ``nodes``."""
    if stale := next((view.nodes.stale[family] for family in nodes if family in view.nodes.stale), ""):
        return Condition(ConditionType.STALE, True, ConditionReason.ALL_NODES_NOT_READY, stale)
    if view.member.message:
        return Condition(ConditionType.STALE, True, ConditionReason.MEMBER_LOST, view.member.message)
    return None


def count_targets(targets: Mapping[ListenerKey, Targets]) -> str:
    """Return "ready/total" of distinct targets."""
    ready: dict[TargetKey, bool] = {}
    for by_key in targets.values():
        for key, target in by_key.items():
            ready[key] = ready.get(key, False) or not target.draining
    return f"{sum(ready.values())}/{len(ready)}"


def version_to_serve(
    view: M, refusal: Condition | None, accepted: object | None, allocate: Callable[[M], Allocated]
) -> tuple[M | None, Condition | None, Allocation]:
    """Return the view of the version to serve, None for none, why the present spec is not served, and what it has.

    ``refusal`` is why the present spec is refused; then, or without an address, ``accepted`` is served as it was. An
    edit that gets no address is a refused edit: what was programmed before stays programmed.
    """
    allocation, problem = view.allocation, refusal
    if refusal is None:
        allocation, problem = allocate(view)
        view = msgspec.structs.replace(view, allocation=allocation)
    if problem is None:
        return view, None, allocation
    served = as_accepted(view) if accepted is not None else None
    if served is None:
        return None, problem, allocation
    return served, msgspec.structs.replace(problem, type=ConditionType.ACCEPTED), allocation


def as_accepted(view: M) -> M | None:
    """Return the view with the class and the allocation of the version that was last accepted; None for none."""
    status = view.load_balancer.status
    if view.accepted_class is not None:
        in_force = behaviour_of_class(view.accepted_class.spec)
    elif provider := status.serving_provider:
        on_record = status.frontend_of(provider)
        in_force = behaviour_on_record(provider, on_record.spec(view.key) if on_record is not None else None)
    else:
        return None
    return msgspec.structs.replace(
        view, load_balancer_class=view.accepted_class, in_force=in_force, allocation=status.allocation
    )


def as_recorded(view: MemberView) -> Allocated:
    """Return what is allocated on record: of a replica that may allocate nothing, or for what is served already."""
    return view.allocation, None


def nothing_to_serve(view: MemberView, problem: Condition | None, allocation: Allocation) -> Decision:
    """Return the decision about a load balancer that was never accepted and cannot be served, for ``problem``."""
    if problem is None:
        return Decision(None, (), provider=view.provider, allocation=allocation)
    accepted = problem if problem.type is ConditionType.ACCEPTED else build_accepted(None)
    conditions = (accepted, build_unprogrammed(problem))
    return Decision(None, conditions, provider=view.provider, allocation=allocation)
