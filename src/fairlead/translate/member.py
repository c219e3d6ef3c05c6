"""A TCPLoadBalancer, or an HTTPLoadBalancer with its routes, becomes one desired load balancer.

    valid, address allocated             -> as its spec says
    refused, or no address; accepted     -> as it was last accepted, with the class and allocation of that version
    refused, or no address; never        -> nothing

Routes and backends have no accepted version of their own: what they refer to was decided in the member. Conflicts
between listeners are decided there too, with conditions on the user's objects; here they are refused, because any
client may have written the object.

The families of a load balancer:

    ipFamilies      ipFamilyPolicy      addresses
    -------------   -----------------   ---------------------------------------------------
    none            -                   one: of the family of spec.address, else of ``default``
    one             -                   one of that family, or none
    both            RequireDualStack    one of each, or none
    both            any other           one of each as far as there are any, in that order

A class that members share must not map objects of two members to one name at the load balancer. Its parameter such as
``backend: "{member}_{namespace}_{name}"`` names something that is there for others, too:

    class with one tenant        anything: only that member's objects come to it
    class for several, or all    says whose by {member} or {hubNamespace}, and parts its placeholders so that no two
                                 objects come to the same name

In: a ``TCPView`` or ``HTTPView``. Out: ``Decision``. Pure. Never: a deletion; a view exists only for what is to exist.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import TypeVar

from msgspec.structs import replace

from fairlead.api.annotations import (
    accept_problem,
    connection_limits_problem,
    parse_cidr,
    parse_network,
    read_limits,
    uncertain_network,
)
from fairlead.api.globalservice import GlobalServiceSpec
from fairlead.api.httploadbalancer import HTTPLoadBalancerSpec
from fairlead.api.intent import Allocation
from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import DEFAULT_CLASS, LABEL_ORIGIN_UID, hub_name, label_value
from fairlead.api.tcploadbalancer import Origin, TCPLoadBalancerSpec
from fairlead.api.tenant import Tenant, TenantSpec
from fairlead.api.times import seconds_from_duration
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind, Capabilities
from fairlead.model.desired import (
    MAX_DRAIN_S,
    Affinity,
    DesiredLoadBalancer,
    FrontendSpec,
    GuardPolicy,
    Listener,
    Owner,
    ProxyProtocol,
    Targets,
)
from fairlead.model.health import check_with
from fairlead.model.http import PAGE_STATUS, Backend, L7Listener, hostname_problem
from fairlead.model.keys import (
    ANY_FAMILY,
    IPV4,
    IPV6,
    Family,
    ListenerKey,
    Protocol,
    TargetKey,
    WantedFamilies,
    backend_key,
    by_family,
    family_of,
    requested_addresses,
)
from fairlead.translate.certificates import UNREAD, UNREAD_VERSION
from fairlead.translate.endpoints import (
    MAX_TARGETS,
    Admission,
    EndpointState,
    IPNetwork,
    TargetPolicy,
    addresses_in,
    by_port,
    in_service,
    is_host_name,
    local_addresses,
    node_families,
    nodes_from_slices,
    owner_of_endpoints,
    states_from_slices,
    targets_from_nodes,
    targets_from_states,
    without_family,
)
from fairlead.translate.http_backends import KnownTargets, Translated
from fairlead.translate.view import (
    Allocated,
    Decision,
    HTTPView,
    MemberView,
    NodeAddresses,
    TCPView,
    behaviour_of_class,
    behaviour_on_record,
    build_accepted,
    build_paused,
    build_protected,
    build_unprogrammed,
    check_refusals,
    first_three,
    no_ready,
    refused,
    repair_asked,
    resolved,
    unresolved,
)

#: Shown in place of a count where the targets are the member's nodes.
NODES = "nodes"


REQUIRE = "RequireDualStack"


M = TypeVar("M", bound=MemberView)


#: The spec of a load balancer of a member.
MemberSpec = TCPLoadBalancerSpec | HTTPLoadBalancerSpec | GlobalServiceSpec
S = TypeVar("S", TCPLoadBalancerSpec, HTTPLoadBalancerSpec, GlobalServiceSpec)


PLACEHOLDER = re.compile(r"\{(member|hubNamespace|namespace|name|port)\}")


#: Names of namespaces, Services and Tenants hold none of these.
SEPARATORS = "_:."


_SOME_OWNER = Owner(member="member", namespace="namespace", name="name")


_EXAMPLE = "{member}_{namespace}_{name}"


#: An Envoy needs 1.5 ms of its main thread for each.
_MAX_CERTIFICATES = 2_048
#: What may share a port, distinguished by hostname.
_SHARED = {"HTTP": "HTTP", "HTTPS": "TLS", "TLS": "TLS"}
_UNREAD = (UNREAD, UNREAD_VERSION)
Refusal = tuple[ConditionReason, str]


def decide_tcp(view: TCPView, allocate: Callable[[TCPView], Allocated] | None = None) -> Decision:
    """Return the desired load balancer of ``view``, with its conditions; ``allocate`` is called once it is valid."""
    spec, accepted = view.load_balancer.spec, view.load_balancer.status.accepted
    return decide_version(view, spec, accepted, validate_tcp(view, spec), allocate, serve_tcp)


def decide_http(
    view: HTTPView, allocate: Callable[[HTTPView], Allocated] | None = None, before: Translated | None = None
) -> Decision:
    """Return the desired load balancer of ``view``, with its conditions; ``allocate`` is called once it is valid.

    ``before`` is the translation of earlier views of the same load balancer: only what differs is translated again.
    """
    spec, accepted = view.load_balancer.spec, view.load_balancer.status.accepted
    serve = partial(_serve_http, translated=before or Translated())
    return decide_version(view, spec, accepted, validate_http(view, spec), allocate, serve)


def recorded_tcp(view: TCPView) -> Decision | None:
    """Return what is on record as it is served, whatever the present spec asks for; None when nothing is."""
    return recorded_version(view, view.load_balancer.status.accepted, serve_tcp)


def recorded_http(view: HTTPView, before: Translated | None = None) -> Decision | None:
    """Return what is on record as it is served, whatever the present spec asks for; None when nothing is."""
    serve = partial(_serve_http, translated=before or Translated())
    return recorded_version(view, view.load_balancer.status.accepted, serve)


def decide_version(
    view: M,
    spec: S,
    accepted: S | None,
    refusal: Condition | None,
    allocate: Callable[[M], Allocated] | None,
    serve: Callable[[M, S], Decision],
) -> Decision:
    """Return the decision to serve ``spec``, else ``accepted``, with ``serve``; else to serve nothing."""
    served, refusal, allocation = version_to_serve(view, refusal, accepted, allocate)
    if served is None:
        return nothing_to_serve(view, refusal, allocation)
    if refusal is None or accepted is None:
        return serve(served, spec)
    decision = serve(served, accepted)
    conditions = (build_accepted(refusal), *decision.conditions[1:])
    return replace(decision, conditions=conditions, serving_last_accepted=True, allocation=allocation)


def recorded_version(view: M, accepted: S | None, serve: Callable[[M, S], Decision]) -> Decision | None:
    """Return the decision to serve ``accepted`` as it was, None when there is no such version."""
    served = as_accepted(view)
    if accepted is None or served is None:
        return None
    load_balancer = replace(view.load_balancer, spec=accepted)
    return serve(replace(served, load_balancer=load_balancer), accepted)


def version_to_serve(
    view: M, refusal: Condition | None, accepted: object | None, allocate: Callable[[M], Allocated] | None
) -> tuple[M | None, Condition | None, Allocation]:
    """Return the view of the version to serve, None for none, why the present spec is not served, and what it has.

    ``refusal`` is why the present spec is refused; then, or without an address, ``accepted`` is served as it was. An
    edit that gets no address is a refused edit: what was programmed before stays programmed. Without ``allocate`` it
    has what is on record.
    """
    allocation, problem = view.allocation, refusal
    if refusal is None and allocate is not None:
        allocation, problem = allocate(view)
        view = replace(view, allocation=allocation)
    if problem is None:
        return view, None, allocation
    served = as_accepted(view) if accepted is not None else None
    if served is None:
        return None, problem, allocation
    return served, replace(problem, type=ConditionType.ACCEPTED), allocation


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
    return replace(view, load_balancer_class=view.accepted_class, in_force=in_force, allocation=status.allocation)


def nothing_to_serve(view: MemberView, problem: Condition | None, allocation: Allocation) -> Decision:
    """Return the decision about a load balancer that was never accepted and cannot be served, for ``problem``."""
    if problem is None:
        return Decision(None, (), provider=view.provider, allocation=allocation)
    accepted = problem if problem.type is ConditionType.ACCEPTED else build_accepted(None)
    conditions = (accepted, build_unprogrammed(problem))
    return Decision(None, conditions, provider=view.provider, allocation=allocation)


def serve_frontend(
    view: MemberView,
    frontend: FrontendSpec,
    targets: Mapping[ListenerKey, Targets],
    owners: Mapping[ListenerKey, frozenset[str]],
    resolved_refs: Condition,
    *,
    node_families: Collection[Family],
    count: str,
    complete: bool | None = None,
) -> Decision:
    """Return the decision to serve ``frontend`` as its spec says; Accepted is its first condition."""
    paused = build_paused(view.load_balancer, view.load_balancer_class)
    limited = view.tenant is not None and view.tenant.spec.max_checks_per_second > 0
    checks_per_s = checks_per_second(frontend, targets) if limited else 0.0
    if limited:
        frontend = with_slower_checks(frontend, view.checks.slowdown)
    desired = desired_load_balancer(view, frontend, targets, paused=paused is not None)
    conditions = (
        build_accepted(None),
        resolved_refs,
        build_stale(view, nodes=node_families),
        build_checks_slowed(view),
        paused,
        build_protected(view.load_balancer),
    )
    return Decision(
        replace(desired, owners=owners),
        tuple(filter(None, conditions)),
        targets=count,
        provider=view.provider,
        allocation=view.allocation,
        complete=complete,
        checks_per_s=checks_per_s,
    )


def checks_per_second(frontend: FrontendSpec, targets: Mapping[ListenerKey, Targets]) -> float:
    """Return how many health checks its proxies make in a second: each checks a target to balance, and to report it."""
    backends = {backend_key(backend.name): backend for backend in frontend.l7.backends} if frontend.l7 else {}
    total = 0.0
    for key, by_target in targets.items():
        backend = backends.get(key)
        datagrams = key.protocol is Protocol.UDP or (backend is not None and backend.protocol == "UDP")
        check = check_with(frontend.health_check, backend.health_check if backend is not None else None)
        if check is not None and not datagrams:
            total += sum(not target.draining for target in by_target.values()) / check.interval_s
    return 2 * total * max(1, len(frontend.machines))


def with_slower_checks(frontend: FrontendSpec, slowdown: int) -> FrontendSpec:
    """Return ``frontend`` with all targets checked so much less often."""
    check = frontend.health_check
    if slowdown == 1:
        return frontend
    if check is not None:
        check = replace(check, interval_s=check.interval_s * slowdown)
    return replace(frontend, health_check=check, check_slowdown=slowdown)


def build_checks_slowed(view: MemberView) -> Condition | None:
    """Return condition ChecksSlowed when targets are checked less often than asked for; None when they are not."""
    if view.checks.slowdown == 1 or view.tenant is None:
        return None
    limit, asked = view.tenant.spec.max_checks_per_second, round(view.checks.per_s)
    text = (
        f"targets are checked {view.checks.slowdown} times less often: member {view.tenant.metadata.name} asks for "
        f"{asked:,} health checks a second, and spec.maxChecksPerSecond of its Tenant allows {limit:,}. Use longer "
        "intervals, or ask the operator for more"
    )
    return Condition(ConditionType.CHECKS_SLOWED, True, ConditionReason.QUOTA_EXCEEDED, text)


def desired_load_balancer(
    view: MemberView, frontend: FrontendSpec, targets: Mapping[ListenerKey, Targets], *, paused: bool
) -> DesiredLoadBalancer:
    """Return ``frontend`` with its targets, and what its class says about changes."""
    behaviour = view.behaviour
    drain_s = behaviour.drain_s if frontend.drain_s is None else frontend.drain_s
    return DesiredLoadBalancer(
        spec=frontend,
        targets=targets,
        drain_s=0.0 if view.member.dropped else drain_s,
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
    view: MemberView, spec: MemberSpec, listeners: Iterable[Listener], origin: Origin
) -> FrontendSpec:
    """Return the frontend with ``listeners``, in their order, at what was allocated; the rest is as its class says."""
    allocation, behaviour = usable_allocation(view), view.behaviour
    proxy_ports = {(port.protocol, port.port): port.proxy_port for port in allocation.ports}
    own: dict[str, str] = {}
    if not isinstance(spec, GlobalServiceSpec):
        # That of a class holds for requests alone.
        accepts = "acceptProxyProtocol" if isinstance(spec, HTTPLoadBalancerSpec) else "connections.acceptProxyProtocol"
        settings = {"accessLog": spec.access_log, "limits": spec.limits, accepts: spec.accept_proxy_protocol}
        own = {name: text for name, text in settings.items() if text}
    return FrontendSpec(
        key=view.key,
        group=view.key.namespace,
        listeners=tuple(
            replace(listener, proxy_port=proxy_ports.get((listener.protocol.value, listener.port), 0))
            for listener in listeners
        ),
        address=allocation.address,
        second_address=allocation.second_address,
        limits_connections=allocation.limits_connections,
        machines=view.load_balancer.status.serving_machines,
        families=wanted_families(spec),
        health_check=behaviour.health_check,
        parameters=dict(sorted({**behaviour.parameters, **own}.items())),
        owner=owner_of(view, view.load_balancer.metadata, origin),
    )


def owner_of(view: MemberView, meta: ObjectMeta, origin: Origin) -> Owner:
    """Return the owner of the load balancer for providers, from data of the hub that members cannot forge.

    The member is the Tenant whose namespace the object is in. ``origin`` counts when the object's own name says the
    same, which no other object of that member can; else it is the object at the hub. The uid is the hub's.
    """
    on_record = view.load_balancer.status.frontend_of(view.provider)
    # By the recorded uid, drivers have identified the load balancer since it was created.
    recorded = on_record.asked.owner.uid if on_record is not None and on_record.asked is not None else ""
    uid = recorded or meta.uid
    if view.tenant is None:
        return Owner("", view.key.kind, meta.namespace, meta.name, uid)
    member = view.tenant.metadata.name
    # A name without a dot on either side can be taken apart in one way only.
    plain = "." not in origin.namespace and "." not in origin.name
    if origin.namespace and origin.name and plain and meta.name == hub_name(origin.namespace, origin.name):
        return Owner(member, origin.kind, origin.namespace, origin.name, uid)
    return Owner(member, view.key.kind, meta.namespace, meta.name, uid)


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
        ranges=target_ranges(spec),
        loopback=loopback,
        host_names=names and (trusted or not (capabilities is not None and capabilities.on_hub_machine)),
        ipv6=capabilities is not None and capabilities.ipv6,
    )


def target_ranges(spec: TenantSpec) -> tuple[IPNetwork, ...]:
    """Return the ranges of a Tenant; an unreadable one admits nothing, and the Tenant's own status names it."""
    nothing = ipaddress.ip_network("255.255.255.255/32")
    return tuple(parse_network(text) or nothing for text in spec.target_ranges)


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


