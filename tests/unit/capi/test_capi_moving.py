"""Which annotations a load balancer gets while its Cluster is paused or moved."""

from __future__ import annotations

import pytest

from fairlead.api.clusterapi import is_moved
from fairlead.api.loadbalancer import LoadBalancer, LoadBalancerObjectStatus, LoadBalancerSpec
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.capi.reconcile import annotations_to_change

BLOCK, PAUSED = "clusterctl.cluster.x-k8s.io/block-move", "fairlead.dev/paused"


def load_balancer(annotations: dict[str, str] | None = None, *, rests: bool = False) -> LoadBalancer:
    conditions = [WireCondition(type="Paused", status="True", reason="PausedByUser")] if rests else None
    return LoadBalancer(
        metadata=ObjectMeta(name="api", namespace="fleet", annotations=annotations),
        spec=LoadBalancerSpec(class_name="edge", cluster_name="blue"),
        status=LoadBalancerObjectStatus(conditions=conditions),
    )


@pytest.mark.parametrize(
    ("present", "rests", "paused", "change"),
    [
        pytest.param({}, False, False, {BLOCK: "fairlead.dev"}, id="new"),
        pytest.param({BLOCK: "fairlead.dev"}, False, False, {}, id="goes on"),
        pytest.param({BLOCK: "fairlead.dev"}, False, True, {PAUSED: "cluster-api"}, id="paused a moment ago"),
        pytest.param({BLOCK: "fairlead.dev", PAUSED: "cluster-api"}, False, True, {}, id="the hub has not seen it"),
        pytest.param({BLOCK: "fairlead.dev", PAUSED: "cluster-api"}, True, True, {BLOCK: None}, id="the hub rests"),
        pytest.param({PAUSED: "cluster-api"}, True, True, {}, id="may be moved"),
        pytest.param({PAUSED: "cluster-api"}, True, False, {BLOCK: "fairlead.dev", PAUSED: None}, id="goes on again"),
        pytest.param({PAUSED: "by hand", BLOCK: "fairlead.dev"}, True, True, {BLOCK: None}, id="a user's own pause"),
        pytest.param({PAUSED: "by hand"}, True, False, {BLOCK: "fairlead.dev"}, id="which stays"),
        pytest.param(
            {PAUSED: "false", BLOCK: "fairlead.dev"}, False, True, {PAUSED: "cluster-api"}, id="a pause that is none"
        ),
    ],
)
@pytest.mark.req("C-33", "C-70")
def test_annotations(present: dict[str, str], rests: bool, paused: bool, change: dict[str, str | None]) -> None:
    assert annotations_to_change(load_balancer(present, rests=rests), paused=paused) == change


@pytest.mark.parametrize(
    ("annotations", "moved"), [({"clusterctl.cluster.x-k8s.io/delete-for-move": ""}, True), ({}, False)]
)
def test_a_move_is_known_by_the_note_of_clusterctl(annotations: dict[str, str], moved: bool) -> None:
    assert is_moved(load_balancer(annotations)) is moved
