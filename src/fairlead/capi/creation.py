"""Create the LoadBalancers that Clusters get by an annotation or a policy, and write the status of each policy.

In: a namespace. Out: LoadBalancers that are created, Events, the status of policies. Never: a write while another
replica leads, or to a LoadBalancer that is there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import structlog

from fairlead.api.clusterapi import CLUSTERS, Cluster
from fairlead.api.clusterpolicy import CLUSTER_POLICIES, ClusterLoadBalancerPolicy, ClusterLoadBalancerPolicyStatus
from fairlead.api.conditions import wire_conditions
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.names import LABEL_POLICY, MANAGER_CAPI
from fairlead.api.naming import label_value
from fairlead.api.times import wire_time
from fairlead.capi.inventory import Inventory
from fairlead.capi.policies import planned_for, problem_of
from fairlead.errors import AlreadyExists, Wait
from fairlead.kube.cluster import Cluster as ApiCluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.status import write_status
from fairlead.model.condition import Condition, ConditionReason, ConditionType

log = structlog.get_logger(__name__)


class LoadBalancerCreator:
    """Creates LoadBalancers, one namespace at a time."""

    def __init__(
        self, *, hub: ApiCluster, inventory: Inventory, events: EventRecorder, leading: Callable[[], bool]
    ) -> None:
        self._hub = hub
        self._inventory = inventory
        self._events = events
        self._leading = leading

    async def reconcile(self, namespace: str) -> float | None:
        """Create the missing LoadBalancers of ``namespace``; idempotent."""
        if not self._leading():
            raise Wait("another replica leads, or may: nothing is written")
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
            if planned.refusal:
                self._emit(cluster, warning=True, reason="NoLoadBalancer", message=planned.refusal)
            if planned.body is not None:
                with suppress(AlreadyExists):
                    await self._hub.create(LOAD_BALANCERS, planned.body)
                    log.info(
                        "load balancer made", cluster=str(cluster.key), class_name=planned.body["spec"]["className"]
                    )
                    text = f"LoadBalancer {cluster.metadata.name} of class {planned.body['spec']['className']}"
                    self._emit(cluster, warning=False, reason="LoadBalancerMade", message=text)
        for policy in policies:
            label = label_value(policy.metadata.name)
            made = sum((each.metadata.labels or {}).get(LABEL_POLICY) == label for each in load_balancers)
            await self._write_status(policy, made)
        return None

    def _emit(self, cluster: Cluster, *, warning: bool, reason: str, message: str) -> None:
        self._events.emit_about(CLUSTERS, cluster, warning=warning, reason=reason, message=message)

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