def serve_tcp(view: TCPView, spec: TCPLoadBalancerSpec, frontend: FrontendSpec | None = None) -> Decision:
    """Return the decision to serve ``spec``; ``frontend`` is that of an earlier decision about the same, if any."""
    admission, loop_targets = Admission(target_policy(view)), set[TargetKey]()
    families = tcp_node_families(spec, admission.policy)
    targets = without_load_balancers(view, tcp_targets(view, spec, families, admission), loop_targets)
    by_nodes, owner = spec.targets == "Node", _owner(view)
    return serve_frontend(
        view,
        frontend or _tcp_frontend(view, spec),
        targets,
        {} if by_nodes or not owner else dict.fromkeys(targets, frozenset({owner})),
        leads_to_load_balancers(view, loop_targets) or _tcp_resolved(view, spec, targets, families, admission),
        node_families=families if by_nodes else (),
        # Nodes belong to the member: counting them would turn each new node into a status write for every load
        # balancer.
        count=NODES if by_nodes else count_targets(targets),
    )


def _tcp_frontend(view: TCPView, spec: TCPLoadBalancerSpec) -> FrontendSpec:
    tls = spec.backend_tls
    return replace(
        connection_frontend(view, spec, view.load_balancer.spec.origin),
        health_check=check_with(view.behaviour.health_check, spec.health_check, tls=tls is not None),
        local_traffic_only=spec.external_traffic_policy == "Local",
        backend_tls=tls,
        certificates=view.certificates if tls is not None else {},
    )


