"""Reconcile one load balancer of a Cluster: marks to add, backends, endpoint, marks to remove, status.

    deleting    wait until the hub has deregistered it, then release its members, then remove the finalizer
    else        what ``plan`` says, in its order

In: a key. Out: writes; seconds until the endpoint is probed again. Never: a write while another replica leads.

Before Fairlead is removed from a management cluster, ``release_hooks`` removes its hooks, finalizers and markers from
all machines, and its finalizer from LoadBalancers. No backend is touched: each stays registered until its LoadBalancer
is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import cast

import msgspec
import structlog

from fairlead.api.backendgroup import BACKEND_GROUPS, BackendGroup
from fairlead.api.capiside import MEMBERS_LISTED, ControlPlaneEndpoint, MemberStatus, TargetKind
from fairlead.api.clusterapi import (
    ANNOTATION_BLOCK_MOVE,
    ANNOTATION_MANAGED_BY,
    CLUSTER_POLICIES,
    CLUSTERS,
    LABEL_CLUSTER_NAME,
    LABEL_CONTROL_PLANE,
    CapiCluster,
    ClusterLoadBalancerPolicy,
    ClusterLoadBalancerPolicyStatus,
    TargetObject,
    is_moved,
)
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer, LoadBalancerListener, LoadBalancerObjectStatus
from fairlead.api.meta import JSONObject, KubeObject, ObjectKey, Resource, Wire, is_true, transitions, wire_conditions
from fairlead.api.names import (
    ANNOTATION_AUTHORITY,
    ANNOTATION_PAUSED,
    ANNOTATION_TIED_IN,
    ANNOTATION_TIED_TO,
    ANNOTATION_WANTED_CLASS,
    FINALIZER_CLEANUP,
    FINALIZER_MEMBERS,
    GROUP,
    LABEL_MANAGED_BY,
    LABEL_POLICY,
    MANAGED_BY,
    MANAGER_CAPI,
    PAUSED_BY_CAPI,
    label_value,
    short_hash,
)
from fairlead.api.selectors import BadSelector, Selector, from_label_selector
from fairlead.api.times import wire_time
from fairlead.capi.facts import ClusterFacts
from fairlead.capi.inventory import CapiInventory
from fairlead.capi.plan import active, build_conditions, group_body, is_same, is_served, plan_load_balancer
from fairlead.capi.view import (
    DEFAULT_KIND,
    CapiPlan,
    CapiView,
    MarkPlan,
    Marks,
    State,
    is_marked,
    patch_of,
    released,
    released_of_all,
)
from fairlead.errors import AlreadyExists, Conflict, FairleadError, Forbidden, NotFound, NotServed, Retry
from fairlead.kube.cluster import Cluster as ApiCluster
from fairlead.kube.discovery import find_kind
from fairlead.kube.events import EventRecorder, EventWriter
from fairlead.kube.lease import check_may_write
from fairlead.kube.writes import emit_transitions, on_newest, release, write_status
from fairlead.model.condition import (
    CAPI_CONDITIONS,
    Condition,
    ConditionReason,
    ConditionType,
    ObjectEvent,
    warning_event,
)
from fairlead.runtime.background import all_done

log = structlog.get_logger(__name__)


class LoadBalancerCreator:
    """Creates LoadBalancers, one namespace at a time."""

    def __init__(
        self, *, hub: ApiCluster, inventory: CapiInventory, events: EventWriter, leading: Callable[[], bool]
    ) -> None:
        self._hub = hub
        self._inventory = inventory
        self._events = events
        self._leading = leading

    async def reconcile(self, namespace: str) -> float | None:
        """Create the missing LoadBalancers of ``namespace``; idempotent."""
        check_may_write(self._leading)
        inventory = self._inventory
        policies = inventory.policies.by_index("namespace", namespace)
        load_balancers = inventory.load_balancers.by_index("all in namespace", namespace)
        for cluster in inventory.targets.clusters.by_index("namespace", namespace):
            named = inventory.load_balancers.get(*cluster.key)
            of_cluster = [
                *inventory.load_balancers.by_index("cluster", cluster.key),
                *([named] if named is not None else []),
            ]
            planned = planned_for(cluster, policies, of_cluster)
            refusals = [warning_event("NoLoadBalancer", planned.refusal)] if planned.refusal else []
            self._events.emit_new("creation", cluster, refusals)
            if planned.body is not None:
                with suppress(AlreadyExists):
                    await self._hub.create(LOAD_BALANCERS, planned.body)
                    log.info(
                        "load balancer made", cluster=str(cluster.key), class_name=planned.body["spec"]["className"]
                    )
                    text = f"LoadBalancer {cluster.metadata.name} of class {planned.body['spec']['className']}"
                    self._events.emit(cluster, ObjectEvent(False, "LoadBalancerMade", text))
        for policy in policies:
            label = label_value(policy.metadata.name)
            made = sum((obj.metadata.labels or {}).get(LABEL_POLICY) == label for obj in load_balancers)
            await self._write_status(policy, made)
        return None

    async def _write_status(self, policy: ClusterLoadBalancerPolicy, made: int) -> None:
        problem, meta, old = problem_of(policy), policy.metadata, policy.status
        reason = ConditionReason.SELECTOR_NOT_VALID if problem else ConditionReason.ACCEPTED
        accepted = Condition(ConditionType.ACCEPTED, not problem, reason, problem)
        now = wire_time(self._hub.clock.now())
        conditions = wire_conditions([accepted], old.conditions or [], generation=meta.generation, now=now)
        new = ClusterLoadBalancerPolicyStatus(made, meta.generation, conditions)
        await write_status(
            self._hub, CLUSTER_POLICIES, policy, old, new, manager=MANAGER_CAPI, always=("loadBalancers",)
        )


#: The annotation value with which a Cluster opts out of all policies.
NONE = "none"
_API_PORT = 6443


class PlannedLoadBalancer(msgspec.Struct, frozen=True):
    """The LoadBalancer to create for a Cluster: ``body``, or None; ``refusal``: why it cannot be created."""

    body: JSONObject | None = None
    refusal: str = ""


def planned_for(
    cluster: CapiCluster, policies: Iterable[ClusterLoadBalancerPolicy], load_balancers: Iterable[LoadBalancer]
) -> PlannedLoadBalancer:
    """Return the LoadBalancer to create for ``cluster``.

    ``load_balancers``: those of the Cluster, and the one that has its name.
    """
    if cluster.deleting or cluster.paused:
        return PlannedLoadBalancer()
    class_name = cluster.annotation(ANNOTATION_WANTED_CLASS)
    policy = None if class_name else _policy_for(cluster, policies)
    if class_name == NONE or (not class_name and (policy is None or cluster.endpoint.given)):
        return PlannedLoadBalancer()
    name = cluster.metadata.name
    present = list(load_balancers)
    if any(obj.spec.cluster_name == name and not obj.spec.additional for obj in present):
        return PlannedLoadBalancer()
    if any(obj.metadata.name == name for obj in present):
        text = f"LoadBalancer {name} exists and belongs to another Cluster; create one with another name"
        return PlannedLoadBalancer(refusal=text)
    return PlannedLoadBalancer(_body(cluster, class_name or "", policy))


def problem_of(policy: ClusterLoadBalancerPolicy) -> str:
    """Return why a policy is invalid, empty when it is valid."""
    try:
        _selector(policy)
    except BadSelector as error:
        return f"spec.clusterSelector: {error}; the policy selects no Cluster until it is corrected"
    return ""


def _policy_for(
    cluster: CapiCluster, policies: Iterable[ClusterLoadBalancerPolicy]
) -> ClusterLoadBalancerPolicy | None:
    fitting = [policy for policy in policies if not policy.deleting and _selects(policy, cluster)]
    return min(fitting, key=attrgetter("age_order"), default=None)


def _selects(policy: ClusterLoadBalancerPolicy, cluster: CapiCluster) -> bool:
    kinds, infrastructure = policy.spec.infrastructure_kinds, cluster.spec.infrastructure_ref
    if kinds and (infrastructure is None or infrastructure.kind not in kinds):
        return False
    try:
        selector = _selector(policy)
    except BadSelector:
        return False
    return selector is None or selector.matches(cluster.metadata.labels)


def _selector(policy: ClusterLoadBalancerPolicy) -> Selector | None:
    selector = policy.spec.cluster_selector
    return None if selector is None or selector.empty else from_label_selector(msgspec.to_builtins(selector))


def _body(cluster: CapiCluster, class_name: str, policy: ClusterLoadBalancerPolicy | None) -> JSONObject:
    meta = cluster.metadata
    listeners = (policy.spec.listeners if policy is not None else []) or [LoadBalancerListener(_API_PORT)]
    labels = {LABEL_MANAGED_BY: MANAGED_BY}
    if policy is not None:
        labels[LABEL_POLICY] = label_value(policy.metadata.name)
    spec: JSONObject = {
        "className": class_name or (policy.spec.class_name if policy is not None else ""),
        "clusterName": meta.name,
        "listeners": [{"protocol": "TCP", **msgspec.to_builtins(listener)} for listener in listeners],
        # Its machines need no label for it: every control-plane provider sets this one.
        "selector": {
            "matchLabels": {LABEL_CLUSTER_NAME: meta.name},
            "matchExpressions": [{"key": LABEL_CONTROL_PLANE, "operator": "Exists"}],
        },
        "targetKind": {"apiGroup": CLUSTERS.group, "kind": "Machine"},
    }
    if policy is not None and policy.spec.parameters:
        spec["parameters"] = dict(policy.spec.parameters)
    return {"metadata": {"name": meta.name, "namespace": meta.namespace, "labels": labels}, "spec": spec}


#: How many members of one load balancer are written concurrently.
_MARKS_AT_ONCE = 16
#: The source of Events about rejected writes.
_WRITES = "writes"


class CapiReconciler:
    """Reconciles load balancers of Clusters; ``leading`` says whether this replica may write.

    ``hub`` has the LoadBalancers and their groups, ``cluster`` Clusters and members; often they are the same.
    """

    def __init__(
        self,
        *,
        cluster: ApiCluster,
        hub: ApiCluster,
        inventory: CapiInventory,
        facts: ClusterFacts,
        events: EventWriter,
        hub_events: EventRecorder,
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._hub = hub
        self._inventory = inventory
        self._facts = facts
        self._events = events
        self._hub_events = hub_events
        self._refusals = EventWriter(recorder=hub_events, resource=LOAD_BALANCERS)
        self._leading = leading
        self._external = ExternallyManaged(cluster)

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Reconcile ``key``; return the seconds until the next reconcile, None if not needed. Idempotent."""
        check_may_write(self._leading)
        facts = self._facts
        view = self._inventory.view(key, authority=facts.authority(key), probe=facts.probe(key), plane=facts.plane(key))
        if view is None:
            self._facts.forget(key)
            self._refusals.forget(key)
            return None
        paused = view.cluster is not None and view.cluster.paused
        if view.load_balancer.deleting:
            # It has the same members at its new place: nothing is released here.
            if not paused and not is_moved(view.load_balancer):
                await self._end(view)
            return None
        if self._hub is not self._cluster and view.cluster_is_gone:
            if view.load_balancer.annotation(ANNOTATION_PAUSED) == PAUSED_BY_CAPI:
                return None  # paused, and gone: it moved to another management cluster
            log.info("deleting with its Cluster", key=str(key))
            with suppress(NotFound):
                await self._hub.delete(LOAD_BALANCERS, *key)
            return None
        plan = plan_load_balancer(view)
        self._facts.want(key, plan.verdict.endpoint, view, served=is_served(view))
        if plan.held_up:
            await self._write_pause(view, paused=paused)
        else:
            try:
                view, plan = await self._write(view, plan, paused=paused)
            except Forbidden as error:
                # The log is for operators; users look at the object.
                self._refusals.emit_new(_WRITES, view.load_balancer, [warning_event(error.reason, error.sentence)])
                raise
            self._refusals.emit_new(_WRITES, view.load_balancer, ())
            await self._provision(view, plan)
        await self._write_status(view, plan)
        return None

    async def _write(self, view: CapiView, plan: CapiPlan, *, paused: bool) -> tuple[CapiView, CapiPlan]:
        """Make the writes of a plan; a conflict at one member does not stop the others.

        Returns the view with what the server answered, and what is still to be done then: a member that carries our
        marks by that answer is registered at once.
        """
        seen = view
        view = await self._fill_in(view, plan, paused=paused)
        if view.foreign is not None:
            await self._inventory.infrastructures.set_owner(view.foreign, view.load_balancer, plan.to_provider)
        view, failure = await self._mark(view, plan.holds)
        plan = plan if view is seen else plan_load_balancer(view)
        seen = view
        for name, group in plan.groups.items():
            if not is_same(view.groups.get(name), group):
                body = group_body(view.load_balancer, name, view.listeners[name], group)
                written = await self._write_group(body, exists=name in view.groups)
                view = msgspec.structs.replace(view, groups={**view.groups, name: written})
                log.info("backends", group=f"{view.load_balancer.metadata.namespace}/{name}", asked=len(group.static))
        view = await self._publish(view, plan.verdict.to_cluster)
        view, failed = await self._mark(view, plan.releases)
        if (passing := failure or failed) is not None:
            raise passing
        return view, plan if view is seen else plan_load_balancer(view)

    async def _fill_in(self, view: CapiView, plan: CapiPlan, *, paused: bool) -> CapiView:
        """Set finalizer, owner reference, pause annotations and spec defaults of the LoadBalancer in one write.

        Raises:
            Conflict: it has changed meanwhile, and is not held yet.
        """
        load_balancer = view.load_balancer
        held = load_balancer.held_by(FINALIZER_MEMBERS)
        meta: JSONObject = self._tie(load_balancer, view.cluster) if view.cluster is not None else {}
        if change := annotations_to_change(load_balancer, paused=paused):
            meta["annotations"] = {**meta.get("annotations", {}), **change}
        if change := _authority_to_mark(view, plan):
            meta["annotations"] = {**meta.get("annotations", {}), **change}
        if not held:
            meta["finalizers"] = [*(load_balancer.metadata.finalizers or ()), FINALIZER_MEMBERS]
        patch: JSONObject = {"spec": dict(plan.patch)} if plan.patch else {}
        if not meta and not patch:
            return view
        # With the version, so that a user's concurrent write is never overwritten.
        patch["metadata"] = {**meta, "resourceVersion": load_balancer.metadata.resource_version}
        try:
            written = await self._hub.merge_patch(LOAD_BALANCERS, *load_balancer.key, patch, manager=MANAGER_CAPI)
        except Conflict as error:
            if not held:
                raise
            # The watch shows the change, and the key is enqueued again.
            log.debug("the load balancer has changed", key=str(load_balancer.key), sentence=error.sentence)
            return view
        taken_by = self._inventory.taken_by(written, view.cluster)
        return msgspec.structs.replace(view, load_balancer=written, taken_by=taken_by)

    async def _write_group(self, body: JSONObject, *, exists: bool) -> BackendGroup:
        """Replace a group as a whole: an apply would keep list items that another client has added."""
        meta = body["metadata"]
        if exists:
            with suppress(NotFound):
                return await self._hub.merge_patch(
                    BACKEND_GROUPS, meta["namespace"], meta["name"], body, manager=MANAGER_CAPI
                )
        return await self._hub.apply(BACKEND_GROUPS, body, manager=MANAGER_CAPI)

    async def _publish(self, view: CapiView, endpoint: ControlPlaneEndpoint | None) -> CapiView:
        """Write ``endpoint`` into the Cluster, if it should have one."""
        cluster = view.cluster
        if cluster is None or endpoint is None:
            return view
        wanted = {"host": endpoint.host, "port": endpoint.port}
        version = cluster.metadata.resource_version
        body = {"metadata": {"resourceVersion": version}, "spec": {"controlPlaneEndpoint": wanted}}
        resource = self._inventory.targets.clusters.resource
        written = await self._cluster.merge_patch(resource, *cluster.key, body, manager=MANAGER_CAPI)
        self._events.emit(cluster, ObjectEvent(False, "EndpointPublished", f"endpoint {endpoint}"))
        return msgspec.structs.replace(view, cluster=written)

    async def _provision(self, view: CapiView, plan: CapiPlan) -> None:
        """Mark the infrastructure as provisioned, where no other controller does."""
        cluster = view.cluster
        if cluster is None or plan.verdict.state is not State.SETTLED or not is_served(view):
            return
        problem = await self._external.provision(cluster, plan.verdict.endpoint)
        events = [warning_event("NotProvisioned", problem)] if problem else []
        self._events.emit_new("provisioning", cluster, events)

    def _tie(self, load_balancer: LoadBalancer, cluster: CapiCluster) -> JSONObject:
        """Return the metadata that makes a LoadBalancer a dependent of its Cluster; empty when it has it."""
        if self._hub is self._cluster:
            owners = _owners(load_balancer, cluster)
            return {"ownerReferences": owners} if owners is not None else {}
        # No owner reference reaches into another cluster.
        if not self._inventory.management:
            return {}
        tied = {ANNOTATION_TIED_TO: cluster.metadata.uid, ANNOTATION_TIED_IN: self._inventory.management}
        if tied.items() <= (load_balancer.metadata.annotations or {}).items():
            return {}
        return {"annotations": tied}

    async def _write_pause(self, view: CapiView, *, paused: bool) -> None:
        """Write the pause and block-move annotations (``moving``)."""
        load_balancer = view.load_balancer
        if change := annotations_to_change(load_balancer, paused=paused):
            body: JSONObject = {"metadata": {"annotations": change}}
            await self._hub.merge_patch(LOAD_BALANCERS, *load_balancer.key, body, manager=MANAGER_CAPI)

    async def _mark(self, view: CapiView, plans: tuple[MarkPlan, ...]) -> tuple[CapiView, Retry | None]:
        """Write the marks of members; return the view with the written objects, and the first transient error."""
        if not plans:
            return view, None
        gate = asyncio.Semaphore(_MARKS_AT_ONCE)
        resource = self._inventory.targets.resource(view.kind)
        written: dict[ObjectKey, TargetObject] = {}
        failures: list[Retry] = []

        async def patch(plan: MarkPlan) -> None:
            fields = patch_of(plan.before, plan.after)
            if resource is None or not fields:
                return
            body: JSONObject = {"metadata": {**fields, "resourceVersion": plan.target.metadata.resource_version}}
            async with gate:
                try:
                    key = plan.target.key
                    written[key] = await self._cluster.merge_patch(resource, *key, body, manager=MANAGER_CAPI)
                except NotFound:
                    pass
                except Retry as error:
                    failures.append(error)

        await all_done(patch(plan) for plan in plans)
        failure = failures[0] if failures else None
        if not written:
            return view, failure
        return msgspec.structs.replace(view, objects=tuple(written.get(obj.key, obj) for obj in view.objects)), failure

    async def _end(self, view: CapiView) -> None:
        """Release the members of a deleted load balancer, once the hub has deregistered it."""
        load_balancer = view.load_balancer
        if (ref := load_balancer.spec.infrastructure_ref) is not None:
            infrastructures = self._inventory.infrastructures
            if view.foreign is not None:
                await infrastructures.remove(view.foreign, load_balancer)
            if not infrastructures.is_absent(load_balancer.metadata.namespace, ref):
                return  # its provider is at it
        if load_balancer.held_by(FINALIZER_CLEANUP):
            return  # the hub is at it; its finalizer leaves when every backend is deregistered
        members = self._inventory.targets.in_namespace(view.kind, load_balancer.metadata.namespace)
        marked = [(obj, Marks.of(obj.metadata.annotations, obj.metadata.finalizers)) for obj in members]
        _, failure = await self._mark(
            view,
            tuple(
                MarkPlan(obj, marks, released(marks, view.name)) for obj, marks in marked if is_marked(marks, view.name)
            ),
        )
        if failure is not None:
            raise failure
        await release(self._hub, LOAD_BALANCERS, load_balancer, FINALIZER_MEMBERS, manager=MANAGER_CAPI)

    async def _write_status(self, view: CapiView, plan: CapiPlan) -> None:
        obj, old = view.load_balancer, view.load_balancer.status
        now = wire_time(self._cluster.clock.now())
        own_conditions = [condition for condition in old.conditions or () if condition.type in CAPI_CONDITIONS]
        generation = obj.metadata.generation
        conditions = wire_conditions(build_conditions(view, plan), own_conditions, generation=generation, now=now)
        members = [_since(member, now) for member in plan.members[:MEMBERS_LISTED]]
        new = LoadBalancerObjectStatus(
            endpoint=plan.verdict.endpoint if plan.verdict.endpoint.given else None,
            targets=len(plan.selection.members),
            active_targets=active(view, plan),
            target_kind=str(view.kind),
            target_selector=plan.selection.text,
            members=members or None,
            conditions=conditions,
        )
        before = LoadBalancerObjectStatus(
            endpoint=old.endpoint,
            targets=old.targets,
            active_targets=old.active_targets,
            target_kind=old.target_kind,
            target_selector=old.target_selector,
            members=old.members,
            conditions=own_conditions or None,
        )
        written = await write_status(
            self._hub, LOAD_BALANCERS, obj, before, new, manager=MANAGER_CAPI, always=("targets", "activeTargets")
        )
        if written is not None:
            emit_transitions(self._hub_events, LOAD_BALANCERS, obj, transitions(own_conditions, conditions))


