"""The view and the result of one decision about a load balancer of a Cluster: values, endpoint and members.

    endpoint   which is kept, that of the Cluster or that of its load balancer, and what is written
    members    the objects that a selector selects, the address of each, and the marks on its object

In: decoded objects, taken from the caches at one moment. Out: frozen values. Pure. Never: a reference to a cache or a
client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from ipaddress import ip_address
from typing import NamedTuple

import msgspec

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.capiside import ControlPlaneEndpoint, MemberStatus, TargetKind, TargetSelector
from fairlead.api.clusterapi import (
    LABEL_CLUSTER_NAME,
    MARKER_DISABLED,
    MARKER_NAME,
    MARKER_STATUS,
    PRE_DRAIN_HOOK,
    PRE_TERMINATE_HOOK,
    CapiCluster,
    InfraLoadBalancer,
    MachineAddress,
    TargetObject,
)
from fairlead.api.loadbalancer import LoadBalancer, LoadBalancerListener
from fairlead.api.names import ANNOTATION_AUTHORITY, ANNOTATION_TIED_IN, ANNOTATION_TIED_TO, fit, short_hash
from fairlead.api.selectors import BadSelector, Selector, from_label_selector

# --- the state machine of a member -----------------------------------------------------------------------------------
#
# The next step for one member of one load balancer: the state machine, as a table.
#
#     member     at the load balancer   what is done                 status
#     alive      absent, leaving        add                          adding
#     alive      pending                wait                         adding
#     alive      draining, out          add                          adding
#     alive      active                 -                            active
#     disabled   absent                 -                            disabled
#     disabled   pending, active        drain                        disabling
#     disabled   draining, leaving      wait                         disabling
#     disabled   out                    -                            disabled
#     leaving    pending, active        drain                        removing
#     leaving    draining, leaving      wait                         removing
#     leaving    out                    remove                       removing
#     leaving    absent                 release hooks and finalizer  removed
#
# ``leaving`` members are being deleted, or are no longer selected. A disabled member is never treated as
# one that is alive.


class Goal(StrEnum):
    """The goal for a member."""

    ALIVE = "alive"
    DISABLED = "disabled"
    LEAVING = "leaving"


class Presence(StrEnum):
    """The presence of a member at a load balancer, the least far out first."""

    ACTIVE = "active"
    PENDING = "pending"
    DRAINING = "draining"
    #: Registered, and no proxy sends it new connections.
    OUT = "out"
    #: No longer requested, and not yet known to be deregistered.
    LEAVING = "leaving"
    ABSENT = "absent"


class MemberAction(StrEnum):
    """The action of a step."""

    NONE = "none"
    WAIT = "wait"
    ADD = "add"
    DRAIN = "drain"
    REMOVE = "remove"
    RELEASE = "release"


class Step(NamedTuple):
    """The action for a member, and the status that it shows."""

    action: MemberAction
    status: str


ADDING, ACTIVE, DISABLING, DISABLED, REMOVING, REMOVED = (
    "adding", "active", "disabling", "disabled", "removing", "removed",
)  # fmt: skip

TABLE: dict[tuple[Goal, Presence], Step] = {
    (Goal.ALIVE, Presence.ABSENT): Step(MemberAction.ADD, ADDING),
    (Goal.ALIVE, Presence.LEAVING): Step(MemberAction.ADD, ADDING),
    (Goal.ALIVE, Presence.PENDING): Step(MemberAction.WAIT, ADDING),
    (Goal.ALIVE, Presence.DRAINING): Step(MemberAction.ADD, ADDING),
    (Goal.ALIVE, Presence.OUT): Step(MemberAction.ADD, ADDING),
    (Goal.ALIVE, Presence.ACTIVE): Step(MemberAction.NONE, ACTIVE),
    (Goal.DISABLED, Presence.ABSENT): Step(MemberAction.NONE, DISABLED),
    (Goal.DISABLED, Presence.PENDING): Step(MemberAction.DRAIN, DISABLING),
    (Goal.DISABLED, Presence.ACTIVE): Step(MemberAction.DRAIN, DISABLING),
    (Goal.DISABLED, Presence.DRAINING): Step(MemberAction.WAIT, DISABLING),
    (Goal.DISABLED, Presence.LEAVING): Step(MemberAction.WAIT, DISABLING),
    (Goal.DISABLED, Presence.OUT): Step(MemberAction.NONE, DISABLED),
    (Goal.LEAVING, Presence.PENDING): Step(MemberAction.DRAIN, REMOVING),
    (Goal.LEAVING, Presence.ACTIVE): Step(MemberAction.DRAIN, REMOVING),
    (Goal.LEAVING, Presence.DRAINING): Step(MemberAction.WAIT, REMOVING),
    (Goal.LEAVING, Presence.LEAVING): Step(MemberAction.WAIT, REMOVING),
    (Goal.LEAVING, Presence.OUT): Step(MemberAction.REMOVE, REMOVING),
    (Goal.LEAVING, Presence.ABSENT): Step(MemberAction.RELEASE, REMOVED),
}


def step(goal: Goal, presence: Presence) -> Step:
    """Return the step for a member with ``goal`` and ``presence``, by the table above."""
    return TABLE[goal, presence]


def presence_of(*, requested: bool, draining: bool, state: str, in_effect: bool) -> Presence:
    """Return the presence of one backend at the load balancer.

    ``requested`` and ``draining``: whether the group's spec lists it, as what. ``state``: its state in the group's
    status, empty without an entry. ``in_effect``: that status is about the group's present spec.
    """
    if not requested:
        return Presence.ABSENT if in_effect and not state else Presence.LEAVING
    if draining:
        return Presence.OUT if in_effect and state in ("", "Draining") else Presence.DRAINING
    return Presence.ACTIVE if state == "Registered" else Presence.PENDING


def together(presences: Iterable[Presence]) -> Presence:
    """Return the presence of a member with several backends: that of the one that is least far out.

    One that is pending counts before one that is active: the member is active when all of its backends are.
    """
    distinct = set(presences)
    if Presence.PENDING in distinct and Presence.ACTIVE in distinct:
        return Presence.PENDING
    return min(distinct, key=list(Presence).index, default=Presence.ABSENT)


OWNER = "fairlead.dev"
_SUFFIX = "fairlead-"
_FINALIZER = "loadbalancer.fairlead.dev/"
#: The order in which the status of several load balancers becomes one.
_LEAST_FIRST = (REMOVING, DISABLING, ADDING, DISABLED, ACTIVE, REMOVED)


class Marks(msgspec.Struct, frozen=True):
    """Annotations and finalizers of one object."""

    annotations: Mapping[str, str]
    finalizers: tuple[str, ...]

    @classmethod
    def of(cls, annotations: Mapping[str, str] | None, finalizers: Sequence[str] | None) -> Marks:
        """Return the marks of an object."""
        return cls(dict(annotations or {}), tuple(finalizers or ()))


def hook_keys(load_balancer: str) -> tuple[str, str]:
    """Return the annotations that hold up the deletion of a Machine for a load balancer."""
    suffix = fit(_SUFFIX + load_balancer)
    return f"{PRE_DRAIN_HOOK}/{suffix}", f"{PRE_TERMINATE_HOOK}/{suffix}"


def finalizer_of(load_balancer: str) -> str:
    """Return the finalizer that a load balancer puts on its members."""
    return _FINALIZER + fit(load_balancer)


def status_key(load_balancer: str) -> str:
    """Return the annotation with the status of one of several load balancers."""
    prefix, name = MARKER_STATUS.split("/")
    return f"{prefix}/{fit(f'{name}.{load_balancer}')}"


def is_disabled(annotations: Mapping[str, str] | None, load_balancer: str) -> bool:
    """Return whether an annotation disables the member, for every load balancer or for this one."""
    prefix, name = MARKER_DISABLED.split("/")
    keys = (MARKER_DISABLED, f"{prefix}/{fit(f'{name}.{load_balancer}')}")
    return any((annotations or {}).get(key, "false") != "false" for key in keys)


def is_held(marks: Marks, load_balancer: str, *, hooks: bool) -> bool:
    """Return whether the object has all hooks and finalizers that registration requires."""
    held = finalizer_of(load_balancer) in marks.finalizers
    return held and (not hooks or all(key in marks.annotations for key in hook_keys(load_balancer)))


def is_marked(marks: Marks, load_balancer: str) -> bool:
    """Return whether the object has a hook, finalizer or marker of this load balancer."""
    keys = (*hook_keys(load_balancer), status_key(load_balancer))
    return finalizer_of(load_balancer) in marks.finalizers or any(key in marks.annotations for key in keys)


def held(marks: Marks, load_balancer: str, status: str, *, hooks: bool, deleting: bool) -> Marks:
    """Return ``marks`` with the hooks, finalizer and markers of a member of ``load_balancer``.

    An object that is being deleted gets no new finalizer, which the API server would refuse.
    """
    annotations = dict(marks.annotations)
    if hooks and not deleting:
        annotations |= dict.fromkeys(hook_keys(load_balancer), OWNER)
    annotations[status_key(load_balancer)] = status
    finalizer = finalizer_of(load_balancer)
    add = () if deleting or finalizer in marks.finalizers else (finalizer,)
    return Marks(_summed(annotations), (*marks.finalizers, *add))


def released(marks: Marks, load_balancer: str, *, status: str = "") -> Marks:
    """Return ``marks`` without the marks of ``load_balancer``; ``status``: the last value of its marker."""
    removed = {*hook_keys(load_balancer), status_key(load_balancer)}
    annotations = {key: value for key, value in marks.annotations.items() if key not in removed}
    finalizers = tuple(finalizer for finalizer in marks.finalizers if finalizer != finalizer_of(load_balancer))
    summed = _summed(annotations)
    if status and MARKER_STATUS not in summed:
        summed = {**summed, MARKER_NAME: load_balancer, MARKER_STATUS: status}
    return Marks(summed, finalizers)


def released_of_all(marks: Marks) -> Marks:
    """Return ``marks`` without the marks of any Fairlead load balancer."""
    ours = (f"{PRE_DRAIN_HOOK}/{_SUFFIX}", f"{PRE_TERMINATE_HOOK}/{_SUFFIX}", f"{MARKER_STATUS}.")
    annotations = {key: value for key, value in marks.annotations.items() if not key.startswith(ours)}
    finalizers = tuple(finalizer for finalizer in marks.finalizers if not finalizer.startswith(_FINALIZER))
    return Marks(_summed(annotations), finalizers)


def patch_of(before: Marks, after: Marks) -> dict[str, object]:
    """Return the merge patch of ``metadata`` that makes ``before`` into ``after``; empty when they are the same."""
    patch: dict[str, object] = {}
    changed: dict[str, str | None] = {
        key: value for key, value in after.annotations.items() if before.annotations.get(key) != value
    }
    changed |= dict.fromkeys(before.annotations.keys() - after.annotations.keys())
    if changed:
        patch["annotations"] = dict(sorted(changed.items()))
    if after.finalizers != before.finalizers:
        patch["finalizers"] = list(after.finalizers)
    return patch


def _summed(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return ``annotations`` with the markers without a suffix as they follow from those that have one."""
    start = f"{MARKER_STATUS}."
    statuses = {key.removeprefix(start): value for key, value in annotations.items() if key.startswith(start)}
    rest = {key: value for key, value in annotations.items() if key not in (MARKER_NAME, MARKER_STATUS)}
    if not statuses:
        return rest
    worst = min(statuses.values(), key=lambda status: _LEAST_FIRST.index(status) if status in _LEAST_FIRST else -1)
    return {**rest, MARKER_NAME: ",".join(sorted(statuses)), MARKER_STATUS: worst}