def connection_frontend(
    view: MemberView, spec: TCPLoadBalancerSpec | GlobalServiceSpec, origin: Origin
) -> FrontendSpec:
    """Return the frontend of a load balancer of connections."""
    listeners = (Listener(port.port, Protocol(port.protocol), port.name) for port in spec.ports)
    in_order = sorted(listeners, key=lambda listener: (listener.port, listener.protocol))
    ranges = {str(cidr.network) for text in spec.load_balancer_source_ranges if (cidr := parse_cidr(text)) is not None}
    return replace(
        frontend_at_allocation(view, spec, in_order, origin),
        health_check=check_with(view.behaviour.health_check, spec.health_check),
        outlier_detection=spec.outlier_detection,
        source_ranges=tuple(sorted(ranges)),
        affinity=Affinity(spec.session_affinity),
        proxy_protocol=ProxyProtocol(spec.proxy_protocol),
        drain_s=drain_s_of(spec),
        drain_reset=spec.drain_close == "reset",
    )


def drain_s_of(spec: TCPLoadBalancerSpec | GlobalServiceSpec) -> float | None:
    """Return how long a target that terminates keeps its connections; None: as long as they last."""
    return min(MAX_DRAIN_S, seconds_from_duration(spec.drain)) if spec.drain else None


def tcp_targets(
    view: TCPView, spec: TCPLoadBalancerSpec, families: tuple[Family, ...], admission: Admission
) -> dict[ListenerKey, Targets]:
    """Return the targets of each port of ``spec``: endpoints, or nodes."""
    keys = {ListenerKey(Protocol(port.protocol), port.port): port for port in spec.ports}
    if view.member.drained:
        return {key: {} for key in keys}
    if spec.targets != "Node":
        uid = view.load_balancer.spec.origin.uid
        slices = by_port(
            endpoint_slice
            for endpoint_slice in view.slices
            if endpoint_slice.label(LABEL_ORIGIN_UID) in {"", label_value(uid)}
        )
        owner = _owner(view)
        at = {key: slices.get((port.name, port.protocol), ()) for key, port in keys.items()}
        if spec.targets == "Pod":
            return {key: _targets_of_pods(spec, at[key], admission, owner) for key in keys}
        return {key: _targets_at_addresses(families, at[key], admission, owner) for key in keys}
    local = spec.external_traffic_policy == "Local"
    addresses = local_addresses(view.slices, view.nodes, families) if local else addresses_in(view.nodes, families)
    return {key: targets_from_nodes(addresses, port.node_port, admission) for key, port in keys.items()}


