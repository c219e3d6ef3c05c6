"""The conditions of a load balancer of a Cluster, beside those of the hub.

    Exists             its provider has it
    MatchesConfig      nothing of it was changed by others, or what was has been put back
    EndpointPublished  ready to unblock the first machine: the Cluster has the endpoint, and it is served
    IsReachable        the endpoint was reached when it was probed last; blocks nothing
    MembersResolved    the selector is in force, and every member has an address
    Healthy            every member takes traffic
    ControlPlane...    Initialized: there is a kubeconfig; Ready: /readyz answers. Only where no provider says it

In: a view and its plan. Out: ``Condition`` values. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api.meta import WireCondition, condition_of
from fairlead.capi.endpoints import State
from fairlead.capi.members import ACTIVE, DISABLED
from fairlead.capi.view import Plan, View
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.in_words import split_host_port


def build_conditions(view: View, plan: Plan) -> list[Condition]:
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


def is_served(view: View) -> bool:
    """Return whether the provider has created the load balancer."""
    return bool(_exists(view).status)


def _plane(view: View) -> Iterator[Condition]:
    """Yield the conditions of the control plane, for Clusters without a control-plane provider."""
    if not view.unmanaged:
        return
    plane = view.plane
    if plane is None or not plane.initialized:
        name = f"{view.load_balancer.spec.cluster_name}-kubeconfig"
        why = "it has not been looked at yet" if plane is None else f"there is no Secret {name} in this namespace"
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


def active(view: View, plan: Plan) -> int:
    """Return the number of members that take traffic: registered for each listener, and not unhealthy.

    0 while the proxies have checked none, or see none healthy: registered is not serving.
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


def _of_hub(view: View, kind: ConditionType) -> WireCondition | None:
    return condition_of(view.load_balancer.status.conditions, kind)


#: The conditions of the contract, and the names that they had in its first text.
_OF_CONTRACT = {
    ConditionType.EXISTS: ("Exists", "LBExists"),
    ConditionType.MATCHES_CONFIG: ("MatchesConfig", "LBMatchesConfig"),
}


def _of_provider(view: View, kind: ConditionType, good: ConditionReason) -> Condition:
    """Yield the conditions that another provider reports of its load balancer."""
    if view.foreign is None:
        missing = view.foreign_problem or f"spec.infrastructureRef: there is no {view.foreign_name!r} in this namespace"
        return Condition(kind, False, ConditionReason.PENDING, missing)
    names = _OF_CONTRACT[kind]
    reported = next((each for each in view.foreign.status.conditions or () if each.type in names), None)
    if reported is None:
        return Condition(kind, None, ConditionReason.PENDING, "its provider has not reported it yet")
    if reported.status == "True":
        return Condition(kind, True, good, reported.message)
    bad = ConditionReason.DRIFTED if kind is ConditionType.MATCHES_CONFIG else ConditionReason.PENDING
    return Condition(kind, None if reported.status == "Unknown" else False, bad, reported.message or reported.reason)


def _exists(view: View) -> Condition:
    if view.load_balancer.spec.infrastructure_ref is not None:
        return _of_provider(view, ConditionType.EXISTS, ConditionReason.EXISTS)
    programmed = _of_hub(view, ConditionType.PROGRAMMED)
    if programmed is not None and programmed.status == "True":
        return Condition(ConditionType.EXISTS, True, ConditionReason.EXISTS, "")
    message = programmed.message if programmed is not None else "the hub has not looked at it yet"
    return Condition(ConditionType.EXISTS, False, ConditionReason.PENDING, message)


def _matches(view: View) -> Condition:
    if view.load_balancer.spec.infrastructure_ref is not None:
        return _of_provider(view, ConditionType.MATCHES_CONFIG, ConditionReason.MATCHES_CONFIG)
    drifted = _of_hub(view, ConditionType.DRIFTED)
    if drifted is not None and drifted.status == "True":
        return Condition(ConditionType.MATCHES_CONFIG, False, ConditionReason.DRIFTED, drifted.message)
    return Condition(ConditionType.MATCHES_CONFIG, True, ConditionReason.MATCHES_CONFIG, "")


def _published(view: View, plan: Plan) -> Condition:
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
        text = f"spec.clusterName: there is no Cluster {view.load_balancer.spec.cluster_name!r} in this namespace yet"
        return no(ConditionReason.NO_SUCH_PARENT, text)
    if verdict.state in (State.COPY_DOWN, State.PUBLISH):
        return no(ConditionReason.PENDING, plan.held_up or f"{verdict.endpoint} is being published")
    exists = _exists(view)
    if not exists.status:
        return no(ConditionReason.PENDING, f"{verdict.endpoint} is published, and not served yet: {exists.message}")
    reason = ConditionReason.NOT_PUBLISHED if verdict.state is State.OWN else ConditionReason.ENDPOINT_PUBLISHED
    return Condition(ConditionType.ENDPOINT_PUBLISHED, True, reason, str(verdict.endpoint))


def _reachable(view: View) -> Condition:
    probe = view.probe
    if probe is None:
        return Condition(ConditionType.IS_REACHABLE, None, ConditionReason.PENDING, "it has not been probed yet")
    if probe.reached:
        return Condition(ConditionType.IS_REACHABLE, True, ConditionReason.REACHABLE, "")
    if probe.resolved:
        return Condition(ConditionType.IS_REACHABLE, False, ConditionReason.NOT_REACHABLE, probe.message)
    refused = next((each for each in view.load_balancer.status.names.conditions or () if each.status == "False"), None)
    why = refused.message if refused is not None else probe.message
    return Condition(ConditionType.IS_REACHABLE, False, ConditionReason.NAME_NOT_RESOLVED, why)


def _resolved(view: View, plan: Plan) -> Condition:
    reason, message = next(_unresolved(view, plan), (ConditionReason.RESOLVED_REFS, ""))
    return Condition(ConditionType.MEMBERS_RESOLVED, not message, reason, message)


def _unresolved(view: View, plan: Plan) -> Iterator[tuple[ConditionReason, str]]:
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
            f"spec.selector also chooses {names}, of another Cluster than {view.load_balancer.spec.cluster_name}: they "
            "are no members; add the label cluster.x-k8s.io/cluster-name to the selector"
        )
        yield ConditionReason.OTHER_CLUSTERS, text
    if plan.kept:
        text = f"no object of {', '.join(plan.kept[:3])} is left: what is registered stays until one is selected again"
        yield ConditionReason.MEMBERS_UNKNOWN, text
    without = [member.name for member in plan.members if not member.addresses]
    if without:
        yield ConditionReason.MEMBERS_UNKNOWN, f"without an address: {', '.join(without[:3])}"


def _healthy(view: View, plan: Plan) -> Condition:
    count = len([member for member in plan.members if member.state != DISABLED])
    if not count:
        return Condition(ConditionType.HEALTHY, None, ConditionReason.NO_TARGETS, "it has no member")
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