DEFAULT_KIND = TargetKind()


class Probe(msgspec.Struct, frozen=True):
    """Whether an endpoint was reached, and why not; ``resolved``: its name has addresses."""

    reached: bool
    resolved: bool = True
    message: str = ""


class Plane(msgspec.Struct, frozen=True):
    """The state of the control plane of a Cluster without a provider for it; ``problem``: why it is not ready."""

    initialized: bool
    problem: str = ""


class CapiView(msgspec.Struct, frozen=True):
    """One LoadBalancer with ``spec.clusterName``.

    ``objects`` are those of the kind of its members, in its namespace. ``groups`` are its BackendGroups by name.
    ``incomplete``: why the objects are not all known, else empty. ``claimed_by``: the older load balancer that claims
    the endpoint of the same Cluster, else empty. ``taken_by``: a load balancer of another Cluster with the same
    endpoint, as namespace/name. ``authority``: the certificate (PEM) of the Cluster's authority.
    """

    load_balancer: LoadBalancer
    cluster: CapiCluster | None
    objects: tuple[TargetObject, ...] = ()
    groups: Mapping[str, BackendGroup] = {}
    incomplete: str = ""
    claimed_by: str = ""
    taken_by: str = ""
    authority: str = ""
    probe: Probe | None = None
    plane: Plane | None = None
    #: The identity of the management cluster, where the hub is another cluster; empty: the same, or unknown.
    management: str = ""
    #: What spec.infrastructureRef names, and why it is not known.
    foreign: InfraLoadBalancer | None = None
    foreign_problem: str = ""

    @property
    def unmanaged(self) -> bool:
        """Return whether the Cluster has no control-plane provider, and this is the LoadBalancer of its endpoint."""
        without = self.cluster is not None and self.cluster.spec.control_plane_ref is None
        return without and not self.load_balancer.spec.additional

    @property
    def follows_authority(self) -> bool:
        """Return whether the bundle of its health check is that of the Cluster, and not one that a user gave."""
        check = self.load_balancer.spec.health_check
        if self.load_balancer.spec.additional or (check is not None and check.disabled):
            return False
        if check is None or not check.ca_bundle or check.ca_bundle == self.authority:
            return True
        return self.load_balancer.annotation(ANNOTATION_AUTHORITY) == short_hash(check.ca_bundle)

    @property
    def foreign_name(self) -> str:
        """Return the name in spec.infrastructureRef, empty without one."""
        ref = self.load_balancer.spec.infrastructure_ref
        return ref.name if ref is not None else ""

    @property
    def name(self) -> str:
        """Return the name of the load balancer."""
        return self.load_balancer.metadata.name

    @property
    def cluster_is_gone(self) -> bool:
        """Return whether the Cluster that owned it is known to be deleted."""
        tied, tied_in = map(self.load_balancer.annotation, (ANNOTATION_TIED_TO, ANNOTATION_TIED_IN))
        if not self.management or tied_in != self.management:
            return False  # of what is in another management cluster nothing is known here
        cluster_gone = self.cluster is None or self.cluster.metadata.uid != tied
        return bool(tied) and cluster_gone and not self.incomplete

    @property
    def kind(self) -> TargetKind:
        """Return the kind of its members."""
        return self.load_balancer.spec.target_kind or DEFAULT_KIND

    @property
    def listeners(self) -> dict[str, LoadBalancerListener]:
        """Return its listeners by the name of the BackendGroup that has their backends."""
        listeners = self.load_balancer.spec.listeners
        if len(listeners) == 1:
            return {self.name: listeners[0]}
        return {f"{self.name}-{listener.protocol.lower()}-{listener.port}": listener for listener in listeners}