def _owner(view: TCPView) -> str:
    origin = view.load_balancer.spec.origin
    return owner_of_endpoints(f"{origin.namespace}/{origin.name}", origin.uid)


def _nodes(view: TCPView, spec: TCPLoadBalancerSpec) -> NodeAddresses:
    """Return the member's nodes, or those that a region lists; addresses without a name are a cloud's."""
    if spec.targets != "Address":
        return view.nodes
    return nodes_from_slices(
        endpoint_slice for endpoint_slice in view.slices if all(at.node_name for at in endpoint_slice.endpoints or ())
    )


def tcp_node_families(spec: TCPLoadBalancerSpec, policy: TargetPolicy) -> tuple[Family, ...]:
    """Return the families in which nodes are reached; none where pods are the targets."""
    return node_families(spec.ip_families, ipv6=policy.ipv6) if spec.targets != "Pod" else ()


def _targets_at_addresses(
    families: tuple[Family, ...], slices: Sequence[tuple[EndpointSlice, int]], admission: Admission, owner: str
) -> Targets:
    """Return the targets that are a region's nodes, each in the first of ``families`` that it has, or a cloud's."""
    states: dict[TargetKey, EndpointState] = {}
    reached: set[str | None] = set()
    for family in families:
        of_family = (endpoint_slice for endpoint_slice in slices if endpoint_slice[0].address_type in {family, "FQDN"})
        states |= states_from_slices(of_family, admission, reached)
    return targets_from_states(states, owner)


