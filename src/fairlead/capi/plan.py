"""The plan for one load balancer of a Cluster: all writes for one view, the backends and the conditions.

    paused                                    nothing
    a member                                  its row of ``hooks.TABLE``
    another address than before               the new one is added, the old one drained and removed
    no address, or all objects are gone       registered backends are kept
    no longer selected, or missing            as one that is being deleted

In: a ``CapiView``. Out: a ``CapiPlan``, the BackendGroup, conditions. Pure. Never: a backend before its member carries
our hooks and finalizer, or their release before the hub has reported that it is deregistered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from fairlead.api.backendgroup import BackendGroup, BackendGroupSpec
from fairlead.api.capiside import ControlPlaneEndpoint, MemberStatus
from fairlead.api.clusterapi import (
    ANNOTATION_CLUSTER_PAUSED,
    CLUSTER_API_GROUP,
    MARKER_NAME,
    MARKER_STATUS,
    TargetObject,
)
from fairlead.api.json_text import read_json
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer, LoadBalancerListener
from fairlead.api.meta import JSONObject, WireCondition, condition_of
from fairlead.api.names import ANNOTATION_MEMBERS, LABEL_MANAGED_BY, LABEL_MEMBERS_OF, MANAGED_BY, label_value
from fairlead.capi.view import (
    ACTIVE,
    ADDING,
    DISABLED,
    NOWHERE,
    REMOVED,
    CapiPlan,
    CapiView,
    Goal,
    GroupPlan,
    MarkPlan,
    Marks,
    MemberAction,
    MemberSelection,
    Presence,
    State,
    Step,
    Verdict,
    address_of,
    all_addresses,
    held,
    is_disabled,
    is_held,
    is_marked,
    presence_of,
    released,
    select,
    settle,
    step,
    together,
)
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.in_words import host_port, split_host_port

#: Messages for users about members that make no progress.
_REASONS = {
    Presence.PENDING: "the load balancer has not registered it yet",
    Presence.DRAINING: "until no proxy sends it new connections",
    Presence.OUT: "no new connections",
    Presence.LEAVING: "until its deregistration has taken effect",
}


def plan_load_balancer(view: CapiView) -> CapiPlan:
    """Return the plan for the load balancer of ``view``."""
    load_balancer, cluster = view.load_balancer, view.cluster
    selection = select(load_balancer, view.objects)
    verdict = endpoint_of(view)
    paused = (cluster is not None and cluster.paused) or bool(
        ANNOTATION_CLUSTER_PAUSED in (load_balancer.metadata.annotations or {})
    )
    held_up = "paused" if paused else selection.problem or view.incomplete
    if load_balancer.spec.infrastructure_ref is not None:
        return plan_foreign(view, selection, verdict, held_up=held_up or view.foreign_problem)
    if held_up:
        return CapiPlan(selection, verdict, tuple(load_balancer.status.members or ()), held_up=held_up)
    members = _Members(view, selection)
    return CapiPlan(
        selection,
        verdict,
        tuple(members.statuses),
        tuple(members.holds),
        members.groups(),
        _patch(view, verdict),
        tuple(members.releases),
        kept=members.kept,
    )


def endpoint_of(view: CapiView) -> Verdict:
    """Return the endpoint in force, and what to write for it."""
    load_balancer = view.load_balancer
    own = ControlPlaneEndpoint(load_balancer.status.address, load_balancer.spec.listeners[0].port)
    if load_balancer.spec.infrastructure_ref is not None:
        own = view.foreign.spec.endpoint if view.foreign is not None else NOWHERE
    return settle(
        view.cluster.endpoint if view.cluster is not None else NOWHERE,
        load_balancer.spec.endpoint,
        own,
        additional=load_balancer.spec.additional,
        claimed_by=view.claimed_by,
        taken_by=view.taken_by,
    )


def _patch(view: CapiView, verdict: Verdict) -> dict[str, object]:
    """Return the fields of the LoadBalancer's spec that are filled in."""
    spec, patch = view.load_balancer.spec, dict[str, object]()
    if verdict.to_load_balancer is not None:
        patch["endpoint"] = {"host": verdict.to_load_balancer.host, "port": verdict.to_load_balancer.port}
    check = spec.health_check
    if view.follows_authority:
        bundle = check.ca_bundle if check is not None else ""
        wanted = {"caBundle": view.authority} if view.authority and view.authority != bundle else {}
        if check is None:
            wanted = {"path": "/readyz", **wanted}
        if wanted:
            patch["healthCheck"] = wanted
    return patch


