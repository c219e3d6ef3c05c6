"""A GlobalService becomes one desired load balancer, with the targets of each member as a locality.

    member                                    weight           state
    ----------------------------------------  ---------------  -----------
    publishes no such Service                 (not listed)     Missing
    no endpoint                               as in the spec   NoEndpoints
    drain, or its Tenant is drained           0                Draining
    silent for drainWhenLost                  in the last tier Draining
    silent for dropWhenLost                   no target        Dropped
    taken out by a Drill                      in the last tier Drilled
    fewer healthy endpoints than it needs     0                Down
    no healthy endpoint, or not for long      in the last tier Down, Flapping
    returns                                   a growing part   Returning
    in the lowest tier with an endpoint       as in the spec   Serving
    in a later tier                           as in the spec   Standby

A provider that knows localities gets weights and tiers, and decides by its own health checks. For another one that
weighs targets, the share of a member is divided among its targets; tiers are then rejected.

The silence of an agent says nothing about its endpoints: health decides whether they get connections. Only
drainWhenLost and dropWhenLost take a silent member out of service.

In: a ``GlobalView``. Out: ``GlobalDecision``. Pure. Never: a member counts as down when all others are down, too, and
neither silence nor a drill takes the last member with an endpoint out of service.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from fairlead.api.drill import Drill
from fairlead.api.globalservice import (
    GlobalMember,
    GlobalMemberState,
    GlobalMemberStatus,
    GlobalPort,
    GlobalService,
    GlobalServiceSpec,
)
from fairlead.api.tcploadbalancer import TCPLoadBalancerSpec
from fairlead.model.condition import Condition, ConditionReason
from fairlead.model.contract import Capabilities
from fairlead.model.desired import Locality, Shares, Spillover, Target, Targets
from fairlead.model.keys import ListenerKey, Protocol, TargetKey
from fairlead.model.observed import MemberSeen
from fairlead.translate.endpoints import MAX_TARGETS, Admission
from fairlead.translate.member import (
    Refusal,
    as_accepted,
    connection_frontend,
    connection_refusals,
    decide_version,
    drain_s_of,
    first_refusal,
    leads_to_load_balancers,
    not_admitted,
    recorded_version,
    serve_frontend,
    target_policy,
    tcp_node_families,
    tcp_targets,
    without_load_balancers,
)
from fairlead.translate.shift import shifted
from fairlead.translate.view import (
    Allocated,
    Decision,
    GlobalDecision,
    GlobalView,
    MemberShare,
    MemberState,
    SharedBackend,
    SharedPorts,
    TCPView,
    no_ready,
    resolved,
    unresolved,
)

#: The largest weight of a target that every load balancer supports.
_MAX_WEIGHT = 256
#: Factor of all weights while a member gets a part of its share.
_FINE = 120
#: Higher than any priority.
_FARTHER = 10
#: The states of members that get connections as soon as others have no healthy endpoint.
_BY_HEALTH = frozenset({"Standby", "Draining", "Drilled", "Down", "Flapping", "Returning"})


def decide_global(view: GlobalView, allocate: Callable[[GlobalView], Allocated] | None = None) -> GlobalDecision:
    """Return the desired load balancer of ``view``, with its conditions; ``allocate`` is called once it is valid."""
    spec, accepted = view.load_balancer.spec, view.load_balancer.status.accepted
    serving = _Serving()
    decision = decide_version(view, spec, accepted, first_refusal(view, spec, _refusals), allocate, serving.serve)
    return serving.with_members(view, decision)


def recorded_global(view: GlobalView) -> GlobalDecision | None:
    """Return the recorded version as it is served, regardless of the present spec; None if none is recorded."""
    serving = _Serving()
    decision = recorded_version(view, view.load_balancer.status.accepted, serving.serve)
    return serving.with_members(view, decision) if decision is not None else None


def shared_backends(view: GlobalView) -> dict[tuple[str, str], SharedPorts]:
    """Return the shared backends of routes to the Services of its members, by namespace of the member and Service.

    No address is needed, because a route is served at its own. Empty if no version is valid.
    """
    spec, accepted = view.load_balancer.spec, view.load_balancer.status.accepted
    if first_refusal(view, spec, _refusals) is not None:
        as_it_was = as_accepted(view) if accepted is not None else None
        if as_it_was is None or accepted is None:
            return {}
        view, spec = as_it_was, accepted
    spec = _by_distance(view, shifted(spec, view.load_balancer.status))
    joined = _joined(view, spec)
    _without_shared(joined)
    _judge_lost(view, joined)
    shares, owners = _shares(view, spec, joined), _owners(joined)
    targets = without_load_balancers(view, _all_targets(spec, joined), set())
    by_port = {key: SharedBackend(by_key, shares, owners, view.stale) for key, by_key in targets.items()}
    services: dict[tuple[str, str], SharedPorts] = {}
    for member in joined:
        part = view.parts[member.entry.tenant, spec.service]
        services[part.key.namespace, member.service] = {
            (port.name, port.protocol): by_port[key]
            for port in part.load_balancer.spec.ports
            if (key := ListenerKey(Protocol(port.protocol), port.port)) in by_port
        }
    return services


def open_ports(spec: GlobalServiceSpec, parts: Iterable[TCPView]) -> list[GlobalPort]:
    """Return the ports of ``spec``; without any, all ports of the Services of its members."""
    if spec.ports:
        return list(spec.ports)
    union: dict[tuple[int, str], GlobalPort] = {}
    for part in parts:
        for port in part.load_balancer.spec.ports:
            union.setdefault((port.port, port.protocol), GlobalPort(port.port, port.name, port.protocol))
    return [union[key] for key in sorted(union)]


# --- validation ---------------------------------------------------------------------------------------------------


def _refusals(view: GlobalView, spec: GlobalServiceSpec, capabilities: Capabilities) -> Iterator[Refusal]:
    names = [member.tenant for member in spec.members]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        yield ConditionReason.INVALID, f"spec.members: {repeated[0]} is there twice; name each Tenant once"
    if all(member.drain or not member.weight for member in spec.members):
        text = "every weight is 0 or drained, so no member would take connections; give one member a weight"
        yield ConditionReason.INVALID, f"spec.members: {text}"
    if spec.traffic_distribution and view.load_balancer_class is not None and not view.load_balancer_class.spec.region:
        text = f"LoadBalancerClass {view.load_balancer_class.metadata.name} has no spec.region; set it to the region of"
        yield ConditionReason.INVALID, f"spec.trafficDistribution: {text} its proxies"
    if problem := drain_problem(_by_distance(view, spec)):
        yield ConditionReason.INVALID, f"spec.members: {problem}"
    if not capabilities.localities:
        yield from _without_localities(spec, capabilities)
    if not spec.ports:
        wanted = f"Service {spec.service}" if spec.service else f"a Service annotated {view.key.name}"
        text = f"no member publishes {wanted} yet, so no port is known; the hub retries when one does"
        yield ConditionReason.BACKEND_NOT_FOUND, f"spec.members: {text}"
    seen: set[tuple[str, int]] = set()
    for port in spec.ports:
        if (port.protocol, port.port) in seen:
            yield ConditionReason.PORT_CONFLICT, f"spec.ports: {port.protocol}/{port.port} is there twice"
        seen.add((port.protocol, port.port))
    yield from connection_refusals(spec, capabilities)


def _without_localities(spec: GlobalServiceSpec, capabilities: Capabilities) -> Iterator[Refusal]:
    """Yield the fields that a class cannot support if its provider knows only weights of targets."""
    other = "use a LoadBalancerClass with provider envoy"
    if not capabilities.weights:
        yield ConditionReason.INVALID, f"spec.className: this class cannot share by weight; {other}"
    if len({member.priority for member in spec.members}) > 1:
        yield ConditionReason.INVALID, f"spec.members: this class has no priorities; give all the same, or {other}"
    if spec.traffic_distribution:
        yield ConditionReason.INVALID, f"spec.trafficDistribution: this class has no tiers; remove it, or {other}"
    if any(member.min_healthy_percent for member in spec.members):
        yield ConditionReason.INVALID, f"spec.members: this class has no minHealthyPercent; remove it, or {other}"
    if spec.shift is not None and spec.shift.stop_on.startswith("failed"):
        yield ConditionReason.INVALID, f"spec.shift.stopOn: this class does not count failed connections; {other}"
    if spec.spillover != "strict":
        yield ConditionReason.INVALID, f"spec.spillover: this class has no tiers; remove it, or {other}"


def drain_problem(spec: GlobalServiceSpec) -> str:
    """Return the member that a drain would push above its maxShare; empty for none. Forced drains do not count."""
    drained = [member for member in spec.members if member.drain]
    if not drained or all(member.force for member in drained) or not (problem := share_problem(spec)):
        return ""
    names = " and ".join(sorted(other.tenant for other in drained))
    return f"with {names} drained, {problem}, drain another member, or set force on {names}"


def share_problem(spec: GlobalServiceSpec) -> str:
    """Return the member of the first priority that gets more than its maxShare; empty for none."""
    tier, _ = first_tier(spec)
    whole = sum(member.weight for member in tier)
    for member in tier:
        share = 100 * member.weight / whole
        if share > member.max_share:
            return f"{member.tenant} would get {share:.0f} % and its maxShare is {member.max_share} %; raise maxShare"
    return ""


def first_tier(spec: GlobalServiceSpec) -> tuple[list[GlobalMember], list[GlobalMember]]:
    """Return the members of the first priority that accept connections, and the members of later priorities."""
    left = [member for member in spec.members if member.weight and not member.drain]
    first = min((member.priority for member in left), default=0)
    return (
        [member for member in left if member.priority == first],
        [member for member in left if member.priority != first],
    )


def with_served_tiers(obj: GlobalService) -> GlobalServiceSpec:
    """Return the spec of ``obj``; priorities that depend on the region of its proxies are the tiers of the status."""
    if not obj.spec.traffic_distribution:
        return obj.spec
    tiers = {status.tenant: status.tier for status in obj.status.members or ()}
    members = [replace(member, priority=tiers.get(member.tenant, member.priority)) for member in obj.spec.members]
    return replace(obj.spec, members=members)


# --- members ------------------------------------------------------------------------------------------------------


class _Joined(msgspec.Struct):
    """One member that publishes its Service, with its targets and problems."""

    entry: GlobalMember
    service: str
    targets: dict[ListenerKey, dict[TargetKey, Target]]
    nodes: bool
    #: Why the member's Tenant is drained; empty if it is not.
    why_drained: str = ""
    #: The state of the member's agent, and whether its silence, or a drill, takes the member out of service.
    agent: MemberState = MemberState()
    drill: Drill | None = None
    lost: bool = False
    problem: Condition | None = None

    @property
    def drained(self) -> bool:
        """Return whether the operator drains the member, or removes its Tenant."""
        return self.entry.drain or bool(self.why_drained)

    @property
    def weight(self) -> int:
        """Return the weight of the member when it is neither down nor silent."""
        return 0 if self.drained else self.entry.weight

    @property
    def silent(self) -> bool:
        """Return whether the member's agent has been silent for longer than its Service allows."""
        return self.agent.drained and bool(self.agent.silent_since)

    @property
    def dropped(self) -> bool:
        """Return whether the member is out of service and its targets are removed."""
        return self.lost and self.silent and self.agent.dropped