def _targets_of_pods(
    spec: TCPLoadBalancerSpec, slices: Sequence[tuple[EndpointSlice, int]], admission: Admission, owner: str
) -> Targets:
    """Return the targets of one family: a pod of a dual-stack Service is in slices of both, and counts once."""
    if not spec.ip_families:
        return targets_from_states(states_from_slices(slices, admission), owner)
    states: dict[TargetKey, EndpointState] = {}
    for family in dict.fromkeys((*spec.ip_families, IPV4, IPV6)):
        other = IPV4 if family == IPV6 else IPV6
        of_family = (endpoint_slice for endpoint_slice in slices if endpoint_slice[0].address_type != other)
        states |= states_from_slices(of_family, admission)
        if in_service(states):
            break
    return targets_from_states(states, owner)


def _tcp_resolved(
    view: TCPView,
    spec: TCPLoadBalancerSpec,
    targets: Mapping[ListenerKey, Targets],
    families: tuple[Family, ...],
    admission: Admission,
) -> Condition:
    if view.unreadable:
        return unresolved(ConditionReason.INVALID, view.unreadable)
    if problem := not_admitted(admission):
        return problem
    if problem := without_family(_nodes(view, spec), families):
        return problem
    empty = sorted(str(key) for key, by_key in targets.items() if all(target.draining for target in by_key.values()))
    if empty:
        noun = "node" if spec.targets == "Node" else "endpoint"
        return unresolved(ConditionReason.BACKEND_NOT_FOUND, no_ready(noun, ", ".join(empty)))
    return resolved()


def _serve_http(view: HTTPView, spec: HTTPLoadBalancerSpec, *, translated: Translated) -> Decision:
    admission, loop_targets = Admission(target_policy(view)), set[TargetKey]()
    config = translated.update_config(view, spec)
    families = _http_node_families(view, spec, config.backends)
    known = translated.update_targets(view, spec, config.backends, admission)
    targets: Mapping[ListenerKey, Targets] = known.targets
    if not view.given.keys().isdisjoint(known.places.keys()):
        targets = without_load_balancers(view, targets, loop_targets)
    frontend = frontend_at_allocation(view, spec, ports_of(config.listeners), spec.origin)
    return serve_frontend(
        view,
        replace(frontend, l7=config, backend_shares=translated.update_shares(view, config.backends)),
        targets,
        {} if view.stale else known.owners,
        leads_to_load_balancers(view, loop_targets)
        or _http_resolved(view, translated.unresolved, known, families, admission),
        node_families=sorted({family for backend_families in families for family in backend_families}),
        count=count_targets(targets) if loop_targets else known.count,
        complete=None if loop_targets else not known.empty,
    )


def ports_of(listeners: Iterable[L7Listener]) -> tuple[Listener, ...]:
    """Return the distinct ports that ``listeners`` open, ordered; those of HTTP, HTTPS and TLS are TCP."""
    ports = {(listener.port, Protocol.UDP if listener.protocol == "UDP" else Protocol.TCP) for listener in listeners}
    return tuple(Listener(port, protocol) for port, protocol in sorted(ports))


def _http_node_families(
    view: HTTPView, spec: HTTPLoadBalancerSpec, backends: Iterable[Backend]
) -> tuple[tuple[Family, ...], ...]:
    """Return the families in which nodes are targets of each of ``backends``, each once."""
    if spec.targets != "Node":
        return ()
    ipv6 = target_policy(view).ipv6
    families = {node_families(backend.ip_families, ipv6=ipv6) for backend in backends if backend.node_port}
    return tuple(sorted(families))


def _http_resolved(
    view: HTTPView,
    unresolved_routes: Mapping[str, str],
    known: KnownTargets,
    families: Iterable[tuple[Family, ...]],
    admission: Admission,
) -> Condition:
    if view.unreadable:
        return unresolved(ConditionReason.INVALID, view.unreadable)
    if view.missing_certificates:
        # The first that really is missing; only when there is none, one that is still being read.
        name, why = min(view.missing_certificates.items(), key=lambda missing: (missing[1] in _UNREAD, missing))
        more = f", and {len(view.missing_certificates) - 1} more" if len(view.missing_certificates) > 1 else ""
        reason = ConditionReason.PENDING if why in _UNREAD else ConditionReason.INVALID
        return unresolved(reason, f"certificate {name}: {why}{more}")
    if problem := not_admitted(admission):
        return problem
    for family in families:
        if problem := without_family(view.nodes, family):
            return problem
    problems: list[str] = []
    if unresolved_routes:
        of = f"a backend of {first_three(set(unresolved_routes.values()))}"
        problems.append(f"{of} cannot be resolved, so its requests are answered 500; Events in the member say why")
    if known.empty:
        problems.append(no_ready("endpoint", first_three(set(map(str, known.empty)))))
    return unresolved(ConditionReason.BACKEND_NOT_FOUND, "; ".join(problems)) if problems else resolved()


def wanted_families(spec: MemberSpec, default: tuple[Family, ...] = ()) -> WantedFamilies:
    """Return the address families that ``spec`` needs; ``default`` if it names none."""
    families = tuple(spec.ip_families)
    if families:
        return WantedFamilies(families, spec.ip_family_policy == REQUIRE)
    return WantedFamilies(default) if default and not by_family(requested_addresses(spec.address)) else ANY_FAMILY


def families_problem(spec: MemberSpec, *, ipv6: bool) -> str:
    """Return what is wrong with the families of ``spec``, empty when nothing is; ``ipv6``: the class serves it."""
    families = tuple(spec.ip_families)
    if len(set(families)) < len(families):
        return f"spec.ipFamilies: {families[0]} is there twice; name each family once"
    required = spec.ip_family_policy == REQUIRE
    if required and len(families) < 2:
        return "spec.ipFamilyPolicy: RequireDualStack needs both families; set spec.ipFamilies to IPv4 and IPv6"
    if not ipv6 and (families == ("IPv6",) or (required and families)):
        return "spec.ipFamilies: this class does not serve IPv6; ask for IPv4 alone, or choose another class"
    return ""