class _Members:
    """Plans the members of one view."""

    def __init__(self, view: CapiView, selection: MemberSelection) -> None:
        self._view = view
        self._hooks = view.kind.api_group == CLUSTER_API_GROUP and view.kind.kind == "Machine"
        self._known = {member.name: member for member in view.load_balancer.status.members or ()}
        self._asked = {name: members_in(view.groups.get(name)) for name in view.listeners}
        self._next = {name: dict(members) for name, members in self._asked.items()}
        self._static = {name: set(_spec_of(view, name).static or ()) for name in view.listeners}
        self._draining = {name: set(_spec_of(view, name).draining or ()) for name in view.listeners}
        self.statuses: list[MemberStatus] = []
        self.holds: list[MarkPlan] = []
        self.releases: list[MarkPlan] = []
        selected = {obj.metadata.name for obj in selection.members}
        registered_members = {member for members in self._asked.values() for member in members.values()}
        registered = {self._asked[name][backend] for name, static in self._static.items() for backend in static}
        objects = {obj.metadata.name: obj for obj in view.objects}
        marked = {name for name, obj in objects.items() if is_marked(_marks(obj), view.name)}
        #: Nothing at all is left of them: as after a restore, or when another controller has removed the kind.
        self.kept = tuple(sorted(registered)) if registered and not selected | marked else ()
        for name in sorted(selected | marked | (registered_members - set(self.kept))):
            self._member(name, objects.get(name), selected=name in selected)

    def groups(self) -> Mapping[str, GroupPlan]:
        """Return the desired backends of each group."""
        return {
            name: GroupPlan(
                members, frozenset(self._static[name]), frozenset(self._draining[name] & self._static[name])
            )
            for name, members in self._next.items()
        }

    def _member(self, name: str, obj: TargetObject | None, *, selected: bool) -> None:
        view = self._view
        goal = Goal.LEAVING if obj is None or obj.deleting or not selected else Goal.ALIVE
        if goal is Goal.ALIVE and obj is not None and is_disabled(obj.metadata.annotations, view.name):
            goal = Goal.DISABLED
        marks = _marks(obj) if obj is not None else Marks({}, ())
        ready = is_held(marks, view.name, hooks=self._hooks)
        wanted = self._wanted(obj)
        presences: list[Presence] = []
        for group_name in view.listeners:
            own_backends = {backend for backend, member in self._asked[group_name].items() if member == name}
            backend = wanted.get(group_name, "")
            for own_backend in sorted(own_backends | ({backend} if backend else set())):
                # Without an address nothing is known to be wrong with the one that is registered.
                moved = bool(backend) and own_backend != backend
                presence = presence_in(view.groups.get(group_name), own_backend)
                self._edit(group_name, own_backend, name, step(Goal.LEAVING if moved else goal, presence), ready=ready)
                if not moved or goal is Goal.LEAVING:
                    presences.append(presence)
        row = step(goal, self._together(name, presences))
        if obj is not None:
            self._mark(obj, marks, row, goal, presences)
        if row.action is not MemberAction.RELEASE or (obj is not None and selected):
            before = self._known.get(name)
            addresses = all_addresses(obj.status.addresses) if obj is not None else []
            if not addresses and before is not None:
                addresses = list(before.addresses or ())
            reason = _reason(row, together(presences)) if presences else "no address"
            since = before.since if before is not None and before.state == row.status else None
            self.statuses.append(MemberStatus(name, addresses or None, row.status, reason, since))

    def _together(self, name: str, presences: list[Presence]) -> Presence:
        """Return the presence of a member from that of its backends."""
        if presences:
            return together(presences)
        groups = [self._view.groups.get(group_name) for group_name in self._view.listeners]
        return together(presence_in(group, f"of {name}") for group in groups)

    def _wanted(self, obj: TargetObject | None) -> dict[str, str]:
        """Return the backend of a member by group; none when it has no address."""
        if obj is None:
            return {}
        like = self._view.load_balancer.spec.endpoint.host or self._view.load_balancer.status.address
        address = address_of(obj.status.addresses, like=like)
        return (
            {name: backend_of(address, listener) for name, listener in self._view.listeners.items()} if address else {}
        )

    def _edit(self, group: str, backend: str, member: str, row: Step, *, ready: bool) -> None:
        static, draining = self._static[group], self._draining[group]
        match row.action:
            case MemberAction.ADD if ready:
                self._next[group][backend] = member
                static.add(backend)
                draining.discard(backend)
            case MemberAction.DRAIN:
                draining.add(backend)
            case MemberAction.REMOVE:
                static.discard(backend)
            case MemberAction.RELEASE:
                self._next[group].pop(backend, None)
            case _:
                pass

    def _mark(self, obj: TargetObject, marks: Marks, row: Step, goal: Goal, presences: Iterable[Presence]) -> None:
        name = self._view.name
        if row.action is MemberAction.RELEASE:
            if is_marked(marks, name):
                after = released(marks, name, status=REMOVED if obj.deleting else "")
                self.releases.append(MarkPlan(obj, marks, after))
            return
        if goal is Goal.LEAVING and not is_marked(marks, name) and not any(True for _ in presences):
            return  # it never was a member
        after = held(marks, name, row.status, hooks=self._hooks, deleting=obj.deleting or goal is Goal.LEAVING)
        if after != marks:
            self.holds.append(MarkPlan(obj, marks, after))