class _Serving:
    """The translation of one version of the spec, with its members."""

    def __init__(self) -> None:
        self._spec: GlobalServiceSpec | None = None
        self._joined: list[_Joined] = []

    def serve(self, view: GlobalView, spec: GlobalServiceSpec) -> Decision:
        """Return the decision to serve ``spec``."""
        spec = _by_distance(view, shifted(spec, view.load_balancer.status))
        self._spec, self._joined = spec, _joined(view, spec)
        shared = _without_shared(self._joined)
        _judge_lost(view, self._joined)
        loop_targets = set[TargetKey]()
        targets = without_load_balancers(view, _all_targets(spec, self._joined), loop_targets)
        frontend = connection_frontend(view, spec, spec.origin)
        if view.capabilities is not None and not view.capabilities.localities:
            localities = _localities(view, self._joined)
            targets = {key: _weighted(by_key, localities) for key, by_key in targets.items()}
        else:
            frontend = replace(frontend, shares=_shares(view, spec, self._joined))
        problems = [
            unresolved(ConditionReason.INVALID, view.unreadable) if view.unreadable else None,
            leads_to_load_balancers(view, loop_targets),
            *(member.problem for member in self._joined),
            shared,
            _missing(view, spec),
            _other_ports(spec, self._joined),
            _empty(targets),
        ]
        return serve_frontend(
            view,
            frontend,
            targets,
            dict.fromkeys(targets, _owners(self._joined)),
            next(filter(None, problems), resolved()),
            node_families=(),
            count=_count(self._joined),
        )

    def with_members(self, view: GlobalView, decision: Decision) -> GlobalDecision:
        """Return ``decision`` with its members as they are served, or would be if nothing is served."""
        spec, joined = self._spec or view.load_balancer.spec, self._joined
        localities = _localities(view, joined)
        by_name = {member.entry.tenant: member for member in joined}
        members = tuple(
            _share(view, spec, entry, by_name.get(entry.tenant), localities.get(entry.tenant)) for entry in spec.members
        )
        fields = {name: getattr(decision, name) for name in Decision.__struct_fields__}
        return GlobalDecision(**fields, members=members, spillover=Spillover(spec.spillover))