def _since(member: MemberStatus, now: str) -> MemberStatus:
    return member if member.since else msgspec.structs.replace(member, since=now)


def _owners(load_balancer: LoadBalancer, cluster: CapiCluster) -> list[JSONObject] | None:
    """Return the owners of a LoadBalancer with its Cluster, None when that is one of them already."""
    owners = load_balancer.metadata.owner_references or []
    if any(reference.uid == cluster.metadata.uid for reference in owners):
        return None
    owner = {"apiVersion": CLUSTERS.api_version, "kind": "Cluster", "name": cluster.metadata.name}
    return [*map(msgspec.to_builtins, owners), {**owner, "uid": cluster.metadata.uid}]


def _authority_to_mark(view: CapiView, plan: CapiPlan) -> dict[str, str]:
    """Return the annotation that says which bundle is the Cluster's own, so that it follows the Cluster's Secret."""
    check = view.load_balancer.spec.health_check
    bundle = cast("Mapping[str, str]", plan.patch.get("healthCheck", {})).get("caBundle", "")
    if not bundle and check is not None and check.ca_bundle == view.authority and view.follows_authority:
        bundle = check.ca_bundle
    digest = short_hash(bundle) if bundle else ""
    marked_digest = view.load_balancer.annotation(ANNOTATION_AUTHORITY)
    return {ANNOTATION_AUTHORITY: digest} if digest and marked_digest != digest else {}


