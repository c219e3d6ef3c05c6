"""The plan for one load balancer of a Cluster: all writes that follow from one view.

    paused                                    nothing
    a member                                  its row of ``members``
    another address than before               the new one is added, the old one drained and removed
    no address any more, or all objects gone  registered backends are kept
    not selected any more, or missing         as one that is being deleted

In: a ``View``. Out: a ``Plan``. Never: a backend before its member carries our hooks and
finalizer, or their release before the hub has said that it is deregistered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from fairlead.api.backendgroup import BackendGroupSpec
from fairlead.api.capiside import Endpoint, MemberStatus
from fairlead.api.clusterapi import (
    ANNOTATION_CLUSTER_PAUSED,
    CLUSTER_API_GROUP,
    MARKER_NAME,
    MARKER_STATUS,
    TargetObject,
)
from fairlead.capi.backends import backend_of, members_in, presence_in
from fairlead.capi.endpoints import NOWHERE, State, Verdict, settle
from fairlead.capi.hooks import Marks, held, is_disabled, is_held, is_marked, released
from fairlead.capi.members import ADDING, REMOVED, Action, Goal, Presence, Step, step, together
from fairlead.capi.selection import Selection, address_of, all_addresses, select
from fairlead.capi.view import GroupPlan, MarkPlan, Plan, View

#: What a user reads when a member gets nowhere.
_REASONS = {
    Presence.PENDING: "the load balancer has not registered it yet",
    Presence.DRAINING: "until no proxy sends it new connections",
    Presence.OUT: "it gets no new connections",
    Presence.LEAVING: "until its deregistration has taken effect",
}


def plan_load_balancer(view: View) -> Plan:
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
        return Plan(selection, verdict, tuple(load_balancer.status.members or ()), held_up=held_up)
    members = _Members(view, selection)
    return Plan(
        selection,
        verdict,
        tuple(members.statuses),
        tuple(members.holds),
        members.groups(),
        _patch(view, verdict),
        tuple(members.releases),
        kept=members.kept,
    )


def endpoint_of(view: View) -> Verdict:
    """Return the endpoint in force, and what to write for it."""
    load_balancer = view.load_balancer
    own = Endpoint(load_balancer.status.address, load_balancer.spec.listeners[0].port)
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


def _patch(view: View, verdict: Verdict) -> dict[str, object]:
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

    def __init__(self, view: View, selection: Selection) -> None:
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
        known = {member for members in self._asked.values() for member in members.values()}
        registered = {self._asked[name][backend] for name, static in self._static.items() for backend in static}
        objects = {obj.metadata.name: obj for obj in view.objects}
        marked = {name for name, obj in objects.items() if is_marked(_marks(obj), view.name)}
        #: Nothing at all is left of them: as after a restore, or when another controller has removed the kind.
        self.kept = tuple(sorted(registered)) if registered and not selected | marked else ()
        for name in sorted(selected | marked | (known - set(self.kept))):
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
            for each in sorted(own_backends | ({backend} if backend else set())):
                # Without an address nothing is known to be wrong with the one that is registered.
                moved = bool(backend) and each != backend
                presence = presence_in(view.groups.get(group_name), each)
                self._edit(group_name, each, name, step(Goal.LEAVING if moved else goal, presence), ready=ready)
                if not moved or goal is Goal.LEAVING:
                    presences.append(presence)
        row = step(goal, self._together(name, presences))
        if obj is not None:
            self._mark(obj, marks, row, goal, presences)
        if row.action is not Action.RELEASE or (obj is not None and selected):
            self._show(name, obj, row, presences)

    def _together(self, name: str, presences: list[Presence]) -> Presence:
        """Return the presence of a member from that of its backends."""
        if presences:
            return together(presences)
        groups = [self._view.groups.get(each) for each in self._view.listeners]
        return together(presence_in(group, f"of {name}") for group in groups)

    def _wanted(self, obj: TargetObject | None) -> dict[str, str]:
        """Return the backend of a member by group; none when it has no address."""
        if obj is None:
            return {}
        like = self._view.load_balancer.spec.endpoint.host or self._view.load_balancer.status.address
        address = address_of(obj.status.addresses, like=like)
        return {name: backend_of(address, each) for name, each in self._view.listeners.items()} if address else {}

    def _edit(self, group: str, backend: str, member: str, row: Step, *, ready: bool) -> None:
        static, draining = self._static[group], self._draining[group]
        match row.action:
            case Action.ADD if ready:
                self._next[group][backend] = member
                static.add(backend)
                draining.discard(backend)
            case Action.DRAIN:
                draining.add(backend)
            case Action.REMOVE:
                static.discard(backend)
            case Action.RELEASE:
                self._next[group].pop(backend, None)
            case _:
                pass

    def _mark(self, obj: TargetObject, marks: Marks, row: Step, goal: Goal, presences: Iterable[Presence]) -> None:
        name = self._view.name
        if row.action is Action.RELEASE:
            if is_marked(marks, name):
                after = released(marks, name, status=REMOVED if obj.deleting else "")
                self.releases.append(MarkPlan(obj, marks, after))
            return
        if goal is Goal.LEAVING and not is_marked(marks, name) and not any(True for _ in presences):
            return  # it never was a member
        after = held(marks, name, row.status, hooks=self._hooks, deleting=obj.deleting or goal is Goal.LEAVING)
        if after != marks:
            self.holds.append(MarkPlan(obj, marks, after))

    def _show(self, name: str, obj: TargetObject | None, row: Step, presences: list[Presence]) -> None:
        before = self._known.get(name)
        addresses = all_addresses(obj.status.addresses) if obj is not None else []
        if not addresses and before is not None:
            addresses = list(before.addresses or ())
        reason = _reason(row, together(presences)) if presences else "it has no address"
        since = before.since if before is not None and before.state == row.status else None
        self.statuses.append(MemberStatus(name, addresses or None, row.status, reason, since))


def _reason(row: Step, presence: Presence) -> str:
    return _REASONS[Presence.PENDING] if row.status == ADDING else _REASONS.get(presence, "")


def _spec_of(view: View, group: str) -> BackendGroupSpec:
    known = view.groups.get(group)
    return known.spec if known is not None else BackendGroupSpec([])


def _marks(obj: TargetObject) -> Marks:
    return Marks.of(obj.metadata.annotations, obj.metadata.finalizers)


def plan_foreign(view: View, selection: Selection, verdict: Verdict, *, held_up: str) -> Plan:
    """Return the plan; its ``verdict`` is about the endpoints of Cluster and LoadBalancer."""
    members = tuple(_members(view, selection))
    below = view.foreign.spec.endpoint if view.foreign is not None else NOWHERE
    wanted = verdict.endpoint
    if wanted.given and below.given and wanted.place != below.place and verdict.state is not State.CONFLICT:
        verdict = Verdict(State.CONFLICT, wanted, message=_conflict(wanted, below))
    if held_up:
        return Plan(selection, verdict, members, held_up=held_up)
    down = wanted if wanted.given and verdict.state not in (State.CONFLICT, State.CLAIMED) else None
    patch: dict[str, object] = {}
    if verdict.to_load_balancer is not None:
        patch["endpoint"] = {"host": verdict.to_load_balancer.host, "port": verdict.to_load_balancer.port}
    return Plan(selection, verdict, members, patch=patch, to_provider=down)


def _members(view: View, selection: Selection) -> Iterator[MemberStatus]:
    known = {member.name: member for member in view.load_balancer.status.members or ()}
    for obj in selection.members:
        behind = obj.annotation(MARKER_NAME).split(",")
        state = obj.annotation(MARKER_STATUS) if view.name in behind or view.foreign_name in behind else ""
        before = known.get(obj.metadata.name)
        since = before.since if before is not None and before.state == state else None
        addresses = all_addresses(obj.status.addresses) or None
        yield msgspec.structs.replace(MemberStatus(obj.metadata.name, addresses, state), since=since)


def _conflict(wanted: Endpoint, below: Endpoint) -> str:
    return (
        f"spec.endpoint is {wanted}, and spec.endpoint of what spec.infrastructureRef names is {below}: neither is "
        "changed; name one without an endpoint, or with that of the LoadBalancer"
    )