def _by_distance(view: GlobalView, spec: GlobalServiceSpec) -> GlobalServiceSpec:
    """Return ``spec`` with priorities ordered by the distance of members first, if the spec requests that."""
    if not spec.traffic_distribution:
        return spec
    members = [
        replace(member, priority=_FARTHER * _distance(view, member.tenant) + member.priority) for member in spec.members
    ]
    return replace(spec, members=members)


def _distance(view: GlobalView, name: str) -> int:
    """Return how far a member is from the proxies: 0 in their region, 1 in one near to it, 2 elsewhere or unknown."""
    where, tenant = view.load_balancer_class, view.tenants.get(name)
    region = tenant.spec.region if tenant is not None else ""
    if where is None or not where.spec.region or region == where.spec.region:
        return 0
    return 1 if region and region in where.spec.near_regions else 2


def _joined(view: GlobalView, spec: GlobalServiceSpec) -> list[_Joined]:
    """Return the members that publish their Service, in the order of the spec."""
    left, joined = MAX_TARGETS, list[_Joined]()
    for entry in spec.members:
        part = view.parts.get((entry.tenant, spec.service))
        if part is None or part.tenant is None:
            continue
        part = replace(
            part,
            load_balancer_class=view.load_balancer_class,
            in_force=view.in_force,
            allocation=view.allocation,
            # Draining is a weight of 0 here: its connections end on their own.
            member=replace(part.member, drained=False),
        )
        admission = Admission(target_policy(part), limit=left)
        targets = _targets(part, spec, admission)
        left = admission.left
        origin = part.load_balancer.spec.origin
        own_member = view.parts[entry.tenant, spec.service].member
        agent = view.agents.get((entry.tenant, spec.drain_when_lost, spec.drop_when_lost), own_member)
        problem = not_admitted(admission)
        member = _Joined(
            entry,
            f"{origin.namespace}/{origin.name}" if origin.name else part.load_balancer.metadata.name,
            {},
            nodes=part.load_balancer.spec.targets == "Node",
            why_drained=agent.message if agent.drained and not agent.silent_since else "",
            agent=agent,
            drill=view.drill if view.drill is not None and view.drill.spec.member == entry.tenant else None,
            problem=replace(problem, message=f"member {entry.tenant}: {problem.message}") if problem else None,
        )
        owner = _owner(member)
        member.targets = {
            key: {at: replace(target, locality=entry.tenant, owners=(owner,)) for at, target in by_key.items()}
            for key, by_key in targets.items()
        }
        joined.append(member)
    return joined