def missing_families(wanted: WantedFamilies, addresses: Collection[str]) -> str:
    """Return what is wrong with the addresses that a provider has found, empty when they are as wanted.

    A host name may resolve to addresses of both families, and is never wrong.
    """
    present = set(map(family_of, addresses))
    missing = [family for family in wanted.families if family not in present]
    enough = not wanted.all_required and len(missing) < len(wanted.families)
    if not addresses or not missing or None in present or enough:
        return ""
    return (
        f"has {', '.join(addresses)} and no address of {' or '.join(missing)}, which spec.ipFamilies requests; the "
        f"class gives none: choose another class, or leave out {' and '.join(missing)}"
    )


def validate_tcp(view: TCPView, spec: TCPLoadBalancerSpec) -> Condition | None:
    """Return condition Accepted with the first reason why ``spec`` cannot be served, None when there is none."""
    return first_refusal(view, spec, _tcp_refusals)


def validate_http(view: HTTPView, spec: HTTPLoadBalancerSpec) -> Condition | None:
    """Return condition Accepted with the first reason why ``spec`` cannot be served, None when there is none."""
    return first_refusal(view, spec, _http_refusals)


def first_refusal(view: M, spec: S, of_kind: Callable[[M, S, Capabilities], Iterator[Refusal]]) -> Condition | None:
    """Return the first refusal in the order in which a person would check."""
    capabilities = view.capabilities
    if capabilities is None:
        return refused(ConditionReason.NO_SUCH_CLASS, f"spec.className: {_no_provider(view, spec)}")
    refusals = chain(
        _class_refusals(view, spec, capabilities),
        of_kind(view, spec, capabilities),
        _address_refusals(view, spec, capabilities),
    )
    refusal = next(refusals, None)
    return refused(*refusal) if refusal else None


def _no_provider(view: MemberView, spec: MemberSpec) -> str:
    """Return why this hub has no provider for the class of ``spec``."""
    if view.load_balancer_class is None:
        return f"there is no LoadBalancerClass {spec.class_name!r} at the hub; kubectl get lbc lists those there"
    name, provider = view.load_balancer_class.metadata.name, view.provider
    if problem := view.provider_problems.get(provider):
        return f"LoadBalancerClass {name!r}: {problem}"
    running = ", ".join(sorted(view.providers)) or "none"
    return f"LoadBalancerClass {name!r} names provider {provider!r}, which this hub does not run (it runs: {running})"


def _class_refusals(view: MemberView, spec: MemberSpec, capabilities: Capabilities) -> Iterator[Refusal]:
    wanted, accepted = view.load_balancer_class, view.accepted_class_name
    if wanted is None:
        return
    if wanted.closed and (accepted is None or (accepted or DEFAULT_CLASS) != wanted.metadata.name):
        yield ConditionReason.CLASS_DRAINING, f"spec.className: {wanted.closed}"
    owner = owner_of(view, view.load_balancer.metadata, spec.origin)
    problem = not_for_tenant(wanted, view.tenant) or place_problem(
        wanted, view.tenant, owner, capabilities.place_parameters
    )
    if problem:
        yield ConditionReason.CLASS_NOT_USABLE, f"spec.className: {problem}"


#: The next step where a class cannot do what is asked for.
_ENVOY = "use a class with provider envoy"


def _tcp_refusals(view: TCPView, spec: TCPLoadBalancerSpec, capabilities: Capabilities) -> Iterator[Refusal]:
    if not spec.ports:
        yield ConditionReason.INVALID, "spec.ports: at least one port is needed"
    seen: set[tuple[str, int]] = set()
    for port in spec.ports:
        if (port.protocol, port.port) in seen:
            yield ConditionReason.PORT_CONFLICT, f"spec.ports: {port.protocol}/{port.port} is there twice"
        seen.add((port.protocol, port.port))
    yield from connection_refusals(spec, capabilities)
    yield from _tls_refusals(view, spec, capabilities)
    if spec.targets == "Node" and (missing := [f"{at.protocol}/{at.port}" for at in spec.ports if not at.node_port]):
        yield (
            ConditionReason.NODE_PORT_MISSING,
            f"spec.ports: {', '.join(missing)} has no nodePort, and backends are nodes; leave the Service's "
            "allocateLoadBalancerNodePorts unset, or ask for pods with annotation fairlead.dev/target: Pod",
        )


def _tls_refusals(view: TCPView, spec: TCPLoadBalancerSpec, capabilities: Capabilities) -> Iterator[Refusal]:
    """Yield why backends cannot be reached over TLS: they are never reached in plain text instead."""
    if spec.backend_tls is None:
        return
    if not capabilities.backend_tls:
        yield ConditionReason.INVALID, f"spec.backendTls: this class cannot speak TLS to backends; {_ENVOY}"
    if udp := [f"UDP/{port.port}" for port in spec.ports if port.protocol == "UDP"]:
        text = f"{', '.join(udp)} cannot be encrypted; use another Service for UDP"
        yield ConditionReason.INVALID, f"spec.backendTls: {text}"
    if spec.global_service:
        yield ConditionReason.INVALID, "spec.backendTls: a GlobalService cannot speak TLS to backends"
    name = spec.backend_tls.client_certificate
    if name and name not in view.certificates:
        why = view.missing_certificates.get(name, "spec.clientCertificate does not name it")
        reason = ConditionReason.PENDING if why in _UNREAD else ConditionReason.INVALID
        yield reason, f"spec.backendTls: certificate {name}: {why}"