def _reason(row: Step, presence: Presence) -> str:
    return _REASONS[Presence.PENDING] if row.status == ADDING else _REASONS.get(presence, "")


def _spec_of(view: CapiView, group: str) -> BackendGroupSpec:
    present_group = view.groups.get(group)
    return present_group.spec if present_group is not None else BackendGroupSpec([])


def _marks(obj: TargetObject) -> Marks:
    return Marks.of(obj.metadata.annotations, obj.metadata.finalizers)


def plan_foreign(view: CapiView, selection: MemberSelection, verdict: Verdict, *, held_up: str) -> CapiPlan:
    """Return the plan; its ``verdict`` is about the endpoints of Cluster and LoadBalancer."""
    members = tuple(_members(view, selection))
    below = view.foreign.spec.endpoint if view.foreign is not None else NOWHERE
    wanted = verdict.endpoint
    if wanted.given and below.given and wanted.place != below.place and verdict.state is not State.CONFLICT:
        verdict = Verdict(State.CONFLICT, wanted, message=_conflict(wanted, below))
    if held_up:
        return CapiPlan(selection, verdict, members, held_up=held_up)
    down = wanted if wanted.given and verdict.state not in (State.CONFLICT, State.CLAIMED) else None
    patch: dict[str, object] = {}
    if verdict.to_load_balancer is not None:
        patch["endpoint"] = {"host": verdict.to_load_balancer.host, "port": verdict.to_load_balancer.port}
    return CapiPlan(selection, verdict, members, patch=patch, to_provider=down)


def _members(view: CapiView, selection: MemberSelection) -> Iterator[MemberStatus]:
    statuses = {member.name: member for member in view.load_balancer.status.members or ()}
    for obj in selection.members:
        behind = obj.annotation(MARKER_NAME).split(",")
        state = obj.annotation(MARKER_STATUS) if view.name in behind or view.foreign_name in behind else ""
        before = statuses.get(obj.metadata.name)
        since = before.since if before is not None and before.state == state else None
        addresses = all_addresses(obj.status.addresses) or None
        yield msgspec.structs.replace(MemberStatus(obj.metadata.name, addresses, state), since=since)


def _conflict(wanted: ControlPlaneEndpoint, below: ControlPlaneEndpoint) -> str:
    return (
        f"spec.endpoint is {wanted}, and spec.endpoint of what spec.infrastructureRef names is {below}: neither is "
        "changed; name one without an endpoint, or with that of the LoadBalancer"
    )


# --- the BackendGroup ------------------------------------------------------------------------------------------------
#
# The BackendGroup of a load balancer's members: what it holds, and how it is written.
#
#     spec.static           every backend that is or may be registered
#     spec.draining         those of them that get no new connections
#     annotation members    which member each backend is of, until it is deregistered: it outlives the member's object