class GroupPlan(msgspec.Struct, frozen=True):
    """The backends of a BackendGroup, and those of them that get no new connections.

    ``members``: the member of each backend, also of one that is no longer requested and not deregistered yet.
    """

    members: Mapping[str, str]
    static: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()


class MarkPlan(msgspec.Struct, frozen=True):
    """The marks that one object should have."""

    target: TargetObject
    before: Marks
    after: Marks


class CapiPlan(msgspec.Struct, frozen=True):
    """All writes, in this order: marks to add, groups, endpoint, marks to remove, status.

    ``patch`` changes the spec of the LoadBalancer. ``held_up``: nothing is written, and why.
    """

    selection: MemberSelection
    verdict: Verdict
    members: tuple[MemberStatus, ...] = ()
    holds: tuple[MarkPlan, ...] = ()
    groups: Mapping[str, GroupPlan] = {}
    patch: Mapping[str, object] = {}
    releases: tuple[MarkPlan, ...] = ()
    #: For what another provider serves: the endpoint that it is given when it has none.
    to_provider: ControlPlaneEndpoint | None = None
    held_up: str = ""
    #: Members that are kept although their state is unknown.
    kept: tuple[str, ...] = ()


NOWHERE = ControlPlaneEndpoint()


# --- endpoints -------------------------------------------------------------------------------------------------------
#
# The rule between the endpoint of a Cluster and that of its load balancer: which is kept, what is written.
#
#     Cluster   LoadBalancer   own address   what is done
#     set       different      any           error, nothing is written
#     set       none           any           copied to the LoadBalancer: a user's endpoint counts
#     none      set            any           published on the Cluster
#     none      none           known         written to the LoadBalancer, then published
#     none      none           none          wait
#     set       the same       any           settled
#
#     another Cluster has the same endpoint  error, nothing is written