def connection_refusals(spec: TCPLoadBalancerSpec | GlobalServiceSpec, capabilities: Capabilities) -> Iterator[Refusal]:
    """Yield what a class cannot do of what is asked for the connections of clients."""
    for port in spec.ports:
        if Protocol(port.protocol) not in capabilities.protocols:
            text = f"spec.ports: {port.protocol}/{port.port}: this class has no {port.protocol}"
            yield ConditionReason.UNSUPPORTED_PROTOCOL, text
    if spec.load_balancer_source_ranges and not capabilities.source_ranges:
        yield ConditionReason.INVALID, f"spec.loadBalancerSourceRanges: this class cannot restrict sources; {_ENVOY}"
    for text in spec.load_balancer_source_ranges:
        cidr, field = parse_cidr(text), f"spec.loadBalancerSourceRanges: {text!r}"
        if cidr is None:
            yield ConditionReason.INVALID, f"{field} is not a CIDR such as 10.0.0.0/8"
        elif cidr.network.version != 4 and not capabilities.ipv6:
            yield ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, f"{field} is IPv6, which this class does not serve"
    for text in check_refusals(spec.health_check, spec.outlier_detection, capabilities):
        yield ConditionReason.INVALID, text
    if spec.session_affinity == "ClientIP" and not capabilities.affinity:
        yield (
            ConditionReason.INVALID,
            f"spec.sessionAffinity: this class has no session affinity; use None, or {_ENVOY}",
        )
    if isinstance(spec, TCPLoadBalancerSpec):
        yield from _accept_refusals(spec, capabilities)
        if spec.accept_proxy_protocol and all(port.protocol == "UDP" for port in spec.ports):
            yield ConditionReason.INVALID, "spec.acceptProxyProtocol: there is no TCP port that could carry it"
        yield from _limit_refusals(spec.limits, connection_limits_problem(spec.limits), capabilities)
    if spec.proxy_protocol and not capabilities.proxy_protocol:
        yield ConditionReason.INVALID, f"spec.proxyProtocol: this class cannot send the PROXY protocol; {_ENVOY}"
    if spec.proxy_protocol and all(port.protocol == "UDP" for port in spec.ports):
        yield ConditionReason.INVALID, "spec.proxyProtocol: there is no TCP port that could carry it"


def _accept_refusals(spec: TCPLoadBalancerSpec | HTTPLoadBalancerSpec, capabilities: Capabilities) -> Iterator[Refusal]:
    if problem := accept_problem(spec.accept_proxy_protocol):
        yield ConditionReason.INVALID, f"spec.acceptProxyProtocol: {problem}"
    elif spec.accept_proxy_protocol and not capabilities.accepts_proxy_protocol:
        text = f"this class cannot accept the PROXY protocol of clients; {_ENVOY}"
        yield ConditionReason.INVALID, f"spec.acceptProxyProtocol: {text}"


def _limit_refusals(text: str, problem: str, capabilities: Capabilities) -> Iterator[Refusal]:
    if problem:
        yield ConditionReason.INVALID, f"spec.limits: {problem}"
    elif text and not capabilities.limits:
        yield ConditionReason.INVALID, f"spec.limits: this class has no limits of its users; {_ENVOY}"


def _http_refusals(_view: HTTPView, spec: HTTPLoadBalancerSpec, capabilities: Capabilities) -> Iterator[Refusal]:
    if not capabilities.l7:
        text = f"LoadBalancerClass {spec.class_name!r} balances connections only; {_ENVOY}"
        yield ConditionReason.UNSUPPORTED_PROTOCOL, f"spec.className: {text}"
    yield from _accept_refusals(spec, capabilities)
    problem = ""
    try:
        read_limits(spec.limits)
    except ValueError as error:
        problem = str(error)
    yield from _limit_refusals(spec.limits, problem, capabilities)
    yield from _listener_conflicts(spec)
    if (count := sum(len(listener.certificates) for listener in spec.listeners)) > _MAX_CERTIFICATES:
        text = (
            f"certificates are named {count:,} times, and the limit of one load balancer is {_MAX_CERTIFICATES:,}. "
            "Use fewer, or several load balancers"
        )
        yield ConditionReason.INVALID, f"spec.listeners: {text}"
    for listener in spec.listeners:
        if problem := hostname_problem(listener.hostname):
            yield ConditionReason.INVALID, f"spec.listeners: hostname of {listener.name}: {problem}"
        for field, sources in (
            ("allowedSources", listener.allowed_sources),
            ("deniedSources", listener.denied_sources),
        ):
            if problem := uncertain_network(sources):
                yield ConditionReason.INVALID, f"spec.listeners: {field} of {listener.name}: {problem}"
    if unknown := next((status for status in spec.error_pages if not PAGE_STATUS.fullmatch(status)), None):
        yield ConditionReason.INVALID, f"spec.errorPages: {unknown[:60]!r} is not a status code such as 404 or 5xx"
    if Protocol.UDP not in capabilities.protocols and any(listener.protocol == "UDP" for listener in spec.listeners):
        yield ConditionReason.UNSUPPORTED_PROTOCOL, "spec.listeners: this class has no UDP"