def members_in(group: BackendGroup | None) -> dict[str, str]:
    """Return the member of each backend that is, or may be, registered; the backend itself where it is not recorded."""
    if group is None:
        return {}
    names = read_json(group.annotation(ANNOTATION_MEMBERS) or "{}", dict[str, str]) or {}
    return {**names, **{backend: backend for backend in group.spec.static or () if backend not in names}}


def presence_in(group: BackendGroup | None, backend: str) -> Presence:
    """Return the presence of ``backend`` at the load balancer by its group; LEAVING while there is no group."""
    if group is None:
        return presence_of(requested=False, draining=False, state="", in_effect=False)
    states = {entry.backend: entry.state for entry in group.status.listed or ()}
    return presence_of(
        requested=backend in (group.spec.static or ()),
        draining=backend in (group.spec.draining or ()),
        state=states.get(backend, ""),
        in_effect=group.status.listed_generation == group.metadata.generation,
    )


def backend_of(address: str, listener: LoadBalancerListener) -> str:
    """Return address and port of a member, as a group names it."""
    return host_port(address, listener.target_port or listener.port)


def is_same(group: BackendGroup | None, plan: GroupPlan) -> bool:
    """Return whether the spec of ``group`` is equal to ``plan``."""
    return (
        group is not None
        and members_in(group) == dict(plan.members)
        and frozenset(group.spec.static or ()) == plan.static
        and frozenset(group.spec.draining or ()) == plan.draining
        and group.spec.list_backends
    )


def group_body(load_balancer: LoadBalancer, name: str, listener: LoadBalancerListener, plan: GroupPlan) -> JSONObject:
    """Return the group as it is applied."""
    meta = load_balancer.metadata
    spec: JSONObject = {
        "loadBalancers": [meta.name],
        "static": sorted(plan.static),
        "draining": sorted(plan.draining),
        "listBackends": True,
    }
    if len(load_balancer.spec.listeners) > 1:
        spec["listener"] = listener.name
    return {
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_MEMBERS_OF: label_value(meta.name)},
            "annotations": {ANNOTATION_MEMBERS: msgspec.json.encode(dict(sorted(plan.members.items()))).decode()},
            "ownerReferences": [msgspec.to_builtins(LOAD_BALANCERS.owner(meta))],
        },
        "spec": spec,
    }


# --- conditions ------------------------------------------------------------------------------------------------------
#
# The conditions of a load balancer of a Cluster, in addition to those of the hub.
#
#     Exists             its provider has it
#     MatchesConfig      nothing of it was changed by others, or what was has been put back
#     EndpointPublished  ready to unblock the first machine: the Cluster has the endpoint, and it is served
#     IsReachable        the endpoint was reached when it was probed last; blocks nothing
#     MembersResolved    the selector is in force, and every member has an address
#     Healthy            every member takes traffic
#     ControlPlane...    Initialized: there is a kubeconfig; Ready: /readyz answers. Only where no provider says it


def build_conditions(view: CapiView, plan: CapiPlan) -> list[Condition]:
    """Return the conditions of the load balancer of ``view``, in the order of their types."""
    return [
        _exists(view),
        _matches(view),
        _published(view, plan),
        _reachable(view),
        _resolved(view, plan),
        _healthy(view, plan),
        *_plane(view),
    ]


def is_served(view: CapiView) -> bool:
    """Return whether the provider has created the load balancer."""
    return bool(_exists(view).status)


def _plane(view: CapiView) -> Iterator[Condition]:
    """Yield the conditions of the control plane, for Clusters without a control-plane provider."""
    if not view.unmanaged:
        return
    plane = view.plane
    if plane is None or not plane.initialized:
        name = f"{view.load_balancer.spec.cluster_name}-kubeconfig"
        why = "not checked yet" if plane is None else f"Secret {name} not found in this namespace"
        status = None if plane is None else False
        yield Condition(ConditionType.CONTROL_PLANE_INITIALIZED, status, ConditionReason.PENDING, why)
        yield Condition(ConditionType.CONTROL_PLANE_READY, status, ConditionReason.PENDING, why)
        return
    yield Condition(ConditionType.CONTROL_PLANE_INITIALIZED, True, ConditionReason.READY, "")
    reason = ConditionReason.NOT_REACHABLE if plane.problem else ConditionReason.READY
    yield Condition(ConditionType.CONTROL_PLANE_READY, not plane.problem, reason, plane.problem)