_HELD_BY = "fairlead.dev"


def annotations_to_change(load_balancer: LoadBalancer, *, paused: bool) -> dict[str, str | None]:
    """Return the annotations of ``load_balancer`` to change; None removes one."""
    pause = load_balancer.annotation(ANNOTATION_PAUSED)
    by_user = bool(pause) and pause not in (PAUSED_BY_CAPI, "false")
    wanted: dict[str, str | None] = {ANNOTATION_BLOCK_MOVE: None if paused and _rests(load_balancer) else _HELD_BY}
    if not by_user and paused:
        wanted[ANNOTATION_PAUSED] = PAUSED_BY_CAPI
    elif pause == PAUSED_BY_CAPI:
        wanted[ANNOTATION_PAUSED] = None
    present = load_balancer.metadata.annotations or {}
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def _rests(load_balancer: LoadBalancer) -> bool:
    """Return whether the hub has observed the pause; true for a load balancer of another provider."""
    return load_balancer.spec.infrastructure_ref is not None or is_true(
        load_balancer.status.conditions, ConditionType.PAUSED
    )


class _Spec(Wire, frozen=True, gc=False):
    control_plane_endpoint: ControlPlaneEndpoint = ControlPlaneEndpoint()


class _Initialization(Wire, frozen=True, gc=False):
    provisioned: bool = False