def _owner(member: _Joined) -> str:
    """Return the owner of a member's targets: they are removed without a guard once the member leaves or is dropped."""
    return f"Member/{member.entry.tenant}/{member.service}"


def _owners(joined: Sequence[_Joined]) -> frozenset[str]:
    return frozenset(_owner(member) for member in joined if not member.dropped)


def _targets(part: TCPView, spec: GlobalServiceSpec, admission: Admission) -> dict[ListenerKey, Targets]:
    own: TCPLoadBalancerSpec = part.load_balancer.spec
    wanted = {(port.protocol, port.port) for port in spec.ports}
    ports = [
        port for port in own.ports if (port.protocol, port.port) in wanted and (port.node_port or own.targets != "Node")
    ]
    own = replace(own, ports=ports)
    return tcp_targets(part, own, tcp_node_families(own, admission.policy), admission)


def _judge_lost(view: GlobalView, joined: Sequence[_Joined]) -> None:
    """Decide which silent or drilled members are out of service; dropped members lose their targets."""
    lost = [member for member in joined if member.silent or member.drill is not None]
    with_endpoints = {member.entry.tenant for member in joined if member.weight and _ready(member)}
    down = _down(view, joined) | {name for name, returning in view.returning.items() if not returning.part}
    others = with_endpoints - {member.entry.tenant for member in lost}
    needed = not others - down if with_endpoints - down else not others
    if with_endpoints and needed:
        return
    for member in lost:
        member.lost = True
        if member.dropped:
            member.targets = {key: {} for key in member.targets}