#: Reasons of Serving while no member takes traffic, whatever is registered.
_NONE_SERVES = frozenset(
    {
        ConditionReason.NO_TARGETS,
        ConditionReason.NO_HEALTHY_TARGETS,
        ConditionReason.PROXIES_SILENT,
        ConditionReason.WAITING_FOR_FIRST_CHECK,
    }
)


def active(view: CapiView, plan: CapiPlan) -> int:
    """Return the number of members that take traffic: registered for each listener, and not unhealthy.

    0 until the proxies have found a healthy one: a registered member may not serve.
    """
    if view.load_balancer.spec.infrastructure_ref is not None:
        return view.foreign.status.active_targets if view.foreign is not None else 0
    serving = _of_hub(view, ConditionType.SERVING)
    if serving is not None and serving.reason in _NONE_SERVES:
        return 0
    unhealthy = {
        split_host_port(target.partition(" ")[0])[0] for target in view.load_balancer.status.unhealthy_targets or ()
    }
    return sum(member.state == ACTIVE and unhealthy.isdisjoint(member.addresses or ()) for member in plan.members)


def _of_hub(view: CapiView, kind: ConditionType) -> WireCondition | None:
    return condition_of(view.load_balancer.status.conditions, kind)


#: The conditions of the contract, and the names that they had in its first text.
_OF_CONTRACT = {
    ConditionType.EXISTS: ("Exists", "LBExists"),
    ConditionType.MATCHES_CONFIG: ("MatchesConfig", "LBMatchesConfig"),
}


def _of_provider(view: CapiView, kind: ConditionType, good: ConditionReason) -> Condition:
    """Yield the conditions that another provider reports of its load balancer."""
    if view.foreign is None:
        missing = view.foreign_problem or f"spec.infrastructureRef: {view.foreign_name!r} not found in this namespace"
        return Condition(kind, False, ConditionReason.PENDING, missing)
    names = _OF_CONTRACT[kind]
    reported = next((condition for condition in view.foreign.status.conditions or () if condition.type in names), None)
    if reported is None:
        return Condition(kind, None, ConditionReason.PENDING, "the provider has not reported it yet")
    if reported.status == "True":
        return Condition(kind, True, good, reported.message)
    bad = ConditionReason.DRIFTED if kind is ConditionType.MATCHES_CONFIG else ConditionReason.PENDING
    return Condition(kind, None if reported.status == "Unknown" else False, bad, reported.message or reported.reason)


def _exists(view: CapiView) -> Condition:
    if view.load_balancer.spec.infrastructure_ref is not None:
        return _of_provider(view, ConditionType.EXISTS, ConditionReason.EXISTS)
    programmed = _of_hub(view, ConditionType.PROGRAMMED)
    if programmed is not None and programmed.status == "True":
        return Condition(ConditionType.EXISTS, True, ConditionReason.EXISTS, "")
    message = programmed.message if programmed is not None else "the hub has not processed it yet"
    return Condition(ConditionType.EXISTS, False, ConditionReason.PENDING, message)


def _matches(view: CapiView) -> Condition:
    if view.load_balancer.spec.infrastructure_ref is not None:
        return _of_provider(view, ConditionType.MATCHES_CONFIG, ConditionReason.MATCHES_CONFIG)
    drifted = _of_hub(view, ConditionType.DRIFTED)
    if drifted is not None and drifted.status == "True":
        return Condition(ConditionType.MATCHES_CONFIG, False, ConditionReason.DRIFTED, drifted.message)
    return Condition(ConditionType.MATCHES_CONFIG, True, ConditionReason.MATCHES_CONFIG, "")


