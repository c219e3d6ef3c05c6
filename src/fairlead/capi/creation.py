"""Create the LoadBalancers that Clusters get by an annotation or a policy, and write the status of each policy.

In: a namespace. Out: LoadBalancers that are created, Events, the status of policies. Never: a write while another
replica leads, or to a LoadBalancer that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import attrgetter

import msgspec
import structlog

from fairlead.api.clusterapi import (
    CLUSTER_POLICIES,
    CLUSTERS,
    LABEL_CLUSTER_NAME,
    LABEL_CONTROL_PLANE,
    CapiCluster,
    ClusterLoadBalancerPolicy,
    ClusterLoadBalancerPolicyStatus,
)
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer, LoadBalancerListener
from fairlead.api.meta import JSONObject, wire_conditions
from fairlead.api.names import (
    ANNOTATION_WANTED_CLASS,
    LABEL_MANAGED_BY,
    LABEL_POLICY,
    MANAGED_BY,
    MANAGER_CAPI,
    label_value,
)
from fairlead.api.selectors import BadSelector, Selector, from_label_selector
from fairlead.api.times import wire_time
from fairlead.capi.inventory import CapiInventory
from fairlead.errors import AlreadyExists, Wait
from fairlead.kube.cluster import Cluster as ApiCluster
from fairlead.kube.events import EventWriter
from fairlead.kube.status import write_status
from fairlead.model.condition import Condition, ConditionReason, ConditionType, ObjectEvent, warning_event

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
        if not self._leading():
            raise Wait("not the leader; write skipped")
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


#: The value of the annotation with which a Cluster wants nothing of any policy.
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