class _ReconcileStatus(Wire, frozen=True, gc=False):
    ready: bool = False
    initialization: _Initialization = _Initialization()


class _InfraCluster(KubeObject, frozen=True, gc=False):
    spec: _Spec = _Spec()
    status: _ReconcileStatus = _ReconcileStatus()


class ExternallyManaged:
    """Writes endpoint and ``provisioned`` in place of the infrastructure provider; remembers finished objects."""

    def __init__(self, cluster: ApiCluster) -> None:
        self._cluster = cluster
        self._kinds: dict[TargetKind, Resource[_InfraCluster]] = {}
        self._looked: dict[ObjectKey, str] = {}

    async def provision(self, cluster: CapiCluster, endpoint: ControlPlaneEndpoint) -> str:
        """Write the missing fields; return why that is not possible, empty when all are set."""
        ref = cluster.spec.infrastructure_ref
        if ref is None or self._looked.get(cluster.key) == cluster.metadata.resource_version:
            return ""
        try:
            await self._write(cluster, TargetKind(ref.group, ref.kind), ref.name, endpoint)
        except (NotFound, NotServed):
            # The object does not exist yet, or no longer in this version; it is read again when the Cluster changes.
            self._kinds.pop(TargetKind(ref.group, ref.kind), None)
            return ""
        except FairleadError as error:
            return f"spec.infrastructureRef: {error.sentence}"
        self._looked[cluster.key] = cluster.metadata.resource_version
        return ""

    async def _write(self, cluster: CapiCluster, kind: TargetKind, name: str, endpoint: ControlPlaneEndpoint) -> None:
        resource = self._kinds.get(kind)
        if resource is None:
            resource = await find_kind(self._cluster, kind.api_group, kind.kind, _InfraCluster)
            if resource is None:
                raise NotServed(f"{self._cluster.name} does not serve {kind}")
            self._kinds[kind] = resource
        place = (cluster.metadata.namespace, name)
        obj = await self._cluster.get(resource, *place)
        if obj.annotation(ANNOTATION_MANAGED_BY) != GROUP:
            return
        if not obj.spec.control_plane_endpoint.given:
            spec = {"controlPlaneEndpoint": {"host": endpoint.host, "port": endpoint.port}}
            await self._cluster.merge_patch(resource, *place, {"spec": spec}, manager=MANAGER_CAPI)
        if not (obj.status.ready or obj.status.initialization.provisioned):
            # v1beta1 reads the one, v1beta2 the other; the definition of the kind keeps those that it has.
            status = {"ready": True, "initialization": {"provisioned": True}}
            await self._cluster.merge_patch(
                resource, *place, {"status": status}, subresource="status", manager=MANAGER_CAPI
            )
            log.info("infrastructure provisioned", cluster=str(cluster.key), endpoint=str(endpoint))