class State(StrEnum):
    """The progress of the endpoint."""

    WAITING = "Waiting"
    COPY_DOWN = "CopyDown"
    PUBLISH = "Publish"
    SETTLED = "Settled"
    CONFLICT = "Conflict"
    CLAIMED = "Claimed"
    #: It is not the one whose endpoint the Cluster has.
    OWN = "Own"


class Verdict(msgspec.Struct, frozen=True):
    """The endpoints to write to the LoadBalancer and to the Cluster, None for no write; ``message``: why it waits."""

    state: State
    endpoint: ControlPlaneEndpoint = NOWHERE
    to_load_balancer: ControlPlaneEndpoint | None = None
    to_cluster: ControlPlaneEndpoint | None = None
    message: str = ""


def settle(
    cluster: ControlPlaneEndpoint,
    load_balancer: ControlPlaneEndpoint,
    own: ControlPlaneEndpoint,
    *,
    additional: bool = False,
    claimed_by: str = "",
    taken_by: str = "",
) -> Verdict:
    """Return the endpoints to write.

    ``own``: address and port that the provider gave. ``additional``: the Cluster has the endpoint of another load
    balancer. ``claimed_by``: an older load balancer that claims the Cluster's endpoint, too. ``taken_by``: a load
    balancer of another Cluster that has the same endpoint.
    """
    if taken_by:
        shared = load_balancer if load_balancer.given else cluster
        return Verdict(State.CLAIMED, load_balancer, message=_taken(shared, taken_by))
    if additional:
        if load_balancer.given or not own.given:
            return Verdict(State.OWN, load_balancer)
        return Verdict(State.OWN, own, to_load_balancer=own)
    if claimed_by:
        return Verdict(State.CLAIMED, load_balancer, message=_claimed(claimed_by))
    if cluster.given and load_balancer.given:
        if cluster.place == load_balancer.place:
            return Verdict(State.SETTLED, cluster)
        return Verdict(State.CONFLICT, load_balancer, message=_conflict(cluster, load_balancer))
    if cluster.given:
        return Verdict(State.COPY_DOWN, cluster, to_load_balancer=cluster)
    if load_balancer.given:
        return Verdict(State.PUBLISH, load_balancer, to_cluster=load_balancer)
    if own.given:
        return Verdict(State.COPY_DOWN, own, to_load_balancer=own)
    return Verdict(State.WAITING, message="waiting for an address of the load balancer")