def _down(view: GlobalView, joined: Sequence[_Joined]) -> frozenset[str]:
    return view.down & {member.entry.tenant for member in joined if member.entry.min_healthy_percent}


def _localities(view: GlobalView, joined: Sequence[_Joined]) -> dict[str, Locality]:
    """Return the weight and tier of each member that publishes its Service, by name."""
    weights = {member.entry.tenant: member.weight for member in joined}
    if view.capabilities is not None and not view.capabilities.localities:
        weights |= {member.entry.tenant: 0 for member in joined if member.lost}
    serving = {member.entry.tenant for member in joined if member.weight and not member.lost and _ready(member)}
    if not serving <= (down := _down(view, joined)):
        # Otherwise every member is down, and healthy endpoints still serve.
        weights |= dict.fromkeys(weights.keys() & down, 0)
    if any(0 < returning.part < 1 for returning in view.returning.values()):
        parts = {name: returning.part or 1.0 for name, returning in view.returning.items()}
        weights = {name: round(_FINE * weight * parts.get(name, 1.0)) for name, weight in weights.items()}
    # A silent and drained member, a drilled one, or one that is down serves if no other member has a healthy endpoint.
    last = {name for name, returning in view.returning.items() if not returning.part}
    last |= {member.entry.tenant for member in joined if member.lost}
    ranks = {member.entry.tenant: (member.entry.tenant in last, member.entry.priority) for member in joined}
    tiers = sorted({ranks[name] for name, weight in weights.items() if weight})
    dark = {
        member.entry.tenant for member in joined if member.lost and member.drill and member.drill.spec.mode == "Dark"
    }
    return {
        name: Locality(name, weight, tiers.index(ranks[name]) if weight else 0, dark=name in dark)
        for name, weight in weights.items()
    }


def _shares(view: GlobalView, spec: GlobalServiceSpec, joined: Sequence[_Joined]) -> Shares:
    localities = _localities(view, joined)
    in_order = tuple(localities[name] for name in sorted(localities))
    return Shares(in_order, Spillover(spec.spillover), drain_s_of(spec), spec.drain_close == "reset")


def _all_targets(spec: GlobalServiceSpec, joined: Sequence[_Joined]) -> dict[ListenerKey, Targets]:
    """Return the targets of all members by port; drained ones drain if connections are closed after a time."""
    drained = {member.entry.tenant for member in joined if member.drained} if spec.drain else ()
    return {
        key: {
            at: replace(target, draining=True) if target.locality in drained else target
            for member in joined
            for at, target in member.targets.get(key, {}).items()
        }
        for key in (ListenerKey(Protocol(port.protocol), port.port) for port in spec.ports)
    }


def _weighted(targets: Targets, localities: Mapping[str, Locality]) -> Targets:
    """Return ``targets`` weighted by their part of the member's share, for a provider without localities."""
    counts: dict[str, int] = {}
    for target in targets.values():
        counts[target.locality] = counts.get(target.locality, 0) + (not target.draining)
    parts = {name: localities[name].weight / count for name, count in counts.items() if count}
    most = max(parts.values(), default=0.0) or 1.0
    weights = {name: max(1, round(_MAX_WEIGHT * part / most)) if part else 0 for name, part in parts.items()}
    return {
        key: replace(target, weight=weights.get(target.locality, 0), locality="") for key, target in targets.items()
    }


def _ready(member: _Joined) -> set[TargetKey]:
    return {key for by_key in member.targets.values() for key, target in by_key.items() if not target.draining}


def _count(joined: Sequence[_Joined]) -> str:
    ready = sum(len(_ready(member)) for member in joined)
    total = sum(len({key for by_key in member.targets.values() for key in by_key}) for member in joined)
    return f"{ready}/{total}"


# --- problems -----------------------------------------------------------------------------------------------------


