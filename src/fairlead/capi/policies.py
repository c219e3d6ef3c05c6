"""The LoadBalancer that a Cluster gets by an annotation or a policy, without an object of its own.

    annotation with a class         one of that class
    annotation "none"               none
    a policy that selects it        one as the policy says; of several, the oldest policy
    it has an endpoint              none by a policy: what serves it now is not touched
    it has a LoadBalancer           none: that one is its own

In: a Cluster, the policies and LoadBalancers of its namespace. Out: a ``PlannedLoadBalancer``. Pure. Never: a change or
removal of an existing LoadBalancer.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

import msgspec

from fairlead.api.clusterapi import CLUSTERS, LABEL_CLUSTER_NAME, LABEL_CONTROL_PLANE, Cluster
from fairlead.api.clusterpolicy import ClusterLoadBalancerPolicy
from fairlead.api.loadbalancer import LoadBalancer, LoadBalancerListener
from fairlead.api.meta import JSONObject
from fairlead.api.names import ANNOTATION_WANTED_CLASS, LABEL_MANAGED_BY, LABEL_POLICY, MANAGED_BY
from fairlead.api.naming import label_value
from fairlead.api.selectors import BadSelector, Selector, from_label_selector

#: The value of the annotation with which a Cluster wants nothing of any policy.
NONE = "none"
_API_PORT = 6443


class PlannedLoadBalancer(msgspec.Struct, frozen=True):
    """The LoadBalancer to create for a Cluster: ``body``, or None; ``refusal``: why it cannot be created."""

    body: JSONObject | None = None
    refusal: str = ""


def planned_for(
    cluster: Cluster, policies: Iterable[ClusterLoadBalancerPolicy], load_balancers: Iterable[LoadBalancer]
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
    if any(each.spec.cluster_name == name and not each.spec.additional for each in present):
        return PlannedLoadBalancer()
    if any(each.metadata.name == name for each in present):
        text = f"LoadBalancer {name} is there already, and not of this Cluster: give the Cluster one of another name"
        return PlannedLoadBalancer(refusal=text)
    return PlannedLoadBalancer(_body(cluster, class_name or "", policy))


def problem_of(policy: ClusterLoadBalancerPolicy) -> str:
    """Return why a policy is invalid, empty when it is valid."""
    try:
        _selector(policy)
    except BadSelector as error:
        return f"spec.clusterSelector: {error}; no Cluster is chosen until it is corrected"
    return ""


def _policy_for(cluster: Cluster, policies: Iterable[ClusterLoadBalancerPolicy]) -> ClusterLoadBalancerPolicy | None:
    fitting = [each for each in policies if not each.deleting and _selects(each, cluster)]
    return min(fitting, key=attrgetter("age_order"), default=None)


def _selects(policy: ClusterLoadBalancerPolicy, cluster: Cluster) -> bool:
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


def _body(cluster: Cluster, class_name: str, policy: ClusterLoadBalancerPolicy | None) -> JSONObject:
    meta = cluster.metadata
    listeners = (policy.spec.listeners if policy is not None else []) or [LoadBalancerListener(_API_PORT)]
    labels = {LABEL_MANAGED_BY: MANAGED_BY}
    if policy is not None:
        labels[LABEL_POLICY] = label_value(policy.metadata.name)
    spec: JSONObject = {
        "className": class_name or (policy.spec.class_name if policy is not None else ""),
        "clusterName": meta.name,
        "listeners": [{"protocol": "TCP", **msgspec.to_builtins(each)} for each in listeners],
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