def _conflict(cluster: ControlPlaneEndpoint, load_balancer: ControlPlaneEndpoint) -> str:
    return (
        f"spec.endpoint is {load_balancer}, and spec.controlPlaneEndpoint of the Cluster is {cluster}: neither is "
        "changed; create a LoadBalancer without spec.endpoint, or with that of the Cluster"
    )


def _claimed(other: str) -> str:
    return (
        f"LoadBalancer {other} claims the endpoint of this Cluster, and is older; set spec.additional of this one, or "
        "delete one of them"
    )


def _taken(endpoint: ControlPlaneEndpoint, other: str) -> str:
    return (
        f"endpoint {endpoint} is already used by LoadBalancer {other} of another Cluster; create this one again with "
        "another endpoint"
    )


_TYPES = ("InternalIP", "ExternalIP")


# --- members ---------------------------------------------------------------------------------------------------------
#
# The objects that are members of a load balancer, and the address of each.
#
#     selector empty                      -> cluster-name and load balancer's name
#     selected, of another cluster        -> no member, and named in a condition
#     InternalIP, else ExternalIP         -> the first one of the family of the endpoint, else the first
#     none of these                       -> no address: what is registered of it stays


class MemberSelection(msgspec.Struct, frozen=True):
    """The members by name, and the names of those of other clusters; ``text`` is the selector in force."""

    text: str
    members: tuple[TargetObject, ...] = ()
    foreign: tuple[str, ...] = ()
    problem: str = ""