def _listener_conflicts(spec: HTTPLoadBalancerSpec) -> Iterator[Refusal]:
    shared: dict[tuple[int, bool], str] = {}
    seen: set[tuple[int, str, str]] = set()
    names: set[str] = set()
    for listener in spec.listeners:
        if listener.name in names:
            yield ConditionReason.INVALID, f"spec.listeners: {listener.name} is there twice"
        names.add(listener.name)
        kind = _SHARED.get(listener.protocol, listener.protocol)
        port = f"spec.listeners: {listener.protocol}/{listener.port} of {listener.name}"
        # TCP and UDP have port numbers of their own.
        if shared.setdefault((listener.port, kind == "UDP"), kind) != kind:
            yield ConditionReason.PORT_CONFLICT, f"{port} is open for another protocol"
        if (listener.port, kind, listener.hostname) in seen:
            yield ConditionReason.PORT_CONFLICT, f"{port} is there twice for {listener.hostname or 'any host'}"
        seen.add((listener.port, kind, listener.hostname))


def _address_refusals(view: MemberView, spec: MemberSpec, capabilities: Capabilities) -> Iterator[Refusal]:
    if problem := families_problem(spec, ipv6=capabilities.ipv6):
        yield ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, problem
    requested = requested_addresses(spec.address)
    families = [family_of(address) for address in requested]
    if spec.address and (None in families or not requested):
        wrong = next((address for address in requested if family_of(address) is None), spec.address)
        yield ConditionReason.ADDRESS_NOT_USABLE, f"spec.address: {wrong!r} is not an IP address"
    if len(set(families)) < len(families):
        text = f"spec.address: {spec.address} has two addresses of one family; name one of each"
        yield ConditionReason.ADDRESS_NOT_USABLE, text
    if IPV6 in families and not capabilities.ipv6:
        text = f"spec.address: {spec.address} is IPv6, which this class does not serve"
        yield ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, text
    of_class = requested_addresses(view.behaviour.parameters.get("address", ""))
    if capabilities.allocation is AllocationKind.NONE and not set(requested) <= set(of_class):
        text = f"the hub gives none to LoadBalancerClass {spec.class_name!r}; leave spec.address empty"
        yield ConditionReason.ADDRESS_NOT_USABLE, f"spec.address: {text}"
    if view.over_quota:
        yield ConditionReason.QUOTA_EXCEEDED, view.over_quota


def not_for_tenant(load_balancer_class: LoadBalancerClass, tenant: Tenant | None) -> str:
    """Return why a Tenant's objects may not use a class, empty when they may."""
    tenants = load_balancer_class.spec.tenants
    if not tenants or (tenant is not None and tenant.metadata.name in tenants):
        return ""
    return (
        f"LoadBalancerClass {load_balancer_class.metadata.name!r} is not for this member; choose another class, or ask "
        "the operator to add the member to the class's spec.tenants"
    )


def class_place_problem(load_balancer_class: LoadBalancerClass, parameters: Iterable[str]) -> str:
    """Return why a class cannot name a place of its own for the Services of each of its members; empty when it can."""
    if len(load_balancer_class.spec.tenants) == 1:
        return ""
    return place_problem(load_balancer_class, None, _SOME_OWNER, parameters)


def place_problem(
    load_balancer_class: LoadBalancerClass, tenant: Tenant | None, owner: Owner, parameters: Iterable[str]
) -> str:
    """Return why a class cannot name a place of its own for what ``owner`` asks for, empty when it can.

    ``parameters``: those that name a place; one that ends in a dot is a prefix.
    """
    spec = load_balancer_class.spec
    if tenant is not None and spec.tenants == [tenant.metadata.name]:
        return ""
    for field, text in sorted(spec.parameters.items()):
        if not any(field == name or (name.endswith(".") and field.startswith(name)) for name in parameters):
            continue
        if problem := _problem(text, owner):
            return (
                f"LoadBalancerClass {load_balancer_class.metadata.name!r} is for several members, and its "
                f"parameters.{field} {text!r} {problem}. Have the operator name one member in the "
                f'class\'s spec.tenants, or create another class with {field}: "{_EXAMPLE}"'
            )
    return ""


def _problem(text: str, owner: Owner) -> str:
    matches = list(PLACEHOLDER.finditer(text))
    names = {match[1] for match in matches}
    # Without a member, the namespace is one at the hub.
    if "hubNamespace" not in names and not {"member" if owner.member else "namespace", "member"} <= names:
        return "does not contain {member} or {hubNamespace}, so members could collide"
    # Only what no name holds can end one; the name of an object at the hub may hold dots.
    separators = SEPARATORS.replace(".", "") if "." in owner.name else SEPARATORS
    for left, right in pairwise(matches):
        between = text[left.end() : right.start()]
        if not any(char in separators for char in between) and not _is_last_port(right, matches, between):
            return f"has nothing but {between!r} between two names, which can be part of a name"
    return ""


def _is_last_port(right: re.Match[str], matches: list[re.Match[str]], between: str) -> bool:
    """Return whether digits at the end stand apart from the name before them: "-80" can be read in one way only."""
    return right is matches[-1] and right[1] == "port" and bool(between) and not between[-1].isdigit()