def _without_shared(joined: Sequence[_Joined]) -> Condition | None:
    """Exclude endpoints that an earlier member also has; return condition ResolvedRefs about the first of them."""
    holders: dict[tuple[ListenerKey, TargetKey], str] = {}
    problem = None
    for member in joined:
        for listener, by_key in member.targets.items():
            for key in sorted(by_key):
                holder = holders.setdefault((listener, key), member.entry.tenant)
                if holder == member.entry.tenant:
                    continue
                del by_key[key]
                problem = problem or unresolved(
                    ConditionReason.INVALID,
                    f"endpoint {key} is in members {holder} and {member.entry.tenant}, and only {holder} gets its "
                    f"connections: their pod networks overlap; publish nodes instead (annotation fairlead.dev/target: "
                    "Node)",
                )
    return problem


def _missing(view: GlobalView, spec: GlobalServiceSpec) -> Condition | None:
    for position, member in enumerate(spec.members):
        if why := _why_missing(view, spec, member.tenant):
            return unresolved(ConditionReason.BACKEND_NOT_FOUND, f"spec.members[{position}].tenant: {why}")
    return None


def _why_missing(view: GlobalView, spec: GlobalServiceSpec, name: str) -> str:
    """Return why a member has not joined; empty if it has."""
    if (name, spec.service) not in view.parts and view.unreadable:
        return view.unreadable
    tenant = view.tenants.get(name)
    if tenant is None:
        return f"there is no Tenant {name} at the hub; kubectl get tenants lists those there"
    if tenant.refused:
        return f"Tenant {name} is rejected by the hub; its condition Accepted says why"
    if (name, spec.service) in view.parts:
        return ""
    annotated = f"a Service with annotation fairlead.dev/global: {view.key.name}"
    wanted = f"Service {spec.service} of type LoadBalancer, nor {annotated}" if spec.service else annotated
    return f"member {name} publishes no {wanted.removeprefix('a ')}"


def _other_ports(spec: GlobalServiceSpec, joined: Sequence[_Joined]) -> Condition | None:
    """Return condition ResolvedRefs about the first member whose Service lacks a port; None if none does."""
    for member in joined:
        keys = [ListenerKey(Protocol(port.protocol), port.port) for port in spec.ports]
        if lacking := [str(key) for key in keys if key not in member.targets]:
            return unresolved(
                ConditionReason.PORT_CONFLICT,
                f"spec.ports: Service {member.service} of member {member.entry.tenant} does not serve "
                f"{', '.join(lacking)}; the other members serve it alone",
            )
    return None


def _empty(targets: Mapping[ListenerKey, Targets]) -> Condition | None:
    empty = sorted(str(key) for key, by_key in targets.items() if all(target.draining for target in by_key.values()))
    return unresolved(ConditionReason.BACKEND_NOT_FOUND, no_ready("endpoint", ", ".join(empty))) if empty else None


# --- what users see -----------------------------------------------------------------------------------------------


def _share(
    view: GlobalView, spec: GlobalServiceSpec, entry: GlobalMember, member: _Joined | None, locality: Locality | None
) -> MemberShare:
    if member is None or locality is None:
        return MemberShare(entry.tenant, why=_why_missing(view, spec, entry.tenant))
    total = len({key for by_key in member.targets.values() for key in by_key})
    share = MemberShare(
        entry.tenant,
        member.service,
        locality.weight,
        locality.tier,
        len(_ready(member)),
        total,
        "Standby",
        silent_since=member.agent.silent_since,
    )
    if member.drained:
        kept = f"closed after {spec.drain}" if spec.drain else "kept"
        why = member.why_drained or f"drained by spec.members; existing connections are {kept}"
        return replace(share, state="Draining", why=why)
    if not entry.weight:
        return replace(share, why="weight 0 in spec.members: no new connections")
    if member.lost and member.silent:
        state: GlobalMemberState = "Dropped" if member.dropped else "Draining"
        return replace(share, state=state, why=member.agent.message)
    if member.lost and (drill := member.drill) is not None:
        why = f"out of service for drill {drill.metadata.name} until {drill.status.ends_at}"
        return replace(share, state="Drilled", why=why)
    if not locality.weight:
        why = f"fewer healthy endpoints than minHealthyPercent {entry.min_healthy_percent}"
        return replace(share, state="Down", why=why)
    if share.ready and (returning := view.returning.get(entry.tenant)) is not None:
        judged: GlobalMemberState = "Flapping" if returning.flaps else "Returning" if returning.part else "Down"
        return replace(share, state=judged)
    if not share.ready:
        return replace(share, state="NoEndpoints", why="no endpoint is ready")
    if spec.traffic_distribution and share.tier and _distance(view, entry.tenant):
        region = view.tenants[entry.tenant].spec.region
        return replace(share, why=f"in {f'region {region}' if region else 'no region'}, farther away")
    return share