def selector_of(load_balancer: LoadBalancer) -> TargetSelector:
    """Return the selector in force: that of the spec, else the default."""
    selector = load_balancer.spec.selector
    if selector is not None and not selector.empty:
        return selector
    name = load_balancer.metadata.name
    return TargetSelector(match_labels={LABEL_CLUSTER_NAME: load_balancer.spec.cluster_name, MARKER_NAME: name})


def select(load_balancer: LoadBalancer, objects: Iterable[TargetObject]) -> MemberSelection:
    """Return which of ``objects`` are members."""
    in_force = selector_of(load_balancer)
    text = selector_text(in_force)
    try:
        selector: Selector = from_label_selector(msgspec.to_builtins(in_force))
    except BadSelector as error:
        return MemberSelection(
            text, problem=f"spec.selector: {error}; nothing is added or removed until it is corrected"
        )
    matched = sorted((obj for obj in objects if selector.matches(obj.metadata.labels)), key=lambda obj: obj.key)
    cluster = load_balancer.spec.cluster_name
    members = tuple(obj for obj in matched if obj.cluster == cluster)
    return MemberSelection(text, members, tuple(obj.metadata.name for obj in matched if obj.cluster != cluster))


def stays_in_cluster(load_balancer: LoadBalancer) -> bool:
    """Return whether the selector in force can only choose objects of the load balancer's own Cluster."""
    labels = selector_of(load_balancer).match_labels or {}
    return labels.get(LABEL_CLUSTER_NAME) == load_balancer.spec.cluster_name


def selector_text(selector: TargetSelector) -> str:
    """Return a selector in the syntax of ``kubectl -l``."""
    terms = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    for term in selector.match_expressions or ():
        values = ",".join(term.values or ())
        match term.operator:
            case "Exists":
                terms.append(term.key)
            case "DoesNotExist":
                terms.append(f"!{term.key}")
            case _:
                terms.append(f"{term.key} {term.operator.lower()} ({values})")
    return ",".join(terms)


def address_of(addresses: Sequence[MachineAddress] | None, *, like: str = "") -> str:
    """Return the address of a member, preferably of the family of ``like``; empty when it has none."""
    for kind in _TYPES:
        candidates = [entry.address for entry in addresses or () if entry.type == kind and _version(entry.address)]
        if candidates:
            family = _version(like)
            return next((address for address in candidates if _version(address) == family), candidates[0])
    return ""


def all_addresses(addresses: Sequence[MachineAddress] | None) -> list[str]:
    """Return the distinct IP addresses of a member, in their order."""
    return list(dict.fromkeys(entry.address for entry in addresses or () if _version(entry.address)))


def _version(address: str) -> int:
    """Return the IP version of ``text``: 4 or 6, 0 when it is not an IP address."""
    try:
        return ip_address(address).version
    except ValueError:
        return 0
