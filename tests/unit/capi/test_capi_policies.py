"""Which Clusters get a LoadBalancer by themselves, and which one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from capi_builders import cluster, lb

from fairlead.api.clusterapi import CapiCluster, CapiReference, ClusterLoadBalancerPolicy
from fairlead.capi.reconcile import PlannedLoadBalancer, planned_for, problem_of
from fairlead.testing.builders import decoded

PROD = {"matchLabels": {"tier": "prod"}}


def policy(name: str = "all", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> ClusterLoadBalancerPolicy:
    meta = {"name": name, "namespace": "fleet", "creationTimestamp": created}
    return decoded({"metadata": meta, "spec": {"className": "edge", **spec}}, ClusterLoadBalancerPolicy)


def with_meta(made: CapiCluster, **changes: Any) -> CapiCluster:
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, **changes))


def asking(value: str, made: CapiCluster | None = None) -> CapiCluster:
    return with_meta(made or cluster(), annotations={"fairlead.dev/load-balancer-class": value})


def class_of(planned: PlannedLoadBalancer) -> str:
    return planned.body["spec"]["className"] if planned.body is not None else ""


@pytest.mark.req("C-23", "C-59")
def test_a_policy_fills_in_everything():
    planned = planned_for(cluster(), [policy(parameters={"zone": "a"})], [])
    assert planned.body is not None
    assert planned.body["metadata"] == {
        "name": "blue",
        "namespace": "fleet",
        "labels": {"app.kubernetes.io/managed-by": "fairlead", "fairlead.dev/policy": "all"},
    }
    assert planned.body["spec"] == {
        "className": "edge",
        "clusterName": "blue",
        "listeners": [{"protocol": "TCP", "port": 6443}],
        "selector": {
            "matchLabels": {"cluster.x-k8s.io/cluster-name": "blue"},
            "matchExpressions": [{"key": "cluster.x-k8s.io/control-plane", "operator": "Exists"}],
        },
        "targetKind": {"apiGroup": "cluster.x-k8s.io", "kind": "Machine"},
        "parameters": {"zone": "a"},
    }


@pytest.mark.req("C-5", "C-12", "C-59")
@pytest.mark.parametrize(
    ("made", "policies", "class_name"),
    [
        (cluster(), [], ""),
        (asking("edge"), [], "edge"),
        (asking("cloud"), [policy()], "cloud"),
        (asking("none"), [policy()], ""),
        # What serves it now is not touched, except when it asks itself.
        (cluster(endpoint="192.0.2.1"), [policy()], ""),
        (asking("edge", cluster(endpoint="192.0.2.1")), [], "edge"),
        (cluster(paused=True), [policy()], ""),
        (with_meta(cluster(), deletion_timestamp="2026-01-01T00:00:00Z"), [policy()], ""),
        (cluster(), [policy(clusterSelector=PROD)], ""),
        (with_meta(cluster(), labels={"tier": "prod"}), [policy(clusterSelector=PROD)], "edge"),
        (cluster(), [policy(infrastructureKinds=["MetalCluster"])], ""),
        # Of several the oldest counts.
        (cluster(), [policy("b", className="late"), policy("c", "2025-01-01T00:00:00Z", className="early")], "early"),
    ],
)  # fmt: skip
def test_who_gets_one(made, policies, class_name):
    assert class_of(planned_for(made, policies, [])) == class_name


@pytest.mark.req("C-59")
@pytest.mark.parametrize(("kinds", "class_name"), [(["MetalCluster"], "edge"), (["CloudCluster"], "")])
def test_a_policy_for_a_kind_of_infrastructure(kinds, class_name):
    made = cluster()
    spec = msgspec.structs.replace(made.spec, infrastructure_ref=CapiReference("MetalCluster", "blue"))
    made = msgspec.structs.replace(made, spec=spec)
    assert class_of(planned_for(made, [policy(infrastructureKinds=kinds)], [])) == class_name


@pytest.mark.req("C-23")
def test_a_cluster_with_a_load_balancer_gets_no_other():
    assert planned_for(cluster(), [policy()], [lb("mine")]) == PlannedLoadBalancer()
    # An additional one is not the one of its endpoint.
    assert class_of(planned_for(cluster(), [policy()], [lb("inner", additional=True)])) == "edge"


def test_a_name_that_is_taken_is_refused_in_words():
    planned = planned_for(cluster(), [policy()], [lb("blue", clusterName="red")])
    assert planned.body is None
    assert planned.refusal.startswith("LoadBalancer blue exists and belongs to another Cluster")


def test_a_selector_that_cannot_be_read_chooses_nothing():
    bad = policy(clusterSelector={"matchExpressions": [{"key": "a", "operator": "Near"}]})
    assert "spec.clusterSelector" in problem_of(bad)
    assert planned_for(cluster(), [bad], []) == PlannedLoadBalancer()
    assert problem_of(policy()) == ""