def member_statuses(
    members: Sequence[MemberShare],
    spillover: Spillover,
    healthy: Mapping[str, MemberSeen],
    *,
    served: Collection[str] = (),
) -> list[GlobalMemberStatus]:
    """Return the members with their present shares of new connections.

    ``healthy`` is the number of healthy endpoints by member, as proxies see it; without an entry, the ready endpoints
    count. ``served`` are the members that had a healthy endpoint before.
    """
    served = {*served, *(name for name, known in healthy.items() if known.healthy)}
    seen = {member.tenant: (member.ready, member.ready) for member in members}
    seen |= {name: (known.healthy, known.known) for name, known in healthy.items() if name in seen}
    parts = _parts(members, spillover, seen)
    whole = sum(parts.values())
    return [
        _member_status(
            member,
            100 * parts.get(member.tenant, 0.0) / whole if whole else 0.0,
            healthy.get(member.tenant),
            served=member.tenant in served,
        )
        for member in members
    ]


def _member_status(member: MemberShare, share: float, seen: MemberSeen | None, *, served: bool) -> GlobalMemberStatus:
    state: GlobalMemberState = member.state
    health = silence = ""
    if state in _BY_HEALTH and member.weight:
        if seen is not None and seen.known and not seen.healthy:
            state = "Flapping" if state == "Flapping" else "Down"
            health = f"none of {seen.known} endpoints is healthy"
        elif share and seen is not None and seen.blind:
            state = "UnreachableFromSomeProxies"
            health = f"{seen.blind} of {seen.proxies} proxies reach none of its endpoints, and use the other members"
        elif share and state != "Returning":
            health = "" if state == "Standby" else "no other member has a healthy endpoint"
            state = "Serving"
        elif state in {"Down", "Flapping"} and seen is not None:
            health = "healthy again, and gets connections once healthy for returnDelay"
    if member.silent_since:
        silence = f"the agent last reported at {member.silent_since}; its last state is served"
    return GlobalMemberStatus(
        member.tenant,
        member.service,
        f"{share:.0f}%",
        member.tier,
        f"{seen.healthy}/{seen.known} healthy" if seen is not None else f"{member.ready}/{member.total}",
        state,
        "; ".join(filter(None, (health, member.why or silence))),
        member.silent_since or None,
        served,
    )


def _parts(
    members: Sequence[MemberShare], spillover: Spillover, seen: Mapping[str, tuple[int, int]]
) -> dict[str, float]:
    """Return the part of new connections of each member, as Envoy divides them by its overprovisioning factor."""
    factor = 1.4 if spillover is Spillover.PROPORTIONAL else 100.0
    parts: dict[str, float] = {}
    left = 1.0
    serving = [member for member in members if member.weight]
    for tier in sorted({member.tier for member in serving}):
        in_tier = [member for member in serving if member.tier == tier]
        good, known = (sum(seen[member.tenant][at] for member in in_tier) for at in (0, 1))
        part = min(left, factor * good / known) if known else 0.0
        left -= part
        weights = {
            member.tenant: member.weight * min(1.0, factor * seen[member.tenant][0] / seen[member.tenant][1])
            for member in in_tier
            if seen[member.tenant][1]
        }
        whole = sum(weights.values())
        if whole:
            parts |= {name: part * weight / whole for name, weight in weights.items() if weight}
    return parts


def shares_in_line(statuses: Collection[GlobalMemberStatus]) -> str:
    """Return the members in one line for a column, as west 60%, east 40%, north standby."""
    return ", ".join(f"{status.tenant} {share_in_words(status)}" for status in statuses)


def share_in_words(status: GlobalMemberStatus) -> str:
    """Return the share of a member, such as 60%; without connections, its state, such as standby."""
    if status.state == "UnreachableFromSomeProxies":
        return f"{status.share} from some proxies"
    if status.state == "Returning":
        return f"{status.share} returning"
    return status.share if status.state == "Serving" else status.state.lower()