def _published(view: CapiView, plan: CapiPlan) -> Condition:
    verdict = plan.verdict

    def no(reason: ConditionReason, message: str) -> Condition:
        return Condition(ConditionType.ENDPOINT_PUBLISHED, False, reason, message)

    match verdict.state:
        case State.CONFLICT:
            return no(ConditionReason.ENDPOINT_CONFLICT, verdict.message)
        case State.CLAIMED:
            return no(ConditionReason.ENDPOINT_CLAIMED, verdict.message)
        case State.WAITING:
            return no(ConditionReason.PENDING, verdict.message)
        case _:
            pass
    if view.cluster is None:
        text = f"spec.clusterName: Cluster {view.load_balancer.spec.cluster_name!r} not found in this namespace"
        return no(ConditionReason.NO_SUCH_PARENT, text)
    if verdict.state in (State.COPY_DOWN, State.PUBLISH):
        return no(ConditionReason.PENDING, plan.held_up or f"{verdict.endpoint} is being published")
    exists = _exists(view)
    if not exists.status:
        return no(ConditionReason.PENDING, f"{verdict.endpoint} is published, and not served yet: {exists.message}")
    reason = ConditionReason.NOT_PUBLISHED if verdict.state is State.OWN else ConditionReason.ENDPOINT_PUBLISHED
    return Condition(ConditionType.ENDPOINT_PUBLISHED, True, reason, str(verdict.endpoint))


def _reachable(view: CapiView) -> Condition:
    probe = view.probe
    if probe is None:
        return Condition(ConditionType.IS_REACHABLE, None, ConditionReason.PENDING, "not probed yet")
    if probe.reached:
        return Condition(ConditionType.IS_REACHABLE, True, ConditionReason.REACHABLE, "")
    if probe.resolved:
        return Condition(ConditionType.IS_REACHABLE, False, ConditionReason.NOT_REACHABLE, probe.message)
    refused = next(
        (condition for condition in view.load_balancer.status.names.conditions or () if condition.status == "False"),
        None,
    )
    why = refused.message if refused is not None else probe.message
    return Condition(ConditionType.IS_REACHABLE, False, ConditionReason.NAME_NOT_RESOLVED, why)


def _resolved(view: CapiView, plan: CapiPlan) -> Condition:
    reason, message = next(_unresolved(view, plan), (ConditionReason.RESOLVED_REFS, ""))
    return Condition(ConditionType.MEMBERS_RESOLVED, not message, reason, message)


def _unresolved(view: CapiView, plan: CapiPlan) -> Iterator[tuple[ConditionReason, str]]:
    selection = plan.selection
    if selection.problem:
        yield ConditionReason.SELECTOR_NOT_VALID, selection.problem
    if view.incomplete:
        yield ConditionReason.MEMBERS_UNKNOWN, view.incomplete
    if plan.held_up:
        yield ConditionReason.PAUSED_BY_USER, f"{plan.held_up}: nothing is added or removed"
    if selection.foreign:
        names = ", ".join(selection.foreign[:3])
        text = (
            f"spec.selector also selects {names} of another Cluster than {view.load_balancer.spec.cluster_name}, which "
            "are ignored; add the label cluster.x-k8s.io/cluster-name to the selector"
        )
        yield ConditionReason.OTHER_CLUSTERS, text
    if plan.kept:
        text = f"no object of {', '.join(plan.kept[:3])} is left; registered members are kept"
        yield ConditionReason.MEMBERS_UNKNOWN, text
    without = [member.name for member in plan.members if not member.addresses]
    if without:
        yield ConditionReason.MEMBERS_UNKNOWN, f"without an address: {', '.join(without[:3])}"


def _healthy(view: CapiView, plan: CapiPlan) -> Condition:
    count = len([member for member in plan.members if member.state != DISABLED])
    if not count:
        return Condition(ConditionType.HEALTHY, None, ConditionReason.NO_TARGETS, "no members")
    works = active(view, plan)
    serving = _of_hub(view, ConditionType.SERVING)
    if works == count and (serving is None or serving.status != "False"):
        return Condition(
            ConditionType.HEALTHY, True, ConditionReason.HEALTHY, f"{works} of {count} members take traffic"
        )
    why = f": {serving.message}" if serving is not None and serving.status == "False" else ""
    return Condition(
        ConditionType.HEALTHY, False, ConditionReason.SOME_MEMBERS_DOWN, f"{works} of {count} members take traffic{why}"
    )