async def release_hooks(cluster: ApiCluster, hub: ApiCluster | None = None) -> list[str]:
    """Release every object; return those that were changed, as "kind namespace/name", sorted.

    ``hub`` has the LoadBalancers; None: ``cluster`` has them, too.

    Raises:
        Conflict: another client writes an object faster than it can be read.
    """
    hub = hub or cluster
    load_balancers = [obj for obj in await hub.list(LOAD_BALANCERS) if obj.spec.cluster_name]
    kinds = {obj.spec.target_kind or DEFAULT_KIND for obj in load_balancers} | {DEFAULT_KIND}
    freed: list[str] = []
    for kind in sorted(kinds, key=str):
        resource = await find_kind(cluster, kind.api_group, kind.kind, TargetObject)
        if resource is None:
            continue
        for obj in filter(_release_patch, await cluster.list(resource)):
            await on_newest(partial(_free, cluster, resource, obj))
            freed.append(f"{kind.kind} {obj.key}")
    for obj in load_balancers:
        if obj.held_by(FINALIZER_MEMBERS):
            await on_newest(partial(_release_load_balancer, hub, obj))
            freed.append(f"LoadBalancer {obj.key}")
    return freed


async def _release_load_balancer(hub: ApiCluster, obj: LoadBalancer) -> None:
    with suppress(NotFound):
        fresh = await hub.get(LOAD_BALANCERS, *obj.key)
        await release(hub, LOAD_BALANCERS, fresh, FINALIZER_MEMBERS, manager=MANAGER_CAPI)


def _release_patch(obj: TargetObject) -> JSONObject:
    before = Marks.of(obj.metadata.annotations, obj.metadata.finalizers)
    return patch_of(before, released_of_all(before))


async def _free(cluster: ApiCluster, resource: Resource[TargetObject], obj: TargetObject) -> None:
    with suppress(NotFound):
        fresh = await cluster.get(resource, *obj.key)
        if patch := _release_patch(fresh):
            body: JSONObject = {"metadata": {**patch, "resourceVersion": fresh.metadata.resource_version}}
            await cluster.merge_patch(resource, *obj.key, body, manager=MANAGER_CAPI)
